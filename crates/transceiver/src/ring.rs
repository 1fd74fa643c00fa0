//! What the link thread and a CPU worker say to each other, and how much of it may wait.
//!
//! Two rings lead to a worker, so that control never queues behind audio and audio can be dropped without touching
//! control; one leads back, in order. A full media ring drops the newest frame, counted: its consumer alone could take out
//! the oldest. A full control ring makes its producers wait, and a full ring to the link makes its worker wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use bytes::Bytes;
use link::datagram::{Codec, PlayoutReport};
use link::ids::Slot;
use link::proto::{ChannelMessage, EdgeMessage, OpenRequest, edge_message};

use crate::call::CallOutput;

/// Frames that wait for a worker: 40 ms of 1024 speaking calls (50 frames/s each), all on one worker, is 2048. It is also
/// the longest that a frame waits: a worker that takes 40 us for each is 82 ms behind when the ring is full.
pub(crate) const MEDIA: usize = 2048;

/// Messages that wait for a worker: one of each of 1024 calls at once (a drain, a lost link). Beyond it producers wait.
pub(crate) const CONTROL: usize = 1024;

/// Bytes of clients' messages among them: 16 of the largest. Beyond it producers wait.
pub(crate) const CONTROL_BYTES: usize = 16 << 20;

/// Outputs that wait for the link thread: 3 frames per call and turn of the worker's loop, and a message or two beside
/// them, for 1024 calls. Beyond it the worker waits.
pub(crate) const OUTPUTS: usize = 4096;

/// A call inside this process; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CallKey(pub(crate) u64);

/// To a worker, never dropped.
#[derive(Debug)]
pub(crate) enum Control {
    /// Seat a call.
    Open { key: CallKey, request: Box<OpenRequest>, slot: Slot, seed: u64 },
    /// From its session stream.
    Message { key: CallKey, message: EdgeMessage },
    /// Somebody listens beside the client, or nobody any more.
    Attended { key: CallKey, attended: bool },
    /// From somebody who is attached.
    Attached { key: CallKey, message: ChannelMessage },
    /// The link to its edge is congested, or no longer.
    Congested { key: CallKey, congested: bool },
    /// End it; the client is told.
    Close { key: CallKey, reason: &'static str },
    /// Forget it: nobody is there any more.
    Forget { key: CallKey },
    /// No more calls come, those that are here are forgotten.
    Stop,
}

impl Control {
    /// Bytes of a client's in it.
    pub(crate) fn client_bytes(&self) -> usize {
        match self {
            Self::Message {
                message: EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) }, ..
            }
            | Self::Attached { message, .. } => message.data.len(),
            _ => 0,
        }
    }
}

/// To a worker, dropped when it falls behind.
#[derive(Debug)]
pub(crate) enum Media {
    /// One frame of the user's. The payload shares the datagram's buffer: nothing is copied or allocated.
    Frame(Frame),
    /// Where playout stands.
    Report { key: CallKey, report: PlayoutReport },
}

/// [`link::datagram::MediaUp`] without its borrow.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) key: CallKey,
    pub(crate) slot: Slot,
    pub(crate) epoch: u8,
    pub(crate) codec: Codec,
    pub(crate) marker: bool,
    pub(crate) seq: u16,
    pub(crate) rtp_timestamp: u32,
    pub(crate) audio_level: Option<u8>,
    pub(crate) age_us: u32,
    pub(crate) payload: Bytes,
}

/// From a worker.
#[derive(Debug)]
pub(crate) struct FromWorker {
    pub(crate) key: CallKey,
    pub(crate) output: CallOutput,
}

/// What a worker counts, for the link thread to publish.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounts {
    /// Calls it owns.
    pub(crate) calls: AtomicU64,
    /// Frames that came too late for their call, or of another epoch.
    pub(crate) stale: AtomicU64,
    /// Frames handled.
    pub(crate) media: AtomicU64,
    /// Messages that were ignored.
    pub(crate) ignored: AtomicU64,
    /// Frames that came a second time.
    pub(crate) repeated: AtomicU64,
    /// Of clients' messages in the control ring: written by both ends.
    pub(crate) client_bytes: AtomicUsize,
    /// [`voice::StreamStats::values`].
    pub(crate) stream: [AtomicU64; 8],
}

/// The link thread's end of the rings to one worker.
pub(crate) struct ToWorker {
    media: rtrb::Producer<Media>,
    control: rtrb::Producer<Control>,
    thread: Thread,
    counts: Arc<WorkerCounts>,
    /// Frames and reports dropped because the ring was full.
    dropped: u64,
}

impl ToWorker {
    pub(crate) fn new(
        media: rtrb::Producer<Media>,
        control: rtrb::Producer<Control>,
        thread: Thread,
        counts: Arc<WorkerCounts>,
    ) -> Self {
        Self { media, control, thread, counts, dropped: 0 }
    }

    /// Offers a frame or report; a full ring drops it. Wake the worker after the last of a batch.
    pub(crate) fn media(&mut self, media: Media) {
        if self.media.push(media).is_err() {
            self.dropped += 1;
        }
    }

    /// Offers a control message and wakes the worker; gives it back when the ring is full, or holds enough of clients' messages.
    pub(crate) fn control(&mut self, control: Control) -> Result<(), Control> {
        let bytes = control.client_bytes();
        let waiting = self.counts.client_bytes.load(Ordering::Relaxed);
        // Other ends of what it counts only take away.
        if bytes > 0 && waiting > 0 && waiting + bytes > CONTROL_BYTES {
            return Err(control);
        }
        self.counts.client_bytes.fetch_add(bytes, Ordering::Relaxed);
        let pushed = self.control.push(control).map_err(|rtrb::PushError::Full(control)| control);
        if pushed.is_err() {
            self.counts.client_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.wake();
        pushed
    }

    /// A worker that runs takes no notice; one that sleeps looks into its rings.
    pub(crate) fn wake(&self) {
        self.thread.unpark();
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn read(&self, count: impl Fn(&WorkerCounts) -> &AtomicU64) -> u64 {
        count(&self.counts).load(Ordering::Relaxed)
    }
}
