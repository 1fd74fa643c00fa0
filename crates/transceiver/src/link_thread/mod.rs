//! The link thread: one QUIC endpoint, the links of all edges, and the way between their streams and the workers' rings.
//!
//! Everything here runs on one current-thread runtime; what tasks share is in [`hub::Hub`] behind `Rc<RefCell>`, borrowed
//! for a moment and never across an await.
//!
//! ```text
//! datagrams --> read_datagrams --> media ring ----> worker --> ring --> route_outputs --> queues --> streams
//! session stream -> read_session -> control ring -^
//! gRPC --> service --> commands --> Hub
//! ```

mod hub;
mod queues;
mod service;
mod telemetry;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use link::datagram::{Batch, parse};
use link::proto::{EdgeMessage, SessionHeader, TransceiverMessage, edge_message};
use link::quic::{Endpoint, Incoming, Link, PathState, QuicStream, SessionRx, SessionTx};
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::backend::Models;
use crate::ring::{CallKey, Control, Frame, FromWorker, Media, ToWorker};
use hub::{Hub, LinkSlots, SharedWorker, Target, push_control};
use queues::Attached;
use service::{COMMANDS, Command, Service};

/// Leases are renewed this often.
const LEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Plain counts become metrics this often.
const METRICS_INTERVAL: Duration = Duration::from_millis(250);

/// Calls that were told to end, and the peers that were told of the end of the links, have this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Datagrams read with one wake-up before other links get their turn, and before the workers are woken.
const DATAGRAMS_PER_TURN: usize = 64;

/// Outputs of one worker passed on before others get their turn.
const OUTPUTS_PER_TURN: usize = 256;

/// How the process wants to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// Take no more calls, and end those that are here by then.
    By(Instant),
}

/// A worker as the link thread holds it.
pub(crate) struct WorkerEnds {
    pub(crate) to_worker: ToWorker,
    pub(crate) from_worker: rtrb::Consumer<FromWorker>,
    pub(crate) outputs_ready: Arc<Notify>,
}

/// What the link thread is made with.
pub(crate) struct Parts {
    pub(crate) id: u32,
    pub(crate) seats: u32,
    pub(crate) models: Models,
    pub(crate) endpoint: Endpoint,
    pub(crate) workers: Vec<WorkerEnds>,
    pub(crate) stop: watch::Receiver<Stop>,
}

type SharedHub = Rc<RefCell<Hub>>;

/// Runs until told to stop and every call is gone, or its time is over. On a `LocalSet`.
pub(crate) async fn run(parts: Parts) {
    let Parts { id, seats, models, endpoint, workers, mut stop } = parts;
    let mut outputs = Vec::new();
    let shared: Vec<SharedWorker> = workers
        .into_iter()
        .map(|WorkerEnds { to_worker, from_worker, outputs_ready }| {
            outputs.push((from_worker, outputs_ready));
            Rc::new(RefCell::new(to_worker))
        })
        .collect();
    let names = models.names();
    let hub = Rc::new(RefCell::new(Hub::new(seats, models, shared)));
    for (from_worker, ready) in outputs {
        daemon::spawn_local(route_outputs(Rc::clone(&hub), from_worker, ready));
    }
    let (commands, mut requests) = mpsc::channel(COMMANDS);
    let (control, control_streams) = mpsc::channel(COMMANDS);
    daemon::spawn_local(serve_grpc(Service::new(id, names, commands), control_streams));
    daemon::spawn_local(accept_links(Rc::clone(&hub), endpoint.clone(), control));

    let mut leases = tokio::time::interval(LEASE_INTERVAL);
    let mut metrics = tokio::time::interval(METRICS_INTERVAL);
    let mut published = telemetry::Published::default();
    let mut deadline = None;
    loop {
        tokio::select! {
            Some(command) = requests.recv() => handle(&hub, command),
            _ = leases.tick() => {
                let mut hub = hub.borrow_mut();
                hub.expire(Instant::now());
                hub.grant_leases();
            }
            _ = metrics.tick() => published.publish(&hub.borrow()),
            changed = stop.changed(), if deadline.is_none() => {
                // Whoever could say how to stop is gone: so are we.
                let by = match (changed, *stop.borrow_and_update()) {
                    (Ok(()), Stop::No) => continue,
                    (Ok(()), Stop::By(by)) => by,
                    (Err(_), _) => Instant::now(),
                };
                hub.borrow_mut().drain();
                deadline = Some(by);
            }
            () = tokio::time::sleep(Duration::from_millis(20)), if deadline.is_some() => {}
        }
        if deadline.is_some_and(|deadline| hub.borrow().calls() == 0 || Instant::now() >= deadline) {
            break;
        }
    }
    end(&hub, &endpoint).await;
    published.publish(&hub.borrow());
}

