//! Everything together, and the clock.

mod deliver;
mod drain;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::link::ids::{EdgeId, SessionId, TransceiverId};
use bytes::Bytes;
use edge::directory::Directory;
use edge::keys::{Keyring, PopKeys};
use edge::seats::Seats;
use edge::signaling::{Counts, CreateCall, Shared, create_call};
use edge::waiting::Waiting;
use edge::worker::budget::Limits;
use edge::worker::{CloseCause, Gauges, Worker, WorkerConfig};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::Path;
use sim::{Log, Sim, Step, WireId};

use crate::client::{Client, Note};
use crate::link::{Down, Piece, Streams, Up};
use crate::names::actor;
use crate::node::Node;
use crate::plan::{Access, Link, NodePlan, Plan};

/// Where the edge is.
const EDGE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 3478);

/// Unix seconds when a world begins.
const UNIX: u32 = 1_800_000_000;

/// Between two looks at what was never claimed, as the edge's control thread has it.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// Inputs at one virtual instant before the world says that its time stands still: a hundred clients' worth.
const MAX_INPUTS_AT_ONCE: u32 = 20_000;

/// Labels of the generators drawn from the seed.
mod label {
    pub(super) const SIGNALING: u64 = 1;
    pub(super) const CALLS: u64 = 2;
    pub(super) const ROUTE_KEYS: u64 = 3;
    pub(super) const GARBAGE: u64 = 4;
    pub(super) const WORKERS: u64 = 100;
}

/// What the wires carry.
#[derive(Debug, Clone)]
enum Parcel {
    Datagram(Path, Vec<u8>),
    Batch(Bytes),
    Up(Piece<Up>),
    Down(Piece<Down>),
}

/// Where a wire ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Edge { client: usize },
    Client(usize),
    Node { link: usize },
    Worker { link: usize },
}

struct Caller {
    client: Client,
    session: SessionId,
    up: WireId,
    down: WireId,
    /// The worker to whose socket the kernel gives its datagrams.
    arrival: usize,
    /// Nothing of its is sent any more.
    vanished: bool,
    /// Its latest STUN request.
    check: Vec<u8>,
}

/// Between one worker and one transceiver.
struct LinkEnds {
    worker: usize,
    node: usize,
    datagrams: WireId,
    up: WireId,
    down: WireId,
    up_streams: Streams<Up>,
    down_streams: Streams<Down>,
}

/// See the crate.
pub struct World {
    sim: Sim<Parcel>,
    access: Access,
    /// Signaling's view of the edge.
    pub edge: Arc<Shared>,
    workers: Vec<Worker>,
    nodes: Vec<Node>,
    callers: Vec<Caller>,
    links: Vec<LinkEnds>,
    ends: BTreeMap<WireId, End>,
    signaling: StdRng,
    calls: sim::Random,
    garbage: sim::Random,
    next_housekeeping: Instant,
    handed_over: u64,
    inputs_at_once: (Duration, u32),
    notes: Vec<Note>,
}

