//! Whatever comes in, in whatever order: within bounded time it answers or listens, and holds a bounded amount.

use super::*;
use crate::backend::{AgentAudio, BackendOutput, Failure, TurnVerdict};
use crate::echo::Own;
use crate::turn::Frame;

struct Random(u32);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % bound
    }
}

/// A stream with a client and a backend of moods.
struct World {
    stream: Stream,
    now: Instant,
    random: Random,
    dead_backend: bool,
    created: u32,
}

impl World {
    fn new(seed: u32) -> Self {
        let (now, mut random) = (Instant::now(), Random(seed.wrapping_mul(2_654_435_761).max(1)));
        let config = Config { response_timeout_ms: 1000, max_turn_ms: 3000, ..Config::default() };
        let dead_backend = random.below(5) == 0;
        Self { stream: Stream::new(now, config), now, random, dead_backend, created: 0 }
    }

    fn drain(&mut self) {
        loop {
            while let Some(output) = self.stream.poll_output() {
                let StreamOutput::Backend(BackendInput::CreateResponse { response, .. }) = output else { continue };
                self.created += 1;
                if self.dead_backend {
                    continue;
                }
                let length = [0, 320, 16_000, 48_000][self.random.below(4) as usize];
                let audio = AgentAudio::Pcm(vec![500; length]);
                self.stream.handle_backend(self.now, BackendOutput::Audio { response, audio });
                if self.random.below(8) > 0 {
                    self.stream.handle_backend(self.now, BackendOutput::ResponseDone { response });
                }
            }
            if !self.stream.listen(self.now) {
                break;
            }
        }
        assert!(self.stream.played.len() <= MAX_PLAYED);
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        for turns in 0.. {
            assert!(turns < 10_000, "time stands still");
            let Some(due) = self.stream.poll_timeout().filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            self.stream.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    /// Audio of this kind, in real time or at once.
    fn hear(&mut self, ms: u64, frame: Frame, live: bool) {
        for _ in 0..ms.div_ceil(16) {
            if live {
                self.pass(16);
            }
            self.stream.feed(self.now, frame);
            self.drain();
        }
    }

    fn act(&mut self) {
        let (ms, live) = (u64::from(self.random.below(900)), self.random.below(3) > 0);
        let response = ResponseId(u64::from(self.random.below(5)));
        let probability = [0.0, 0.3, 0.7, f32::NAN][self.random.below(4) as usize];
        let (now, stream) = (self.now, &mut self.stream);
        match self.random.below(20) {
            0..6 => self.hear(ms + 50, speech(), live),
            6..9 => self.hear(ms, Frame::default(), live),
            9 => self.pass(ms * 4),
            10 => drop(stream.commit(now)),
            11 => stream.clear_input(now),
            12 => drop(stream.create_response(now)),
            13 => drop(stream.cancel(now)),
            14 => stream.truncated(now, response, ms),
            15 => {
                let vad = (ms % 3 > 0).then(|| ServerVad { idle_timeout_ms: Some(1500), ..ServerVad::default() });
                stream.set_turn(now, TurnConfig { server_vad: vad });
            }
            16 => stream.handle_backend(now, BackendOutput::ResponseDone { response }),
            17 => stream.handle_backend(now, BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability })),
            18 => stream.append(now, SampleFormat::G711(Law::A), &[0xd5; 3000]),
            _ => {
                let fault = BackendOutput::Fault { response: None, failure: Failure::new("away", ""), retryable: true };
                stream.handle_backend(now, if live { fault } else { BackendOutput::Closed });
            }
        }
        self.drain();
    }
}

fn speech() -> Frame {
    Frame { probability: 0.95, rms: 2000.0, wordlike: true, echo: Own::No }
}

#[test]
fn from_any_order_of_events_the_agent_answers_or_listens() {
    for seed in 1..201 {
        let mut world = World::new(seed);
        for _ in 0..8 + world.random.below(8) {
            world.act();
        }
        world.stream.set_turn(world.now, TurnConfig::default());
        world.drain();
        // The user falls silent, with audio or without: what is pending runs out, and replies are played.
        if seed % 2 == 0 {
            world.hear(16_000, Frame::default(), true);
        } else {
            world.pass(16_000);
        }
        let state = world.stream.state();
        assert_eq!(state, State::Listening, "seed {seed}");
        let created = world.created;
        world.hear(300, Frame::default(), true);
        world.hear(600, speech(), true);
        world.hear(3000, Frame::default(), true);
        assert!(world.created > created, "seed {seed}: a question without an answer");
    }
}
