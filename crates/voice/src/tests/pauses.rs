//! What pauses a reply, frame by frame.

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::decision::Profile;
use crate::echo::Own;
use crate::turn::{Action, Frame, Reply, Turns};
use crate::vad::FRAME_MEDIA;

/// A reply that plays in a quiet room.
struct Rig {
    turns: Turns,
    now: Instant,
    end: u64,
}

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        let mut rig = Self { turns: Turns::new(now, &Config::default()), now, end: 0 };
        assert_eq!(rig.turns.set_reply(now, Reply::Audible, Profile::Speaking), None);
        rig.hear(50, QUIET);
        rig
    }

    /// So many frames like this; what followed, with the number of the frame.
    fn hear(&mut self, frames: usize, frame: Frame) -> Vec<(usize, Action)> {
        let mut actions = Vec::new();
        for number in 1..=frames {
            self.now += Duration::from_millis(16);
            self.end += FRAME_MEDIA;
            actions.extend(self.turns.frame(self.now, self.end, frame).1.map(|action| (number, action)));
            while self.turns.poll_decision().is_some() {}
        }
        actions
    }
}

const QUIET: Frame = Frame { probability: 0.15, rms: 15.0, wordlike: false, echo: Own::No };
/// The soft first sounds of a word.
const SOFT: Frame = Frame { probability: 0.32, rms: 400.0, ..QUIET };
const SPEECH: Frame = Frame { probability: 0.9, rms: 2000.0, wordlike: true, ..QUIET };

#[test]
fn two_frames_that_rise_and_may_become_speech_pause_a_reply() {
    assert_eq!(Rig::new().hear(3, SOFT), [(2, Action::Pause)]);
    assert_eq!(Rig::new().hear(20, Frame { probability: 0.29, ..SOFT }), [], "the detector has to be in doubt");
    assert_eq!(Rig::new().hear(20, Frame { rms: 90.0, ..SOFT }), [], "and it has to rise");
    assert_eq!(Rig::new().hear(20, Frame { echo: Own::Perhaps, ..SOFT }), [], "and to be the user");
}

#[test]
fn what_becomes_speech_is_cut_for_after_as_much_speech_as_ever() {
    let mut rig = Rig::new();
    assert_eq!(rig.hear(4, SOFT), [(2, Action::Pause)]);
    let cut = rig.hear(20, SPEECH);
    let onset = 50 * FRAME_MEDIA;
    assert_eq!(cut, [(16, Action::Interrupt { onset })], "250 ms of voiced frames, from the first soft sound on");
}

#[test]
fn what_does_not_become_speech_is_resumed_from_and_pauses_no_more() {
    let mut rig = Rig::new();
    assert_eq!(rig.hear(3, SOFT), [(2, Action::Pause)]);
    assert_eq!(rig.hear(20, QUIET), [(8, Action::Resume)], "144 ms behind the frame that paused");
    assert_eq!(rig.hear(3, SOFT), []);
    rig.hear(20, QUIET);
    assert_eq!(rig.hear(15, SPEECH), [], "for a minute the reply is held for nothing less than a cut");
    assert!(matches!(rig.hear(1, SPEECH)[..], [(1, Action::Interrupt { .. })]));
}

#[test]
fn a_reply_that_is_not_heard_yet_is_not_held_for_soft_sounds() {
    let mut rig = Rig::new();
    rig.turns.set_reply(rig.now, Reply::Pending, Profile::Thinking);
    assert_eq!(rig.hear(20, SOFT), []);
    assert!(!rig.turns.holds_reply());
}

#[test]
fn a_voice_that_shows_late_to_be_words_is_cut_without_a_resume_before() {
    let mut rig = Rig::new();
    let voice = Frame { wordlike: false, ..SPEECH };
    assert_eq!(rig.hear(33, voice), [(2, Action::Pause)], "more than half a second of it");
    let cut = rig.hear(5, SPEECH);
    assert!(matches!(cut[..], [(5, Action::Interrupt { .. })]), "{cut:?}");
}
