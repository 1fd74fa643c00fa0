//! What was found, a line each.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// What became of one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is reached.
    Works {
        /// What answered.
        detail: String,
        /// The quickest round trip.
        rtt: Option<Duration>,
    },
    /// It is offered, and not reached.
    Failed(String),
    /// It is not offered.
    Absent(String),
}

/// All that was found.
#[derive(Debug)]
pub(super) struct Report {
    url: String,
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), findings: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &'static str, finding: Finding) {
        self.findings.push((name, finding));
    }

    /// Whether some way carries a conversation.
    pub(super) fn usable(&self) -> bool {
        let carries = |name: &str| matches!(name, "UDP" | "TCP" | "TURN-TLS" | "WebSocket");
        self.findings.iter().any(|(name, finding)| carries(name) && matches!(finding, Finding::Works { .. }))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, finding) in &self.findings {
            let (mark, detail) = match finding {
                Finding::Works { detail, rtt: Some(rtt) } => ("works", format!("{detail}, {:.1} ms", millis(*rtt))),
                Finding::Works { detail, rtt: None } => ("works", detail.clone()),
                Finding::Failed(why) => ("FAILS", why.clone()),
                Finding::Absent(why) => ("-", why.clone()),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<10} {mark:<6} {detail}");
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let mut ways = Map::new();
        for (name, finding) in &self.findings {
            let value = match finding {
                Finding::Works { detail, rtt } => {
                    json!({ "state": "works", "detail": detail, "rtt_ms": rtt.map(millis) })
                }
                Finding::Failed(why) => json!({ "state": "fails", "detail": why }),
                Finding::Absent(why) => json!({ "state": "absent", "detail": why }),
            };
            ways.insert((*name).to_owned(), value);
        }
        let report = json!({ "url": self.url, "usable": self.usable(), "ways": Value::Object(ways) });
        format!("{report:#}\n")
    }
}

fn millis(rtt: Duration) -> f64 {
    // Tenths are as fine as any network is steady.
    (rtt.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("https://edge.example");
        let rtt = Some(Duration::from_micros(24_340));
        report.add("signaling", Finding::Works { detail: "https".to_owned(), rtt });
        report.add("UDP", Finding::Failed("192.0.2.1:3478: no answer".to_owned()));
        report.add("WebSocket", Finding::Absent("not served".to_owned()));
        report
    }

    #[test]
    fn each_way_is_one_line() {
        let text = report().text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "signaling  works  https, 24.3 ms");
        assert_eq!(lines[1], "UDP        FAILS  192.0.2.1:3478: no answer");
        assert_eq!(lines[2], "WebSocket  -      not served");
    }

    #[test]
    fn an_edge_that_only_signals_is_of_no_use() {
        let mut report = report();
        assert!(!report.usable());
        report.add("TCP", Finding::Works { detail: "192.0.2.1:443".to_owned(), rtt: None });
        assert!(report.usable());
        let value: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(value["ways"]["UDP"]["state"], "fails");
        assert_eq!((&value["usable"], &value["ways"]["signaling"]["rtt_ms"]), (&json!(true), &json!(24.3)));
    }
}
