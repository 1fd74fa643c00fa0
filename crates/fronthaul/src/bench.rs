//! `fronthaul bench`: runs a bench of `loadgen`'s and prints what it found.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use daemon::StartError;
use loadgen::bench::{self, EchoKind, Options, Talk};
use loadgen::link_bench::{self, Controller, LinkOptions};
use serde::Serialize;

/// Calls, unless they are given.
const CALLS: usize = 200;
/// A transceiver that does all of its work carries fewer.
const VOICE_CALLS: usize = 20;
/// The most that a sweep tries at an edge by itself.
const EDGE_SEATS: usize = 8192;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The edge answers its callers itself.
    Edge(SweepOptions),
    /// Callers through the edge, the link, a transceiver that returns each packet, and back.
    Path(PathOptions),
    /// A transceiver that does all of its work: decodes, detects speech and encodes, for callers who speak.
    Voice(VoiceOptions),
    /// Set-ups beside running calls: how many per second, and what a steady storm does to those that run.
    Setup(SetupOptions),
    /// Two ends of a link, without callers, through a path that delays, loses and narrows.
    Link(LinkBenchOptions),
    /// A server that runs already and answers offers posted to it with an echo.
    Peer(PeerOptions),
    /// The control by itself: a UDP echo on a free loopback port, which is printed.
    #[command(hide = true)]
    Echo {
        #[arg(long, value_enum, default_value = "plain")]
        kind: Kind,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    Plain,
    Batched,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Calls at once; each sends 50 packets per second of 100 bytes. 200 unless given; voice: 20.
    #[arg(long, value_name = "N")]
    sessions: Option<usize>,
    /// Length of the measured window, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Set-ups at once.
    #[arg(long, value_name = "N", default_value_t = 16)]
    at_once: usize,
    /// The first address of the callers, each of which has one of its own.
    #[arg(long, value_name = "ADDR", default_value = "127.1.0.0")]
    network: Ipv4Addr,
    /// Stay out of the real-time scheduling class, which is used where the user may: other work then disturbs.
    #[arg(long)]
    no_real_time: bool,
    /// Set one key of the edge. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    edge_set: Vec<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SweepOptions {
    #[command(flatten)]
    common: Common,
    /// Look for the largest number of calls that is served well (99 of 100 frames less than 10 ms late, less than 0.1 %
    /// lost), from --sessions up to this, and draw the curve. As many as its servers have seats for unless given: 8192, and 1024 for
    /// each transceiver.
    #[arg(long, value_name = "MOST", num_args = 0..=1)]
    sweep: Option<Option<usize>>,
    /// Where the curve of --sweep goes.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PathOptions {
    #[command(flatten)]
    sweep: SweepOptions,
    /// Transceivers behind the edge.
    #[arg(long, value_name = "N", default_value_t = 1)]
    transceivers: usize,
    /// Set one key of the transceivers. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    transceiver_set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VoiceOptions {
    #[command(flatten)]
    sweep: SweepOptions,
    /// Share of the time for which each side speaks: 1 lets both speak all the time (model monologue), up to 0.44 in turns
    /// (model parrot).
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    talk: f64,
    /// Set one key of the transceiver. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    transceiver_set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SetupOptions {
    #[command(flatten)]
    common: Common,
    /// Calls begun per second in the steady storm.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 500.0)]
    storm: f64,
}

