//! Two ends of a link on one thread in virtual time: quinn's machines, our numbers and controller, a path with delay, seeded
//! loss and a bottleneck. What the shells do around a link (turns of 1 ms, repetition, the queue of a closing window) is
//! done here the same way.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent, StreamId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::config;
use super::path::Path;
use super::pulse::heard;
use super::queue::MediaQueue;
use crate::datagram::{Batch, BatchWriter, Codec, Heartbeat, MediaUp, Previous, Seen, parse};
use crate::identity::{NodeIdentity, Role};
use crate::ids::{EdgeId, Slot, TransceiverId};

const MS: Duration = Duration::from_millis(1);
/// One Opus packet of 20 ms at 40 kbit/s.
const PAYLOAD: usize = 100;
/// What a turn of the sender's loop takes.
const TURN: Duration = MS;

/// One direction of the path.
struct Way {
    delay: Duration,
    /// Lost share.
    loss: f64,
    /// Bytes per second of the bottleneck; `None`: there is none.
    rate: Option<u64>,
    /// What may wait at it.
    queue_bytes: u64,
    /// When the bottleneck is free again.
    free_at: Instant,
    under_way: VecDeque<(Instant, Bytes)>,
}

impl Way {
    fn send(&mut self, now: Instant, dice: &mut StdRng, packet: Bytes) {
        let mut leaves = now;
        if let Some(rate) = self.rate {
            let waiting = self.free_at.saturating_duration_since(now);
            // One packet is on the wire whatever the queue's size.
            if waiting.as_micros() * u128::from(rate) > u128::from(self.queue_bytes) * 1_000_000 {
                return;
            }
            let on_wire = Duration::from_micros(packet.len() as u64 * 1_000_000 / rate);
            self.free_at = self.free_at.max(now) + on_wire;
            leaves = self.free_at;
        }
        if dice.random_bool(self.loss) {
            return;
        }
        self.under_way.push_back((leaves + self.delay, packet));
    }
}

/// One end: what `Endpoint` and `Link` are around quinn's machines.
struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    path: Arc<Path>,
    queue: MediaQueue,
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
    refused: u64,
    /// For how long quinn has not been able to send a datagram that it was given.
    waited: Duration,
    longest_wait: Duration,
    /// Signs of life of the other end's, for how long there were none, and the longest of that since the handshake.
    heard: Option<u64>,
    silent: Duration,
    longest_silence: Duration,
}

impl End {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection.as_mut().unwrap().1
    }

    /// Its handshake is done, as far as it knows.
    fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|(_, connection)| !connection.is_handshaking())
    }

    fn send_datagram(&mut self, now: Instant, datagram: Bytes) {
        if self.path.is_closing() {
            self.queue.push(now, datagram);
            self.pump(now);
        } else if self.connection().datagrams().send(datagram, true).is_err() {
            self.refused += 1;
        }
    }

    /// quinn has no datagram to send.
    fn is_idle(&mut self) -> bool {
        let empty = config::DATAGRAM_SEND_BYTES - size_of::<Bytes>();
        self.connection().datagrams().send_buffer_space() >= empty
    }

    /// As [`super::Link`] does it.
    fn pump(&mut self, now: Instant) {
        while !self.queue.is_empty() {
            if self.path.is_closing() && !(self.is_idle() && self.path.has_room()) {
                return;
            }
            let Some(datagram) = self.queue.pop(now) else { return };
            if self.connection().datagrams().send(datagram, true).is_err() {
                self.refused += 1;
            }
        }
    }
}

/// A frame on its way.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    delivered: Option<Instant>,
}

/// Both ends, the path, and the sessions' traffic.
struct World {
    now: Instant,
    start: Instant,
    dice: StdRng,
    /// 0 the edge, 1 the transceiver.
    ends: [End; 2],
    /// From each end to the other.
    ways: [Way; 2],
    sessions: u32,
    /// By direction, session and number.
    frames: [BTreeMap<(u32, u16), Sent>; 2],
    seen: [BTreeMap<u32, Seen>; 2],
    previous: [Vec<Previous>; 2],
    repeated: u64,
    events: VecDeque<(usize, Event)>,
    answered: BTreeMap<StreamId, Instant>,
}

