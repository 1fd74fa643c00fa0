//! One daemon as a child process.

use std::env;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use daemon::StartError;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(super) struct Child {
    name: &'static str,
    process: tokio::process::Child,
    logs: [Option<JoinHandle<()>>; 2],
    announced: Option<Announced>,
}

/// Where a daemon listens, by name, as soon as it says so.
pub(super) type Announced = oneshot::Receiver<Vec<(String, SocketAddr)>>;

/// How a child ended.
pub(super) struct Ended {
    name: &'static str,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts this program again as this daemon. Call it on the main thread.
    pub(super) fn spawn(
        name: &'static str,
        arguments: &[String],
        environment: Option<(&str, &str)>,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::failed(format!("starting the {name}"), error);
        let mut command = std::process::Command::new(env::current_exe().map_err(failed)?);
        command
            .arg(name)
            .args(arguments)
            .envs(environment)
            .arg("--announce")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0);
        net::process::die_with_parent(&mut command);
        let mut process = Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let (said, announced) = oneshot::channel();
        let logs = [
            process.stdout.take().map(|pipe| tokio::spawn(announce(name, pipe, said))),
            process.stderr.take().map(|pipe| tokio::spawn(forward(name, pipe))),
        ];
        Ok(Self { name, process, logs, announced: Some(announced) })
    }

    /// Where it listens; asked for once.
    pub(super) fn announced(&mut self) -> Announced {
        self.announced.take().unwrap_or_else(|| oneshot::channel().1)
    }

    /// Waits until it has ended and all it said is forwarded. Cancel safe.
    pub(super) async fn ended(&mut self) -> Ended {
        let status = self.process.wait().await.ok();
        for log in &mut self.logs {
            if let Some(task) = log {
                let _ = task.await;
            }
            *log = None;
        }
        Ended { name: self.name, status }
    }

    /// Asks it to stop, and kills it when it has not stopped in time.
    pub(super) async fn end(&mut self, within: Duration) {
        if let Some(pid) = self.process.id() {
            // It fails only for a process that is not ours.
            let _ = net::process::terminate(pid);
        }
        if timeout(within, self.ended()).await.is_err() {
            let _ = writeln!(std::io::stderr(), "fronthaul: the {} did not stop in time and is killed", self.name);
            let _ = self.process.kill().await;
        }
    }
}

impl Ended {
    pub(super) fn into_error(self) -> StartError {
        let how = match self.status {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("ended by signal {signal}"),
                (None, None) => "ended".to_owned(),
            },
            None => "ended".to_owned(),
        };
        let usage = i32::from(StartError::EXIT_USAGE);
        if self.status.and_then(|status| status.code()) == Some(usage) {
            return StartError::Child { what: format!("the {} refused to start: see its message above", self.name) };
        }
        StartError::failed(format!("the {} ended on its own", self.name), how)
    }
}

/// Reads the announcement, which is the first line that a daemon writes to standard output, and copies what follows.
async fn announce(name: &'static str, pipe: impl AsyncRead + Unpin, said: oneshot::Sender<Vec<(String, SocketAddr)>>) {
    let mut lines = BufReader::new(pipe).lines();
    if let Ok(Some(line)) = lines.next_line().await {
        let port = |word: &str| word.split_once('=').and_then(|(name, at)| Some((name.to_owned(), at.parse().ok()?)));
        // Who asked may have ended meanwhile.
        let _ = said.send(line.split_ascii_whitespace().filter_map(port).collect());
    }
    drop(copy(name, lines).await);
}

/// Copies lines to standard error, each with its origin.
async fn forward(name: &'static str, pipe: impl AsyncRead + Unpin) {
    drop(copy(name, BufReader::new(pipe).lines()).await);
}

/// Copies lines to standard error; the last one that has words.
pub(super) async fn copy(name: &'static str, mut lines: Lines<BufReader<impl AsyncRead + Unpin>>) -> Option<String> {
    let mut last = None;
    while let Ok(Some(line)) = lines.next_line().await {
        show(name, &line);
        last = Some(line).filter(|line| !line.trim().is_empty()).or(last);
    }
    last
}

/// A line with its origin.
pub(super) fn show(name: &str, line: &str) {
    // Nobody can be told that standard error is gone, and the child must not block on it.
    let _ = writeln!(std::io::stderr(), "{name:<11} | {line}");
}
