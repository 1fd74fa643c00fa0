//! `bench link`: two real ends of a link through a proxy that delays, loses and narrows.
//!
//! ```text
//! thread "ends"    edge end ──▶ 1 ms turns of frames ──▶ link ◀── the same ◀── transceiver end
//! thread "proxy"   UDP, each datagram delayed by half the round trip, dropped by the dice, or stuck at the bottleneck
//! ```
//!
//! Both ends run in one thread with one clock, so one-way times need no synchronization, and that thread's CPU time is
//! the cost of both ends: batches written, QUIC both ways, batches read. Each session has its frame in another of the 20
//! turns of a frame's 20 ms, as callers have.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use link::datagram::{Batch, BatchWriter, Codec, MediaUp, Previous, Seen, parse};
use link::identity::{NodeIdentity, Role};
use link::ids::{EdgeId, Slot, TransceiverId};
pub use link::quic::Controller;
use link::quic::{Endpoint, Link, LinkStats, clock_base, clock32_at};
use serde::Serialize;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::bench::Percentiles;
use crate::proxy;

/// One Opus packet of 20 ms at 40 kbit/s.
const PAYLOAD_BYTES: usize = 100;
/// Turns in which the frames of 20 ms are spread.
const TURNS: u32 = 20;
/// Before the window: handshake, MTU discovery and the first measurement of the loss.
const WARM_UP: Duration = Duration::from_secs(2);
/// After it: the last frames arrive, or never do.
const TAIL: Duration = Duration::from_secs(2);
/// Datagrams of one turn of a reader.
const DATAGRAMS_PER_TURN: usize = 64;

/// What to run.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Sessions, 50 frames per second each way. At least 1.
    pub sessions: u32,
    /// Length of the measured window.
    pub duration: Duration,
    /// Lost share of each direction, 0 to 1.
    pub loss: f64,
    /// Round trip of the path.
    pub rtt: Duration,
    /// Bottleneck of each direction in kbit/s; `None`: there is none.
    pub rate_kbit: Option<u64>,
    /// Feeds the losses.
    pub seed: u64,
    /// The congestion controller of both ends.
    pub controller: Controller,
}

/// One direction in figures.
#[derive(Debug, Clone, Serialize)]
pub struct Direction {
    /// Frames sent in the window.
    pub sent: u64,
    /// Those of them that arrived.
    pub delivered: u64,
    /// In percent.
    pub delivered_percent: f64,
    /// One-way times beyond the path's half round trip.
    pub added_us: Percentiles,
    /// Share of the frames that went twice.
    pub repetition_rate: f64,
    /// Loss as the sender measured it at the end, in percent.
    pub measured_loss_percent: f64,
    /// Datagrams given up because they waited too long for a closing window, or had no room.
    pub datagrams_dropped: u64,
}

/// What `bench link` found.
#[derive(Debug, Clone, Serialize)]
pub struct LinkReport {
    /// `link`.
    pub bench: &'static str,
    /// Sessions that talked.
    pub sessions: u32,
    /// Length of the measured window.
    pub seconds: f64,
    /// Of the path, in percent.
    pub loss_percent: f64,
    /// Of the path.
    pub rtt_ms: f64,
    /// Of the path.
    pub rate_kbit: Option<u64>,
    /// Of the losses.
    pub seed: u64,
    /// Of both ends.
    pub controller: String,
    /// Edge to transceiver.
    pub up: Direction,
    /// Transceiver to edge.
    pub down: Direction,
    /// Of both directions together.
    pub delivered_percent: f64,
    /// Time in which an end found its direction congested.
    pub congested_seconds: f64,
    /// CPU of both ends per frame of either direction: written, sent, received, read, and their acknowledgements.
    pub cpu_us_per_frame: f64,
    /// Heap allocations of both ends per frame; `None` in a binary that does not count them.
    pub allocations_per_frame: Option<f64>,
    /// Load average over a minute when the run began: other work.
    pub load_average_before: f64,
}

/// Runs the bench; progress goes to standard error.
///
/// # Errors
/// No sockets, no link, or a link that was lost on the way.
pub fn run(options: &LinkOptions) -> anyhow::Result<LinkReport> {
    let options = options.clone();
    let ends = std::thread::Builder::new().name("ends".to_owned()).spawn(move || {
        let directory = Directory::new()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, measure(&options, directory.path()))
    })?;
    ends.join().map_err(|_| anyhow::anyhow!("the thread of both ends panicked"))?
}

