//! Ten thousand orders of events in virtual time: from each the agent answers or listens in bounded time.
//!
//! The detector is stood in for: frames come with their probabilities. The edge and the backend may be late, wrong, or dead.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::babble::Random;
use crate::echo::Own;
use crate::turn::{Frame, State};
use crate::{
    AgentAudio, BackendInput, BackendOutput, Config, Conversation, Eagerness, Failure, InterruptionConfig, Output,
    Playout, ResponseId, ServerVad, TurnConfig, TurnVerdict, Utterance,
};

/// The backend's deadline in these schedules.
const DEADLINE_MS: u32 = 1500;
/// What the promise allows beyond silence window and deadline.
const SLACK_MS: u64 = 2000;

impl Random {
    fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }
}

enum Coming {
    Backend(BackendOutput),
    Playout(Playout),
}

struct World {
    conversation: Conversation,
    random: Random,
    now: Instant,
    media: u64,
    /// What is under way to the conversation, in no order.
    coming: Vec<(Instant, Coming)>,
    dead_backend: bool,
    dead_edge: bool,
    /// One in so many of the edge's reports is lost; 0: none.
    lost_reports: u32,
    paused: bool,
    created: u32,
    frames: u32,
}

impl World {
    fn new(seed: u32) -> Self {
        let mut random = Random(seed.wrapping_mul(2_654_435_761).max(1));
        let interruption = InterruptionConfig {
            enabled: !random.one_in(8),
            min_duration_ms: [250, 250, 32, 800, 4000][random.below(5) as usize],
            min_words: [0, 0, 0, 2][random.below(4) as usize],
            ..InterruptionConfig::default()
        };
        let config = Config {
            complexity: 0,
            response_timeout_ms: DEADLINE_MS,
            max_turn_ms: 4000,
            interruption,
            turn: turn(&mut random),
            ..Config::default()
        };
        let now = Instant::now();
        Self {
            conversation: Conversation::new(now, config),
            dead_backend: random.one_in(4),
            dead_edge: random.one_in(6),
            lost_reports: [0, 0, 3, 10][random.below(4) as usize],
            random,
            now,
            media: 0,
            coming: Vec::new(),
            paused: false,
            created: 0,
            frames: 0,
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.conversation.poll_output() {
            match output {
                Output::Backend(BackendInput::CreateResponse { response, .. }) => {
                    self.created += 1;
                    self.answer(response);
                }
                Output::Backend(BackendInput::Cancel { response }) if !self.random.one_in(4) => {
                    self.coming.retain(|(_, coming)| !matches!(coming,
                        Coming::Backend(BackendOutput::Audio { response: of, .. } | BackendOutput::ResponseDone { response: of })
                            if *of == response));
                }
                Output::Frame { utterance, .. } => {
                    self.frames += 1;
                    let sent = u64::from(self.random.below(4000));
                    if self.frames % 2 == 1 {
                        self.report(20, Playout::Started { utterance });
                    }
                    self.report(40, Playout::Report { utterance, sent, limit: 96_000 + sent, client: None });
                }
                Output::UtteranceEnd { utterance } => self.report(90, Playout::Finished { utterance, sent: 2880 }),
                Output::Flush { up_to, .. } => {
                    self.paused = false;
                    self.report(
                        20,
                        Playout::Flushed { utterance: up_to, sent: 960, received: crate::Received::default() },
                    );
                }
                Output::Pause => self.paused = true,
                Output::Resume { .. } => self.paused = false,
                _ => {}
            }
        }
    }

    fn answer(&mut self, response: ResponseId) {
        if self.dead_backend {
            return;
        }
        let at = self.now + Duration::from_millis(u64::from(self.random.below(700)));
        let length = [0, 320, 700, 960][self.random.below(4) as usize];
        if length > 0 {
            let audio = AgentAudio::Pcm(vec![500; length]);
            self.coming.push((at, Coming::Backend(BackendOutput::Audio { response, audio })));
        }
        if self.random.one_in(12) {
            let fault = BackendOutput::Fault { response: None, failure: Failure::new("away", ""), retryable: true };
            self.coming.push((at, Coming::Backend(fault)));
        } else if !self.random.one_in(12) {
            let done = BackendOutput::ResponseDone { response };
            self.coming.push((at + Duration::from_millis(10), Coming::Backend(done)));
        }
    }

    fn report(&mut self, after_ms: u64, playout: Playout) {
        if self.dead_edge || (self.lost_reports > 0 && self.random.one_in(self.lost_reports)) {
            return;
        }
        let late = u64::from(self.random.below(30));
        self.coming.push((self.now + Duration::from_millis(after_ms + late), Coming::Playout(playout)));
    }

    /// Time passes without audio.
    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        for turns in 0.. {
            assert!(turns < 10_000, "time stands still");
            let coming = self.coming.iter().map(|(due, _)| *due).min();
            let next = coming.into_iter().chain(self.conversation.poll_timeout()).min().map(|due| due.max(self.now));
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = next;
            let due: VecDeque<_> = self.coming.extract_if(.., |(due, _)| *due <= next).collect();
            for (_, coming) in due {
                match coming {
                    Coming::Backend(output) => self.conversation.handle_backend(next, output),
                    Coming::Playout(playout) => self.conversation.handle_playout(next, playout),
                }
                self.drain();
            }
            if self.conversation.poll_timeout().is_some_and(|due| due <= next) {
                self.conversation.handle_timeout(next);
            }
            self.drain();
        }
        self.now = until;
    }

