//! One session and one str0m client over two simulated wires.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rtc::{
    Candidate, Config, Discard, Event, Identity, Input, LocalDescription, Negotiated, Offer, OutgoingFrame, Path,
    Session, Setup,
};
use sim::{Conditions, Sim, Step, WireId};
use str0m::change::{SdpAnswer, SdpOffer};
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::config::DtlsVersion;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::{Output, Rtc};

pub(crate) const DELAY: Duration = Duration::from_millis(50);
pub(crate) const SEED: u64 = 7;

pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 3478))
}

pub(crate) fn client_address() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 2], 5000))
}

/// How a pair is set up.
pub(crate) struct Plan {
    /// We are the DTLS client.
    pub(crate) active: bool,
    pub(crate) version: DtlsVersion,
    /// The client offers SNAP.
    pub(crate) snap: bool,
    /// The stream of the client's channel, which both sides know of without DCEP.
    pub(crate) negotiated: Option<u16>,
    /// Changes the answer on its way to the client.
    pub(crate) strip: fn(&str) -> String,
    pub(crate) seed: u64,
    /// Of both directions.
    pub(crate) wire: Conditions,
    pub(crate) config: Config,
    /// Changes what was agreed before the session is built.
    pub(crate) tamper: fn(&mut Setup),
}

impl Default for Plan {
    fn default() -> Self {
        let wire = Conditions { delay: DELAY, ..Conditions::default() };
        Self {
            active: true,
            version: DtlsVersion::Auto,
            snap: false,
            negotiated: None,
            strip: str::to_owned,
            seed: SEED,
            wire,
            config: Config::default(),
            tamper: |_| (),
        }
    }
}

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// Whether a datagram is lost.
pub(crate) type Lose = Box<dyn FnMut(Way, &[u8]) -> bool>;

pub(crate) struct Pair {
    pub(crate) sim: Sim<Vec<u8>>,
    up: WireId,
    down: WireId,
    pub(crate) client: Rtc,
    client_timeout: Instant,
    pub(crate) server: Session,
    pub(crate) mid: Mid,
    pub(crate) opus: Pt,
    pub(crate) channel: ChannelId,
    pub(crate) snap: rtc::Snap,
    /// What came out of each side, at which virtual time.
    pub(crate) client_events: Vec<(Duration, str0m::Event)>,
    pub(crate) server_events: Vec<(Duration, Event)>,
    pub(crate) heard: Vec<(Duration, Vec<u8>)>,
    pub(crate) discards: Vec<Discard>,
    /// Each datagram sent, in order.
    pub(crate) sent: Vec<(Duration, Way, Vec<u8>)>,
    pub(crate) lose: Lose,
    /// Where the client's datagrams come from.
    pub(crate) source: SocketAddr,
    /// Audio of the client's is sent back.
    pub(crate) echo: bool,
}