async fn measure(options: &LinkOptions, state: &Path) -> anyhow::Result<LinkReport> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = NodeIdentity::load_or_create(state, Role::Transceiver(TransceiverId(1)))?;
    let server = Endpoint::server(&server, loopback)?.with_controller(options.controller);
    let client = NodeIdentity::load_or_create(state, Role::Edge(EdgeId(1)))?;
    let client = Endpoint::client_on(&client, loopback)?.with_controller(options.controller);
    let through = start_proxy(options, server.local_addr()?)?;
    let (edge, transceiver) = tokio::join!(client.connect(through, TransceiverId(1)), server.accept());
    let (edge, transceiver) = (edge.context("no link through the proxy")?, transceiver.context("no link")?);

    let load_average_before = load_average();
    let ends = [edge, transceiver];
    let run = Rc::new(RefCell::new(Run::new(options.sessions)));
    let tasks: Vec<JoinHandle<()>> = vec![
        tokio::task::spawn_local(send(Rc::clone(&run), ends.clone(), options.sessions)),
        tokio::task::spawn_local(receive(Rc::clone(&run), 0, ends[0].clone())),
        tokio::task::spawn_local(receive(Rc::clone(&run), 1, ends[1].clone())),
    ];
    sleep(WARM_UP).await;
    run.borrow_mut().counting = true;
    let (cpu, allocations) = (thread_cpu(), net::alloc::thread());
    let congested = watch(&ends, options.duration).await?;
    let (cpu, allocations) = (thread_cpu() - cpu, net::alloc::thread() - allocations);
    run.borrow_mut().counting = false;
    sleep(TAIL.max(2 * options.rtt)).await;
    tasks.iter().for_each(JoinHandle::abort);
    let stats = ends.each_ref().map(Link::stats);
    for end in &ends {
        anyhow::ensure!(end.close_reason().is_none(), "the link was lost: {:?}", end.close_reason());
    }
    let run = std::mem::take(&mut *run.borrow_mut());
    let [up, down] = run.ways;
    let frames = float(up.sent + down.sent).max(1.0);
    let delivered_percent = 100.0 * float(up.delivered() + down.delivered()) / frames;
    let one_way = options.rtt / 2;
    Ok(LinkReport {
        bench: "link",
        sessions: options.sessions,
        seconds: options.duration.as_secs_f64(),
        loss_percent: options.loss * 100.0,
        rtt_ms: options.rtt.as_secs_f64() * 1000.0,
        rate_kbit: options.rate_kbit,
        seed: options.seed,
        controller: format!("{:?}", options.controller),
        up: up.figures(one_way, &stats[0]),
        down: down.figures(one_way, &stats[1]),
        delivered_percent,
        congested_seconds: congested.as_secs_f64(),
        cpu_us_per_frame: cpu.as_secs_f64() * 1e6 / frames,
        allocations_per_frame: (allocations.allocations > 0).then(|| float(allocations.allocations) / frames),
        load_average_before,
    })
}

/// The path on a thread of its own; gives the address to dial.
fn start_proxy(options: &LinkOptions, to: SocketAddr) -> anyhow::Result<SocketAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let listen = socket.local_addr()?;
    let rate = options.rate_kbit.map(|kbit| proxy::Rate::of_kbit(kbit, proxy::Rate::QUEUE));
    let delay = options.rtt / 2;
    let (loss, seed) = (options.loss, options.seed);
    let config = proxy::Config { listen, to, delay, loss, rate, seed, log: None, audio_level_id: 1, tcp: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
        if let Err(error) = runtime.block_on(proxy::run_on(socket, config)) {
            let _ = writeln!(std::io::stderr(), "the proxy stopped: {error}");
        }
    })?;
    Ok(listen)
}