    /// Audio of this kind; frames of silence are three at a time.
    fn hear(&mut self, ms: u64, frame: Frame) {
        let step = if frame.rms > 0.0 { 16 } else { 48 };
        for _ in 0..ms.div_ceil(step) {
            self.pass(step);
            self.media += step * 48;
            self.conversation.feed(self.now, self.media, frame);
            self.drain();
        }
    }

    fn speak(&mut self, ms: u64) {
        self.hear(ms, Frame { probability: 0.95, rms: 2000.0, wordlike: true, echo: Own::No });
    }

    fn silence(&mut self, ms: u64) {
        self.hear(ms, Frame::default());
    }

    fn act(&mut self) {
        let ms = u64::from(self.random.below(700));
        let (response, utterance) = (ResponseId(u64::from(self.random.below(5))), Utterance(self.random.below(5)));
        let (now, sent) = (self.now, u64::from(self.random.below(9000)));
        let probability = [0.0, 0.3, 0.7, 1.0, f32::NAN][self.random.below(5) as usize];
        let conversation = &mut self.conversation;
        match self.random.below(30) {
            0..8 => self.speak(ms + 50),
            8 | 9 => self.hear(ms / 2, Frame { probability: 0.8, rms: 1500.0, wordlike: false, echo: Own::No }),
            10 => self.hear(ms, Frame { probability: 0.9, rms: 900.0, wordlike: true, echo: Own::Ours }),
            11..14 => self.silence(ms),
            14 | 15 => self.pass(ms * 2),
            16 => {
                let (text, is_final) = ("stop that now".to_owned(), self.random.one_in(2));
                conversation.handle_backend(now, BackendOutput::UserTranscript { turn: None, text, is_final });
            }
            17 => {
                let verdict = BackendOutput::TurnVerdict(TurnVerdict::Complete { probability });
                conversation.handle_backend(now, verdict);
            }
            18 => {
                let verdict = BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability });
                conversation.handle_backend(now, verdict);
            }
            19 => conversation.handle_playout(now, Playout::Reflex { utterance, sent }),
            20 => conversation.handle_playout(now, Playout::Finished { utterance, sent }),
            21 => conversation
                .handle_playout(now, Playout::Flushed { utterance, sent, received: crate::Received::default() }),
            22 => conversation.handle_playout(now, Playout::Paused { utterance, sent }),
            23 => drop(conversation.create_response(now)),
            24 => drop(conversation.cancel(now)),
            25 => conversation.clear_output(now),
            26 => conversation.clear_input(now),
            27 => drop(conversation.commit(now)),
            28 => {
                let closed = BackendOutput::Closed;
                let late = BackendOutput::ResponseDone { response };
                conversation.handle_backend(now, if sent > 4500 { closed } else { late });
            }
            _ => {
                let turn = if self.random.one_in(4) { TurnConfig { server_vad: None } } else { turn(&mut self.random) };
                self.conversation.set_turn(turn);
            }
        }
        self.drain();
    }
}

fn turn(random: &mut Random) -> TurnConfig {
    let eagerness = [None, None, Some(Eagerness::High), Some(Eagerness::Medium)][random.below(4) as usize];
    let idle_timeout_ms = [None, None, None, Some(1200)][random.below(4) as usize];
    TurnConfig { server_vad: Some(ServerVad { eagerness, idle_timeout_ms, ..ServerVad::default() }) }
}

/// Runs the schedules of these seeds.
fn run(seeds: std::ops::Range<u32>) {
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..8 + world.random.below(8) {
            world.act();
        }
        // The user falls silent, with packets or without, and is judged by silence alone: 500 ms.
        world.conversation.set_turn(TurnConfig::default());
        world.drain();
        let bound = 500 + u64::from(DEADLINE_MS) + SLACK_MS;
        if seed % 3 == 0 {
            world.pass(bound)
        } else {
            world.silence(bound)
        }
        let state = world.conversation.state();
        let fine = matches!(state, State::Listening | State::AgentSpeaking);
        assert!(fine && !world.paused, "seed {seed}: {state:?}, paused {}", world.paused);
        if state == State::AgentSpeaking {
            // The edge owes a report: what it does not start in 30 s is given up, and so is the reply that waited behind it.
            world.pass(72_000);
            assert_eq!(world.conversation.state(), State::Listening, "seed {seed}: an edge that says nothing");
        }
        // And hears the next question.
        let created = world.created;
        world.silence(300);
        world.speak(600);
        world.silence(bound);
        assert!(world.created > created, "seed {seed}: a question without an answer");
        let state = world.conversation.state();
        assert!(matches!(state, State::Listening | State::AgentSpeaking), "seed {seed}: {state:?}");
        assert!(!world.paused, "seed {seed}: paused for ever");
    }
}

// Four parts, so that they run beside each other. A failure names its seed.

#[test]
fn from_any_order_of_events_the_agent_answers_or_listens_part_1() {
    run(1..2501);
}

#[test]
fn from_any_order_of_events_the_agent_answers_or_listens_part_2() {
    run(2501..5001);
}

#[test]
fn from_any_order_of_events_the_agent_answers_or_listens_part_3() {
    run(5001..7501);
}

#[test]
fn from_any_order_of_events_the_agent_answers_or_listens_part_4() {
    run(7501..10_001);
}
