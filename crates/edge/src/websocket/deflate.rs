//! permessage-deflate (RFC 7692) without I/O: which offers are taken, and messages made small and large again.
//!
//! Invariant: no message leaves anything behind. Neither side takes a context over, so that one [`Deflater`] serves all
//! connections of a thread and a connection holds no window of its own.

use axum::http::{HeaderMap, header};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::MESSAGE_MAX;

/// The extension as it is answered. Whatever a server adds here binds its client, offered or not (RFC 7692 §7.1).
pub const EXTENSION: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12";

/// What `server_max_window_bits` says of us: 4 KiB, which our events fit, and which some clients ask for.
const WINDOW_BITS: u8 = 12;

/// Below it a message does not pay.
pub const DEFLATE_MIN: usize = 512;

/// What a flush ends with, and no message on the wire (RFC 7692 §7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Whether a client offers the extension in a way that [`EXTENSION`] answers.
pub(super) fn offered(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS);
    let mut offers = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    offers.any(acceptable)
}

/// RFC 7692 §7.1: an offer with a parameter unknown, said twice or with a bad value is declined, and the next is looked at.
fn acceptable(offer: &str) -> bool {
    let mut items = offer.split(';').map(str::trim);
    if !items.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate")) {
        return false;
    }
    let mut seen = Vec::new();
    items.all(|item| {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
            None => (item, None),
        };
        let name = name.to_ascii_lowercase();
        let good = match (name.as_str(), value) {
            ("server_no_context_takeover" | "client_no_context_takeover" | "client_max_window_bits", None) => true,
            ("client_max_window_bits", Some(bits)) => window_bits(bits).is_some(),
            ("server_max_window_bits", Some(bits)) => window_bits(bits).is_some_and(|bits| bits >= WINDOW_BITS),
            _ => false,
        };
        let new = !seen.contains(&name);
        seen.push(name);
        good && new
    })
}

/// 8 to 15, without leading zeros.
fn window_bits(text: &str) -> Option<u8> {
    text.parse().ok().filter(|bits: &u8| (8..=15).contains(bits) && bits.to_string() == text)
}

/// Why a message was not inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It would be larger than [`MESSAGE_MAX`].
    TooLarge,
    /// It is no deflate.
    Broken,
}

/// Deflates and inflates messages, each by itself.
///
/// It holds a window to deflate, one to inflate, and the largest message; nothing that is inflated costs more.
#[derive(Debug)]
pub struct Deflater {
    deflate: Compress,
    inflate: Decompress,
    /// One byte more than a message may have, which tells those that are larger.
    inflated: Box<[u8]>,
}

impl Default for Deflater {
    fn default() -> Self {
        Self {
            deflate: Compress::new_with_window_bits(Compression::fast(), false, WINDOW_BITS),
            inflate: Decompress::new(false),
            inflated: vec![0; MESSAGE_MAX + 1].into(),
        }
    }
}

