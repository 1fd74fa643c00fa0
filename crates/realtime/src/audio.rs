//! Audio inside events: base64 of one of three formats.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Clients pad or do not: both say the same.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How audio is coded inside events; mono always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioFormat {
    /// 16 bits, little endian, 24 kHz.
    Pcm16,
    /// G.711 µ-law, 8 kHz.
    Pcmu,
    /// G.711 A-law, 8 kHz.
    Pcma,
}

impl fmt::Display for AudioFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcm16 => "mono PCM16 at 24kHz",
            Self::Pcmu => "mono G.711 µ-law at 8kHz",
            Self::Pcma => "mono G.711 A-law at 8kHz",
        })
    }
}

/// Why a text is no audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AudioError {
    /// It is not base64.
    NotBase64,
    /// It ends inside a sample; so many bytes.
    OddLength(usize),
}

impl AudioFormat {
    /// Bytes of a second. Divides by 1000.
    pub(crate) fn bytes_per_second(self) -> u64 {
        match self {
            Self::Pcm16 => 48_000,
            Self::Pcmu | Self::Pcma => 8_000,
        }
    }

    /// The bytes of a text, whole samples.
    pub(crate) fn decode(self, text: &str) -> Result<Vec<u8>, AudioError> {
        let data = BASE64.decode(text).map_err(|_| AudioError::NotBase64)?;
        match self {
            Self::Pcm16 if data.len() % 2 == 1 => Err(AudioError::OddLength(data.len())),
            _ => Ok(data),
        }
    }
}

/// The text of some bytes.
pub(crate) fn encode(data: &[u8]) -> String {
    BASE64.encode(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_padded_or_not() {
        let data = [0, 1, 2, 250];
        let text = encode(&data);
        assert_eq!(text, "AAEC+g==");
        for text in ["AAEC+g==", "AAEC+g"] {
            assert_eq!(AudioFormat::Pcm16.decode(text).unwrap(), data);
        }
        assert_eq!(AudioFormat::Pcma.decode("").unwrap(), [0; 0]);
    }

    #[test]
    fn half_a_sample_is_an_error_of_pcm_alone() {
        assert_eq!(AudioFormat::Pcm16.decode("AAEC"), Err(AudioError::OddLength(3)));
        assert_eq!(AudioFormat::Pcmu.decode("AAEC").unwrap().len(), 3);
        for text in ["A", "AA-_", "AA EC", "Ä"] {
            assert_eq!(AudioFormat::Pcmu.decode(text), Err(AudioError::NotBase64), "{text}");
        }
    }
}
