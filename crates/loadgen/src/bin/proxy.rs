//! `fronthaul-proxy`: a delaying, lossy UDP proxy with a packet log, for measuring what a client really gets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use loadgen::proxy;

/// Delays, drops and writes down the datagrams between a client and the edge.
#[derive(Parser)]
struct Options {
    /// Where clients send.
    #[arg(long)]
    listen: SocketAddr,
    /// Where the edge listens.
    #[arg(long)]
    to: SocketAddr,
    /// Delay of each direction in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Share of datagrams lost in each direction, in percent.
    #[arg(long, default_value_t = 0.0)]
    loss_percent: f64,
    /// Bottleneck of each direction in kbit/s, with a queue of 100 ms.
    #[arg(long)]
    rate_kbit: Option<u64>,
    /// Seed of the losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packet log: one JSON object per line.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Extension id of audio levels in the clients' offers.
    #[arg(long, default_value_t = 1)]
    audio_level_id: u8,
    /// Where TCP clients connect; their bytes are delayed and written down too.
    #[arg(long, requires = "tcp_to")]
    tcp_listen: Option<SocketAddr>,
    /// Where the edge's HTTP listens.
    #[arg(long, requires = "tcp_listen")]
    tcp_to: Option<SocketAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    anyhow::ensure!((0.0..=100.0).contains(&options.loss_percent), "--loss-percent is a share: give 0 to 100");
    let config = proxy::Config {
        listen: options.listen,
        to: options.to,
        delay: Duration::from_millis(options.delay_ms),
        loss: options.loss_percent / 100.0,
        rate: options.rate_kbit.map(|kbit| proxy::Rate::of_kbit(kbit, proxy::Rate::QUEUE)),
        seed: options.seed,
        log: options.log,
        audio_level_id: options.audio_level_id,
        tcp: options.tcp_listen.zip(options.tcp_to).map(|(listen, to)| proxy::Tcp { listen, to }),
    };
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = proxy::run(config) => ended.context("the proxy stopped"),
        _ = terminate.recv() => Ok(()),
    }
}
