//! Whose turn it is.
//!
//! In: one verdict for each 16 ms of the user's audio, and what the agent is about to do. Out: at most one [`Action`].
//! Times of speech are 48 kHz media time, so a network that stalls does not end a sentence; timers of the wall clock stand
//! behind each of them, so a user who vanishes does not hold a turn open.
//!
//! | state | what it is | exit | timer |
//! |---|---|---|---|
//! | `Listening` | nobody speaks | 3 voiced frames: `UserSpeaking` | none: it is where all others end |
//! | `UserSpeaking` | the user's turn | hangover over: `Deciding` | no audio: as silence, see below; `max_turn_ms` |
//! | `Deciding` | silence within the turn | 3 voiced frames: back; `silence_duration_ms` from the last voiced frame: the turn ends | the same |
//! | `Thinking` | a response is asked for, nothing of it is heard | its first audio, its end, its failure; speech | `response_timeout_ms` |
//! | `AgentSpeaking` | a reply is queued or playing | its last frame is out, it is cut; speech | the edge silent about it for 5 s |
//! | `Interrupting` | perhaps the user speaks over the reply | commit or resume | 300 ms without audio; 3 s in all |
//!
//! `Thinking` and `AgentSpeaking` are kept by the conversation, which owns what the agent does; this machine is told.
//!
//! **The end of a turn** is silence counted from the last voiced frame; the detector's hangover of 200 ms lies inside it. Within
//! the hangover one voiced frame continues the speech. After it, it takes an onset of 3: a click in the pause does not
//! put off the answer, a word does. If an onset has begun when the silence is over, the decision waits for it. The last 20 ms
//! are not waited for in packets and frames, whose grid would add up to 36 ms: the clock decides.
//! Without audio nothing is known. After a DTX packet no audio is silence, so the end is decided 60 ms of grace after
//! the silence would be over. Otherwise it may be a stall of the network, and the grace is 300 ms.
//!
//! **An interruption is tentative first.** A pause is cheap and is taken back without loss, so 2 voiced frames suffice for it. A
//! cut is not, so it takes `interrupt_commit_ms` of voiced frames, counted across gaps of less than 144 ms (the closures
//! inside words are shorter). A gap of 144 ms before that is the end of a cough, and the reply resumes. With 32 ms to the pause, a
//! sound shorter than the commit never stops the reply for more than commit + 144 ms. The same gate holds before
//! the reply is heard: a cough between question and reply only delays the reply's start.
//!
//! **A user who never stops** (music, a crowd) is cut off after `max_turn_ms` and answered. What goes on then has no onset, so
//! it does not interrupt: only after 200 ms of silence, or when the reply is over, are onsets heard again.

use std::time::{Duration, Instant};

use crate::config::{ServerVad, TurnConfig};
use crate::vad::FRAME_MEDIA;

/// Frames of speech that make an onset.
const ONSET: u32 = 3;
/// How far before its first voiced frame an onset may reach back: 10 frames, a soft syllable.
const ATTACK: u64 = 10 * FRAME_MEDIA;
/// Frames of speech that pause a reply.
const TENTATIVE: u32 = 2;
/// Within this after a voiced frame one more continues the speech: 200 ms.
const HANGOVER: u64 = 200 * 48;
/// A gap that ends what might have been an interruption: 9 frames.
const GAP: u64 = 144 * 48;
/// Without audio for this long, what might have been an interruption was none.
const TENTATIVE_STALL: Duration = Duration::from_millis(300);
/// Longest doubt: with gaps just below [`GAP`] the default commit is reached in 2.6 s.
const TENTATIVE_MAX: Duration = Duration::from_secs(3);
/// When no more than this is left of the silence it is not waited for a packet that could only confirm it: 20 ms.
const LAST_PACKET: u64 = 960;
/// No audio after a DTX packet is silence.
const DTX_GRACE: Duration = Duration::from_millis(60);
/// No audio otherwise may be a stall.
const STALL_GRACE: Duration = Duration::from_millis(300);

