//! A client on a foreign stack (str0m), and a rig that drives it against worker cores in virtual time.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod crowd;
pub(crate) mod live;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use edge::auth::Auth;
use edge::directory::Directory;
use edge::keys::{Keyring, PopKeys};
use edge::seats::Seats;
use edge::signaling::{Counts, CreateCall, Shared, create_call};
use edge::tickets::{Terms, Tickets};
use edge::waiting::Waiting;
use edge::worker::budget::Limits;
use edge::worker::{Output, Worker, WorkerConfig};
use link::ids::{EdgeId, SessionId, TransceiverId};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::Path;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, IceCreds, Input, Rtc, RtcConfig};

pub(crate) const EDGE: &str = "192.0.2.1:3478";
pub(crate) const CLIENT: &str = "198.51.100.7:40000";

pub(crate) struct Client {
    pub(crate) rtc: Rtc,
    pub(crate) local: SocketAddr,
    mid: Mid,
    pending: Option<SdpPendingOffer>,
    offer: String,
    pub(crate) connected: bool,
    pub(crate) channel: Option<ChannelId>,
    pub(crate) messages: Vec<String>,
    /// Arrival and payload of each audio frame.
    pub(crate) heard: Vec<(Instant, Vec<u8>)>,
    pub(crate) outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(crate) timeout: Instant,
    media_time: u64,
}

impl Client {
    pub(crate) fn new(now: Instant, local: SocketAddr) -> Self {
        Self::with(now, local, false, None)
    }

    /// With SNAP, and with the channel for events negotiated on this stream.
    pub(crate) fn with(now: Instant, local: SocketAddr, snap: bool, negotiated: Option<u16>) -> Self {
        // As short as a browser's ufrag: this stack sends no USERNAME above 128 characters.
        let own = IceCreds { ufrag: "cli7".to_owned(), pass: "a-password-of-24-letters".to_owned() };
        let mut rtc = RtcConfig::new().set_snap_enabled(snap).set_local_ice_credentials(own).build(now);
        rtc.add_local_candidate(Candidate::host(local, "udp").unwrap());
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let label = "oai-events".to_owned();
        change.add_channel_with_config(ChannelConfig { label, negotiated, ..ChannelConfig::default() });
        let (offer, pending) = change.apply().unwrap();
        Self {
            rtc,
            local,
            mid,
            pending: Some(pending),
            offer: offer.to_sdp_string(),
            connected: false,
            channel: None,
            messages: vec![],
            heard: vec![],
            outbox: VecDeque::new(),
            timeout: now,
            media_time: 0,
        }
    }

    pub(crate) fn offer(&self) -> String {
        self.offer.clone()
    }

    pub(crate) fn accept(&mut self, answer: &str) {
        let pending = self.pending.take().unwrap();
        let answer = SdpAnswer::from_sdp_string(answer).unwrap();
        self.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    }

    pub(crate) fn receive(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) {
        let Ok(contents) = datagram.try_into() else { return };
        let receive = Receive { proto: Protocol::Udp, source, destination: self.local, contents };
        self.rtc.handle_input(Input::Receive(now, receive)).unwrap();
        self.drain(now);
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        self.rtc.handle_input(Input::Timeout(now)).unwrap();
        self.drain(now);
    }

    pub(crate) fn say(&mut self, text: &str) {
        let channel = self.channel.expect("an open channel");
        assert!(self.rtc.channel(channel).unwrap().write(false, text.as_bytes()).unwrap());
    }

    /// Sends one 20 ms frame.
    pub(crate) fn speak(&mut self, now: Instant, payload: &[u8]) {
        let writer = self.rtc.writer(self.mid).expect("an audio line");
        let pt = writer.payload_params().next().unwrap().pt();
        let time = MediaTime::new(self.media_time, Frequency::FORTY_EIGHT_KHZ);
        writer.write(pt, now, time, payload.to_vec()).unwrap();
        self.media_time += 960;
    }

