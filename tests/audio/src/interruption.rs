//! Sound over a reply, in virtual time: how soon speech silences it, and what coughs, keys and "mm-hm" do to it.

use std::time::{Duration, Instant};

use serde::Serialize;
use voice::vad::{self, Vad};
use voice::{AgentAudio, BackendInput, BackendOutput, Config, Conversation, Output, ResponseId, State};

use crate::activity::{peak, span};
use crate::corpus::{Corpus, to_i16};
use crate::edge::{Edge, Heard};
use crate::figure::{Figure, held, percentile, rounded, told};
use crate::noise::{Random, cough, key, knock, mix, pink, throaty_cough};
use crate::uplink::{PACKET, encode, frame};

const PTIME: Duration = Duration::from_millis(20);
/// Of the link between edge and transceiver, one way.
const ONE_WAY: Duration = Duration::from_millis(10);
/// Between the sounds of a listener, in samples: 10 s.
const EVERY: usize = 160_000;
/// A reply; what waits of one is bounded to a minute.
const REPLY: usize = 50 * 16_000;
/// Sounds over one reply: after 4 s, and none at its end.
const PER_REPLY: usize = 5;
/// Quiet room, as a mean power: 66 dB below full scale.
const ROOM: f32 = 270.0;

/// What one kind of sound did.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Which sound.
    pub(crate) sound: &'static str,
    /// How many.
    pub(crate) count: usize,
    /// Of these, how many the detector takes for speech somewhere, by themselves in a quiet room.
    pub(crate) woke: usize,
    /// Of these, how many paused the reply.
    pub(crate) paused: usize,
    /// Of these, how many ended it.
    pub(crate) cut: usize,
    /// From the sound's arrival at the edge to silence leaving it, less the link's round trip, p50 and p95, in ms.
    pub(crate) pause_ms: [f64; 2],
    /// The same to the cut.
    pub(crate) commit_ms: [f64; 2],
    /// From the arrival of the sound's end to the first frame that leaves again, p50 and p95, in ms.
    pub(crate) resume_ms: [f64; 2],
}

/// Speech over `speeches` replies, then `minutes` of sounds that want nothing.
pub(crate) fn measure(corpus: &Corpus, speeches: usize, minutes: usize) -> anyhow::Result<(Vec<Figure>, Vec<Row>)> {
    let reply = reply(corpus);
    let mut speech = Tally::default();
    for (index, clip) in corpus.speech().take(speeches).enumerate() {
        // A cut needs more than a word; the prompts of one are what the machine may take for a cough.
        let (from, to) = span(&clip.pcm);
        if to - from < 8000 {
            continue;
        }
        let offset = 48_000 + 37 * index % PACKET;
        speech.add(Scene::play(&reply, &[(offset, &clip.pcm, Kind::Speech)], clip.pcm.len() + 80_000, index as u64)?);
    }
    let mut rows = vec![speech.row(Kind::Speech.name())];
    // One conversation: what the machine learns of its listener it keeps from reply to reply.
    let replies = (minutes * 60).div_ceil(REPLY / 16_000);
    let made: Vec<_> = (0..replies * PER_REPLY).map(|n| listener(corpus, Kind::nth(n), n as u64)).collect();
    let placed: Vec<_> =
        made.iter().enumerate().map(|(n, pcm)| (64_000 + n * EVERY + 53 * (n % 11), &pcm[..], Kind::nth(n))).collect();
    let played = Scene::play(&reply, &placed, replies * REPLY, 0)?;
    let faults = played.faults;
    let count = |of: fn(&Sound) -> bool| played.sounds.iter().filter(|sound| of(sound)).count();
    let (pauses, cuts) = (count(|sound| sound.pause.is_some()), count(|sound| sound.cut.is_some()));
    // Of the replies as they are written: what pauses add to their time does not count for them.
    let per_minute = pauses as f64 / ((replies * REPLY) as f64 / 16_000.0 / 60.0);
    for kind in Kind::ALL {
        let sounds = played.sounds.iter().filter(|sound| sound.kind == kind).copied().collect();
        rows.push(Tally { sounds }.row(kind.name()));
    }
    let resume = rows.iter().skip(1).map(|row| row.resume_ms[1]).fold(0.0, f64::max);
    let speech = &rows[0];
    let missed = speech.count - speech.cut;
    let note = format!("{} utterances over a reply, link round trip 20 ms taken off", speech.count);
    let noise = "a cough, a click, a knock or mm-hm each 10 s over replies of 50 s, one conversation";
    let figures = vec![
        held("interruption.pause_p95_ms", speech.pause_ms[1], "ms", 60.0, note.clone()),
        told("interruption.pause_p50_ms", speech.pause_ms[0], "ms", note.clone()),
        told("interruption.commit_p50_ms", speech.commit_ms[0], "ms", note.clone()),
        told("interruption.commit_p95_ms", speech.commit_ms[1], "ms", note),
        held(
            "interruption.missed",
            missed as f64,
            "utterances",
            0.0,
            "speech of half a second or more that did not cut the reply",
        ),
        held("listener.replies_lost", cuts as f64, "replies", 0.0, noise),
        held("listener.pauses_per_minute", per_minute, "1/min", 1.0, noise),
        held(
            "listener.resume_p95_ms",
            resume,
            "ms",
            250.0,
            "end of the sound at the edge to the next frame, slowest kind",
        ),
        held("listener.frames_wrong", faults as f64, "frames", 0.0, "frames of the reply lost or repeated"),
    ];
    Ok((figures, rows))
}

