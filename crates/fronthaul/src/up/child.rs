//! One daemon as a child process.

use std::env;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use daemon::StartError;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(super) struct Child {
    name: &'static str,
    process: tokio::process::Child,
    logs: [Option<JoinHandle<()>>; 2],
}

/// How a child ended.
pub(super) struct Ended {
    name: &'static str,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts this program again with other arguments. Call it on the main thread.
    pub(super) fn spawn(name: &'static str, arguments: &[String]) -> Result<Self, StartError> {
        let failed = |error| StartError::failed(format!("starting the {name}"), error);
        let mut command = std::process::Command::new(env::current_exe().map_err(failed)?);
        command.arg(name).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        net::process::die_with_parent(&mut command);
        let mut process = Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let logs = [
            process.stdout.take().map(|pipe| tokio::spawn(forward(name, pipe))),
            process.stderr.take().map(|pipe| tokio::spawn(forward(name, pipe))),
        ];
        Ok(Self { name, process, logs })
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

/// Copies lines to standard error, each with its origin.
async fn forward(name: &'static str, pipe: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Nobody can be told that standard error is gone, and the child must not block on it.
        let _ = writeln!(std::io::stderr(), "{name:<11} | {line}");
    }
}
