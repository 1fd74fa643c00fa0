//! Edges of one PoP in virtual time, with a client on a foreign stack whose packets reach the wrong one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{CLIENT, Client, EDGE, UNIX, Virtual, run_for, shared_of};
use edge::directory::{Directory, Pop};
use edge::keys::PopKeys;
use edge::signaling::{CreateCall, Shared, create_call};
use edge::worker::budget::Limits;
use edge::worker::peers::{Gate, GateDiscard};
use edge::worker::{Discard, Output, Worker, WorkerConfig};
use link::ids::EdgeId;
use link::route::forward::{Forward, Kind};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::{Class, Path, classify};

/// One edge: its shared tables, its workers, its door for peers, and the address that clients reach.
struct Node {
    id: EdgeId,
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    gate: Gate,
    address: SocketAddr,
}

/// A PoP and one client; the network between them is perfect and instant.
struct PopRig {
    begin: Instant,
    now: Instant,
    nodes: Vec<Node>,
    client: Client,
    /// Which edge and worker the client's datagrams reach, and from which address.
    ingress: usize,
    arrival: usize,
    source: SocketAddr,
    /// What does not pass.
    lose: fn(Class) -> bool,
    /// Datagrams between edges, with the sender's index.
    between: Vec<(usize, Vec<u8>)>,
    /// Datagrams to clients that an edge sent, by edge.
    sent: Vec<usize>,
    dead: Option<usize>,
}

const WORKERS: usize = 2;

impl PopRig {
    fn new(addresses: &[&str]) -> Self {
        let begin = Instant::now();
        let keys = PopKeys::single(&[7; 32], rtc::Identity::generate());
        let ids: Vec<EdgeId> = (1..=u16::try_from(addresses.len()).unwrap()).map(EdgeId).collect();
        let node = |(id, address): (&EdgeId, &&str)| {
            let peers: Vec<EdgeId> = ids.iter().copied().filter(|peer| peer != id).collect();
            let directory = Directory::in_pop(WORKERS, Pop::new(&peers, 1000));
            let shared = shared_of(*id, directory, keys.clone(), 10, Duration::from_secs(30));
            let worker = |index| {
                let config = WorkerConfig {
                    index,
                    edge: *id,
                    session: rtc::Config::default(),
                    limits: Limits::default(),
                    reflex: false,
                };
                Worker::new(begin, config, Arc::clone(&shared.directory), keys.clone(), [9; 32])
            };
            let workers = (0..u32::try_from(WORKERS).unwrap()).map(worker).collect();
            Node { id: *id, shared, workers, gate: Gate::new(*id, &peers), address: address.parse().unwrap() }
        };
        let nodes: Vec<Node> = ids.iter().zip(addresses).map(node).collect();
        let client = Client::new(begin, CLIENT.parse().unwrap());
        let source = client.local;
        let sent = vec![0; nodes.len()];
        Self {
            begin,
            now: begin,
            nodes,
            client,
            ingress: 0,
            arrival: 0,
            source,
            lose: |_| false,
            between: vec![],
            sent,
            dead: None,
        }
    }

    /// Two edges with addresses of their own.
    fn two() -> Self {
        Self::new(&[EDGE, "192.0.2.2:3478"])
    }

    fn unix(&self) -> u32 {
        UNIX + u32::try_from((self.now - self.begin).as_secs()).unwrap()
    }

    /// A call that edge 1 answers, connected there.
    fn connected(self) -> Self {
        self.connected_to(0)
    }

    /// A call that this edge answers.
    fn connected_to(mut self, node: usize) -> Self {
        let began = self.now;
        let offer = self.client.offer();
        let request = CreateCall { offer: &offer, model: Some("echo"), ..CreateCall::default() };
        let mut rng = StdRng::seed_from_u64(1);
        let created = create_call(&self.nodes[node].shared, self.now, self.unix(), &mut rng, request).unwrap();
        self.client.accept(&created.answer);
        while self.client.channel.is_none() {
            assert!(self.now - began < Duration::from_secs(5), "not connected");
            self.run_for(Duration::from_millis(5));
        }
        self.talk(5);
        assert_eq!(self.client.heard.len(), 5);
        self
    }

