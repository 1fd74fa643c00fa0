//! `fronthaul doctor` tells what of an edge is reached.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use daemon::Metrics;
use edge::config::{IceServer, IceTcp, Secret, Tls, TlsMode};
use edge::{Config, Edge};
use serde_json::Value;

struct Running(Option<Edge>, PathBuf);

impl Running {
    fn start(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        static METRICS: OnceLock<Metrics> = OnceLock::new();
        let metrics = METRICS.get_or_init(|| Metrics::install().unwrap()).clone();
        let state = std::env::temp_dir().join(format!("fronthaul-doctor-{name}-{}", std::process::id()));
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut config = Config {
            workers: 1,
            media_bind: any,
            http_bind: any,
            admin_bind: any,
            ice_tcp: IceTcp::On,
            default_model: "echo".to_owned(),
            models: [("echo".to_owned(), "echo".to_owned())].into(),
            transceivers: vec![],
            state_dir: state.clone(),
            drain_timeout_ms: 500,
            ..Config::default()
        };
        change(&mut config);
        Self(Some(Edge::start(config, metrics).unwrap()), state)
    }

    fn http(&self) -> SocketAddr {
        self.0.as_ref().unwrap().http_addr()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let edge = self.0.take().unwrap();
        edge.drain();
        edge.wait().unwrap();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn doctor(url: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fronthaul"));
    command.args(["doctor", url, "--timeout-ms", "1200"]).args(options).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn state<'a>(report: &'a Value, way: &str) -> &'a str {
    report["ways"][way]["state"].as_str().unwrap()
}

#[test]
fn an_edge_that_is_reached_is_said_to_work_way_by_way() {
    let edge = Running::start("works", |_| {});
    let url = format!("http://{}", edge.http());
    let output = doctor(&url, &["--json"]);
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
    for (way, expected) in [
        ("signaling", "works"),
        ("UDP", "works"),
        ("TCP", "works"),
        ("v6", "absent"),
        ("TURN-TLS", "absent"),
        ("WebSocket", "works"),
        ("SPED", "works"),
        ("SNAP", "works"),
    ] {
        assert_eq!(state(&report, way), expected, "{way}: {report:#}");
    }
    assert!(report["ways"]["UDP"]["rtt_ms"].as_f64().unwrap() < 1000.0);

    let text = String::from_utf8(doctor(&url, &[]).stdout).unwrap();
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(text.contains("\nUDP        works  127.0.0.1:"), "{text}");
}

#[test]
fn an_address_that_is_not_the_edges_is_named_with_the_reason() {
    let edge = Running::start("wrong", |config| {
        config.public = vec!["127.0.0.1:9".to_owned()];
        config.ice_tcp_port = 9;
        config.ice_servers = vec![IceServer {
            urls: vec!["turns:127.0.0.1:9?transport=tcp".to_owned()],
            secret: Secret::new("north"),
            username: String::new(),
            credential: Secret::default(),
            lifetime_s: 600,
        }];
        config.tls = Tls { mode: TlsMode::SelfSigned, ..Tls::default() };
    });
    let output = doctor(&format!("https://{}", edge.http()), &["--json", "--insecure"]);
    let report = report(&output);
    // What reaches signaling can still talk over a WebSocket.
    assert_eq!((output.status.code(), state(&report, "WebSocket")), (Some(0), "works"), "{report:#}");
    assert_eq!((state(&report, "signaling"), state(&report, "UDP")), ("works", "fails"));
    for (way, reason) in [("UDP", "127.0.0.1:9: "), ("TCP", "nothing listens"), ("TURN-TLS", "nothing listens")] {
        let detail = report["ways"][way]["detail"].as_str().unwrap();
        assert!(state(&report, way) == "fails" && detail.contains(reason), "{way}: {detail}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_the_reason_and_its_root_the_remedy() {
    let edge = Running::start("untrusted", |config| config.tls = Tls { mode: TlsMode::SelfSigned, ..Tls::default() });
    let url = format!("https://{}", edge.http());
    let roots = edge.1.join("tls-self-signed.pem");
    let refused = doctor(&url, &["--json"]);
    assert_eq!(refused.status.code(), Some(1));
    let detail = report(&refused)["ways"]["signaling"]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("certificate"), "{detail}");
    assert!(doctor(&url, &["--roots", roots.to_str().unwrap()]).status.success());
}

#[test]
fn what_is_no_edge_is_said_to_be_none() {
    for (url, reason) in [
        ("voice.example.com", "https://"),
        ("http://127.0.0.1:9", "nothing listens"),
        ("http://no-such-host.invalid", "no address"),
    ] {
        let output = doctor(url, &["--json"]);
        let report = report(&output);
        let detail = report["ways"]["signaling"]["detail"].as_str().unwrap();
        assert!(output.status.code() == Some(1) && detail.contains(reason), "{url}: {detail}");
    }
}