/// Waits for the window to pass, says how it goes, and tells for how long an end was congested.
async fn watch(ends: &[Link; 2], duration: Duration) -> anyhow::Result<Duration> {
    const LOOK: Duration = Duration::from_millis(100);
    let paths = ends.each_ref().map(Link::path);
    let begin = Instant::now();
    let (mut congested, mut looked, mut told) = (Duration::ZERO, begin, begin);
    while begin.elapsed() < duration {
        sleep(LOOK.min(duration.saturating_sub(begin.elapsed()))).await;
        let now = Instant::now();
        if paths.iter().any(|path| path.borrow().congested) {
            congested += now - looked;
        }
        looked = now;
        for end in ends {
            anyhow::ensure!(end.close_reason().is_none(), "the link was lost: {:?}", end.close_reason());
        }
        if now - told >= Duration::from_secs(1) {
            told = now;
            let state = *paths[0].borrow();
            let (passed, whole) = (begin.elapsed().as_secs(), duration.as_secs());
            let _ = write!(std::io::stderr(), "\rbench link: {passed} of {whole} s, {state:?}    ");
        }
    }
    let _ = writeln!(std::io::stderr());
    Ok(congested)
}

/// Both directions while they run.
#[derive(Default)]
struct Run {
    counting: bool,
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    sent: u64,
    repeated: u64,
    previous: Vec<Previous>,
    seen: Vec<Seen>,
    /// One-way times of frames of the window, in nanoseconds.
    times: Vec<u32>,
}

impl Run {
    fn new(sessions: u32) -> Self {
        let way = || Way {
            previous: (0..sessions).map(|_| Previous::default()).collect(),
            seen: (0..sessions).map(|_| Seen::default()).collect(),
            ..Way::default()
        };
        Self { counting: false, ways: [way(), way()] }
    }
}

impl Way {
    fn delivered(&self) -> u64 {
        u64::try_from(self.times.len()).unwrap_or(u64::MAX)
    }

    fn figures(self, one_way: Duration, stats: &LinkStats) -> Direction {
        let path = u32::try_from(one_way.as_nanos()).unwrap_or(u32::MAX);
        let (sent, delivered) = (self.sent, self.delivered());
        Direction {
            sent,
            delivered,
            delivered_percent: 100.0 * float(delivered) / float(sent.max(1)),
            added_us: Percentiles::of(self.times.into_iter().map(|nanos| nanos.saturating_sub(path)).collect()),
            repetition_rate: float(self.repeated) / float(sent.max(1)),
            measured_loss_percent: float(stats.loss_ppm) / 10_000.0,
            datagrams_dropped: stats.datagrams_late + stats.datagrams_crowded,
        }
    }
}

/// Sends what is due, a turn each millisecond, at both ends.
async fn send(run: Rc<RefCell<Run>>, ends: [Link; 2], sessions: u32) {
    let mut writers = [BatchWriter::media_up(), BatchWriter::media_down()];
    let paths = ends.each_ref().map(Link::path);
    let mut turns = interval(Duration::from_millis(1));
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for turn in 0_u32.. {
        turns.tick().await;
        let now = Instant::now();
        let run = &mut *run.borrow_mut();
        for (end, writer) in writers.iter_mut().enumerate() {
            let repeats = paths[end].borrow().repeat;
            for session in (turn % TURNS..sessions).step_by(TURNS as usize) {
                let payload = payload(now, run.counting);
                let frame = frame(session, turn / TURNS, &payload);
                let way = &mut run.ways[end];
                way.sent += u64::from(run.counting);
                if repeats && let Some(previous) = way.previous.get_mut(session as usize) {
                    let now_us = micros(now);
                    if let Some(again) = previous.before(now_us, &frame) {
                        push(writer, &ends[end], now, &again);
                        way.repeated += u64::from(run.counting);
                    }
                    previous.keep(now_us, &frame);
                }
                push(writer, &ends[end], now, &frame);
            }
            if !writer.is_empty() {
                ends[end].send_datagram(writer.take(clock32_at(now)));
            }
        }
    }
}

/// The time and whether the frame counts, in the front of an Opus packet's worth of bytes.
fn payload(now: Instant, counts: bool) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0x5a; PAYLOAD_BYTES];
    let nanos = u64::try_from(now.saturating_duration_since(clock_base()).as_nanos()).unwrap_or(u64::MAX);
    payload[..8].copy_from_slice(&nanos.to_be_bytes());
    payload[8] = u8::from(counts);
    payload
}

