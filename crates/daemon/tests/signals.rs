//! Signals, sent to a process of our own: this file has one test, and runs itself as the child.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use daemon::{Lifecycle, Phase};

const CHILD: &str = "DAEMON_SIGNALS_CHILD";

#[test]
fn the_first_signal_drains_the_second_changes_nothing_the_third_ends() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_first_signal_drains_the_second_changes_nothing_the_third_ends", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut expect = |text: &str| assert!(lines.any(|line| line.unwrap().contains(text)), "no {text:?}");
    let pid = child.id().to_string();
    let kill = |signal: &str| assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    expect("Starting");
    kill("-TERM");
    expect("Draining");
    kill("-INT");
    expect("already draining");
    assert_eq!(child.try_wait().unwrap(), None);
    kill("-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

fn child() {
    let _log = daemon::log::init(&daemon::log::Config::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let life = Lifecycle::new();
        let signals = tokio::spawn(life.clone().drain_on_signals());
        // The handlers are installed when the task has run once.
        tokio::task::yield_now().await;
        eprintln!("{:?}", life.phase());
        life.reached(Phase::Draining).await;
        eprintln!("{:?}", life.phase());
        signals.await.unwrap().unwrap();
    });
}
