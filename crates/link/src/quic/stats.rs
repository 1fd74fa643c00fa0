//! What a link counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of one link since its start, and its path at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Least round trip.
    pub min_rtt: Duration,
    /// Largest UDP payload in use.
    pub mtu: u16,
    /// Too much loss or queueing for more calls ([`super::VoiceController`]).
    pub congested: bool,
    /// The window is closing.
    pub closing: bool,
    /// Each frame goes twice.
    pub repeating: bool,
    /// Bytes lost of the last ten seconds or so, in millionths.
    pub loss_ppm: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// QUIC packets lost.
    pub packets_lost: u64,
    /// Datagrams that left, or are about to.
    pub datagrams_sent: u64,
    /// Datagrams that came.
    pub datagrams_received: u64,
    /// Datagrams that waited too long while the window was closing.
    pub datagrams_late: u64,
    /// Datagrams for which there was no room but that of older ones.
    pub datagrams_crowded: u64,
    /// Datagrams that did not fit the path, or came after the end.
    pub datagrams_refused: u64,
    /// Streams of an unknown kind.
    pub streams_unknown: u64,
    /// Streams whose header did not come in time.
    pub streams_silent: u64,
    /// Messages that protobuf could not read.
    pub messages_malformed: u64,
    /// Messages beyond their bound.
    pub messages_oversize: u64,
}

/// A count that a link, its streams and its readers share.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) datagrams_crowded: Count,
    pub(super) datagrams_refused: Count,
    pub(super) streams_unknown: Count,
    pub(super) streams_silent: Count,
    pub(super) messages_malformed: Count,
    pub(super) messages_oversize: Count,
}
