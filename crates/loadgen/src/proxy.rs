//! A proxy that delays each direction, drops a share of the datagrams, lets through no more than a bottleneck would, and
//! writes down each of them. TCP beside it is delayed alike, for what signaling costs.
//!
//! One task per client and direction keeps the order, as a path does. The log ([`log`]) says of each datagram when it passed the
//! client's side of the proxy and when the edge's, so that what may have caused what can be read from it.

pub mod log;
mod tcp;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;

use self::log::{Direction, Log, unix_us};

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
    /// TCP that is delayed by the same time. Nothing of it is lost: that would be TCP's to mend.
    pub tcp: Option<Tcp>,
}

/// Where TCP is taken from and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the edge's HTTP listens.
    pub to: SocketAddr,
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

/// A datagram under way.
struct Passing {
    leaves: Instant,
    /// Unix time at which it came to the proxy.
    came_us: u64,
    datagram: Vec<u8>,
}

/// Where datagrams of one client go in.
type Entrance = mpsc::Sender<Passing>;

/// Runs until the listening socket fails or the task is dropped.
///
/// # Errors
/// A socket or the log file could not be opened, or receiving failed.
pub async fn run(config: Config) -> io::Result<()> {
    run_on(std::net::UdpSocket::bind(config.listen)?, config).await
}

/// [`run`] on a socket that is bound to [`Config::listen`] already.
///
/// # Errors
/// Those of [`run`].
pub async fn run_on(socket: std::net::UdpSocket, config: Config) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let log = config.log.as_deref().map(|path| Log::create(path, config.audio_level_id)).transpose()?;
    let tcp = match config.tcp {
        Some(tcp) => Some((TcpListener::bind(tcp.listen).await?, tcp.to)),
        None => None,
    };
    tokio::select! {
        ended = datagrams(socket, &config, &log) => ended,
        ended = async { match tcp {
            Some((listener, to)) => tcp::serve(&listener, to, config.delay, &log).await,
            None => std::future::pending().await,
        }} => ended,
    }
}

async fn datagrams(socket: UdpSocket, config: &Config, log: &Option<Log>) -> io::Result<()> {
    let socket = Arc::new(socket);
    let mut clients: HashMap<SocketAddr, (Entrance, Bottleneck)> = HashMap::new();
    let mut dice = StdRng::seed_from_u64(config.seed);
    let mut buffer = [0; 2048];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await?;
        let datagram = &buffer[..length];
        let came_us = unix_us();
        let lost = || log::lost(log, Direction::Up, datagram, came_us, config.delay);
        if dice.random_bool(config.loss) {
            lost();
            continue;
        }
        let (up, bottleneck) = match clients.entry(client) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(slot) => {
                let up = serve(client, socket.clone(), config, log.clone()).await?;
                slot.insert((up, Bottleneck::new(config.rate, Instant::now())))
            }
        };
        let Some(leaves) = bottleneck.pass(Instant::now(), datagram.len()) else {
            lost();
            continue;
        };
        // A full queue drops the newest: the proxy stands for a path, which has no memory beyond its delay.
        let _ = up.try_send(Passing { leaves: leaves + config.delay, came_us, datagram: datagram.to_vec() });
    }
}

/// Starts both directions of one client; gives the entrance of the upward one.
async fn serve(client: SocketAddr, socket: Arc<UdpSocket>, config: &Config, log: Option<Log>) -> io::Result<Entrance> {
    let upstream = Arc::new(UdpSocket::bind((config.listen.ip(), 0)).await?);
    upstream.connect(config.to).await?;
    let (up, mut going_up) = mpsc::channel::<Passing>(UNDER_WAY);
    let (down, mut going_down) = mpsc::channel::<Passing>(UNDER_WAY);

    let (sending, up_log) = (upstream.clone(), log.clone());
    tokio::spawn(async move {
        while let Some(Passing { leaves, came_us, datagram }) = going_up.recv().await {
            tokio::time::sleep_until(leaves.into()).await;
            log::passed(&up_log, Direction::Up, &datagram, came_us);
            // An edge that is not there answers with an error on the socket: as on a path, nothing arrives.
            let _ = sending.send(&datagram).await;
        }
    });
    let seed = config.seed.wrapping_add(u64::from(client.port()));
    let (delay, loss) = (config.delay, config.loss);
    let mut bottleneck = Bottleneck::new(config.rate, Instant::now());
    let down_log = log.clone();
    tokio::spawn(async move {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut buffer = [0; 2048];
        loop {
            let Ok(length) = upstream.recv(&mut buffer).await else { continue };
            let (datagram, came_us) = (&buffer[..length], unix_us());
            let passes = if dice.random_bool(loss) { None } else { bottleneck.pass(Instant::now(), length) };
            match passes {
                Some(leaves) => {
                    let _ = down.try_send(Passing { leaves: leaves + delay, came_us, datagram: datagram.to_vec() });
                }
                None => log::lost(&down_log, Direction::Down, datagram, came_us, delay),
            }
        }
    });
    tokio::spawn(async move {
        while let Some(Passing { leaves, came_us, datagram }) = going_down.recv().await {
            tokio::time::sleep_until(leaves.into()).await;
            log::passed(&log, Direction::Down, &datagram, came_us);
            let _ = socket.send_to(&datagram, client).await;
        }
    });
    Ok(up)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = socket.local_addr().unwrap();
        let delay = Duration::from_millis(30);
        let to = edge.local_addr().unwrap();
        let config =
            Config { listen, to, delay, loss: 0.0, rate: None, seed: 1, log: None, audio_level_id: 1, tcp: None };
        let proxy = tokio::spawn(run_on(socket, config));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(listen).await.unwrap();
        let mut buffer = [0; 16];
        let began = Instant::now();
        client.send(&[1]).await.unwrap();
        let (_, via) = edge.recv_from(&mut buffer).await.unwrap();
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
