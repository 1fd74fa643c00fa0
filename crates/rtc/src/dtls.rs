//! DTLS 1.2/1.3 for one client over `dimpl`: handshake, fingerprint check, SRTP keys, SCTP's carrier.
//!
//! # Run loop
//!
//! [`Dtls::start`] once a path is checked, which as a client sends, then [`Dtls::handle_datagram`], [`Dtls::handle_timeout`] at
//! [`Dtls::poll_timeout`], [`Dtls::send`], and after each of them [`Dtls::poll_output`] until it is empty.
//!
//! # Invariant
//!
//! Nothing of the client's is handed out, and no flight of ours that completes the handshake leaves, before its
//! certificate matched the offer's fingerprints. A failure, a panic of the engine's among them, ends this
//! session alone: the engine is dropped and [`Output::Failed`] is the last output.
//!
//! # Departures
//!
//! * Client certificates are ECDSA P-256 or P-384: the engine verifies no RSA signature, and browsers use P-256.
//! * No alert tells the client why it was refused: the engine offers none.

mod identity;
mod key;
mod records;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;

pub use identity::{Identity, IdentityMismatch};

use crate::sdp::Fingerprint;
use crate::{CloseReason, Discard, SrtpProfile};

/// Larger than any record of ours and than a client's usual certificate; larger outputs get a larger buffer.
const BUFFER_BYTES: usize = 2048;

/// No output of the engine's is larger: DTLS plaintext is at most 2^14 bytes, a certificate chain at most 2^16.
const MAX_OUTPUT_BYTES: usize = 1 << 16;

/// Datagrams kept that came before what they need: the rest of a server's flight before its ServerHello, 2-4 with a
/// large certificate.
const EARLY_MAX: usize = 4;

/// Application data kept that overtook the end of the handshake: an SCTP that waits for its INIT-ACK sends one packet, one
/// that need not (SNAP) its whole initial window, which is 10. 10 of 1500 bytes are 15 KB, until the handshake ends.
pub(crate) const EARLY_DATA_MAX: usize = 10;

/// Time to the first resend of a flight where no round trip was measured ([`Dtls::expect_round_trip`]), as with the
/// ClientHello of ours, which is the first that the client hears of us but for a response. Enough for round trips up to
/// 110 ms; a longer path gets one flight (700 bytes) twice, which costs less than the whole second of RFC 6347 §4.2.4.1 on
/// a lossy one.
const FIRST_RESEND: Duration = Duration::from_millis(150);

/// A deadline further away than this is the engine's way to say "none".
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// What comes out, in order.
#[derive(Debug)]
pub(crate) enum Output {
    /// Send this.
    Datagram(Vec<u8>),
    /// The handshake is done, the fingerprint matched, these are the keys.
    Connected {
        /// 0xFEFD or 0xFEFC.
        version: u16,
        /// Agreed SRTP profile.
        profile: SrtpProfile,
        /// Exported keying material (RFC 5764 §4.2).
        keys: Vec<u8>,
    },
    /// Application data: one SCTP packet.
    Data(Vec<u8>),
    /// The client sent close_notify; ours precedes this.
    Closed,
    /// The end, by refusal or failure.
    Failed(CloseReason),
}

/// One client's DTLS.
pub(crate) struct Dtls {
    /// Missing before a client role's start, before the client's first datagram, and after the end.
    engine: Option<dimpl::Dtls>,
    active: bool,
    identity: Identity,
    fingerprints: Vec<Fingerprint>,
    phase: Phase,
    /// Handshake datagrams that overtook the ServerHello.
    early: Vec<Vec<u8>>,
    /// Application data that overtook the client's last flight. The engine would drop it.
    early_data: Vec<Vec<u8>>,
    outputs: VecDeque<Output>,
    first_resend: Duration,
    deadline: Option<Instant>,
    /// The engine wants time to be monotonic.
    latest: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No certificate of the client's was seen.
    Unverified,
    /// The certificate matched.
    Verified,
    /// The engine finished; its keys are the next output.
    Finished,
    /// Keys were handed out.
    Connected,
    /// After close_notify either way, refusal or failure.
    Ended,
}

impl Dtls {
    /// An engine in the role that the answer said. As a server it waits; as a client it waits for [`Dtls::start`].
    pub(crate) fn new(now: Instant, active: bool, identity: &Identity, fingerprints: Vec<Fingerprint>) -> Self {
        Self {
            engine: None,
            active,
            identity: identity.clone(),
            fingerprints,
            phase: Phase::Unverified,
            early: Vec::new(),
            early_data: Vec::new(),
            outputs: VecDeque::new(),
            first_resend: FIRST_RESEND,
            deadline: None,
            latest: now,
        }
    }

    /// The round trip to the client takes at most so long: a flight that was not answered within one and a half is sent
    /// again (RFC 9147 §5.8.2), but not within 50 ms and at the latest after a second. The engine varies that by a quarter,
    /// so never ahead of an answer that is on time. Changes nothing for an engine that is at work already.
    pub(crate) fn expect_round_trip(&mut self, round_trip: Duration) {
        self.first_resend = round_trip.saturating_mul(3) / 2;
    }

