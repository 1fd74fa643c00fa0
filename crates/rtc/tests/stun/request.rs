//! Builds Binding requests, well formed or not, independently of the code under test.

use aws_lc_rs::hmac;

pub(crate) const USERNAME: u16 = 0x0006;
pub(crate) const MESSAGE_INTEGRITY: u16 = 0x0008;
pub(crate) const PRIORITY: u16 = 0x0024;
pub(crate) const USE_CANDIDATE: u16 = 0x0025;
pub(crate) const FINGERPRINT: u16 = 0x8028;
pub(crate) const ICE_CONTROLLED: u16 = 0x8029;
pub(crate) const ICE_CONTROLLING: u16 = 0x802A;

pub(crate) const LOCAL_UFRAG: &str = "server";
pub(crate) const PASSWORD: &str = "0123456789abcdefghijkl";

/// A request whose length field is right after each step.
#[derive(Clone)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// No attributes yet.
    pub(crate) fn empty() -> Self {
        let mut bytes = vec![0x00, 0x01, 0, 0, 0x21, 0x12, 0xA4, 0x42];
        bytes.extend(1..=12);
        Self(bytes)
    }

    /// All that a browser's check has before MESSAGE-INTEGRITY, but for USE-CANDIDATE.
    pub(crate) fn browser() -> Self {
        Self::empty()
            .with(USERNAME, format!("{LOCAL_UFRAG}:cli+/").as_bytes())
            .with(0xC057, &[0, 0, 0, 10])
            .with(ICE_CONTROLLING, &7_u64.to_be_bytes())
            .with(PRIORITY, &1_853_824_767_u32.to_be_bytes())
    }

    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(kind.to_be_bytes());
        self.0.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.measured()
    }

    pub(crate) fn integrity(self, password: &str) -> Self {
        let mut counted = self.0.clone();
        let length = u16::try_from(self.0.len() - 20 + 24).unwrap();
        counted[2..4].copy_from_slice(&length.to_be_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
        self.with(MESSAGE_INTEGRITY, hmac::sign(&key, &counted).as_ref())
    }

    pub(crate) fn fingerprint(self) -> Self {
        let mut counted = self.0.clone();
        let length = u16::try_from(self.0.len() - 20 + 8).unwrap();
        counted[2..4].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&counted) ^ 0x5354_554E;
        self.with(FINGERPRINT, &crc.to_be_bytes())
    }

    /// With integrity of the usual password, and FINGERPRINT.
    pub(crate) fn sealed(self) -> Vec<u8> {
        self.integrity(PASSWORD).fingerprint().0
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }

    fn measured(mut self) -> Self {
        let length = u16::try_from(self.0.len() - 20).unwrap();
        self.0[2..4].copy_from_slice(&length.to_be_bytes());
        self
    }
}
