//! One client on a foreign stack, connected to a worker core.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use edge::directory::Directory;
use edge::keys::{Keyring, PopKeys};
use edge::seats::Seats;
use edge::signaling::{Counts, CreateCall, Shared, create_call};
use edge::waiting::Waiting;
use edge::worker::budget::Limits;
use edge::worker::{Worker, WorkerConfig};
use link::ids::EdgeId;
use link::route::RouteKeys;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::Path;
use str0m::change::{SdpAnswer, SdpApi};
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

/// What was fixed when time began.
pub(crate) const UNIX: u32 = 1_800_000_000;

/// A worker with one connected echo session, and its client.
pub(crate) struct Rig {
    pub(crate) now: Instant,
    pub(crate) worker: Worker,
    pub(crate) path: Path,
    pub(crate) password: String,
    pub(crate) ufrag: String,
    /// A check of the client's, without its FINGERPRINT so that it can be forged without another one.
    pub(crate) check: Vec<u8>,
    pub(crate) keys: RouteKeys,
    client: Rtc,
    mid: Mid,
    timeout: Instant,
    outbox: VecDeque<Vec<u8>>,
    /// The client's is open.
    channel: bool,
    media_time: u64,
}

impl Rig {
    /// Signals a call and connects it, everything in no time but for the steps of the clock.
    pub(crate) fn connected() -> Self {
        let mut rig = Self::signaled(|_| {});
        for _ in 0..2000 {
            rig.step();
        }
        assert!(rig.client.is_connected(), "no connection");
        rig
    }

    /// The same with a data channel, and only so far that the channel is open.
    pub(crate) fn with_channel() -> Self {
        let mut rig = Self::signaled(|change| {
            change.add_channel("oai-events".to_owned());
        });
        for _ in 0..2000 {
            rig.step();
            if rig.channel {
                return rig;
            }
        }
        panic!("no channel");
    }

    fn signaled(add: impl FnOnce(&mut SdpApi<'_>)) -> Self {
        let now = Instant::now();
        let local = SocketAddr::from(([192, 0, 2, 1], 3478));
        let remote = SocketAddr::from(([198, 51, 100, 7], 40_000));
        let shared = shared(local);
        let config = WorkerConfig {
            index: 0,
            edge: shared.edge,
            session: rtc::Config::default(),
            limits: Limits::default(),
            reflex: false,
        };
        let (directory, keys) = (Arc::clone(&shared.directory), shared.keys.current());
        let worker = Worker::new(now, config, directory, keys, [1; 32]);

        let mut client = RtcConfig::new().build(now);
        client.add_local_candidate(Candidate::host(remote, "udp").expect("an address"));
        let mut change = client.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        add(&mut change);
        let (offer, pending) = change.apply().expect("a change");
        let offer = offer.to_sdp_string();
        let call = CreateCall { offer: &offer, model: Some("echo"), ..CreateCall::default() };
        let (mut created, mut rng) = (None, StdRng::seed_from_u64(1));
        count_set_up(&mut || created = create_call(&shared, now, UNIX, &mut rng, call).ok());
        let created = created.expect("a call");
        let attribute = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.expect("an attribute of the answer").trim().to_owned()
        };
        let ufrag = attribute(&created.answer, "a=ice-ufrag:");
        let password = attribute(&created.answer, "a=ice-pwd:");
        let answer = SdpAnswer::from_sdp_string(&created.answer).expect("an answer");
        client.sdp_api().accept_answer(pending, answer).expect("an acceptable answer");
        Self {
            now,
            worker,
            path: Path::udp(local, remote),
            password,
            ufrag,
            check: Vec::new(),
            keys: shared.keys.current().route().clone(),
            client,
            mid,
            timeout: now,
            outbox: VecDeque::new(),
            channel: false,
            media_time: 0,
        }
    }

