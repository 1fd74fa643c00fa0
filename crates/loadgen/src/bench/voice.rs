//! `bench voice`: calls through an edge to a transceiver that does all of its work for them, and what their callers hear.
//!
//! ```text
//! core 1   transceiver   decodes, detects speech, encodes at 24 kHz
//! core 2   edge, generator
//! ```
//!
//! Nothing comes back here, so lateness is against the RTP clock of what is heard: the edge's.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::control::EchoKind;
use super::driver::{Driver, Window};
use super::figures::{Percentiles, share};
use super::hearing::Heard;
use super::process::{Placement, Scratch};
use super::recordings::{Recordings, Talk};
use super::report::{Machine, percentiles, row};
use super::run::{Options, control, done, figures, measure, say, setup_times};
use super::servers::{Edge, Transceiver, Wanted};
use super::sweep::{Point, Sweep, search};
use crate::process::{cpu_seconds, metrics, rss_kib, sum};

/// The rate of most backends; the detector's own would spare the resampling.
const BACKEND_RATE: &str = "voice.backend_rate_hz=24000";

/// A frame that is this much later than its call's quickest counts as late.
const LATE_NANOS: u32 = 10_000_000;

/// Counts of the transceiver's worker are published each second.
const PUBLISHED: Duration = Duration::from_millis(1500);

/// A generator that is later than this at the 99th percentile measures itself.
const GENERATOR_LAG_US: f64 = 5_000.0;

/// What callers heard.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Hearings {
    /// Callers that listened.
    pub calls: usize,
    /// Frames that callers sent.
    pub sent: u64,
    /// Frames that came.
    pub received: u64,
    /// Share of the frames sent to callers that did not come.
    pub loss: f64,
    /// Share of the time for which there should have been sound and was none: at full duty the 20 ms slots without a frame, in
    /// turns the times an utterance ran empty and the slots skipped at the edge.
    pub starved: f64,
    /// Share of callers' frames that the transceiver dropped.
    pub uplink_loss: f64,
    /// Share that came more than 10 ms later than the quickest of its call, by the RTP clock.
    pub late: f64,
    /// By how much frames exceed the quickest of their call.
    pub lateness_us: Percentiles,
    /// By how much the time between two frames differs from that of their timestamps.
    pub spacing_us: Percentiles,
    /// By how much the edge's RTP clock fell behind from the window's first tenth to its last: the median over the calls, and
    /// the largest.
    pub drift_us: [f64; 2],
    /// In turns: from the last frame of a caller's turn to the first sound of the reply. 500 ms of it are the silence that ends a
    /// turn.
    pub reply_us: Option<Percentiles>,
    /// Turns that callers ended, and replies that they heard.
    pub turns: [u64; 2],
    /// By how much the generator sent frames after they were due.
    pub generator_lag_us: Percentiles,
    /// Calls that ended in the window without being asked to.
    pub lost_calls: u64,
}

/// What `bench voice` found.
#[derive(Debug, Clone, Serialize)]
pub struct VoiceReport {
    /// `voice`.
    pub bench: &'static str,
    /// Calls that ran.
    pub sessions: usize,
    /// Share of the time for which each side speaks.
    pub talk: f64,
    /// Length of the measured window.
    pub seconds: f64,
    /// CPU of the transceiver per 20 ms of a call.
    pub cpu_us_per_packet: f64,
    /// The plain UDP echo's per echoed datagram at the same rate.
    pub control_cpu_us_per_packet: f64,
    /// The first by the second.
    pub cpu_ratio: f64,
    /// CPU of the transceiver, in percent of one core.
    pub cpu_percent: f64,
    /// Of that, per call.
    pub cpu_percent_per_session: f64,
    /// CPU of the edge, in percent of one core.
    pub edge_cpu_percent: f64,
    /// Always none: nothing comes back.
    pub rtt_us: Option<Percentiles>,
    /// Round trips of the control.
    pub control_rtt_us: Percentiles,
    /// Share of the frames sent to callers that did not come.
    pub loss: f64,
    /// Share that came more than 10 ms later than the quickest of its call.
    pub late: f64,
    /// Growth of the transceiver's resident memory from before the first call, per call.
    pub rss_kib_per_session: f64,
    /// The edge's.
    pub edge_rss_kib_per_session: f64,
    /// Heap allocations of the edge's worker threads per frame that callers heard.
    pub allocations_per_packet: Option<f64>,
    /// Calls per second while they were set up before the window.
    pub setups_per_second: f64,
    /// Time from making the offer to the first frame.
    pub setup_us: Percentiles,
    /// 99 of 100 frames less than 10 ms late, and less than 0.1 % lost, starved, or dropped on the way up.
    pub frame_stable: bool,
    /// Whether the generator was too late itself to say more.
    pub generator_limited: bool,
    /// Everything about the frames.
    pub traffic: Hearings,
    /// What it ran on.
    pub machine: Machine,
}

