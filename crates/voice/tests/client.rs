//! What the client asks for: manual turns, cancels, clears.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::{Bench, speech};
use voice::{Config, Event, FlushReason, Output, State, TurnConfig};

fn manual() -> Config {
    Config { turn: TurnConfig { server_vad: None }, ..Config::default() }
}

fn flush(output: &Output) -> bool {
    matches!(output, Output::Flush { reason: FlushReason::ClientCancelled, .. })
}

fn replying(reply_ms: usize) -> Bench {
    let mut bench = Bench::new(manual());
    bench.backend.says = Some(speech::speech(reply_ms, 41));
    assert!(bench.conversation.create_response(bench.now).is_some());
    bench.drain();
    bench.run_ms(500);
    assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    bench
}

#[test]
fn a_manual_turn_is_all_that_was_said_since_the_last() {
    let mut bench = Bench::new(manual());
    bench.say(&speech::silence(200));
    bench.say(&speech::speech(1000, 42));
    bench.run_ms(2000);
    assert_eq!(bench.events(), []);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    assert_eq!(bench.backend.turns.len(), 1);
    let (from, to) = bench.backend.spans[0];
    assert!(from.abs_diff(200 * 48) < 40 * 48 && to.abs_diff(1200 * 48) < 60 * 48, "{from} to {to}");
    assert!(matches!(bench.events()[..], [Event::Committed { .. }]));
}

#[test]
fn speech_over_a_commit_is_in_two_turns_and_the_second_ends_where_it_ends() {
    let mut bench = Bench::new(manual());
    bench.say(&speech::silence(200));
    bench.say(&speech::speech(1000, 42));
    bench.run_ms(700);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    bench.run_ms(1300);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    let [(_, first_to), (from, to)] = bench.backend.spans[..] else { panic!("{:?}", bench.backend.spans) };
    assert!(from.abs_diff(first_to) < 40 * 48, "{first_to}, then from {from}");
    assert!(to.abs_diff(1200 * 48) < 60 * 48, "{to}");
}

#[test]
fn an_empty_buffer_is_not_committed() {
    let mut bench = Bench::new(Config::default());
    assert!(!bench.conversation.commit(bench.now));
    bench.run_ms(500);
    assert!(!bench.conversation.commit(bench.now));
}

#[test]
fn cleared_input_is_not_in_the_turn() {
    let mut bench = Bench::new(manual());
    bench.say(&speech::speech(1000, 43));
    bench.run_ms(1000);
    bench.conversation.clear_input(bench.now);
    bench.say(&speech::speech(500, 44));
    bench.run_ms(600);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    assert!(bench.backend.spans[0].0 >= 1000 * 48, "{:?}", bench.backend.spans);
    assert!(bench.backend.turns[0].len() <= 600 * 16);
}

#[test]
fn a_manual_turn_without_speech_does_not_grow_for_ever() {
    let mut bench = Bench::new(Config { max_turn_ms: 2000, ..manual() });
    bench.run_ms(9000);
    assert!(bench.backend.heard.len() <= 2020 * 16, "{}", bench.backend.heard.len());
    bench.say(&speech::speech(500, 45));
    bench.run_ms(800);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    assert!(bench.backend.turns[0].len() > 500 * 16);
}

#[test]
fn a_turn_of_the_detector_can_be_committed_early() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::speech(1500, 46));
    bench.run_ms(1000);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    bench.run_ms(100);
    let names: Vec<bool> = bench.events().iter().map(|event| matches!(event, Event::SpeechStopped { .. })).collect();
    assert_eq!(names[..3], [false, true, false]);
}

#[test]
fn a_second_response_is_refused_while_one_is_active() {
    let mut bench = Bench::new(manual());
    bench.backend.delay = None;
    assert!(bench.conversation.create_response(bench.now).is_some());
    assert!(bench.conversation.create_response(bench.now).is_none());
}

#[test]
fn a_second_response_plays_behind_the_first() {
    let mut bench = replying(1500);
    assert!(bench.conversation.create_response(bench.now).is_some());
    bench.drain();
    bench.run_ms(4000);
    assert_eq!(bench.edge.wire.len(), 150);
    assert_eq!(bench.count(|output| matches!(output, Output::Event(Event::PlayoutStopped { .. }))), 2);
}