    pub(crate) fn drain(&mut self, now: Instant) {
        if !self.rtc.is_alive() {
            self.timeout = now + Duration::from_secs(3600);
            return;
        }
        loop {
            match self.rtc.poll_output().unwrap() {
                str0m::Output::Timeout(at) => {
                    self.timeout = at;
                    return;
                }
                str0m::Output::Transmit(transmit) => {
                    self.outbox.push_back((transmit.destination, transmit.contents.to_vec()));
                }
                str0m::Output::Event(event) => match event {
                    Event::Connected => self.connected = true,
                    Event::ChannelOpen(channel, _) => self.channel = Some(channel),
                    Event::ChannelData(data) => self.messages.push(String::from_utf8(data.data).unwrap()),
                    Event::MediaData(media) => self.heard.push((now, media.data.to_vec())),
                    _ => {}
                },
            }
        }
    }
}

/// Signaling's part without HTTP.
pub(crate) fn shared(workers: usize, echo_seats: u32, setup_timeout: Duration) -> Arc<Shared> {
    let keys = PopKeys::single(&[7; 32], rtc::Identity::generate());
    shared_of(EdgeId(1), Directory::new(workers), keys, echo_seats, setup_timeout)
}

/// One edge of many.
pub(crate) fn shared_of(
    edge: EdgeId,
    directory: Arc<Directory>,
    keys: PopKeys,
    echo_seats: u32,
    setup_timeout: Duration,
) -> Arc<Shared> {
    shared_of_run(edge, directory, keys, echo_seats, setup_timeout, 1)
}

fn shared_of_run(
    edge: EdgeId,
    directory: Arc<Directory>,
    keys: PopKeys,
    echo_seats: u32,
    setup_timeout: Duration,
    run: u32,
) -> Arc<Shared> {
    let models = BTreeMap::from(["echo", "parrot"].map(|name| (name.to_owned(), name.to_owned())));
    let seats = Seats::new(echo_seats);
    let terms = Terms { lifetime_seconds: 60, max_call_tens: 60 };
    directory.honor(Tickets::new(terms, Arc::clone(&seats), models.values(), run));
    Arc::new(Shared {
        edge,
        candidates: vec![rtc::Candidate::udp(EDGE.parse().unwrap())],
        ice_servers: edge::signaling::IceServers::default(),
        models,
        default_model: "echo".to_owned(),
        setup_timeout,
        uplink: rtc::Uplink::default(),
        keys: Keyring::new(keys),
        directory,
        seats,
        waiting: Waiting::new(100),
        websockets: edge::websocket::WebSockets::new(4, 4),
        auth: Auth::open(),
        draining: AtomicBool::new(false),
        counts: Counts::default(),
    })
}

/// What runs in virtual time.
pub(crate) trait Virtual {
    fn now(&mut self) -> &mut Instant;

    /// Carries datagrams until nobody has any.
    fn settle(&mut self);

    /// When somebody wants to be called next.
    fn deadline(&self) -> Option<Instant>;

    /// Calls everybody whose time it is.
    fn serve(&mut self);
}

/// Lets time pass, serving every deadline.
pub(crate) fn run_for(world: &mut impl Virtual, duration: Duration) {
    let until = *world.now() + duration;
    loop {
        world.settle();
        // A deadline that lies in the past is served at once, in the next millisecond at the latest.
        let soon = *world.now() + Duration::from_micros(100);
        let next = world.deadline().unwrap_or(until).max(soon);
        *world.now() = next.min(until);
        if next > until {
            return;
        }
        world.serve();
    }
}

/// Worker cores and one client, on one thread in virtual time; the network between them is perfect and instant.
pub(crate) struct Rig {
    pub(crate) begin: Instant,
    pub(crate) now: Instant,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) client: Client,
    /// The worker to which the kernel gives the client's datagrams.
    pub(crate) arrival: usize,
    /// Everything that workers put out, but hand-overs.
    pub(crate) outputs: Vec<Output>,
    pub(crate) handed_over: Vec<Vec<u8>>,
    /// That of the last call.
    pub(crate) answer: String,
    rng: StdRng,
}

pub(crate) const UNIX: u32 = 1_800_000_000;

impl Rig {
    pub(crate) fn new(workers: u32) -> Self {
        Self::with_keys(workers, PopKeys::single(&[7; 32], rtc::Identity::generate()))
    }

    pub(crate) fn with_keys(workers: u32, keys: PopKeys) -> Self {
        Self::of_run(workers, keys, 1)
    }

