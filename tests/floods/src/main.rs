//! A real edge under pressure. Each scene prints what it measured and fails when a promise is broken.
//!
//! ```text
//! floods flood       [seconds]   50,000 forged datagrams/s beside running calls: none is answered, p99 moves < 5 ms
//! floods auxiliaries [seconds]   log reader and metrics scraper stopped (SIGSTOP): no frame is lost, media p99 moves < 1 ms,
//!                                drops counted
//! floods cycles      [count]     calls one after the other: RSS flat within 2 % (1 MiB below 10,000), nothing left
//! floods memory      [count]     calls at once: RSS per session
//! ```
//!
//! Tails are compared pair by pair, in stretches of time side by side or alternating, and the median pair is judged: a machine
//! that stands still for some milliseconds moves one pair, a fault of ours moves all of them.
//!
//! Needs Linux, `chrt` and `kill` (util-linux, procps). The edge has one core, everything else the others; where the user may,
//! both run in real time, as on a busy machine tails are otherwise those of its scheduler.

mod auxiliaries;
mod caller;
mod edge;
mod flood;
mod flooder;
mod memory;
mod window;

use std::io::Write as _;
use std::process::{Command, ExitCode};

use anyhow::bail;
use tokio::task::LocalSet;

/// Set in the process that was started again in real time.
const AGAIN: &str = "FLOODS_REAL_TIME";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["flooder", rest @ ..] => flood::serve(rest),
        ["scraper", admin] => auxiliaries::scrape(admin),
        [scene @ ("flood" | "auxiliaries" | "cycles" | "memory"), rest @ ..] if rest.len() < 2 => {
            match rest.first().map(|number| number.parse()).transpose() {
                Ok(number) => in_real_time(scene, number),
                Err(error) => Err(anyhow::Error::from(error)),
            }
        }
        _ => Err(anyhow::anyhow!("floods flood|auxiliaries|cycles|memory [number]")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("FAILED: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    // Nobody can be told that standard output is gone.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Starts this again under `chrt` where that is allowed.
fn in_real_time(scene: &str, number: Option<u32>) -> anyhow::Result<()> {
    let allowed = || Command::new("chrt").args(["-r", "1", "true"]).status().is_ok_and(|status| status.success());
    // Many calls at once are no question of tails, and would starve a busy machine.
    let tails = matches!(scene, "flood" | "auxiliaries");
    if tails && std::env::var_os(AGAIN).is_none() && allowed() {
        let mut command = Command::new("chrt");
        command.args(["-r", "1"]).arg(std::env::current_exe()?).arg(scene).args(number.map(|n| n.to_string()));
        let status = command.env(AGAIN, "1").status()?;
        if !status.success() {
            bail!("see above");
        }
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match scene {
        "flood" => LocalSet::new().block_on(&runtime, flood::run(number.unwrap_or(30))),
        "auxiliaries" => LocalSet::new().block_on(&runtime, auxiliaries::run(number.unwrap_or(60))),
        "cycles" => LocalSet::new().block_on(&runtime, memory::cycles(number.unwrap_or(100_000))),
        _ => LocalSet::new().block_on(&runtime, memory::at_once(number.unwrap_or(500))),
    }
}