#[test]
fn a_cancelled_response_is_flushed() {
    let mut bench = Bench::new(manual());
    bench.backend.delay = None;
    let response = bench.conversation.create_response(bench.now).unwrap();
    let pcm = speech::speech(2000, 47);
    bench
        .conversation
        .handle_backend(bench.now, voice::BackendOutput::Audio { response, audio: voice::AgentAudio::Pcm(pcm) });
    bench.drain();
    bench.run_ms(300);
    assert!(bench.conversation.cancel(bench.now));
    bench.drain();
    bench.run_ms(100);
    assert!(bench.edge.is_idle());
    assert_eq!(bench.count(flush), 1);
    assert_eq!(bench.backend.cancelled, [response]);
    assert!(!bench.conversation.cancel(bench.now));
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a_response_cancelled_before_its_first_sound_flushes_nothing() {
    let mut bench = Bench::new(manual());
    bench.backend.delay = None;
    bench.conversation.create_response(bench.now).unwrap();
    assert!(bench.conversation.cancel(bench.now));
    bench.drain();
    assert_eq!(bench.count(flush), 0);
    assert!(!bench.events().iter().any(|event| matches!(event, Event::PlayoutCleared { .. })));
}

#[test]
fn cleared_output_is_cut_where_the_edge_says() {
    let mut bench = replying(3000);
    bench.conversation.clear_output(bench.now);
    bench.drain();
    bench.run_ms(100);
    let played = bench.edge.wire.len() as u64 * 960;
    assert!(
        bench
            .events()
            .iter()
            .any(|event| matches!(event, Event::PlayoutCleared { played_end, .. } if *played_end == played))
    );
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a_reply_that_the_edge_never_had_is_cleared_at_nothing_and_at_once() {
    let mut bench = replying(1500);
    let waiting = bench.conversation.create_response(bench.now).unwrap();
    bench.drain();
    bench.run_ms(50);
    assert_eq!(bench.count(|output| matches!(output, Output::UtteranceStart { .. })), 1);
    bench.conversation.clear_output(bench.now);
    bench.drain();
    bench.run_ms(100);
    let cleared = |event| match event {
        Event::PlayoutCleared { response, played_end } => Some((response, played_end)),
        _ => None,
    };
    let cleared: Vec<_> = bench.events().into_iter().filter_map(cleared).collect();
    assert_eq!(cleared.len(), 2);
    assert!(cleared.contains(&(waiting, 0)), "{cleared:?}");
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn an_interrupted_reply_that_waited_is_cancelled_before_it_is_cleared() {
    let mut bench = replying(1500);
    bench.backend.delay = None;
    let waiting = bench.conversation.create_response(bench.now).unwrap();
    let audio = voice::AgentAudio::Pcm(speech::speech(500, 47));
    bench.conversation.handle_backend(bench.now, voice::BackendOutput::Audio { response: waiting, audio });
    assert!(bench.conversation.cancel(bench.now));
    bench.drain();
    let of_waiting = |event: &Event| match event {
        Event::ResponseCancelled { response, .. } if *response == waiting => Some("cancelled"),
        Event::PlayoutCleared { response, .. } if *response == waiting => Some("cleared"),
        _ => None,
    };
    bench.run_ms(100);
    let order: Vec<_> = bench.events().iter().filter_map(of_waiting).collect();
    assert_eq!(order, ["cancelled", "cleared"]);
}

#[test]
fn a_clients_delay_is_bounded_and_taken_four_times_a_second_at_most() {
    let mut bench = Bench::new(manual());
    assert_eq!(bench.conversation.client_delay_us(), None);
    bench.conversation.set_client_delay(bench.now, 85_000);
    assert_eq!(bench.conversation.client_delay_us(), Some(85_000));
    bench.run_ms(249);
    bench.conversation.set_client_delay(bench.now, 120_000);
    assert_eq!(bench.conversation.client_delay_us(), Some(85_000));
    assert_eq!(bench.conversation.stats().hasty_client_delays, 1);
    bench.run_ms(1);
    bench.conversation.set_client_delay(bench.now, u32::MAX);
    assert_eq!(bench.conversation.client_delay_us(), Some(2_000_000));
}