#[derive(Debug, Args)]
pub(crate) struct PeerOptions {
    #[command(flatten)]
    common: Common,
    /// Takes a POST of application/sdp and answers 201 with SDP.
    #[arg(long)]
    url: String,
    /// Processes whose CPU and memory count. May be repeated.
    #[arg(long, required = true)]
    pid: Vec<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct LinkBenchOptions {
    /// Sessions; each sends 50 frames per second of 100 bytes both ways.
    #[arg(long, value_name = "N", default_value_t = 100)]
    sessions: u32,
    /// Length of the measured window, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    /// Datagrams lost in each direction, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    loss: f64,
    /// Round trip of the path, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 40.0)]
    rtt_ms: f64,
    /// Bottleneck of each direction, in kbit/s, with a queue of 100 ms.
    #[arg(long, value_name = "KBIT")]
    rate_kbit: Option<u64>,
    /// Of the losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Congestion controller of both ends: ours, or what QUIC stacks use by default.
    #[arg(long, value_enum, default_value = "voice")]
    controller: LinkController,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LinkController {
    Voice,
    Cubic,
    NewReno,
}

impl LinkBenchOptions {
    fn options(&self) -> anyhow::Result<LinkOptions> {
        let duration = Duration::try_from_secs_f64(self.seconds).context("--seconds is no length of time")?;
        let rtt = Duration::try_from_secs_f64(self.rtt_ms / 1000.0).context("--rtt-ms is no length of time")?;
        anyhow::ensure!(self.sessions > 0, "--sessions 0 measures nothing; choose 1 or more");
        anyhow::ensure!(!duration.is_zero(), "--seconds 0 measures nothing; choose 1 or more");
        anyhow::ensure!((0.0..=100.0).contains(&self.loss), "--loss is a share: give 0 to 100");
        anyhow::ensure!(self.rate_kbit != Some(0), "--rate-kbit 0 lets nothing through; choose 1 or more");
        let controller = match self.controller {
            LinkController::Voice => Controller::Voice,
            LinkController::Cubic => Controller::Cubic,
            LinkController::NewReno => Controller::NewReno,
        };
        Ok(LinkOptions {
            sessions: self.sessions,
            duration,
            loss: self.loss / 100.0,
            rtt,
            rate_kbit: self.rate_kbit,
            seed: self.seed,
            controller,
        })
    }
}

impl VoiceOptions {
    fn talk(&self) -> anyhow::Result<Talk> {
        if self.talk == 1.0 {
            return Ok(Talk::Always);
        }
        let most = Talk::MOST;
        anyhow::ensure!(
            self.talk > 0.0 && self.talk <= most,
            "--talk {} leaves no room for turns: give 1, or above 0 and at most {most}",
            self.talk
        );
        Ok(Talk::Turns(self.talk))
    }
}

impl Common {
    /// `usual`: calls, unless they are given.
    fn options(&self, usual: usize) -> anyhow::Result<Options> {
        let duration = Duration::try_from_secs_f64(self.seconds).context("--seconds is no length of time")?;
        let sessions = self.sessions.unwrap_or(usual);
        anyhow::ensure!(sessions > 0, "--sessions 0 measures nothing; choose 1 or more");
        anyhow::ensure!(!duration.is_zero(), "--seconds 0 measures nothing; choose 1 or more");
        anyhow::ensure!(self.at_once > 0, "--at-once 0 sets nothing up; choose 1 or more");
        Ok(Options {
            sessions,
            duration,
            at_once: self.at_once,
            real_time: !self.no_real_time,
            network: self.network,
            edge_set: self.edge_set.clone(),
            ..Options::default()
        })
    }
}

/// Runs it on this thread, which is where children must be started from.
pub(crate) fn run(command: BenchCommand) -> Result<(), StartError> {
    let failed = |error: anyhow::Error| StartError::failed("bench", format!("{error:#}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.into()))?;
    match command {
        BenchCommand::Echo { kind } => bench::echo(match kind {
            Kind::Plain => EchoKind::Plain,
            Kind::Batched => EchoKind::Batched,
        }),
        other => runtime.block_on(measure(other)),
    }
    .map_err(failed)
}

async fn measure(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Edge(options) => {
            let told = options.common.options(CALLS)?;
            match options.sweep {
                Some(most) => swept(&options, &bench::sweep(&told, most.unwrap_or(EDGE_SEATS), false).await?),
                None => print(&bench::edge(&told).await?, options.common.json),
            }
        }
        BenchCommand::Path(options) => {
            let told = Options {
                transceivers: options.transceivers,
                transceiver_set: options.transceiver_set,
                ..options.sweep.common.options(CALLS)?
            };
            anyhow::ensure!(told.transceivers > 0, "--transceivers 0 leads nowhere; choose 1 or more");
            match options.sweep.sweep {
                Some(most) => {
                    let most = most.unwrap_or_else(|| EDGE_SEATS.min(told.transceivers * bench::TRANSCEIVER_SEATS));
                    swept(&options.sweep, &bench::sweep(&told, most, true).await?)
                }
                None => print(&bench::path(&told).await?, options.sweep.common.json),
            }
        }
        BenchCommand::Voice(options) => {
            let told = Options {
                transceiver_set: options.transceiver_set.clone(),
                ..options.sweep.common.options(VOICE_CALLS)?
            };
            let talk = options.talk()?;
            match options.sweep.sweep {
                Some(most) => {
                    let most = most.unwrap_or(bench::TRANSCEIVER_SEATS);
                    swept(&options.sweep, &bench::sweep_voice(&told, talk, most).await?)
                }
                None => print(&bench::voice(&told, talk).await?, options.sweep.common.json),
            }
        }
        BenchCommand::Setup(options) => {
            anyhow::ensure!(options.storm > 0.0, "--storm must be above 0");
            print(&bench::setup(&options.common.options(CALLS)?, options.storm).await?, options.common.json)
        }
        BenchCommand::Link(options) => print(&link_bench::run(&options.options()?)?, options.json),
        BenchCommand::Peer(options) => {
            print(&bench::peer(&options.common.options(CALLS)?, &options.url, &options.pid).await?, options.common.json)
        }
        BenchCommand::Echo { .. } => Ok(()),
    }
}

fn swept(options: &SweepOptions, sweep: &bench::Sweep) -> anyhow::Result<()> {
    if let Some(file) = &options.svg {
        fs::write(file, sweep.to_svg()?).with_context(|| format!("writing {}", file.display()))?;
    }
    print(sweep, options.common.json)
}

fn print(report: &(impl Display + Serialize), json: bool) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut stdout, report)?;
        writeln!(stdout)?;
    } else {
        write!(stdout, "{report}")?;
    }
    Ok(())
}
