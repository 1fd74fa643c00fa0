//! A client with SPED as libwebrtc has it, over a bare DTLS engine, and one session at the other end of two wires.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::certificate::generate_self_signed_certificate;
use rtc::{
    Candidate, Class, Config, Discard, Event, Identity, Input, LocalDescription, Offer, Path, Session, Setup, classify,
};
use sim::{Conditions, Sim, Step, WireId};

use crate::pair::{Way, client_address, server_address};
use crate::request::{LOCAL_UFRAG, PASSWORD, Request};

pub(crate) const DATA: u16 = 0xC070;
pub(crate) const ACK: u16 = 0xC071;

/// Between two checks while the client waits for something.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Between two checks afterwards.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Off,
    Tentative,
    Confirmed,
    Pending,
    Complete,
}

/// How the ClientHello goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hello {
    Whole,
    /// In two fragments, in datagrams of their own.
    Fragments,
    /// The same, the second first.
    Reversed,
}

pub(crate) struct Plan {
    /// The client has seen SPED agreed.
    pub(crate) client: bool,
    /// The session has.
    pub(crate) server: bool,
    /// The session is the DTLS client.
    pub(crate) active: bool,
    pub(crate) dtls12: bool,
    pub(crate) hello: Hello,
    /// When the client's DTLS first sends a flight again by itself.
    pub(crate) patience: Duration,
    pub(crate) seed: u64,
    pub(crate) up: Conditions,
    pub(crate) down: Conditions,
}

impl Default for Plan {
    fn default() -> Self {
        let wire = Conditions { delay: Duration::from_millis(50), ..Conditions::default() };
        let (hello, patience) = (Hello::Whole, Duration::from_millis(400));
        Self {
            client: true,
            server: true,
            active: false,
            dtls12: false,
            hello,
            patience,
            seed: 7,
            up: wire,
            down: wire,
        }
    }
}

pub(crate) struct Client {
    engine: dimpl::Dtls,
    hello: Hello,
    /// The handshake's last flight is the session's.
    answered: bool,
    pub(crate) state: State,
    pending: Vec<Vec<u8>>,
    next: usize,
    received: Vec<u32>,
    /// A response came: it may send by itself.
    writable: bool,
    next_check: Instant,
    engine_due: Option<Instant>,
    pub(crate) connected: Option<Duration>,
    /// Put into the next checks instead of what belongs there.
    pub(crate) forge: Option<Vec<(u16, Vec<u8>)>>,
}

