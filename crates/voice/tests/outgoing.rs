//! The reply on its way: credit, frames, positions.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::{Duration, Instant};

use common::{Bench, speech};
use voice::{
    AgentAudio, BackendOutput, Config, Conversation, Event, Output, Playout, ResponseId, TurnConfig, Utterance,
};

/// A conversation with one response asked for, and nothing around it.
struct Reply {
    conversation: Conversation,
    response: ResponseId,
    now: Instant,
    frames: usize,
    others: Vec<Output>,
}

impl Reply {
    fn new() -> Self {
        let now = Instant::now();
        let config = Config { turn: TurnConfig { server_vad: None }, ..Config::default() };
        let mut conversation = Conversation::new(now, config);
        let response = conversation.create_response(now).unwrap();
        Self { conversation, response, now, frames: 0, others: Vec::new() }
    }

    fn say(&mut self, samples: usize) {
        let output = BackendOutput::Audio { response: self.response, audio: AgentAudio::Pcm(vec![500; samples]) };
        self.conversation.handle_backend(self.now, output);
        self.drain();
    }

    fn done(&mut self) {
        self.conversation.handle_backend(self.now, BackendOutput::ResponseDone { response: self.response });
        self.drain();
    }

    fn playout(&mut self, playout: Playout) {
        self.conversation.handle_playout(self.now, playout);
        self.drain();
    }

    /// Frames since the last call.
    fn drain(&mut self) -> usize {
        let before = self.frames;
        while let Some(output) = self.conversation.poll_output() {
            match output {
                Output::Frame { samples, .. } => {
                    assert_eq!(samples, 960);
                    self.frames += 1;
                }
                other => self.others.push(other),
            }
        }
        self.frames - before
    }

    fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            if self.conversation.poll_timeout().is_some_and(|due| due <= self.now) {
                self.conversation.handle_timeout(self.now);
            }
            self.drain();
        }
    }
}

#[test]
fn one_turn_of_the_loop_encodes_three_frames() {
    let mut reply = Reply::new();
    reply.say(16_000);
    assert_eq!(reply.frames, 3);
    reply.say(16_000);
    reply.say(16_000);
    assert_eq!(reply.frames, 3, "at the same instant");
    reply.run_ms(1);
    assert_eq!(reply.frames, 6);
}

#[test]
fn frames_stop_at_the_credit_and_go_on_with_a_report() {
    let mut reply = Reply::new();
    reply.say(16_000 * 5);
    reply.run_ms(100);
    assert_eq!(reply.frames, 50, "1000 ms ahead");
    let utterance = Utterance(1);
    reply.playout(Playout::Report { utterance, sent: 4800, limit: 48_000 + 4800, client: None });
    reply.run_ms(100);
    assert_eq!(reply.frames, 55);
    // An older report takes nothing back.
    reply.playout(Playout::Report { utterance, sent: 0, limit: 960, client: None });
    reply.playout(Playout::Report { utterance, sent: 9600, limit: 48_000 + 9600, client: None });
    reply.run_ms(100);
    assert_eq!(reply.frames, 60);
}

#[test]
fn odd_chunks_are_carried_and_the_last_frame_is_filled() {
    let mut reply = Reply::new();
    for chunk in [1, 319, 0, 2031, 848, 1] {
        reply.say(chunk);
    }
    reply.run_ms(10);
    assert_eq!(reply.frames, 10, "3200 samples are 10 frames");
    reply.say(7);
    reply.run_ms(10);
    assert_eq!(reply.frames, 10, "part of a frame waits");
    reply.done();
    reply.run_ms(10);
    assert_eq!(reply.frames, 11);
    assert_eq!(reply.conversation.stats().outgoing.padding, 313);
    let done = Output::Event(Event::ResponseDone { response: reply.response, generated: 3207 * 3 });
    assert!(reply.others.contains(&done), "{:?}", reply.others);
    assert!(reply.others.contains(&Output::UtteranceEnd { utterance: Utterance(1) }));
}

#[test]
fn a_cut_is_never_behind_what_was_generated() {
    let mut reply = Reply::new();
    reply.say(400);
    reply.done();
    reply.run_ms(5);
    assert_eq!(reply.frames, 2);
    reply.conversation.clear_output(reply.now);
    reply.playout(Playout::Flushed { utterance: Utterance(1), sent: 1920, received: voice::Received::default() });
    let cleared = Output::Event(Event::PlayoutCleared { response: reply.response, played_end: 1200 });
    assert!(reply.others.contains(&cleared), "{:?}", reply.others);
}

#[test]
fn a_cut_that_is_not_confirmed_is_where_playout_was_last_seen() {
    let mut reply = Reply::new();
    reply.say(16_000);
    reply.run_ms(30);
    reply.playout(Playout::Report { utterance: Utterance(1), sent: 9600, limit: 57_600, client: None });
    reply.conversation.clear_output(reply.now);
    reply.run_ms(2100);
    let cleared = Output::Event(Event::PlayoutCleared { response: reply.response, played_end: 9600 });
    assert!(reply.others.contains(&cleared), "{:?}", reply.others);
}

#[test]
fn a_whole_reply_at_once_is_kept_and_more_than_the_longest_turn_is_dropped() {
    let mut reply = Reply::new();
    assert!(reply.conversation.wants_audio());
    reply.say(16_000 * 60);
    assert!(!reply.conversation.wants_audio());
    assert_eq!(reply.conversation.stats().outgoing.overflow, 0);
    reply.say(16_000 * 60);
    assert!(reply.conversation.stats().outgoing.overflow >= 16_000 * 58);
}

#[test]
fn a_backend_that_stops_without_an_end_is_ended() {
    let mut reply = Reply::new();
    reply.say(500);
    reply.run_ms(10_100);
    assert_eq!(reply.frames, 2, "the tail is said");
    assert!(reply.others.iter().any(|output| matches!(output, Output::Event(Event::ResponseFailed { .. }))));
    reply.playout(Playout::Finished { utterance: Utterance(1), sent: 1920 });
    assert!(reply.others.iter().any(|output| matches!(output, Output::Event(Event::PlayoutStopped { .. }))));
}

#[test]
fn a_reply_slower_than_real_time_plays_to_its_end() {
    let mut bench = Bench::new(Config { turn: TurnConfig { server_vad: None }, ..Config::default() });
    bench.backend.delay = None;
    let response = bench.conversation.create_response(bench.now).unwrap();
    for part in speech::speech(3000, 51).chunks(9600) {
        bench
            .conversation
            .handle_backend(bench.now, BackendOutput::Audio { response, audio: AgentAudio::Pcm(part.to_vec()) });
        bench.drain();
        bench.run_ms(700);
    }
    bench.conversation.handle_backend(bench.now, BackendOutput::ResponseDone { response });
    bench.drain();
    bench.run_ms(500);
    assert_eq!(bench.edge.wire.len(), 150);
    assert!(bench.edge.is_idle());
}

#[test]
fn what_waits_at_the_edge_stays_within_the_credit() {
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(speech::speech(8000, 52));
    bench.conversation.create_response(bench.now).unwrap();
    bench.drain();
    bench.run_ms(9000);
    assert_eq!(bench.edge.wire.len(), 400);
    // One report interval and the link are what the limit may be late.
    assert!(bench.edge.deepest <= 48_000 + 960, "{}", bench.edge.deepest);
}
