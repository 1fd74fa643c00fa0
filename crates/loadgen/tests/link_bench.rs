//! A short run of `bench link` on this machine.

use std::time::Duration;

use loadgen::link_bench::{Controller, LinkOptions, run};

#[test]
fn a_short_run_counts_every_frame_and_says_what_it_costs() {
    let options = LinkOptions {
        sessions: 10,
        duration: Duration::from_secs(1),
        loss: 0.0,
        rtt: Duration::from_millis(10),
        rate_kbit: None,
        seed: 1,
        controller: Controller::Voice,
    };
    let report = run(&options).expect("a link over loopback");
    // 500 each way; a busy machine sends some turns late, and so within another window.
    assert!((300..=700).contains(&report.up.sent), "{report:?}");
    assert!(report.delivered_percent > 99.0, "{report:?}");
    assert!(report.cpu_us_per_frame > 0.0, "{report:?}");
    let table = report.to_string();
    assert!(table.contains("delivered, %") && table.contains("no bottleneck"), "{table}");
    assert!(serde_json::to_value(&report).expect("JSON").get("congested_seconds").is_some());
}
