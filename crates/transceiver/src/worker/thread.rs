//! The thread of a worker: rings in, rings out, sleep until a deadline or a wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;
use voice::{DecisionKind, TurnTiming};

use super::{Left, Worker};
use crate::call::CallConfig;
use crate::record::desk::{self, Ask, Mailbox};
use crate::record::otlp::Spans;
use crate::record::{ExportedTurn, Over, Told, TurnRecord};
use crate::ring::{CONTROL, Control, FromWorker, MEDIA, Media, OUTPUTS, ToWorker, WorkerCounts};

/// Frames and deadlines handled in one turn of the loop: 16 x (40 us decode and detection, or 3 x 300 us encode) keeps a
/// turn to a few milliseconds at worst; control is looked at between.
const BATCH: usize = 16;

/// Control messages in a turn: a client that floods its channel waits for the others' audio, too. Each costs 10 us usually.
const CONTROL_BATCH: usize = 32;

/// ... and what they take together, as some are large (20,000 JSON values make a tree of 12 MB at worst): a tenth of a frame.
const CONTROL_TIME: Duration = Duration::from_millis(2);

/// While the ring to the link thread is full.
const BACKOFF: Duration = Duration::from_millis(1);

/// Counts of a busy worker are at most this old.
const PUBLISH: Duration = Duration::from_millis(100);

/// Sleep without any deadline; a wake-up ends it.
const IDLE: Duration = Duration::from_secs(1);

/// The ends of a worker's rings and its thread.
pub(crate) struct Handle {
    pub(crate) to_worker: ToWorker,
    pub(crate) from_worker: rtrb::Consumer<FromWorker>,
    pub(crate) thread: JoinHandle<()>,
    /// Takes questions for records.
    pub(crate) asks: SyncSender<Ask>,
}

/// Starts a worker. `outputs_ready` is told when the link thread has something to fetch.
pub(crate) fn start(
    index: usize,
    core: Option<usize>,
    config: CallConfig,
    outputs_ready: Arc<Notify>,
    spans: Option<Spans>,
) -> std::io::Result<Handle> {
    let (media_in, media) = rtrb::RingBuffer::new(MEDIA);
    let (control_in, control) = rtrb::RingBuffer::new(CONTROL);
    let (outputs, from_worker) = rtrb::RingBuffer::new(OUTPUTS);
    let (asks, mailbox) = desk::mailbox();
    let counts = Arc::new(WorkerCounts::default());
    let (published, ready) = (Arc::clone(&counts), outputs_ready);
    let shell = move |worker| Shell {
        worker,
        media,
        control,
        outputs,
        outputs_ready: ready,
        mailbox,
        spans,
        counts: published,
        publish_at: Instant::now(),
        stopping: false,
    };
    let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        if let Some(core) = core
            && let Err(error) = net::pin::current_thread_to(core)
        {
            tracing::warn!(index, core, %error, "worker not pinned");
        }
        shell(Worker::new(config, Waker::from(Arc::new(Unpark(std::thread::current()))))).run();
    })?;
    let to_worker = ToWorker::new(media_in, control_in, thread.thread().clone(), counts);
    Ok(Handle { to_worker, from_worker, thread, asks })
}

/// Wakes the worker's thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Shell {
    worker: Worker,
    media: rtrb::Consumer<Media>,
    control: rtrb::Consumer<Control>,
    outputs: rtrb::Producer<FromWorker>,
    outputs_ready: Arc<Notify>,
    mailbox: Mailbox,
    /// Where records go, beside the log.
    spans: Option<Spans>,
    counts: Arc<WorkerCounts>,
    publish_at: Instant,
    stopping: bool,
}

impl Shell {
    fn run(mut self) {
        while !self.stopping {
            let now = Instant::now();
            let mut busy = false;
            busy |= self.handle_controls(now);
            // What makes more outputs waits for room.
            let room = self.send_outputs();
            if room {
                for _ in 0..BATCH {
                    busy |= self.handle_media(now);
                    busy |= self.worker.handle_due(now);
                    busy |= self.worker.handle_woken(now);
                }
            }
            let room = room && self.send_outputs();
            busy |= self.answer();
            if !busy || now >= self.publish_at {
                self.publish_at = now + PUBLISH;
                self.publish();
            }
            if !room {
                std::thread::park_timeout(BACKOFF);
            } else if !busy {
                // Also when a producer pushed after the look into its ring: its unpark is remembered.
                let until = self.worker.poll_timeout();
                let sleep = until.map_or(IDLE, |until| until.saturating_duration_since(Instant::now()).min(IDLE));
                std::thread::park_timeout(sleep);
            }
        }
    }