/// Runs `options.sessions` calls.
///
/// # Errors
/// A server did not start, or a call could not be set up.
pub async fn voice(options: &Options, talk: Talk) -> anyhow::Result<VoiceReport> {
    let placement = Placement::of_this_machine(options.real_time);
    let machine = Machine::here(&placement);
    let sessions = options.sessions;
    let plain = figures(&control(&placement, options, EchoKind::Plain, options.duration / 2).await?);
    let rig = Rig::start(&placement, options, talk, sessions)?;
    placement.become_generator();
    let mut driver = rig.driver(options, talk)?;
    let resident = || anyhow::Ok((rss_kib(&[rig.transceiver.server.pid()])?, rss_kib(&[rig.edge.pid()])?));
    let before = resident()?;
    let began = Instant::now();
    let setups = driver
        .connect(sessions, options.at_once, &mut |up| say(format_args!("{up} of {sessions} calls are up")))
        .await?;
    let setups_per_second = setups.len() as f64 / began.elapsed().as_secs_f64();
    driver.settle(PUBLISHED).await?;
    let look = rig.look(&mut driver, options.duration, "voice").await?;
    let after = resident()?;
    driver.hang_up().await?;
    done();

    let per_call = |after: u64, before: u64| after.saturating_sub(before) as f64 / sessions.max(1) as f64;
    let frames = (look.seconds * 50.0 * sessions as f64).max(1.0);
    let cpu_us_per_packet = look.transceiver_cpu * 1e6 / frames;
    Ok(VoiceReport {
        bench: "voice",
        sessions,
        talk: match talk {
            Talk::Always => 1.0,
            Talk::Turns(share) => share,
        },
        seconds: look.seconds,
        cpu_us_per_packet,
        control_cpu_us_per_packet: plain.cpu_us_per_packet,
        cpu_ratio: cpu_us_per_packet / plain.cpu_us_per_packet,
        cpu_percent: look.cpu_percent(),
        cpu_percent_per_session: look.cpu_percent() / sessions.max(1) as f64,
        edge_cpu_percent: 100.0 * look.edge_cpu / look.seconds,
        rtt_us: None,
        control_rtt_us: plain.traffic.rtt_us,
        loss: look.heard.loss,
        late: look.heard.late,
        rss_kib_per_session: per_call(after.0, before.0),
        edge_rss_kib_per_session: per_call(after.1, before.1),
        allocations_per_packet: look.allocations.map(|count| count / look.heard.received.max(1) as f64),
        setups_per_second,
        setup_us: setup_times(&setups),
        frame_stable: look.heard.frame_stable(),
        generator_limited: look.heard.generator_limited(),
        traffic: look.heard,
        machine,
    })
}

/// More and more calls until frames are late or missing.
///
/// # Errors
/// Those of [`super::sweep()`].
pub async fn sweep_voice(options: &Options, talk: Talk, most: usize) -> anyhow::Result<Sweep> {
    let placement = Placement::of_this_machine(options.real_time);
    let machine = Machine::here(&placement);
    let rig = Rig::start(&placement, options, talk, most)?;
    placement.become_generator();
    let mut driver = rig.driver(options, talk)?;
    let climb = search(options, most, &mut driver, async |driver, calls| {
        driver.settle(PUBLISHED).await?;
        let look = rig.look(driver, options.duration, &format!("{calls} calls")).await?;
        Ok(Point {
            sessions: calls,
            cpu_percent: look.cpu_percent(),
            cpu_us_per_packet: look.transceiver_cpu * 1e6 / (look.seconds * 50.0 * calls as f64),
            rtt_us: None,
            lateness_us: look.heard.lateness_us,
            loss: look.heard.loss.max(look.heard.starved).max(look.heard.uplink_loss),
            frame_stable: look.heard.frame_stable(),
            generator_limited: look.heard.generator_limited(),
        })
    })
    .await?;
    Ok(Sweep::of("voice", climb, machine))
}

