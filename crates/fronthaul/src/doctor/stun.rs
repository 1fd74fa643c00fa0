//! STUN messages (RFC 8489), as far as checks (RFC 8445 §7.2) and TURN allocations (RFC 8656 §7) need them.

use aws_lc_rs::hmac;

pub(super) const BINDING: u16 = 0x0001;
pub(super) const BINDING_SUCCESS: u16 = 0x0101;
pub(super) const ALLOCATE: u16 = 0x0003;
pub(super) const ALLOCATE_SUCCESS: u16 = 0x0103;
pub(super) const ALLOCATE_ERROR: u16 = 0x0113;
pub(super) const REFRESH: u16 = 0x0004;

pub(super) const USERNAME: u16 = 0x0006;
pub(super) const MESSAGE_INTEGRITY: u16 = 0x0008;
pub(super) const ERROR_CODE: u16 = 0x0009;
pub(super) const LIFETIME: u16 = 0x000d;
pub(super) const REALM: u16 = 0x0014;
pub(super) const NONCE: u16 = 0x0015;
pub(super) const REQUESTED_TRANSPORT: u16 = 0x0019;
pub(super) const PRIORITY: u16 = 0x0024;
pub(super) const FINGERPRINT: u16 = 0x8028;
pub(super) const ICE_CONTROLLING: u16 = 0x802a;
/// SPED: acknowledgments of DTLS datagrams.
pub(super) const DTLS_ACK: u16 = 0xc071;

const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const HEADER: usize = 20;

/// A message being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u16, transaction: [u8; 12]) -> Self {
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&COOKIE);
        bytes.extend_from_slice(&transaction);
        Self(bytes)
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend_from_slice(&kind.to_be_bytes());
        self.0.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.set_length(0);
        self
    }

    /// RFC 8489 §14.5, under the key of the mechanism in use.
    pub(super) fn integrity(mut self, key: &[u8]) -> Self {
        self.set_length(24);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
        let mac = hmac::sign(&key, &self.0);
        self.attribute(MESSAGE_INTEGRITY, mac.as_ref())
    }

    /// RFC 8489 §14.7, the last attribute.
    pub(super) fn fingerprint(mut self) -> Vec<u8> {
        self.set_length(8);
        let crc = crc32fast::hash(&self.0) ^ 0x5354_554e;
        self.attribute(FINGERPRINT, &crc.to_be_bytes()).0
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// What follows counts in the length before it is written.
    fn set_length(&mut self, further: usize) {
        let length = u16::try_from(self.0.len() - HEADER + further).unwrap_or(u16::MAX);
        self.0[2..4].copy_from_slice(&length.to_be_bytes());
    }
}

/// A message that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    pub(super) kind: u16,
    pub(super) transaction: [u8; 12],
}

impl<'a> Message<'a> {
    /// `None`: not STUN, or not whole.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let whole = head[4..8] == COOKIE && bytes.len() == HEADER + length;
        let transaction = *head[8..].first_chunk()?;
        whole.then_some(Self { bytes, kind: u16::from_be_bytes([head[0], head[1]]), transaction })
    }

    pub(super) fn attribute(&self, kind: u16) -> Option<&'a [u8]> {
        self.attributes().find(|(_, found, _)| *found == kind).map(|(_, _, value)| value)
    }

    /// Whether its MESSAGE-INTEGRITY is right.
    pub(super) fn is_authentic(&self, key: &[u8]) -> bool {
        let Some((at, _, mac)) = self.attributes().find(|(_, kind, _)| *kind == MESSAGE_INTEGRITY) else {
            return false;
        };
        let mut signed = self.bytes[..at].to_vec();
        let Ok(length) = u16::try_from(at - HEADER + 24) else { return false };
        signed[2..4].copy_from_slice(&length.to_be_bytes());
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key), &signed, mac).is_ok()
    }

    /// Offset, type and value of each.
    fn attributes(&self) -> impl Iterator<Item = (usize, u16, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        let mut at = HEADER;
        std::iter::from_fn(move || {
            let head = bytes.get(at..)?.first_chunk::<4>()?;
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let value = bytes.get(at + 4..at + 4 + length)?;
            let found = (at, u16::from_be_bytes([head[0], head[1]]), value);
            at += 4 + length.next_multiple_of(4);
            Some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5769 §2.1: a sample request, with its password.
    const SAMPLE: &str = "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74\
        002400046e0001ff80290008932ff9b151263b36000600096576746a3a68367659202020000800149aeaa70cbfd8cb56781ef2b5b2d3\
        f249c1b571a280280004e57a3bcf";
    const PASSWORD: &[u8] = b"VOkJxbRl1RmTxUk/WvJxBt";

    fn sample() -> Vec<u8> {
        (0..SAMPLE.len() / 2).map(|at| u8::from_str_radix(&SAMPLE[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_sample_of_the_rfc_is_read_and_authentic() {
        let bytes = sample();
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.kind, message.attribute(USERNAME)), (BINDING, Some(&b"evtj:h6vY"[..])));
        assert!(message.is_authentic(PASSWORD) && !message.is_authentic(b"another"));
        for end in 0..bytes.len() {
            assert!(Message::read(&bytes[..end]).is_none());
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = Writer::new(BINDING, [7; 12])
            .attribute(USERNAME, b"a:b")
            .attribute(DTLS_ACK, &[])
            .integrity(PASSWORD)
            .fingerprint();
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.transaction, message.attribute(USERNAME)), ([7; 12], Some(&b"a:b"[..])));
        assert_eq!(message.attribute(DTLS_ACK), Some(&[][..]));
        assert!(message.is_authentic(PASSWORD));
        let crc = crc32fast::hash(&bytes[..bytes.len() - 8]) ^ 0x5354_554e;
        assert_eq!(message.attribute(FINGERPRINT), Some(&crc.to_be_bytes()[..]));
    }
}