impl Deflater {
    /// Deflates a message. `None`: it would not become smaller.
    pub fn deflate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.deflate.reset();
        let mut deflated = Vec::with_capacity(message.len());
        self.deflate.compress_vec(message, &mut deflated, FlushCompress::Sync).ok()?;
        // A full buffer may not be all of it.
        let whole = deflated.len() < deflated.capacity() && deflated.ends_with(&TAIL);
        deflated.truncate(deflated.len().saturating_sub(TAIL.len()));
        whole.then_some(deflated)
    }

    /// Inflates a message.
    ///
    /// # Errors
    /// When it would be too large, as soon as it is, and when it is no deflate.
    pub fn inflate(&mut self, message: &[u8]) -> Result<&[u8], Refused> {
        self.inflate.reset(false);
        let mut length = 0;
        for mut part in [message, &TAIL] {
            while !part.is_empty() {
                let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
                let room = &mut self.inflated[length..];
                let status = self.inflate.decompress(part, room, FlushDecompress::Sync).map_err(|_| Refused::Broken)?;
                let read = usize::try_from(self.inflate.total_in() - read).unwrap_or_default();
                let written = usize::try_from(self.inflate.total_out() - written).unwrap_or_default();
                length += written;
                part = &part[read..];
                match status {
                    _ if length > MESSAGE_MAX => return Err(Refused::TooLarge),
                    // A last block ends a stream, not the message (RFC 7692 §7.2.3.4).
                    Status::StreamEnd => self.inflate.reset(false),
                    Status::Ok | Status::BufError if read == 0 && written == 0 => return Err(Refused::Broken),
                    Status::Ok | Status::BufError => {}
                }
            }
        }
        Ok(&self.inflated[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.append(header::SEC_WEBSOCKET_EXTENSIONS, value.parse().unwrap());
        offered(&headers)
    }

    #[test]
    fn what_clients_offer_is_taken() {
        // Browsers, `ws`, Python's `websockets` by itself and with settings, Go's.
        for value in [
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate",
            "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            "x-webkit-deflate-frame, permessage-deflate; server_max_window_bits=\"15\"",
            "permessage-deflate; server_max_window_bits=9, permessage-deflate",
        ] {
            assert!(offer(value), "{value}");
        }
    }

    #[test]
    fn offers_that_cannot_be_kept_or_read_are_declined() {
        for value in [
            "permessage-bzip2",
            "permessage-deflate; server_max_window_bits=11",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=012",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; unheard_of",
        ] {
            assert!(!offer(value), "{value}");
        }
        assert!(!offered(&HeaderMap::new()));
    }

    #[test]
    fn the_examples_of_the_rfc_are_inflated() {
        let mut deflater = Deflater::default();
        // RFC 7692 §7.2.3.1, §7.2.3.3 (no compression), §7.2.3.4 (a last block), §7.2.3.5 (two blocks).
        for message in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            assert_eq!(deflater.inflate(message), Ok(&b"Hello"[..]), "{message:x?}");
        }
        // §7.2.3.6: an empty message.
        assert_eq!(deflater.inflate(&[0]), Ok(&b""[..]));
    }

    #[test]
    fn each_message_stands_alone() {
        let mut deflater = Deflater::default();
        let message = "{\"type\":\"response.output_audio_transcript.delta\"}".repeat(40);
        let first = deflater.deflate(message.as_bytes()).unwrap();
        assert_eq!(deflater.deflate(message.as_bytes()), Some(first.clone()));
        assert!(first.len() * 10 < message.len(), "{}", first.len());
        for _ in 0..2 {
            assert_eq!(deflater.inflate(&first), Ok(message.as_bytes()));
        }
    }

    #[test]
    fn what_does_not_become_smaller_is_left() {
        let mut deflater = Deflater::default();
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(4000)
        .collect();
        assert_eq!(deflater.deflate(&noise), None);
        assert_eq!(deflater.deflate(b""), None);
    }

    #[test]
    fn a_message_may_become_as_large_as_any_and_not_one_byte_larger() {
        let mut deflater = Deflater::default();
        let largest = deflater.deflate(&vec![b'x'; MESSAGE_MAX]).unwrap();
        let larger = deflater.deflate(&vec![b'x'; MESSAGE_MAX + 1]).unwrap();
        let bomb = deflater.deflate(&vec![b'x'; 64 << 20]).unwrap();
        assert!(bomb.len() < MESSAGE_MAX, "{}", bomb.len());
        assert_eq!(deflater.inflate(&largest).map(<[u8]>::len), Ok(MESSAGE_MAX));
        assert_eq!(deflater.inflate(&larger), Err(Refused::TooLarge));
        assert_eq!(deflater.inflate(&bomb), Err(Refused::TooLarge));
        assert_eq!(deflater.inflate(&largest).map(<[u8]>::len), Ok(MESSAGE_MAX));
    }

    #[test]
    fn what_is_no_deflate_is_broken_and_harms_no_later_message() {
        let mut deflater = Deflater::default();
        assert_eq!(deflater.inflate(&[0xff, 0xff, 0xff]), Err(Refused::Broken));
        // A distance that leads before the message: what an earlier one held is not there.
        assert_eq!(deflater.inflate(&[0xf2, 0x00, 0x11, 0x00, 0x00]), Err(Refused::Broken));
        assert_eq!(deflater.inflate(&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]), Ok(&b"Hello"[..]));
    }
}