/// [`REPLY`] samples of voices.
fn reply(corpus: &Corpus) -> Vec<i16> {
    corpus.voices.iter().cycle().flat_map(|clip| clip.pcm.iter().copied()).take(REPLY).collect()
}

/// What a listener makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Speech,
    Cough,
    /// Loud and rough enough for the detector.
    ThroatyCough,
    Key,
    /// A key that the desk makes loud enough for the detector.
    Knock,
    Hum,
}

impl Kind {
    /// Of those that want nothing.
    const ALL: [Self; PER_REPLY] = [Self::Cough, Self::ThroatyCough, Self::Key, Self::Knock, Self::Hum];

    /// Each in each reply, in turn the first.
    fn nth(number: usize) -> Self {
        Self::ALL[(number + number / PER_REPLY) % PER_REPLY]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Speech => "speech",
            Self::Cough => "cough",
            Self::ThroatyCough => "throaty cough",
            Self::Key => "key click",
            Self::Knock => "knock",
            Self::Hum => "mm-hm",
        }
    }

    /// About as loud as speech.
    fn sound(self, corpus: &Corpus, seed: u64) -> Vec<i16> {
        let mut random = Random::new(seed);
        let sound = match self {
            Self::Cough => cough(seed),
            Self::ThroatyCough => throaty_cough(seed),
            Self::Key => {
                let mut sound = vec![0.0; 3200];
                key(&mut sound, &mut random);
                sound
            }
            Self::Knock => knock(seed),
            Self::Speech | Self::Hum => return corpus.hums[random.below(corpus.hums.len())].pcm.clone(),
        };
        // Its loudest frame is as loud as a loud frame of leveled speech, give or take 3 dB.
        let loudest = peak(&sound.iter().map(|sample| to_i16(sample * 1000.0)).collect::<Vec<_>>()).sqrt() / 1000.0;
        let gain = 3000.0 * (0.7 + 0.7 * random.unit()) / loudest.max(1e-6);
        sound.iter().map(|sample| to_i16(sample * gain)).collect()
    }
}

/// A sound of this kind; of the kinds that are to wake the detector one that does.
fn listener(corpus: &Corpus, kind: Kind, seed: u64) -> Vec<i16> {
    let loud = matches!(kind, Kind::ThroatyCough | Kind::Knock);
    let mut tries = (0..1000).map(|attempt| kind.sound(corpus, seed + 1000 * attempt));
    tries.find(|pcm| !loud || wakes(pcm)).unwrap_or_else(|| kind.sound(corpus, seed))
}