impl World {
    /// A world without clients.
    ///
    /// # Panics
    /// If the plan has no workers.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        assert!(plan.workers > 0, "an edge has workers");
        let mut sim = Sim::new(Instant::now(), plan.seed);
        let now = sim.now();
        let models = ["echo", "parrot", "loopback"].map(|name| (name.to_owned(), name.to_owned()));
        let edge = Arc::new(Shared {
            edge: EdgeId(1),
            candidates: vec![rtc::Candidate::udp(EDGE)],
            ice_servers: edge::signaling::IceServers::default(),
            models: BTreeMap::from(models),
            default_model: "parrot".to_owned(),
            setup_timeout: rtc::Config::default().setup_timeout,
            uplink: rtc::Uplink::default(),
            keys: Keyring::new(PopKeys::single(&sim.random(label::ROUTE_KEYS).seed(), rtc::Identity::generate())),
            directory: Directory::new(plan.workers),
            seats: Seats::new(100),
            waiting: Waiting::new(100),
            websockets: edge::websocket::WebSockets::new(1, 1),
            auth: edge::auth::Auth::open(),
            draining: AtomicBool::new(false),
            counts: Counts::default(),
        });
        for (rank, node) in (0..).zip(&plan.nodes) {
            edge.seats.hello(TransceiverId(node.id), vec!["parrot".to_owned(), "loopback".to_owned()]);
            // The one with most seats is asked first.
            edge.seats.grant(TransceiverId(node.id), 1000 - rank, false);
        }
        let worker = |index: usize| {
            let index = u32::try_from(index).expect("few workers");
            let config = WorkerConfig {
                index,
                edge: edge.edge,
                session: rtc::Config::default(),
                limits: Limits::default(),
                reflex: plan.edge_reflex,
            };
            let (directory, keys) = (Arc::clone(&edge.directory), edge.keys.current());
            let seed = sim.random(label::WORKERS + u64::from(index)).seed();
            Worker::new(now, config, directory, keys, seed)
        };
        let workers: Vec<Worker> = (0..plan.workers).map(worker).collect();
        let node = |node: &NodePlan| Node::new(node, plan.transceiver_reflex);
        let nodes: Vec<Node> = plan.nodes.iter().map(node).collect();
        let mut links = Vec::new();
        let mut ends = BTreeMap::new();
        for worker in 0..workers.len() {
            for node in 0..nodes.len() {
                let (datagrams, streams) = (plan.link.datagrams(), plan.link.streams());
                let link = links.len();
                let ends_of = LinkEnds {
                    worker,
                    node,
                    datagrams: sim.add_wire(datagrams),
                    up: sim.add_wire(streams),
                    down: sim.add_wire(streams),
                    up_streams: Streams::default(),
                    down_streams: Streams::default(),
                };
                ends.insert(ends_of.datagrams, End::Node { link });
                ends.insert(ends_of.up, End::Node { link });
                ends.insert(ends_of.down, End::Worker { link });
                links.push(ends_of);
            }
        }
        Self {
            signaling: StdRng::from_seed(sim.random(label::SIGNALING).seed()),
            calls: sim.random(label::CALLS),
            garbage: sim.random(label::GARBAGE),
            next_housekeeping: now + HOUSEKEEPING,
            sim,
            access: plan.access,
            edge,
            workers,
            nodes,
            callers: Vec::new(),
            links,
            ends,
            handed_over: 0,
            inputs_at_once: (Duration::ZERO, 0),
            notes: Vec::new(),
        }
    }

    /// Signals a call for a new client, and returns the client's number.
    ///
    /// # Panics
    /// When the edge refuses it.
    pub fn call(&mut self, model: &str) -> usize {
        let number = self.callers.len();
        let host = u8::try_from(number + 1).expect("few clients");
        let mut client = Client::new(self.sim.now(), SocketAddr::from(([198, 51, 100, host], 40_000)));
        let offer = client.offer();
        let request = CreateCall { offer: &offer, model: Some(model), ..CreateCall::default() };
        let created = create_call(&self.edge, self.sim.now(), self.unix(), &mut self.signaling, request);
        let created = created.unwrap_or_else(|error| panic!("{}: {error:?}", self.context()));
        client.accept(&created.answer);
        let session = created.id;
        let conditions = self.access.conditions();
        let (up, down) = (self.sim.add_wire(conditions), self.sim.add_wire(conditions));
        self.ends.insert(up, End::Edge { client: number });
        self.ends.insert(down, End::Client(number));
        self.callers.push(Caller { client, session, up, down, arrival: 0, vanished: false, check: Vec::new() });
        self.sim.log(&actor("client", number), "calls", session);
        self.drain_client(number);
        number
    }

    /// Signals a call and lets time pass until the client is connected and its events channel open.
    pub fn connect(&mut self, model: &str) -> usize {
        let client = self.call(model);
        self.until("the client is connected and its channel open", Duration::from_secs(20), |world| {
            world.client(client).connected.is_some() && world.client(client).channel_is_open()
        });
        client
    }

    /// Lets a client say this from its next frame on.
    pub fn say(&mut self, client: usize, pcm: &[i16]) {
        self.callers[client].client.say(pcm);
    }

    /// Lets a client send a text on its events channel.
    pub fn write(&mut self, client: usize, text: &str) {
        self.callers[client].client.write(text);
        self.drain_client(client);
    }

    /// Nothing of a client's is sent any more, and nothing reaches it.
    pub fn vanish(&mut self, client: usize) {
        self.callers[client].vanished = true;
        self.callers[client].client.close();
        self.sim.log(&actor("client", client), "vanishes", "");
    }

    /// Ends a client's call from the edge's side, as DELETE does.
    pub fn hang_up(&mut self, client: usize) {
        let session = self.callers[client].session;
        self.edge.directory.close(session, CloseCause::HangUp);
        self.drain_edge();
    }

    /// The kernel gives a client's datagrams to this worker's socket from here on.
    pub fn arrive_at(&mut self, client: usize, worker: usize) {
        self.callers[client].arrival = worker;
    }

    /// What the access network does from here on.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
        for caller in &self.callers {
            self.sim.set_conditions(caller.up, access.conditions());
            self.sim.set_conditions(caller.down, access.conditions());
        }
    }

    /// What the link does from here on.
    pub fn set_link(&mut self, link: Link) {
        for ends in &self.links {
            self.sim.set_conditions(ends.datagrams, link.datagrams());
            self.sim.set_conditions(ends.up, link.streams());
            self.sim.set_conditions(ends.down, link.streams());
        }
    }

    /// Gives a worker a datagram as if a client had sent it, at once.
    pub fn inject(&mut self, worker: usize, from: SocketAddr, datagram: &[u8]) {
        let (now, unix) = (self.sim.now(), self.unix());
        let path = Path::udp(EDGE, from);
        self.workers[worker].handle_datagram(now, unix, path, &mut datagram.to_vec());
        self.drain_edge();
    }

    /// Random bytes, from a generator of their own.
    pub fn garbage(&mut self) -> &mut sim::Random {
        &mut self.garbage
    }

    /// Where a client's datagrams come from.
    #[must_use]
    pub fn address(&self, client: usize) -> SocketAddr {
        self.callers[client].client.address
    }

    /// The latest check that a client sent, for what can be made of it.
    #[must_use]
    pub fn check(&self, client: usize) -> &[u8] {
        &self.callers[client].check
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            self.step(end);
        }
    }

    /// Lets time pass until something holds.
    ///
    /// # Panics
    /// When it does not hold within `limit` of virtual time.
    pub fn until(&mut self, what: &str, limit: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let end = self.sim.now() + limit;
        while !holds(self) {
            assert!(self.sim.now() < end, "not within {limit:?}: {what}; {}", self.context());
            self.step(end);
        }
    }

    /// Virtual time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.sim.elapsed()
    }

    /// A client.
    #[must_use]
    pub fn client(&self, client: usize) -> &Client {
        &self.callers[client].client
    }

    /// A client's session.
    #[must_use]
    pub fn session(&self, client: usize) -> SessionId {
        self.callers[client].session
    }

    /// A worker of the edge.
    #[must_use]
    pub fn worker(&self, worker: usize) -> &Worker {
        &self.workers[worker]
    }

    /// A transceiver, by its place in the plan.
    #[must_use]
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// Datagrams that went from one worker to another.
    #[must_use]
    pub fn handed_over(&self) -> u64 {
        self.handed_over
    }

    /// What happened.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.sim.events()
    }

    /// For the message of a failed assertion: the seed, and the end of the log.
    #[must_use]
    pub fn context(&self) -> String {
        let entries = self.sim.events().entries();
        let tail =
            entries.iter().filter(|entry| !matches!(entry.event.as_str(), "hears" | "media" | "channel_message"));
        let lines: Vec<String> = tail.map(ToString::to_string).collect();
        let shown = &lines[lines.len().saturating_sub(60)..];
        format!("seed {}, at {:?}\n{}", self.sim.seed(), self.sim.elapsed(), shown.join("\n"))
    }

    /// Everything that is held for calls, anywhere: all zero before the first call and after the last.
    #[must_use]
    pub fn held(&self) -> Held {
        let gauges: Vec<Gauges> = self.workers.iter().map(Worker::gauges).collect();
        let directory = &self.edge.directory;
        Held {
            sessions: gauges.iter().map(|gauges| gauges.sessions).sum(),
            paths: gauges.iter().map(|gauges| gauges.paths).sum(),
            utterances: gauges.iter().map(|gauges| gauges.utterances).sum(),
            entries: directory.sessions(),
            pending: directory.pending(),
            routes: directory.paths(),
            seats: self.edge.seats.used(),
            calls: self.nodes.iter().map(Node::calls).sum(),
            deadlines: self.workers.iter().filter(|worker| worker.poll_timeout().is_some()).count(),
        }
    }

    fn unix(&self) -> u32 {
        UNIX + u32::try_from(self.sim.elapsed().as_secs()).expect("a short test")
    }

    /// One arrival, or everything that is due at one instant.
    fn step(&mut self, end: Instant) {
        let clients = self.callers.iter().filter_map(|caller| caller.client.poll_timeout());
        let workers = self.workers.iter().filter_map(Worker::poll_timeout);
        let nodes = self.nodes.iter().filter_map(Node::poll_timeout);
        let timeout = clients.chain(workers).chain(nodes).chain([self.next_housekeeping, end]).min();
        match self.sim.step(timeout) {
            Step::Delivery(delivery) => self.deliver(delivery),
            Step::Timeout | Step::Idle => self.handle_timeouts(),
        }
        self.drain_edge();
        let (at, inputs) = self.inputs_at_once;
        let inputs = if at == self.sim.elapsed() { inputs + 1 } else { 0 };
        self.inputs_at_once = (self.sim.elapsed(), inputs);
        assert!(inputs < MAX_INPUTS_AT_ONCE, "time stands still; {}", self.context());
    }

    fn handle_timeouts(&mut self) {
        let now = self.sim.now();
        for number in 0..self.callers.len() {
            if self.callers[number].client.poll_timeout().is_some_and(|due| due <= now) {
                let mut notes = std::mem::take(&mut self.notes);
                self.callers[number].client.handle_timeout(now, self.sim.elapsed(), &mut notes);
                self.notes = notes;
                self.drain_client(number);
            }
        }
        for worker in &mut self.workers {
            if worker.poll_timeout().is_some_and(|due| due <= now) {
                worker.handle_timeout(now);
            }
        }
        self.drain_edge();
        for node in 0..self.nodes.len() {
            self.nodes[node].handle_timeout(now);
            self.drain_node(node);
        }
        if self.next_housekeeping <= now {
            self.next_housekeeping += HOUSEKEEPING;
            self.edge.directory.expire(now);
        }
    }
}

/// Everything that is held for calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Claimed sessions on all workers.
    pub sessions: usize,
    /// Their checked 4-tuples.
    pub paths: usize,
    /// Their utterances.
    pub utterances: usize,
    /// Sessions of the directory.
    pub entries: usize,
    /// Of them, not claimed.
    pub pending: u64,
    /// 4-tuples of the directory.
    pub routes: usize,
    /// Seats in use.
    pub seats: u32,
    /// Calls on all transceivers.
    pub calls: usize,
    /// Workers that wait for a deadline.
    pub deadlines: usize,
}