pub(crate) struct World {
    pub(crate) sim: Sim<Vec<u8>>,
    up: WireId,
    down: WireId,
    pub(crate) client: Client,
    pub(crate) server: Session,
    pub(crate) events: Vec<(Duration, Event)>,
    pub(crate) discards: Vec<Discard>,
    pub(crate) sent: Vec<(Duration, Way, Vec<u8>)>,
    pub(crate) lose: crate::pair::Lose,
    /// Where the client's datagrams come from when they arrive.
    pub(crate) source: SocketAddr,
    /// Where the session's last datagram by itself went.
    pub(crate) plain_to: Option<SocketAddr>,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut sim = Sim::new(Instant::now(), plan.seed);
        let (up, down) = (sim.add_wire(plan.up), sim.add_wire(plan.down));
        let now = sim.now();
        let certificate = generate_self_signed_certificate().unwrap();
        let setup = setup(&certificate.fingerprint_str(), plan.server, plan.active);
        let config = dimpl::Config::builder()
            .mtu(900)
            .flight_start_rto(plan.patience)
            .handshake_timeout(Duration::from_secs(60))
            .flight_retries(9)
            .build()
            .unwrap();
        let mut engine = match plan.dtls12 {
            true => dimpl::Dtls::new_12(Arc::new(config), certificate, now),
            false => dimpl::Dtls::new_auto(Arc::new(config), certificate, now),
        };
        if !plan.active {
            engine.set_active(true);
        }
        engine.handle_timeout(now).unwrap();
        let client = Client {
            engine,
            hello: plan.hello,
            answered: plan.dtls12 != plan.active,
            state: if plan.client { State::Tentative } else { State::Off },
            pending: Vec::new(),
            next: 0,
            received: Vec::new(),
            writable: false,
            next_check: now,
            engine_due: None,
            connected: None,
            forge: None,
        };
        let identity = Identity::generate();
        let server = Session::new(now, setup, &identity, Config::default(), [7; 32]);
        let (events, discards, sent) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self {
            sim,
            up,
            down,
            client,
            server,
            events,
            discards,
            sent,
            lose: Box::new(|_, _| false),
            source: client_address(),
            plain_to: None,
        };
        world.drain_client();
        world
    }

    pub(crate) fn until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.sim.elapsed() + limit;
        while !done(self) {
            let story: String = self.sent.iter().map(|(at, way, datagram)| line(*at, *way, datagram)).collect();
            assert!(self.sim.elapsed() < end, "seed {}: not within {limit:?}\n{story}", self.sim.seed());
            self.step();
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.step();
        }
    }

    pub(crate) fn both_connected(&mut self) -> bool {
        self.client.connected.is_some() && self.server_connected().is_some()
    }

    /// When, and whether by SPED.
    pub(crate) fn server_connected(&self) -> Option<(Duration, bool)> {
        self.events.iter().find_map(|(at, event)| match event {
            Event::Connected { sped, .. } => Some((*at, *sped)),
            _ => None,
        })
    }

    pub(crate) fn closed(&self) -> bool {
        self.events.iter().any(|(_, event)| matches!(event, Event::Closed(_)))
    }

    /// DATA of each message that has the attribute, in one direction.
    pub(crate) fn data(&self, way: Way) -> Vec<Vec<u8>> {
        let sent = self.sent.iter().filter(|(_, to, datagram)| *to == way && classify(datagram) == Class::Stun);
        sent.filter_map(|(_, _, datagram)| attribute(datagram, DATA)).collect()
    }

    /// Datagrams that went by themselves.
    pub(crate) fn plain(&self, way: Way) -> usize {
        self.sent.iter().filter(|(_, to, datagram)| *to == way && classify(datagram) == Class::Dtls).count()
    }

    pub(crate) fn step(&mut self) {
        let now = self.sim.now();
        if self.client.next_check <= now {
            self.check();
        }
        if self.client.engine_due.is_some_and(|due| due <= now) {
            let _ = self.client.engine.handle_timeout(now);
            self.drain_client();
        }
        if self.server.poll_timeout().is_some_and(|due| due <= now) {
            self.server.handle_timeout(now);
        }
        self.drain_server();
        let due = [Some(self.client.next_check), self.client.engine_due, self.server.poll_timeout()];
        match self.sim.step(due.into_iter().flatten().min()) {
            Step::Delivery(delivery) if delivery.wire == self.up => self.deliver_up(&delivery.payload),
            Step::Delivery(delivery) => self.deliver_down(&delivery.payload),
            Step::Timeout | Step::Idle => {}
        }
        self.drain_server();
    }

    pub(crate) fn deliver_up(&mut self, datagram: &[u8]) {
        self.deliver_from(self.source, datagram);
    }

    pub(crate) fn deliver_from(&mut self, source: SocketAddr, datagram: &[u8]) {
        let path = Path::udp(server_address(), source);
        let mut datagram = datagram.to_vec();
        if let Input::Discarded(discard) = self.server.handle_datagram(self.sim.now(), path, &mut datagram) {
            self.discards.push(discard);
        }
        self.drain_server();
    }

    /// The client sends so many packets of data at once.
    pub(crate) fn send_data(&mut self, packets: u8) {
        for packet in 0..packets {
            self.client.engine.send_application_data(&[packet; 100]).unwrap();
            self.drain_client();
        }
    }

    /// The client's next check.
    fn check(&mut self) {
        let now = self.sim.now();
        let waits = self.client.connected.is_none() || !self.client.pending.is_empty();
        self.client.next_check = now + if waits { CHECK_INTERVAL } else { IDLE_INTERVAL };
        let mut request = Request::browser();
        if let Some(forged) = &self.client.forge {
            for (kind, value) in forged {
                request = request.with(*kind, value);
            }
        } else if !matches!(self.client.state, State::Off | State::Complete) {
            let acks: Vec<u8> = self.client.received.iter().flat_map(|hash| hash.to_be_bytes()).collect();
            request = request.with(ACK, &acks);
            if !self.client.pending.is_empty() {
                let next = self.client.next % self.client.pending.len();
                self.client.next = next + 1;
                request = request.with(DATA, &self.client.pending[next]);
            }
        }
        self.up(request.sealed());
    }

    fn deliver_down(&mut self, datagram: &[u8]) {
        let now = self.sim.now();
        match classify(datagram) {
            Class::Stun => {
                let first = !std::mem::replace(&mut self.client.writable, true);
                let (data, acks) = (attribute(datagram, DATA), attribute(datagram, ACK));
                if let Some(data) = self.client.response(data, acks) {
                    self.client.took(&data);
                    let _ = self.client.engine.handle_timeout(now);
                    let _ = self.client.engine.handle_packet(&data);
                    self.drain_client();
                }
                if first {
                    for pending in self.client.pending.clone() {
                        self.up(pending);
                    }
                }
            }
            Class::Dtls => {
                if self.client.connected.is_none() {
                    self.client.took(datagram);
                }
                let _ = self.client.engine.handle_timeout(now);
                let _ = self.client.engine.handle_packet(datagram);
                self.drain_client();
            }
            _ => {}
        }
    }

    fn drain_client(&mut self) {
        let mut buffer = [0; 4096];
        let mut flight = Vec::new();
        let mut connected = false;
        loop {
            match self.client.engine.poll_output(&mut buffer) {
                dimpl::Output::Packet(datagram) => flight.push(datagram.to_vec()),
                dimpl::Output::Timeout(at) => {
                    self.client.engine_due = Some(at);
                    break;
                }
                dimpl::Output::Connected => connected = true,
                _ => {}
            }
        }
        if self.client.hello != Hello::Whole {
            flight = flight.iter().flat_map(|datagram| fragments(datagram)).collect();
            if self.client.hello == Hello::Reversed {
                flight.reverse();
            }
        }
        if self.client.connected.is_none() && !flight.is_empty() {
            (self.client.pending, self.client.next) = (flight.clone(), 0);
        }
        if self.client.writable {
            flight.into_iter().for_each(|datagram| self.up(datagram));
        }
        if connected {
            self.client.connected = Some(self.sim.elapsed());
            if self.client.state != State::Off {
                self.client.state = State::Pending;
            }
            if self.client.answered {
                // The flight that completed it is an answer to the client's.
                self.client.pending.clear();
            }
        }
    }

    fn drain_server(&mut self) {
        let mut out = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(&mut out) {
            if classify(&out) == Class::Dtls {
                self.plain_to = Some(transmit.path.remote);
            }
            assert!(out.len() <= 1200, "{} bytes", out.len());
            self.sent.push((self.sim.elapsed(), Way::Down, out.clone()));
            if !(self.lose)(Way::Down, &out) {
                self.sim.send(self.down, out.clone());
            }
        }
        while let Some(event) = self.server.poll_event() {
            self.events.push((self.sim.elapsed(), event));
        }
    }

    fn up(&mut self, datagram: Vec<u8>) {
        self.sent.push((self.sim.elapsed(), Way::Up, datagram.clone()));
        if !(self.lose)(Way::Up, &datagram) {
            self.sim.send(self.up, datagram);
        }
    }
}

