//! Daemons as child processes: where they listen, when they are ready, what they use and what they count.
//!
//! A daemon binds port 0 and says which ports it got (`--announce`), so no port is chosen here that somebody else could take
//! before the daemon does.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A first start makes keys and certificates.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Between being told to end and being killed.
const ENDED_WITHIN: Duration = Duration::from_secs(3);

/// Kernel clock ticks per second in `/proc/PID/stat` (`sysconf(_SC_CLK_TCK)`: 100 on every Linux that Rust runs on).
const TICKS_PER_SECOND: f64 = 100.0;

/// A daemon of this process'; ended when dropped.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    log: Option<PathBuf>,
    ports: BTreeMap<String, SocketAddr>,
}

impl Daemon {
    /// Takes over a daemon that was started with `--announce` and a pipe for standard output, and waits until it says where
    /// it listens. `log`: what it writes to, shown when it fails.
    ///
    /// # Errors
    /// It ended, or says nothing.
    pub fn announced(name: &str, mut child: Child, log: Option<PathBuf>) -> anyhow::Result<Self> {
        let stdout = child.stdout.take();
        let mut daemon = Self { name: name.to_owned(), child, log, ports: BTreeMap::new() };
        let (said, line) = mpsc::channel();
        let mut stdout = BufReader::new(stdout.context("no pipe for standard output")?);
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = said.send(line);
        });
        let line = line.recv_timeout(READY_WITHIN).unwrap_or_default();
        daemon.ports = ports(&line);
        if daemon.ports.is_empty() {
            // Its message is complete once it has ended.
            let patience = Instant::now() + ENDED_WITHIN;
            while matches!(daemon.child.try_wait(), Ok(None)) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(10));
            }
            bail!("the {name} does not say where it listens:\n{line}{}", daemon.said());
        }
        Ok(daemon)
    }

    /// Waits until its admin port says that it is ready.
    ///
    /// # Errors
    /// It ended, or is not ready in time.
    pub fn ready(&mut self) -> anyhow::Result<()> {
        let patience = Instant::now() + READY_WITHIN;
        let url = format!("http://{}/readyz", self.port("admin")?);
        while Instant::now() < patience {
            if let Some(status) = self.child.try_wait()? {
                bail!("the {} ended with {status}:\n{}", self.name, self.said());
            }
            if ureq::get(&url).call().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the {} is not ready after {} s:\n{}", self.name, READY_WITHIN.as_secs(), self.said())
    }

    /// Where it listens, by the name that it announced: `http`, `admin`, `media`, `peer`, `link`.
    ///
    /// # Errors
    /// It has no such port.
    pub fn port(&self, name: &str) -> anyhow::Result<SocketAddr> {
        self.ports.get(name).copied().with_context(|| format!("the {} announced no port {name}", self.name))
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One metric as [`sum`] finds it.
    ///
    /// # Errors
    /// Those of [`metrics`].
    pub fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        Ok(sum(&metrics(self.port("admin")?)?, name))
    }

    /// Ends it without a word (SIGKILL).
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    fn said(&self) -> String {
        self.log.as_ref().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = net::process::terminate(self.child.id());
        }
        let patience = Instant::now() + ENDED_WITHIN;
        while Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.kill();
    }
}

/// All metrics of an admin port, by name and labels.
///
/// # Errors
/// It does not answer.
pub fn metrics(admin: SocketAddr) -> anyhow::Result<BTreeMap<String, f64>> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build().new_agent();
    let text = agent.get(format!("http://{admin}/metrics")).call()?.body_mut().read_to_string()?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    Ok(lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}

/// A metric summed over its labels, or that of the labels that `name` has; none when it is not there.
#[must_use]
pub fn sum(metrics: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let named = metrics.iter().filter(|(key, _)| *key == name || key.split('{').next() == Some(name));
    named.map(|(_, value)| *value).reduce(|a, b| a + b)
}

/// `name=address` of each word.
fn ports(line: &str) -> BTreeMap<String, SocketAddr> {
    let words = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    words.filter_map(|(name, address)| Some((name.to_owned(), address.parse().ok()?))).collect()
}

/// CPU seconds that processes have used, all of their threads, also ended ones.
///
/// # Errors
/// One of them is not there.
pub fn cpu_seconds(pids: &[u32]) -> anyhow::Result<f64> {
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
///
/// # Errors
/// One of them is not there.
pub fn rss_kib(pids: &[u32]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>().context("VmRSS")?;
    }
    Ok(sum)
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

    #[test]
    fn ports_are_read_from_what_a_daemon_announces() {
        let found = ports("http=127.0.0.1:1 media=[::1]:2 odd=yes plain\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found["media"], "[::1]:2".parse().unwrap());
        assert!(ports("").is_empty());
    }

    #[test]
    fn a_metric_is_the_sum_of_its_labels_and_not_of_names_that_begin_alike() {
        let metrics = [("a_total{x=\"1\"}", 1.0), ("a_total{x=\"2\"}", 2.0), ("a_total_more", 4.0)];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(sum(&metrics, "a_total"), Some(3.0));
        assert_eq!(sum(&metrics, "a_total{x=\"2\"}"), Some(2.0));
        assert_eq!(sum(&metrics, "b_total"), None);
    }
}
