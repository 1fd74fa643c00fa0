//! WebSocket sessions, without I/O: what a request asks for, the handshake, why a session ends, and what waits for its client.
//!
//! `signaling::websocket` answers the request and hands a [`Joining`] over; `shell::websocket` carries it from there.

mod deflate;
mod ending;
mod handshake;
mod outbox;
mod query;
mod rsv1;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::upgrade::OnUpgrade;
use link::ids::{SessionId, TransceiverId};
use link::proto::OpenRequest;
use tokio::sync::{mpsc, watch};

pub use deflate::{DEFLATE_MIN, Deflater, EXTENSION, Refused};
pub use ending::{Ending, Reason, error_event};
pub use handshake::{Handshake, SUBPROTOCOL};
pub use outbox::{FAIR, OUTBOX_MAX, Outbox, QUEUED_MAX, SlowReader};
pub use query::{Asked, Azure};
pub use rsv1::{Kind, Rsv1};

use crate::directory::Directory;
use crate::seats::Seat;
use crate::tcp::{Place, Places};

/// The largest message of a client: 1 MiB with the envelope in which it crosses the link.
pub const MESSAGE_MAX: usize = (1 << 20) - 64;

/// Sessions that wait for the thread, which takes them in a turn of its loop.
const ARRIVALS: usize = 256;

/// What a client joins.
#[derive(Debug)]
pub enum Wanted {
    /// A session of its own.
    Session {
        /// As the transceiver is asked for it; epoch 1.
        request: Box<OpenRequest>,
        /// Where.
        seat: Seat,
        /// Its place among the calls of its key.
        held: Option<Arc<crate::auth::Held>>,
    },
    /// A call that runs.
    Sideband {
        /// Which.
        session: SessionId,
        /// Whose.
        tenant: u16,
    },
    /// The answer to a client of the beta.
    Beta,
}

/// A request that was answered with 101.
#[derive(Debug)]
pub struct Joining {
    /// The connection, once the answer is out.
    pub upgrade: OnUpgrade,
    /// What it is for.
    pub wanted: Wanted,
    /// Its messages may be deflated.
    pub deflate: bool,
    /// Its place among WebSockets.
    pub place: Place,
}

/// The WebSocket sessions of an edge, as signaling, metrics and the stop see them.
#[derive(Debug)]
pub struct WebSockets {
    /// Places.
    pub places: Places,
    arrivals: mpsc::Sender<Joining>,
    arriving: Mutex<Option<mpsc::Receiver<Joining>>>,
    stop: watch::Sender<bool>,
    closed: [AtomicU64; Reason::ALL.len()],
    queued: AtomicU64,
    /// Events that no client got, and their bytes.
    dropped: [AtomicU64; 2],
    /// Deflated messages: too large, and broken.
    refused: [AtomicU64; 2],
}

impl WebSockets {
    /// So many at once, and of one source.
    #[must_use]
    pub fn new(in_all: usize, per_source: usize) -> Self {
        let (arrivals, arriving) = mpsc::channel(ARRIVALS);
        Self {
            places: Places::new(in_all, per_source),
            arrivals,
            arriving: Mutex::new(Some(arriving)),
            stop: watch::Sender::new(false),
            closed: Default::default(),
            queued: AtomicU64::new(0),
            dropped: Default::default(),
            refused: Default::default(),
        }
    }

    /// A client joins. `false`: too many join at this moment.
    #[must_use]
    pub fn join(&self, joining: Joining) -> bool {
        self.arrivals.try_send(joining).is_ok()
    }

    /// Those who join, for the one thread that serves them.
    pub(crate) fn arriving(&self) -> Option<mpsc::Receiver<Joining>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends all of them.
    pub(crate) fn close_all(&self) {
        self.stop.send_replace(true);
    }

    /// Tells when all are to end.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    pub(crate) fn count(&self, reason: Reason) {
        self.closed[reason.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions that ended, by why.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(&self.closed).map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }

    /// More, or less, waits for clients.
    pub(crate) fn queued_more(&self, bytes: usize) {
        self.queued.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn queued_less(&self, bytes: usize) {
        self.queued.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// All clients together hold more than is good.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queued() >= QUEUED_MAX as u64
    }

    /// Events whose client did not read them before the end.
    pub(crate) fn drop_events(&self, events: usize, bytes: usize) {
        for (count, more) in self.dropped.iter().zip([events, bytes]) {
            count.fetch_add(more as u64, Ordering::Relaxed);
        }
    }

    /// How many events clients did not read before the end, and their bytes.
    pub(crate) fn dropped(&self) -> [u64; 2] {
        self.dropped.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// A deflated message was not inflated.
    pub(crate) fn refuse(&self, refused: Refused) {
        self.refused[usize::from(refused == Refused::Broken)].fetch_add(1, Ordering::Relaxed);
    }

    /// Deflated messages that would have been too large, and those that were no deflate.
    pub(crate) fn refused(&self) -> [u64; 2] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Bytes of events that wait for clients.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Where a call is, for a client that wants to join it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// At this transceiver.
    At(TransceiverId),
    /// No transceiver has taken it yet.
    Nowhere,
    /// It is over, or the edge answers it by itself and there are no events.
    Gone,
}

/// Looks a call up.
pub(crate) fn whereabouts(directory: &Directory, session: SessionId) -> Whereabouts {
    match directory.get(session) {
        None => Whereabouts::Gone,
        Some(entry) => match entry.place() {
            None => Whereabouts::Nowhere,
            Some(crate::seats::LOCAL) => Whereabouts::Gone,
            Some(transceiver) => Whereabouts::At(transceiver),
        },
    }
}