impl Client {
    /// Returns the datagram that the response brought.
    fn response(&mut self, data: Option<Vec<u8>>, acks: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match (self.state, data.is_none() && acks.is_none()) {
            (State::Off | State::Complete, _) => return None,
            (State::Tentative, true) => {
                self.state = State::Off;
                return None;
            }
            (State::Pending, true) => {
                self.complete();
                return None;
            }
            (State::Tentative, false) => self.state = State::Confirmed,
            _ => {}
        }
        for hash in acks.as_deref().unwrap_or_default().chunks_exact(4) {
            self.pending.retain(|datagram| crc32fast::hash(datagram).to_be_bytes() != hash);
        }
        if self.state == State::Pending && data.is_none() {
            self.complete();
        }
        data.filter(|data| !data.is_empty())
    }

    fn complete(&mut self) {
        self.state = State::Complete;
        self.pending.clear();
    }

    fn took(&mut self, datagram: &[u8]) {
        let hash = crc32fast::hash(datagram);
        if !self.received.contains(&hash) {
            self.received.push(hash);
            if self.received.len() > 4 {
                self.received.remove(0);
            }
        }
    }
}

/// The session's side of the agreement.
fn setup(fingerprint: &str, sped: bool, active: bool) -> Setup {
    let role = if active { "passive" } else { "active" };
    let options = if sped { "a=ice-options:trickle googspedv1\r\n" } else { "" };
    let offer = format!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtcp-mux\r\n\
         a=rtpmap:111 opus/48000/2\r\na=ice-ufrag:cli+/\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\n\
         a=fingerprint:sha-256 {fingerprint}\r\na=setup:{role}\r\n{options}"
    );
    let local = LocalDescription {
        ufrag: LOCAL_UFRAG.to_owned(),
        password: PASSWORD.into(),
        fingerprint: "AA:BB".to_owned(),
        candidates: vec![Candidate::udp(server_address())],
        session: 1,
        ssrc: 1,
        sctp_init: rtc::sdp::SctpInit::Fresh,
        uplink: rtc::Uplink::default(),
    };
    let setup = Offer::parse(&offer).unwrap().accept(&local).setup;
    assert_eq!((setup.sped, setup.dtls_active), (sped, active));
    setup
}

