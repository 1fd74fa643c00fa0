//! The edge reflex: the user's level rises while the agent speaks, and playout holds before the transceiver has heard why.
//!
//! Level alone (RFC 6464): the edge never decodes, and the voice bit of a client with default Opus settings is always set.
//! A level 12 dB over the tracked floor in 2 of 3 frames holds playout; the transceiver, which has heard the same frames by
//! then, confirms with Pause or Flush, or says Resume.
//!
//! Off unless the edge's config allows it and the transceiver has turned it on for the call. The transceiver mutes it while it
//! suspects echo (the veto needs PCM), and for a minute after a pause that was for nothing.
//!
//! # Invariant
//!
//! Every hold ends: by the transceiver's word, else after [`ANSWER_WITHIN`].

use std::time::{Duration, Instant};

/// A transceiver that is there decides within its own 300 ms and a round trip.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// After a hold that was none of an interruption: what made it may go on (keys, a cough), and each hold is audible. Speech
/// meanwhile is the transceiver's to notice.
const REST: Duration = Duration::from_secs(2);

/// Levels are kept in 1/16 dB, so that the floor can rise slower than one dB per frame.
const DB: i32 = 16;

/// Over the floor this is the user.
const RISE: i32 = 12 * DB;

/// The floor is never taken for lower than -62 dBov: a muted microphone (127) or a noise gate would make every rustle a rise.
const LOWEST: i32 = -62 * DB;

/// The floor rises 3 dB per second of 20 ms frames (1/16 dB per frame), and falls by a quarter of the way.
const FALL: i32 = 4;

/// The last three frames.
const FRAMES: u8 = 0b111;