impl World {
    /// A link over a path of `rtt`, its handshake done without loss.
    fn new(seed: u64, sessions: u32, rtt: Duration) -> Self {
        Self::with_controller(seed, sessions, rtt, config::Controller::Voice)
    }

    fn with_controller(seed: u64, sessions: u32, rtt: Duration, controller: config::Controller) -> Self {
        let mut world = Self::dialed(seed, sessions, rtt, controller);
        world.quiet(2 * Duration::from_secs(1));
        assert!(world.ends.iter_mut().all(|end| end.is_up()), "seed {seed}: no handshake");
        world
    }

    /// A link whose handshake is still to come.
    fn dialed(seed: u64, sessions: u32, rtt: Duration, controller: config::Controller) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fronthaul-virtual-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let edge = NodeIdentity::load_or_create(&dir, Role::Edge(EdgeId(1))).unwrap();
        let transceiver = NodeIdentity::load_or_create(&dir, Role::Transceiver(TransceiverId(7))).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();

        let now = Instant::now();
        let paths = [Arc::new(Path::new()), Arc::new(Path::new())];
        let addresses = [1000, 2000].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut server = config::server(&transceiver).unwrap();
        server.transport_config(config::server_transport(controller, &paths[1]));
        let mut client = config::client(&edge).unwrap();
        client.transport_config(config::client_transport(controller, &paths[0]));
        let mut seeds = [[0; 32]; 2];
        seeds.iter_mut().for_each(|s| s[..8].copy_from_slice(&seed.to_be_bytes()));
        let mut seeds = seeds.into_iter();
        let mut ends = [(edge, None), (transceiver, Some(server))].map(|(identity, server)| {
            let config = Arc::new(config::endpoint(&identity));
            let machine = Endpoint::new(config, server.clone().map(Arc::new), true, seeds.next());
            (machine, server)
        });
        let (handle, connection) = ends[0].0.connect(now, client, addresses[1], "transceiver").unwrap();
        let [edge, transceiver] = ends;
        let end = |(endpoint, server), index: usize| End {
            endpoint,
            connection: None,
            path: Arc::clone(&paths[index]),
            queue: MediaQueue::default(),
            address: addresses[index],
            server,
            refused: 0,
            waited: Duration::ZERO,
            longest_wait: Duration::ZERO,
            heard: None,
            silent: Duration::ZERO,
            longest_silence: Duration::ZERO,
        };
        let mut ends = [end(edge, 0), end(transceiver, 1)];
        ends[0].connection = Some((handle, connection));
        let way =
            || Way { delay: rtt / 2, loss: 0.0, rate: None, queue_bytes: 0, free_at: now, under_way: VecDeque::new() };
        let previous = || (0..sessions).map(|_| Previous::default()).collect();
        Self {
            now,
            start: now,
            dice: StdRng::seed_from_u64(seed),
            ends,
            ways: [way(), way()],
            sessions,
            frames: [BTreeMap::new(), BTreeMap::new()],
            seen: [BTreeMap::new(), BTreeMap::new()],
            previous: [previous(), previous()],
            repeated: 0,
            events: VecDeque::new(),
            answered: BTreeMap::new(),
        }
    }

    /// Lets time pass without media.
    fn quiet(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.turn(false);
        }
    }

    /// Every session speaks, both ways.
    fn talk(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.turn(true);
        }
    }

    /// 1 ms: the frames that are due, a beat, and what the machines make of them.
    fn turn(&mut self, talking: bool) {
        let tick = u32::try_from((self.now - self.start).as_millis()).unwrap();
        for end in 0..2 {
            if self.ends[end].connection.is_none() {
                continue;
            }
            if talking {
                self.frames_of_turn(end, tick);
            }
            if tick.is_multiple_of(100) && !self.ends[end].connection().is_handshaking() {
                let beat = Heartbeat { clock32: tick * 1000, congested: false, echo: None };
                let _ = self.ends[end].connection().datagrams().send(beat.encode(), true);
            }
            if tick.is_multiple_of(5) {
                let now = self.now;
                self.ends[end].pump(now);
            }
        }
        self.drive();
        for end in self.ends.iter_mut().filter(|end| end.connection.is_some()) {
            let waits = !end.is_idle();
            end.waited = if waits { end.waited + TURN } else { Duration::ZERO };
            end.longest_wait = end.longest_wait.max(end.waited);
            let connection = end.connection();
            let heard = heard(connection.side(), &connection.stats()).filter(|_| !connection.is_handshaking());
            let silent = heard.is_some() && heard == end.heard;
            end.silent = if silent { end.silent + TURN } else { Duration::ZERO };
            end.heard = heard;
            end.longest_silence = end.longest_silence.max(end.silent);
        }
        self.now += TURN;
    }

    fn frames_of_turn(&mut self, end: usize, tick: u32) {
        let mut writer = if end == 0 { BatchWriter::media_up() } else { BatchWriter::media_down() };
        let mut batches = Vec::new();
        let repeats = self.ends[end].path.state().repeat;
        let now_us = u64::from(tick) * 1000;
        for session in (0..self.sessions).filter(|session| (session + tick).is_multiple_of(20)) {
            let seq = u16::try_from(tick / 20).unwrap();
            let payload = [session.to_be_bytes()[3]; PAYLOAD];
            let frame = MediaUp {
                slot: Slot(session),
                epoch: 1,
                codec: Codec::Opus,
                marker: false,
                seq,
                rtp_timestamp: u32::from(seq) * 960,
                audio_level: Some(30),
                age_us: 0,
                payload: &payload,
            };
            let previous = &mut self.previous[end][session as usize];
            if repeats {
                if let Some(again) = previous.before(now_us, &frame) {
                    push(&mut writer, &mut batches, &again);
                    self.repeated += 1;
                }
                previous.keep(now_us, &frame);
            }
            push(&mut writer, &mut batches, &frame);
            self.frames[end].insert((session, seq), Sent { at: self.now, delivered: None });
        }
        if !writer.is_empty() {
            batches.push(writer.take(0));
        }
        for batch in batches {
            let now = self.now;
            self.ends[end].send_datagram(now, batch);
        }
    }

    /// Runs both machines and the path until nothing is left to do at this instant.
    fn drive(&mut self) {
        loop {
            let mut idle = true;
            for end in 0..2 {
                while self.ways[1 - end].under_way.front().is_some_and(|(at, _)| *at <= self.now) {
                    idle = false;
                    let (_, packet) = self.ways[1 - end].under_way.pop_front().unwrap();
                    self.receive(end, &packet);
                }
                idle &= !self.run(end);
            }
            if idle {
                return;
            }
        }
    }

    fn receive(&mut self, index: usize, packet: &[u8]) {
        let (now, from) = (self.now, self.ends[1 - index].address);
        let end = &mut self.ends[index];
        let mut buffer = Vec::new();
        match end.endpoint.handle(now, from, None, None, BytesMut::from(packet), &mut buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let server = end.server.clone().map(Arc::new);
                end.connection = end.endpoint.accept(incoming, now, &mut buffer, server).ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => end.connection().handle_event(event),
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// `true`: something happened.
    fn run(&mut self, index: usize) -> bool {
        let now = self.now;
        let end = &mut self.ends[index];
        let Some((handle, connection)) = &mut end.connection else { return false };
        let mut busy = false;
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
            busy = true;
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = end.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            self.events.push_back((index, event));
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 10, &mut buffer) {
            for packet in buffer[..transmit.size].chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                self.ways[index].send(now, &mut self.dice, Bytes::copy_from_slice(packet));
            }
            buffer.clear();
            busy = true;
        }
        while let Some(datagram) = self.ends[index].connection().datagrams().recv() {
            self.deliver(index, &datagram);
        }
        while let Some((end, event)) = self.events.pop_front() {
            self.event(end, &event);
        }
        busy
    }

    fn deliver(&mut self, index: usize, datagram: &[u8]) {
        let Ok(Batch::MediaUp { frames, .. } | Batch::MediaDown { frames, .. }) = parse(datagram) else { return };
        for frame in frames {
            let frame = frame.unwrap();
            if self.seen[index].entry(frame.slot.0).or_default().fresh(frame.seq) {
                let sent = self.frames[1 - index].get_mut(&(frame.slot.0, frame.seq)).unwrap();
                assert_eq!(sent.delivered.replace(self.now), None, "a frame is fresh once");
            }
        }
    }

    /// A control stream: the transceiver answers what the edge asks.
    fn event(&mut self, index: usize, event: &Event) {
        let now = self.now;
        let connection = self.ends[index].connection();
        match event {
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) if index == 1 => {
                while let Some(id) = connection.streams().accept(Dir::Bi) {
                    answer(connection, id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) if index == 1 => answer(connection, *id),
            Event::Stream(StreamEvent::Readable { id }) => {
                let id = *id;
                let mut stream = connection.recv_stream(id);
                if let Ok(mut chunks) = stream.read(true) {
                    while let Ok(Some(_)) = chunks.next(usize::MAX) {}
                    let _ = chunks.finalize();
                    self.answered.entry(id).or_insert(now);
                }
            }
            Event::ConnectionLost { reason } => panic!("the link was lost: {reason}"),
            _ => {}
        }
    }

    /// Asks 300 bytes on a stream of its own, as a gRPC call does; [`Self::answered`] notes the answer.
    fn ask(&mut self) -> StreamId {
        let connection = self.ends[0].connection();
        let id = connection.streams().open(Dir::Bi).unwrap();
        connection.send_stream(id).set_priority(2).unwrap();
        connection.send_stream(id).write(&[1; 300]).unwrap();
        connection.send_stream(id).finish().unwrap();
        id
    }

    /// Share of the frames sent within a span, in both directions, that came.
    fn delivered(&self, from: Instant, to: Instant) -> f64 {
        let (mut sent, mut came) = (0.0, 0.0);
        for frame in self.frames.iter().flat_map(BTreeMap::values).filter(|f| (from..to).contains(&f.at)) {
            sent += 1.0;
            came += f64::from(u8::from(frame.delivered.is_some()));
        }
        came / sent
    }

    /// One-way times beyond the path's, sorted.
    fn added(&self) -> Vec<Duration> {
        let delays = [self.ways[0].delay, self.ways[1].delay];
        let frames =
            self.frames.iter().zip(delays).flat_map(|(frames, delay)| frames.values().map(move |f| (f, delay)));
        let mut added: Vec<_> =
            frames.filter_map(|(frame, delay)| Some((frame.delivered? - frame.at).saturating_sub(delay))).collect();
        added.sort_unstable();
        added
    }
}