/// The value of a STUN attribute.
pub(crate) fn attribute(message: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut at = 20;
    while at + 4 <= message.len() {
        let length = usize::from(u16::from_be_bytes([message[at + 2], message[at + 3]]));
        if message[at..at + 2] == kind.to_be_bytes() {
            return Some(message[at + 4..at + 4 + length].to_vec());
        }
        at += 4 + length.next_multiple_of(4);
    }
    None
}

/// Cuts a datagram that is one ClientHello in two; leaves others alone.
fn fragments(datagram: &[u8]) -> Vec<Vec<u8>> {
    if datagram[0] != 22 || datagram[13] != 1 {
        return vec![datagram.to_vec()];
    }
    let (header, message) = datagram.split_at(13);
    let (start, body) = message.split_at(12);
    let cut = body.len() / 2;
    let fragment = |number: u8, from: usize, part: &[u8]| {
        let mut record = header.to_vec();
        // Behind all sequence numbers that the engine uses itself.
        record[9] = number;
        record[11..13].copy_from_slice(&u16::try_from(12 + part.len()).unwrap().to_be_bytes());
        record.extend(&start[..6]);
        record.extend(&u32::try_from(from).unwrap().to_be_bytes()[1..]);
        record.extend(&u32::try_from(part.len()).unwrap().to_be_bytes()[1..]);
        record.extend(part);
        record
    };
    vec![fragment(1, 0, &body[..cut]), fragment(2, cut, &body[cut..])]
}

fn line(at: Duration, way: Way, datagram: &[u8]) -> String {
    let data = (classify(datagram) == Class::Stun).then(|| attribute(datagram, DATA).map(|data| data.len()));
    format!("{at:?} {way:?} {:?} {} bytes, DATA {data:?}\n", classify(datagram), datagram.len())
}
