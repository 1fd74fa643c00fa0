//! `fronthaul explain` of a call that was really spoken: a caller on a foreign stack, an edge and a transceiver, each a
//! process of its own.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadgen::process::Daemon;
use loadgen::{babble, caller};
use transceiver::record::{ExportedCalls, ExportedSession, ExportedTurn};

const PATIENCE: Duration = Duration::from_secs(60);

/// An edge and a transceiver.
struct Servers {
    edge: Daemon,
    transceiver: Daemon,
    folder: PathBuf,
}

impl Servers {
    fn start(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let transceiver = daemon("transceiver", &folder, &["link_bind", "admin_bind"], &[]);
        let link = transceiver.port("link").unwrap();
        let dialed = format!("transceivers=[{{id=1,address=\"{link}\"}}]");
        let mut edge = daemon("edge", &folder, &["http_bind", "media_bind", "admin_bind"], &[dialed]);
        edge.ready().unwrap();
        Self { edge, transceiver, folder }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("transceiver.log")
    }

    /// What `explain` prints with these arguments, of the transceiver's admin port.
    fn explain(&self, arguments: &[&str]) -> String {
        let admin = format!("http://{}", self.transceiver.port("admin").unwrap());
        explain(&[arguments, &["--admin", &admin]].concat())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn daemon(kind: &str, folder: &Path, ports: &[&str], set: &[String]) -> Daemon {
    let state = format!("state_dir={}", folder.display());
    let ports = ports.iter().map(|key| format!("{key}=127.0.0.1:0"));
    let set = set.iter().cloned().chain(ports).chain([state, "workers=1".to_owned(), "log.format=json".to_owned()]);
    let log = folder.join(format!("{kind}.log"));
    let child = Command::new(env!("CARGO_BIN_EXE_fronthaul"))
        .args([kind, "--announce"])
        .args(set.flat_map(|pair| ["--set".to_owned(), pair]))
        .env_remove("FRONTHAUL_LOG")
        .env_remove("FRONTHAUL_LOG_FORMAT")
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn();
    Daemon::announced(kind, child.unwrap(), Some(log)).unwrap()
}

fn explain(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fronthaul")).arg("explain").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asks until there is what is wanted: how long it takes is the machine's business.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Some(found) => return found,
            None => assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The milliseconds in the line of a part.
fn told_ms(story: &str, part: &str) -> f64 {
    let line = story.lines().find(|line| line.trim_start().starts_with(part)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_spoken_turn_is_told_with_where_its_time_went_while_the_call_goes_on_and_from_the_log() {
    let servers = Servers::start("explain");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let call = caller::run(caller::Config {
        url: format!("http://{}", servers.edge.port("http").unwrap()),
        model: "parrot".to_owned(),
        speech: Arc::new(babble::speech(48_000, 1200, 1)),
        listen: PATIENCE,
    });
    let call = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                ended = call => drop(ended.unwrap()),
                _ = stopped => {}
            }
        });
    });
    let session = eventually("a call", || {
        assert!(!call.is_finished(), "the call is over");
        let calls: ExportedCalls = serde_json::from_str(&servers.explain(&["--json"])).unwrap();
        calls.calls.first().map(|call| call.session.clone())
    });
    let answered = |turn: &ExportedTurn| turn.outcome == "answered" && turn.timing.is_some();
    let told: ExportedSession = eventually("a turn that is answered", || {
        assert!(!call.is_finished(), "the call is over");
        let told: ExportedSession = serde_json::from_str(&servers.explain(&[&session, "--json"])).unwrap();
        told.turns.iter().any(answered).then_some(told)
    });
    let turn = told.turns.iter().find(|turn| answered(turn)).unwrap();
    let timing = turn.timing.unwrap();
    assert_eq!(timing.parts().iter().map(|(_, us)| us).sum::<u64>(), timing.total_us);
    assert!(timing.silence_us >= 400_000 && timing.playout_us > 0, "{timing:?}");
    assert!(turn.positions.sent > Some(24_000), "half a second of it at least was repeated: {:?}", turn.positions);

    let story = servers.explain(&[&session]);
    for part in [
        &format!("{session}: model parrot, "),
        "goes on",
        "answered to the end",
        "the user's turn is over (",
        "the reply leaves the edge",
        "from the user's last sound to the agent's first:",
    ] {
        assert!(story.contains(part), "no {part:?} in\n{story}");
    }
    let parts = timing.parts().map(|(part, _)| told_ms(&story, part));
    let (parts, sum) = (parts.iter().sum::<f64>(), told_ms(&story, "sum"));
    assert!((sum - parts).abs() <= 0.1 * 6.0, "the parts sum to {parts} ms, not {sum} ms:\n{story}");

    let table = servers.explain(&[]);
    let row = table.lines().find(|line| line.starts_with(&session)).unwrap();
    assert!(table.contains("1 call goes on") && row.contains("parrot"), "{table}");

    // The log has the same, in its own time, once the turn is over.
    let from_log = eventually("the turn in the log", || {
        let log = std::fs::read_to_string(servers.log()).unwrap();
        log.contains("fronthaul::turn").then(|| explain(&["--file", servers.log().to_str().unwrap()]))
    });
    assert!(from_log.contains(&session) && from_log.contains("answered to the end"), "{from_log}");
    let log = std::fs::read_to_string(servers.log()).unwrap();
    let bound = format!("\"admin\":\"{}\"", servers.transceiver.port("admin").unwrap());
    assert!(log.contains(&bound), "it names the port that it bound: {bound} in\n{log}");
    drop(stop);
    call.join().unwrap();
}