impl Pair {
    pub(crate) fn new(plan: Plan) -> Self {
        str0m::crypto::from_feature_flags().install_process_default();
        let mut sim = Sim::new(Instant::now(), plan.seed);
        let (up, down) = (sim.add_wire(plan.wire), sim.add_wire(plan.wire));
        let now = sim.now();

        let client = Rtc::builder().set_dtls_version(plan.version).set_sctp_max_buffered_amount(1 << 20);
        let mut client = client.set_snap_enabled(plan.snap).build(now);
        client.add_local_candidate(str0m::Candidate::host(client_address(), "udp").unwrap());
        let mut change = client.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let label = "oai-events".to_owned();
        let negotiated = plan.negotiated;
        let channel = change.add_channel_with_config(ChannelConfig { label, negotiated, ..ChannelConfig::default() });
        let (offer, pending) = change.apply().unwrap();
        let mut offer = SdpOffer::to_sdp_string(&offer);
        if !plan.active {
            offer = offer.replace("a=setup:actpass", "a=setup:active");
        }

        let identity = Identity::generate();
        let local = LocalDescription {
            ufrag: "routetoken".to_owned(),
            password: "a-password-of-22-bytes".into(),
            fingerprint: identity.fingerprint().to_owned(),
            candidates: vec![Candidate::udp(server_address())],
            session: 1,
            ssrc: 0x1234_5678,
            sctp_init: rtc::SctpInit::Fresh,
            uplink: rtc::Uplink::default(),
        };
        let mut accepted = Offer::parse(&offer).unwrap().accept(&local);
        assert_eq!(accepted.setup.dtls_active, plan.active);
        if let Some(id) = plan.negotiated {
            accepted.setup.sctp.as_mut().unwrap().negotiated.push(Negotiated::reliable(id, "oai-events"));
        }
        (plan.tamper)(&mut accepted.setup);
        let answer = SdpAnswer::from_sdp_string(&(plan.strip)(&accepted.answer)).unwrap();
        client.sdp_api().accept_answer(pending, answer).unwrap();
        let opus = client.codec_config().find(|params| params.spec().codec == Codec::Opus).unwrap().pt();

        let server = Session::new(now, accepted.setup, &identity, plan.config, [7; 32]);
        Self {
            sim,
            up,
            down,
            client,
            client_timeout: now,
            server,
            mid,
            opus,
            channel,
            snap: accepted.snap,
            client_events: Vec::new(),
            server_events: Vec::new(),
            heard: Vec::new(),
            discards: Vec::new(),
            sent: Vec::new(),
            lose: Box::new(|_, _| false),
            source: client_address(),
            echo: false,
        }
    }

    /// Connected, the channel open on both sides.
    pub(crate) fn open(plan: Plan) -> Self {
        let mut pair = Self::new(plan);
        pair.until(Duration::from_secs(5), Self::both_open);
        pair
    }

    pub(crate) fn both_open(&mut self) -> bool {
        let client = self.client_events.iter().any(|(_, event)| matches!(event, str0m::Event::ChannelOpen(..)));
        let server = self.server_events.iter().any(|(_, event)| matches!(event, Event::ChannelOpened { .. }));
        client && server
    }

    /// What both sides told, for the message of a failed assertion.
    fn story(&self) -> String {
        let short = |at: &Duration, event: &dyn std::fmt::Debug| {
            let text: String = format!("{event:?}").chars().take(120).collect();
            format!("{at:?} {text}\n")
        };
        let server = self.server_events.iter().map(|(at, event)| format!("session {}", short(at, event)));
        server.chain(self.client_events.iter().map(|(at, event)| format!("client {}", short(at, event)))).collect()
    }

    pub(crate) fn path(&self) -> Path {
        Path::udp(server_address(), self.source)
    }