    /// An edge that was started so often: its tickets know.
    pub(crate) fn of_run(workers: u32, keys: PopKeys, run: u32) -> Self {
        let directory = Directory::new(usize::try_from(workers).unwrap());
        let shared = shared_of_run(EdgeId(1), directory, keys, 10, Duration::from_secs(30), run);
        let begin = Instant::now();
        let worker = |index| {
            let config = WorkerConfig {
                index,
                edge: EdgeId(1),
                session: rtc::Config::default(),
                limits: Limits::default(),
                reflex: false,
            };
            let seed = [u8::try_from(index).unwrap(); 32];
            let (directory, keys) = (Arc::clone(&shared.directory), shared.keys.current());
            Worker::new(begin, config, directory, keys, seed)
        };
        let workers = (0..workers).map(worker).collect();
        let client = Client::new(begin, CLIENT.parse().unwrap());
        let rng = StdRng::seed_from_u64(1);
        Self {
            begin,
            now: begin,
            shared,
            workers,
            client,
            arrival: 0,
            outputs: vec![],
            handed_over: vec![],
            answer: String::new(),
            rng,
        }
    }

    /// Transceivers that lease seats for `parrot`.
    pub(crate) fn lease(&self, transceivers: &[u32]) {
        for id in transceivers {
            self.shared.seats.hello(TransceiverId(*id), vec!["parrot".to_owned()]);
            // Fewer and fewer, so that the order of choice is the order given.
            self.shared.seats.grant(TransceiverId(*id), 100 - id, false);
        }
    }

    /// Signals a call.
    pub(crate) fn call(&mut self, model: &str) -> SessionId {
        let offer = self.client.offer();
        let request = CreateCall { offer: &offer, model: Some(model), ..CreateCall::default() };
        let created = create_call(&self.shared, self.now, self.unix(), &mut self.rng, request).unwrap();
        self.client.accept(&created.answer);
        self.answer = created.answer;
        created.id
    }

    pub(crate) fn unix(&self) -> u32 {
        UNIX + u32::try_from((self.now - self.begin).as_secs()).unwrap()
    }

    /// Carries datagrams until nobody has any.
    pub(crate) fn settle(&mut self) {
        self.client.drain(self.now);
        loop {
            let mut quiet = true;
            while let Some((to, mut datagram)) = self.client.outbox.pop_front() {
                quiet = false;
                let path = Path::udp(to, self.client.local);
                let unix = self.unix();
                self.workers[self.arrival].handle_datagram(self.now, unix, path, &mut datagram);
            }
            for index in 0..self.workers.len() {
                quiet &= !self.drain_worker(index);
            }
            if quiet {
                return;
            }
        }
    }

    fn drain_worker(&mut self, index: usize) -> bool {
        let mut busy = false;
        let mut datagram = Vec::new();
        while let Some(path) = self.workers[index].poll_transmit(&mut datagram) {
            busy = true;
            assert_eq!(path.local, EDGE.parse().unwrap());
            if path.remote == self.client.local {
                self.client.receive(self.now, path.local, &datagram);
            }
        }
        while let Some(output) = self.workers[index].poll_output() {
            busy = true;
            match output {
                Output::HandOver { worker, path, mut datagram } => {
                    self.handed_over.push(datagram.clone());
                    let worker = usize::try_from(worker).unwrap();
                    let unix = self.unix();
                    self.workers[worker].handle_hand_over(self.now, unix, path, &mut datagram);
                }
                other => self.outputs.push(other),
            }
        }
        busy
    }

    /// Lets time pass, serving every deadline.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        run_for(self, duration);
    }

    /// Lets time pass until something holds.
    pub(crate) fn run_until(&mut self, what: &str, within: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let until = self.now + within;
        while !holds(self) {
            assert!(self.now < until, "not within {within:?}: {what}");
            self.run_for(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&mut self, model: &str) -> SessionId {
        let id = self.call(model);
        self.run_until("connected and channel open", Duration::from_secs(5), |rig| {
            rig.client.connected && rig.client.channel.is_some()
        });
        self.run_for(Duration::from_millis(50));
        id
    }
}

impl Virtual for Rig {
    fn now(&mut self) -> &mut Instant {
        &mut self.now
    }

    fn settle(&mut self) {
        Self::settle(self);
    }

    fn deadline(&self) -> Option<Instant> {
        self.workers.iter().filter_map(Worker::poll_timeout).chain([self.client.timeout]).min()
    }

    fn serve(&mut self) {
        if self.client.timeout <= self.now {
            self.client.tick(self.now);
        }
        self.workers.iter_mut().for_each(|worker| worker.handle_timeout(self.now));
    }
}
