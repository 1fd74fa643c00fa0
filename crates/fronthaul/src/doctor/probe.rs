//! Authenticated checks (RFC 8445 §7.2.4) to each address of an answer, over UDP and over TCP (RFC 6544).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rand::Rng as _;

use super::report::Finding;
use super::sdp::{Answered, Candidate, Offered};
use super::stun::{self, Message, Writer};

/// Checks to each address; the quickest round trip counts.
const CHECKS: u32 = 3;

/// Between two checks when the first got no answer.
const AGAIN: Duration = Duration::from_millis(500);

/// What there is to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Udp,
    Tcp,
    V6,
}

pub(super) struct Call<'a> {
    pub(super) offered: &'a Offered,
    pub(super) answered: &'a Answered,
    pub(super) patience: Duration,
}

/// What became of one address.
#[derive(Debug)]
pub(super) struct Probed {
    candidate: Candidate,
    /// The quickest round trip, or why there is none.
    result: Result<Duration, String>,
    sped: bool,
}

/// Every address at once: each takes as long as the others when nothing answers.
pub(super) fn all(call: &Call<'_>) -> Vec<Probed> {
    std::thread::scope(|scope| {
        let probing: Vec<_> = call
            .answered
            .candidates
            .iter()
            .map(|candidate| (candidate, scope.spawn(move || probe(call, *candidate))))
            .collect();
        let lost = |candidate: &Candidate| Probed {
            candidate: *candidate,
            result: Err("the probe of it ended early".to_owned()),
            sped: false,
        };
        probing.into_iter().map(|(candidate, thread)| thread.join().unwrap_or_else(|_| lost(candidate))).collect()
    })
}

/// What became of one kind.
pub(super) fn summary(found: &[Probed], answered: &Answered, kind: Kind) -> Finding {
    let is_kind = |candidate: &Candidate| match kind {
        Kind::Udp => !candidate.tcp,
        Kind::Tcp => candidate.tcp,
        Kind::V6 => candidate.address.is_ipv6(),
    };
    if !answered.candidates.iter().any(is_kind) {
        let what = match kind {
            Kind::Udp => "UDP address",
            Kind::Tcp => "TCP address; the edge's ice_tcp is off, or its http_bind is on loopback",
            Kind::V6 => "IPv6 address",
        };
        return Finding::Absent(format!("the answer names no {what}"));
    }
    let of_kind = || found.iter().filter(|probed| is_kind(&probed.candidate));
    let best = of_kind().filter_map(|probed| Some((probed.result.as_ref().ok()?, probed))).min_by_key(|(rtt, _)| **rtt);
    if let Some((rtt, probed)) = best {
        let transport = if probed.candidate.tcp { "tcp" } else { "udp" };
        return Finding::Works { detail: format!("{}/{transport}", probed.candidate.address), rtt: Some(*rtt) };
    }
    let whys = of_kind().filter_map(|probed| {
        let why = probed.result.as_ref().err()?;
        Some(format!("{}: {why}", probed.candidate.address))
    });
    Finding::Failed(whys.collect::<Vec<_>>().join("; "))
}

/// Whether a response acknowledged DTLS datagrams, of which there were none.
pub(super) fn sped_seen(found: &[Probed]) -> bool {
    found.iter().any(|probed| probed.sped)
}

fn probe(call: &Call<'_>, candidate: Candidate) -> Probed {
    let asked = if candidate.tcp { over_tcp(call, candidate.address) } else { over_udp(call, candidate.address) };
    match asked {
        Ok((rtt, sped)) => Probed { candidate, result: Ok(rtt), sped },
        Err(error) => Probed { candidate, result: Err(explain(&error, candidate)), sped: false },
    }
}

/// Why nothing came back, as far as that can be told from here.
fn explain(error: &io::Error, candidate: Candidate) -> String {
    match error.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable if candidate.address.is_ipv6() => {
            "this machine has no way to IPv6".to_owned()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock if candidate.tcp => {
            "no answer: a firewall drops it, or the address is not the edge's".to_owned()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "no check was answered: UDP is blocked on the way, or the address is not the edge's".to_owned()
        }
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed before the check was answered".to_owned(),
        _ => error.to_string(),
    }
}

/// A check of the controlling side, which does not nominate.
fn check(call: &Call<'_>) -> (Vec<u8>, [u8; 12]) {
    let mut transaction = [0; 12];
    let mut tie_breaker = [0; 8];
    let mut rng = rand::rng();
    rng.fill_bytes(&mut transaction);
    rng.fill_bytes(&mut tie_breaker);
    let username = format!("{}:{}", call.answered.ufrag, call.offered.ufrag);
    let mut check = Writer::new(stun::BINDING, transaction)
        .attribute(stun::USERNAME, username.as_bytes())
        .attribute(stun::ICE_CONTROLLING, &tie_breaker)
        .attribute(stun::PRIORITY, &0x7eff_ffff_u32.to_be_bytes());
    if call.answered.sped {
        check = check.attribute(stun::DTLS_ACK, &[]);
    }
    (check.integrity(call.answered.password.as_bytes()).fingerprint(), transaction)
}

/// Whether this is the authentic answer to a check, and whether it speaks SPED.
fn answers(call: &Call<'_>, transaction: [u8; 12], datagram: &[u8]) -> Option<bool> {
    let message = Message::read(datagram)?;
    let ours = message.kind == stun::BINDING_SUCCESS && message.transaction == transaction;
    let authentic = ours && message.is_authentic(call.answered.password.as_bytes());
    authentic.then(|| message.attribute(stun::DTLS_ACK).is_some())
}

fn over_udp(call: &Call<'_>, to: SocketAddr) -> io::Result<(Duration, bool)> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    let deadline = Instant::now() + call.patience;
    let mut best: Option<(Duration, bool)> = None;
    let mut sent = 0;
    // Three answers, or as many tries as the time holds.
    while sent < CHECKS || (best.is_none() && Instant::now() < deadline) {
        sent += 1;
        let (bytes, transaction) = check(call);
        let began = Instant::now();
        socket.send(&bytes)?;
        let until = (began + AGAIN).min(deadline);
        let mut buffer = [0; 2048];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    if let Some(sped) = answers(call, transaction, &buffer[..length]) {
                        let rtt = began.elapsed();
                        best = Some(best.map_or((rtt, sped), |(quickest, was)| (quickest.min(rtt), was || sped)));
                        break;
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    best.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

fn over_tcp(call: &Call<'_>, to: SocketAddr) -> io::Result<(Duration, bool)> {
    let mut stream = TcpStream::connect_timeout(&to, call.patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(call.patience))?;
    let mut best: Option<(Duration, bool)> = None;
    for _ in 0..CHECKS {
        let (bytes, transaction) = check(call);
        let began = Instant::now();
        let mut frame = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
        frame.extend_from_slice(&bytes);
        stream.write_all(&frame)?;
        loop {
            let mut head = [0; 2];
            stream.read_exact(&mut head)?;
            let mut datagram = vec![0; usize::from(u16::from_be_bytes(head))];
            stream.read_exact(&mut datagram)?;
            if let Some(sped) = answers(call, transaction, &datagram) {
                let rtt = began.elapsed();
                best = Some(best.map_or((rtt, sped), |(quickest, was)| (quickest.min(rtt), was || sped)));
                break;
            }
            if began.elapsed() > call.patience {
                return best.ok_or_else(|| io::ErrorKind::TimedOut.into());
            }
        }
    }
    best.ok_or_else(|| io::ErrorKind::TimedOut.into())
}
