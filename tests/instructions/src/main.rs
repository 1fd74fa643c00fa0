//! Instruction counts of the hot functions: `instructions` compares them with `counts.txt`, `instructions --record` writes it.
//!
//! The binary runs itself under callgrind, which counts only inside the functions of [`scenes::ALL`]. What counts is Rust code:
//! ours, and what of our dependencies and of the standard library was compiled with it. Ciphers, hashes and `memcpy` are
//! C and assembly that picks its path by the processor; their cost is shown and not bounded, so that the recorded numbers
//! hold on every x86-64 machine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

mod client;
mod scenes;

/// The recorded counts.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.txt");

/// A count may be this much above the recorded one: code units are cut anew when anything in a crate changes, which
/// moves what is inlined by a few instructions.
const TOLERANCE_PERCENT: u64 = 5;

/// The argument with which the binary runs itself.
const UNDER_CALLGRIND: &str = "--under-callgrind";

/// Instructions for one turn of a scene.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    rust: u64,
    other: u64,
}

fn main() -> ExitCode {
    let argument = env::args().nth(1);
    match argument.as_deref() {
        Some(UNDER_CALLGRIND) => {
            let name = env::args().nth(2);
            let scene = scenes::ALL.iter().find(|scene| Some(scene.name) == name.as_deref());
            scene.map_or(ExitCode::FAILURE, |scene| {
                (scene.play)();
                ExitCode::SUCCESS
            })
        }
        None | Some("--record") => match count().and_then(|counts| report(&counts, argument.is_some())) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => say(format_args!("instructions: {error}\n"), ExitCode::FAILURE),
        },
        Some(other) => say(
            format_args!("instructions: {other} is not known; it is `instructions [--record]`\n"),
            ExitCode::from(2),
        ),
    }
}

fn say(text: std::fmt::Arguments<'_>, code: ExitCode) -> ExitCode {
    // Nobody can be told that standard output is gone.
    let _ = io::stdout().write_fmt(text);
    code
}

/// Runs every scene under callgrind.
fn count() -> io::Result<BTreeMap<&'static str, Count>> {
    let folder = env::temp_dir().join(format!("fronthaul-instructions-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let counts = count_in(&folder);
    fs::remove_dir_all(&folder)?;
    counts
}

fn count_in(folder: &Path) -> io::Result<BTreeMap<&'static str, Count>> {
    let mut counts = BTreeMap::new();
    for scene in &scenes::ALL {
        let out = folder.join(scene.name);
        let function = scene.function;
        let done = Command::new("valgrind")
            .args(["-q", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no", "--compress-pos=no"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(format!("--toggle-collect={function}"))
            .arg(env::current_exe()?)
            .args([UNDER_CALLGRIND, scene.name])
            .output()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("valgrind does not start ({error}); it is the Debian package valgrind"),
                )
            })?;
        if !done.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
        }
        let sum = sum(&fs::read_to_string(&out)?);
        if sum.rust == 0 {
            return Err(io::Error::other(format!(
                "callgrind did not see {function}; was it inlined, or made one with another?"
            )));
        }
        let turns = u64::from(scene.turns);
        counts.insert(scene.name, Count { rust: sum.rust / turns, other: sum.other / turns });
    }
    Ok(counts)
}

/// Adds up the cost lines of a profile: each belongs to the function named last, but for the one after `calls=`, which is
/// the inclusive cost of the callee.
fn sum(profile: &str) -> Count {
    let mut count = Count::default();
    let (mut rust, mut inclusive) = (false, false);
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            rust = function.contains("::");
        } else if line.starts_with("calls=") {
            inclusive = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            match (std::mem::take(&mut inclusive), rust) {
                (true, _) => {}
                (false, true) => count.rust += cost,
                (false, false) => count.other += cost,
            }
        }
    }
    count
}

/// Prints the table, and records it or compares it.
fn report(counts: &BTreeMap<&'static str, Count>, record: bool) -> io::Result<bool> {
    let recorded = if record { BTreeMap::new() } else { read_record(&fs::read_to_string(RECORD)?) };
    let mut text = String::from(
        "# Instructions of Rust code in one turn of each scene; `cargo run --release -p instructions -- --record`\n",
    );
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<24} {:>9} {:>9} {:>8}  {:>9}",
        "instructions per turn", "Rust", "recorded", "change", "C and asm"
    )?;
    let mut sound = true;
    for scene in scenes::ALL {
        let count = counts.get(scene.name).copied().unwrap_or_default();
        text.push_str(&format!("{:<24} {:>8}\n", scene.name, count.rust));
        let before = recorded.get(scene.name).copied();
        let change = before.map_or_else(String::new, |before| format!("{:+.1} %", percent(count.rust, before)));
        let before_text = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        let allowed = before.is_some_and(|before| count.rust * 100 <= before * (100 + TOLERANCE_PERCENT));
        let mark = if allowed || record { "" } else { "  <-" };
        sound &= allowed;
        writeln!(out, "{:<24} {:>9} {before_text:>9} {change:>8}  {:>9}{mark}", scene.name, count.rust, count.other)?;
    }
    if record {
        fs::write(RECORD, text)?;
        writeln!(out, "recorded in {RECORD}")?;
        return Ok(true);
    }
    if !sound {
        writeln!(
            out,
            "\nWhat is marked costs over {TOLERANCE_PERCENT} % more than recorded. If the change is worth it, or the compiler is another \
             one, record anew and commit the file: cargo run --release -p instructions -- --record"
        )?;
    }
    Ok(sound)
}

fn read_record(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            Some((line.split_whitespace().next()?.to_owned(), line.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn percent(count: u64, before: u64) -> f64 {
    (count as f64 / before.max(1) as f64 - 1.0) * 100.0
}