fn push(writer: &mut BatchWriter, batches: &mut Vec<Bytes>, frame: &MediaUp<'_>) {
    if !writer.push_frame(frame) {
        batches.push(writer.take(0));
        assert!(writer.push_frame(frame));
    }
}

fn answer(connection: &mut Connection, id: StreamId) {
    let mut whole = false;
    if let Ok(mut chunks) = connection.recv_stream(id).read(true) {
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    whole = true;
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
    }
    if whole && connection.send_stream(id).write(&[2; 100]).is_ok() {
        let _ = connection.send_stream(id).finish();
    }
}

/// 99 of 100 are at most this.
fn p99(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() - 1) * 99 / 100]
}

#[test]
fn at_1_percent_loss_999_of_1000_frames_arrive_within_30_ms_of_the_path() {
    for seed in 1..3 {
        let mut world = World::new(seed, 100, 40 * MS);
        world.ways.iter_mut().for_each(|way| way.loss = 0.01);
        let begin = world.now;
        world.talk(Duration::from_secs(15));
        let delivered = world.delivered(begin, world.now - 100 * MS);
        let p99 = p99(&world.added());
        assert!(delivered >= 0.999, "seed {seed}: {delivered}");
        assert!(p99 <= 30 * MS, "seed {seed}: {p99:?}");
        assert!(world.ends.iter().all(|end| !end.path.state().congested), "seed {seed}");
        assert!(world.repeated > 0);
    }
}

