//! A UDP proxy that delays each direction, drops a share of the datagrams, lets through no more than a bottleneck would, and
//! writes down each of them.
//!
//! One task per client and direction keeps the order, as a path does. The log is taken at the client's side of the proxy:
//! what the client sent when it arrives here, what it gets when it leaves here.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// Datagrams under way per client and direction: 1 s at 1000 packets a second, far above one call's rate.
const UNDER_WAY: usize = 1000;

/// What the proxy does.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients send.
    pub listen: SocketAddr,
    /// Where the edge listens.
    pub to: SocketAddr,
    /// Added to each direction.
    pub delay: Duration,
    /// Dropped share of each direction, 0..=1.
    pub loss: f64,
    /// The bottleneck of each direction of each client; `None`: there is none.
    pub rate: Option<Rate>,
    /// Feeds the losses.
    pub seed: u64,
    /// One JSON object per datagram and line.
    pub log: Option<PathBuf>,
    /// Extension id of RFC 6464 audio levels in the clients' offers.
    pub audio_level_id: u8,
}

/// A bottleneck: datagrams leave one after the other, and those that find its queue full are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How fast it is. At least 1.
    pub bytes_per_second: u64,
    /// What may wait at it, besides the datagram that is on the wire.
    pub queue_bytes: u64,
}

impl Rate {
    /// A queue of 100 ms, as routers are set up with.
    pub const QUEUE: Duration = Duration::from_millis(100);

    /// So many kbit/s, with a queue that takes as long to run empty.
    #[must_use]
    pub fn of_kbit(kbit: u64, queue: Duration) -> Self {
        let bytes_per_second = (kbit * 125).max(1);
        let queue_ms = u64::try_from(queue.as_millis()).unwrap_or(u64::MAX);
        Self { bytes_per_second, queue_bytes: bytes_per_second.saturating_mul(queue_ms) / 1000 }
    }
}

/// One direction's bottleneck at work.
struct Bottleneck {
    rate: Option<Rate>,
    free_at: Instant,
}

impl Bottleneck {
    fn new(rate: Option<Rate>, now: Instant) -> Self {
        Self { rate, free_at: now }
    }

    /// When a datagram of `bytes` that comes now has left; `None`: it finds no room.
    fn pass(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(Rate { bytes_per_second, queue_bytes }) = self.rate else { return Some(now) };
        let waits = self.free_at.saturating_duration_since(now);
        if waits.as_nanos() * u128::from(bytes_per_second) > u128::from(queue_bytes) * 1_000_000_000 {
            return None;
        }
        let on_wire = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX);
        self.free_at = self.free_at.max(now) + on_wire.div_f64(bytes_per_second as f64);
        Some(self.free_at)
    }
}

/// One datagram in the log.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Entry {
    /// Unix time in microseconds.
    t_us: u64,
    dir: Direction,
    kind: &'static str,
    len: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u16>,
    /// RFC 6464: -dBov, 0 is loudest.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dropped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Up,
    Down,
}

type Log = Option<Arc<Mutex<std::fs::File>>>;

/// Where datagrams of one client go in, with the time at which they leave.
type Entrance = mpsc::Sender<(Instant, Vec<u8>)>;

/// Runs until the listening socket fails or the task is dropped.
///
/// # Errors
/// A socket or the log file could not be opened, or receiving failed.
pub async fn run(config: Config) -> io::Result<()> {
    let log: Log = config.log.as_ref().map(std::fs::File::create).transpose()?.map(|file| Arc::new(Mutex::new(file)));
    let socket = Arc::new(UdpSocket::bind(config.listen).await?);
    let mut clients: HashMap<SocketAddr, (Entrance, Bottleneck)> = HashMap::new();
    let mut dice = StdRng::seed_from_u64(config.seed);
    let mut buffer = [0; 2048];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await?;
        let datagram = &buffer[..length];
        let dropped = dice.random_bool(config.loss);
        write(&log, &config, Direction::Up, datagram, dropped);
        if dropped {
            continue;
        }
        let (up, bottleneck) = match clients.entry(client) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(slot) => {
                let up = serve(client, socket.clone(), config.clone(), log.clone()).await?;
                slot.insert((up, Bottleneck::new(config.rate, Instant::now())))
            }
        };
        if let Some(leaves) = bottleneck.pass(Instant::now(), datagram.len()) {
            // A full queue drops the newest: the proxy stands for a path, which has no memory beyond its delay.
            let _ = up.try_send((leaves + config.delay, datagram.to_vec()));
        }
    }
}

/// Starts both directions of one client; gives the entrance of the upward one.
async fn serve(client: SocketAddr, socket: Arc<UdpSocket>, config: Config, log: Log) -> io::Result<Entrance> {
    let upstream = Arc::new(UdpSocket::bind((config.listen.ip(), 0)).await?);
    upstream.connect(config.to).await?;
    let (up, mut going_up) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let (down, mut going_down) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);

    let sending = upstream.clone();
    tokio::spawn(async move {
        while let Some((due, datagram)) = going_up.recv().await {
            tokio::time::sleep_until(due.into()).await;
            // An edge that is not there answers with an error on the socket: as on a path, nothing arrives.
            let _ = sending.send(&datagram).await;
        }
    });
    let seed = config.seed.wrapping_add(u64::from(client.port()));
    let (delay, loss) = (config.delay, config.loss);
    let mut bottleneck = Bottleneck::new(config.rate, Instant::now());
    tokio::spawn(async move {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut buffer = [0; 2048];
        loop {
            let Ok(length) = upstream.recv(&mut buffer).await else { continue };
            if dice.random_bool(loss) {
                continue;
            }
            if let Some(leaves) = bottleneck.pass(Instant::now(), length) {
                let _ = down.try_send((leaves + delay, buffer[..length].to_vec()));
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, datagram)) = going_down.recv().await {
            tokio::time::sleep_until(due.into()).await;
            write(&log, &config, Direction::Down, &datagram, false);
            let _ = socket.send_to(&datagram, client).await;
        }
    });
    Ok(up)
}

