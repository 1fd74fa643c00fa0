//! `bench edge`, `bench path`, `bench peer`: controls before and after, calls set up, one window measured.

use std::io::{IsTerminal as _, Write as _};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::control::EchoKind;
use super::driver::{Driver, SetUp, Window};
use super::figures::{Percentiles, Traffic};
use super::process::{Echo, Placement, Scratch};
use super::report::{Control, Machine, Report};
use super::servers::{Edge, Transceiver, Wanted};
use crate::process::{cpu_seconds, rss_kib};

/// Between the last set-up and the window: the DTLS of late callers, first reports.
const SETTLE: Duration = Duration::from_secs(1);

/// What all benches are told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Calls at once.
    pub sessions: usize,
    /// The measured window.
    pub duration: Duration,
    /// Set-ups at once.
    pub at_once: usize,
    /// Whether to use the real-time class when the user may.
    pub real_time: bool,
    /// The first address of the callers.
    pub network: Ipv4Addr,
    /// Further keys for the edge, `key=value`.
    pub edge_set: Vec<String>,
    /// Further keys for the transceivers.
    pub transceiver_set: Vec<String>,
    /// Transceivers in `bench path`.
    pub transceivers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sessions: 200,
            duration: Duration::from_secs(10),
            at_once: 16,
            real_time: true,
            network: Ipv4Addr::new(127, 1, 0, 0),
            edge_set: Vec::new(),
            transceiver_set: Vec::new(),
            transceivers: 1,
        }
    }
}

/// The edge answers its callers itself (model `echo`).
///
/// # Errors
/// A server did not start, or a call could not be set up.
pub async fn edge(options: &Options) -> anyhow::Result<Report> {
    let bench = Bench::new(options)?;
    let scratch = Scratch::new()?;
    let core = bench.placement.server_core;
    let (seats, set) = (options.sessions + 64, &options.edge_set);
    let wanted = Wanted { core, seats, model: "echo", transceivers: &[], set };
    let edge = Edge::start(&bench.placement, &scratch, &wanted)?;
    let subject =
        Subject { bench: "edge", url: edge.url(), pids: vec![edge.pid()], edge: Some(&edge), transceivers: &[] };
    bench.run(&subject).await
}

/// Callers through the edge, the link and transceivers whose backend returns each packet.
///
/// # Errors
/// Those of [`edge`].
pub async fn path(options: &Options) -> anyhow::Result<Report> {
    let bench = Bench::new(options)?;
    let scratch = Scratch::new()?;
    let seats = options.sessions;
    let (placement, count, set) = (&bench.placement, options.transceivers, &options.transceiver_set);
    let transceivers = Transceiver::start(placement, placement.generator_core, &scratch, count, seats, set)?;
    let (core, set) = (placement.server_core, &options.edge_set);
    let wanted = Wanted { core, seats, model: "loopback", transceivers: &transceivers, set };
    let edge = Edge::start(placement, &scratch, &wanted)?;
    let pids: Vec<u32> = transceivers.iter().map(|t| t.server.pid()).collect();
    let subject =
        Subject { bench: "path", url: edge.url(), pids: vec![edge.pid()], edge: Some(&edge), transceivers: &pids };
    bench.run(&subject).await
}

/// A server that somebody else started: offers are posted to `url`, CPU and memory read from `pids`.
///
/// # Errors
/// Those of [`edge`].
pub async fn peer(options: &Options, url: &str, pids: &[u32]) -> anyhow::Result<Report> {
    cpu_seconds(pids)?;
    let bench = Bench::new(options)?;
    let subject = Subject { bench: "peer", url: url.to_owned(), pids: pids.to_vec(), edge: None, transceivers: &[] };
    bench.run(&subject).await
}

/// Who is measured.
struct Subject<'a> {
    bench: &'static str,
    url: String,
    pids: Vec<u32>,
    edge: Option<&'a Edge>,
    transceivers: &'a [u32],
}

struct Bench<'a> {
    options: &'a Options,
    placement: Placement,
    machine: Machine,
}

/// A window of a control and the CPU that it used.
pub(crate) struct Measured {
    pub(crate) window: Window,
    pub(crate) cpu_seconds: f64,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> anyhow::Result<Self> {
        let placement = Placement::of_this_machine(options.real_time);
        let machine = Machine::here(&placement);
        Ok(Self { options, placement, machine })
    }