    pub(crate) fn server_event(&self, wanted: impl Fn(&Event) -> bool) -> Option<Duration> {
        self.server_events.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at)
    }

    /// Runs until `done`, which must come true within `limit` of virtual time.
    pub(crate) fn until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.sim.elapsed() + limit;
        while !done(self) {
            assert!(self.sim.elapsed() < end, "seed {}: not within {limit:?}\n{}", self.sim.seed(), self.story());
            self.step(None);
        }
    }

    /// Runs for `time`.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            self.step(Some(end));
        }
        self.drain();
    }

    /// Each 20 ms one frame of the client's, `count` times; its number is its payload.
    pub(crate) fn talk(&mut self, count: u8) {
        for number in 0..count {
            let (now, elapsed) = (self.sim.now(), self.sim.elapsed());
            self.client.writer(self.mid).unwrap().write(self.opus, now, elapsed.into(), vec![number; 60]).unwrap();
            self.run(Duration::from_millis(20));
        }
    }

    /// Gives the session a datagram as if from `source`.
    pub(crate) fn inject(&mut self, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        let mut datagram = datagram.to_vec();
        let result = match self.server.handle_datagram(self.sim.now(), path, &mut datagram) {
            Input::Discarded(discard) => Err(discard),
            Input::Media(_) | Input::Consumed => Ok(()),
        };
        self.drain();
        result
    }

    pub(crate) fn heard_by_client(&self) -> Vec<Vec<u8>> {
        let data = self.client_events.iter().filter_map(|(_, event)| match event {
            str0m::Event::MediaData(data) => Some(data.data.to_vec()),
            _ => None,
        });
        data.collect()
    }

    /// One arrival or timeout.
    fn step(&mut self, end: Option<Instant>) {
        self.drain();
        let timeout = [Some(self.client_timeout), self.server.poll_timeout(), end].into_iter().flatten().min();
        match self.sim.step(timeout) {
            Step::Delivery(delivery) if delivery.wire == self.up => self.deliver_up(&delivery.payload),
            Step::Delivery(delivery) => {
                let contents = delivery.payload.as_slice().try_into().unwrap();
                let (source, destination) = (server_address(), client_address());
                let receive = Receive { proto: Protocol::Udp, source, destination, contents };
                let _ = self.client.handle_input(str0m::Input::Receive(self.sim.now(), receive));
            }
            Step::Timeout | Step::Idle => {
                let now = self.sim.now();
                if self.client_timeout <= now {
                    let _ = self.client.handle_input(str0m::Input::Timeout(now));
                }
                if self.server.poll_timeout().is_some_and(|timeout| timeout <= now) {
                    self.server.handle_timeout(now);
                    assert!(self.server.poll_timeout().is_none_or(|next| next > now) || !self.server_idle());
                }
            }
        }
        self.drain();
    }

    /// Whether the session has nothing queued; takes what it has.
    fn server_idle(&mut self) -> bool {
        let before = self.sent.len() + self.server_events.len();
        self.drain_server();
        before == self.sent.len() + self.server_events.len()
    }

    fn deliver_up(&mut self, datagram: &[u8]) {
        let mut datagram = datagram.to_vec();
        let (now, path) = (self.sim.now(), self.path());
        match self.server.handle_datagram(now, path, &mut datagram) {
            Input::Media(frame) => {
                let payload = frame.payload.to_vec();
                self.heard(payload, frame.rtp_timestamp);
            }
            Input::Consumed => {}
            Input::Discarded(discard) => self.discards.push(discard),
        }
    }

    fn heard(&mut self, payload: Vec<u8>, rtp_timestamp: u32) {
        if self.echo {
            let mut out = Vec::new();
            let frame = OutgoingFrame {
                codec: rtc::Codec::Opus,
                rtp_timestamp,
                marker: self.heard.is_empty(),
                payload: &payload,
                label: 1,
                samples: 960,
            };
            let path = self.server.send_media(self.sim.now(), frame, &mut out).unwrap();
            self.send_down(path, &out);
        }
        self.heard.push((self.sim.elapsed(), payload));
    }

    fn drain(&mut self) {
        self.drain_client();
        self.drain_server();
    }

    fn drain_client(&mut self) {
        while self.client.is_alive() {
            let Ok(output) = self.client.poll_output() else { break };
            match output {
                Output::Timeout(at) => {
                    self.client_timeout = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    let datagram = transmit.contents.to_vec();
                    self.sent.push((self.sim.elapsed(), Way::Up, datagram.clone()));
                    if !(self.lose)(Way::Up, &datagram) {
                        self.sim.send(self.up, datagram);
                    }
                }
                Output::Event(event) => self.client_events.push((self.sim.elapsed(), event)),
            }
        }
        self.client_timeout = self.sim.now() + Duration::from_secs(3600);
    }

    fn drain_server(&mut self) {
        let mut out = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(&mut out) {
            self.send_down(transmit.path, &out);
        }
        while let Some(event) = self.server.poll_event() {
            self.server_events.push((self.sim.elapsed(), event));
        }
        while let Some(input) = self.server.poll_held(self.sim.now(), &mut out) {
            if let Input::Media(frame) = input {
                let payload = frame.payload.to_vec();
                self.heard(payload, frame.rtp_timestamp);
            }
        }
    }

    fn send_down(&mut self, path: Path, datagram: &[u8]) {
        assert!(datagram.len() <= 1200, "{} bytes", datagram.len());
        self.sent.push((self.sim.elapsed(), Way::Down, datagram.to_vec()));
        // What goes to an address that the client has left is lost.
        if path == self.path() && !(self.lose)(Way::Down, datagram) {
            self.sim.send(self.down, datagram.to_vec());
        }
    }
}
