//! What leaves a worker: datagrams to clients in reused buffers, batches to transceivers, and everything else.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use link::datagram::{BatchWriter, MediaUp, PlayoutReport};
use link::ids::{EdgeId, Epoch, SessionId, TransceiverId};
use link::proto::{EdgeMessage, OpenRequest, ReleaseRequest};
use rtc::Path;

use super::peers::{self, Port};
use super::stats::Stats;

/// Buffers kept for reuse: the answers to one receive batch, the frames of one turn, and some.
const MAX_SPARE: usize = 256;

/// The grain of the pacer: at a thousand sessions 50 frames are due in each. It may add this much delay, once.
const TICK: Duration = Duration::from_millis(1);

/// What the driver of a worker does for it. Datagrams to clients come from [`super::Worker::poll_transmit`].
#[derive(Debug)]
pub enum Output {
    /// Leave this datagram in another worker's mailbox.
    HandOver {
        /// Whose.
        worker: u32,
        /// Where it came from and to.
        path: Path,
        /// The whole of it.
        datagram: Vec<u8>,
    },
    /// Call Open on the link to this transceiver, then open the session stream; answer with
    /// [`super::LinkInput::Opened`] or [`super::LinkInput::OpenFailed`].
    Open {
        /// Where.
        transceiver: TransceiverId,
        /// What.
        request: OpenRequest,
    },
    /// Send on the session stream.
    Message {
        /// Where.
        transceiver: TransceiverId,
        /// Of which session.
        session: SessionId,
        /// Of which epoch.
        epoch: Epoch,
        /// What.
        message: EdgeMessage,
    },
    /// Send as a QUIC datagram.
    Datagram {
        /// Where.
        transceiver: TransceiverId,
        /// One batch.
        batch: Bytes,
    },
    /// Send to another edge of the PoP.
    Forward {
        /// Which.
        peer: EdgeId,
        /// Sealed.
        bytes: Vec<u8>,
    },
    /// Call Release, which also ends the session stream.
    Release {
        /// Where.
        transceiver: TransceiverId,
        /// What.
        request: ReleaseRequest,
    },
}

struct Uplink {
    transceiver: TransceiverId,
    frames: BatchWriter,
    reports: BatchWriter,
    /// The link loses: each frame goes twice.
    repeat: bool,
}

/// Everything on its way out.
pub(crate) struct Io {
    begin: Instant,
    transmits: VecDeque<(Path, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    outputs: VecDeque<Output>,
    uplinks: Vec<Uplink>,
    pub(crate) stats: Stats,
    /// The way to the other edges, if there are any.
    pub(super) port: Option<Box<Port>>,
}

impl Io {
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            begin,
            transmits: VecDeque::with_capacity(MAX_SPARE),
            spare: Vec::with_capacity(MAX_SPARE),
            outputs: VecDeque::new(),
            uplinks: Vec::new(),
            stats: Stats::default(),
            port: None,
        }
    }

    /// The first tick at or after `at`. A session's slots are a multiple of ticks apart, so each of its frames waits for
    /// as long as the others, and the time between two is right.
    pub(crate) fn tick(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.begin).as_nanos();
        let tick = since.div_ceil(TICK.as_nanos()) * TICK.as_nanos();
        u64::try_from(tick).map_or(at, |nanos| self.begin + Duration::from_nanos(nanos))
    }

    /// A buffer to write a datagram into; give it to [`Self::transmit`] or [`Self::recycle`].
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn transmit(&mut self, path: Path, datagram: Vec<u8>) {
        if peers::leads_via(&path) {
            self.transmit_via(&path, &datagram);
            self.recycle(datagram);
            return;
        }
        self.transmits.push_back((path, datagram));
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(buffer);
        }
    }

    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Path> {
        let (path, mut datagram) = self.transmits.pop_front()?;
        std::mem::swap(out, &mut datagram);
        self.recycle(datagram);
        Some(path)
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Puts a frame into the pending batch; `false` when it is too large for any.
    pub(crate) fn frame(&mut self, now: Instant, transceiver: TransceiverId, frame: &MediaUp<'_>) -> bool {
        let clock = self.clock32(now);
        let index = self.uplink(transceiver);
        let frames = &mut self.uplinks[index].frames;
        if frames.push_frame(frame) {
            return true;
        }
        if !frames.is_empty() {
            let batch = frames.take(clock);
            self.outputs.push_back(Output::Datagram { transceiver, batch });
        }
        self.uplinks[index].frames.push_frame(frame)
    }

    /// Whether frames to this transceiver go twice.
    pub(crate) fn repeats(&mut self, transceiver: TransceiverId) -> bool {
        let index = self.uplink(transceiver);
        self.uplinks[index].repeat
    }

    pub(crate) fn set_repeat(&mut self, transceiver: TransceiverId, repeat: bool) {
        let index = self.uplink(transceiver);
        self.uplinks[index].repeat = repeat;
    }

    /// Microseconds since the worker began.
    pub(crate) fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begin).as_micros()).unwrap_or(u64::MAX)
    }

    /// Puts a report into the pending batch.
    pub(crate) fn report(&mut self, now: Instant, transceiver: TransceiverId, report: &PlayoutReport) {
        let clock = self.clock32(now);
        let index = self.uplink(transceiver);
        let reports = &mut self.uplinks[index].reports;
        if reports.push_report(report) {
            return;
        }
        let batch = reports.take(clock);
        self.outputs.push_back(Output::Datagram { transceiver, batch });
        // An empty batch holds any report.
        let _ = self.uplinks[index].reports.push_report(report);
    }

    /// Lets the pending batches go.
    pub(crate) fn end_of_batch(&mut self, now: Instant) {
        let clock = self.clock32(now);
        if let Some(port) = &mut self.port {
            port.now = now;
        }
        let Self { uplinks, outputs, .. } = self;
        for Uplink { transceiver, frames, reports, .. } in uplinks {
            for writer in [frames, reports] {
                if !writer.is_empty() {
                    outputs.push_back(Output::Datagram { transceiver: *transceiver, batch: writer.take(clock) });
                }
            }
        }
    }

    /// A worker has a handful of transceivers: a scan is quicker than a table.
    fn uplink(&mut self, transceiver: TransceiverId) -> usize {
        self.uplinks.iter().position(|u| u.transceiver == transceiver).unwrap_or_else(|| {
            let (frames, reports) = (BatchWriter::media_up(), BatchWriter::playout());
            self.uplinks.push(Uplink { transceiver, frames, reports, repeat: false });
            self.uplinks.len() - 1
        })
    }

    /// Microseconds since the worker began, low 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "the clock on the wire is modulo 2^32")]
    fn clock32(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.begin).as_micros() as u32
    }
}
