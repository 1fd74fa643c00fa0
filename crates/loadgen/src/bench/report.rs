//! What a bench prints: a table for people, one JSON object for programs.

use std::fmt;
use std::fs;

use serde::Serialize;

use super::figures::{Percentiles, Traffic};
use super::process::Placement;

/// What a run ran on.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Of this program.
    pub version: &'static str,
    /// Kernel release.
    pub kernel: String,
    /// Processor's name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Load average over a minute when the run began: other work.
    pub load_average_before: f64,
    /// Which core did what.
    pub placement: Placement,
    /// Whose DTLS the callers spoke.
    pub caller_dtls: String,
}

impl Machine {
    pub(crate) fn here(placement: &Placement) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: cpu.map(|(_, name)| name.to_owned()).unwrap_or_default(),
            cores: net::pin::cores().len(),
            load_average_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|l| l.parse().ok())
                .unwrap_or_default(),
            placement: placement.clone(),
            caller_dtls: crate::caller::dtls_provider(),
        }
    }
}

/// A UDP echo without WebRTC, at the same rate in the same run.
#[derive(Debug, Clone, Serialize)]
pub struct Control {
    /// CPU of the echo per echoed datagram.
    pub cpu_us_per_packet: f64,
    /// What its frames saw.
    pub traffic: Traffic,
}

/// What `bench edge`, `path` and `peer` found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which bench.
    pub bench: &'static str,
    /// Calls that ran.
    pub sessions: usize,
    /// Length of the measured window.
    pub seconds: f64,
    /// CPU of the edge, or of the peer's processes, per echoed frame: in, through and out.
    pub cpu_us_per_packet: f64,
    /// The plain control's.
    pub control_cpu_us_per_packet: f64,
    /// The first by the second.
    pub cpu_ratio: f64,
    /// The batched control's.
    pub batched_control_cpu_us_per_packet: f64,
    /// CPU of the edge, or of the peer's processes, in percent of one core.
    pub cpu_percent: f64,
    /// CPU of the transceivers per frame, in `bench path`.
    pub transceiver_cpu_us_per_packet: Option<f64>,
    /// Round trips of frames.
    pub rtt_us: Percentiles,
    /// Those of the plain control.
    pub control_rtt_us: Percentiles,
    /// Share of frames that did not come back.
    pub loss: f64,
    /// Share that came back more than 10 ms later than the quickest of its call.
    pub late: f64,
    /// Growth of resident memory from before the first call, per call.
    pub rss_kib_per_session: f64,
    /// Heap allocations of the edge's worker threads per echoed frame; none for a peer.
    pub allocations_per_packet: Option<f64>,
    /// Calls per second while they were set up before the window, from offer to the first frame back.
    pub setups_per_second: f64,
    /// Time from making the offer to the first frame back.
    pub setup_us: Percentiles,
    /// Whether 99 of 100 frames were less than 10 ms late and less than 0.1 % lost.
    pub frame_stable: bool,
    /// Whether the generator was too late itself for round trips to say more.
    pub generator_limited: bool,
    /// Everything about the frames.
    pub traffic: Traffic,
    /// What it ran on.
    pub machine: Machine,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.traffic;
        writeln!(f, "bench {}: {} calls x 50 frames/s for {:.1} s", self.bench, self.sessions, self.seconds)?;
        writeln!(f)?;
        row(
            f,
            "CPU per frame",
            format_args!("{:.2} us ({:.0} % of a core)", self.cpu_us_per_packet, self.cpu_percent),
        )?;
        row(f, "  plain UDP echo", format_args!("{:.2} us", self.control_cpu_us_per_packet))?;
        row(f, "  batched UDP echo", format_args!("{:.2} us", self.batched_control_cpu_us_per_packet))?;
        row(f, "  ratio to plain", format_args!("{:.2}", self.cpu_ratio))?;
        if let Some(cpu) = self.transceiver_cpu_us_per_packet {
            row(f, "  transceivers", format_args!("{cpu:.2} us"))?;
        }
        row(f, "round trip", percentiles(&self.rtt_us))?;
        row(f, "  plain UDP echo", percentiles(&self.control_rtt_us))?;
        row(f, "lateness", percentiles(&t.lateness_us))?;
        row(f, "lost, late", format_args!("{:.4} %, {:.4} %", 100.0 * self.loss, 100.0 * self.late))?;
        row(f, "frame-stable", if self.frame_stable { "yes" } else { "no" })?;
        row(f, "memory per call", format_args!("{:.1} KiB", self.rss_kib_per_session))?;
        if let Some(allocations) = self.allocations_per_packet {
            row(f, "allocations per frame", format_args!("{allocations:.4}"))?;
        }
        let setups = format_args!("{:.0}/s, {}", self.setups_per_second, percentiles(&self.setup_us)).to_string();
        row(f, "set-ups", setups)?;
        let limited = if self.generator_limited { " (round trips are the generator's)" } else { "" };
        row(f, "generator late", format_args!("{}{limited}", percentiles(&t.generator_lag_us)))?;
        if t.generator_unsent > 0 || t.lost_calls > 0 {
            row(f, "unsent, lost calls", format_args!("{}, {}", t.generator_unsent, t.lost_calls))?;
        }
        write!(f, "{}", self.machine)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement = &self.placement;
        let core = |core: Option<usize>| core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        writeln!(
            f,
            "\nfronthaul {}, kernel {}, {}, {} cores; server on {}, generator on {}{}; load before: {}",
            self.version,
            self.kernel,
            self.cpu,
            self.cores,
            core(placement.server_core),
            core(placement.generator_core),
            if placement.real_time { ", real-time class" } else { "" },
            self.load_average_before,
        )
    }
}

pub(crate) fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<24}{value}")
}

pub(crate) fn percentiles(p: &Percentiles) -> String {
    let time = |us: f64| if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1000.0) };
    let [p50, p95, p99, p999, max] = [p.p50, p.p95, p.p99, p.p999, p.max].map(time);
    format!("p50 {p50}, p95 {p95}, p99 {p99}, p99.9 {p999}, max {max}")
}
