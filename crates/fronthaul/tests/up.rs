//! `fronthaul up` from the first line to the last: both daemons ready, one banner, and neither outlives it.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Up {
    process: Child,
    output: BufReader<ChildStdout>,
    banner: Vec<String>,
    state: PathBuf,
}

impl Up {
    /// Starts it on free ports and returns when the banner is complete.
    fn start(name: &str) -> Self {
        let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{}-{name}", std::process::id()));
        let ports = ["--http", "--media", "--link", "--edge-admin", "--transceiver-admin"];
        let mut process = Command::new(env!("CARGO_BIN_EXE_fronthaul"))
            .args(["up", "--state-dir", state.to_str().unwrap()])
            .args(ports.iter().flat_map(|option| [*option, "127.0.0.1:0"]))
            .args(["--edge-set", "drain_timeout_ms=0"])
            .env_remove("FRONTHAUL_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut banner = Vec::new();
        while !banner.last().is_some_and(|line: &String| line.starts_with("Ctrl-C")) {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                panic!("no banner: {}", Self::rest_of_errors(&mut process));
            }
            banner.push(line);
        }
        Self { process, output, banner, state }
    }

    fn rest_of_errors(process: &mut Child) -> String {
        let mut text = String::new();
        process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// The URL in the banner's line for `what`.
    fn url(&self, what: &str) -> String {
        let line = self.banner.iter().find(|line| line.contains(what)).unwrap();
        line.split_ascii_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned()
    }

    fn children(&self) -> Vec<u32> {
        let pid = self.process.id();
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_ascii_whitespace().map(|child| child.parse().unwrap()).collect()
    }

    fn signal(&self, pid: u32, signal: &str) {
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
    }

    /// Waits for the end and returns exit code, the rest of standard output and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let errors = Self::rest_of_errors(&mut self.process);
        let mut output = String::new();
        self.output.read_to_string(&mut output).unwrap();
        (self.process.wait().unwrap().code(), output, errors)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

fn gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn wait_until_gone(pids: &[u32]) {
    let start = Instant::now();
    while !pids.iter().all(|pid| gone(*pid)) {
        assert!(start.elapsed() < PATIENCE, "{pids:?} live on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn after_the_banner_both_daemons_are_ready_and_sigterm_ends_all_with_0() {
    let up = Up::start("sigterm");
    for daemon in ["(edge)", "(transceiver)"] {
        let ready = up.url(daemon).replace("/metrics", "/readyz");
        assert_eq!(ureq::get(&ready).call().unwrap().status(), 200, "{ready}");
        let metrics = ureq::get(up.url(daemon)).call().unwrap().body_mut().read_to_string().unwrap();
        assert!(metrics.contains("process_open_fds"), "{metrics}");
    }
    let page = ureq::get(up.url("page")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(page.contains("<html"), "{page}");

    let children = up.children();
    assert_eq!(children.len(), 2);
    up.signal(up.process.id(), "-TERM");
    let (code, output, errors) = up.end();
    assert_eq!((code, output.as_str()), (Some(0), ""), "{errors}");
    assert!(errors.contains("edge        | ") && errors.contains("transceiver | "), "{errors}");
    wait_until_gone(&children);
}

#[test]
fn when_one_daemon_dies_the_other_ends_and_the_message_says_which_and_why() {
    let up = Up::start("death");
    let children = up.children();
    let command = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let transceiver = *children.iter().find(|pid| command(pid).contains("\0transceiver\0")).unwrap();
    up.signal(transceiver, "-KILL");
    let (code, _, errors) = up.end();
    assert_eq!(code, Some(1));
    assert!(errors.contains("fronthaul: the transceiver ended on its own: ended by signal 9"), "{errors}");
    wait_until_gone(&children);
}

#[test]
fn when_up_itself_is_killed_the_daemons_end_too() {
    let mut up = Up::start("killed");
    let children = up.children();
    up.process.kill().unwrap();
    up.process.wait().unwrap();
    wait_until_gone(&children);
}

#[test]
fn a_key_that_the_edge_refuses_ends_up_with_2_and_the_edges_own_message() {
    let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{}-refused", std::process::id()));
    let ports = ["--http", "--media", "--link", "--edge-admin", "--transceiver-admin"];
    let output = Command::new(env!("CARGO_BIN_EXE_fronthaul"))
        .args(["up", "--edge-set", "default_modl=echo", "--state-dir", state.to_str().unwrap()])
        .args(ports.iter().flat_map(|option| [*option, "127.0.0.1:0"]))
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&state);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("did you mean `default_model`?"), "{errors}");
    assert!(errors.contains("fronthaul: the edge refused to start"), "{errors}");
}
