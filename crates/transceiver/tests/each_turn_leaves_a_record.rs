//! The records of spoken turns, as the conversation's own events make them.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::sync::Arc;

use support::{Bench, speech};
use transceiver::record::{Outcome, TurnRecord};
use voice::DecisionKind;

fn records(bench: &mut Bench) -> Vec<Arc<TurnRecord>> {
    std::iter::from_fn(|| bench.call.poll_record()).collect()
}

fn kinds(record: &TurnRecord) -> Vec<DecisionKind> {
    record.decisions.iter().map(|made| made.decision.kind).collect()
}

#[test]
fn a_spoken_turn_that_is_answered_is_one_record_whose_parts_sum_to_the_whole() {
    let mut bench = Bench::opened("parrot");
    bench.run_ms(600);
    bench.say(&speech::speech(1500, 1));
    bench.run_ms(7000);
    let records = records(&mut bench);
    assert_eq!(records.len(), 1, "{records:#?}");
    let record = &records[0];
    assert_eq!((record.outcome, record.decisions_dropped), (Outcome::Answered, 0));
    let kinds = kinds(record);
    assert!(kinds.contains(&DecisionKind::TurnStart) && kinds.contains(&DecisionKind::TurnEnd), "{kinds:?}");
    let timing = record.timing.unwrap();
    let parts =
        [timing.uplink_us, timing.repair_us, timing.silence_us, timing.backend_us, timing.encode_us, timing.playout_us];
    assert_eq!(parts.iter().sum::<u64>(), timing.total_us);
    let moments = record.moments;
    let steps = [
        Some(record.began_ms),
        moments.committed_ms,
        moments.asked_ms,
        moments.audio_ms,
        moments.playing_ms,
        moments.over_ms,
    ];
    assert!(steps.iter().all(Option::is_some) && steps.is_sorted(), "{steps:?}");
    let positions = record.positions;
    assert!(positions.generated > Some(48_000) && positions.sent == positions.generated, "{positions:?}");
}

#[test]
fn speech_over_a_reply_ends_its_record_as_interrupted_and_begins_another() {
    let mut bench = Bench::opened("parrot");
    bench.run_ms(600);
    bench.say(&speech::speech(2000, 1));
    bench.run_ms(3400);
    assert_eq!(records(&mut bench), []);
    bench.say(&speech::speech(1200, 2));
    bench.run_ms(6000);
    let records = records(&mut bench);
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!((records[0].outcome, records[1].outcome), (Outcome::Interrupted, Outcome::Answered));
    assert!(kinds(&records[0]).contains(&DecisionKind::Interrupt));
    assert!(records[0].positions.played_end < records[0].positions.generated, "{:?}", records[0].positions);
    assert!(records[0].turn < records[1].turn);
}
