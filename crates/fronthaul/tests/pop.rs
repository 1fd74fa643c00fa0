//! A PoP of two edge processes and a transceiver, with callers on a foreign stack behind a proxy that re-aims their packets.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loadgen::process::{Daemon, metrics, sum};
use str0m::change::SdpAnswer;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

const PATIENCE: Duration = Duration::from_secs(60);
const FRAME: Duration = Duration::from_millis(20);

fn start(kind: &str, set: &[String]) -> Daemon {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fronthaul"));
    command.args([kind, "--announce"]).env_remove("FRONTHAUL_LOG");
    for pair in set {
        command.args(["--set", pair]);
    }
    let child = command.args(["--set", "log.level=warn"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    Daemon::announced(kind, child.unwrap(), None).unwrap()
}

/// The sum over all labels; 0 of what was never counted.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    daemon.metric(name).unwrap().unwrap_or_default()
}

fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

/// An address of this process' own: edges must know one another's ports before either has bound them.
fn own_address() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | a, b, c)
}

/// Two edges that share a state directory, and a transceiver.
struct Pop {
    transceiver: Daemon,
    edges: Vec<Daemon>,
    http: Vec<SocketAddr>,
    media: Vec<SocketAddr>,
    state: PathBuf,
}

impl Drop for Pop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

impl Pop {
    fn start(name: &str) -> Self {
        let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("pop-{}-{name}", std::process::id()));
        let state_dir = format!("state_dir={}", state.display());
        let any = "127.0.0.1:0";
        let mut set = vec![state_dir.clone(), "workers=1".to_owned()];
        set.extend(["link_bind", "admin_bind"].map(|key| format!("{key}={any}")));
        let transceiver = start("transceiver", &set);
        let link = transceiver.port("link").unwrap();
        let peers = [7601, 7602].map(|port| SocketAddr::from((own_address(), port)));
        let edges = [0, 1].map(|index: usize| {
            let other = 1 - index;
            let mut set = vec![
                state_dir.clone(),
                format!("id={}", index + 1),
                "workers=2".to_owned(),
                format!("peer_bind={}", peers[index]),
                format!("peers=[{{id={},address=\"{}\"}}]", other + 1, peers[other]),
                format!("transceivers=[{{id=1,address=\"{link}\"}}]"),
            ];
            set.extend(["http_bind", "media_bind", "admin_bind"].map(|key| format!("{key}={any}")));
            start("edge", &set)
        });
        let ports = |name: &str| edges.iter().map(|edge| edge.port(name).unwrap()).collect();
        let (http, media) = (ports("http"), ports("media"));
        let mut pop = Self { transceiver, edges: edges.into(), http, media, state };
        for edge in &mut pop.edges {
            edge.ready().unwrap();
        }
        pop
    }
}

/// Between one client and the edges: passes everything to one of them, and what any of them sends to the client.
struct Proxy {
    front: SocketAddr,
    /// The port of the edge to which packets go; all are on 127.0.0.1.
    to: Arc<AtomicU16>,
    /// Datagrams that came back.
    down: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let (front, back) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = front.local_addr().unwrap();
        let (to, down) = (Arc::new(AtomicU16::new(to.port())), Arc::new(AtomicUsize::new(0)));
        let client = Arc::new(AtomicU16::new(0));
        let (up_front, up_back) = (front.try_clone().unwrap(), back.try_clone().unwrap());
        let (up_to, up_client) = (Arc::clone(&to), Arc::clone(&client));
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = up_front.recv_from(&mut buffer) {
                up_client.store(from.port(), Ordering::Relaxed);
                let _ = up_back.send_to(&buffer[..length], ("127.0.0.1", up_to.load(Ordering::Relaxed)));
            }
        });
        let count = Arc::clone(&down);
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, _)) = back.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = front.send_to(&buffer[..length], ("127.0.0.1", client.load(Ordering::Relaxed)));
            }
        });
        Self { front: address, to, down }
    }

    fn re_aim(&self, to: SocketAddr) {
        self.to.store(to.port(), Ordering::Relaxed);
    }
}

