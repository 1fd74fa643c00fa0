//! Benches on a small scale: every call is set up, every frame comes back, and the report says what it promises. Figures of
//! a debug build beside other tests mean nothing and are not looked at.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_fronthaul"))
        .arg("bench")
        .args(arguments)
        .args(["--json", "--no-real-time"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A few calls may cost the control less than one tick of the kernel's clock: there is no ratio to nothing.
fn assert_ratio(report: &Value) {
    assert!(report["cpu_ratio"].is_number() || report["control_cpu_us_per_packet"] == 0.0, "{report:#}");
}

fn assert_complete(report: &Value, sessions: u64) {
    assert_eq!(report["sessions"], sessions);
    assert_eq!(report["traffic"]["lost_calls"], 0, "{report:#}");
    assert_eq!(report["traffic"]["flows"], sessions);
    let sent = report["traffic"]["sent"].as_u64().unwrap();
    assert!(sent >= 40 * sessions, "{sent} frames in a second of {sessions} calls");
    assert_eq!(report["loss"], 0.0, "{report:#}");
    for key in [
        "cpu_us_per_packet",
        "control_cpu_us_per_packet",
        "batched_control_cpu_us_per_packet",
        "late",
        "rss_kib_per_session",
        "allocations_per_packet",
        "setups_per_second",
    ] {
        assert!(report[key].is_number(), "{key}: {report:#}");
    }
    assert_ratio(report);
    for key in ["rtt_us", "control_rtt_us"] {
        for percentile in ["p50", "p95", "p99", "p999", "max"] {
            assert!(report[key][percentile].as_f64().unwrap() > 0.0, "{key}.{percentile}: {report:#}");
        }
    }
    assert!(!report["machine"]["kernel"].as_str().unwrap().is_empty());
}

#[test]
fn frames_come_back_from_the_edge_and_through_the_whole_path() {
    let few = ["--sessions", "8", "--seconds", "1"];
    assert_complete(&bench(&[&["edge"][..], &few].concat()), 8);
    assert_complete(&bench(&[&["path"][..], &few].concat()), 8);
}

#[test]
fn callers_hear_every_frame_of_a_transceiver_that_speaks_all_the_time() {
    let report = bench(&["voice", "--sessions", "2", "--seconds", "2"]);
    assert_eq!(report["sessions"], 2);
    let traffic = &report["traffic"];
    assert_eq!((&traffic["lost_calls"], &traffic["calls"]), (&0.into(), &2.into()), "{report:#}");
    // Slots in which a busy machine let nobody speak are told apart from frames that were lost.
    let (received, starved) = (traffic["received"].as_f64().unwrap(), traffic["starved"].as_f64().unwrap());
    assert!(received > 0.0 && received / (1.0 - starved) >= 150.0, "{report:#}");
    assert_eq!((&report["loss"], &traffic["uplink_loss"]), (&0.0.into(), &0.0.into()), "{report:#}");
    for key in [
        "cpu_us_per_packet",
        "control_cpu_us_per_packet",
        "cpu_percent_per_session",
        "late",
        "rss_kib_per_session",
        "allocations_per_packet",
        "setups_per_second",
    ] {
        assert!(report[key].is_number(), "{key}: {report:#}");
    }
    assert_ratio(&report);
    assert!(report["rtt_us"].is_null());
    assert!(traffic["spacing_us"]["p99"].as_f64().unwrap() > 0.0);
}

#[test]
fn turns_of_callers_are_answered() {
    let report = bench(&["voice", "--sessions", "2", "--seconds", "11", "--talk", "0.4"]);
    let turns: Vec<u64> = report["traffic"]["turns"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert!(turns[0] >= 2 && turns[1] >= 1, "{report:#}");
    let reply = report["traffic"]["reply_us"]["p50"].as_f64().unwrap();
    assert!(reply > 400_000.0, "no reply comes before 500 ms of silence, less the last sound of the turn: {reply}");
}

#[test]
fn a_storm_sets_calls_up_beside_running_ones() {
    let report = bench(&["setup", "--sessions", "4", "--seconds", "2", "--storm", "10"]);
    assert_eq!(report["failures"], 0, "{report:#}");
    assert!(report["setups_per_second"].as_f64().unwrap() > 0.0);
    assert!(report["storm_completed_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["stormy"]["lost_calls"], 0);
}

#[test]
fn a_sweep_tells_how_many_calls_are_served_well_and_draws_it() {
    let svg = std::env::temp_dir().join(format!("fronthaul-sweep-{}.svg", std::process::id()));
    let report = bench(&["edge", "--sessions", "4", "--seconds", "1", "--sweep", "8", "--svg", svg.to_str().unwrap()]);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    std::fs::remove_file(&svg).unwrap();
    // A machine that is busy with other things may not serve four well: the points are then below.
    let points = report["points"].as_array().unwrap();
    assert!(points.iter().any(|point| point["sessions"] == 4), "{report:#}");
    assert!(drawn.starts_with("<svg") && drawn.contains("p99 lateness"));
}

#[test]
fn a_step_that_cannot_be_set_up_ends_the_sweep_with_what_it_has_and_says_why() {
    let few = ["--sessions", "2", "--seconds", "1", "--sweep"];
    for (name, room) in [
        ("edge", ["--edge-set", "echo_seats=3"]),
        ("path", ["--transceiver-set", "seats=3"]),
        ("voice", ["--transceiver-set", "seats=3"]),
    ] {
        let svg = std::env::temp_dir().join(format!("fronthaul-ended-{name}-{}.svg", std::process::id()));
        let report = bench(&[&[name][..], &few, &room, &["--svg", svg.to_str().unwrap()]].concat());
        let drawn = std::fs::read_to_string(&svg).unwrap();
        std::fs::remove_file(&svg).unwrap();
        assert!(drawn.starts_with("<svg"), "{name}");
        let points = report["points"].as_array().unwrap();
        assert!(points.iter().any(|point| point["sessions"] == 2), "{report:#}");
        assert!(points.iter().all(|point| point["sessions"].as_u64().unwrap() < 4), "{report:#}");
        // A machine that is busy with other things may not serve two well: then nobody asked for four.
        if points.iter().all(|point| point["frame_stable"] == true) {
            let reason = report["ended"].as_str().unwrap();
            // Whichever of the two that are set up at once comes last.
            assert!(reason.contains("4 calls did not come about: caller "), "{reason}");
            assert_eq!(report["sessions"], 2, "{report:#}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    for (arguments, reason) in [
        (&["edge", "--sessions", "0"][..], "--sessions 0"),
        (&["edge", "--seconds", "0"], "--seconds 0"),
        (&["voice", "--talk", "0.8"], "--talk 0.8"),
        (&["peer", "--url", "http://127.0.0.1:9/", "--pid", "4294967295"], "process 4294967295"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_fronthaul")).arg("bench").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
    }
}
