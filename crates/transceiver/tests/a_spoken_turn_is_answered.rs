//! Speech in, the same speech out, and the client told of it in order.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use link::proto::OpenRequest;
use support::{Bench, speech};

#[test]
fn the_parrot_says_back_what_it_heard_and_the_events_come_in_order() {
    let mut bench = Bench::opened("parrot");
    let sentence = speech::speech(1400, 1);
    bench.run_ms(600);
    bench.say(&sentence);
    bench.run_ms(4500);
    assert_eq!(
        bench.names(),
        [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "conversation.item.added",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_audio_transcript.done",
            "response.output_audio.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
            "output_audio_buffer.started",
            "output_audio_buffer.stopped",
        ]
    );
    assert_eq!(bench.event("response.done").unwrap().1["response"]["status"], "completed");
    let correlation = speech::correlation(&sentence[1600..17_600], &bench.heard());
    assert!(correlation >= 0.7, "{correlation}");
    let other = speech::correlation(&speech::speech(1400, 9)[1600..17_600], &bench.heard());
    assert!(other <= 0.5, "{other}");
}

#[test]
fn a_second_turn_is_answered_with_its_own_words() {
    let mut bench = Bench::opened("parrot");
    let (first, second) = (speech::speech(1200, 1), speech::speech(1200, 2));
    bench.run_ms(600);
    bench.say(&first);
    bench.run_ms(4000);
    bench.wire.clear();
    bench.say(&second);
    bench.run_ms(4000);
    let own = speech::correlation(&second[1600..16_000], &bench.heard());
    assert!(own >= 0.7, "{own}");
    assert_eq!(bench.names().iter().filter(|name| **name == "response.done").count(), 2);
}

#[test]
fn the_parts_of_the_delay_sum_to_it() {
    let mut bench = Bench::opened("parrot");
    bench.run_ms(600);
    bench.say(&speech::speech(1200, 1));
    bench.run_ms(4000);
    let timing = bench.call.poll_timing().unwrap();
    println!("{timing:?}");
    let sum = timing.uplink_us
        + timing.repair_us
        + timing.silence_us
        + timing.backend_us
        + timing.encode_us
        + timing.playout_us;
    assert_eq!(sum, timing.total_us);
    assert!(timing.total_us < 700_000, "{timing:?}");
    assert_eq!(bench.call.poll_timing(), None);
}

#[test]
fn ids_follow_from_the_seed() {
    use transceiver::call::{Call, CallConfig};
    // The first event of a call is the same for the same seed, and differs for another.
    let now = std::time::Instant::now();
    let first = |seed| {
        let mut call = Call::new(now, CallConfig::default(), &support::request("parrot"), support::SLOT, seed);
        let opened = link::proto::ChannelOpened { channel: 1, label: "oai-events".to_owned() };
        let kind = Some(link::proto::edge_message::Kind::ChannelOpened(opened));
        call.handle_message(now, link::proto::EdgeMessage { kind });
        std::iter::from_fn(|| call.poll_output()).last()
    };
    assert_eq!(first(4), first(4));
    assert_ne!(first(4), first(5));
}

/// The microphone speaks Opus all the same: what the edge asks for is how the client is answered.
#[test]
fn a_client_without_opus_is_answered_in_g711() {
    let mut bench = Bench::asked(&OpenRequest { codec: 2, ..support::request("parrot") });
    let sentence = speech::speech(1400, 1);
    bench.run_ms(600);
    bench.say(&sentence);
    bench.run_ms(4500);
    assert!(bench.wire.len() > 60 && bench.wire.iter().all(|(_, payload)| payload.len() == 160), "20 ms each");
    let mut heard = Vec::new();
    bench.wire.iter().for_each(|(_, payload)| voice::g711::decode(voice::g711::Law::Mu, payload, &mut heard));
    let narrow: Vec<i16> = sentence[1600..17_600].iter().step_by(2).copied().collect();
    let correlation = speech::correlation(&narrow, &heard);
    assert!(correlation >= 0.7, "{correlation}");
}

#[test]
fn keys_are_told_to_the_client_with_the_time_they_came() {
    let mut bench = Bench::opened("parrot");
    bench.run_ms(2000);
    bench.key(&[9, 0x80 | 10, 3, 0]);
    assert_eq!(bench.names(), ["input_audio_buffer.dtmf_event_received"]);
    let event = bench.event("input_audio_buffer.dtmf_event_received").unwrap().1;
    assert_eq!((&event["event"], &event["received_at"]), (&"9".into(), &1_700_000_002_u64.into()));
}