#[test]
fn without_loss_nothing_is_repeated() {
    let mut world = World::new(1, 100, 40 * MS);
    let begin = world.now;
    world.talk(Duration::from_secs(5));
    assert_eq!(world.delivered(begin, world.now - 100 * MS), 1.0);
    assert_eq!(world.repeated, 0);
}

#[test]
fn a_route_that_became_100_ms_longer_carries_all_frames_again_within_25_s() {
    let mut world = World::new(1, 20, 20 * MS);
    world.talk(Duration::from_secs(3));
    assert!(world.ends.iter().all(|end| !end.path.state().is_congested()));
    world.ways.iter_mut().for_each(|way| way.delay += 50 * MS);
    world.talk(Duration::from_secs(4));
    assert!(world.ends.iter().all(|end| end.path.state().is_congested()), "it looks like a queue");
    world.talk(Duration::from_secs(21));
    let healthy = world.now;
    world.talk(Duration::from_secs(5));
    assert!(world.ends.iter().all(|end| end.path.state() == super::PathState::default()));
    assert_eq!(world.delivered(healthy, world.now - 200 * MS), 1.0);
}

#[test]
fn default_controllers_lose_what_ours_delivers() {
    for controller in [config::Controller::Cubic, config::Controller::NewReno] {
        let mut world = World::with_controller(1, 100, 40 * MS, controller);
        world.ways.iter_mut().for_each(|way| way.loss = 0.01);
        let begin = world.now;
        world.talk(Duration::from_secs(10));
        let delivered = world.delivered(begin, world.now - 2 * Duration::from_secs(1));
        assert!(delivered < 0.9, "{controller:?}: {delivered}");
    }
}

