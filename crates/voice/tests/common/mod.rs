//! A bench for one conversation in virtual time: a microphone, an edge that paces, a backend that repeats.

#![allow(dead_code, reason = "each test file uses a part of the bench")]

pub(crate) mod edge;
pub(crate) mod speech;
pub(crate) mod stream;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use edge::Edge;
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};
use voice::{
    AgentAudio, BackendInput, BackendOutput, Config, Conversation, Decision, DecisionKind, Event, MediaFrame, Output,
    ResponseId, TurnTiming,
};

pub(crate) const RATE: usize = 16_000;

/// Conversation, microphone, edge and backend.
pub(crate) struct Bench {
    pub(crate) conversation: Conversation,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) edge: Edge,
    pub(crate) backend: Backend,
    /// Everything that came out but frames, with its time since the start in ms.
    pub(crate) log: Vec<(u64, Output)>,
    encoder: Encoder,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    /// Not sent yet, at 16 kHz.
    pub(crate) microphone: VecDeque<i16>,
    pub(crate) muted: bool,
    /// The backend and the edge are lied to: gaps in turns and wrong news are no failure of the test.
    pub(crate) lenient: bool,
    next_packet: Instant,
}

/// How the backend answers.
#[derive(Debug, Default)]
pub(crate) struct Backend {
    /// Repeats the turn after this long; `None`: is silent for ever.
    pub(crate) delay: Option<Duration>,
    /// Says this instead of repeating.
    pub(crate) says: Option<Vec<i16>>,
    pub(crate) heard: Vec<i16>,
    /// Of its PCM; 0 is 16000.
    pub(crate) rate: u64,
    /// Media time of the first sample heard.
    pub(crate) begin: u64,
    /// Media time behind the last sample heard.
    pub(crate) end: u64,
    pub(crate) spans: Vec<(u64, u64)>,
    /// The audio of each committed turn.
    pub(crate) turns: Vec<Vec<i16>>,
    pub(crate) due: Option<(Instant, ResponseId)>,
    pub(crate) cancelled: Vec<ResponseId>,
    /// Media time and samples of what came late.
    pub(crate) corrections: Vec<(u64, usize)>,
}

impl Bench {
    /// A question was asked at 600 ms; the reply of `reply_ms` has played for about 500 ms.
    pub(crate) fn in_a_reply(config: Config, reply_ms: usize) -> Self {
        let mut bench = Self::new(config);
        bench.backend.says = Some(speech::speech(reply_ms, 21));
        bench.say(&speech::silence(600));
        bench.say(&speech::speech(1000, 22));
        bench.run_ms(2700);
        assert_eq!(bench.conversation.state(), voice::State::AgentSpeaking);
        bench.log.clear();
        bench
    }

    pub(crate) fn new(config: Config) -> Self {
        let start = Instant::now();
        let encoder = EncoderConfig { rate: 16_000, bitrate: 32_000, ..EncoderConfig::default() };
        Self {
            conversation: Conversation::new(start, config),
            start,
            now: start,
            edge: Edge::new(Duration::from_millis(10)),
            backend: Backend { delay: Some(Duration::from_millis(5)), ..Backend::default() },
            log: Vec::new(),
            encoder: Encoder::new(encoder).unwrap(),
            seq: 65_500,
            timestamp: u32::MAX - 100_000,
            microphone: VecDeque::new(),
            muted: false,
            lenient: false,
            next_packet: start,
        }
    }

    /// Says this, from the next packet on.
    pub(crate) fn say(&mut self, pcm: &[i16]) {
        self.microphone.extend(pcm);
    }

