//! The one binary of Fronthaul: an edge, a transceiver, or both at once, and what measures them.

mod bench;
mod cli;
mod doctor;
mod explain;
mod keys;
mod token;
mod up;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use daemon::config::{Checked, load};
use daemon::{Announce, Source, StartError};

use cli::{Cli, Command, DaemonOptions};

/// Workers show that media allocates nothing (`fronthaul_edge_worker_allocations_total`).
#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Up(options) => up::run(&options),
        Command::Edge(options) => start(&options, edge::run),
        Command::Keys(command) => keys::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Transceiver(options) => start(&options, transceiver::run),
        Command::Doctor(options) => doctor::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Bench(command) => bench::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody can be told that standard error is gone.
            let _ = writeln!(io::stderr(), "fronthaul: {error}");
            error.exit_code()
        }
    }
}

/// Reads the config of a daemon and runs it until it is told to stop.
fn start<C: Checked>(
    options: &DaemonOptions,
    run: impl FnOnce(C, Announce) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let source = Source { file: options.config.clone(), set: options.set.clone() };
    let config = load(&source)?;
    if options.check {
        let _ = writeln!(io::stdout(), "the config is sound");
        return Ok(());
    }
    run(config, if options.announce { Announce::Stdout } else { Announce::Silent })
}
