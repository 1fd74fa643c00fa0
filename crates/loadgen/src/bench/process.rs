//! Where a bench runs what it starts: servers under test have a core of their own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use serde::Serialize;

use crate::process::Daemon;

/// The generator, and what shares its core.
const GREEDY: i8 = -20;

/// Among real-time threads: the lowest.
const SERVER_PRIORITY: u8 = 1;

/// Which cores a run uses, and whether it may use the real-time class.
#[derive(Debug, Clone, Serialize)]
pub struct Placement {
    /// The edge, or the peer under test.
    pub server_core: Option<usize>,
    /// The generator, and transceivers.
    pub generator_core: Option<usize>,
    /// Servers on their own core in SCHED_RR and the generator at nice -20, so that other work on the machine does not stand
    /// between.
    pub real_time: bool,
}

impl Placement {
    /// The first and the last core this process may use; nothing is pinned on a machine with one. `real_time` is taken
    /// when the user may.
    #[must_use]
    pub fn of_this_machine(real_time: bool) -> Self {
        let cores = net::pin::cores();
        let (server, generator) = match cores.as_slice() {
            [first, .., last] => (Some(*first), Some(*last)),
            _ => (None, None),
        };
        let real_time = real_time && server.is_some() && net::pin::current_thread_real_time(SERVER_PRIORITY).is_ok();
        let _ = net::pin::current_thread_real_time(0);
        Self { server_core: server, generator_core: generator, real_time }
    }

    /// Puts this thread where the generator belongs.
    pub(crate) fn become_generator(&self) {
        if let Some(core) = self.generator_core {
            let _ = net::pin::current_thread_to(core);
        }
        if self.real_time {
            let _ = net::pin::current_thread_nice(GREEDY);
        }
    }

    /// Starts a child on `core`; it inherits what this thread has at that moment.
    fn spawn(&self, core: Option<usize>, command: &mut Command) -> std::io::Result<Child> {
        let before = net::pin::cores();
        if let Some(core) = core {
            let _ = net::pin::current_thread_to_any(&[core]);
        }
        let shares = core == self.generator_core;
        if self.real_time && shares {
            let _ = net::pin::current_thread_nice(GREEDY);
        } else if self.real_time {
            let _ = net::pin::current_thread_real_time(SERVER_PRIORITY);
        }
        net::process::die_with_parent(command);
        let child = command.spawn();
        if self.real_time && shares {
            let _ = net::pin::current_thread_nice(0);
        } else if self.real_time {
            let _ = net::pin::current_thread_real_time(0);
        }
        let _ = net::pin::current_thread_to_any(&before);
        child
    }
}

/// Starts this program again as a daemon with `arguments`, on `core`. Its log goes to a file in `directory` and is shown when
/// it fails.
pub(crate) fn daemon(
    name: &str,
    placement: &Placement,
    core: Option<usize>,
    directory: &std::path::Path,
    arguments: &[String],
) -> anyhow::Result<Daemon> {
    let log = directory.join(format!("{name}.log"));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped());
    let child = placement.spawn(core, command.stderr(fs::File::create(&log)?));
    let mut daemon = Daemon::announced(name, child.with_context(|| format!("starting the {name}"))?, Some(log))?;
    daemon.ready()?;
    Ok(daemon)
}

/// A control: the plain echo, which prints its address.
pub(crate) struct Echo {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Echo {
    pub(crate) fn start(placement: &Placement, kind: super::control::EchoKind) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "echo", "--kind", kind.name()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = placement.spawn(placement.server_core, &mut command).context("starting the control")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().parse().with_context(|| format!("the control printed {line:?}"))?;
        Ok(Self { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for one run, removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("fronthaul-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