/// The servers of a run. The scratch directory outlives them.
struct Rig {
    edge: Edge,
    transceiver: Transceiver,
    talk: Talk,
    _scratch: Scratch,
}

/// One window.
struct Look {
    seconds: f64,
    transceiver_cpu: f64,
    edge_cpu: f64,
    allocations: Option<f64>,
    heard: Hearings,
}

/// What the servers count of things that went wrong.
struct Counted {
    /// Frames of users that the transceiver dropped.
    dropped: f64,
    /// Times an utterance ran empty at the edge, and slots that it skipped.
    starved: f64,
}

impl Rig {
    fn start(placement: &Placement, options: &Options, talk: Talk, seats: usize) -> anyhow::Result<Self> {
        let scratch = Scratch::new()?;
        let set: Vec<String> = [BACKEND_RATE.to_owned()].into_iter().chain(options.transceiver_set.clone()).collect();
        let started = Transceiver::start(placement, placement.server_core, &scratch, 1, seats, &set)?;
        let model = match talk {
            Talk::Always => "monologue",
            Talk::Turns(_) => "parrot",
        };
        let (core, set) = (placement.generator_core, &options.edge_set);
        let edge = Edge::start(placement, &scratch, &Wanted { core, seats, model, transceivers: &started, set })?;
        let Some(transceiver) = started.into_iter().next() else { anyhow::bail!("no transceiver was started") };
        Ok(Self { edge, transceiver, talk, _scratch: scratch })
    }

    fn driver(&self, options: &Options, talk: Talk) -> anyhow::Result<Driver> {
        let mut driver = Driver::new(options.network)?;
        driver.dial_to(&self.edge.url());
        driver.say(Recordings::new(talk)?);
        Ok(driver)
    }

    async fn look(&self, driver: &mut Driver, duration: Duration, what: &str) -> anyhow::Result<Look> {
        let counted = self.counted()?;
        let pids = (self.transceiver.server.pid(), self.edge.pid());
        let probe = || Ok((self.edge.allocations()?, cpu_seconds(&[pids.0])?, cpu_seconds(&[pids.1])?));
        let (window, [before, after]) = measure(driver, duration, what, probe).await?;
        driver.settle(PUBLISHED).await?;
        let now = self.counted()?;
        let went_wrong = Counted { dropped: now.dropped - counted.dropped, starved: now.starved - counted.starved };
        Ok(Look {
            seconds: window.seconds,
            transceiver_cpu: after.1 - before.1,
            edge_cpu: after.2 - before.2,
            allocations: after.0.zip(before.0).map(|(after, before)| after - before),
            heard: Hearings::of(&window, self.talk, &went_wrong),
        })
    }

    fn counted(&self) -> anyhow::Result<Counted> {
        let admin: SocketAddr = self.transceiver.server.port("admin")?;
        let dropped = sum(&metrics(admin)?, "fronthaul_transceiver_discards_total").unwrap_or_default();
        let starved = self.edge.metric("fronthaul_edge_underruns_total")?
            + self.edge.metric("fronthaul_edge_skipped_slots_total")?;
        Ok(Counted { dropped, starved })
    }
}

impl Look {
    fn cpu_percent(&self) -> f64 {
        100.0 * self.transceiver_cpu / self.seconds
    }
}