/// The detector takes some frame of it for speech, in a quiet room.
fn wakes(pcm: &[i16]) -> bool {
    let mut heard = vec![0; 16_000];
    heard.extend(pcm);
    let room = pink(heard.len(), 1);
    mix(&mut heard, &room, ROOM);
    let mut vad = Vad::new();
    heard.chunks_exact(vad::FRAME).any(|frame| vad.push(frame).1.is_some_and(|probability| probability >= 0.5))
}

/// What one sound did.
#[derive(Debug, Clone, Copy)]
struct Sound {
    kind: Kind,
    woke: bool,
    pause: Option<f64>,
    cut: Option<f64>,
    resume: Option<f64>,
}

#[derive(Debug, Default)]
struct Tally {
    sounds: Vec<Sound>,
}

impl Tally {
    fn add(&mut self, played: Played) {
        self.sounds.extend(played.sounds);
    }

    fn row(&self, sound: &'static str) -> Row {
        let both = |of: fn(&Sound) -> Option<f64>| {
            let mut values: Vec<_> = self.sounds.iter().filter_map(of).collect();
            [0.5, 0.95].map(|part| rounded(percentile(&mut values, part)))
        };
        let count = |of: fn(&Sound) -> Option<f64>| self.sounds.iter().filter_map(of).count();
        Row {
            sound,
            count: self.sounds.len(),
            woke: self.sounds.iter().filter(|sound| sound.woke).count(),
            paused: count(|sound| sound.pause),
            cut: count(|sound| sound.cut),
            pause_ms: both(|sound| sound.pause),
            commit_ms: both(|sound| sound.cut),
            resume_ms: both(|sound| sound.resume),
        }
    }
}

struct Played {
    sounds: Vec<Sound>,
    /// Frames of replies that were lost or repeated before they ended or were cut.
    faults: usize,
}

/// One conversation: replies, one behind the other, and what is said over them.
struct Scene {
    start: Instant,
    conversation: Conversation,
    edge: Edge,
    asked: Option<ResponseId>,
}

impl Scene {
    /// Plays `reply` over and over and, from these samples of the user's stream on, these sounds; `length` samples in all.
    fn play(reply: &[i16], sounds: &[(usize, &[i16], Kind)], length: usize, seed: u64) -> anyhow::Result<Played> {
        let mut pcm = vec![0; length.next_multiple_of(PACKET)];
        for (at, sound, _) in sounds {
            for (sample, sound) in pcm.iter_mut().skip(*at).zip(*sound) {
                *sample = *sound;
            }
        }
        let room = pink(pcm.len(), seed);
        mix(&mut pcm, &room, ROOM);
        let packets = encode(&pcm, 0)?;
        let start = Instant::now();
        let mut scene = Self {
            start,
            conversation: Conversation::new(start, Config::default()),
            edge: Edge::new(start, ONE_WAY),
            asked: None,
        };
        for (index, payload) in packets.iter().enumerate() {
            // At the edge when its last sample was said, here one way later.
            let at = start + PTIME * u32::try_from(index + 1)? + ONE_WAY;
            scene.run(at, reply);
            scene.conversation.handle_media(at, frame(index, payload), 0);
            scene.drain(at, reply);
        }
        Ok(scene.judge(sounds))
    }

    fn run(&mut self, until: Instant, reply: &[i16]) {
        loop {
            let edge = self.edge.poll_timeout();
            let due = self.conversation.poll_timeout().map_or(edge, |due| due.min(edge));
            if due >= until {
                return;
            }
            self.edge.handle_timeout(due, &mut self.conversation);
            if self.conversation.poll_timeout().is_some_and(|at| at <= due) {
                self.conversation.handle_timeout(due);
            }
            self.drain(due, reply);
        }
    }

