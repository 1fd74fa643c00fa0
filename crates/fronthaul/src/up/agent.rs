//! An agent that `up` sets up and runs beside the daemons: a folder with `setup` and `server.py`.
//!
//! `setup DIR` makes the agent's environment in a directory, says what it does line by line, and does nothing where all is there already.
//! `server.py --listen ADDRESS --with-parent` then says `ready ADDRESS` once it answers, and ends when its standard input does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::child::{copy, show};

/// What its lines begin with.
const NAME: &str = "agent";

/// Where agents are looked for by name: below the working directory, and below each folder above this program.
const AGENTS: &str = "deploy/agents";

/// An agent loads its models first.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A running agent. Dropped, it is killed.
pub(super) struct Agent {
    /// As models are named.
    pub(super) name: String,
    /// Where it answers.
    pub(super) address: SocketAddr,
    process: Child,
    /// As long as it is open, this process is there.
    _alive: ChildStdin,
}

impl Agent {
    /// Sets an agent up and starts it; `environments`: where the environments of agents are kept.
    ///
    /// # Errors
    /// In one line, why there is none.
    pub(super) async fn start(agent: &str, environments: &Path) -> Result<Self, String> {
        let folder = folder(agent)?;
        let name = folder.file_name().map_or_else(|| agent.to_owned(), |name| name.to_string_lossy().into_owned());
        let environment = environments.join(&name);
        setup(&folder, &environment).await?;
        let mut command = Command::new(environment.join("bin/python"));
        command.arg(folder.join("server.py")).args(["--listen", "127.0.0.1:0", "--with-parent"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut process = command.spawn().map_err(|error| format!("its server does not start: {error}"))?;
        let (Some(alive), Some(said), Some(logs)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err("its server has no pipes".to_owned());
        };
        let logs = tokio::spawn(copy(NAME, lines(logs)));
        let mut said = lines(said);
        let address = match timeout(READY_WITHIN, ready(&mut said)).await {
            Ok(Some(address)) => address,
            Ok(None) => {
                let last = logs.await.ok().flatten().unwrap_or_else(|| "it said nothing".to_owned());
                return Err(format!("its server ended: {last}"));
            }
            Err(_) => return Err(format!("its server was not ready within {} s", READY_WITHIN.as_secs())),
        };
        tokio::spawn(copy(NAME, said));
        Ok(Self { name, address, process, _alive: alive })
    }

    /// Says when it has ended by itself: calls go on with `parrot`.
    pub(super) async fn watch(mut self) {
        let how = match self.process.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        show(NAME, &format!("{} has ended ({how}): parrot answers from here on", self.name));
    }
}

/// The folder of an agent, by its name or its path.
fn folder(agent: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().ok();
    let above =
        program.iter().flat_map(|program| program.ancestors().skip(1)).map(|folder| folder.join(AGENTS).join(agent));
    let mut places = vec![PathBuf::from(agent), Path::new(AGENTS).join(agent)];
    places.extend(above);
    let found = places.into_iter().find(|place| place.join("server.py").is_file());
    let found = found.and_then(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        format!("there is no folder {AGENTS}/{agent} here or above the program, and {agent} is none with a server.py")
    })
}

/// Runs the agent's `setup`, and says what it says.
async fn setup(folder: &Path, environment: &Path) -> Result<(), String> {
    let mut command = Command::new(folder.join("setup"));
    command.arg(environment).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process =
        command.kill_on_drop(true).spawn().map_err(|error| format!("its setup does not start: {error}"))?;
    let said = process.stdout.take().map(|pipe| tokio::spawn(copy(NAME, lines(pipe))));
    let logs = process.stderr.take().map(|pipe| tokio::spawn(copy(NAME, lines(pipe))));
    let status = process.wait().await.map_err(|error| format!("its setup is lost: {error}"))?;
    let mut last = None;
    for task in [said, logs].into_iter().flatten() {
        last = task.await.ok().flatten().or(last);
    }
    if status.success() { Ok(()) } else { Err(last.unwrap_or_else(|| format!("its setup ended with {status}"))) }
}

/// The address of the line `ready ADDRESS`; `None`: it ended without.
async fn ready(said: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> Option<SocketAddr> {
    while let Ok(Some(line)) = said.next_line().await {
        if let Some(address) = line.strip_prefix("ready ").and_then(|address| address.trim().parse().ok()) {
            return Some(address);
        }
        show(NAME, &line);
    }
    None
}

fn lines<R: AsyncRead>(pipe: R) -> Lines<BufReader<R>> {
    BufReader::new(pipe).lines()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// An agent whose `setup` and server are these shell scripts.
    fn agent(name: &str, setup: &str, server: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fronthaul-agent-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.join(file);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("setup", &format!("#!/bin/sh\nmkdir -p \"$1/bin\" && ln -sf /bin/sh \"$1/bin/python\"\n{setup}\n"));
        write("server.py", server);
        folder
    }

    async fn started(folder: &Path) -> Result<Agent, String> {
        let outcome = Agent::start(&folder.display().to_string(), &folder.join("environments")).await;
        std::fs::remove_dir_all(folder).unwrap();
        outcome
    }

    #[tokio::test]
    async fn an_agent_that_says_where_it_answers_runs_until_its_input_ends() {
        let folder = agent("sound", "echo making it", "echo loading; echo ready 127.0.0.1:50051; cat");
        let mut agent = started(&folder).await.unwrap();
        assert_eq!(agent.address, "127.0.0.1:50051".parse().unwrap());
        drop(agent._alive);
        assert!(agent.process.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn the_last_line_of_a_failed_setup_is_the_reason() {
        let folder = agent("unset", "echo one; echo the network is gone >&2; exit 1", "");
        assert_eq!(started(&folder).await.err().as_deref(), Some("the network is gone"));
    }

    #[tokio::test]
    async fn the_last_line_of_a_server_that_ends_is_the_reason() {
        let folder = agent("broken", "", "echo no model here >&2; exit 3");
        assert_eq!(started(&folder).await.err().as_deref(), Some("its server ended: no model here"));
    }

    #[tokio::test]
    async fn an_agent_that_is_nowhere_is_named() {
        let error = Agent::start("no-such-agent", Path::new("/nowhere")).await.err().unwrap();
        assert!(error.starts_with("there is no folder deploy/agents/no-such-agent"), "{error}");
    }
}