/// A caller that speaks all the time and notes when it hears something.
struct Caller {
    rtc: Rtc,
    mid: Mid,
    socket: UdpSocket,
    local: SocketAddr,
    connected: bool,
    heard: Vec<Instant>,
    spoken: u64,
    next: Instant,
    timeout: Instant,
}

impl Caller {
    /// Calls `model` through a proxy, which takes the place of the edge's address in the answer.
    fn dial(http: SocketAddr, edge: SocketAddr, proxy: &Proxy, model: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let now = Instant::now();
        let mut rtc = RtcConfig::new().build(now);
        rtc.add_local_candidate(Candidate::host(local, "udp").unwrap());
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let (offer, pending) = change.apply().unwrap();
        let url = format!("http://{http}/v1/realtime/calls?model={model}");
        let mut response = ureq::post(url).content_type("application/sdp").send(offer.to_sdp_string()).unwrap();
        let answer = response.body_mut().read_to_string().unwrap();
        let there = format!(" 127.0.0.1 {} ", edge.port());
        assert!(answer.contains(&there), "{answer}");
        let answer = answer.replace(&there, &format!(" 127.0.0.1 {} ", proxy.front.port()));
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
        let heard = Vec::new();
        let mut caller = Self { rtc, mid, socket, local, connected: false, heard, spoken: 0, next: now, timeout: now };
        caller.until("connected and heard", PATIENCE, |caller| caller.heard.len() >= 25);
        caller
    }

