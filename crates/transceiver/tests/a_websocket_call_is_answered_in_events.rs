//! A call whose audio travels in events, in virtual time: appended speech in, the same speech out, and nothing else on the link.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use serde_json::json;
use support::socket::Client;
use voice::g711::Law;

fn prompt(rate: u32, seed: u32) -> Vec<i16> {
    let ms = rate as usize / 1000;
    [vec![0; 600 * ms], voice::babble::speech(rate, 1400, seed), vec![0; 1500 * ms]].concat()
}

/// Best correlation of every seventh sample at the lags of 400 ms.
fn alike(wanted: &[i16], said: &[i16], lags: usize) -> f64 {
    let energy = |pcm: &[i16]| pcm.iter().step_by(7).map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let one = |part: &[i16]| {
        let dot: f64 = part.iter().zip(wanted).step_by(7).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        dot / (energy(part) * energy(wanted)).sqrt().max(1.0)
    };
    said.windows(wanted.len()).take(lags).map(one).fold(0.0, f64::max)
}

const TURN: [&str; 16] = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "response.created",
    "conversation.item.added",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio_transcript.done",
    "response.output_audio.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
];

#[test]
fn a_spoken_question_is_answered_in_deltas_and_the_events_come_in_order() {
    let mut client = Client::connected();
    let audio = prompt(24_000, 1);
    client.live(&audio);
    assert_eq!(client.names(), TURN);
    let likeness = alike(&audio[16_800..40_800], &client.said(), 9600);
    assert!(likeness > 0.9, "{likeness}");
    client.pass(5000);
    let record = client.call.poll_record().unwrap();
    assert_eq!(record.outcome.name(), "answered");
    assert!(record.timing.is_some_and(|timing| timing.playout_us == 0 && timing.total_us > 0));
    assert_eq!(record.positions.played_end, record.positions.generated);
}

#[test]
fn ten_seconds_at_once_are_the_events_of_ten_seconds() {
    let audio = [prompt(24_000, 1), prompt(24_000, 2), vec![0; 72_000]].concat();
    let mut live = Client::connected();
    live.live(&audio);
    let mut burst = Client::connected();
    burst.append(&audio);
    burst.pass(3000);
    let told = |client: &Client| -> Vec<String> {
        let told = client.events.iter().filter(|event| event["type"] != "response.output_audio.delta");
        told.map(|event| format!("{} {} {}", event["type"], event["audio_start_ms"], event["audio_end_ms"])).collect()
    };
    assert_eq!(told(&burst), told(&live));
    assert_eq!(live.names().iter().filter(|name| **name == "response.done").count(), 2);
}

#[test]
fn telephone_audio_goes_both_ways() {
    let mut client = Client::connected();
    let format = json!({"format": {"type": "audio/pcmu"}});
    client.send(&json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": format, "output": format}}}));
    client.events.clear();
    client.law = Some(Law::Mu);
    let audio = prompt(8000, 1);
    client.live(&audio);
    assert_eq!(client.names(), TURN);
    let likeness = alike(&audio[5600..13_600], &client.said(), 3200);
    assert!(likeness > 0.9, "{likeness}");
}

#[test]
fn a_client_that_is_interrupted_truncates_what_it_played() {
    let mut client = Client::connected();
    client.live(&prompt(24_000, 1));
    let item =
        client.events.iter().find(|event| event["type"] == "response.output_audio.delta").unwrap()["item_id"].clone();
    client.events.clear();
    client.live(&voice::babble::speech(24_000, 500, 3));
    assert_eq!(client.names(), ["input_audio_buffer.speech_started"]);
    client
        .send(&json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 700}));
    assert_eq!(client.names().last(), Some(&"conversation.item.truncated"));
    let record = client.call.poll_record().unwrap();
    assert_eq!(record.positions.played_end, Some(700 * 48));
}

#[test]
fn a_commit_of_nothing_is_an_error_and_one_behind_audio_is_an_item() {
    let mut client = Client::connected();
    client.send(&json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": null}}}}));
    client.events.clear();
    client.send(&json!({"type": "input_audio_buffer.commit", "event_id": "c"}));
    let error = &client.events[0]["error"];
    assert_eq!((&error["code"], &error["event_id"]), (&json!("input_audio_buffer_commit_empty"), &json!("c")));
    client.events.clear();
    client.append(&voice::babble::speech(24_000, 1000, 1));
    client.send(&json!({"type": "input_audio_buffer.commit"}));
    client.send(&json!({"type": "response.create"}));
    client.pass(1000);
    assert_eq!(client.names(), TURN[2..]);
}