    /// SRTP packets as the client sends them, with 100 bytes of payload.
    pub(crate) fn speech(&mut self, packets: u32) -> Vec<Vec<u8>> {
        self.outbox.clear();
        for _ in 0..packets {
            let writer = self.client.writer(self.mid).expect("an audio line");
            let pt = writer.payload_params().next().expect("a codec").pt();
            let time = MediaTime::new(self.media_time, Frequency::FORTY_EIGHT_KHZ);
            writer.write(pt, self.now, time, vec![7; 100]).expect("a frame");
            self.media_time += 960;
            self.drain();
            self.now += Duration::from_millis(1);
            self.client.handle_input(Input::Timeout(self.now)).expect("a timeout");
            self.drain();
        }
        let is_media = |datagram: &Vec<u8>| matches!(rtc::classify(datagram), rtc::Class::Rtp);
        let media: Vec<_> = self.outbox.drain(..).filter(is_media).collect();
        assert_eq!(media.len(), usize::try_from(packets).expect("a small number"));
        media
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        if self.timeout <= self.now {
            self.client.handle_input(Input::Timeout(self.now)).expect("a timeout");
        }
        self.drain();
        while let Some(mut datagram) = self.outbox.pop_front() {
            if self.check.is_empty() && rtc::classify(&datagram) == rtc::Class::Stun {
                self.check = without_fingerprint(&datagram);
            }
            count_set_up(&mut || self.worker.handle_datagram(self.now, UNIX, self.path, &mut datagram));
        }
        count_set_up(&mut || self.worker.handle_timeout(self.now));
        let mut datagram = Vec::new();
        loop {
            let mut next = None;
            count_set_up(&mut || next = self.worker.poll_transmit(&mut datagram));
            let Some(path) = next else { break };
            let Ok(contents) = datagram.as_slice().try_into() else { continue };
            let receive = Receive { proto: Protocol::Udp, source: path.local, destination: path.remote, contents };
            self.client.handle_input(Input::Receive(self.now, receive)).expect("a datagram");
        }
        count_set_up(&mut || while self.worker.poll_output().is_some() {});
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            match self.client.poll_output().expect("an output") {
                Output::Timeout(at) => {
                    self.timeout = at;
                    return;
                }
                Output::Transmit(transmit) => self.outbox.push_back(transmit.contents.to_vec()),
                Output::Event(event) => self.channel |= matches!(event, Event::ChannelOpen(..)),
            }
        }
    }
}

/// What the edge does for a set-up, wherever the client is in between. One function, which callgrind can tell from the client.
#[inline(never)]
fn count_set_up(work: &mut dyn FnMut()) {
    work();
}

/// FINGERPRINT is optional and the last attribute, 8 bytes long (RFC 8489 §14.7); MESSAGE-INTEGRITY does not cover it.
fn without_fingerprint(check: &[u8]) -> Vec<u8> {
    let mut check = check[..check.len() - 8].to_vec();
    let length = u16::try_from(check.len() - 20).expect("a short datagram");
    check[2..4].copy_from_slice(&length.to_be_bytes());
    check
}

fn shared(local: SocketAddr) -> Arc<Shared> {
    Arc::new(Shared {
        edge: EdgeId(1),
        candidates: vec![rtc::Candidate::udp(local)],
        ice_servers: edge::signaling::IceServers::default(),
        models: BTreeMap::from([("echo".to_owned(), "echo".to_owned())]),
        default_model: "echo".to_owned(),
        setup_timeout: Duration::from_secs(30),
        uplink: rtc::Uplink::default(),
        keys: Keyring::new(PopKeys::single(&[7; 32], rtc::Identity::generate())),
        directory: Directory::new(1),
        seats: Seats::new(1),
        waiting: Waiting::new(1),
        websockets: edge::websocket::WebSockets::new(1, 1),
        auth: edge::auth::Auth::open(),
        draining: AtomicBool::new(false),
        counts: Counts::default(),
    })
}
