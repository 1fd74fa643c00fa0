//! One worker thread: feeds its core from the socket, the mailbox, the timer and the links, and carries out what the
//! core decides.
//!
//! Everything runs on one current-thread runtime, so the core sits in a `RefCell` that is borrowed for one turn at a time
//! and never across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Lifecycle, Metrics, Phase};
use link::identity::NodeIdentity;
use link::ids::TransceiverId;
use link::quic::Endpoint;
use net::{BoundSocket, DeadlineTimer, RecvBatch, SendBatch, UdpSocket};
use rtc::{Path, Transport};
use tokio::sync::Notify;
use tokio::task::{LocalSet, yield_now};

use super::doors::Doors;
use super::links::{self, Connected};
use super::peers;
use super::report::{Board, Snapshot};
use super::tcp::{self, Connections};
use crate::config::{Downlink, TransceiverConfig};
use crate::directory::{Directory, HandOver, Letter};
use crate::keys::PopKeys;
use crate::renew::Ask;
use crate::tcp::Arrival;
use crate::worker::{Output, Worker, WorkerConfig};

/// Hand-overs taken in one turn, as many as datagrams.
const HAND_OVERS_PER_TURN: usize = 64;

/// Questions of signaling's answered in one turn: ~50 us each.
const ASKS_PER_TURN: usize = 4;

/// Time between two snapshots of the counters.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);

/// Until what the kernel had no room for is offered again.
const SEND_AGAIN: Duration = Duration::from_millis(1);

/// What a worker thread is given.
pub(super) struct Start {
    pub(super) config: WorkerConfig,
    pub(super) core: Option<usize>,
    /// How long the thread stays awake after a batch of datagrams.
    pub(super) spin: Duration,
    pub(super) socket: BoundSocket,
    pub(super) link_bind: SocketAddr,
    pub(super) downlink: Downlink,
    pub(super) transceivers: Vec<TransceiverConfig>,
    pub(super) node: NodeIdentity,
    pub(super) directory: Arc<Directory>,
    pub(super) peers: Option<peers::Sender>,
    pub(super) keys: PopKeys,
    pub(super) seed: [u8; 32],
    pub(super) board: Arc<Board>,
    pub(super) doors: Arc<Doors>,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Metrics,
}

/// The thread's body.
pub(super) fn run(start: Start) {
    if let Some(core) = start.core
        && let Err(error) = net::pin::current_thread_to(core)
    {
        tracing::warn!(core, %error, "a worker is not pinned to its core");
    }
    let served = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        start.metrics.register_runtime(runtime.handle().clone());
        LocalSet::new().block_on(&runtime, serve(start))
    });
    if let Err(error) = served {
        tracing::error!(%error, "a worker cannot go on; the edge stops");
    }
}