#[test]
fn q02_at_10_percent_loss_every_batch_fits_whatever_size_the_path_is_thought_to_take() {
    for seed in 1..3 {
        let mut world = World::new(seed, 100, 40 * MS);
        world.ways.iter_mut().for_each(|way| way.loss = 0.1);
        world.talk(Duration::from_secs(10));
        for end in &mut world.ends {
            assert_eq!(end.refused, 0, "seed {seed}: refused as too large");
            assert!(end.connection().datagrams().max_size().unwrap() >= crate::datagram::MAX_BATCH_BYTES);
        }
    }
}

#[test]
fn q03_squeezed_to_20_kbit_for_3_s_the_oldest_media_is_dropped_and_control_goes_on() {
    // Queues of 100 ms and of two packets.
    for (seed, queue_bytes) in [(1, 250), (2, 250), (3, 2_400), (4, 2_400)] {
        let mut world = World::new(seed, 40, 40 * MS);
        world.talk(2 * Duration::from_secs(1));
        for way in &mut world.ways {
            (way.rate, way.queue_bytes) = (Some(2_500), queue_bytes);
        }
        world.talk(Duration::from_secs(1));
        let asked = world.now;
        let call = world.ask();
        world.talk(2 * Duration::from_secs(1));
        for way in &mut world.ways {
            way.rate = None;
        }
        let free = world.now;
        world.talk(4 * Duration::from_secs(1));
        let answer = world.answered.get(&call).map(|at| *at - asked);
        let late: u64 = world.ends.iter().map(|end| end.queue.dropped).sum();
        let after = world.delivered(free + 2 * Duration::from_secs(1), world.now - 100 * MS);
        assert!(answer.is_some_and(|took| took <= 2 * Duration::from_secs(1)), "seed {seed}: {answer:?}");
        for end in &world.ends {
            assert!(end.longest_silence < super::SILENCE, "seed {seed}: {:?}", end.longest_silence);
            assert!(end.longest_wait <= 60 * MS, "seed {seed}: {:?} in the queue of quinn", end.longest_wait);
        }
        assert!(late > 0, "seed {seed}: the queue dropped nothing");
        assert!(after >= 0.99, "seed {seed}: {after}");
    }
}

#[test]
fn squeezed_to_20_kbit_from_its_set_up_on_a_link_comes_about_and_stays() {
    // The last flight of the handshake takes seconds then, in which nothing but its repetitions is heard.
    for (seed, queue_bytes) in [(1, 250), (2, 250), (3, 2_400), (4, 2_400)] {
        let mut world = World::dialed(seed, 5, 40 * MS, config::Controller::Voice);
        for way in &mut world.ways {
            (way.rate, way.queue_bytes) = (Some(2_500), queue_bytes);
        }
        let mut up = false;
        for _ in 0..10_000 {
            world.turn(up);
            up = up || world.ends.iter().all(End::is_up);
        }
        assert!(up, "seed {seed}: no handshake");
        let call = world.ask();
        world.talk(2 * Duration::from_secs(1));
        assert!(world.answered.contains_key(&call), "seed {seed}: control stands still");
        for end in &world.ends {
            assert!(end.longest_silence < super::SILENCE, "seed {seed}: {:?}", end.longest_silence);
        }
    }
}
