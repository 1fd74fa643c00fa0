//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchCommand;
use crate::doctor::DoctorOptions;
use crate::explain::ExplainOptions;

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
    /// Say what of an edge is reached from here, and why the rest is not: run it where the clients are.
    Doctor(DoctorOptions),
    /// Say what happened in a call, turn by turn, with the first wrong thing on top.
    Explain(ExplainOptions),
    /// Make, rotate or show the keys that the edges of a PoP share. No secret is shown.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Make what clients show: tokens under the secret of an edge, and the hashes of API keys for its config.
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Sign a token (JWT, HS256) and print it.
    Sign(SignOptions),
    /// Read an API key from standard input and print its SHA-256, for auth.keys.sha256.
    Hash,
}

#[derive(Debug, Args)]
pub(crate) struct SignOptions {
    /// The secret, as env:NAME or @FILE. Without it, what the edge's config names as auth.token_secret.
    #[arg(long, value_name = "SECRET", conflicts_with_all = ["config", "set"])]
    pub(crate) secret: Option<String>,
    /// The edge's config file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key of the edge's config. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Whom it is for: calls at once are counted by it.
    #[arg(long, value_name = "NAME")]
    pub(crate) sub: Option<String>,
    /// Whose calls these are.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) tenant: u16,
    /// Seconds until it begins no call any more.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) expires_s: u32,
    /// Longest duration of a call; 0 for no limit.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) max_seconds: u32,
    /// Calls at once, at each edge; 0 for no limit. Needs --sub.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) max_concurrent: u32,
    /// A model that it may ask for. May be repeated; all without.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the keys: id, age, what they are used for, fingerprint of the certificate.
    Show(KeysOptions),
    /// Make a set of one key.
    New {
        #[command(flatten)]
        options: KeysOptions,
        /// Also where there is a set already. Every call of the PoP ends.
        #[arg(long)]
        replace: bool,
    },
    /// Add a key and drop those that are out of use. Running calls go on.
    Rotate(RotateOptions),
}

#[derive(Debug, Args)]
pub(crate) struct KeysOptions {
    /// The file of the set. Without it, what the edge's config names.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "set"])]
    pub(crate) file: Option<PathBuf>,
    /// The edge's config file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key of the edge's config. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RotateOptions {
    #[command(flatten)]
    pub(crate) options: KeysOptions,
    /// Seconds until the key signs: by then each edge of the PoP must have the file, which it looks at every 2 s.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) sign_after_s: u32,
    /// Keys that another one replaced more than this many hours ago are dropped. Calls that began under them end.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub(crate) keep_h: u32,
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
    /// Print where it listens once all ports are open, as one line of name=address: for port 0, which takes a free one.
    #[arg(long)]
    pub(crate) announce: bool,
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
    /// Set up and run an agent that answers, by the name of its folder in deploy/agents, or by its path. Where it cannot be had, parrot
    /// answers.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Set one key of the edge: --edge-set default_model=echo. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) edge_set: Vec<String>,
    /// Set one key of the transceiver: --transceiver-set seats=10. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) transceiver_set: Vec<String>,
}
