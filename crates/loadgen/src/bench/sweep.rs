//! `--sweep`: more and more calls until frames are late, and the curve.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::driver::Driver;
use super::figures::{Percentiles, Traffic};
use super::process::{Placement, Scratch};
use super::report::{Machine, row};
use super::run::{Options, done, measure, say};
use super::servers::{Edge, Transceiver, Wanted};
use crate::process::cpu_seconds;

/// How near the largest good number is approached: within a sixteenth.
const CLOSE: usize = 16;

/// One number of calls.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Calls at once.
    pub sessions: usize,
    /// CPU of the edge, in `bench voice` of the transceiver, in percent of a core.
    pub cpu_percent: f64,
    /// The same per echoed frame.
    pub cpu_us_per_packet: f64,
    /// Round trips; none in `bench voice`, where nothing comes back.
    pub rtt_us: Option<Percentiles>,
    /// Lateness against the quickest frame of the same call.
    pub lateness_us: Percentiles,
    /// Share of frames that did not come.
    pub loss: f64,
    /// Whether this many calls are served well.
    pub frame_stable: bool,
    /// Whether the generator was too late itself to say more.
    pub generator_limited: bool,
}

/// A curve.
#[derive(Debug, Clone, Serialize)]
pub struct Sweep {
    /// `edge`, `path` or `voice`.
    pub bench: &'static str,
    /// The largest number of calls that was frame-stable.
    pub sessions: usize,
    /// Whether the generator rather than the edge ended it.
    pub generator_limited: bool,
    /// Why it ended before it had found its number: that many calls could not be set up, or a server was gone.
    pub ended: Option<String>,
    /// In the order of calls.
    pub points: Vec<Point>,
    /// What it ran on.
    pub machine: Machine,
}

/// Doubles the calls from `options.sessions` up to `most` until they are not frame-stable, then looks between.
///
/// # Errors
/// A server did not start, or the first calls could not be set up. Later such a step ends the sweep with what it has.
pub async fn sweep(options: &Options, most: usize, through_link: bool) -> anyhow::Result<Sweep> {
    let placement = Placement::of_this_machine(options.real_time);
    let machine = Machine::here(&placement);
    let scratch = Scratch::new()?;
    let seats = most + 64;
    let transceivers = if through_link {
        let (core, count, set) = (placement.generator_core, options.transceivers, &options.transceiver_set);
        Transceiver::start(&placement, core, &scratch, count, most, set)?
    } else {
        Vec::new()
    };
    let (bench, model) = if through_link { ("path", "loopback") } else { ("edge", "echo") };
    let (core, set) = (placement.server_core, &options.edge_set);
    let wanted = Wanted { core, seats, model, transceivers: &transceivers, set };
    let edge = Edge::start(&placement, &scratch, &wanted)?;
    placement.become_generator();
    let mut driver = Driver::new(options.network)?;
    driver.dial_to(&edge.url());
    let climb = search(options, most, &mut driver, async |driver, calls| {
        let what = format!("{calls} calls");
        let (window, [before, after]) = measure(driver, options.duration, &what, || cpu_seconds(&[edge.pid()])).await?;
        let cpu_seconds = after - before;
        let traffic = Traffic::of(&window);
        Ok(Point {
            sessions: calls,
            cpu_percent: 100.0 * cpu_seconds / window.seconds,
            cpu_us_per_packet: cpu_seconds * 1e6 / traffic.received.max(1) as f64,
            rtt_us: Some(traffic.rtt_us),
            lateness_us: traffic.lateness_us,
            loss: traffic.loss,
            frame_stable: traffic.frame_stable(),
            generator_limited: traffic.generator_limited(),
        })
    })
    .await?;
    Ok(Sweep::of(bench, climb, machine))
}

/// The steps of a sweep.
pub(crate) struct Climb {
    points: Vec<Point>,
    /// Why there is no further one, though one was due.
    ended: Option<String>,
}

/// Doubles the calls from `options.sessions` up to `most` until they are not frame-stable, then looks between; ends all of them.
pub(crate) async fn search(
    options: &Options,
    most: usize,
    driver: &mut Driver,
    mut look: impl AsyncFnMut(&mut Driver, usize) -> anyhow::Result<Point>,
) -> anyhow::Result<Climb> {
    let mut climb = Climb { points: Vec::new(), ended: None };
    let (mut good, mut bad): (usize, Option<usize>) = (0, None);
    let mut next = options.sessions.min(most);
    while next > 0 {
        let point = match step(options, driver, next, &mut look).await {
            Ok(point) => point,
            Err(error) if climb.points.is_empty() => return Err(error),
            Err(error) => {
                climb.ended = Some(format!("{next} calls did not come about: {error:#}"));
                break;
            }
        };
        if point.frame_stable {
            good = good.max(next);
        } else {
            bad = Some(bad.unwrap_or(next).min(next));
        }
        climb.points.push(point);
        next = match bad {
            None if next == most => break,
            None => (2 * next).min(most),
            Some(bad) if bad <= good + good / CLOSE + 1 => break,
            Some(bad) => good.midpoint(bad),
        };
    }
    // The servers end with the sweep; what was measured stays.
    let _ = driver.hang_up().await;
    done();
    Ok(climb)
}

async fn step(
    options: &Options,
    driver: &mut Driver,
    calls: usize,
    look: &mut impl AsyncFnMut(&mut Driver, usize) -> anyhow::Result<Point>,
) -> anyhow::Result<Point> {
    driver.shrink(calls).await?;
    driver.connect(calls, options.at_once, &mut |up| say(format_args!("{up} of {calls} calls are up"))).await?;
    driver.settle(Duration::from_secs(1)).await?;
    look(driver, calls).await
}

impl Sweep {
    pub(crate) fn of(bench: &'static str, climb: Climb, machine: Machine) -> Self {
        let Climb { mut points, ended } = climb;
        points.sort_by_key(|point| point.sessions);
        let sessions = points.iter().filter(|point| point.frame_stable).map(|point| point.sessions).max().unwrap_or(0);
        let generator_limited = points.iter().any(|point| !point.frame_stable && point.generator_limited);
        Self { bench, sessions, generator_limited, ended, points, machine }
    }

    /// Whose CPU it is.
    pub(crate) fn subject(&self) -> &'static str {
        if self.bench == "voice" { "transceiver" } else { "edge" }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bench {} --sweep: {} calls are frame-stable\n", self.bench, self.sessions)?;
        writeln!(
            f,
            "{:>7} {:>7} {:>10} {:>10} {:>10} {:>10} {:>9}",
            "calls", "CPU", "us/frame", "p50", "p99", "late p99", "lost"
        )?;
        for p in &self.points {
            let rtt = p.rtt_us.unwrap_or_default();
            writeln!(
                f,
                "{:>7} {:>5.0} % {:>10.2} {:>7.0} us {:>7.0} us {:>7.0} us {:>7.3} %{}{}",
                p.sessions,
                p.cpu_percent,
                p.cpu_us_per_packet,
                rtt.p50,
                rtt.p99,
                p.lateness_us.p99,
                100.0 * p.loss,
                if p.frame_stable { "" } else { "  not stable" },
                if p.generator_limited { "  (generator late)" } else { "" },
            )?;
        }
        if let Some(reason) = &self.ended {
            row(f, "\nended early", reason)?;
        }
        if self.generator_limited {
            row(
                f,
                "\nlimited by",
                format_args!("the generator, which was late itself; the {} may carry more", self.subject()),
            )?;
        }
        write!(f, "{}", self.machine)
    }
}
