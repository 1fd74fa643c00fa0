//! While enough of a reply waits, speech waits at the backend; nothing else does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use link::datagram::{Codec, MediaUp, PlayoutReport};
use link::ids::{Slot, UtteranceId};
use link::proto::playout_effect::Kind as Effect;
use link::proto::{EdgeMessage, PlayoutEffect, TransceiverMessage, edge_message, transceiver_message};
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};
use voice::{AgentAudio, BackendInput, BackendOutput, Failure, InterruptionConfig, ResponseId};

use super::{event_of, open_channel, say, seated};
use crate::backend::{Backend, Wanted};
use crate::call::{Call, CallConfig, CallOutput};

const FRAME: Duration = Duration::from_millis(20);
const RATE: usize = 16_000;

/// A backend that has a whole reply at once.
#[derive(Clone)]
struct Eager(Arc<Mutex<Lanes>>);

#[derive(Default)]
struct Lanes {
    seconds: usize,
    /// It gives its speech whatever is wanted, and all else behind it.
    heedless: bool,
    speech: VecDeque<BackendOutput>,
    control: VecDeque<BackendOutput>,
}

impl Eager {
    fn of(seconds: usize, heedless: bool) -> Self {
        Self(Arc::new(Mutex::new(Lanes { seconds, heedless, ..Lanes::default() })))
    }

    fn tell(&self, output: BackendOutput) {
        let mut lanes = self.0.lock().unwrap();
        let lanes = &mut *lanes;
        if lanes.heedless { &mut lanes.speech } else { &mut lanes.control }.push_back(output);
    }

    /// Pieces of speech, and what is behind them, not given yet.
    fn holds(&self) -> usize {
        self.0.lock().unwrap().speech.len()
    }
}

impl Backend for Eager {
    fn handle(&mut self, input: BackendInput) {
        let lanes = &mut *self.0.lock().unwrap();
        match input {
            BackendInput::CreateResponse { response, .. } => {
                lanes.control.push_back(BackendOutput::ResponseStarted { response });
                let audio = AgentAudio::Pcm(voice::babble::speech(16_000, 100, 1));
                let piece = BackendOutput::Audio { response, audio };
                lanes.speech.extend(std::iter::repeat_n(piece, lanes.seconds * 10));
                lanes.speech.push_back(BackendOutput::ResponseDone { response });
            }
            BackendInput::Cancel { .. } => lanes.speech.clear(),
            _ => {}
        }
    }

    fn poll(&mut self, _: Instant, wanted: Wanted) -> Option<BackendOutput> {
        let lanes = &mut *self.0.lock().unwrap();
        let speech = lanes.heedless || wanted == Wanted::All;
        lanes.control.pop_front().or_else(|| if speech { lanes.speech.pop_front() } else { None })
    }
}

/// A call in the middle of a long reply, with a microphone and an edge that plays.
struct Playing {
    call: Call,
    backend: Eager,
    now: Instant,
    encoder: Encoder,
    microphone: VecDeque<i16>,
    frames: u16,
    sent: u64,
    /// 48 kHz samples that were given to the edge.
    given: u64,
    flushed: bool,
    events: Vec<String>,
}

impl Playing {
    fn new(backend: Eager, min_words: u32) -> Self {
        let now = Instant::now();
        let mut config = CallConfig::default();
        config.voice.interruption = InterruptionConfig { min_words, ..InterruptionConfig::default() };
        let encoder = EncoderConfig { rate: 16_000, bitrate: 32_000, ..EncoderConfig::default() };
        let mut call = seated(now, config, backend.clone());
        open_channel(&mut call, now);
        let mut playing = Self {
            call,
            backend,
            now,
            encoder: Encoder::new(encoder).unwrap(),
            microphone: VecDeque::new(),
            frames: 0,
            sent: 0,
            given: 0,
            flushed: false,
            events: Vec::new(),
        };
        playing.events = say(&mut playing.call, now, r#"{"type":"response.create"}"#);
        playing.run_ms(20);
        let started = PlayoutEffect { utterance: 1, kind: Effect::Started.into(), sent: 0, ..PlayoutEffect::default() };
        playing.call.handle_message(now, EdgeMessage { kind: Some(edge_message::Kind::Playout(started)) });
        playing.run_ms(2000);
        playing
    }

    fn say_ms(&mut self, ms: usize) {
        self.microphone.extend(voice::babble::speech(16_000, ms, 7));
        self.run_ms(ms as u64);
    }

    /// The user's frames, the edge's reports, and the call's own deadlines.
    fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms / 20 {
            let until = self.now + FRAME;
            while let Some(due) = self.call.poll_timeout().filter(|due| *due < until) {
                self.now = self.now.max(due);
                self.call.handle_timeout(self.now);
                self.drain();
            }
            self.now = until;
            self.frame();
            self.drain();
        }
    }

