//! Servers under test: started on a core of their own, their CPU time and memory read from `/proc`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

/// Kernel clock ticks per second in `/proc/PID/stat` (`sysconf(_SC_CLK_TCK)`: 100 on every Linux that Rust runs on).
const TICKS_PER_SECOND: f64 = 100.0;

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

/// A server that this bench started; ended when dropped.
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts this program again with `arguments`. Its log goes to a file in `directory` and is shown when it fails.
    pub(crate) fn start(
        name: &'static str,
        placement: &Placement,
        core: Option<usize>,
        directory: &std::path::Path,
        arguments: &[String],
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let child = placement.spawn(core, &mut command).with_context(|| format!("starting the {name}"))?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its admin port says that it is ready.
    pub(crate) fn ready(&mut self, admin: SocketAddr) -> anyhow::Result<()> {
        let patience = Instant::now() + Duration::from_secs(20);
        let url = format!("http://{admin}/readyz");
        while Instant::now() < patience {
            if let Some(status) = self.child.try_wait()? {
                bail!("the {} ended with {status}:\n{}", self.name, self.said());
            }
            if ureq::get(&url).call().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the {} is not ready after 20 s:\n{}", self.name, self.said())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = net::process::terminate(self.child.id());
        let patience = Instant::now() + Duration::from_secs(3);
        while Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

/// CPU seconds that processes have used, all of their threads, also ended ones.
pub(crate) fn cpu_seconds(pids: &[u32]) -> anyhow::Result<f64> {
    let mut ticks = 0;
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
        ticks += ticks_of(&stat).with_context(|| format!("/proc/{pid}/stat reads {stat:?}"))?;
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// utime + stime: fields 14 and 15, counted behind the command, which may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Resident memory of processes in KiB.
pub(crate) fn rss_kib(pids: &[u32]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>().context("VmRSS")?;
    }
    Ok(sum)
}

/// One metric of an admin port, all label sets summed; none when it is not there.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> anyhow::Result<Option<f64>> {
    let text = ureq::get(format!("http://{admin}/metrics")).call()?.body_mut().read_to_string()?;
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { &rest[rest.find('}')? + 1..] } else { rest };
        rest.strip_prefix(' ')?.trim().parse::<f64>().ok()
    });
    Ok(values.reduce(|a, b| a + b))
}

/// Ports that are free now. Another process may take one before ours does; ours then says so.
pub(crate) fn free_tcp() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

pub(crate) fn free_udp() -> anyhow::Result<SocketAddr> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_command_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14 15 16 17";
        assert_eq!(ticks_of(stat), Some(42));
        assert_eq!(ticks_of("7 (short) S"), None);
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let me = std::process::id();
        assert!(rss_kib(&[me]).unwrap() > 100);
        assert!(cpu_seconds(&[me]).unwrap() >= 0.0);
        assert!(cpu_seconds(&[u32::MAX]).is_err());
    }
}