    /// Lets time pass; the microphone sends a packet each 20 ms.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        let mut turns = 0;
        loop {
            let microphone = (!self.muted).then_some(self.next_packet);
            let backend = self.backend.due.map(|(due, _)| due);
            let due = [microphone, backend, self.edge.poll_timeout(), self.conversation.poll_timeout()];
            let next = due.into_iter().flatten().min().map(|due| due.max(self.now));
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                self.next_packet = self.next_packet.max(if self.muted { until } else { self.start });
                return;
            };
            turns = if next == self.now { turns + 1 } else { 0 };
            assert!(turns < 1000, "time stands still: {due:?} at {next:?}, {:?}", self.log.last());
            self.now = next;
            if microphone.is_some_and(|due| due <= next) {
                self.next_packet += Duration::from_millis(20);
                self.packet();
            }
            if let Some((_, response)) = self.backend.due.take_if(|(due, _)| *due <= next) {
                self.answer(response);
            }
            for playout in self.edge.handle_timeout(next) {
                self.conversation.handle_playout(next, playout);
            }
            if self.conversation.poll_timeout().is_some_and(|due| due <= next) {
                self.conversation.handle_timeout(next);
            }
            self.drain();
        }
    }

    /// One packet of the microphone's.
    pub(crate) fn packet(&mut self) {
        let payload = self.encode();
        self.send(&payload);
    }

    /// The next 20 ms of the microphone's, encoded.
    pub(crate) fn encode(&mut self) -> Vec<u8> {
        let pcm: Vec<i16> = (0..320).map(|_| self.microphone.pop_front().unwrap_or(0)).collect();
        let mut packet = [0; MAX_PACKET_BYTES];
        let length = self.encoder.encode(&pcm, &mut packet).unwrap();
        packet[..length].to_vec()
    }

    /// Sends a packet as the next of the stream.
    pub(crate) fn send(&mut self, payload: &[u8]) {
        let frame = MediaFrame::opus(self.seq, self.timestamp, payload);
        self.conversation.handle_media(self.now, frame, 3000);
        self.seq = self.seq.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(960);
        self.drain();
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from((self.now - self.start).as_millis()).unwrap()
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.conversation.poll_output() {
            self.edge.lenient = self.lenient;
            self.edge.handle(self.now, &output);
            if let Output::Backend(input) = &output {
                self.backend.handle(self.now, input, self.lenient);
            }
            let audio = matches!(output, Output::Frame { .. } | Output::Backend(BackendInput::Audio { .. }));
            if !audio {
                self.log.push((self.elapsed_ms(), output));
            }
        }
    }

    /// Everything the backend says is said at once.
    fn answer(&mut self, response: ResponseId) {
        let pcm = self.backend.says.clone().unwrap_or_else(|| self.backend.turns.last().cloned().unwrap_or_default());
        self.conversation.handle_backend(self.now, BackendOutput::ResponseStarted { response });
        self.drain();
        for chunk in pcm.chunks(777) {
            let pcm = chunk.to_vec();
            self.conversation.handle_backend(self.now, BackendOutput::Audio { response, audio: AgentAudio::Pcm(pcm) });
            self.drain();
        }
        self.conversation.handle_backend(self.now, BackendOutput::ResponseDone { response });
        self.drain();
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let event = |(_, output): &(u64, Output)| match output {
            Output::Event(event) => Some(event.clone()),
            _ => None,
        };
        self.log.iter().filter_map(event).filter(|event| !matches!(event, Event::Decision(_))).collect()
    }

    /// What was decided, and when.
    pub(crate) fn decisions(&self) -> Vec<(u64, Decision)> {
        let decision = |(at, output): &(u64, Output)| match output {
            Output::Event(Event::Decision(decision)) => Some((*at, *decision)),
            _ => None,
        };
        self.log.iter().filter_map(decision).collect()
    }

    pub(crate) fn decided(&self, kind: DecisionKind) -> usize {
        self.decisions().iter().filter(|(_, decision)| decision.kind == kind).count()
    }

    /// When the first output came that `wanted` accepts, in ms since the start.
    pub(crate) fn time_of(&self, wanted: impl Fn(&Output) -> bool) -> Option<u64> {
        self.log.iter().find(|(_, output)| wanted(output)).map(|(at, _)| *at)
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Output) -> bool) -> usize {
        self.log.iter().filter(|(_, output)| wanted(output)).count()
    }

    pub(crate) fn timings(&self) -> Vec<TurnTiming> {
        let timing = |(_, output): &(u64, Output)| match output {
            Output::Timing(timing) => Some(*timing),
            _ => None,
        };
        self.log.iter().filter_map(timing).collect()
    }
}

impl Backend {
    fn factor(&self) -> u64 {
        48_000_u64.checked_div(self.rate).unwrap_or(3)
    }

    fn handle(&mut self, now: Instant, input: &BackendInput, lenient: bool) {
        match input {
            BackendInput::Audio { pcm, media_time } => {
                if self.heard.is_empty() {
                    self.begin = *media_time;
                } else {
                    assert!(lenient || *media_time == self.end, "the audio of a turn has a gap");
                }
                self.heard.extend(pcm);
                self.end = media_time + pcm.len() as u64 * self.factor();
            }
            BackendInput::SpeechStarted { .. } => self.heard.clear(),
            BackendInput::SpeechStopped { from, to, .. } => {
                self.spans.push((*from, *to));
                assert!(lenient || *to <= self.end, "voice beyond the audio: {to} > {}", self.end);
                let index = |time: u64| {
                    usize::try_from(time.saturating_sub(self.begin) / self.factor()).unwrap().min(self.heard.len())
                };
                let (from, to) = (index(from.saturating_sub(40 * 48)), index(to + 40 * 48));
                self.heard.drain(to..);
                self.heard.drain(..from);
            }
            BackendInput::Commit { .. } => self.turns.push(std::mem::take(&mut self.heard)),
            BackendInput::CreateResponse { response, .. } => {
                self.due = self.delay.map(|delay| (now + delay, *response))
            }
            BackendInput::Cancel { response } => {
                self.cancelled.push(*response);
                self.due.take_if(|(_, due)| due == response);
            }
            BackendInput::Correction { pcm, media_time } => self.corrections.push((*media_time, pcm.len())),
            _ => {}
        }
    }
}