impl Hearings {
    fn of(window: &Window, talk: Talk, went_wrong: &Counted) -> Self {
        let all = &window.heard;
        let total = |count: fn(&Heard) -> u64| all.iter().map(count).sum::<u64>();
        let (received, lost, silent) = (total(|h| h.received), total(|h| h.lost), total(|h| h.silent));
        let sent: u64 = window.flows.iter().map(|(_, flow)| flow.sent).sum();
        let lateness: Vec<u32> = all.iter().flat_map(Heard::lateness).collect();
        let late = lateness.iter().filter(|nanos| **nanos > LATE_NANOS).count() as u64;
        let mut drifts: Vec<f64> = all.iter().filter_map(Heard::drift_us).map(f64::abs).collect();
        drifts.sort_by(f64::total_cmp);
        let drift = |at: usize| drifts.get(at).copied().unwrap_or_default();
        let replies: Vec<u32> = all.iter().flat_map(|h| h.replies.iter().copied()).collect();
        let turns = [total(|h| h.turns), replies.len() as u64];
        let of_frames = |count: f64, frames: u64| count / frames.max(1) as f64;
        Self {
            calls: all.len(),
            sent,
            received,
            loss: share(lost, received + lost),
            starved: match talk {
                Talk::Always => share(silent, received + lost + silent),
                Talk::Turns(_) => of_frames(went_wrong.starved, received),
            },
            uplink_loss: of_frames(went_wrong.dropped, sent),
            late: share(late, received),
            lateness_us: Percentiles::of(lateness),
            spacing_us: Percentiles::of(all.iter().flat_map(|h| h.spacing.iter().copied()).collect()),
            drift_us: [drift(drifts.len() / 2), drift(drifts.len().saturating_sub(1))],
            reply_us: (turns[0] > 0).then(|| Percentiles::of(replies)),
            turns,
            generator_lag_us: Percentiles::of(window.lags.clone()),
            lost_calls: window.lost_calls,
        }
    }

    /// Whether people would notice nothing.
    fn frame_stable(&self) -> bool {
        let few = |share: f64| share < 0.001;
        self.received > 0
            && self.lateness_us.p99 < 10_000.0
            && few(self.loss)
            && few(self.starved)
            && few(self.uplink_loss)
            && self.lost_calls == 0
    }

    fn generator_limited(&self) -> bool {
        self.generator_lag_us.p99 > GENERATOR_LAG_US
    }
}

impl fmt::Display for VoiceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.traffic;
        let duty = format!("each side speaks {:.0} % of the time", 100.0 * self.talk);
        writeln!(f, "bench voice: {} calls, {duty}, for {:.1} s\n", self.sessions, self.seconds)?;
        row(
            f,
            "CPU of the transceiver",
            format_args!(
                "{:.0} % of a core: {:.2} % per call, {:.0} us per 20 ms",
                self.cpu_percent, self.cpu_percent_per_session, self.cpu_us_per_packet
            ),
        )?;
        row(f, "  plain UDP echo", format_args!("{:.1} us", self.control_cpu_us_per_packet))?;
        row(f, "CPU of the edge", format_args!("{:.0} % of a core", self.edge_cpu_percent))?;
        row(f, "lateness by RTP time", percentiles(&t.lateness_us))?;
        row(f, "error between frames", percentiles(&t.spacing_us))?;
        row(f, "drift of the RTP clock", format_args!("{:.0} us, at most {:.0} us", t.drift_us[0], t.drift_us[1]))?;
        row(
            f,
            "lost, late, starved",
            format_args!("{:.4} %, {:.4} %, {:.4} %", 100.0 * t.loss, 100.0 * t.late, 100.0 * t.starved),
        )?;
        row(f, "dropped on the way up", format_args!("{:.4} %", 100.0 * t.uplink_loss))?;
        if let Some(reply) = &t.reply_us {
            row(f, "end of turn to reply", percentiles(reply))?;
            row(f, "turns, replies", format_args!("{}, {}", t.turns[0], t.turns[1]))?;
        }
        row(f, "frame-stable", if self.frame_stable { "yes" } else { "no" })?;
        row(
            f,
            "memory per call",
            format_args!(
                "{:.0} KiB at the transceiver, {:.1} KiB at the edge",
                self.rss_kib_per_session, self.edge_rss_kib_per_session
            ),
        )?;
        row(f, "set-ups", format_args!("{:.0}/s, {}", self.setups_per_second, percentiles(&self.setup_us)))?;
        let limited = if self.generator_limited { " (lateness is the generator's)" } else { "" };
        row(f, "generator late", format_args!("{}{limited}", percentiles(&t.generator_lag_us)))?;
        if t.lost_calls > 0 {
            row(f, "lost calls", t.lost_calls)?;
        }
        write!(f, "{}", self.machine)
    }
}