fn frame(session: u32, number: u32, payload: &[u8]) -> MediaUp<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
    let seq = number as u16;
    MediaUp {
        slot: Slot(session),
        epoch: 1,
        codec: Codec::Opus,
        marker: false,
        seq,
        rtp_timestamp: number.wrapping_mul(960),
        audio_level: None,
        age_us: 0,
        payload,
    }
}

fn push(writer: &mut BatchWriter, link: &Link, now: Instant, frame: &MediaUp<'_>) {
    if !writer.push_frame(frame) {
        link.send_datagram(writer.take(clock32_at(now)));
        // An empty batch holds a frame of this size.
        let _ = writer.push_frame(frame);
    }
}

/// Reads at one end what the other one sent.
async fn receive(run: Rc<RefCell<Run>>, end: usize, link: Link) {
    let mut datagrams: Vec<Bytes> = Vec::with_capacity(DATAGRAMS_PER_TURN);
    while link.read_datagrams(DATAGRAMS_PER_TURN, &mut datagrams).await.is_ok() {
        take(&mut run.borrow_mut().ways[1 - end], &mut datagrams);
        tokio::task::yield_now().await;
    }
}

/// Notes the frames of a turn that are fresh.
fn take(way: &mut Way, datagrams: &mut Vec<Bytes>) {
    let nanos = u64::try_from(clock_base().elapsed().as_nanos()).unwrap_or(u64::MAX);
    for datagram in datagrams.drain(..) {
        let Ok(Batch::MediaUp { frames, .. } | Batch::MediaDown { frames, .. }) = parse(&datagram) else {
            continue;
        };
        for frame in frames.flatten() {
            let fresh = way.seen.get_mut(frame.slot.0 as usize).is_some_and(|seen| seen.fresh(frame.seq));
            if let (true, Some((sent, [1, ..]))) = (fresh, frame.payload.split_first_chunk()) {
                let took = nanos.saturating_sub(u64::from_be_bytes(*sent));
                way.times.push(u32::try_from(took).unwrap_or(u32::MAX));
            }
        }
    }
}

fn micros(now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(clock_base()).as_micros()).unwrap_or(u64::MAX)
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

/// A private directory for the certificates of one run.
struct Directory(PathBuf);

impl Directory {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("fronthaul-bench-link-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate_kbit.map_or_else(|| "no bottleneck".to_owned(), |kbit| format!("{kbit} kbit/s"));
        writeln!(
            f,
            "link: {} sessions, {} s, {} ms round trip, {} % loss, {rate}, controller {}, seed {}",
            self.sessions, self.seconds, self.rtt_ms, self.loss_percent, self.controller, self.seed
        )?;
        writeln!(f, "{:24}{:>14}{:>14}", "", "up", "down")?;
        let (up, down) = (&self.up, &self.down);
        let mut row =
            |name: &str, up: f64, down: f64, digits: usize| writeln!(f, "{name:24}{up:>14.digits$}{down:>14.digits$}");
        row("frames sent", float(up.sent), float(down.sent), 0)?;
        row("delivered, %", up.delivered_percent, down.delivered_percent, 3)?;
        row("added, p50, ms", up.added_us.p50 / 1e3, down.added_us.p50 / 1e3, 2)?;
        row("added, p95, ms", up.added_us.p95 / 1e3, down.added_us.p95 / 1e3, 2)?;
        row("added, p99, ms", up.added_us.p99 / 1e3, down.added_us.p99 / 1e3, 2)?;
        row("added, max, ms", up.added_us.max / 1e3, down.added_us.max / 1e3, 2)?;
        row("sent twice, %", up.repetition_rate * 100.0, down.repetition_rate * 100.0, 1)?;
        row("loss measured, %", up.measured_loss_percent, down.measured_loss_percent, 2)?;
        row("datagrams given up", float(up.datagrams_dropped), float(down.datagrams_dropped), 0)?;
        writeln!(f, "congested               {:>14.1} s", self.congested_seconds)?;
        writeln!(f, "CPU per frame, both ends{:>14.2} us", self.cpu_us_per_frame)?;
        if let Some(allocations) = self.allocations_per_frame {
            writeln!(f, "allocations per frame   {allocations:>14.3}")?;
        }
        write!(f, "load average before     {:>14.2}", self.load_average_before)
    }
}
