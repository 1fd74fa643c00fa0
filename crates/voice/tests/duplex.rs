//! Case T13: a backend that streams audio and fragments of its transcript, and never says what begins or ends.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::{Bench, speech};
use voice::{AgentAudio, BackendInput, BackendOutput, Config, Event, Output, ResponseId, ServerVad, State, TurnConfig};

const UNASKED: ResponseId = ResponseId::UNASKED;

fn duplex(interrupt_response: bool) -> Bench {
    let vad = ServerVad { create_response: false, interrupt_response, ..ServerVad::default() };
    let turn = TurnConfig { server_vad: Some(vad) };
    let mut bench = Bench::new(Config { turn, duplex_silence_ms: 800, ..Config::default() });
    bench.backend.delay = None;
    bench.run_ms(200);
    bench
}

/// 100 ms of the stream: the next part of what is said, or silence; a word with each part.
fn stream(bench: &mut Bench, said: &mut dyn Iterator<Item = Vec<i16>>) {
    let part = said.next();
    if part.is_some() {
        let delta = "word ".to_owned();
        bench
            .conversation
            .handle_backend(bench.now, BackendOutput::Text { response: UNASKED, delta, words: Vec::new() });
    }
    let audio = AgentAudio::Pcm(part.unwrap_or_else(|| vec![3; 1600]));
    bench.conversation.handle_backend(bench.now, BackendOutput::Audio { response: UNASKED, audio });
    bench.drain();
    bench.run_ms(100);
}

fn parts(ms: usize, seed: u32) -> impl Iterator<Item = Vec<i16>> {
    // Without the pauses between syllables being a part of its own.
    speech::speech(ms, seed).chunks(1600).map(<[i16]>::to_vec).collect::<Vec<_>>().into_iter()
}

fn names(bench: &Bench) -> Vec<String> {
    let name = |event: &Event| format!("{event:?}").split([' ', '(']).next().unwrap_or_default().to_owned();
    bench.events().iter().filter(|event| !matches!(event, Event::Decision(_))).map(name).collect()
}

#[test]
fn t13_a_reply_begins_with_its_sound_and_ends_with_its_silence() {
    let mut bench = duplex(false);
    for _ in 0..10 {
        stream(&mut bench, &mut std::iter::empty());
    }
    assert!(bench.edge.wire.is_empty() && names(&bench).is_empty(), "silence is no reply");
    let mut said = parts(2000, 3);
    for _ in 0..40 {
        stream(&mut bench, &mut said);
    }
    let names: Vec<String> = names(&bench).into_iter().filter(|name| name != "ResponseText").collect();
    assert_eq!(
        names,
        ["ResponseCreated", "ResponseAudioStarted", "PlayoutStarted", "ResponseDone", "PlayoutStopped", "ReplyOver"]
    );
    let over = bench.events().into_iter().find_map(|event| match event {
        Event::ReplyOver(balance) => Some(balance),
        _ => None,
    });
    let over = over.unwrap();
    assert_eq!(over.played_end, over.generated);
    // The reply, and the silence by which its end is known.
    assert!((2000 * 48..=2900 * 48).contains(&over.generated), "{over:?}");
    assert_eq!(bench.conversation.state(), State::Listening);
    let heard = bench.edge.heard();
    assert!(speech::correlation(&speech::speech(2000, 3)[1600..9600], &heard, 4000) > 0.6);
}

#[test]
fn t13_the_backend_hears_everything_without_a_gap_and_decides_by_itself() {
    let mut bench = duplex(false);
    let mut said = parts(3000, 4);
    for step in 0..50 {
        if step == 10 {
            bench.say(&speech::speech(1200, 5));
        }
        stream(&mut bench, &mut said);
    }
    assert_eq!(bench.count(|output| matches!(output, Output::Pause | Output::Flush { .. })), 0, "ours is advisory");
    assert!(names(&bench).contains(&"SpeechStarted".to_owned()) && names(&bench).contains(&"SpeechStopped".to_owned()));
    // The bench asserts that no sample is missing between; all but the start of the stream has come.
    assert!(bench.backend.end >= 5000 * 48, "{}", bench.backend.end);
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn t13_speech_over_a_reply_cuts_it_where_it_was_heard_and_the_rest_of_it_is_dropped() {
    let mut bench = duplex(true);
    let mut said = parts(6000, 6);
    for _ in 0..15 {
        stream(&mut bench, &mut said);
    }
    bench.say(&speech::speech(1500, 7));
    for _ in 0..20 {
        stream(&mut bench, &mut said);
    }
    let cut = bench.events().into_iter().find_map(|event| match event {
        Event::Truncated { response, played_end, heard_at, text } => Some((response, played_end, heard_at, text)),
        _ => None,
    });
    let (response, played_end, heard_at, text) = cut.unwrap();
    assert!(heard_at.unwrap() < played_end && played_end < 2100 * 48, "{heard_at:?} {played_end}");
    assert!(text.unwrap().split_whitespace().count() <= 20);
    let told = |output: &Output| matches!(output, Output::Backend(BackendInput::Played { response: own, samples, .. }) if *own == response && *samples == played_end);
    assert_eq!(bench.count(told), 1);
    let frames = bench.edge.wire.len();
    assert!(bench.conversation.stats().orphans > 10, "the old reply went on at the backend");
    // It has heard the user, is silent, and answers: that is another reply.
    for _ in 0..5 {
        stream(&mut bench, &mut std::iter::empty());
    }
    assert_eq!(bench.edge.wire.len(), frames);
    let mut said = parts(1000, 8);
    for _ in 0..30 {
        stream(&mut bench, &mut said);
    }
    assert!(bench.edge.wire.len() >= frames + 50);
    assert_eq!(bench.conversation.state(), State::Listening);
}
