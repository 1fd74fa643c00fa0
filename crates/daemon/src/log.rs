//! Log lines on standard error, as text or JSON, written by a thread of their own.
//!
//! A terminal or pipe that is not read must not stop a worker: lines wait in a queue that is bounded in lines and in bytes,
//! and those that find it full are counted in `fronthaul_log_lines_dropped_total` and dropped.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::problem::{Problem, Problems};

/// Overrides `log.level`.
pub const LEVEL_VARIABLE: &str = "FRONTHAUL_LOG";
/// Overrides `log.format`.
pub const FORMAT_VARIABLE: &str = "FRONTHAUL_LOG_FORMAT";

/// Lines that may wait: a burst of one line per session fits. At ~200 bytes per line 4096 of them are below 1 MiB.
const QUEUE_LINES: usize = 4096;

/// Bytes that they may have: a record of a turn, the longest line there is, has 2 KiB usually and 20 KiB at most, so a burst
/// of one per session of 1024 fits.
const QUEUE_BYTES: usize = 4 << 20;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The `[log]` table of a config file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How lines are written. Defaults to `text`; the environment variable `FRONTHAUL_LOG_FORMAT` wins.
    pub format: Format,
    /// What is written: a level, or directives such as `info,edge=debug`. Each level below `info` costs CPU
    /// per event. Defaults to `info`; the environment variable `FRONTHAUL_LOG` wins.
    pub level: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self { format: Format::Text, level: "info".to_owned() }
    }
}

impl Config {
    /// Adds what is wrong with the table.
    pub fn check(&self, problems: &mut Problems) {
        if let Err(problem) = filter("log.level", &self.level) {
            problems.push(problem);
        }
    }
}

/// Waits, when dropped, until the lines so far are written: hold it to the end of `main`.
#[derive(Debug)]
pub struct Guard {
    queue: SyncSender<Entry>,
}

/// Starts logging for the whole process. When logging was started already, that one stays.
///
/// # Errors
///
/// A [`Problem`] that names the key or the environment variable.
pub fn init(config: &Config) -> Result<Guard, Problem> {
    let filter = match env::var(LEVEL_VARIABLE) {
        Ok(level) => filter(LEVEL_VARIABLE, &level)?,
        Err(_) => filter("log.level", &config.level)?,
    };
    let format = match env::var(FORMAT_VARIABLE).as_deref() {
        Ok("text") => Format::Text,
        Ok("json") => Format::Json,
        Ok(other) => {
            let reason = "unknown format";
            return Err(Problem::new(FORMAT_VARIABLE, other, reason, "set it to text or json, or unset it"));
        }
        Err(_) => config.format,
    };
    let (queue, lines) = queue();
    thread::Builder::new().name("log".to_owned()).spawn(move || lines.write_to(&mut io::stderr())).map_err(
        |error| {
            Problem::new("log", "", format_args!("no thread for the writer: {error}"), "raise the limit of threads")
        },
    )?;
    let guard = Guard { queue: queue.entries.clone() };
    let layer = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue);
    // It fails when a subscriber is installed, as in tests that start several daemons; that one stays.
    let _ = match format {
        Format::Text => layer.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => layer.json().flatten_event(true).finish().try_init(),
    };
    Ok(guard)
}

/// Lines dropped so far.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

fn filter(key: &str, level: &str) -> Result<EnvFilter, Problem> {
    let problem = |reason: &dyn std::fmt::Display| {
        let fix = "write off, error, warn, info, debug or trace, or directives such as info,edge=debug";
        Problem::new(key, format_args!("{level:?}"), reason, fix)
    };
    // A word alone that is no level would be taken for the name of a target, and silence all others.
    let bare = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
    if let Some(word) = level.split(',').find(bare) {
        return Err(problem(&format_args!("{word:?} is no level")));
    }
    EnvFilter::builder().parse(level).map_err(|error| problem(&error))
}

enum Entry {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// Both ends of an empty queue.
fn queue() -> (Queue, Lines) {
    let (sender, receiver) = sync_channel(QUEUE_LINES);
    let bytes = Arc::new(AtomicUsize::new(0));
    (Queue { entries: sender, bytes: Arc::clone(&bytes) }, Lines { entries: receiver, bytes })
}

/// The writer's end.
struct Lines {
    entries: Receiver<Entry>,
    bytes: Arc<AtomicUsize>,
}

impl Lines {
    /// Until all who could write lines are gone.
    fn write_to(&self, out: &mut impl Write) {
        while let Ok(entry) = self.entries.recv() {
            match entry {
                Entry::Line(line) => {
                    // Nobody can be told that standard error is gone.
                    let _ = out.write_all(&line);
                    self.bytes.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Entry::Flush(done) => drop(done.try_send(())),
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A reader that has stopped may not keep the process from ending.
        const PATIENCE: Duration = Duration::from_millis(200);
        let (done, written) = sync_channel(1);
        if self.queue.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(PATIENCE);
        }
    }
}

/// Hands each line, which `tracing-subscriber` writes in one call, to the queue.
#[derive(Clone)]
struct Queue {
    entries: SyncSender<Entry>,
    /// Of the lines that wait, and of the one that is being written.
    bytes: Arc<AtomicUsize>,
}

impl Queue {
    /// `false`: there is no room.
    fn take(&self, line: &[u8]) -> bool {
        let before = self.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let taken = before.saturating_add(line.len()) <= QUEUE_BYTES
            && self.entries.try_send(Entry::Line(line.to_vec())).is_ok();
        if !taken {
            self.bytes.fetch_sub(line.len(), Ordering::Relaxed);
        }
        taken
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.take(line) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the count belongs to the process.
    #[test]
    fn a_queue_that_nobody_empties_drops_and_counts_without_blocking() {
        let (mut queue, lines) = queue();
        let before = dropped();
        for _ in 0..QUEUE_LINES + 3 {
            queue.write_all(b"line\n").unwrap();
        }
        assert_eq!(dropped() - before, 3, "it is bounded in lines");

        let (mut long, _never_read) = super::queue();
        let before = dropped();
        for _ in 0..6 {
            long.write_all(&vec![b'a'; 1 << 20]).unwrap();
        }
        assert_eq!(dropped() - before, 2, "and in bytes");

        drop(queue);
        let mut written = Vec::new();
        lines.write_to(&mut written);
        assert_eq!(written.len(), 5 * QUEUE_LINES);
        assert_eq!(lines.bytes.load(Ordering::Relaxed), 0, "what is written makes room");
    }

    #[test]
    fn a_level_that_does_not_exist_is_a_problem_of_its_key() {
        for level in ["loud", "info,edge=loud", "info,edge"] {
            let mut problems = Problems::new();
            Config { level: level.to_owned(), ..Config::default() }.check(&mut problems);
            let problems = problems.into_vec();
            assert_eq!(problems.len(), 1, "{level}");
            assert_eq!((problems[0].key.as_str(), problems[0].value.clone()), ("log.level", format!("{level:?}")));
        }
    }

    #[test]
    fn levels_and_directives_are_accepted() {
        for level in ["off", "INFO", "warn,edge=debug", "info,link::quic=trace", "[session]=debug"] {
            let mut problems = Problems::new();
            Config { level: level.to_owned(), ..Config::default() }.check(&mut problems);
            assert!(problems.is_empty(), "{level}: {problems:?}");
        }
    }
}