/// Whose turn it is, for people and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody speaks.
    Listening,
    /// The user speaks.
    UserSpeaking,
    /// The user is silent; the turn may be over.
    Deciding,
    /// A response is asked for and not heard yet.
    Thinking,
    /// A reply is queued or playing.
    AgentSpeaking,
    /// The user may be speaking over the reply.
    Interrupting,
}

/// What the agent is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing.
    None,
    /// A response is asked for; nothing of it is at the edge.
    Pending,
    /// At the edge.
    Audible,
}

/// What follows from what was heard. Media times are 48 kHz samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Hold the reply.
    Pause,
    /// It was nothing: go on.
    Resume,
    /// The user took the turn from the agent, at `onset`.
    Interrupt { onset: u64 },
    /// The user began, at `onset`.
    Start { onset: u64 },
    /// The user's turn is over. `to` is behind the last voiced sample.
    Stop { from: u64, to: u64 },
}

#[derive(Debug, Clone, Copy)]
enum User {
    Quiet,
    Tentative {
        onset: u64,
        voiced: u32,
        last: u64,
        since: Instant,
    },
    Speaking {
        onset: u64,
        last: u64,
    },
    /// Cut off after `max_turn_ms`; `last` as ever.
    Unheard {
        last: u64,
    },
}

/// The machine. The invariant: every [`Action::Pause`] is followed by one [`Action::Resume`], or taken back by the caller
/// ([`Turns::take_paused`]) when it cuts the reply or starts a turn.
#[derive(Debug)]
pub(crate) struct Turns {
    vad: Option<ServerVad>,
    commit_frames: u32,
    max_turn: u64,
    user: User,
    paused: bool,
    reply: Reply,
    /// Voiced frames in a row, and where they began.
    run: u32,
    run_from: u64,
    /// Loudest recent frame, decaying.
    peak: f32,
    /// Quietest recent frame, rising.
    quiet: f32,
    /// Where the frames began that lie above [`Turns::quiet`] without a break.
    above_from: Option<u64>,
    /// End of the last frame and when it came.
    media_end: u64,
    heard_at: Instant,
    heard_dtx: bool,
    /// End of what came, a frame that is not full yet included.
    heard_end: u64,
    /// First and last voiced sample since the last reset, for manual turns.
    span: Option<(u64, u64)>,
}

impl Turns {
    pub(crate) fn new(now: Instant, turn: TurnConfig, interrupt_commit_ms: u32, max_turn_ms: u32) -> Self {
        Self {
            vad: turn.server_vad,
            commit_frames: interrupt_commit_ms.div_ceil(16).max(TENTATIVE),
            max_turn: u64::from(max_turn_ms) * 48,
            user: User::Quiet,
            paused: false,
            reply: Reply::None,
            run: 0,
            run_from: 0,
            peak: 0.0,
            quiet: f32::MAX,
            above_from: None,
            media_end: 0,
            heard_at: now,
            heard_dtx: false,
            heard_end: 0,
            span: None,
        }
    }

    /// The user's side of the state.
    pub(crate) fn state(&self) -> State {
        match self.user {
            User::Tentative { .. } => State::Interrupting,
            User::Speaking { last, .. } if self.media_end.saturating_sub(last) > HANGOVER => State::Deciding,
            User::Speaking { .. } => State::UserSpeaking,
            User::Quiet | User::Unheard { .. } => match self.reply {
                Reply::None => State::Listening,
                Reply::Pending => State::Thinking,
                Reply::Audible => State::AgentSpeaking,
            },
        }
    }

    /// A reply that is not heard yet waits until the doubt is over.
    pub(crate) fn in_doubt(&self) -> bool {
        matches!(self.user, User::Tentative { .. })
    }

