//! The door for what peers send: authentic, meant for this edge, of a peer of the list, fresh, and never seen before.

use std::collections::BTreeMap;

use link::ids::EdgeId;
use link::route::RouteKeys;
use link::route::forward::{CLOCK_SKEW, Window};
use rtc::{Path, Transport};

use super::{Forwarded, via};
use crate::directory::Directory;
use crate::worker::ssrc_of;

/// Why a datagram on the peers' socket was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateDiscard {
    /// It opens with none of our keys.
    Forged,
    /// Its sender is no peer of ours, or it is for another edge.
    Stranger,
    /// The sender's clock is more than 30 s away, or the datagram was under way that long.
    Stale,
    /// It was here before.
    Replayed,
}

impl GateDiscard {
    /// Every one, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Forged, Self::Stranger, Self::Stale, Self::Replayed];

    /// The value of the metric's label `reason`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Forged => "forged",
            Self::Stranger => "stranger",
            Self::Stale => "stale",
            Self::Replayed => "replayed",
        }
    }
}

/// One per edge: it knows what each peer has sent.
#[derive(Debug)]
pub struct Gate {
    edge: EdgeId,
    windows: BTreeMap<EdgeId, Window>,
}

impl Gate {
    /// For an edge with these peers.
    #[must_use]
    pub fn new(edge: EdgeId, peers: &[EdgeId]) -> Self {
        Self { edge, windows: peers.iter().map(|peer| (*peer, Window::default())).collect() }
    }

    /// Opens a datagram.
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn open(&mut self, keys: &RouteKeys, unix_seconds: u32, bytes: &[u8]) -> Result<Forwarded, GateDiscard> {
        let forward = keys.open_forward(bytes).ok_or(GateDiscard::Forged)?;
        let window = self.windows.get_mut(&forward.from).filter(|_| forward.to == self.edge);
        let window = window.ok_or(GateDiscard::Stranger)?;
        if forward.time.abs_diff(unix_seconds) > CLOCK_SKEW {
            return Err(GateDiscard::Stale);
        }
        if !window.accept(forward.seq) {
            return Err(GateDiscard::Replayed);
        }
        Ok(Forwarded {
            kind: forward.kind,
            from: forward.from,
            path: Path {
                local: forward.local,
                remote: forward.remote,
                transport: if forward.over_tcp { Transport::Tcp } else { Transport::Udp },
            },
            datagram: forward.datagram.to_vec(),
        })
    }

    /// The worker that most likely has what it is about; any other one passes it on.
    #[must_use]
    pub fn worker_for(directory: &Directory, forwarded: &Forwarded) -> u32 {
        let Forwarded { from, path, datagram, .. } = forwarded;
        directory
            .worker_of(&via(*from, *path))
            .or_else(|| directory.worker_of(path))
            .or_else(|| directory.pop.worker_of(ssrc_of(datagram)?))
            .unwrap_or_else(|| u32::from(path.remote.port()) % directory.workers())
    }
}
