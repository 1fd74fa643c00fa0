//! `bench setup`: as many set-ups as the edge completes, and what a steady storm of them does to running calls.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::driver::{Driver, Storm, Window};
use super::figures::{Percentiles, Traffic};
use super::process::{Placement, Scratch};
use super::report::{Machine, percentiles, row};
use super::run::{Options, done, say, setup_times};
use super::servers::{Edge, Wanted};
use crate::process::cpu_seconds;

/// Set-ups under way at once when the question is how many per second.
const AT_ONCE: usize = 32;

/// What `bench setup` found.
#[derive(Debug, Clone, Serialize)]
pub struct SetupReport {
    /// `setup`.
    pub bench: &'static str,
    /// Calls that ran all the time.
    pub sessions: usize,
    /// Set-ups completed per second, one after the other: offer, answer, ICE, DTLS, first frame back, hang up.
    pub setups_per_second: f64,
    /// CPU of the edge per set-up, running calls taken out.
    pub cpu_us_per_setup: f64,
    /// What one core of the edge could do if it did nothing else: the generator may be what limits the rate above.
    pub setups_per_core_second: f64,
    /// From making the offer to the first frame back, under that load.
    pub setup_us: Percentiles,
    /// Set-ups that failed, in both windows.
    pub failures: u64,
    /// Set-ups that were begun and neither completed nor failed 0.7 s after their window, in both.
    pub unfinished: usize,
    /// The first failure's reason.
    pub failure: Option<String>,
    /// The steady storm.
    pub storm_per_second: f64,
    /// Set-ups that were completed per second of it.
    pub storm_completed_per_second: f64,
    /// Set-up times in the steady storm.
    pub storm_setup_us: Percentiles,
    /// Running calls before the storm.
    pub quiet: Traffic,
    /// Running calls in the storm.
    pub stormy: Traffic,
    /// By how much the storm moved the p99 round trip of running calls.
    pub p99_moved_us: f64,
    /// What it ran on.
    pub machine: Machine,
}

/// Runs `options.sessions` calls, then set-ups beside them: first as fast as they go, then `per_second` of them.
///
/// # Errors
/// The edge did not start, or a running call could not be set up.
pub async fn setup(options: &Options, per_second: f64) -> anyhow::Result<SetupReport> {
    let placement = Placement::of_this_machine(options.real_time);
    let machine = Machine::here(&placement);
    let scratch = Scratch::new()?;
    let (seats, set) = (options.sessions + 4096, &options.edge_set);
    let wanted = Wanted { core: placement.server_core, seats, model: "echo", transceivers: &[], set };
    let edge = Edge::start(&placement, &scratch, &wanted)?;
    placement.become_generator();
    let mut driver = Driver::new(options.network)?;
    driver.dial_to(&edge.url());
    let sessions = options.sessions;
    driver.connect(sessions, options.at_once, &mut |up| say(format_args!("{up} of {sessions} calls are up"))).await?;
    driver.settle(Duration::from_secs(1)).await?;

    let (quiet, idle_cpu) = window(&mut driver, &edge, options.duration, None, "running calls").await?;
    let flood = Storm { per_second: 0.0, at_once: AT_ONCE };
    let (fast, fast_cpu) =
        window(&mut driver, &edge, options.duration, Some(flood), "set-ups one after the other").await?;
    driver.settle(Duration::from_secs(1)).await?;
    let failure = driver.failure().map(|error| format!("{error:#}"));
    let steady = Storm { per_second, at_once: 512 };
    let (storm, _) = window(&mut driver, &edge, options.duration, Some(steady), "steady storm").await?;
    let failure = failure.or_else(|| driver.failure().map(|error| format!("{error:#}")));
    driver.hang_up().await?;
    done();

    let per_second_of = |window: &Window| window.setups.len() as f64 / window.seconds;
    let spent = fast_cpu - idle_cpu * fast.seconds / quiet.seconds;
    let cpu_us_per_setup = spent * 1e6 / fast.setups.len().max(1) as f64;
    let running = |window: &Window| {
        let flows = window.flows.iter().filter(|(index, _)| *index < sessions).cloned().collect();
        let Window { lags, unsent, lost_calls, .. } = window;
        Traffic::of(&Window {
            flows,
            lags: lags.clone(),
            unsent: *unsent,
            lost_calls: *lost_calls,
            ..Window::default()
        })
    };
    let (quiet_traffic, stormy) = (running(&quiet), running(&storm));
    Ok(SetupReport {
        bench: "setup",
        sessions,
        setups_per_second: per_second_of(&fast),
        cpu_us_per_setup,
        setups_per_core_second: 1e6 / cpu_us_per_setup,
        setup_us: setup_times(&fast.setups),
        failures: fast.setup_failures + storm.setup_failures,
        unfinished: fast.setups_unfinished + storm.setups_unfinished,
        failure,
        storm_per_second: per_second,
        storm_completed_per_second: per_second_of(&storm),
        storm_setup_us: setup_times(&storm.setups),
        p99_moved_us: stormy.rtt_us.p99 - quiet_traffic.rtt_us.p99,
        quiet: quiet_traffic,
        stormy,
        machine,
    })
}

async fn window(
    driver: &mut Driver,
    edge: &Edge,
    duration: Duration,
    storm: Option<Storm>,
    what: &str,
) -> anyhow::Result<(Window, f64)> {
    let mut cpu = Vec::new();
    let mut at_ends = || {
        cpu.push(cpu_seconds(&[edge.pid()])?);
        Ok(())
    };
    let mut progress =
        |elapsed: Duration| say(format_args!("{what}: {} of {} s", elapsed.as_secs(), duration.as_secs()));
    let window = driver.measure(duration, storm, &mut at_ends, &mut progress).await?;
    Ok((window, cpu.last().unwrap_or(&0.0) - cpu.first().unwrap_or(&0.0)))
}

impl fmt::Display for SetupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bench setup: beside {} running calls\n", self.sessions)?;
        row(f, "set-ups", format_args!("{:.0}/s, one after the other", self.setups_per_second))?;
        row(
            f,
            "  CPU of the edge",
            format_args!("{:.0} us each: {:.0}/s per core", self.cpu_us_per_setup, self.setups_per_core_second),
        )?;
        row(f, "  offer to first frame", percentiles(&self.setup_us))?;
        row(
            f,
            "storm",
            format_args!("{:.0}/s asked, {:.0}/s done", self.storm_per_second, self.storm_completed_per_second),
        )?;
        row(f, "  offer to first frame", percentiles(&self.storm_setup_us))?;
        row(f, "running calls before", percentiles(&self.quiet.rtt_us))?;
        row(f, "running calls in it", percentiles(&self.stormy.rtt_us))?;
        row(f, "  p99 moved by", format_args!("{:.2} ms", self.p99_moved_us / 1000.0))?;
        row(f, "  lost", format_args!("{:.4} %", 100.0 * self.stormy.loss))?;
        row(f, "generator late", percentiles(&self.stormy.generator_lag_us))?;
        row(f, "failed, unfinished", format_args!("{}, {}", self.failures, self.unfinished))?;
        row(f, "running calls lost", self.stormy.lost_calls)?;
        if let Some(failure) = &self.failure {
            row(f, "  the first", failure)?;
        }
        write!(f, "{}", self.machine)
    }
}