/// The reflex of one session.
#[derive(Debug)]
pub(crate) struct Reflex {
    allowed: bool,
    enabled: bool,
    muted: bool,
    /// Of the noise, in 1/16 dBov; none before the first frame.
    floor: Option<i32>,
    /// One bit per frame that was loud, the newest lowest.
    loud: u8,
    /// Playout is held by us, as far as we know for nothing.
    ours: bool,
    /// Until then somebody has to say what becomes of that.
    held_until: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Reflex {
    /// `allowed` by the edge's config.
    pub(crate) fn new(allowed: bool) -> Self {
        Self {
            allowed,
            enabled: false,
            muted: false,
            floor: None,
            loud: 0,
            ours: false,
            held_until: None,
            rests_until: None,
        }
    }

    /// What the transceiver wants.
    pub(crate) fn set(&mut self, enabled: bool, muted: bool) {
        (self.enabled, self.muted) = (enabled, muted);
    }

    /// A frame of the user's came with this level in -dBov. Whether playout is to hold, if it plays.
    pub(crate) fn hear(&mut self, now: Instant, level: u8, plays: bool) -> bool {
        if !self.allowed {
            return false;
        }
        let level = -i32::from(level) * DB;
        let floor = self.floor.unwrap_or(level).max(LOWEST);
        self.loud = (self.loud << 1 | u8::from(level - floor >= RISE)) & FRAMES;
        self.floor = Some(if level < floor { floor + (level - floor) / FALL } else { floor + 1 });
        let rests = self.rests_until.is_some_and(|until| now < until);
        let may = self.enabled && !self.muted && !rests && self.held_until.is_none();
        if !(may && plays && self.loud & 1 == 1 && self.loud.count_ones() >= 2) {
            return false;
        }
        self.ours = true;
        self.held_until = Some(now + ANSWER_WITHIN);
        true
    }

    /// The transceiver holds playout itself now, which may yet be taken back.
    pub(crate) fn confirmed(&mut self) {
        self.held_until = None;
    }

    /// What played is dropped: it was an interruption.
    pub(crate) fn flushed(&mut self) {
        self.ours = false;
        self.held_until = None;
    }

    /// Playout goes on: what made it hold was no interruption.
    pub(crate) fn ended(&mut self, now: Instant) {
        self.held_until = None;
        if std::mem::take(&mut self.ours) {
            self.rests_until = Some(now + REST);
        }
    }

    /// Whether playout goes on, as nobody said anything.
    pub(crate) fn timed_out(&mut self, now: Instant) -> bool {
        let due = self.held_until.is_some_and(|until| until <= now);
        if due {
            self.ended(now);
        }
        due
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.held_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(20);

    struct Rig {
        now: Instant,
        reflex: Reflex,
    }

    impl Rig {
        fn new(allowed: bool) -> Self {
            let mut reflex = Reflex::new(allowed);
            reflex.set(true, false);
            Self { now: Instant::now(), reflex }
        }

        /// Which of `levels` made playout hold.
        fn hear(&mut self, levels: &[u8]) -> Option<usize> {
            let mut held = None;
            for (at, level) in levels.iter().enumerate() {
                self.now += FRAME;
                if self.reflex.hear(self.now, *level, true) {
                    held.get_or_insert(at);
                }
            }
            held
        }
    }

    #[test]
    fn two_of_three_frames_12_db_over_the_floor_hold() {
        for (levels, held) in [
            (&[58, 58, 30, 30, 30][..], Some(3)),
            (&[58, 58, 30, 58, 30], Some(4)),
            (&[58, 58, 30, 58, 58, 30, 58], None),
            (&[58, 58, 47, 47, 47, 47], None),
            (&[58, 58, 45, 45], Some(3)),
        ] {
            assert_eq!(Rig::new(true).hear(levels), held, "{levels:?}");
        }
    }

    #[test]
    fn it_is_off_unless_allowed_enabled_and_not_muted() {
        let speech = [60, 60, 20, 20, 20];
        assert_eq!(Rig::new(false).hear(&speech), None);
        let mut untold = Rig { reflex: Reflex::new(true), ..Rig::new(true) };
        assert_eq!(untold.hear(&speech), None, "the transceiver has said nothing yet");
        for (enabled, muted, held) in [(false, false, None), (true, true, None), (true, false, Some(3))] {
            let mut rig = Rig::new(true);
            rig.reflex.set(enabled, muted);
            assert_eq!(rig.hear(&speech), held);
        }
        let mut rig = Rig::new(true);
        assert!(!speech.iter().any(|level| rig.reflex.hear(rig.now, *level, false)), "nothing plays");
    }

    #[test]
    fn a_muted_microphone_does_not_make_a_rustle_loud() {
        let mut rig = Rig::new(true);
        rig.hear(&[127; 500]);
        assert_eq!(rig.hear(&[52; 20]), None);
        assert_eq!(rig.hear(&[40, 40]), Some(1));
    }

    #[test]
    fn the_floor_follows_steady_noise_and_survives_speech() {
        let mut rig = Rig::new(true);
        rig.hear(&[60; 50]);
        // A fan of 30 dBov begins: one hold, and then it is the floor.
        assert!(rig.hear(&[30; 550]).is_some());
        rig.reflex.ended(rig.now);
        rig.now += REST;
        assert_eq!(rig.hear(&[30; 200]), None);
        assert_eq!(rig.hear(&[15, 15]), Some(1));
        // Sentences of 3 s with pauses between words do not make speech the floor.
        let mut rig = Rig::new(true);
        let words: Vec<u8> = (0..500).map(|frame| if frame % 25 < 20 { 25 } else { 58 }).collect();
        rig.hear(&words);
        rig.reflex.ended(rig.now);
        rig.now += REST;
        assert_eq!(rig.hear(&[25, 25]), Some(1));
    }

    #[test]
    fn a_hold_ends_by_itself_and_another_waits() {
        let mut rig = Rig::new(true);
        assert_eq!(rig.hear(&[60, 60, 20, 20]), Some(3));
        let until = rig.reflex.poll_timeout().unwrap();
        assert_eq!(until, rig.now + ANSWER_WITHIN);
        assert!(!rig.reflex.timed_out(until - Duration::from_micros(1)));
        assert!(rig.reflex.timed_out(until));
        assert_eq!((rig.reflex.timed_out(until), rig.reflex.poll_timeout()), (false, None));
        rig.now = until;
        assert_eq!(rig.hear(&[60, 60, 20, 20]), None, "it rests");
        rig.now += REST;
        assert_eq!(rig.hear(&[60, 60, 20, 20]), Some(3));
    }
    #[test]
    fn a_hold_that_was_confirmed_and_taken_back_is_followed_by_a_rest() {
        let mut rig = Rig::new(true);
        assert_eq!(rig.hear(&[60, 60, 20, 20]), Some(3));
        rig.reflex.confirmed();
        assert_eq!(rig.reflex.poll_timeout(), None, "the transceiver ends it");
        rig.now += ANSWER_WITHIN;
        rig.reflex.ended(rig.now);
        let rested = rig.now + REST;
        while rig.now + 8 * FRAME < rested {
            assert_eq!(rig.hear(&[60, 60, 20, 20]), None, "it rests");
        }
        rig.now = rested;
        assert_eq!(rig.hear(&[60, 60, 20, 20]), Some(3));
    }

    #[test]
    fn a_hold_that_became_a_cut_and_a_pause_of_the_transceivers_own_are_followed_by_none() {
        let mut rig = Rig::new(true);
        assert_eq!(rig.hear(&[60, 60, 20, 20]), Some(3));
        rig.reflex.confirmed();
        rig.reflex.flushed();
        // The next reply is paused, and taken up again.
        rig.reflex.confirmed();
        rig.reflex.ended(rig.now);
        rig.hear(&[60; 50]);
        assert_eq!(rig.hear(&[20, 20]), Some(1));
    }
}
