//! Replies for a client without Opus: each packet is decoded and coded again as G.711 (RFC 3551 §4.5.14).
//!
//! At the end of the way and not in place of the encoder, so that whatever a backend gives (samples of any rate, Opus of its own,
//! clips) is heard, and positions, credit and frames are those of every other call. Costs about 40 us a frame.

use crate::g711::{self, Law};
use crate::opus::{CreateError, Decoder, MAX_PACKET_SAMPLES};
use crate::resample::Decimator;

/// Decoded to this rate, the least that libopus gives here.
const DECODED: u32 = 16_000;

/// One call's replies.
#[derive(Debug)]
pub struct Telephone {
    law: Law,
    decoder: Decoder,
    decimator: Decimator,
    wide: Vec<i16>,
    narrow: Vec<i16>,
}

impl Telephone {
    /// For a client that takes this law.
    ///
    /// # Errors
    /// libopus could not make its state.
    pub fn new(law: Law) -> Result<Self, CreateError> {
        Ok(Self {
            law,
            decoder: Decoder::new(DECODED)?,
            decimator: Decimator::new((DECODED / g711::RATE) as usize),
            wide: vec![0; (MAX_PACKET_SAMPLES * DECODED / 48_000) as usize],
            narrow: Vec::new(),
        })
    }

    /// The G.711 of one Opus packet that lasts `samples` at 48 kHz: as many bytes as that is samples at 8 kHz. What cannot be
    /// decoded is silence.
    #[must_use]
    pub fn translate(&mut self, packet: &[u8], samples: u32) -> Vec<u8> {
        let wide = self.decoder.decode(packet, &mut self.wide).unwrap_or(0);
        self.narrow.clear();
        self.decimator.process(self.wide.get(..wide).unwrap_or_default(), &mut self.narrow);
        let bytes = (samples.min(MAX_PACKET_SAMPLES) / g711::FACTOR) as usize;
        let heard = self.narrow.iter().copied().chain(std::iter::repeat(0)).take(bytes);
        heard.map(|sample| g711::encode(self.law, sample)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opus::{Encoder, EncoderConfig};

    #[test]
    fn speech_is_the_same_speech_and_lasts_as_long() {
        let said = crate::babble::speech(16_000, 1000, 5);
        let mut encoder = Encoder::new(EncoderConfig { rate: 16_000, ..EncoderConfig::default() }).unwrap();
        for law in [Law::Mu, Law::A] {
            encoder.reset();
            let mut telephone = Telephone::new(law).unwrap();
            let mut heard = Vec::new();
            for pcm in said.chunks_exact(320) {
                let mut packet = [0; 1276];
                let length = encoder.encode(pcm, &mut packet).unwrap();
                let bytes = telephone.translate(&packet[..length], 960);
                assert_eq!(bytes.len(), 160);
                g711::decode(law, &bytes, &mut heard);
            }
            let energy = |pcm: &[i16]| pcm.iter().map(|&sample| f64::from(sample).powi(2)).sum::<f64>();
            let (wide, narrow) = (energy(&said) / 2.0, energy(&heard));
            assert!(narrow > wide / 2.0 && narrow < wide * 2.0, "{law:?}: {narrow} of {wide}");
        }
    }

    #[test]
    fn what_is_no_opus_is_silence_of_its_length() {
        let mut telephone = Telephone::new(Law::A).unwrap();
        assert_eq!(telephone.translate(&[], 480), [0xd5; 80]);
    }
}
