//! Clients that come over TCP (RFC 6544), on real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::Client;
use common::live::{StateDir, agent, config, eventually, metric, metrics};
use edge::config::IceTcp;
use edge::{Config, Edge};

fn start(name: &str, ip: &str, workers: usize) -> (Edge, StateDir) {
    let state = StateDir::new(name);
    let any = SocketAddr::new(ip.parse().unwrap(), 0);
    let config = Config {
        media_bind: any,
        http_bind: any,
        public: vec![ip.to_owned()],
        ice_tcp: IceTcp::On,
        ..config(&state, workers)
    };
    (Edge::start(config, metrics()).unwrap(), state)
}

/// The answer to a client's offer, and the call's URL.
fn dial(edge: &Edge, client: &Client) -> (String, String) {
    let url = format!("http://{}", edge.http_addr());
    let mut response = agent()
        .post(format!("{url}/v1/realtime/calls?model=echo"))
        .content_type("application/sdp")
        .send(client.offer())
        .unwrap();
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    (response.body_mut().read_to_string().unwrap(), url + &location)
}

/// A client whose every datagram goes over one TCP connection; it takes it for UDP.
struct Caller {
    client: Client,
    stream: TcpStream,
    received: Vec<u8>,
    media: SocketAddr,
    call: String,
}

