//! What the user's packets become: repaired audio, keys, corrections.

use std::time::Instant;

use super::Conversation;
use crate::backend::BackendInput;
use crate::repair::Late;
use crate::types::{Codec, Event, MediaFrame};

impl Conversation {
    /// User audio, in the order it arrived; `age_us` is its time at the edge and on the link, for the timing alone.
    pub fn handle_media(&mut self, now: Instant, frame: MediaFrame<'_>, age_us: u32) {
        if frame.codec == Codec::TelephoneEvent
            && let Some(key) = self.keys.handle(frame.rtp_timestamp, frame.payload)
        {
            let media_time = self.repair.media_time();
            self.backend(BackendInput::Key { key, media_time });
            self.event(Event::KeyPressed { key, audio_ms: media_time / 48 });
        }
        let mut repair = std::mem::take(&mut self.repair);
        let late = repair.handle(now, &frame, age_us, &mut |piece| self.hear(now, &piece));
        self.repair = repair;
        if let Some(late) = late {
            self.correct(&late);
        }
        self.settle(now);
    }

    /// What was made up is put right where it still waits here; a backend that can use it is told of the part it has.
    fn correct(&mut self, late: &Late<'_>) {
        let given = self.given;
        let Some(pcm) = self.ear.correct(late) else { return };
        let end = late.media_time + u64::from(late.samples);
        if self.config.repair.corrections && end <= given && !pcm.is_empty() {
            let pcm = pcm.to_vec();
            self.backend(BackendInput::Correction { pcm, media_time: late.media_time });
        }
    }
}
