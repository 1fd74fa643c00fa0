//! What an operator reads, and what is wrong in it.

use std::borrow::Cow;

use transceiver::record::{
    ExportedCounts, ExportedDecision, ExportedMoments, ExportedPositions, ExportedSession, ExportedTiming,
    ExportedTurn, wrong,
};

use super::{log, tell};

fn decision(at_ms: u64, kind: &'static str) -> ExportedDecision {
    ExportedDecision {
        at_ms,
        media_ms: at_ms,
        kind: kind.into(),
        state: "listening".into(),
        source: "vad".into(),
        ..ExportedDecision::default()
    }
}

/// Asked for 2.5 s after the begin and answered.
fn good() -> ExportedTurn {
    let start = ExportedDecision { run_frames: 3, probability: 0.914, ..decision(1000, "turn_start") };
    let end = ExportedDecision { voiced_ms: 1980, silence_ms: 500, ..decision(3510, "turn_end") };
    ExportedTurn {
        session: "rtc_000000000000004d".to_owned(),
        model: "parrot".into(),
        turn: Some(1),
        response: Some(1),
        began_ms: 1000,
        audio_start_ms: Some(650),
        audio_end_ms: Some(2980),
        outcome: "answered".into(),
        moments: ExportedMoments {
            committed_ms: Some(3510),
            asked_ms: Some(3510),
            audio_ms: Some(3520),
            playing_ms: Some(3552),
            over_ms: Some(5600),
        },
        decisions: vec![start, end],
        timing: Some(ExportedTiming {
            uplink_us: 3000,
            repair_us: 0,
            silence_us: 500_000,
            backend_us: 10_000,
            encode_us: 900,
            playout_us: 31_200,
            total_us: 545_100,
        }),
        positions: ExportedPositions {
            generated: Some(96_960),
            sent: Some(96_960),
            played_end: Some(96_000),
            heard_at: None,
        },
        ..ExportedTurn::default()
    }
}

fn session(turns: Vec<ExportedTurn>) -> ExportedSession {
    ExportedSession {
        session: "rtc_000000000000004d".to_owned(),
        model: Cow::Borrowed("parrot"),
        live: false,
        given_up: 0,
        turns,
    }
}

#[test]
fn a_good_turn_is_told_with_its_decisions_its_delay_and_nothing_wrong() {
    let told = "\
rtc_000000000000004d: model parrot, 1 turn, is over
nothing wrong found

turn 1, reply 1: answered to the end; it began 1.000 s into the call
   +0.000 s  the user's turn begins (3 voiced frames in a row, probability 0.91, by vad)
   +2.510 s  the user's turn is over (1980 ms of speech, 500 ms of silence, by vad)
   +2.510 s  the user's speech is complete
   +2.510 s  the reply is asked for
   +2.520 s  the backend gives its first audio
   +2.552 s  the reply leaves the edge
   +4.600 s  over
  from the user's last sound to the agent's first:
    uplink        3.0 ms  #
    repair        0.0 ms
    silence     500.0 ms  ########################################
    backend      10.0 ms  #
    encode        0.9 ms  #
    playout      31.2 ms  ###
    sum         545.1 ms
  of the reply: generated 2.020 s, sent 2.020 s, played 2.000 s
";
    assert_eq!(tell::story(&session(vec![good()])), told);
}

#[test]
fn a_cough_is_the_first_wrong_thing_of_a_reply_that_it_held() {
    let mut turn = good();
    let speaking = |decision| ExportedDecision { profile: Some("speaking".into()), ..decision };
    turn.decisions.extend([
        speaking(ExportedDecision { run_frames: 2, probability: 0.7, ..decision(4200, "onset") }),
        speaking(decision(4200, "pause")),
        speaking(ExportedDecision { voiced_ms: 96, silence_ms: 144, ..decision(4440, "dismiss") }),
        speaking(ExportedDecision { voiced_ms: 96, ..decision(4440, "resume") }),
    ]);
    turn.timing = None;
    let told = "\
rtc_000000000000004d: model parrot, 1 turn, is over
first wrong thing: turn 1, reply 1, +3.200 s: the reply was held for 240 ms because of a sound that was no interruption (96 ms of it sounded like speech)
  look at: a cough or a noise; nothing was lost. If it happens often: voice.threshold

turn 1, reply 1: answered to the end; it began 1.000 s into the call
   +0.000 s  the user's turn begins (3 voiced frames in a row, probability 0.91, by vad)
   +2.510 s  the user's turn is over (1980 ms of speech, 500 ms of silence, by vad)
   +2.510 s  the user's speech is complete
   +2.510 s  the reply is asked for
   +2.520 s  the backend gives its first audio
   +2.552 s  the reply leaves the edge
   +3.200 s  a sound that may be speech (2 voiced frames in a row, probability 0.70, rules for speaking, by vad)
   +3.200 s  the reply is held (rules for speaking, by vad)
   +3.440 s  it was no interruption (96 ms of speech, 144 ms of silence, rules for speaking, by vad)
   +3.440 s  the reply goes on (96 ms of speech, rules for speaking, by vad)
   +4.600 s  over
  of the reply: generated 2.020 s, sent 2.020 s, played 2.000 s
";
    assert_eq!(tell::story(&session(vec![turn])), told);
}