/// Tells clients and peers of the end, then stops the workers.
async fn end(hub: &SharedHub, endpoint: &Endpoint) {
    let until = Instant::now() + LAST_WORDS;
    let left = hub.borrow().calls();
    if left > 0 {
        tracing::warn!(calls = left, "ending calls: their time is over");
        hub.borrow_mut().close_calls("transceiver stopping");
    }
    while hub.borrow().calls() > 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if left > 0 {
        // Calls end here when their last message is queued; the streams' tasks send it.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    hub.borrow().stop_workers();
    endpoint.close();
    let _ = tokio::time::timeout(LAST_WORDS, endpoint.wait_idle()).await;
}

fn handle(hub: &SharedHub, command: Command) {
    let now = Instant::now();
    let mut hub = hub.borrow_mut();
    // An answer that nobody waits for is an Open whose caller gave up: it sends a Release, or loses its link.
    match command {
        Command::Open { link, request, reply } => {
            let _ = reply.send(hub.open(now, link, rand::random(), request));
        }
        Command::Release { request, reply } => {
            hub.release(now, &request);
            let _ = reply.send(());
        }
        Command::Lease { edge, link, grants } => hub.add_lease(edge, link, grants),
    }
}

async fn serve_grpc(service: Service, control_streams: mpsc::Receiver<QuicStream>) {
    if let Err(error) = link::grpc::serve(service, ReceiverStream::new(control_streams)).await {
        tracing::error!(%error, "gRPC ended");
    }
}

async fn accept_links(hub: SharedHub, endpoint: Endpoint, control: mpsc::Sender<QuicStream>) {
    while let Some(link) = endpoint.accept().await {
        let Some(slots) = hub.borrow_mut().add_link(link.clone()) else { continue };
        tracing::info!(peer = %link.peer(), address = %link.remote_addr(), "link up");
        let datagrams = daemon::spawn_local(read_datagrams(Rc::clone(&hub), link.clone(), slots));
        let path = daemon::spawn_local(follow_path(Rc::clone(&hub), link.id(), link.path()));
        let (hub, control) = (Rc::clone(&hub), control.clone());
        daemon::spawn_local(async move {
            let lost = accept_streams(&hub, &link, control).await;
            tracing::info!(peer = %link.peer(), reason = %lost, "link down");
            hub.borrow_mut().remove_link(Instant::now(), link.id());
            datagrams.abort();
            path.abort();
        });
    }
}

async fn accept_streams(hub: &SharedHub, link: &Link, control: mpsc::Sender<QuicStream>) -> link::quic::LinkLost {
    loop {
        match link.accept().await {
            Ok(Incoming::Control(stream)) => {
                // Its receiver lives as long as the process; a full queue makes new streams wait.
                let _ = control.send(stream).await;
            }
            Ok(Incoming::Session(header, tx, rx)) if header.attach => attach(hub, &header, tx, rx),
            Ok(Incoming::Session(header, tx, rx)) => {
                let mut borrowed = hub.borrow_mut();
                let sending = Rc::clone(&borrowed.sending);
                let reader = borrowed.session_stream(link.id(), &header).and_then(|(target, queues)| {
                    queues.attach(tx, &sending).then(|| {
                        let reader = daemon::spawn_local(read_session(Rc::clone(hub), target, rx));
                        queues.read_by(reader.abort_handle());
                    })
                });
                if reader.is_none() {
                    borrowed.counts.stray_streams += 1;
                }
            }
            // Only transceivers open those.
            Ok(Incoming::Utterance(..)) => hub.borrow_mut().counts.stray_streams += 1,
            Err(lost) => return lost,
        }
    }
}

/// Puts a further stream onto a call, or says why not.
fn attach(hub: &SharedHub, header: &SessionHeader, tx: SessionTx<TransceiverMessage>, rx: SessionRx<EdgeMessage>) {
    let mut borrowed = hub.borrow_mut();
    let sending = Rc::clone(&borrowed.sending);
    let (target, id) = match borrowed.attachable(header) {
        Ok(found) => found,
        Err(reason) => {
            borrowed.counts.stray_streams += 1;
            return Attached::start(0, tx, &sending).close(1008, reason);
        }
    };
    let mut attached = Attached::start(id, tx, &sending);
    let reader = daemon::spawn_local(read_attached(Rc::clone(hub), target, id, rx));
    attached.read_by(reader.abort_handle());
    borrowed.attach(target.key, attached);
}

/// The events of somebody who is attached to a call, which goes on without them.
async fn read_attached(hub: SharedHub, target: Target, id: u64, mut stream: SessionRx<EdgeMessage>) {
    let worker = hub.borrow().worker(target.worker);
    while let Ok(Some(message)) = stream.recv().await {
        match message.kind {
            Some(edge_message::Kind::ChannelMessage(message)) => {
                push_control(Rc::clone(&worker), Control::Attached { key: target.key, message }).await;
            }
            Some(edge_message::Kind::Closed(_)) => break,
            _ => {}
        }
    }
    hub.borrow_mut().detach(target.key, id);
}

/// The edge's messages, as fast as the worker takes them. The stream's end is the call's.
async fn read_session(hub: SharedHub, target: Target, mut stream: SessionRx<EdgeMessage>) {
    let worker = hub.borrow().worker(target.worker);
    let reason = loop {
        match stream.recv().await {
            Ok(Some(message)) => {
                push_control(Rc::clone(&worker), Control::Message { key: target.key, message }).await;
            }
            Ok(None) => break "session stream ended",
            Err(error) => {
                tracing::debug!(%error, "session stream lost");
                break "session stream lost";
            }
        }
    };
    // What the edge said last goes to the worker before the Forget of `end_call`.
    hub.borrow_mut().end_call(Instant::now(), target.key, reason);
}

/// Tells the hub how a path is to be used, whenever that changes.
async fn follow_path(hub: SharedHub, link: u64, mut path: watch::Receiver<PathState>) {
    loop {
        let state = *path.borrow_and_update();
        hub.borrow_mut().set_path(link, state);
        if path.changed().await.is_err() {
            return;
        }
    }
}

async fn read_datagrams(hub: SharedHub, link: Link, slots: LinkSlots) {
    let workers: Vec<SharedWorker> = hub.borrow().workers().to_vec();
    let mut touched = vec![false; workers.len()];
    let mut datagrams = Vec::with_capacity(DATAGRAMS_PER_TURN);
    while link.read_datagrams(DATAGRAMS_PER_TURN, &mut datagrams).await.is_ok() {
        let now = Instant::now();
        let (mut stray, mut bad) = (0, 0);
        for datagram in datagrams.drain(..) {
            let mut offer = |slot, media: &dyn Fn(CallKey) -> Media| match slots.borrow().get(slot) {
                Some(target) => {
                    workers[target.worker].borrow_mut().media(media(target.key));
                    touched[target.worker] = true;
                }
                None => stray += 1,
            };
            match parse(&datagram) {
                Ok(Batch::MediaUp { clock32, frames }) => {
                    let transit_us = link.transit_us(now, clock32);
                    for frame in frames {
                        match frame {
                            Ok(frame) => {
                                offer(frame.slot, &|key| Media::Frame(owned(key, &datagram, &frame, transit_us)));
                            }
                            Err(_) => bad += 1,
                        }
                    }
                }
                Ok(Batch::Playout { reports, .. }) => {
                    for report in reports {
                        match report {
                            Ok(report) => offer(report.slot, &|key| Media::Report { key, report }),
                            Err(_) => bad += 1,
                        }
                    }
                }
                // Heartbeats end in the link; frames for clients come from here alone.
                Ok(Batch::MediaDown { .. } | Batch::Heartbeat(_)) | Err(_) => bad += 1,
            }
        }
        if stray + bad > 0 {
            let counts = &mut hub.borrow_mut().counts;
            counts.stray_frames += stray;
            counts.bad_datagrams += bad;
        }
        for (worker, touched) in workers.iter().zip(&mut touched) {
            if std::mem::take(touched) {
                worker.borrow().wake();
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The frame without its borrow: its payload shares the datagram's buffer.
fn owned(key: CallKey, datagram: &Bytes, frame: &link::datagram::MediaUp<'_>, transit_us: u32) -> Frame {
    Frame {
        key,
        slot: frame.slot,
        epoch: frame.epoch,
        codec: frame.codec,
        marker: frame.marker,
        seq: frame.seq,
        rtp_timestamp: frame.rtp_timestamp,
        audio_level: frame.audio_level,
        age_us: frame.age_us.saturating_add(transit_us),
        payload: datagram.slice_ref(frame.payload),
    }
}

/// Passes on what a worker has for the edges.
async fn route_outputs(hub: SharedHub, mut outputs: rtrb::Consumer<FromWorker>, ready: Arc<Notify>) {
    loop {
        let mut passed = 0;
        while passed < OUTPUTS_PER_TURN
            && let Ok(output) = outputs.pop()
        {
            hub.borrow_mut().output(Instant::now(), output);
            passed += 1;
        }
        hub.borrow_mut().end_of_batch(Instant::now());
        if passed == OUTPUTS_PER_TURN {
            tokio::task::yield_now().await;
        } else if outputs.is_abandoned() {
            return;
        } else {
            // A permit that came between the last look and here is kept.
            ready.notified().await;
        }
    }
}