    /// Media time from which audio must be kept, for a turn that may begin in the past.
    pub(crate) fn keep_from(&self) -> Option<u64> {
        match self.user {
            User::Tentative { onset, .. } => Some(onset),
            User::Quiet if self.run > 0 => Some(self.run_from),
            _ => None,
        }
    }

    /// First and last voiced sample since [`Turns::forget_span`].
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    pub(crate) fn forget_span(&mut self) {
        self.span = None;
    }

    /// Other rules, from here on. A turn of the user's goes on under them; a doubt is dropped.
    pub(crate) fn set(&mut self, turn: TurnConfig) -> Option<Action> {
        let manual = turn.server_vad.is_none();
        self.vad = turn.server_vad;
        match self.user {
            User::Tentative { .. } => self.doubt_over(),
            User::Speaking { .. } | User::Unheard { .. } if manual => {
                self.user = User::Quiet;
                None
            }
            _ => None,
        }
    }

    /// The user's turn ends without a decision of this machine's: committed or cleared by the client.
    pub(crate) fn end(&mut self) -> Option<(u64, u64)> {
        let User::Speaking { onset, last, .. } = self.user else { return None };
        self.user = User::Quiet;
        self.run = 0;
        Some((onset, last))
    }

    /// What the agent is about to do.
    pub(crate) fn set_reply(&mut self, reply: Reply) -> Option<Action> {
        self.reply = reply;
        match self.user {
            User::Tentative { onset, voiced, last, .. } if reply == Reply::None => {
                // Nothing is left to interrupt: what was heard is a turn like any other, if it is enough for one.
                if voiced >= ONSET && self.media_end.saturating_sub(last) < GAP {
                    self.user = User::Speaking { onset, last };
                    return Some(Action::Start { onset });
                }
                self.doubt_over()
            }
            User::Unheard { .. } if reply == Reply::None => {
                // What goes on is a turn from here.
                self.user = User::Quiet;
                self.run = 0;
                None
            }
            _ => None,
        }
    }

    /// Whether a pause is out; the caller takes it back.
    pub(crate) fn take_paused(&mut self) -> bool {
        std::mem::take(&mut self.paused)
    }

    /// One frame of 16 ms that ends at `end`: the detector's probability and how loud it is.
    ///
    /// The detector remembers: it still says speech up to 100 ms after the last sound. A frame more than 26 dB below the
    /// loudest of the last half second is not itself voiced. It is slow as well: the soft first sounds of a word are not
    /// speech to it yet. What led up to the first voiced frame, above the quiet before it, belongs to the onset.
    pub(crate) fn frame(&mut self, now: Instant, end: u64, probability: f32, rms: f32) -> (bool, Option<Action>) {
        const FLOOR: f32 = 1.0 / 20.0;
        const DECAY: f32 = 0.97; // 16 ms frames: 8 dB in 480 ms.
        const RISE: f32 = 1.02; // 5 dB in 480 ms: speech does not become the quiet it is held against.
        const ABOVE: f32 = 2.0;
        const SOFTEST: f32 = 33.0; // -60 dBFS: coding noise in digital silence is no attack.
        let threshold = self.vad.as_ref().map_or(0.5, |vad| vad.threshold);
        self.peak = rms.max(self.peak * DECAY);
        let voiced = probability >= threshold && rms > self.peak * FLOOR;
        self.media_end = end;
        self.heard_at = now;
        let start = end.saturating_sub(FRAME_MEDIA);
        self.quiet = rms.min(self.quiet * RISE + 1.0);
        self.above_from = (rms > self.quiet * ABOVE + SOFTEST).then(|| self.above_from.unwrap_or(start));
        if voiced {
            if self.run == 0 {
                let attack = self.above_from.unwrap_or(start).max(start.saturating_sub(ATTACK));
                self.run_from = attack.max(self.spoken_to());
            }
            self.run += 1;
        } else {
            self.run = 0;
        }
        if voiced && self.run >= ONSET {
            self.span = Some((self.span.map_or(self.run_from, |(from, _)| from), end));
        }
        (voiced, self.judge(now, end, voiced))
    }

