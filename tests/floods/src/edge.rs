//! A real edge process, and what it says of itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A running edge; it ends with this value.
pub(crate) struct Edge {
    child: Child,
    pub(crate) http: String,
    pub(crate) admin: String,
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
        let scratch = std::env::temp_dir().join(format!("fronthaul-floods-{}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let (http, admin) = (free_tcp()?, free_tcp()?);
        let media = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(binary()?);
        command.arg("edge").env("FRONTHAUL_LOG", level);
        for (key, value) in [
            ("workers", "1".to_owned()),
            ("media_bind", format!("\"127.0.0.1:{media}\"")),
            ("http_bind", format!("\"127.0.0.1:{http}\"")),
            ("admin_bind", format!("\"127.0.0.1:{admin}\"")),
            ("state_dir", format!("\"{}\"", scratch.display())),
            ("default_model", "\"echo\"".to_owned()),
            ("echo_seats", "20000".to_owned()),
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
        let mut child = command.stdout(Stdio::null()).spawn()?;
        if thread && let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || BufReader::new(stderr).lines().for_each(drop));
        }
        let (http, admin) = (format!("http://127.0.0.1:{http}"), format!("http://127.0.0.1:{admin}"));
        let mut edge = Self { child, http, admin, media, scratch };
        let began = Instant::now();
        while ureq::get(format!("{}/readyz", edge.admin)).call().is_err() {
            if let Some(status) = edge.child.try_wait()? {
                bail!("the edge ended: {status}");
            }
            if began.elapsed() > Duration::from_secs(20) {
                bail!("the edge is not ready after 20 s");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(edge)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything in `/metrics` by name and labels.
    pub(crate) fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        // Counts of workers are copied each 250 ms, and published each second.
        std::thread::sleep(Duration::from_millis(1500));
        let text = ureq::get(format!("{}/metrics", self.admin)).call()?.body_mut().read_to_string()?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(k, v)| Some((k.to_owned(), v.parse().ok()?)))
            .collect())
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

fn free_tcp() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The sum of a metric over its labels.
pub(crate) fn sum(metrics: &BTreeMap<String, f64>, name: &str) -> f64 {
    let of = |key: &str| key.split('{').next() == Some(name);
    metrics.iter().filter(|(key, _)| of(key)).map(|(_, value)| value).sum()
}
