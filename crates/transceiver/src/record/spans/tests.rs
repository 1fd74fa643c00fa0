//! What a collector gets of records.

use std::collections::BTreeSet;

use opentelemetry::Value;

use super::super::tests::answered;
use super::super::{Outcome, Positions};
use super::*;

fn call() -> CallName {
    CallName { session: SessionId(0xab), epoch: Epoch(1), model: "parrot".into() }
}

fn began() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

fn spans(over: Over) -> Vec<SpanData> {
    let mut spans = Vec::new();
    Told { call: call(), began: began(), over }.spans(&mut spans);
    spans
}

fn turn(record: TurnRecord) -> Vec<SpanData> {
    spans(Over::Turn(Arc::new(record)))
}

fn lasted(span: &SpanData) -> u128 {
    span.end_time.duration_since(span.start_time).unwrap().as_micros()
}

fn attribute(attributes: &[KeyValue], name: &str) -> Option<Value> {
    attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|attribute| attribute.value.clone())
}

#[test]
fn the_parts_lie_end_to_end_and_last_as_long_as_the_delay() {
    let spans = turn(answered());
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    let parts = ["uplink", "repair", "silence", "backend", "encode", "playout"];
    assert_eq!(names, [&["turn", "mouth_to_ear"], &parts[..]].concat());
    let (delay, parts) = (&spans[1], &spans[2..]);
    assert_eq!(lasted(delay), 594_000);
    assert_eq!(parts.iter().map(lasted).sum::<u128>(), lasted(delay));
    assert_eq!((parts[0].start_time, parts[5].end_time), (delay.start_time, delay.end_time));
    assert!(parts.windows(2).all(|pair| pair[0].end_time == pair[1].start_time));
    assert_eq!(delay.end_time, began() + Duration::from_millis(2600), "when the reply left the edge");
    assert_eq!((spans[0].start_time, lasted(&spans[0])), (began() + Duration::from_millis(1048), 2_552_000));
}

#[test]
fn one_trace_has_the_call_its_turns_and_their_parts() {
    let call = spans(Over::Call { lasted: Duration::from_secs(9), turns: 2 });
    let first = turn(answered());
    let second = turn(TurnRecord { turn: Some(voice::TurnId(2)), response: Some(voice::ResponseId(2)), ..answered() });
    let all = || call.iter().chain(&first).chain(&second);
    assert!(all().all(|span| span.span_context.trace_id() == TraceId::from(0xab_u128)));
    let ids: BTreeSet<[u8; 8]> = all().map(|span| span.span_context.span_id().to_bytes()).collect();
    assert_eq!(ids.len(), 1 + 8 + 8, "no two have one id");
    assert_eq!((call[0].parent_span_id, lasted(&call[0])), (SpanId::INVALID, 9_000_000));
    for turn in [&first, &second] {
        let id = |index: usize| turn[index].span_context.span_id();
        assert_eq!(turn[0].parent_span_id, call[0].span_context.span_id());
        assert_eq!(turn[1].parent_span_id, id(0));
        assert!(turn[2..].iter().all(|part| part.parent_span_id == id(1)));
    }
    assert_eq!(turn(answered()), first, "what is sent twice is one span");
}

#[test]
fn the_record_is_the_attributes_and_its_decisions_are_events() {
    let spans = turn(answered());
    for (name, value) in [
        ("fronthaul.session", Value::from("rtc_00000000000000ab")),
        ("fronthaul.model", "parrot".into()),
        ("fronthaul.turn", 1.into()),
        ("fronthaul.outcome", "answered".into()),
        ("fronthaul.moments.committed_ms", 2510.into()),
        ("fronthaul.timing.total_us", 594_000.into()),
        ("fronthaul.positions.played_end", 48_000.into()),
        ("fronthaul.counts.red_ms", 40.into()),
    ] {
        assert_eq!(attribute(&spans[0].attributes, name), Some(value), "{name}");
    }
    let events = &spans[0].events;
    let told: Vec<_> = events.iter().map(|event| (&*event.name, event.timestamp)).collect();
    let at = |ms| began() + Duration::from_millis(ms);
    assert_eq!(told, [("turn_start", at(1048)), ("turn_end", at(2510))]);
    assert_eq!(attribute(&events[0].attributes, "fronthaul.probability"), Some(0.9.into()));
    assert_eq!(spans[0].status, Status::Unset);
}

#[test]
fn a_turn_that_failed_without_a_sound_has_a_status_and_no_delay() {
    let record = TurnRecord {
        outcome: Outcome::Failed,
        reason: Some("no audio".to_owned()),
        timing: None,
        positions: Positions::default(),
        ..answered()
    };
    let spans = turn(record);
    assert_eq!((spans.len(), &spans[0].status), (1, &Status::error("no audio")));
}