    /// Audio came up to media time `end`; `dtx`: it says that silence follows.
    pub(crate) fn heard(&mut self, now: Instant, end: u64, dtx: bool) {
        self.heard_at = now;
        self.heard_end = end;
        self.heard_dtx = dtx;
    }

    /// What is due by the wall clock.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Action> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        match self.user {
            User::Tentative { .. } => self.doubt_over(),
            User::Speaking { onset, last, .. } => {
                self.user = User::Quiet;
                self.run = 0;
                Some(Action::Stop { from: onset, to: last })
            }
            User::Quiet | User::Unheard { .. } => None,
        }
    }

    /// When [`Turns::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.user {
            User::Tentative { since, .. } => Some((self.heard_at + TENTATIVE_STALL).min(since + TENTATIVE_MAX)),
            User::Speaking { last, .. } => {
                let vad = self.vad.as_ref()?;
                let over = last + u64::from(vad.silence_duration_ms) * 48;
                let left = over.saturating_sub(self.heard_end);
                let grace = match left {
                    0..=LAST_PACKET if self.run == 0 => Duration::ZERO,
                    _ if self.heard_dtx => DTX_GRACE,
                    _ => STALL_GRACE,
                };
                Some(self.heard_at + Duration::from_micros(left * 1_000_000 / 48_000) + grace)
            }
            User::Quiet | User::Unheard { .. } => None,
        }
    }

    /// Behind the last voiced sample of speech that counted already: an onset does not reach into it.
    fn spoken_to(&self) -> u64 {
        self.span.map_or(0, |(_, to)| to)
    }

    fn judge(&mut self, now: Instant, end: u64, voiced: bool) -> Option<Action> {
        let vad = self.vad.as_ref()?;
        match &mut self.user {
            User::Quiet => {
                if self.reply != Reply::None && vad.interrupt_response {
                    if self.run < TENTATIVE {
                        return None;
                    }
                    self.user = User::Tentative { onset: self.run_from, voiced: self.run, last: end, since: now };
                    self.paused = self.reply == Reply::Audible;
                    return self.paused.then_some(Action::Pause);
                }
                if self.run < ONSET {
                    return None;
                }
                let onset = self.run_from;
                self.user = User::Speaking { onset, last: end };
                Some(Action::Start { onset })
            }
            User::Tentative { onset, voiced: count, last, .. } => {
                if voiced {
                    *count += 1;
                    *last = end;
                }
                let (onset, last) = (*onset, *last);
                if *count >= self.commit_frames {
                    self.user = User::Speaking { onset, last };
                    return Some(Action::Interrupt { onset });
                }
                if end.saturating_sub(last) >= GAP { self.doubt_over() } else { None }
            }
            User::Speaking { onset, last } => {
                if voiced && (end.saturating_sub(*last) <= HANGOVER || self.run >= ONSET) {
                    *last = end;
                }
                let (from, to) = (*onset, *last);
                if end.saturating_sub(from) >= self.max_turn {
                    self.user = User::Unheard { last: to };
                    return Some(Action::Stop { from, to });
                }
                let silence = u64::from(vad.silence_duration_ms) * 48;
                if self.run > 0 || end.saturating_sub(to) < silence {
                    return None;
                }
                self.user = User::Quiet;
                Some(Action::Stop { from, to })
            }
            User::Unheard { last } => {
                if voiced {
                    *last = end;
                } else if end.saturating_sub(*last) >= HANGOVER {
                    self.user = User::Quiet;
                }
                None
            }
        }
    }

    /// It was no interruption.
    fn doubt_over(&mut self) -> Option<Action> {
        self.user = User::Quiet;
        self.run = 0;
        std::mem::take(&mut self.paused).then_some(Action::Resume)
    }
}
