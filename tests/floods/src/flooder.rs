//! The flood: forged datagrams of every kind at a steady rate, from many loopback addresses. Runs as a process of its own, so
//! that what is measured does not wait for it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Addresses the flood comes from: `127.77.0.1` and so on.
const SOURCES: u8 = 64;

/// Between two bursts.
const TICK: Duration = Duration::from_millis(1);

/// Sent and what came back, in datagrams and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) answered: u64,
    pub(crate) answered_bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.answered += other.answered;
        self.answered_bytes += other.answered_bytes;
    }
}

/// Forged datagrams, by copying real ones.
pub(crate) struct Forgery {
    datagrams: Vec<Vec<u8>>,
    next: usize,
    noise: u64,
}

impl Forgery {
    /// `live` is a check of a call that runs, `ended` one of a call that is over.
    pub(crate) fn new(live: &[u8], ended: &[u8]) -> Self {
        let mut datagrams = Vec::new();
        for cut in [1, 19, 20, 24, 40, live.len() - 8, live.len() - 1] {
            datagrams.push(live[..cut].to_vec());
        }
        let mut token = without_fingerprint(live);
        token[40] ^= 1;
        let mut integrity = without_fingerprint(live);
        if let Some(last) = integrity.last_mut() {
            *last ^= 1;
        }
        // The header of a ClientHello's record and message (RFC 6347 §4.1, §4.2.2), then noise.
        let mut hello = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 120, 1, 0, 0, 108, 0, 0, 0, 0, 0, 0, 0, 108];
        hello.resize(133, 0x5a);
        let mut srtp = vec![0x80, 111];
        srtp.resize(130, 0x33);
        datagrams.extend([token, integrity, ended.to_vec(), hello, srtp]);
        // Random bytes, made anew each time.
        datagrams.push(Vec::new());
        Self { datagrams, next: 0, noise: 0x9e37_79b9_7f4a_7c15 }
    }

    fn next(&mut self, out: &mut Vec<u8>) {
        self.next = (self.next + 1) % self.datagrams.len();
        out.clear();
        if !self.datagrams[self.next].is_empty() {
            out.extend_from_slice(&self.datagrams[self.next]);
            return;
        }
        let length = 20 + self.noise % 180;
        while (out.len() as u64) < length {
            // xorshift64
            self.noise ^= self.noise << 13;
            self.noise ^= self.noise >> 7;
            self.noise ^= self.noise << 17;
            out.extend_from_slice(&self.noise.to_le_bytes());
        }
    }
}

/// FINGERPRINT is optional and the last attribute, 8 bytes long (RFC 8489 §14.7); MESSAGE-INTEGRITY does not cover it.
fn without_fingerprint(check: &[u8]) -> Vec<u8> {
    let mut check = check[..check.len() - 8].to_vec();
    let length = u16::try_from(check.len() - 20).unwrap_or_default();
    check[2..4].copy_from_slice(&length.to_be_bytes());
    check
}

/// Sends `per_second` forged datagrams to `edge` for `time`.
pub(crate) fn flood(edge: SocketAddr, forgery: &mut Forgery, per_second: u32, time: Duration) -> anyhow::Result<Tally> {
    let sockets: Vec<UdpSocket> = (1..=SOURCES).map(from).collect::<anyhow::Result<_>>()?;
    let began = Instant::now();
    let (mut tally, mut datagram) = (Tally::default(), Vec::new());
    while began.elapsed() < time {
        let due = began.elapsed().as_micros() * u128::from(per_second) / 1_000_000;
        while u128::from(tally.sent) < due {
            forgery.next(&mut datagram);
            let socket = &sockets[usize::try_from(tally.sent % u64::from(SOURCES))?];
            // What the kernel has no room for did not arrive either: it is made up for later, and not counted.
            if socket.send_to(&datagram, edge).is_err() {
                break;
            }
            tally.sent += 1;
            tally.sent_bytes += datagram.len() as u64;
        }
        std::thread::sleep(TICK);
    }
    std::thread::sleep(Duration::from_millis(300));
    sockets.iter().for_each(|socket| count_answers(socket, &mut tally));
    Ok(tally)
}

/// Repeats a true check of a running call from other addresses.
pub(crate) fn replay(edge: SocketAddr, check: &[u8], times: u32) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for time in 0..times {
        let socket = from(u8::try_from(1 + time % u32::from(SOURCES))?)?;
        socket.send_to(check, edge)?;
        tally.sent += 1;
        tally.sent_bytes += check.len() as u64;
        std::thread::sleep(Duration::from_millis(5));
        count_answers(&socket, &mut tally);
    }
    Ok(tally)
}

fn from(source: u8) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 77, 0, source), 0)).context("an address of 127.0.0.0/8")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn count_answers(socket: &UdpSocket, tally: &mut Tally) {
    let mut buffer = [0; 2048];
    while let Ok((length, _)) = socket.recv_from(&mut buffer) {
        tally.answered += 1;
        tally.answered_bytes += length as u64;
    }
}
