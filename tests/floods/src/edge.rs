//! A real edge process, and what it says of itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use loadgen::process::{self, Daemon};

/// A running edge; it ends with this value.
pub(crate) struct Edge {
    daemon: Daemon,
    pub(crate) http: String,
    pub(crate) media: u16,
    scratch: PathBuf,
}

/// Who reads what the edge writes.
pub(crate) enum Reader {
    /// A thread, which forgets it.
    Thread,
    /// This process, whose standard input it becomes.
    Process(Stdio),
}

/// The binary under test: `FRONTHAUL_BIN`/fronthaul, or the one beside this one.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("FRONTHAUL_BIN") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_exe()?.parent().context("no folder")?.to_owned(),
    };
    let binary = folder.join("fronthaul");
    if !binary.exists() {
        bail!(
            "{} is missing: cargo build --release -p fronthaul, or set FRONTHAUL_BIN to its folder",
            binary.display()
        );
    }
    Ok(binary)
}

impl Edge {
    /// Starts one with one worker, pinned to the first core.
    pub(crate) fn start(reader: Reader, level: &str) -> anyhow::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let scratch = std::env::temp_dir().join(format!("fronthaul-floods-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let mut command = Command::new(binary()?);
        command.args(["edge", "--announce"]).env("FRONTHAUL_LOG", level);
        for (key, value) in [
            ("workers", "1".to_owned()),
            ("media_bind", "\"127.0.0.1:0\"".to_owned()),
            ("http_bind", "\"127.0.0.1:0\"".to_owned()),
            ("admin_bind", "\"127.0.0.1:0\"".to_owned()),
            ("state_dir", format!("\"{}\"", scratch.display())),
            ("default_model", "\"echo\"".to_owned()),
            ("echo_seats", "20000".to_owned()),
            // All offers come from one address.
            ("limits.unclaimed_calls_per_source", "20000".to_owned()),
            ("models", "{ echo = \"echo\" }".to_owned()),
            ("transceivers", "[]".to_owned()),
        ] {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let thread = match reader {
            Reader::Thread => {
                command.stderr(Stdio::piped());
                true
            }
            Reader::Process(stdio) => {
                command.stderr(stdio);
                false
            }
        };
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        if thread && let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || BufReader::new(stderr).lines().for_each(drop));
        }
        let mut daemon = Daemon::announced("edge", child, None)?;
        daemon.ready()?;
        let (http, media) = (format!("http://{}", daemon.port("http")?), daemon.port("media")?.port());
        Ok(Self { daemon, http, media, scratch })
    }

    pub(crate) fn admin(&self) -> anyhow::Result<SocketAddr> {
        self.daemon.port("admin")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// Everything in `/metrics` by name and labels.
    pub(crate) fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        // Counts of workers are copied each 250 ms, and published each second.
        std::thread::sleep(Duration::from_millis(1500));
        process::metrics(self.admin()?)
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// The sum of a metric over its labels.
pub(crate) fn sum(metrics: &BTreeMap<String, f64>, name: &str) -> f64 {
    process::sum(metrics, name).unwrap_or_default()
}
