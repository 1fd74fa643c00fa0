//! What the callers of `bench voice` say: Opus, encoded once before the run.

use std::time::Duration;

use voice::babble;
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};

/// Different voices.
const VOICES: usize = 4;

/// As browsers send it.
const BITRATE: i32 = 32_000;

const RATE: u32 = 48_000;
const FRAME_MS: usize = 20;
/// Samples of a frame.
const FRAME: usize = 960;

/// How callers and agents share the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Talk {
    /// Both speak all the time.
    Always,
    /// In turns: each speaks for this share of the time, above 0 and at most [`Talk::MOST`].
    Turns(f64),
}

impl Talk {
    /// One caller's turn.
    const TURN_MS: usize = 4000;
    /// Of the time for a reply: what ends a turn (500 ms of silence), what begins one, and what the parrot keeps around it.
    const PAUSES_MS: usize = 1000;
    /// The largest share of turns: while one speaks the other is silent.
    pub const MOST: f64 = 0.44;

    /// What the caller says in a row, and for how long it is silent after that.
    fn milliseconds(self) -> (usize, usize) {
        match self {
            Self::Always => (10_000, 0),
            Self::Turns(share) => {
                let turn = Duration::from_millis(Self::TURN_MS as u64);
                let cycle = usize::try_from(turn.div_f64(share.clamp(0.01, Self::MOST)).as_millis()).unwrap_or(10_000);
                let cycle = cycle.max(2 * Self::TURN_MS + Self::PAUSES_MS).next_multiple_of(FRAME_MS);
                (Self::TURN_MS, cycle - Self::TURN_MS)
            }
        }
    }
}

/// See the module.
pub(crate) struct Recordings {
    /// Each voice's packets of 20 ms, to be said over and over.
    voices: Vec<Vec<Vec<u8>>>,
    /// Frames of a turn's speech; none when it never ends.
    spoken: Option<usize>,
}

impl Recordings {
    pub(crate) fn new(talk: Talk) -> anyhow::Result<Self> {
        let (spoken, silent) = talk.milliseconds();
        let voice = |seed| -> anyhow::Result<Vec<Vec<u8>>> {
            let mut pcm = babble::speech(RATE, spoken, seed);
            pcm.resize(FRAME * (spoken + silent) / FRAME_MS, 0);
            let mut encoder = Encoder::new(EncoderConfig { rate: RATE, bitrate: BITRATE, ..EncoderConfig::default() })?;
            let mut packet = [0; MAX_PACKET_BYTES];
            let mut encode = |frame| {
                let length = encoder.encode(frame, &mut packet)?;
                Ok(packet[..length].to_vec())
            };
            pcm.chunks_exact(FRAME).map(&mut encode).collect()
        };
        let voices = (1..=VOICES).map(|seed| voice(u32::try_from(seed)?)).collect::<Result<_, _>>()?;
        Ok(Self { voices, spoken: (talk != Talk::Always).then_some(spoken / FRAME_MS) })
    }

    /// Frame `count` of a caller, and whether it is the last one of its turn. Callers begin in different places, spread evenly
    /// over the time (golden ratio).
    pub(crate) fn packet(&self, caller: usize, count: u32) -> (&[u8], bool) {
        let voice = &self.voices[caller % self.voices.len()];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let offset = ((caller as f64 * 0.618_033_988_75).fract() * voice.len() as f64) as usize;
        let at = (offset + count as usize) % voice.len();
        (&voice[at], self.spoken.is_some_and(|spoken| at + 1 == spoken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_leave_room_for_the_reply_and_the_share_is_kept() {
        assert_eq!(Talk::Turns(0.4).milliseconds(), (4000, 6000));
        assert_eq!(Talk::Turns(0.2).milliseconds(), (4000, 16_000));
        assert_eq!(Talk::Turns(0.9).milliseconds(), (4000, 5100));
        let recordings = Recordings::new(Talk::Turns(0.4)).unwrap();
        let ends: Vec<u32> = (0..1000).filter(|count| recordings.packet(0, *count).1).collect();
        assert_eq!(ends, [199, 699]);
        assert!(recordings.packet(0, 100).0.len() > recordings.packet(0, 400).0.len(), "speech and silence");
        assert_ne!(recordings.packet(1, 0).0, recordings.packet(5, 0).0, "callers of one voice are elsewhere in it");
    }
}