    /// Whether the next datagram from the client is its first.
    pub(crate) fn is_untouched(&self) -> bool {
        self.engine.is_none() && self.phase == Phase::Unverified
    }

    /// The version, once there are keys: 0xFEFD or 0xFEFC.
    pub(crate) fn connected_version(&self) -> Option<u16> {
        let version = self.engine.as_ref().and_then(dimpl::Dtls::protocol_version);
        version.filter(|_| self.phase == Phase::Connected).map(|version| version.as_u16())
    }

    /// The datagrams among what [`Dtls::poll_output`] is to return.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.outputs.iter().filter_map(|output| match output {
            Output::Datagram(datagram) => Some(datagram.as_slice()),
            _ => None,
        })
    }

    /// Takes a datagram out of the outputs: it was sent in another way.
    pub(crate) fn withdraw(&mut self, sent: &[u8]) {
        self.outputs.retain(|output| !matches!(output, Output::Datagram(datagram) if datagram == sent));
    }

    /// A path exists: as the client, sends the ClientHello. Later calls change nothing.
    pub(crate) fn start(&mut self, now: Instant) {
        if self.active && self.engine.is_none() && self.phase == Phase::Unverified {
            self.create(now);
            self.drain();
        }
    }

    /// Takes a datagram of class DTLS from a checked path.
    pub(crate) fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), Discard> {
        if self.phase == Phase::Ended || !records::well_formed(datagram) {
            return Err(Discard::Dtls);
        }
        let undecided = self.engine.as_ref().is_none_or(|engine| engine.protocol_version().is_none());
        if undecided && !self.active && !records::is_client_hello(datagram) {
            // The engine keeps all it is given until the ClientHello is whole, and gives up at 64 datagrams.
            return Err(Discard::Dtls);
        }
        if self.engine.is_none() && !self.active {
            self.create(now);
        }
        if self.engine.is_none() {
            return Err(Discard::Dtls);
        }
        if self.phase == Phase::Connected && records::is_plain_after_handshake(datagram) {
            return Err(Discard::Dtls);
        }
        if undecided && self.active && !records::starts_with_server_hello(datagram) {
            // The engine ends on anything but a ServerHello here; a later datagram of the flight may come first.
            if self.early.len() == EARLY_MAX || !records::may_overtake_server_hello(datagram) {
                return Err(Discard::Dtls);
            }
            self.early.push(datagram.to_vec());
            return Ok(());
        }
        if self.phase != Phase::Connected && records::is_application_data(datagram) {
            if undecided || self.early_data.len() == EARLY_DATA_MAX {
                return Err(Discard::Dtls);
            }
            self.early_data.push(datagram.to_vec());
            return Ok(());
        }
        self.feed(now, datagram);
        for early in std::mem::take(&mut self.early) {
            self.feed(now, &early);
        }
        if self.phase == Phase::Connected {
            for early in std::mem::take(&mut self.early_data) {
                self.feed(now, &early);
            }
        }
        Ok(())
    }

    /// Resends what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.advance(now);
            self.drain();
        }
    }

    /// Sends one SCTP packet. Before the end of the handshake it is dropped: SCTP starts after it.
    pub(crate) fn send(&mut self, now: Instant, data: &[u8]) {
        if self.phase == Phase::Connected {
            self.advance(now);
            self.run(|engine| engine.send_application_data(data).map(drop));
            // After each packet, because the engine's queue is short.
            self.drain();
        }
    }

    /// Sends close_notify if there is somebody to tell. Nothing is received afterwards.
    pub(crate) fn close(&mut self, now: Instant) {
        if self.phase == Phase::Connected {
            self.advance(now);
            self.run(dimpl::Dtls::close);
            self.drain();
        }
        self.end();
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Dtls::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn create(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        let (config, certificate) = self.identity.engine_parts(self.first_resend);
        let (active, latest) = (self.active, self.latest);
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut engine = dimpl::Dtls::new_auto(config, certificate, latest);
            if active {
                engine.set_active(true);
            }
            // The server engine panics on a datagram before its first timeout.
            engine.handle_timeout(latest).map(|()| engine)
        }));
        match made {
            Ok(Ok(engine)) => self.engine = Some(engine),
            Ok(Err(_)) | Err(_) => self.fail(CloseReason::DtlsFailed),
        }
    }

    fn feed(&mut self, now: Instant, datagram: &[u8]) {
        self.advance(now);
        self.run(|engine| engine.handle_packet(datagram));
        self.drain();
    }

    fn advance(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        let latest = self.latest;
        self.run(|engine| engine.handle_timeout(latest));
    }

    /// Calls the engine. Each of its errors is final, and so is a panic.
    fn run(&mut self, call: impl FnOnce(&mut dimpl::Dtls) -> Result<(), dimpl::Error>) {
        let Some(engine) = &mut self.engine else { return };
        match catch_unwind(AssertUnwindSafe(|| call(engine))) {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => self.fail(CloseReason::DtlsFailed),
        }
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(engine) = &mut self.engine {
            let fingerprints = &self.fingerprints;
            let Ok(polled) = catch_unwind(AssertUnwindSafe(|| poll(engine, &mut buffer, fingerprints))) else {
                self.fail(CloseReason::DtlsFailed);
                return;
            };
            match polled {
                Polled::Datagram(datagram) => self.outputs.push_back(Output::Datagram(datagram)),
                Polled::TooSmall(needed) if needed <= MAX_OUTPUT_BYTES => buffer.resize(needed, 0),
                Polled::TooSmall(_) => self.fail(CloseReason::DtlsFailed),
                Polled::Timeout(at) => {
                    self.deadline = (at.saturating_duration_since(self.latest) < IDLE).then_some(at);
                    break;
                }
                Polled::Certificate { matches: true } => self.phase = Phase::Verified,
                Polled::Certificate { matches: false } => self.fail(CloseReason::FingerprintMismatch),
                Polled::Finished if self.phase == Phase::Verified => self.phase = Phase::Finished,
                Polled::Finished => self.fail(CloseReason::FingerprintMismatch),
                Polled::Keys(keys, profile) => self.connected(keys, profile),
                Polled::Data(data) if self.phase == Phase::Connected => self.outputs.push_back(Output::Data(data)),
                Polled::CloseNotify => {
                    self.run(dimpl::Dtls::close);
                    self.drain_last();
                    self.end();
                    self.outputs.push_back(Output::Closed);
                }
                Polled::Data(_) | Polled::Other => {}
            }
        }
        if self.phase == Phase::Finished {
            // The keys follow the end of the handshake at once, or no SRTP profile was agreed.
            self.fail(CloseReason::DtlsFailed);
        }
    }

    /// Takes what is left to send after a close.
    fn drain_last(&mut self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(engine) = &mut self.engine {
            match catch_unwind(AssertUnwindSafe(|| poll(engine, &mut buffer, &[]))) {
                Ok(Polled::Datagram(datagram)) => self.outputs.push_back(Output::Datagram(datagram)),
                Ok(Polled::Timeout(_) | Polled::TooSmall(_)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn connected(&mut self, keys: Vec<u8>, profile: dimpl::SrtpProfile) {
        let profile = match profile {
            dimpl::SrtpProfile::AEAD_AES_256_GCM => SrtpProfile::AeadAes256Gcm,
            dimpl::SrtpProfile::AEAD_AES_128_GCM => SrtpProfile::AeadAes128Gcm,
            dimpl::SrtpProfile::AES128_CM_SHA1_80 => SrtpProfile::Aes128CmSha1_80,
            _ => return self.fail(CloseReason::DtlsFailed),
        };
        let version = self.engine.as_ref().and_then(dimpl::Dtls::protocol_version);
        let (Phase::Finished, Some(version)) = (self.phase, version) else {
            return self.fail(CloseReason::DtlsFailed);
        };
        self.phase = Phase::Connected;
        self.outputs.push_back(Output::Connected { version: version.as_u16(), profile, keys });
    }

    fn fail(&mut self, reason: CloseReason) {
        if self.phase != Phase::Ended {
            self.end();
            self.outputs.push_back(Output::Failed(reason));
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.engine = None;
        self.deadline = None;
        self.early = Vec::new();
        self.early_data = Vec::new();
    }
}

/// The engine's output, owned, so that it can leave the guard against panics.
enum Polled {
    Datagram(Vec<u8>),
    TooSmall(usize),
    Timeout(Instant),
    Certificate { matches: bool },
    Finished,
    Keys(Vec<u8>, dimpl::SrtpProfile),
    Data(Vec<u8>),
    CloseNotify,
    Other,
}

fn poll(engine: &mut dimpl::Dtls, buffer: &mut [u8], fingerprints: &[Fingerprint]) -> Polled {
    match engine.poll_output(buffer) {
        dimpl::Output::Packet(datagram) => Polled::Datagram(datagram.to_vec()),
        dimpl::Output::BufferTooSmall { needed } => Polled::TooSmall(needed),
        dimpl::Output::Timeout(at) => Polled::Timeout(at),
        dimpl::Output::PeerCert(certificate) => {
            Polled::Certificate { matches: matches_fingerprints(fingerprints, certificate) }
        }
        dimpl::Output::Connected => Polled::Finished,
        dimpl::Output::KeyingMaterial(keys, profile) => Polled::Keys(keys.to_vec(), profile),
        dimpl::Output::ApplicationData(data) => Polled::Data(data.to_vec()),
        dimpl::Output::CloseNotify => Polled::CloseNotify,
        _ => Polled::Other,
    }
}

/// RFC 8122 §5.1: of the fingerprints with a hash known here, each must match, and there must be one.
fn matches_fingerprints(fingerprints: &[Fingerprint], certificate: &[u8]) -> bool {
    let mut known = fingerprints.iter().filter_map(|fingerprint| {
        let hash = match fingerprint.hash.as_str() {
            "sha-256" => &digest::SHA256,
            "sha-384" => &digest::SHA384,
            "sha-512" => &digest::SHA512,
            _ => return None,
        };
        Some(digest::digest(hash, certificate).as_ref() == fingerprint.digest)
    });
    known.next().is_some_and(|first| first && known.all(|matches| matches))
}
