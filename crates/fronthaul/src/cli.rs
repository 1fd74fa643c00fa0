//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchCommand;

/// The edge for one-to-one voice AI: WebRTC towards the user, warm QUIC towards the model.
#[derive(Debug, Parser)]
#[command(name = "fronthaul", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an edge and a transceiver on this machine, as two processes that start and end together.
    Up(UpOptions),
    /// Run an edge: one UDP port for WebRTC, HTTP signaling, links to transceivers.
    Edge(DaemonOptions),
    /// Run a transceiver: calls, voice, backends.
    Transceiver(DaemonOptions),
    /// Measure an edge, the whole road, or another server, beside a plain UDP echo.
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonOptions {
    /// The config file. Without it all keys have their defaults.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key, over the file: --set log.level=debug. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Read and check the config, report every problem, and end.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// An address under which clients reach this machine, IP or IP:port. Binds media and HTTP on all interfaces, which
    /// otherwise are on 127.0.0.1 alone. May be repeated.
    #[arg(long, value_name = "ADDR")]
    pub(crate) advertise: Vec<String>,
    /// Where keys and certificates are kept. Default: $XDG_STATE_HOME/fronthaul or ~/.local/state/fronthaul.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The page and signaling, TCP. Default: 127.0.0.1:8080, or all interfaces with --advertise. Port 0, here and below,
    /// takes a free one.
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// Media, UDP. Default: 127.0.0.1:3478, or all interfaces with --advertise.
    #[arg(long, value_name = "ADDR")]
    pub(crate) media: Option<SocketAddr>,
    /// The link between edge and transceiver, UDP.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub(crate) link: SocketAddr,
    /// Health and metrics of the edge, TCP.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    pub(crate) edge_admin: SocketAddr,
    /// Health and metrics of the transceiver, TCP.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9081")]
    pub(crate) transceiver_admin: SocketAddr,
    /// Set one key of the edge: --edge-set default_model=echo. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) edge_set: Vec<String>,
    /// Set one key of the transceiver: --transceiver-set seats=10. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) transceiver_set: Vec<String>,
}
