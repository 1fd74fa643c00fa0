//! `fronthaul doctor URL`: what of an edge is reached from here, and why the rest is not.
//!
//! It asks for a real call to a model and sends authenticated checks to each address of the answer, as a browser would; what
//! answers with valid integrity is reached, by the owner of the call. No media flows, and the call is hung up at the end.

mod http;
mod probe;
mod report;
mod sdp;
mod stun;
mod turn;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use daemon::StartError;

use edge::config::Secret;

use self::http::Client;
use self::report::{Finding, Report};
use self::sdp::Offered;

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// The edge's page or signaling, such as `https://voice.example.com`.
    #[arg(value_name = "URL")]
    url: String,
    /// The model to call. `echo` is the edge itself.
    #[arg(long, default_value = "echo")]
    model: String,
    /// The API key or token, where the edge asks for one: env:NAME, or the text, which everybody on this machine can read.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Take any certificate.
    #[arg(long)]
    insecure: bool,
    /// Roots to trust, as PEM.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    roots: std::path::PathBuf,
    /// For each step.
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    timeout_ms: u64,
}

/// Asks and reports. An error when no conversation is possible from here.
pub(crate) fn run(options: &DoctorOptions) -> Result<(), StartError> {
    let report = examine(options);
    let mut out = io::stdout();
    let text = if options.json { report.json() } else { report.text() };
    let _ = out.write_all(text.as_bytes());
    if report.usable() {
        Ok(())
    } else {
        Err(StartError::failed("the way to this edge", "no conversation is possible from here"))
    }
}

fn examine(options: &DoctorOptions) -> Report {
    let patience = Duration::from_millis(options.timeout_ms.clamp(100, 60_000));
    let mut report = Report::new(&options.url);
    let key = options.key.as_deref().map(|key| Secret::new(key).reveal()).transpose();
    let key = key.map_err(|name| format!("--key: the environment has no variable {name}"));
    let client = key.and_then(|key| Client::new(&options.url, key, &options.roots, options.insecure, patience));
    let client = match client {
        Ok(client) => client,
        Err(why) => {
            report.add("signaling", Finding::Failed(why));
            return report;
        }
    };
    let offered = Offered::new();
    let began = Instant::now();
    let path = format!("/v1/realtime/calls?model={}", options.model);
    let answer = match client.post(&path, "application/sdp", &offered.offer()) {
        Ok(answer) if answer.status == 201 => answer,
        Ok(answer) => {
            let body: String = answer.body.chars().take(200).collect();
            report.add("signaling", Finding::Failed(format!("the edge answered {}: {}", answer.status, body.trim())));
            return report;
        }
        Err(why) => {
            report.add("signaling", Finding::Failed(why));
            return report;
        }
    };
    let took = began.elapsed();
    report.add("signaling", Finding::Works { detail: format!("{}, answered", client.protocol()), rtt: Some(took) });
    let Some(answered) = sdp::Answered::read(&answer.body) else {
        report.add("answer", Finding::Failed("the answer has no ICE credentials".to_owned()));
        return report;
    };
    let call = probe::Call { offered: &offered, answered: &answered, patience };
    let found = probe::all(&call);
    report.add("UDP", probe::summary(&found, &answered, probe::Kind::Udp));
    report.add("TCP", probe::summary(&found, &answered, probe::Kind::Tcp));
    report.add("v6", probe::summary(&found, &answered, probe::Kind::V6));
    report.add("TURN-TLS", turn::examine(&answer.links(), &client, patience));
    report.add("WebSocket", websocket(&client, &options.model));
    report
        .add("SPED", spoken(answered.sped, probe::sped_seen(&found), "in its ice-options", "in its checks' responses"));
    report.add("SNAP", spoken(answered.snap, false, "with its own sctp-init", ""));
    if let Some(location) = answer.header("location") {
        // The edge gives the call up by itself when this does not reach it.
        let _ = client.post(&format!("{location}/hangup"), "application/json", "");
    }
    report
}

fn spoken(answered: bool, seen: bool, by: &str, and: &str) -> Finding {
    match (answered, seen) {
        (true, true) => Finding::Works { detail: format!("answered {by} and {and}"), rtt: None },
        (true, false) => Finding::Works { detail: format!("answered {by}"), rtt: None },
        (false, true) => Finding::Works { detail: format!("answered {and}"), rtt: None },
        (false, false) => Finding::Absent("offered, and not answered".to_owned()),
    }
}

/// Whether the edge takes audio over WebSocket.
fn websocket(client: &Client, model: &str) -> Finding {
    let began = Instant::now();
    match client.upgrade(&format!("/v1/realtime?model={model}")) {
        Ok(answer) if answer.status == 101 => {
            Finding::Works { detail: "upgraded".to_owned(), rtt: Some(began.elapsed()) }
        }
        Ok(answer) => Finding::Absent(format!("not served by this edge ({})", answer.status)),
        Err(why) => Finding::Failed(why),
    }
}