#[test]
fn a_dead_backend_stands_above_a_cough_that_came_before() {
    let mut cough = good();
    cough.decisions.extend([decision(4200, "pause"), decision(4440, "resume")]);
    let dead = ExportedTurn {
        turn: Some(2),
        response: Some(2),
        began_ms: 8000,
        outcome: "failed".into(),
        reason: Some("the backend gave no audio for 10000 ms".to_owned()),
        moments: ExportedMoments {
            committed_ms: Some(9000),
            asked_ms: Some(9000),
            over_ms: Some(19_000),
            ..ExportedMoments::default()
        },
        decisions: vec![ExportedDecision { source: "timer".into(), ..decision(19_000, "response_timeout") }],
        timing: None,
        positions: ExportedPositions::default(),
        ..good()
    };
    let told = tell::story(&session(vec![cough, dead]));
    let top = "\
rtc_000000000000004d: model parrot, 2 turns, is over
first wrong thing: turn 2, reply 2, +11.000 s: the reply failed: the backend gave no audio for 10000 ms
  look at: the backend, and voice.response_timeout_ms
also: turn 1, reply 1, +3.200 s: the reply was held for 240 ms because of a sound that was no interruption (0 ms of it sounded like speech)
";
    let bottom = "
turn 2, reply 2: failed (the backend gave no audio for 10000 ms); it began 8.000 s into the call
   +1.000 s  the user's speech is complete
   +1.000 s  the reply is asked for
  +11.000 s  the backend gave nothing in time: the reply is given up (by timer)
  +11.000 s  over
";
    assert!(told.starts_with(top) && told.ends_with(bottom), "{told}");
}

#[test]
fn each_rule_finds_what_it_is_for() {
    type Change = fn(&mut ExportedTurn);
    let rules: [(u8, Change); 8] = [
        (1, |turn| turn.decisions.push(decision(4000, "input_silent"))),
        (2, |turn| turn.counts = ExportedCounts { underruns: 1, ..ExportedCounts::default() }),
        (2, |turn| turn.decisions.push(decision(4000, "mislabeled"))),
        (3, |turn| {
            turn.decisions.extend([decision(3700, "onset"), decision(3900, "interrupt")]);
        }),
        (4, |turn| turn.decisions.push(decision(4000, "echo_veto"))),
        (6, |turn| turn.counts = ExportedCounts { concealed_ms: 80, ..ExportedCounts::default() }),
        (7, |turn| {
            if let Some(timing) = &mut turn.timing {
                timing.backend_us = 1_900_000;
            }
        }),
        (0, |turn| turn.outcome = "failed".into()),
    ];
    for (rank, change) in rules {
        let mut turn = good();
        change(&mut turn);
        let found: Vec<u8> = wrong::all(&[turn]).iter().map(|(_, wrong)| wrong.rank).collect();
        assert_eq!(found, [rank]);
    }
}

#[test]
fn a_word_over_the_reply_is_no_turn_that_ended_early() {
    let mut turn = good();
    turn.decisions.extend([decision(4500, "onset"), decision(4800, "interrupt")]);
    assert_eq!(wrong::all(&[turn]), []);
}

#[test]
fn the_log_gives_the_turns_of_the_call_that_is_asked_for() {
    let (first, mut other) = (good(), good());
    other.session = "rtc_000000000000004e".to_owned();
    let line = |turn: &ExportedTurn| {
        let record = serde_json::to_string(turn).unwrap();
        serde_json::json!({"timestamp": "2026", "level": "INFO", "message": "turn", "record": record}).to_string()
    };
    let bare = serde_json::to_string(&first).unwrap();
    let text = format!("noise\n{{\"a\":1}}\ntransceiver | {}\n{bare}\n{}\n", line(&first), line(&other));
    let told = log::collect(text.as_bytes(), Some("rtc_000000000000004d")).unwrap();
    assert_eq!(told, Some(session(vec![first.clone(), first])));
    let last = log::collect(text.as_bytes(), None).unwrap();
    assert_eq!(last.map(|last| last.turns), Some(vec![other]));
    assert_eq!(log::collect(text.as_bytes(), Some("rtc_0000000000000000")).unwrap(), None);
}