    async fn run(self, subject: &Subject<'_>) -> anyhow::Result<Report> {
        let Options { sessions, duration, .. } = *self.options;
        let part = duration / 2;
        let control_before = control(&self.placement, self.options, EchoKind::Plain, part).await?;

        let rss_before = rss_kib(&subject.pids)?;
        self.placement.become_generator();
        let mut driver = Driver::new(self.options.network)?;
        driver.dial_to(&subject.url);
        let began = Instant::now();
        let setups = driver
            .connect(sessions, self.options.at_once, &mut |up| say(format_args!("{up} of {sessions} calls are up")))
            .await?;
        let setups_per_second = setups.len() as f64 / began.elapsed().as_secs_f64();
        driver.settle(SETTLE).await?;
        let probe = || {
            let allocations = subject.edge.map_or(Ok(None), Edge::allocations)?;
            Ok((allocations, cpu_seconds(subject.transceivers)?, cpu_seconds(&subject.pids)?))
        };
        let (window, [before, after]) = measure(&mut driver, duration, subject.bench, probe).await?;
        let allocated = after.0.zip(before.0).map(|(after, before)| after - before);
        let (transceivers, cpu_seconds) = (after.1 - before.1, after.2 - before.2);
        let rss = rss_kib(&subject.pids)?.saturating_sub(rss_before);
        driver.hang_up().await?;
        drop(driver);

        let control_after = control(&self.placement, self.options, EchoKind::Plain, part).await?;
        let plain = join(control_before, control_after);
        let batched = figures(&control(&self.placement, self.options, EchoKind::Batched, part).await?);
        done();

        let traffic = Traffic::of(&window);
        let plain = figures(&plain);
        let per_frame = |amount: f64| amount / traffic.received.max(1) as f64;
        let cpu_us_per_packet = per_frame(cpu_seconds * 1e6);
        Ok(Report {
            bench: subject.bench,
            sessions,
            seconds: window.seconds,
            cpu_us_per_packet,
            control_cpu_us_per_packet: plain.cpu_us_per_packet,
            cpu_ratio: cpu_us_per_packet / plain.cpu_us_per_packet,
            batched_control_cpu_us_per_packet: batched.cpu_us_per_packet,
            cpu_percent: 100.0 * cpu_seconds / window.seconds,
            transceiver_cpu_us_per_packet: (!subject.transceivers.is_empty()).then(|| per_frame(transceivers * 1e6)),
            rtt_us: traffic.rtt_us,
            control_rtt_us: plain.traffic.rtt_us,
            loss: traffic.loss,
            late: traffic.late,
            rss_kib_per_session: rss as f64 / sessions.max(1) as f64,
            allocations_per_packet: allocated.map(per_frame),
            setups_per_second,
            setup_us: setup_times(&setups),
            frame_stable: traffic.frame_stable(),
            generator_limited: traffic.generator_limited(),
            traffic,
            machine: self.machine,
        })
    }
}

/// One window of a control.
pub(crate) async fn control(
    placement: &Placement,
    options: &Options,
    kind: EchoKind,
    duration: Duration,
) -> anyhow::Result<Measured> {
    let echo = Echo::start(placement, kind)?;
    placement.become_generator();
    let mut driver = Driver::new(options.network)?;
    driver.begin_plain(echo.address, options.sessions)?;
    driver.settle(Duration::from_millis(300)).await?;
    let (window, [before, after]) = measure(&mut driver, duration, kind.name(), || cpu_seconds(&[echo.pid()])).await?;
    Ok(Measured { window, cpu_seconds: after - before })
}

/// Measures one window; `probe` is read when it opens and when it closes.
pub(crate) async fn measure<T>(
    driver: &mut Driver,
    duration: Duration,
    what: &str,
    probe: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<(Window, [T; 2])> {
    let mut probes = Vec::with_capacity(2);
    let mut at_ends = || {
        probes.push(probe()?);
        Ok(())
    };
    let mut progress =
        |elapsed: Duration| say(format_args!("{what}: {} of {} s", elapsed.as_secs(), duration.as_secs()));
    let window = driver.measure(duration, None, &mut at_ends, &mut progress).await?;
    let probes = probes.try_into().map_err(|_| anyhow::anyhow!("a window has two ends"))?;
    Ok((window, probes))
}

fn join(mut one: Measured, other: Measured) -> Measured {
    one.window.flows.extend(other.window.flows);
    one.window.lags.extend(other.window.lags);
    one.window.seconds += other.window.seconds;
    one.cpu_seconds += other.cpu_seconds;
    one
}

pub(crate) fn figures(measured: &Measured) -> Control {
    let traffic = Traffic::of(&measured.window);
    Control { cpu_us_per_packet: measured.cpu_seconds * 1e6 / traffic.received.max(1) as f64, traffic }
}

pub(crate) fn setup_times(setups: &[SetUp]) -> Percentiles {
    Percentiles::of(setups.iter().map(|s| u32::try_from(s.to_first_frame.as_nanos()).unwrap_or(u32::MAX)).collect())
}

/// Progress, on one line of a terminal; lines elsewhere would only be noise.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{what}");
    }
}

/// Clears the line of [`say`].
pub(crate) fn done() {
    say(format_args!(""));
}
