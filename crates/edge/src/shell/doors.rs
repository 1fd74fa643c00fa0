//! What came to the TCP port and did not get in, and what holds places there.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{counter, gauge};

use crate::tcp::Places;

/// Why a connection ended before it was of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// No place is free, for its source or at all.
    Crowded,
    /// It did not say what it is, or not in time.
    Silent,
    /// What it said first is neither TLS nor HTTP nor a frame of RFC 4571, or is not served here.
    Unknown,
    /// Its TLS handshake failed.
    Tls,
    /// Its first frame is no check, or its check is not authentic.
    Forged,
    /// Its session is over, or its worker takes no further ones at the moment.
    Unplaced,
}

impl Refused {
    const ALL: [Self; 6] = [Self::Crowded, Self::Silent, Self::Unknown, Self::Tls, Self::Forged, Self::Unplaced];

    fn label(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
            Self::Tls => "tls",
            Self::Forged => "forged",
            Self::Unplaced => "unplaced",
        }
    }
}

/// The counters of the port, and of the WebRTC connections that came through it.
#[derive(Debug)]
pub(super) struct Doors {
    refused: [AtomicU64; Refused::ALL.len()],
    /// WebRTC connections that were taken.
    pub(super) taken: AtomicU64,
    /// Frames dropped because their reader was slow, or gone.
    pub(super) frames_dropped: AtomicU64,
    /// WebRTC connections.
    pub(super) places: Places,
}

impl Doors {
    pub(super) fn new(places: Places) -> Self {
        let (taken, frames_dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { refused: Default::default(), taken, frames_dropped, places }
    }

    pub(super) fn count(&self, refused: Refused) {
        if let Some(at) = Refused::ALL.iter().position(|one| *one == refused) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn publish(&self) {
        for (refused, count) in Refused::ALL.into_iter().zip(&self.refused) {
            counter!("fronthaul_edge_connections_refused_total", "reason" => refused.label())
                .absolute(count.load(Ordering::Relaxed));
        }
        counter!("fronthaul_edge_tcp_connections_total").absolute(self.taken.load(Ordering::Relaxed));
        counter!("fronthaul_edge_tcp_frames_dropped_total").absolute(self.frames_dropped.load(Ordering::Relaxed));
        gauge!("fronthaul_edge_tcp_connections").set(f64::from(u32::try_from(self.places.taken()).unwrap_or(u32::MAX)));
    }
}