async fn serve(start: Start) -> std::io::Result<()> {
    let edge = start.config.edge;
    let endpoint = Endpoint::client_on(&start.node, start.link_bind).map_err(std::io::Error::other)?;
    let shell = Rc::new(Shell {
        index: start.config.index,
        state: RefCell::new(State {
            core: Worker::new(
                // The clock of batches is that of the links' heartbeats.
                link::quic::clock_base(),
                start.config,
                Arc::clone(&start.directory),
                start.keys,
                start.seed,
            ),
            send: SendBatch::new(),
            scratch: Vec::new(),
            links: BTreeMap::new(),
            connections: Connections::new(start.doors),
        }),
        socket: start.socket.register()?,
        timer: DeadlineTimer::new()?,
        directory: start.directory,
        fed: Fed::default(),
        awake: (!start.spin.is_zero()).then(Received::default),
        peers: start.peers,
        downlink: start.downlink,
        streams: Streams::default(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_local(daemon::counted(receive(Rc::clone(&shell))));
    if !start.spin.is_zero() {
        tasks.spawn_local(daemon::counted(stay_awake(Rc::clone(&shell), start.spin)));
    }
    tasks.spawn_local(daemon::counted(serve_timer(Rc::clone(&shell))));
    tasks.spawn_local(daemon::counted(serve_mailbox(Rc::clone(&shell))));
    tasks.spawn_local(daemon::counted(settle(Rc::clone(&shell))));
    tasks.spawn_local(daemon::counted(snapshots(Rc::clone(&shell), start.board)));
    for transceiver in start.transceivers {
        let id = TransceiverId(transceiver.id);
        tasks.spawn_local(daemon::counted(links::keep(
            Rc::clone(&shell),
            endpoint.clone(),
            edge,
            id,
            transceiver.address,
        )));
    }
    let result = tokio::select! {
        () = start.lifecycle.reached(Phase::Stopped) => Ok(()),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| Err(std::io::Error::other(error))),
    };
    tasks.shutdown().await;
    endpoint.close();
    // The peers hear of it, unless they are gone themselves.
    let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    result
}

/// What the tasks of a worker share.
pub(super) struct Shell {
    index: u32,
    state: RefCell<State>,
    socket: UdpSocket,
    timer: DeadlineTimer,
    pub(super) directory: Arc<Directory>,
    fed: Fed,
    /// Only where a worker stays awake.
    awake: Option<Received>,
    peers: Option<peers::Sender>,
    pub(super) downlink: Downlink,
    pub(super) streams: Streams,
}

/// Inputs of which nothing has followed yet.
#[derive(Default)]
struct Fed {
    inputs: Cell<usize>,
    any: Notify,
}

/// Batches of datagrams that came, for the task that stays awake after each.
#[derive(Default)]
struct Received {
    last: Cell<Option<Instant>>,
    any: Notify,
}

pub(super) struct State {
    core: Worker,
    send: SendBatch,
    scratch: Vec<u8>,
    pub(super) links: BTreeMap<TransceiverId, Connected>,
    connections: Connections,
}

/// Streams that are open on the links of a worker.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) sessions: Cell<u32>,
    pub(super) utterances: Cell<u32>,
}

impl Shell {
    /// One turn: an input, and all that follows from it.
    pub(super) fn turn(self: &Rc<Self>, input: impl FnOnce(&mut Worker, Instant)) {
        let now = Instant::now();
        let mut state = self.state.borrow_mut();
        input(&mut state.core, now);
        self.drain(&mut state);
    }

    /// An input that many others of its kind come with: what follows from them leaves in one batch, when the tasks that
    /// are ready now have run, or when there are as many as a batch holds.
    pub(super) fn feed(self: &Rc<Self>, input: impl FnOnce(&mut Worker, Instant)) {
        let inputs = self.fed.inputs.get() + 1;
        self.fed.inputs.set(inputs % net::BATCH);
        if inputs == net::BATCH {
            return self.turn(input);
        }
        input(&mut self.state.borrow_mut().core, Instant::now());
        self.fed.any.notify_one();
    }

    /// The state, to change what is not the core's.
    pub(super) fn with_links<T>(&self, change: impl FnOnce(&mut BTreeMap<TransceiverId, Connected>) -> T) -> T {
        change(&mut self.state.borrow_mut().links)
    }

    /// The WebRTC connections, to open and close them.
    pub(super) fn with_connections<T>(&self, change: impl FnOnce(&mut Connections) -> T) -> T {
        change(&mut self.state.borrow_mut().connections)
    }

    /// Passes a connection on.
    pub(super) fn leave(&self, worker: u32, arrival: Arrival) {
        if let Some(mailbox) = self.directory.mailbox(worker) {
            // Closed when there is no room: the client dials again.
            let _ = mailbox.arrive(arrival);
        }
    }

    fn drain(self: &Rc<Self>, state: &mut State) {
        let State { core, send, scratch, links, connections } = state;
        loop {
            while let Some(path) = core.poll_transmit(scratch) {
                if path.transport == Transport::Tcp {
                    connections.send(&path, scratch);
                    continue;
                }
                send.push(path.local, path.remote, scratch);
                // A turn may bring more than the batch holds: a large message, or the end of every call.
                if send.len().is_multiple_of(net::BATCH) {
                    self.socket.send_batch(send);
                }
            }
            let Some(output) = core.poll_output() else { break };
            self.carry_out(links, connections, output);
        }
        if !send.is_empty() {
            self.socket.send_batch(send);
        }
        let again = (!send.is_empty()).then(|| Instant::now() + SEND_AGAIN);
        match [core.poll_timeout(), again].into_iter().flatten().min() {
            Some(deadline) => self.timer.set(deadline),
            None => self.timer.clear(),
        }
    }

    fn carry_out(
        self: &Rc<Self>,
        links: &mut BTreeMap<TransceiverId, Connected>,
        connections: &Connections,
        output: Output,
    ) {
        match output {
            Output::HandOver { worker, path, datagram } => {
                // A connection goes to the worker of its session, rather than each of its datagrams.
                if path.transport == Transport::Tcp && connections.pass_on(&path, worker, &datagram) {
                    return;
                }
                if let Some(mailbox) = self.directory.mailbox(worker) {
                    mailbox.hand_over(HandOver { path, datagram });
                }
            }
            Output::Forward { peer, bytes } => {
                if let Some(peers) = &self.peers {
                    peers.send(peer, &bytes);
                }
            }
            Output::Datagram { transceiver, batch } => {
                if let Some(connected) = links.get(&transceiver) {
                    connected.link.send_datagram(batch);
                }
            }
            Output::Message { transceiver, session, epoch, message } => {
                if let Some(connected) = links.get_mut(&transceiver) {
                    connected.message(self, transceiver, session, epoch, message);
                }
            }
            Output::Open { transceiver, request } => {
                links::open(self, transceiver, links.get(&transceiver), request);
            }
            Output::Release { transceiver, request } => {
                if let Some(connected) = links.get_mut(&transceiver) {
                    connected.release(request);
                }
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.state.borrow();
        let received = Snapshot { stats: state.core.stats(), gauges: state.core.gauges(), ..Snapshot::default() };
        Snapshot {
            session_streams: self.streams.sessions.get(),
            utterance_streams: self.streams.utterances.get(),
            links: u32::try_from(state.links.len()).unwrap_or(u32::MAX),
            paths: links::paths(&state.links),
            sends_dropped: state.send.stats().dropped + state.send.stats().failed,
            allocations: net::alloc::thread().allocations,
            ..received
        }
    }
}

/// Datagrams from the network, a batch per turn.
async fn receive(shell: Rc<Shell>) -> std::io::Result<()> {
    let mut batch = RecvBatch::new();
    loop {
        let count = shell.socket.recv_batch(&mut batch).await?;
        let unix_seconds = net::clock::unix_seconds();
        shell.turn(|core, now| {
            for datagram in batch.iter_mut() {
                let path = Path::udp(datagram.local, datagram.remote);
                core.handle_datagram(now, unix_seconds, path, datagram.bytes);
            }
        });
        if let Some(awake) = &shell.awake {
            awake.last.set(Some(Instant::now()));
            awake.any.notify_one();
        }
        // More is waiting, as may be the other tasks. An empty socket makes way by itself.
        if count == net::BATCH {
            yield_now().await;
        }
    }
}

/// Keeps the thread from sleeping for `spin` after each batch. A task that yields makes the runtime look at its sockets and
/// timers without waiting in between, so everything on the thread is served sooner, not datagrams alone.
async fn stay_awake(shell: Rc<Shell>, spin: Duration) -> std::io::Result<()> {
    let Some(awake) = &shell.awake else { return std::future::pending().await };
    loop {
        awake.any.notified().await;
        while awake.last.get().is_some_and(|last| last.elapsed() < spin) {
            yield_now().await;
        }
    }
}

/// Deadlines of the core.
async fn serve_timer(shell: Rc<Shell>) -> std::io::Result<()> {
    loop {
        shell.timer.wait().await;
        shell.turn(Worker::handle_timeout);
        yield_now().await;
    }
}

/// What follows from inputs that were fed. Its wake-up queues behind those of the tasks that feed.
async fn settle(shell: Rc<Shell>) -> std::io::Result<()> {
    loop {
        shell.fed.any.notified().await;
        if shell.fed.inputs.replace(0) > 0 {
            shell.turn(|_, _| {});
        }
    }
}

/// What other threads left.
async fn serve_mailbox(shell: Rc<Shell>) -> std::io::Result<()> {
    let directory = Arc::clone(&shell.directory);
    let Some(mailbox) = directory.mailbox(shell.index) else { return Ok(()) };
    loop {
        mailbox.filled().await;
        while let Some(arrival) = mailbox.take_arrival() {
            daemon::spawn_local(tcp::serve(Rc::clone(&shell), arrival));
        }
        let mut full = true;
        while full {
            let unix_seconds = net::clock::unix_seconds();
            shell.turn(|core, now| {
                while let Some(command) = mailbox.take_command() {
                    core.handle_command(now, command);
                }
                let mut asked = 0;
                while asked < ASKS_PER_TURN
                    && let Some(Ask { session, change, candidates, reply }) = mailbox.take_ask()
                {
                    // Who asked may have given up.
                    let _ = reply.send(core.handle_change(now, unix_seconds, session, &change, &candidates));
                    asked += 1;
                }
                let mut taken = 0;
                while taken < HAND_OVERS_PER_TURN
                    && let Some(letter) = mailbox.take_datagram(taken)
                {
                    match letter {
                        Letter::HandOver(HandOver { path, mut datagram }) => {
                            core.handle_hand_over(now, unix_seconds, path, &mut datagram);
                        }
                        Letter::Forwarded(forwarded) => core.handle_peer(now, unix_seconds, forwarded),
                    }
                    taken += 1;
                }
                full = taken == HAND_OVERS_PER_TURN || asked == ASKS_PER_TURN;
            });
            yield_now().await;
        }
    }
}

/// Counters, for whoever reads metrics.
async fn snapshots(shell: Rc<Shell>, board: Arc<Board>) -> std::io::Result<()> {
    loop {
        board.put(shell.index, shell.snapshot());
        tokio::time::sleep(SNAPSHOT_INTERVAL).await;
    }
}
