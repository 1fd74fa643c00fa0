//! A dialogue by samples: turns on the samples' own clock, replies ahead of their time, cuts that the client places.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::{Duration, Instant};

use common::speech::correlation;
use voice::g711::{self, Law};
use voice::{
    AgentAudio, Asked, BackendInput, BackendOutput, Config, Eagerness, Event, FlushReason, ResponseId, SampleFormat,
    ServerVad, State, Stream, StreamOutput, StreamStats, TurnConfig, Waited,
};

/// A client that appends, and a backend that says back what it heard or what it is told to.
struct Bench {
    stream: Stream,
    start: Instant,
    now: Instant,
    /// Events as text, decisions left out.
    log: Vec<String>,
    /// Of replies, as the client got them.
    said: Vec<u8>,
    inputs: Vec<BackendInput>,
    heard: Vec<i16>,
    turn: Vec<i16>,
    format: SampleFormat,
    /// What the backend says instead; `None` as the whole: it says nothing.
    says: Option<Vec<i16>>,
    silent: bool,
    first_deltas: Vec<Duration>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let now = Instant::now();
        Self {
            stream: Stream::new(now, config),
            start: now,
            now,
            log: Vec::new(),
            said: Vec::new(),
            inputs: Vec::new(),
            heard: Vec::new(),
            turn: Vec::new(),
            format: SampleFormat::Pcm16,
            says: None,
            silent: false,
            first_deltas: Vec::new(),
        }
    }

    fn vad(vad: ServerVad) -> Self {
        Self::new(Config { turn: TurnConfig { server_vad: Some(vad) }, ..Config::default() })
    }

    fn ms(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    fn append(&mut self, pcm: &[i16]) {
        let data: Vec<u8> = match self.format {
            SampleFormat::Pcm16 => pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
            SampleFormat::G711(law) => pcm.iter().map(|&sample| g711::encode(law, sample)).collect(),
        };
        self.stream.append(self.now, self.format, &data);
        self.drain();
    }

    /// Appends in pieces as the time comes.
    fn live(&mut self, pcm: &[i16], piece_ms: usize) {
        for piece in pcm.chunks(self.format.rate() as usize / 1000 * piece_ms) {
            self.append(piece);
            self.pass(piece_ms as u64);
        }
    }

    /// Time passes in which nothing is appended.
    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        for turns in 0.. {
            assert!(turns < 20_000, "time stands still at {} ms", self.ms());
            let Some(due) = self.stream.poll_timeout().filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            self.stream.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn drain(&mut self) {
        loop {
            while let Some(output) = self.stream.poll_output() {
                match output {
                    StreamOutput::Backend(input) => self.backend(input),
                    StreamOutput::Event(Event::Decision(_)) => {}
                    StreamOutput::Event(event) => self.log.push(told(&event)),
                    StreamOutput::Audio { data, .. } => {
                        assert!(data.len() <= 4900, "{}", data.len());
                        if self.log.last().is_none_or(|last| last != "audio") {
                            self.log.push("audio".to_owned());
                        }
                        self.said.extend(data);
                    }
                    StreamOutput::Waited(Waited::Done) => {}
                    StreamOutput::Waited(refused) => self.log.push(format!("{refused:?}")),
                    StreamOutput::FirstDelta { after } => self.first_deltas.push(after),
                    StreamOutput::Timing(timing) => {
                        let parts = timing.silence_us + timing.backend_us + timing.encode_us + timing.playout_us;
                        assert_eq!((parts, timing.playout_us), (timing.total_us, 0));
                    }
                }
            }
            if !self.stream.listen(self.now) {
                return;
            }
        }
    }

    fn backend(&mut self, input: BackendInput) {
        match &input {
            BackendInput::SpeechStarted { .. } => self.turn.clear(),
            BackendInput::Audio { pcm, .. } => self.turn.extend(pcm),
            BackendInput::Commit { .. } => self.heard = std::mem::take(&mut self.turn),
            BackendInput::CreateResponse { response, .. } if !self.silent => {
                let pcm = self.says.clone().unwrap_or_else(|| self.heard.clone());
                for pcm in pcm.chunks(1600) {
                    self.give(*response, pcm.to_vec());
                }
                self.stream.handle_backend(self.now, BackendOutput::ResponseDone { response: *response });
            }
            _ => {}
        }
        if !matches!(input, BackendInput::Audio { .. }) {
            self.inputs.push(input);
        }
    }

    fn give(&mut self, response: ResponseId, pcm: Vec<i16>) {
        self.stream.handle_backend(self.now, BackendOutput::Audio { response, audio: AgentAudio::Pcm(pcm) });
    }

    /// What the backend was told of replies that are over: their samples.
    fn played(&self) -> Vec<u64> {
        let played = |input: &BackendInput| match input {
            BackendInput::Played { samples, .. } => Some(*samples),
            _ => None,
        };
        self.inputs.iter().filter_map(played).collect()
    }
}

fn told(event: &Event) -> String {
    match event {
        Event::SpeechStarted { audio_start_ms, .. } => format!("started {audio_start_ms}"),
        Event::SpeechStopped { audio_end_ms, .. } => format!("stopped {audio_end_ms}"),
        Event::Committed { .. } => "committed".to_owned(),
        Event::ResponseCreated { .. } => "created".to_owned(),
        Event::ResponseAudioStarted { .. } => "speaks".to_owned(),
        Event::PlayoutStarted { .. } => "plays".to_owned(),
        Event::ResponseDone { .. } => "done".to_owned(),
        Event::ResponseCancelled { reason: FlushReason::TurnDetected, .. } => "interrupted".to_owned(),
        Event::ResponseCancelled { .. } => "cancelled".to_owned(),
        Event::IdleTimeout { audio_start_ms, audio_end_ms, .. } => format!("idle {audio_start_ms} {audio_end_ms}"),
        Event::PlayoutStopped { .. } => "played".to_owned(),
        Event::PlayoutCleared { played_end, .. } => format!("cut {}", played_end / 48),
        Event::ReplyOver(_) => "over".to_owned(),
        Event::ResponseFailed { .. } => "failed".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Best correlation at the lags of the first half second, of every third sample.
fn alike(wanted: &[i16], said: &[i16]) -> f64 {
    let third = |pcm: &[i16]| pcm.iter().step_by(3).copied().collect::<Vec<_>>();
    let wanted = third(wanted);
    (0..3).map(|phase| correlation(&wanted, &third(&said[phase..]), 3500)).fold(0.0, f64::max)
}

fn silence(ms: usize) -> Vec<i16> {
    vec![0; 24 * ms]
}

fn speech(ms: usize, seed: u32) -> Vec<i16> {
    voice::babble::speech(24_000, ms, seed)
}

/// 600 ms of silence, speech, and silence up to 4 s.
fn prompt(seed: u32) -> Vec<i16> {
    [silence(600), speech(1400, seed), silence(2000)].concat()
}

const TURN: [&str; 8] = ["started 300", "stopped", "committed", "created", "speaks", "plays", "audio", "done"];

/// The log without what time of the wall clock decides.
fn names(bench: &Bench) -> Vec<&str> {
    bench.log.iter().map(String::as_str).filter(|name| !["played", "over"].contains(name)).collect()
}

fn near(told: &str, name: &str, ms: u64) {
    let told: u64 = told.strip_prefix(name).unwrap().trim().parse().unwrap();
    assert!(told.abs_diff(ms) <= 40, "{name} {told}, not {ms}");
}

#[test]
fn a_question_is_answered_in_order_with_times_of_its_own_clock() {
    let mut bench = Bench::new(Config::default());
    bench.live(&prompt(1), 20);
    let names = names(&bench);
    near(names[0], "started", 300);
    near(names[1], "stopped", 2000);
    assert_eq!(names[2..], TURN[2..]);
    let said: Vec<i16> = bench.said.as_chunks().0.iter().map(|pair| i16::from_le_bytes(*pair)).collect();
    let correlation = alike(&speech(1400, 1)[2400..26_400], &said);
    assert!(correlation > 0.9, "{correlation}");
}

#[test]
fn the_pace_and_the_pieces_of_a_client_change_nothing() {
    let audio = [prompt(1), prompt(2), silence(2000)].concat();
    let mut live = Bench::new(Config::default());
    live.live(&audio, 20);
    assert_eq!(names(&live).len(), 16, "{:?}", live.log);
    for piece_ms in [7, 100, 333] {
        let mut bench = Bench::new(Config::default());
        bench.live(&audio, piece_ms);
        assert_eq!(names(&bench), names(&live), "pieces of {piece_ms} ms");
    }
    let mut burst = Bench::new(Config::default());
    burst.append(&audio);
    burst.pass(2000);
    assert_eq!(names(&burst), names(&live), "all at once");
    assert_eq!(burst.said.len(), live.said.len());
    let mut slow = Bench::new(Config::default());
    for piece in audio.chunks(2400) {
        slow.append(piece);
        slow.pass(400);
    }
    assert_eq!(names(&slow), names(&live), "four times slower than speech");
}

#[test]
fn telephone_audio_is_heard_and_answered_in_its_own_format() {
    for law in [Law::Mu, Law::A] {
        let mut bench = Bench::new(Config::default());
        bench.format = SampleFormat::G711(law);
        bench.stream.set_format(bench.format);
        let sentence = voice::babble::speech(8000, 1400, 1);
        let audio = [vec![0; 4800], sentence.clone(), vec![0; 16_000]].concat();
        bench.live(&audio, 20);
        assert_eq!(names(&bench)[2..], TURN[2..]);
        let mut said = Vec::new();
        g711::decode(law, &bench.said, &mut said);
        let correlation = alike(&sentence[800..8800], &said);
        assert!(correlation > 0.9, "{law:?} {correlation}");
    }
}

#[test]
fn speech_over_a_response_that_is_being_made_cancels_it_at_once() {
    let mut bench = Bench::new(Config::default());
    bench.silent = true;
    bench.live(&prompt(1), 20);
    bench.give(ResponseId(1), vec![300; 16_000]);
    bench.drain();
    bench.pass(20);
    let said = bench.said.len();
    assert!(said >= 47_000, "{said}");
    bench.log.clear();
    bench.live(&speech(400, 2), 20);
    assert_eq!(bench.log.len(), 2, "{:?}", bench.log);
    near(&bench.log[0], "started", 3720);
    assert_eq!(bench.log[1], "interrupted");
    assert!(bench.inputs.contains(&BackendInput::Cancel { response: ResponseId(1) }));
    bench.give(ResponseId(1), vec![300; 16_000]);
    bench.drain();
    assert_eq!((bench.said.len(), bench.stream.stats().orphans), (said, 1));
    // The client says where it stopped.
    bench.stream.truncated(bench.now, ResponseId(1), 320);
    bench.drain();
    assert_eq!((bench.played(), bench.log.contains(&"cut 320".to_owned())), (vec![320 * 48], true));
    bench.pass(5000);
    assert_eq!(bench.played().len(), 1, "once");
}

#[test]
fn a_client_that_says_nothing_of_its_cut_was_where_it_should_have_been() {
    let mut bench = Bench::new(Config::default());
    bench.says = Some(vec![300; 16_000 * 5]);
    bench.live(&prompt(1), 20);
    assert_eq!((bench.stream.state(), names(&bench).last()), (State::AgentSpeaking, Some(&"done")));
    let asked = bench.ms();
    bench.live(&speech(600, 2), 20);
    assert!(bench.log.last().unwrap().starts_with("started"), "{:?}", bench.log);
    bench.pass(3000);
    // The reply began some 500 ms behind the question's end at 2 s, and was cut some 250 ms into the speech.
    let [played] = bench.played()[..] else { panic!("{:?}", bench.inputs) };
    let expected = asked - 2500 + 260;
    assert!((played / 48).abs_diff(expected) < 150, "{} of {expected}", played / 48);
}

#[test]
fn a_cough_over_a_playing_reply_is_not_told() {
    let mut bench = Bench::new(Config::default());
    bench.says = Some(vec![300; 16_000 * 5]);
    bench.live(&prompt(1), 20);
    let told = bench.log.len();
    bench.live(&[speech(120, 2), silence(500)].concat(), 20);
    assert_eq!(bench.log[told..], [] as [String; 0]);
    // When the client has played it all, the same sound is a turn.
    bench.live(&silence(5000), 20);
    assert_eq!(bench.stream.state(), State::Listening);
    bench.live(&[speech(120, 2), silence(100)].concat(), 20);
    assert!(bench.log.last().unwrap().starts_with("started"), "{:?}", bench.log);
}

#[test]
fn without_interruptions_a_question_over_a_response_is_answered_behind_it() {
    let mut bench = Bench::vad(ServerVad { interrupt_response: false, ..ServerVad::default() });
    bench.says = Some(vec![300; 16_000 * 16]);
    bench.live(&prompt(1), 20);
    bench.log.clear();
    bench.live(&prompt(2), 20);
    bench.pass(20_000);
    let at = |name: &str| names(&bench).iter().position(|told| *told == name).unwrap();
    assert!(at("committed") < at("done") && at("done") < at("created"), "{:?}", bench.log);
}

#[test]
fn a_manual_turn_is_what_was_appended_between_two_commits() {
    let mut bench = Bench::new(Config { turn: TurnConfig { server_vad: None }, ..Config::default() });
    assert_eq!(bench.stream.commit(bench.now), Asked::Refused);
    bench.append(&speech(1000, 1));
    assert_eq!(bench.stream.commit(bench.now), Asked::Waits, "behind what waits");
    assert_eq!(bench.stream.commit(bench.now), Asked::Refused, "nothing behind that");
    assert_eq!(bench.stream.create_response(bench.now), Asked::Waits);
    assert_eq!(bench.stream.create_response(bench.now), Asked::Refused, "one is asked for");
    bench.pass(500);
    assert_eq!(bench.log, ["committed", "created", "speaks", "plays", "audio", "done"]);
    assert!(bench.heard.len().abs_diff(16_000) <= 32, "{}", bench.heard.len());
    assert_eq!(bench.stream.commit(bench.now), Asked::Refused);
    // What is cleared is in no item.
    bench.append(&speech(2000, 2));
    bench.stream.clear_input(bench.now);
    bench.append(&speech(500, 3));
    assert_eq!(bench.stream.commit(bench.now), Asked::Waits);
    bench.pass(500);
    assert!(bench.heard.len().abs_diff(8000) < 32, "{}", bench.heard.len());
}

#[test]
fn semantic_vad_waits_as_it_is_told() {
    let stopped_at = |eagerness| {
        let mut bench = Bench::vad(ServerVad { eagerness, ..ServerVad::default() });
        bench.live(&[silence(600), speech(1000, 1)].concat(), 20);
        let from = bench.ms();
        while !bench.log.iter().any(|name| name == "committed") {
            bench.live(&silence(20), 20);
            assert!(bench.ms() < from + 9000);
        }
        bench.ms() - from
    };
    let [high, medium, low] =
        [Eagerness::High, Eagerness::Medium, Eagerness::Low].map(|eagerness| stopped_at(Some(eagerness)));
    assert!((300..450).contains(&high) && (550..700).contains(&medium) && (950..1100).contains(&low));
}

#[test]
fn silence_behind_a_played_reply_is_answered_after_the_idle_timeout() {
    let vad = ServerVad { idle_timeout_ms: Some(2000), ..ServerVad::default() };
    let mut bench = Bench::vad(vad);
    bench.says = Some(vec![300; 16_000]);
    bench.live(&prompt(1), 20);
    let created = |bench: &Bench| bench.log.iter().filter(|name| *name == "created").count();
    // The reply came 500 ms behind the question, at 2.5 s, lasts 1 s, and then 2 s pass.
    bench.live(&silence(1300), 20);
    assert_eq!(created(&bench), 1, "{:?}", bench.log);
    bench.live(&silence(400), 20);
    assert!(bench.log.iter().any(|name| name.starts_with("idle")), "{:?}", bench.log);
    assert_eq!(created(&bench), 2);
}

#[test]
fn the_idle_timeout_counts_from_where_the_client_cut_a_reply() {
    let mut bench = Bench::vad(ServerVad { idle_timeout_ms: Some(2000), ..ServerVad::default() });
    bench.silent = true;
    bench.stream.create_response(bench.now);
    bench.give(ResponseId(1), vec![300; 8 * 16_000]);
    bench.drain();
    bench.live(&silence(500), 20);
    assert!(bench.stream.cancel(bench.now));
    bench.stream.truncated(bench.now, ResponseId(1), 400);
    bench.drain();
    let idle = |bench: &Bench| bench.log.iter().any(|name| name.starts_with("idle"));
    bench.live(&silence(1900), 20);
    assert!(!idle(&bench), "{:?}", bench.log);
    bench.live(&silence(300), 20);
    assert!(idle(&bench), "{:?}", bench.log);
}

#[test]
fn the_idle_timeout_counts_from_what_plays_also_behind_a_response_without_sound() {
    let mut bench = Bench::vad(ServerVad { idle_timeout_ms: Some(2000), ..ServerVad::default() });
    bench.silent = true;
    bench.stream.create_response(bench.now);
    bench.give(ResponseId(1), vec![300; 4 * 16_000]);
    bench.stream.handle_backend(bench.now, BackendOutput::ResponseDone { response: ResponseId(1) });
    bench.drain();
    bench.live(&silence(500), 20);
    bench.stream.create_response(bench.now);
    bench.stream.handle_backend(bench.now, BackendOutput::ResponseDone { response: ResponseId(2) });
    bench.drain();
    let idle = |bench: &Bench| bench.log.iter().any(|name| name.starts_with("idle"));
    bench.live(&silence(5300), 20);
    assert!(!idle(&bench), "{:?}", bench.log);
    bench.live(&silence(500), 20);
    assert!(idle(&bench), "{:?}", bench.log);
}

#[test]
fn a_client_that_stops_appending_within_its_turn_is_answered_in_the_end() {
    let mut bench = Bench::new(Config::default());
    bench.live(&[silence(600), speech(1000, 1)].concat(), 20);
    assert_eq!(bench.stream.state(), State::UserSpeaking);
    bench.pass(9000);
    assert_eq!(bench.stream.state(), State::UserSpeaking);
    bench.pass(1500);
    assert!(names(&bench).contains(&"done"), "{:?}", bench.log);
}

#[test]
fn a_backend_without_an_answer_is_given_up() {
    let mut bench = Bench::new(Config { response_timeout_ms: 1000, ..Config::default() });
    bench.silent = true;
    bench.live(&prompt(1), 20);
    assert_eq!(names(&bench).last(), Some(&"failed"));
    assert_eq!(bench.stream.state(), State::Listening);
}

#[test]
fn a_long_reply_is_ten_seconds_ahead_and_what_waits_of_it_is_bounded() {
    let mut bench = Bench::new(Config::default());
    bench.silent = true;
    bench.stream.create_response(bench.now);
    bench.drain();
    for _ in 0..100 {
        bench.give(ResponseId(1), vec![300; 16_000]);
        bench.drain();
    }
    bench.pass(400);
    assert!(!bench.stream.wants_audio());
    assert!((480_000..510_000).contains(&bench.said.len()), "{}", bench.said.len());
    // 61 s wait at most.
    assert!(bench.stream.stats().reply_overflow >= 28 * 48_000);
    bench.stream.handle_backend(bench.now, BackendOutput::ResponseDone { response: ResponseId(1) });
    assert!(!bench.log.iter().any(|name| name == "done"), "not before the client has it");
    bench.pass(70_000);
    assert!(bench.log.iter().any(|name| name == "done"));
    assert!(bench.stream.wants_audio());
}

#[test]
fn a_cancel_ends_what_is_made_and_what_the_client_has_it_plays() {
    let mut bench = Bench::new(Config::default());
    assert!(!bench.stream.cancel(bench.now));
    bench.silent = true;
    bench.stream.create_response(bench.now);
    bench.give(ResponseId(1), vec![300; 32_000]);
    bench.drain();
    bench.pass(100);
    assert!(bench.stream.cancel(bench.now));
    bench.drain();
    assert_eq!(bench.log.last().unwrap(), "cancelled");
    bench.pass(4000);
    assert_eq!(bench.log[bench.log.len() - 2..], ["played", "over"]);
    assert!(!bench.stream.cancel(bench.now));
}

#[test]
fn the_wait_for_the_first_of_a_response_is_told_once_for_sound_and_for_words() {
    let mut bench = Bench::new(Config::default());
    bench.silent = true;
    for text_only in [false, true] {
        bench.stream.set_text_only(text_only);
        assert_eq!(bench.stream.create_response(bench.now), Asked::Done);
        let response = ResponseId(1 + u64::from(text_only));
        bench.pass(300);
        let words = BackendOutput::Text { response, delta: "Hello.".to_owned(), words: Vec::new() };
        for _ in 0..2 {
            bench.stream.handle_backend(bench.now, words.clone());
        }
        bench.drain();
        bench.pass(200);
        bench.give(response, vec![300; 16_000]);
        bench.stream.handle_backend(bench.now, BackendOutput::ResponseDone { response });
        bench.drain();
        bench.pass(2000);
    }
    assert_eq!(bench.first_deltas, [Duration::from_millis(500), Duration::from_millis(300)]);
}

#[test]
fn a_client_with_nothing_left_to_play_of_a_reply_that_goes_on_is_an_interruption() {
    let mut bench = Bench::new(Config::default());
    bench.silent = true;
    bench.stream.create_response(bench.now);
    bench.give(ResponseId(1), vec![300; 16_000]);
    bench.drain();
    bench.pass(900);
    bench.give(ResponseId(1), vec![300; 16_000]);
    bench.drain();
    assert_eq!(bench.stream.stats(), StreamStats::default(), "it had 100 ms left");
    bench.pass(1600);
    bench.give(ResponseId(1), vec![300; 16_000]);
    bench.drain();
    // The resampler holds 2 ms until more comes.
    let interrupted = StreamStats { interruptions: 1, interrupted_us: 502_000, ..StreamStats::default() };
    assert_eq!(bench.stream.stats(), interrupted);
    bench.stream.handle_backend(bench.now, BackendOutput::ResponseDone { response: ResponseId(1) });
    bench.drain();
    bench.pass(3000);
    bench.stream.create_response(bench.now);
    bench.give(ResponseId(2), vec![300; 1600]);
    bench.drain();
    assert_eq!(bench.stream.stats(), interrupted, "between two replies there is silence");
}

#[test]
fn what_waited_is_told_of_in_order() {
    let mut bench = Bench::vad(ServerVad { create_response: false, ..ServerVad::default() });
    bench.append(&vec![0; 24_000]);
    assert_eq!(bench.stream.commit(bench.now), Asked::Waits);
    assert_eq!(bench.stream.create_response(bench.now), Asked::Waits);
    bench.append(&speech(20, 1));
    assert_eq!(bench.stream.commit(bench.now), Asked::Waits);
    bench.pass(500);
    let told: Vec<&String> = bench.log.iter().filter(|told| told.contains("Refused")).collect();
    assert_eq!(told, ["CommitRefused", "CommitRefused"], "{:?}", bench.log);
}
