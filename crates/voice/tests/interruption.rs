//! Speech over the reply: paused at once, cut when it lasts, taken back when not.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::{Bench, speech};
use voice::{BackendInput, Config, Event, FlushReason, Output, ServerVad, State, TurnConfig};

fn pause(output: &Output) -> bool {
    matches!(output, Output::Pause)
}

fn resume(output: &Output) -> bool {
    matches!(output, Output::Resume { .. })
}

fn flush(output: &Output) -> bool {
    matches!(output, Output::Flush { reason: FlushReason::TurnDetected, .. })
}

#[test]
fn speech_pauses_and_then_cuts_the_reply() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    let onset = bench.elapsed_ms();
    bench.say(&speech::speech(1500, 23));
    bench.run_ms(1000);
    let paused = bench.time_of(pause).unwrap() - onset;
    let flushed = bench.time_of(flush).unwrap() - onset;
    let last = bench.edge.wire.last().unwrap().0.duration_since(bench.start).as_millis() as u64 - onset;
    println!("paused after {paused} ms, last frame after {last} ms, cut after {flushed} ms");
    assert!(paused <= 80, "{paused}");
    assert!(last <= 100, "{last}");
    assert!((240..340).contains(&flushed), "{flushed}");
    assert_eq!(bench.count(resume), 0);
}

#[test]
fn the_interruption_is_answered_itself() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    let onset = bench.elapsed_ms();
    let question = speech::speech(1500, 24);
    bench.backend.says = None;
    bench.say(&question);
    bench.run_ms(5000);
    assert_eq!(bench.backend.turns.len(), 2);
    let correlation = speech::correlation(&question[4800..12_800], &bench.backend.turns.last().unwrap()[4800..], 2400);
    assert!(correlation > 0.8, "{correlation}");
    // The padding before the onset has reached the backend too.
    let event = bench.events().into_iter().find_map(|event| match event {
        Event::SpeechStarted { audio_start_ms, .. } => Some(audio_start_ms),
        _ => None,
    });
    let start = event.unwrap();
    assert!((onset - 330..onset - 240).contains(&start), "speech at {onset}, turn from {start}");
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a_cut_reply_ends_where_the_edge_says() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.say(&speech::speech(1500, 25));
    bench.run_ms(1000);
    let cleared = bench.events().into_iter().find_map(|event| match event {
        Event::PlayoutCleared { played_end, .. } => Some(played_end),
        _ => None,
    });
    assert_eq!(cleared.unwrap(), bench.edge.wire.len() as u64 * 960);
}

#[test]
fn speech_started_comes_with_the_cut_and_not_before() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.say(&speech::speech(1500, 26));
    bench.run_ms(1000);
    let started = bench.time_of(|output| matches!(output, Output::Event(Event::SpeechStarted { .. }))).unwrap();
    assert_eq!(started, bench.time_of(flush).unwrap());
}

#[test]
fn a_cough_takes_nothing_from_the_reply() {
    for (length, seed) in [(60, 31), (100, 32), (150, 33)] {
        let mut bench = Bench::in_a_reply(Config::default(), 3000);
        bench.say(&speech::speech(length, seed));
        bench.run_ms(6000);
        assert_eq!(bench.count(flush), 0);
        assert_eq!(bench.count(pause), 1, "a cough of {length} ms");
        assert_eq!(bench.count(resume), 1);
        let stopped = bench.time_of(resume).unwrap() - bench.time_of(pause).unwrap();
        println!("{length} ms: paused for {stopped} ms");
        assert!(stopped <= 144 + 150 + 40, "{stopped}");
        assert_eq!(bench.edge.wire.len(), 150);
        assert_eq!(bench.count(|output| matches!(output, Output::Event(Event::SpeechStarted { .. }))), 0);
        assert_eq!(bench.conversation.state(), State::Listening);
    }
}

#[test]
fn a_cough_between_question_and_reply_does_not_cancel_it() {
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(speech::speech(1000, 21));
    bench.backend.delay = Some(std::time::Duration::from_millis(400));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1000, 22));
    bench.run_ms(2400);
    assert_eq!(bench.conversation.state(), State::Thinking);
    bench.say(&speech::speech(150, 34));
    bench.run_ms(100);
    assert_eq!(bench.conversation.state(), State::Interrupting);
    bench.run_ms(3000);
    assert_eq!(bench.edge.wire.len(), 50);
    assert!(bench.backend.cancelled.is_empty());
}

