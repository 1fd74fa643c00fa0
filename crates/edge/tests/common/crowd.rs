//! Many clients on a foreign stack against one worker core, in virtual time, with what the core allocates counted apart
//! from what the clients do.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge::signaling::{CreateCall, Shared, create_call};
use edge::worker::budget::Limits;
use edge::worker::{Output, Worker, WorkerConfig};
use link::ids::{EdgeId, SessionId};
use net::alloc::{Counts, thread};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::{Class, Path, classify};

use super::{Client, UNIX, shared};

/// Batches that a link has not yet sent: more than one block of the writer's holds.
const HELD_BATCHES: usize = 64;

/// What the worker allocated for one sort of input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) inputs: u64,
    pub(crate) allocations: u64,
    pub(crate) live_bytes: i64,
}

impl Cost {
    fn add(&mut self, counts: Counts) {
        self.inputs += 1;
        self.allocations += counts.allocations;
        self.live_bytes += counts.live_bytes;
    }
}

/// By input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Costs {
    /// SRTP from clients.
    pub(crate) media: Cost,
    /// STUN, DTLS and SRTCP from clients.
    pub(crate) control: Cost,
    /// Deadlines.
    pub(crate) timeouts: Cost,
    /// What transceivers say.
    pub(crate) link: Cost,
    /// Requests for calls.
    pub(crate) signaling: Cost,
    pub(crate) batches: u64,
}

impl Costs {
    /// Everything.
    pub(crate) fn live_bytes(&self) -> i64 {
        [self.media, self.control, self.timeouts, self.link, self.signaling].iter().map(|cost| cost.live_bytes).sum()
    }
}

pub(crate) struct Crowd {
    pub(crate) begin: Instant,
    pub(crate) now: Instant,
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Worker,
    pub(crate) clients: Vec<Client>,
    pub(crate) costs: Costs,
    /// Datagrams to clients.
    pub(crate) transmitted: u64,
    /// Everything that the worker put out but media batches.
    pub(crate) outputs: Vec<Output>,
    /// Batches as a link that is behind would hold them.
    held: VecDeque<bytes::Bytes>,
    /// Reused, as the shell does.
    scratch: Vec<u8>,
    rng: StdRng,
}

impl Crowd {
    pub(crate) fn new(seats: u32) -> Self {
        Self::with_limits(seats, Limits::default())
    }

    pub(crate) fn with_limits(seats: u32, limits: Limits) -> Self {
        let shared = shared(1, seats, Duration::from_secs(30));
        let begin = Instant::now();
        let config = WorkerConfig { index: 0, edge: EdgeId(1), session: rtc::Config::default(), limits, reflex: false };
        let worker = Worker::new(begin, config, Arc::clone(&shared.directory), shared.keys.current(), [1; 32]);
        Self {
            begin,
            now: begin,
            shared,
            worker,
            clients: Vec::new(),
            costs: Costs::default(),
            transmitted: 0,
            outputs: Vec::new(),
            held: VecDeque::with_capacity(HELD_BATCHES),
            scratch: Vec::new(),
            rng: StdRng::seed_from_u64(1),
        }
    }

    fn unix(&self) -> u32 {
        UNIX + u32::try_from((self.now - self.begin).as_secs()).unwrap()
    }

    /// One more client, connected with an open channel.
    pub(crate) fn join(&mut self, model: &str) -> SessionId {
        let id = self.call(model);
        let index = self.clients.len() - 1;
        let until = self.now + Duration::from_secs(5);
        while !(self.clients[index].connected && self.clients[index].channel.is_some()) {
            assert!(self.now < until, "client {index} does not connect");
            self.run_for(Duration::from_millis(5));
        }
        id
    }

    /// Signals a call of one more client.
    pub(crate) fn call(&mut self, model: &str) -> SessionId {
        let index = u32::try_from(self.clients.len()).unwrap();
        let address = SocketAddr::from(([198, 51, 100, 7], u16::try_from(20_000 + index % 40_000).unwrap()));
        let mut client = Client::new(self.now, address);
        let offer = client.offer();
        let request = CreateCall { offer: &offer, model: Some(model), ..CreateCall::default() };
        let before = thread();
        let created = create_call(&self.shared, self.now, self.unix(), &mut self.rng, request).unwrap();
        self.costs.signaling.add(thread() - before);
        client.accept(&created.answer);
        self.costs.signaling.live_bytes -= i64::try_from(created.answer.capacity()).unwrap();
        self.clients.push(client);
        created.id
    }

    /// Each client says one 20 ms frame.
    pub(crate) fn speak(&mut self, payload: &[u8]) {
        for client in &mut self.clients {
            client.speak(self.now, payload);
        }
        self.run_for(Duration::from_millis(20));
    }

    /// Gives the worker one input, and carries what it answers.
    pub(crate) fn turn(&mut self, cost: fn(&mut Costs) -> &mut Cost, input: impl FnOnce(&mut Worker, Instant, u32)) {
        let (now, unix) = (self.now, self.unix());
        let before = thread();
        input(&mut self.worker, now, unix);
        let mut counts = thread() - before;
        loop {
            let before = thread();
            let path = self.worker.poll_transmit(&mut self.scratch);
            counts = sum(counts, thread() - before);
            if let Some(path) = path {
                self.transmitted += 1;
                let client = self.clients.iter_mut().find(|client| client.local == path.remote);
                if let Some(client) = client {
                    client.receive(now, path.local, &self.scratch);
                }
                continue;
            }
            let before = thread();
            let output = self.worker.poll_output();
            counts = sum(counts, thread() - before);
            match output {
                None => break,
                Some(Output::Datagram { batch, .. }) => {
                    self.costs.batches += 1;
                    if self.held.len() == HELD_BATCHES {
                        self.held.pop_front();
                    }
                    self.held.push_back(batch);
                }
                Some(other) => self.outputs.push(other),
            }
        }
        cost(&mut self.costs).add(counts);
    }

    fn settle(&mut self) {
        for client in &mut self.clients {
            client.drain(self.now);
        }
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for index in 0..self.clients.len() {
                while let Some((to, mut datagram)) = self.clients[index].outbox.pop_front() {
                    quiet = false;
                    let path = Path::udp(to, self.clients[index].local);
                    let cost: fn(&mut Costs) -> &mut Cost = match classify(&datagram) {
                        Class::Rtp => |costs| &mut costs.media,
                        _ => |costs| &mut costs.control,
                    };
                    self.turn(cost, |worker, now, unix| worker.handle_datagram(now, unix, path, &mut datagram));
                }
            }
        }
    }

    /// Lets time pass, serving every deadline.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        loop {
            self.settle();
            let clients = self.clients.iter().map(|client| client.timeout).min();
            let next = [self.worker.poll_timeout(), clients].into_iter().flatten().min().unwrap_or(until);
            let next = next.max(self.now + Duration::from_micros(100));
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            for client in &mut self.clients {
                if client.timeout <= next {
                    client.tick(next);
                }
            }
            if self.worker.poll_timeout().is_some_and(|at| at <= next) {
                self.turn(|costs| &mut costs.timeouts, |worker, now, _| worker.handle_timeout(now));
            }
        }
    }
}

fn sum(a: Counts, b: Counts) -> Counts {
    Counts { allocations: a.allocations + b.allocations, live_bytes: a.live_bytes + b.live_bytes }
}