    fn drain(&mut self, now: Instant, reply: &[i16]) {
        loop {
            while let Some(output) = self.conversation.poll_output() {
                match output {
                    // What the user says over a reply needs no answer here.
                    Output::Backend(BackendInput::CreateResponse { response, .. }) if self.asked != Some(response) => {
                        self.conversation.handle_backend(now, BackendOutput::ResponseStarted { response });
                        self.conversation.handle_backend(now, BackendOutput::ResponseDone { response });
                    }
                    Output::Backend(_) | Output::Event(_) => {}
                    output => self.edge.send(now, output),
                }
            }
            if self.conversation.state() != State::Listening {
                return;
            }
            let Some(response) = self.conversation.create_response(now) else { return };
            self.asked = Some(response);
            self.conversation.handle_backend(now, BackendOutput::ResponseStarted { response });
            self.conversation.handle_backend(now, audio(response, reply));
            self.conversation.handle_backend(now, BackendOutput::ResponseDone { response });
        }
    }

    fn judge(self, sounds: &[(usize, &[i16], Kind)]) -> Played {
        let ms = |at: Instant| at.saturating_duration_since(self.start).as_secs_f64() * 1000.0;
        let heard: Vec<(f64, Heard)> = self.edge.heard.iter().map(|(at, heard)| (ms(*at), *heard)).collect();
        // When the packet that holds this sample is at the edge; the encoder holds back 6.5 ms of sound.
        let arrival = |sample: usize| ((sample + 104) / PACKET + 1) as f64 * 20.0;
        let link = 2.0 * ONE_WAY.as_secs_f64() * 1000.0;
        let one = |index: usize, &(at, pcm, kind): &(usize, &[i16], Kind)| {
            let (from, to) = span(pcm);
            let (from, to) = (arrival(at + from), arrival(at + to - 1));
            let until = sounds.get(index + 1).map_or(f64::MAX, |next| arrival(next.0));
            let during = || heard.iter().filter(move |(time, _)| (from - 40.0..until).contains(time));
            let first = |wanted: Heard| during().find(|(_, heard)| *heard == wanted).map(|(time, _)| *time);
            let frame_after = |time: f64| {
                during().find(|(at, heard)| *at >= time && matches!(heard, Heard::Frame(..))).map(|(at, _)| *at)
            };
            // Silence is a slot without a frame.
            let pause = first(Heard::Paused).filter(|paused| {
                let resumed = first(Heard::Resumed).or_else(|| first(Heard::Flushed)).unwrap_or(f64::MAX);
                frame_after(*paused).is_none_or(|next| next - paused >= 20.0 || resumed - paused >= 20.0)
            });
            let cut = first(Heard::Flushed);
            let resume = first(Heard::Resumed).filter(|_| cut.is_none()).and_then(frame_after);
            Sound {
                kind,
                woke: wakes(pcm),
                pause: pause.map(|at| at - from - link),
                cut: cut.map(|at| at - from - link),
                resume: resume.map(|at| (at - to).max(0.0)),
            }
        };
        let frame = |(_, heard): &(f64, Heard)| match heard {
            Heard::Frame(utterance, number) => Some((*utterance, *number)),
            _ => None,
        };
        let frames: Vec<_> = heard.iter().filter_map(frame).collect();
        // A resumption may step back to a border between words, at most 300 ms; nothing is ever skipped.
        let last = (REPLY / PACKET - 1) as u64;
        let follows = |pair: &[(u32, u64)]| {
            let within = (pair[0].1 - pair[0].1.min(14)..=pair[0].1 + 1).contains(&pair[1].1);
            if pair[1].0 == pair[0].0 { within } else { pair[0].1 == last && pair[1].1 == 0 }
        };
        let stepped = frames.windows(2).filter(|pair| pair[1].0 == pair[0].0 && pair[1].1 <= pair[0].1).count();
        let resumed = heard.iter().filter(|(_, heard)| *heard == Heard::Resumed).count();
        let skipped = frames.windows(2).filter(|pair| !follows(pair)).count();
        let faults = skipped + stepped.saturating_sub(resumed);
        Played { sounds: sounds.iter().enumerate().map(|(index, sound)| one(index, sound)).collect(), faults }
    }
}

fn audio(response: ResponseId, pcm: &[i16]) -> BackendOutput {
    BackendOutput::Audio { response, audio: AgentAudio::Pcm(pcm.to_vec()) }
}