#[test]
fn a_reply_that_comes_in_the_doubt_waits_for_its_end() {
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(speech::speech(1000, 21));
    bench.backend.delay = Some(std::time::Duration::from_millis(380));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1000, 22));
    bench.run_ms(2380);
    bench.say(&speech::speech(150, 34));
    bench.run_ms(130);
    assert_eq!(bench.conversation.state(), State::Interrupting);
    assert!(bench.events().iter().any(|event| matches!(event, Event::ResponseAudioStarted { .. })));
    assert!(bench.edge.wire.is_empty());
    bench.run_ms(3000);
    assert_eq!(bench.edge.wire.len(), 50);
}

#[test]
fn speech_while_the_agent_thinks_cancels_the_reply() {
    let mut bench = Bench::new(Config::default());
    bench.backend.delay = Some(std::time::Duration::from_secs(2));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1000, 22));
    bench.run_ms(2400);
    bench.say(&speech::speech(1000, 35));
    bench.run_ms(6000);
    assert_eq!(bench.backend.cancelled.len(), 1);
    assert_eq!(bench.count(flush), 0, "nothing was at the edge");
    assert_eq!(bench.backend.turns.len(), 2);
    assert_eq!(bench.count(|output| matches!(output, Output::UtteranceStart { .. })), 1);
}

#[test]
fn without_interrupt_response_the_reply_goes_on_and_the_speech_is_answered_after_it() {
    let vad = ServerVad { interrupt_response: false, ..ServerVad::default() };
    let config = Config { turn: TurnConfig { server_vad: Some(vad) }, ..Config::default() };
    let mut bench = Bench::in_a_reply(config, 3000);
    bench.say(&speech::speech(1000, 36));
    bench.run_ms(9000);
    assert_eq!(bench.count(pause) + bench.count(flush), 0);
    assert_eq!(bench.edge.wire.len(), 300);
    assert_eq!(bench.backend.turns.len(), 2);
}

#[test]
fn nothing_of_a_cancelled_response_is_heard() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.say(&speech::speech(1500, 37));
    bench.run_ms(800);
    let sent = bench.edge.wire.len();
    let response = voice::ResponseId(1);
    let late = voice::BackendOutput::Audio { response, audio: voice::AgentAudio::Pcm(vec![1000; 4800]) };
    bench.conversation.handle_backend(bench.now, late);
    bench.drain();
    bench.run_ms(400);
    assert_eq!(bench.edge.wire.len(), sent);
    assert_eq!(bench.conversation.stats().orphans, 1);
}

#[test]
fn a_user_who_vanishes_in_the_doubt_leaves_the_reply_playing() {
    let mut bench = Bench::in_a_reply(Config::default(), 3000);
    bench.say(&speech::speech(1000, 38));
    bench.run_ms(100);
    assert_eq!(bench.conversation.state(), State::Interrupting);
    bench.muted = true;
    bench.run_ms(5000);
    assert_eq!(bench.count(resume), 1);
    assert_eq!(bench.edge.wire.len(), 150);
}

#[test]
fn an_edge_that_falls_silent_does_not_hold_the_turn() {
    let mut bench = Bench::in_a_reply(Config::default(), 3000);
    bench.edge.dead = true;
    bench.run_ms(10_000);
    assert_eq!(bench.conversation.state(), State::Listening);
    assert_eq!(bench.conversation.stats().outgoing.stalled, 1);
}

#[test]
fn the_interrupting_turn_keeps_its_audio_without_a_gap() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.say(&speech::speech(1500, 39));
    bench.run_ms(700);
    let audio = bench.backend.end - bench.backend.begin;
    assert!(audio >= (700 + 250 - 60) * 48, "{}", audio / 48);
    let begun =
        bench.log.iter().position(|(_, output)| matches!(output, Output::Backend(BackendInput::SpeechStarted { .. })));
    let cancelled = bench.log.iter().position(flush_at);
    assert!(cancelled < begun);
}

fn flush_at((_, output): &(u64, Output)) -> bool {
    flush(output)
}

#[test]
fn a_pause_that_came_behind_the_last_frame_does_not_hold_the_next_reply() {
    let mut bench = Bench::in_a_reply(Config::default(), 1400);
    bench.lenient = true;
    // Asked for by the client, and never answered: something is left to interrupt when the reply is over.
    bench.backend.delay = None;
    assert!(bench.conversation.create_response(bench.now).is_some());
    bench.say(&speech::speech(1500, 27));
    while bench.count(pause) == 0 {
        bench.run_ms(1);
    }
    let finished = voice::Playout::Finished { utterance: voice::Utterance(1), sent: 1400 * 48 };
    bench.conversation.handle_playout(bench.now, finished);
    bench.drain();
    bench.run_ms(600);
    assert_eq!(bench.conversation.state(), State::UserSpeaking);
    assert_eq!((bench.count(flush), bench.count(resume)), (0, 1));
    assert!(!bench.edge.is_paused());
}