impl Caller {
    fn dial(edge: &Edge) -> Self {
        let stream = TcpStream::connect(edge.http_addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client::new(Instant::now(), stream.local_addr().unwrap());
        let (answer, call) = dial(edge, &client);
        client.accept(&answer);
        Self { client, stream, received: Vec::new(), media: edge.media_addr(), call }
    }

    fn turn(&mut self) {
        self.client.drain(Instant::now());
        while let Some((_, datagram)) = self.client.outbox.pop_front() {
            self.stream.write_all(&framed(&datagram)).unwrap();
        }
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => panic!("the edge closed the connection"),
            Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        while let Some(head) = self.received.first_chunk::<2>() {
            let end = 2 + usize::from(u16::from_be_bytes(*head));
            if self.received.len() < end {
                break;
            }
            let datagram: Vec<u8> = self.received.drain(..end).skip(2).collect();
            self.client.receive(Instant::now(), self.media, &datagram);
        }
        if self.client.timeout <= Instant::now() {
            self.client.tick(Instant::now());
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Client) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(&self.client) {
            assert!(Instant::now() < deadline, "not within 20 s: {what}");
            self.turn();
        }
    }

    fn connect(&mut self) {
        self.until("session.created", |client| client.connected && !client.messages.is_empty());
    }

    fn converse(&mut self) {
        self.client.say("hello");
        self.until("the echo of a message", |client| client.messages.len() > 1);
        for n in 0..25 {
            self.client.speak(Instant::now(), &[0xfc, n]);
            let next = Instant::now() + Duration::from_millis(20);
            while Instant::now() < next {
                self.turn();
            }
        }
        self.until("the echo of audio", |client| client.heard.len() >= 20);
    }
}

fn framed(datagram: &[u8]) -> Vec<u8> {
    [&u16::try_from(datagram.len()).unwrap().to_be_bytes()[..], datagram].concat()
}

fn refused(edge: &Edge, reason: &str) -> f64 {
    metric(edge, &format!("fronthaul_edge_connections_refused_total{{reason=\"{reason}\"}}"))
}

/// Whether the edge closes the connection within `patience`, without a byte.
fn closes_silently(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => panic!("a stranger was answered"),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_call_over_tcp_is_served_by_whichever_worker_owns_it() {
    let (edge, _state) = start("tcp-call", "127.0.0.1", 3);
    eventually("metrics", || refused(&edge, "silent") == 0.0);
    for _ in 0..6 {
        let mut caller = Caller::dial(&edge);
        caller.connect();
        caller.converse();
        assert_eq!(agent().delete(&caller.call).call().unwrap().status(), 200);
    }
    assert!(metric(&edge, "fronthaul_edge_tcp_connections_total") >= 6.0);
    // The clients are gone, and so are their connections.
    eventually("no connection", || metric(&edge, "fronthaul_edge_tcp_connections") == 0.0);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_call_over_ipv6_is_served_by_udp_and_tcp() {
    let (edge, _state) = start("tcp-v6", "::1", 1);
    let mut caller = Caller::dial(&edge);
    caller.connect();
    caller.converse();
    let mut caller =
        common::live::Caller::dial_from(&edge, "echo", vec![std::net::UdpSocket::bind("[::1]:0").unwrap()]);
    caller.connect();
    let offer = Client::new(Instant::now(), "[::1]:9".parse().unwrap());
    let (answer, _) = dial(&edge, &offer);
    let [udp, tcp] = [edge.media_addr().port(), edge.http_addr().port()];
    assert!(answer.contains(&format!(" udp 2130706431 ::1 {udp} typ host ")), "{answer}");
    assert!(answer.contains(&format!(" ::1 {tcp} typ host tcptype passive ")), "{answer}");
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_connection_moves_to_the_worker_that_owns_its_session() {
    let (edge, _state) = start("tcp-move", "127.0.0.1", 2);
    let mut moved = 0;
    for _ in 0..16 {
        // Claimed over UDP by whichever worker the kernel chose; then the same call comes over TCP.
        let mut caller = common::live::Caller::dial(&edge, "echo");
        let mut stream = TcpStream::connect(edge.http_addr()).unwrap();
        // The first check goes over both at once: either may claim.
        while caller.client.outbox.is_empty() {
            caller.client.tick(Instant::now());
        }
        let check = caller.client.outbox.front().unwrap().1.clone();
        stream.write_all(&framed(&check)).unwrap();
        caller.connect();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut head = [0; 4];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[2..], [1, 1], "no success response over TCP");
        moved += 1;
        let hang_up = format!("{}{}", caller.url, caller.location);
        assert_eq!(agent().delete(&hang_up).call().unwrap().status(), 200);
    }
    assert_eq!(moved, 16);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn bad_input_is_closed_counted_and_never_answered() {
    let (edge, _state) = start("tcp-bad", "127.0.0.1", 1);
    let mut caller = Caller::dial(&edge);
    caller.connect();
    let offer = Client::new(Instant::now(), "127.0.0.1:9".parse().unwrap());
    let (answer, _) = dial(&edge, &offer);
    let ufrag = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let forged = forged_check(ufrag);
    let soon = Duration::from_secs(3);
    eventually("metrics", || refused(&edge, "forged") == 0.0);
    for (bytes, reason) in [
        (framed(&forged), "forged"),
        (framed(&forged_check("AAAAAAAAAAAAAAAAAAAAAAAAAAAA")), "forged"),
        (framed(&[0; 100]), "forged"),
        (vec![8, 1], "unknown"),
        (vec![0xff; 100], "unknown"),
        (vec![0x16; 100], "unknown"),
    ] {
        let before = refused(&edge, reason);
        let mut stream = TcpStream::connect(edge.http_addr()).unwrap();
        stream.write_all(&bytes).unwrap();
        assert!(closes_silently(&mut stream, soon), "{reason}: {bytes:?}");
        eventually(reason, || refused(&edge, reason) > before);
    }
    // Frames of no bytes, half a frame, nothing at all: silent within their time.
    for bytes in [vec![0; 1000], framed(&forged)[..40].to_vec(), vec![]] {
        let before = refused(&edge, "silent");
        let mut stream = TcpStream::connect(edge.http_addr()).unwrap();
        stream.write_all(&bytes).unwrap();
        for _ in 0..30 {
            caller.turn();
        }
        assert!(closes_silently(&mut stream, Duration::from_secs(12)), "{bytes:?}");
        eventually("silent", || refused(&edge, "silent") > before);
    }
    caller.client.say("still here");
    caller.until("the echo after bad input", |client| client.messages.len() > 1);
    // In mid-call a frame that can never be whole ends its own connection.
    caller.stream.write_all(&[0xff, 0xff]).unwrap();
    caller.stream.set_nonblocking(false).unwrap();
    caller.stream.set_read_timeout(Some(soon)).unwrap();
    while caller.stream.read(&mut [0; 4096]).unwrap_or_default() > 0 {}
    eventually("its end", || metric(&edge, "fronthaul_edge_tcp_connections") == 0.0);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn connections_that_say_nothing_keep_nobody_out_for_long() {
    let (edge, _state) = start("tcp-silent", "127.0.0.1", 1);
    let mut silent = Vec::new();
    for _ in 0..1500 {
        silent.push(TcpStream::connect(edge.http_addr()).unwrap());
    }
    let began = Instant::now();
    let mut caller = Caller::dial(&edge);
    caller.connect();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(metric(&edge, "process_open_fds") < 2.0 * 1500.0 + 1024.0 + 100.0);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_client_that_does_not_read_loses_audio_and_holds_up_nobody() {
    let (edge, _state) = start("tcp-slow", "127.0.0.1", 1);
    let mut slow = Caller::dial(&edge);
    slow.connect();
    let mut quick = Caller::dial(&edge);
    quick.connect();
    // Echo gives back what it is given: the slow one sends, and reads nothing of it.
    let payload = [0xfc; 1000];
    let deadline = Instant::now() + Duration::from_secs(20);
    let dropped = || metric(&edge, "fronthaul_edge_tcp_frames_dropped_total");
    let mut echoes = Vec::new();
    let mut counted = 0.0;
    while counted == 0.0 && Instant::now() + Duration::from_secs(10) < deadline {
        echoes.push(beside(&mut slow, &mut quick, &payload));
        counted = dropped();
    }
    for _ in 0..3 {
        echoes.push(beside(&mut slow, &mut quick, &payload));
    }
    if counted == 0.0 {
        // Counted when the connection ends, at the latest.
        slow.stream.shutdown(std::net::Shutdown::Both).unwrap();
        eventually("frames dropped", || dropped() > 0.0);
    }
    // A worker that waits for the slow one does so each time, a busy machine now and then.
    let quickest = echoes.iter().rev().take(3).min().unwrap();
    assert!(*quickest < Duration::from_secs(2), "{echoes:?}");
    edge.drain();
    edge.wait().unwrap();
}

/// The slow one sends 50 frames and reads nothing; how long the quick one then waits for the echo of a message.
fn beside(slow: &mut Caller, quick: &mut Caller, payload: &[u8]) -> Duration {
    for _ in 0..50 {
        slow.client.speak(Instant::now(), payload);
        slow.client.tick(Instant::now());
        while let Some((_, datagram)) = slow.client.outbox.pop_front() {
            let _ = slow.stream.write(&framed(&datagram));
        }
        quick.turn();
    }
    let before = quick.client.messages.len();
    quick.client.say("quick");
    let began = Instant::now();
    quick.until("an echo beside a slow reader", |client| client.messages.len() > before);
    began.elapsed()
}

/// A binding request for `ufrag` with a MESSAGE-INTEGRITY of zeros and a right FINGERPRINT.
fn forged_check(ufrag: &str) -> Vec<u8> {
    let username = format!("{ufrag}:them");
    let mut check = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    check.extend_from_slice(&[7; 12]);
    check.extend_from_slice(&[0, 6]);
    check.extend_from_slice(&u16::try_from(username.len()).unwrap().to_be_bytes());
    check.extend_from_slice(username.as_bytes());
    check.resize(check.len().next_multiple_of(4), 0);
    check.extend_from_slice(&[0, 8, 0, 20]);
    check.extend_from_slice(&[0; 20]);
    let length = u16::try_from(check.len() - 20).unwrap();
    check[2..4].copy_from_slice(&length.to_be_bytes());
    check
}