    fn frame(&mut self) {
        let pcm: Vec<i16> = (0..RATE / 50).map(|_| self.microphone.pop_front().unwrap_or(0)).collect();
        let mut packet = [0; MAX_PACKET_BYTES];
        let length = self.encoder.encode(&pcm, &mut packet).unwrap();
        let frames = u32::from(self.frames);
        let media = MediaUp {
            slot: Slot(1),
            epoch: 0,
            codec: Codec::Opus,
            seq: self.frames,
            rtp_timestamp: frames * 960,
            marker: false,
            audio_level: None,
            age_us: 0,
            payload: &packet[..length],
        };
        self.call.handle_media(self.now, &media);
        self.frames += 1;
        self.sent = self.given.min(self.sent + 960);
        if self.frames.is_multiple_of(5) {
            let (sent, limit) = (self.sent, self.sent + 14_400);
            let utterance = UtteranceId(1);
            let report = PlayoutReport {
                slot: Slot(1),
                epoch: 0,
                utterance,
                sent,
                limit,
                queue_ms: 0,
                underruns: 0,
                client: None,
            };
            self.call.handle_report(self.now, &report);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.call.poll_output() {
            self.events.extend(event_of(&output));
            match output {
                CallOutput::UtteranceFrame { samples, .. } => self.given += u64::from(samples),
                CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::Flush(_)) }) => {
                    self.flushed = true;
                }
                _ => {}
            }
        }
    }

    fn told(&self, name: &str) -> bool {
        self.events.iter().any(|event| event.contains(name))
    }
}

fn stop_that() -> BackendOutput {
    BackendOutput::UserTranscript { turn: None, text: "stop that".to_owned(), is_final: false }
}

#[test]
fn words_behind_a_minute_of_speech_interrupt_it_at_once() {
    for (seconds, heedless) in [(60, true), (60, false), (600, false)] {
        let mut playing = Playing::new(Eager::of(seconds, heedless), 2);
        assert!(playing.sent > 48_000, "{}", playing.sent);
        playing.say_ms(600);
        assert!(!playing.flushed, "two words are asked for");
        playing.backend.tell(stop_that());
        playing.run_ms(20);
        assert!(playing.flushed, "{seconds} s, heedless: {heedless}");
    }
}

#[test]
fn speech_alone_waits_at_the_backend() {
    let mut playing = Playing::new(Eager::of(60, false), 0);
    let waits = playing.backend.holds();
    // 60 s less what plays, the 10 s that wait here, and their end.
    assert!((450..=485).contains(&waits), "{waits}");
    playing.run_ms(10_000);
    let later = playing.backend.holds();
    assert!((95..=105).contains(&(waits - later)), "{waits} {later}");
    assert!(!playing.told("response.done"));
}

#[test]
fn a_fault_behind_a_minute_of_speech_ends_the_response_at_once_and_what_was_given_plays() {
    for heedless in [true, false] {
        let mut playing = Playing::new(Eager::of(60, heedless), 0);
        assert_eq!(playing.told("response.done"), heedless, "its end is behind the speech that waits");
        playing.backend.tell(BackendOutput::Fault {
            response: Some(ResponseId(1)),
            failure: Failure::new("gone", "out of memory"),
            retryable: false,
        });
        playing.run_ms(20);
        assert!(playing.told("response.done"), "{:?}", playing.events);
        assert_eq!(playing.told("out of memory"), !heedless, "{:?}", playing.events);
        let sent = playing.sent;
        playing.run_ms(1000);
        assert!(playing.sent > sent && !playing.flushed);
    }
}

#[test]
fn the_speech_of_a_cancelled_response_is_dropped_and_the_next_is_heard() {
    let mut playing = Playing::new(Eager::of(60, false), 0);
    playing.events.extend(say(&mut playing.call, playing.now, r#"{"type":"response.cancel"}"#));
    assert_eq!(playing.backend.holds(), 0);
    playing.backend.tell(BackendOutput::Audio { response: ResponseId(1), audio: AgentAudio::Pcm(vec![1; 1600]) });
    playing.run_ms(100);
    playing.events.extend(say(&mut playing.call, playing.now, r#"{"type":"response.create"}"#));
    playing.run_ms(100);
    assert!(playing.backend.holds() > 450, "{}", playing.backend.holds());
}