    fn until(&mut self, what: &str, within: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < within, "not within {within:?}: {what}");
            self.turn();
        }
    }

    fn talk_for(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = Instant::now();
        if self.connected && now >= self.next {
            self.next = now.max(self.next + FRAME);
            if let Some(writer) = self.rtc.writer(self.mid) {
                let pt = writer.payload_params().next().unwrap().pt();
                let time = MediaTime::new(self.spoken * 960, Frequency::FORTY_EIGHT_KHZ);
                writer.write(pt, now, time, vec![0xfc, 0xff, 0xfe]).unwrap();
                self.spoken += 1;
            }
        }
        while self.rtc.is_alive() {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => {
                    self.timeout = at;
                    break;
                }
                Output::Transmit(transmit) => {
                    let _ = self.socket.send_to(&transmit.contents, transmit.destination);
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::MediaData(_)) => self.heard.push(Instant::now()),
                Output::Event(_) => {}
            }
        }
        let wake = if self.connected { self.timeout.min(self.next) } else { self.timeout };
        let wait = wake.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), FRAME);
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut buffer = [0; 2048];
        let input = match self.socket.recv_from(&mut buffer) {
            Ok((length, source)) => {
                let Ok(contents) = buffer[..length].try_into() else { return };
                Input::Receive(
                    Instant::now(),
                    Receive { proto: Protocol::Udp, source, destination: self.local, contents },
                )
            }
            Err(_) => Input::Timeout(Instant::now()),
        };
        if self.rtc.is_alive() {
            self.rtc.handle_input(input).unwrap();
        }
    }

    /// The longest time without a packet, from an instant on.
    fn gap_since(&self, since: Instant) -> Duration {
        let before = self.heard.iter().rev().find(|at| **at < since).copied().unwrap_or(since);
        let after = self.heard.iter().filter(|at| **at >= since).copied();
        let times: Vec<Instant> = std::iter::once(before).chain(after).chain([Instant::now()]).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

#[test]
fn a_call_whose_packets_are_re_aimed_at_the_other_edge_is_kept_without_a_gap() {
    let pop = Pop::start("re-aim");
    let proxy = Proxy::start(pop.media[0]);
    let mut caller = Caller::dial(pop.http[0], pop.media[0], &proxy, "loopback");
    // The machine has stalls of its own: the same without re-aiming is the control.
    let mut gaps = Vec::new();
    let mut controls = Vec::new();
    for round in 1..=6 {
        let since = Instant::now();
        caller.talk_for(Duration::from_millis(600));
        controls.push(caller.gap_since(since).as_millis());
        let since = Instant::now();
        proxy.re_aim(pop.media[round % 2]);
        caller.talk_for(Duration::from_millis(600));
        gaps.push(caller.gap_since(since).as_millis());
    }
    println!("longest gap in ms around each re-aiming: {gaps:?}, without: {controls:?}");
    let kept = gaps.iter().zip(&controls).all(|(gap, control)| *gap <= 100 + control);
    assert!(kept, "gaps {gaps:?} against {controls:?}");
    assert!(caller.rtc.is_alive());
    let [owner, other] = [&pop.edges[0], &pop.edges[1]];
    eventually("the forwarding in the metrics", PATIENCE, || {
        metric(other, "fronthaul_edge_peer_forwards_total{kind=\"up\"}") > 20.0
            && metric(owner, "fronthaul_edge_peer_forwards_total{kind=\"down\"}") > 20.0
    });
    assert_eq!(metric(owner, "fronthaul_edge_sessions"), 1.0);
    assert_eq!(metric(other, "fronthaul_edge_sessions_claimed_total"), 0.0);
    assert_eq!(
        metric(owner, "fronthaul_edge_peer_discards_total") + metric(other, "fronthaul_edge_peer_discards_total"),
        0.0
    );
}

#[test]
fn a_killed_edge_takes_its_own_calls_along_and_no_others() {
    let mut pop = Pop::start("kill");
    let (doomed_proxy, other_proxy) = (Proxy::start(pop.media[0]), Proxy::start(pop.media[1]));
    let mut doomed = Caller::dial(pop.http[0], pop.media[0], &doomed_proxy, "loopback");
    let mut other = Caller::dial(pop.http[1], pop.media[1], &other_proxy, "loopback");
    // The other edge serves the doomed call for a while, so that it knows all about it that it ever will.
    doomed_proxy.re_aim(pop.media[1]);
    doomed.talk_for(Duration::from_millis(300));
    eventually("both calls at the transceiver", PATIENCE, || {
        metric(&pop.transceiver, "fronthaul_transceiver_calls") == 2.0
    });

    pop.edges[0].kill().unwrap();
    let killed = Instant::now();
    // What was under way has arrived.
    other.talk_for(Duration::from_millis(100));
    let answered = doomed_proxy.down.load(Ordering::Relaxed);
    // Asked from a thread of its own: the callers' must not wait for answers.
    let transceiver = pop.transceiver.port("admin").unwrap();
    let over = std::thread::spawn(move || {
        let ended =
            || sum(&metrics(transceiver).unwrap(), "fronthaul_transceiver_calls_ended_total").unwrap_or_default();
        eventually("the dead edge's call is over at the transceiver", Duration::from_secs(30), || ended() >= 1.0)
    });
    let (settled, spoken, heard) = (Instant::now(), other.spoken, other.heard.len());
    while killed.elapsed() < Duration::from_secs(4) || !over.is_finished() {
        other.turn();
        doomed.turn();
    }
    let (spoken, heard) = (other.spoken - spoken, other.heard.len() - heard);
    println!(
        "over after {:?}; the other call heard {heard} of {spoken} frames, longest gap {:?}",
        over.join().unwrap(),
        other.gap_since(settled)
    );
    let lost = metric(&pop.transceiver, "fronthaul_transceiver_calls_ended_total{reason=\"link_lost\"}")
        + metric(&pop.transceiver, "fronthaul_transceiver_calls_ended_total{reason=\"session_stream_lost\"}");
    assert_eq!((lost, metric(&pop.transceiver, "fronthaul_transceiver_calls")), (1.0, 1.0));
    assert_eq!(doomed_proxy.down.load(Ordering::Relaxed), answered, "somebody answered in the name of the dead");
    assert!(heard * 100 >= usize::try_from(spoken).unwrap() * 95, "{heard} of {spoken}");
    assert_eq!(metric(&pop.edges[1], "fronthaul_edge_sessions"), 1.0);
    assert_eq!(metric(&pop.edges[1], "fronthaul_edge_sessions_closed_total"), 0.0);
}