    /// The page forgets its call, and its next one has the same port.
    fn load_again(&mut self) {
        self.client = Client::new(self.now, self.client.local);
    }

    /// The client's packets reach the other edge, from another address, as behind another proxy.
    fn re_aim(&mut self) {
        self.ingress = 1;
        self.source = "203.0.113.9:50000".parse().unwrap();
    }

    /// Speaks so many frames.
    fn talk(&mut self, frames: u8) {
        for n in 0..frames {
            self.client.speak(self.now, &[0xfc, n]);
            self.run_for(Duration::from_millis(20));
        }
    }

    fn settle(&mut self) {
        self.client.drain(self.now);
        loop {
            let mut quiet = true;
            while let Some((_, mut datagram)) = self.client.outbox.pop_front() {
                quiet = false;
                if (self.lose)(classify(&datagram)) || self.dead == Some(self.ingress) {
                    continue;
                }
                let (now, unix) = (self.now, self.unix());
                let node = &mut self.nodes[self.ingress];
                let path = Path::udp(node.address, self.source);
                node.workers[self.arrival].handle_datagram(now, unix, path, &mut datagram);
            }
            for index in 0..self.nodes.len() {
                quiet &= !self.drain_node(index);
            }
            if quiet {
                return;
            }
        }
    }

    fn drain_node(&mut self, index: usize) -> bool {
        if self.dead == Some(index) {
            return false;
        }
        let (now, unix) = (self.now, self.unix());
        let mut busy = false;
        for worker in 0..WORKERS {
            let mut datagram = Vec::new();
            while let Some(path) = self.nodes[index].workers[worker].poll_transmit(&mut datagram) {
                busy = true;
                self.sent[index] += 1;
                assert_eq!(path.local, self.nodes[index].address, "an edge sends from its own address");
                if path.remote == self.source && index == self.ingress {
                    // The proxy, or the network, makes it come from where the client sends to.
                    self.client.receive(now, EDGE.parse().unwrap(), &datagram);
                }
            }
            while let Some(output) = self.nodes[index].workers[worker].poll_output() {
                busy = true;
                match output {
                    Output::HandOver { worker, path, mut datagram } => {
                        let worker = &mut self.nodes[index].workers[usize::try_from(worker).unwrap()];
                        worker.handle_hand_over(now, unix, path, &mut datagram);
                    }
                    Output::Forward { peer, bytes } => {
                        self.between.push((index, bytes.clone()));
                        let peer = self.nodes.iter().position(|node| node.id == peer).unwrap();
                        if self.dead != Some(peer) {
                            self.arrive(peer, &bytes).unwrap();
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        busy
    }

    /// A datagram on the peers' socket of an edge.
    fn arrive(&mut self, index: usize, bytes: &[u8]) -> Result<(), GateDiscard> {
        let (now, unix) = (self.now, self.unix());
        let node = &mut self.nodes[index];
        let forwarded = node.gate.open(node.shared.keys.current().route(), unix, bytes)?;
        let worker = usize::try_from(Gate::worker_for(&node.shared.directory, &forwarded)).unwrap();
        node.workers[worker].handle_peer(now, unix, forwarded);
        Ok(())
    }

    fn run_for(&mut self, duration: Duration) {
        run_for(self, duration);
    }

    fn sum(&self, node: usize, count: fn(&edge::worker::Stats) -> u64) -> u64 {
        self.nodes[node].workers.iter().map(|worker| count(&worker.stats())).sum()
    }

    fn opened(&self, bytes: &[u8]) -> (Kind, Vec<u8>) {
        let keys = self.nodes[0].shared.keys.current();
        let forward = keys.route().open_forward(bytes).unwrap();
        (forward.kind, forward.datagram.to_vec())
    }
}

impl Virtual for PopRig {
    fn now(&mut self) -> &mut Instant {
        &mut self.now
    }

    fn settle(&mut self) {
        Self::settle(self);
    }

    fn deadline(&self) -> Option<Instant> {
        let workers = self.nodes.iter().flat_map(|node| &node.workers);
        workers.filter_map(Worker::poll_timeout).chain([self.client.timeout]).min()
    }

    fn serve(&mut self) {
        if self.client.timeout <= self.now {
            self.client.tick(self.now);
        }
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if self.dead != Some(index) {
                node.workers.iter_mut().for_each(|worker| worker.handle_timeout(self.now));
            }
        }
    }
}

#[test]
fn media_that_reaches_another_edge_finds_its_session_with_the_first_packet() {
    for arrival in 0..WORKERS {
        let mut rig = PopRig::two().connected();
        rig.lose = |class| class != Class::Rtp;
        rig.re_aim();
        rig.arrival = arrival;
        rig.client.heard.clear();
        rig.talk(50);
        assert_eq!(rig.client.heard.len(), 50, "each frame is echoed, the first one too");
        assert_eq!(rig.sum(1, |stats| stats.peer_offers), 1, "one offer, then its owner is known");
        assert_eq!(rig.sum(1, |stats| stats.peer_up), 49);
        assert!(rig.sum(0, |stats| stats.peer_down) >= 50);
        assert_eq!(rig.sum(0, |stats| stats.paths_healed), 1);
        assert_eq!((rig.sum(1, |stats| stats.claimed), rig.nodes[1].shared.directory.sessions()), (0, 0));
        assert_eq!(rig.nodes[1].shared.directory.pop.routes(), 1);
    }
}

#[test]
fn everything_of_a_call_goes_through_the_edge_that_the_client_reaches() {
    let mut rig = PopRig::two().connected();
    rig.re_aim();
    let direct = rig.sent[0];
    rig.client.say("from elsewhere");
    rig.talk(100);
    assert_eq!(rig.client.messages.last().unwrap(), "from elsewhere");
    rig.client.heard.clear();
    rig.talk(20);
    assert_eq!(rig.client.heard.len(), 20);
    assert_eq!(rig.sent[0], direct, "the owner sends nothing past the edge that the client reaches");
    assert!(rig.client.rtc.is_alive());
    // Long after: checks keep the way open, and the former path expires.
    rig.talk(250);
    rig.run_for(Duration::from_secs(60));
    rig.client.heard.clear();
    rig.talk(20);
    assert_eq!(rig.client.heard.len(), 20);
    assert_eq!(rig.nodes[0].workers[0].gauges().paths, 1);

    // And back.
    rig.ingress = 0;
    rig.source = CLIENT.parse().unwrap();
    rig.talk(50);
    rig.client.heard.clear();
    let between = rig.between.len();
    rig.talk(20);
    assert_eq!((rig.client.heard.len(), rig.between.len()), (20, between), "straight again");
}

#[test]
fn a_call_can_be_set_up_through_the_other_edge_alone() {
    let mut rig = PopRig::two();
    rig.re_aim();
    let rig = rig.connected();
    assert_eq!((rig.sum(0, |stats| stats.claimed), rig.sum(1, |stats| stats.claimed)), (1, 0));
    assert_eq!(rig.sent[0], 0);
}

/// Edges that share one address: routes changed, the client's 4-tuple did not.
#[test]
fn with_one_address_for_all_edges_a_datagram_that_strays_counts_as_arrived() {
    let mut rig = PopRig::new(&[EDGE, EDGE]).connected();
    rig.lose = |class| class == Class::Stun;
    rig.ingress = 1;
    rig.client.say("strayed");
    rig.run_for(Duration::from_millis(20));
    let up: Vec<_> =
        rig.between.iter().map(|(_, bytes)| rig.opened(bytes)).filter(|(kind, _)| *kind != Kind::Down).collect();
    assert!(up.iter().any(|(kind, datagram)| *kind == Kind::Offer && classify(datagram) == Class::Dtls), "{up:?}");
    assert!(up.iter().any(|(kind, _)| *kind == Kind::Mine), "{up:?}");
    // The echo left at the owner, from the same address.
    assert!(rig.sum(0, |stats| stats.peer_down) == 0 && rig.sent[0] > 0);
}

#[test]
fn a_dead_owners_clients_get_no_byte_and_cost_no_more_than_their_budget() {
    let mut rig = PopRig::two().connected();
    rig.re_aim();
    rig.talk(50);
    rig.dead = Some(0);
    let sent = rig.sent[1];
    rig.between.clear();
    rig.talk(200);
    // Its word holds for 30 s; then the client is offered around, within the budget for strangers.
    rig.run_for(Duration::from_secs(40));
    rig.talk(50);
    assert_eq!(rig.sent[1], sent, "nobody answers in the name of an edge that is gone");
    assert_eq!(rig.sum(1, |stats| stats.claimed), 0);
    let offers = rig.between.iter().filter(|(_, bytes)| rig.opened(bytes).0 == Kind::Offer).count();
    assert!((1..=100).contains(&offers), "{offers}");
}

#[test]
fn strangers_are_offered_within_a_budget_and_never_answered() {
    let mut rig = PopRig::two().connected();
    let path = Path::udp(rig.nodes[1].address, "203.0.113.66:1234".parse().unwrap());
    let (now, unix) = (rig.now, rig.unix());
    for n in 0..1000_u32 {
        for mut datagram in [[&[128, 111, 0, 1, 0, 0, 0, 0][..], &n.to_be_bytes(), &[0; 30]].concat(), vec![22; 60]] {
            rig.nodes[1].workers[0].handle_datagram(now, unix, path, &mut datagram);
        }
    }
    rig.settle();
    assert_eq!(rig.between.len(), 100, "a source's budget for a second");
    assert_eq!(rig.sum(1, |stats| stats.discarded(Discard::OverBudget)), 1900);
    assert_eq!(rig.sum(0, |stats| stats.discarded(Discard::Rtc(rtc::Discard::UncheckedPath))), 100);
    assert_eq!((rig.sum(0, |stats| stats.peer_mine), rig.nodes[1].shared.directory.pop.routes()), (0, 0));
}

#[test]
fn what_a_peer_forwarded_is_never_forwarded_again() {
    let mut rig = PopRig::new(&[EDGE, "192.0.2.2:3478", "192.0.2.3:3478"]).connected();
    rig.between.clear();
    // An offer of something that nobody knows, and a check that names the third edge's neighbor.
    let stray = [&[128, 111, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4][..], &[0; 30]].concat();
    rig.client.tick(rig.now + Duration::from_secs(3));
    let check = rig.client.outbox.drain(..).find(|(_, d)| classify(d) == Class::Stun).expect("a check").1;
    for (seq, datagram) in [(1, &stray), (2, &check)] {
        for kind in [Kind::Up, Kind::Offer] {
            let forward = Forward {
                kind,
                from: EdgeId(2),
                to: EdgeId(3),
                time: rig.unix(),
                seq: seq * 10 + u64::from(kind == Kind::Up),
                local: rig.nodes[1].address,
                remote: rig.source,
                over_tcp: false,
                datagram,
            };
            let mut bytes = Vec::new();
            rig.nodes[1].shared.keys.current().route().seal_forward(&forward, &mut bytes);
            rig.arrive(2, &bytes).unwrap();
        }
    }
    rig.settle();
    assert!(rig.between.is_empty() && rig.sent[2] == 0);
    assert_eq!(rig.sum(2, |stats| stats.discarded(Discard::OtherEdge)), 2);
}

#[test]
fn a_check_is_verified_before_another_worker_or_edge_hears_of_it() {
    let mut rig = PopRig::two().connected();
    rig.client.tick(rig.now + Duration::from_secs(3));
    let mut check = rig.client.outbox.drain(..).find(|(_, d)| classify(d) == Class::Stun).expect("a check").1;
    // The transaction id: covered by MESSAGE-INTEGRITY; FINGERPRINT is cut off and the length says so.
    check[10] ^= 1;
    check.truncate(check.len() - 8);
    let length = u16::try_from(check.len() - 20).unwrap();
    check[2..4].copy_from_slice(&length.to_be_bytes());
    let (now, unix) = (rig.now, rig.unix());
    let path = Path::udp(rig.nodes[1].address, rig.source);
    rig.nodes[1].workers[0].handle_datagram(now, unix, path, &mut check.clone());
    let path = Path::udp(rig.nodes[0].address, rig.source);
    rig.nodes[0].workers[1].handle_datagram(now, unix, path, &mut check);
    for (node, worker) in [(1, 0), (0, 1)] {
        let worker = &mut rig.nodes[node].workers[worker];
        assert!(worker.poll_output().is_none());
        assert_eq!(worker.stats().discarded(Discard::Rtc(rtc::Discard::StunIntegrity)), 1);
    }
}

/// A page at edge 2 is loaded again: the port stays, and the POST is answered by edge 1.
#[test]
fn a_page_that_is_loaded_again_is_heard_by_the_edge_that_answered_it_now() {
    for arrival in 0..WORKERS {
        let mut rig = PopRig::two();
        rig.ingress = 1;
        rig.arrival = arrival;
        rig = rig.connected_to(1);
        assert_eq!(rig.nodes[1].workers[arrival].gauges().paths, 1);
        rig.load_again();
        let before = rig.now;
        rig = rig.connected_to(0);
        assert!(rig.now - before < Duration::from_secs(2), "{:?}", rig.now - before);
        assert_eq!((rig.sum(0, |stats| stats.claimed), rig.sum(1, |stats| stats.claimed)), (1, 1));
        assert_eq!((rig.nodes[1].workers[arrival].gauges().paths, rig.nodes[1].shared.directory.paths()), (0, 0));
        // The call that was left ends without its client.
        rig.talk(100);
        rig.run_for(Duration::from_secs(31));
        rig.talk(5);
        let sessions =
            |node: usize| rig.nodes[node].workers.iter().map(|worker| worker.gauges().sessions).sum::<usize>();
        assert_eq!((sessions(0), sessions(1)), (1, 0));
    }
}

/// The other way round: what edge 1 still plays to the call that was left does not take the 4-tuple from edge 2.
#[test]
fn what_is_left_of_a_former_page_does_not_take_the_new_ones_packets() {
    let mut rig = PopRig::two();
    rig.ingress = 1;
    rig = rig.connected_to(0);
    rig.load_again();
    rig = rig.connected_to(1);
    let path = Path::udp(rig.nodes[1].address, rig.source);
    let media = [&[128, 111, 0, 1][..], &[7; 60]].concat();
    for seq in 0..20 {
        let forward = Forward {
            kind: Kind::Down,
            from: EdgeId(1),
            to: EdgeId(2),
            time: rig.unix(),
            seq: 1_000_000 + seq,
            local: path.local,
            remote: path.remote,
            over_tcp: false,
            datagram: &media,
        };
        let mut bytes = Vec::new();
        rig.nodes[0].shared.keys.current().route().seal_forward(&forward, &mut bytes);
        rig.arrive(1, &bytes).unwrap();
    }
    assert_eq!(rig.nodes[1].shared.directory.paths(), 1);
    rig.client.heard.clear();
    rig.lose = |class| class == Class::Stun;
    rig.talk(10);
    assert_eq!(rig.client.heard.len(), 10);
}

#[test]
fn one_source_fills_no_more_than_its_share_of_the_peers_paths() {
    let pop = Pop::new(&[EdgeId(2)], 0);
    let now = Instant::now();
    let path = |host: u8, port: u16| Path::udp(EDGE.parse().unwrap(), SocketAddr::from(([203, 0, 113, host], port)));
    for port in 1..=20_000 {
        pop.learn(path(1, port), EdgeId(2), now);
    }
    assert_eq!(pop.routes(), 256);
    pop.learn(path(2, 1), EdgeId(2), now + Duration::from_secs(20));
    assert_eq!(pop.peer_of(&path(2, 1), now + Duration::from_secs(20)), Some(EdgeId(2)));
    // What expired is free again.
    let later = now + Duration::from_secs(31);
    pop.expire(later);
    assert_eq!(pop.routes(), 1);
    for port in 30_000..31_000 {
        pop.learn(path(1, port), EdgeId(2), later);
    }
    assert_eq!(pop.routes(), 257);
}

/// Somebody who saw an SSRC and sends from everywhere at once: a hand-over costs another thread its time.
#[test]
fn packets_with_a_sniffed_ssrc_are_handed_over_within_the_budget_of_strangers() {
    let mut rig = PopRig::new(&[EDGE]).connected();
    rig.client.speak(rig.now, &[0xfc, 1]);
    rig.client.tick(rig.now);
    let genuine = rig.client.outbox.drain(..).find(|(_, d)| classify(d) == Class::Rtp).expect("a packet").1;
    let (now, unix) = (rig.now, rig.unix());
    for n in 0..20_000_u16 {
        let path = Path::udp(rig.nodes[0].address, SocketAddr::from(([203, 0, 113, 1], 1000 + n)));
        rig.nodes[0].workers[1].handle_datagram(now, unix, path, &mut genuine.clone());
    }
    let stats = rig.nodes[0].workers[1].stats();
    let per_source = u64::from(Limits::default().per_source);
    assert_eq!((stats.handed_over, stats.discarded(Discard::OverBudget)), (per_source, 20_000 - per_source));
}

/// Case I05 without a check: the NAT gave the client another port, and the kernel gives that to another worker.
#[test]
fn a_nat_rebind_heals_with_the_next_packet_of_audio() {
    for arrival in 0..WORKERS {
        let mut rig = PopRig::new(&[EDGE]).connected();
        rig.lose = |class| class == Class::Stun;
        rig.source = "198.51.100.7:50123".parse().unwrap();
        rig.arrival = arrival;
        rig.client.heard.clear();
        rig.talk(20);
        assert_eq!(rig.client.heard.len(), 20, "worker {arrival}");
        assert_eq!(rig.sum(0, |stats| stats.paths_healed), 1);
    }
}

#[test]
fn packets_that_only_state_a_known_ssrc_move_nothing_and_are_tried_100_times_per_second_at_most() {
    let mut rig = PopRig::new(&[EDGE]).connected();
    rig.client.speak(rig.now, &[0xfc, 1]);
    rig.client.tick(rig.now);
    let genuine = rig.client.outbox.drain(..).find(|(_, d)| classify(d) == Class::Rtp).expect("a packet").1;
    let (now, unix) = (rig.now, rig.unix());
    for n in 0..1000_u16 {
        let path = Path::udp(rig.nodes[0].address, SocketAddr::from(([203, 0, 113, 1], 1000 + n)));
        let mut forged = genuine.clone();
        *forged.last_mut().unwrap() ^= 1;
        let at = now + Duration::from_millis(u64::from(n));
        rig.nodes[0].workers[0].handle_datagram(at, unix, path, &mut forged);
    }
    let stats = rig.nodes[0].workers[0].stats();
    assert_eq!(stats.discarded(Discard::Rtc(rtc::Discard::SrtpAuthentication)), 100);
    assert_eq!((stats.discarded(Discard::OverBudget), stats.paths_healed), (900, 0));
    assert_eq!(rig.nodes[0].workers[0].gauges().paths, 1);

    // A recorded packet that did arrive proves nothing either.
    let at = rig.now + Duration::from_secs(2);
    let path = Path::udp(rig.nodes[0].address, rig.source);
    rig.nodes[0].workers[0].handle_datagram(at, unix, path, &mut genuine.clone());
    let path = Path { remote: "203.0.113.1:1".parse().unwrap(), ..path };
    rig.nodes[0].workers[0].handle_datagram(at, unix, path, &mut genuine.clone());
    let stats = rig.nodes[0].workers[0].stats();
    assert_eq!((stats.discarded(Discard::Rtc(rtc::Discard::SrtpReplay)), stats.paths_healed), (1, 0));
}

/// Whoever can hold a packet back may send it from elsewhere later.
#[test]
fn a_packet_that_others_overtook_is_heard_and_moves_nothing() {
    let mut rig = PopRig::new(&[EDGE]).connected();
    let mut packet = || {
        rig.client.speak(rig.now, &[0xfc, 1]);
        rig.now += Duration::from_millis(20);
        rig.client.tick(rig.now);
        rig.client.outbox.drain(..).find(|(_, d)| classify(d) == Class::Rtp).expect("a packet").1
    };
    let (mut withheld, mut next) = (packet(), packet());
    let (now, unix) = (rig.now, rig.unix());
    let path = Path::udp(rig.nodes[0].address, rig.source);
    let worker = &mut rig.nodes[0].workers[0];
    worker.handle_datagram(now, unix, path, &mut next);
    let received = worker.stats().media_received;
    worker.handle_datagram(now, unix, Path { remote: "203.0.113.1:1".parse().unwrap(), ..path }, &mut withheld);
    assert_eq!((worker.stats().media_received - received, worker.stats().paths_healed), (1, 0));
    assert_eq!(worker.gauges().paths, 1);
    let mut out = Vec::new();
    while let Some(to) = worker.poll_transmit(&mut out) {
        assert_eq!(to, path);
    }
}

#[test]
fn the_gate_lets_in_each_datagram_of_each_peer_once() {
    let keys = PopKeys::single(&[7; 32], rtc::Identity::generate());
    let mut gate = Gate::new(EdgeId(1), &[EdgeId(2)]);
    let good = Forward {
        kind: Kind::Up,
        from: EdgeId(2),
        to: EdgeId(1),
        time: UNIX,
        seq: 1,
        local: EDGE.parse().unwrap(),
        remote: CLIENT.parse().unwrap(),
        over_tcp: false,
        datagram: &[1, 2, 3],
    };
    let mut open = |forward: &Forward<'_>, unix| {
        let mut bytes = Vec::new();
        keys.route().seal_forward(forward, &mut bytes);
        gate.open(keys.route(), unix, &bytes).map(|forwarded| forwarded.datagram)
    };
    assert_eq!(open(&good, UNIX), Ok(vec![1, 2, 3]));
    assert_eq!(open(&good, UNIX), Err(GateDiscard::Replayed));
    assert_eq!(open(&Forward { seq: 2, ..good }, UNIX + 31), Err(GateDiscard::Stale));
    assert_eq!(open(&Forward { seq: 3, to: EdgeId(3), ..good }, UNIX), Err(GateDiscard::Stranger));
    assert_eq!(open(&Forward { seq: 3, from: EdgeId(3), ..good }, UNIX), Err(GateDiscard::Stranger));
    assert_eq!(open(&Forward { seq: 3, ..good }, UNIX - 30), Ok(vec![1, 2, 3]));
    assert_eq!(gate.open(keys.route(), UNIX, &[0; 200]), Err(GateDiscard::Forged));
}
