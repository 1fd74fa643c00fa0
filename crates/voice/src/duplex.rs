//! Backends that hear everything and speak when they like, and say neither when a reply begins nor when it ends.
//!
//! What they give carries [`ResponseId::UNASKED`]. A reply begins with the first sound or word of it and ends when neither has come
//! for [`Config::duplex_silence_ms`](crate::Config::duplex_silence_ms): no event of the backend's is waited for. Silence between
//! replies, which such backends stream as well, is left out. A reply that was cut by us goes on at the backend until it has heard
//! why: what it says until its next silence is of the old one, and dropped.

use std::time::{Duration, Instant};

use crate::backend::{AgentAudio, ResponseId, WordTime};
use crate::conversation::Conversation;
use crate::types::Event;

/// Mean square of samples that are sound: 50 dB below full scale.
const SOUND: i64 = 100 * 100;

/// Silence that ends what was cut.
const BETWEEN: Duration = Duration::from_millis(300);

/// What such a backend is at.
#[derive(Debug, Default)]
pub(crate) struct Duplex {
    /// Its reply.
    response: Option<ResponseId>,
    /// When it last gave a sound or a word.
    latest: Option<Instant>,
    /// What it says is of a reply that was cut.
    stale: bool,
}

impl Duplex {
    /// When the reply that is being made is over, if nothing more comes of it.
    pub(crate) fn due(&self, silence_ms: u32) -> Option<Instant> {
        self.response?;
        Some(self.latest? + Duration::from_millis(u64::from(silence_ms)))
    }

    /// The reply that is being made was cut.
    pub(crate) fn cut(&mut self, response: ResponseId) {
        if self.response.take_if(|own| *own == response).is_some() {
            self.stale = true;
        }
    }

    /// What comes now is wanted.
    fn hears(&mut self, now: Instant) -> bool {
        let pause = self.latest.is_none_or(|latest| now.saturating_duration_since(latest) >= BETWEEN);
        self.latest = Some(now);
        self.stale &= !pause;
        !self.stale
    }
}

impl Conversation {
    /// Speech of a backend that was not asked for any.
    pub(crate) fn unasked_audio(&mut self, now: Instant, audio: AgentAudio) {
        let sound = is_sound(&audio);
        if sound && !self.duplex.hears(now) {
            self.orphans += 1;
            return;
        }
        let open = self.unasked_reply();
        if let Some(response) = if sound { open.or_else(|| self.begin_unasked(now)) } else { open } {
            self.reply_audio(now, response, audio);
        }
    }

    /// Words of it.
    pub(crate) fn unasked_text(&mut self, now: Instant, delta: String, words: &[WordTime]) {
        if !self.duplex.hears(now) {
            self.orphans += 1;
            return;
        }
        if let Some(response) = self.unasked_reply().or_else(|| self.begin_unasked(now)) {
            self.reply_text(now, response, delta, words);
        }
    }

    /// Ends a reply of which nothing has come for long enough.
    pub(crate) fn end_unasked(&mut self, now: Instant) {
        if self.duplex.due(self.config.duplex_silence_ms).is_some_and(|due| due <= now)
            && let Some(response) = self.duplex.response.take()
            && self.is_current(response)
        {
            self.finish(response);
        }
    }

    fn unasked_reply(&self) -> Option<ResponseId> {
        self.duplex.response.filter(|response| self.is_current(*response))
    }

    fn begin_unasked(&mut self, now: Instant) -> Option<ResponseId> {
        let response = self.new_response(now, self.as_set().text_only)?;
        self.duplex.response = Some(response);
        self.event(Event::ResponseCreated { response });
        Some(response)
    }
}

/// It is more than the silence of a stream that never ends. Of bytes the phase is not known, but silence is silence in either.
fn is_sound(audio: &AgentAudio) -> bool {
    let mean = |squares: i64, samples: usize| squares > SOUND * i64::try_from(samples).unwrap_or(i64::MAX);
    match audio {
        AgentAudio::Pcm(pcm) => mean(pcm.iter().map(|sample| i64::from(*sample).pow(2)).sum(), pcm.len()),
        AgentAudio::Bytes { data, .. } => {
            let (pairs, _) = data.as_chunks();
            mean(pairs.iter().map(|pair| i64::from(i16::from_le_bytes(*pair)).pow(2)).sum(), pairs.len())
        }
        AgentAudio::Opus(packets) => packets.iter().any(|packet| packet.len() > 8),
    }
}