    /// A turn's share of them; `false`: there was nothing.
    fn handle_controls(&mut self, now: Instant) -> bool {
        for taken in 0..CONTROL_BATCH {
            if !self.handle_control(now) {
                return taken > 0;
            }
            if now.elapsed() > CONTROL_TIME {
                break;
            }
        }
        true
    }

    /// `false`: there was nothing.
    fn handle_control(&mut self, now: Instant) -> bool {
        let Ok(control) = self.control.pop() else {
            // The link thread is gone, whatever it could still say.
            self.stopping |= self.control.is_abandoned();
            return false;
        };
        self.counts.client_bytes.fetch_sub(control.client_bytes(), Ordering::Relaxed);
        self.stopping |= !self.worker.handle_control(now, control);
        true
    }

    fn handle_media(&mut self, now: Instant) -> bool {
        let Ok(media) = self.media.pop() else { return false };
        if let Err(media) = self.worker.handle_media(now, media) {
            // The call may have been opened after the last look into the other ring.
            self.handle_controls(now);
            if self.worker.handle_media(now, media).is_err() {
                self.worker.drop_media();
            }
        }
        true
    }

    /// Answers one question of an operator's; `false`: there was none.
    fn answer(&self) -> bool {
        let Ok(ask) = self.mailbox.try_recv() else { return false };
        // Whoever asked may have gone.
        match ask {
            Ask::Call(session, answer) => drop(answer.send(self.worker.find(session))),
            Ask::Calls(answer) => drop(answer.send(self.worker.calls())),
        }
        true
    }

    /// Hands outputs to the link thread; `false`: its ring is full.
    fn send_outputs(&mut self) -> bool {
        for timing in std::iter::from_fn(|| self.worker.poll_timing()) {
            measure(&timing);
        }
        for first_delta in std::iter::from_fn(|| self.worker.poll_first_delta()) {
            metrics::histogram!("fronthaul_transceiver_first_delta_seconds").record(first_delta);
        }
        while let Some(left) = self.worker.poll_record() {
            self.tell(left);
        }
        let mut any = false;
        let mut room = true;
        while !self.outputs.is_full()
            && let Some(output) = self.worker.poll_output()
        {
            any = true;
            room = self.outputs.push(output).is_ok() && !self.outputs.is_full();
        }
        if any {
            self.outputs_ready.notify_one();
        }
        room
    }

    fn tell(&self, Left { call, began, over }: Left) {
        if let Over::Turn(record) = &over {
            count(record);
            log(&ExportedTurn::of(call.session, &call.model, record));
        }
        if let Some(spans) = &self.spans {
            let now = SystemTime::now();
            let began = now.checked_sub(began.elapsed()).unwrap_or(now);
            spans.tell(Told { call, began, over });
        }
    }

    fn publish(&self) {
        let totals = self.worker.totals();
        let counts = &*self.counts;
        for (count, value) in [
            (&counts.calls, totals.calls),
            (&counts.media, totals.media),
            (&counts.stale, totals.stale),
            (&counts.ignored, totals.ignored),
            (&counts.repeated, totals.repeated),
        ] {
            count.store(value, Ordering::Relaxed);
        }
        for (count, value) in counts.stream.iter().zip(totals.stream.values()) {
            count.store(value, Ordering::Relaxed);
        }
    }
}

/// What of a turn operators look for over all calls.
fn count(record: &TurnRecord) {
    for decided in &record.decisions {
        let kind = decided.decision.kind;
        if matches!(kind, DecisionKind::InputSilent | DecisionKind::Mislabeled) {
            metrics::counter!("fronthaul_transceiver_odd_audio_total", "kind" => kind.name()).increment(1);
        }
    }
}

/// One line per turn; the record is JSON, which `fronthaul explain --file` reads.
fn log(turn: &ExportedTurn) {
    let Ok(record) = serde_json::to_string(turn) else { return };
    let total_us = turn.timing.map(|timing| timing.total_us);
    let (session, outcome) = (&turn.session, &turn.outcome);
    tracing::info!(target: "fronthaul::turn", %session, turn.turn, turn.response, %outcome, total_us, record, "turn");
}

/// One set of measurements per turn.
fn measure(timing: &TurnTiming) {
    for (part, us) in [
        ("uplink", timing.uplink_us),
        ("repair", timing.repair_us),
        ("silence", timing.silence_us),
        ("backend", timing.backend_us),
        ("encode", timing.encode_us),
        ("playout", timing.playout_us),
        ("total", timing.total_us),
    ] {
        metrics::histogram!("fronthaul_turn_seconds", "part" => part).record(Duration::from_micros(us));
    }
}