fn write(log: &Log, config: &Config, dir: Direction, datagram: &[u8], dropped: bool) {
    let Some(log) = log else { return };
    let t_us =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0));
    let entry = describe(t_us, dir, datagram, config.audio_level_id, dropped);
    let (Ok(mut line), Ok(mut file)) = (serde_json::to_vec(&entry), log.lock()) else { return };
    line.push(b'\n');
    // A full disk costs the log, not the call.
    let _ = file.write_all(&line);
}

fn describe(t_us: u64, dir: Direction, datagram: &[u8], audio_level_id: u8, dropped: bool) -> Entry {
    let kind = match datagram {
        [0..=3, ..] => "stun",
        [20..=63, ..] => "dtls",
        [128..=191, 192..=223, ..] => "srtcp",
        [128..=191, ..] => "srtp",
        _ => "unknown",
    };
    let rtp = (kind == "srtp").then_some(datagram);
    Entry {
        t_us,
        dir,
        kind,
        len: datagram.len(),
        seq: rtp.and_then(|packet| Some(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?))),
        level: rtp.and_then(|packet| audio_level(packet, audio_level_id)),
        dropped,
    }
}

/// RFC 6464 in a one-byte-header extension block (RFC 8285 §4.2). Extensions are not encrypted in SRTP.
fn audio_level(packet: &[u8], id: u8) -> Option<u8> {
    if packet.first()? & 0x10 == 0 {
        return None;
    }
    let block = packet.get(12 + 4 * usize::from(packet[0] & 0x0f)..)?;
    if block.get(..2)? != [0xbe, 0xde] {
        return None;
    }
    let words = u16::from_be_bytes(block.get(2..4)?.try_into().ok()?);
    let mut elements = block.get(4..4 + 4 * usize::from(words))?;
    while let Some((&head, rest)) = elements.split_first() {
        if head == 0 {
            elements = rest;
            continue;
        }
        let length = usize::from(head & 0x0f) + 1;
        if head >> 4 == id {
            return rest.first().map(|byte| byte & 0x7f);
        }
        elements = rest.get(length..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_told_apart_and_audio_levels_read() {
        let mut rtp = vec![0x90, 111, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xde, 0, 2];
        rtp.extend([0x31, 1, 2, 0x10, 0x80 | 42, 0, 0, 0]);
        let entry = |datagram: &[u8]| describe(7, Direction::Up, datagram, 1, false);
        assert_eq!(
            entry(&rtp),
            Entry {
                t_us: 7,
                dir: Direction::Up,
                kind: "srtp",
                len: 24,
                seq: Some(0x1234),
                level: Some(42),
                dropped: false
            }
        );
        assert_eq!(entry(&[0, 1]).kind, "stun");
        assert_eq!(entry(&[22]).kind, "dtls");
        assert_eq!(entry(&[0x80, 200]).kind, "srtcp");
        assert_eq!(entry(&[]).kind, "unknown");
        for cut in 0..rtp.len() {
            let _ = entry(&rtp[..cut]);
        }
    }

    #[test]
    fn a_bottleneck_lets_its_rate_through_and_drops_what_finds_its_queue_full() {
        let now = Instant::now();
        // 80 kbit/s: 100 bytes take 10 ms, and 300 bytes may wait.
        let mut bottleneck = Bottleneck::new(Some(Rate { bytes_per_second: 10_000, queue_bytes: 300 }), now);
        let passed: Vec<Option<u128>> = (0..6).map(|_| Some((bottleneck.pass(now, 100)? - now).as_millis())).collect();
        assert_eq!(passed, [Some(10), Some(20), Some(30), Some(40), None, None]);
        let later = now + Duration::from_millis(20);
        assert_eq!(bottleneck.pass(later, 100), Some(now + Duration::from_millis(50)));
        assert_eq!(Rate::of_kbit(80, Duration::from_millis(30)), Rate { bytes_per_second: 10_000, queue_bytes: 300 });
        assert_eq!(Bottleneck::new(None, now).pass(now, 1), Some(now));
    }

    #[tokio::test]
    async fn both_directions_are_delayed_and_keep_their_order() {
        let edge = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let delay = Duration::from_millis(30);
        let to = edge.local_addr().unwrap();
        let config = Config { listen: free, to, delay, loss: 0.0, rate: None, seed: 1, log: None, audio_level_id: 1 };
        let proxy = tokio::spawn(run(config));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(free).await.unwrap();
        let mut buffer = [0; 16];
        // The proxy's socket opens in its own task: the first datagram is sent until it is there.
        let (began, via) = loop {
            let began = Instant::now();
            let _ = client.send(&[1]).await;
            if let Ok(got) = tokio::time::timeout(Duration::from_millis(200), edge.recv_from(&mut buffer)).await {
                break (began, got.unwrap().1);
            }
        };
        assert!(began.elapsed() >= delay);
        for n in 2..10 {
            edge.send_to(&[n], via).await.unwrap();
        }
        for n in 2..10 {
            client.recv(&mut buffer).await.unwrap();
            assert_eq!(buffer[0], n);
        }
        assert!(began.elapsed() >= 2 * delay);
        proxy.abort();
    }
}
