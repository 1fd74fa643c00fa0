//! A real edge under pressure. Each scene prints what it measured and fails when a promise is broken.
//!
//! ```text
//! floods flood       [seconds]   50,000 forged datagrams/s beside running calls: none is answered, p99 moves < 5 ms
//! floods auxiliaries [seconds]   log reader and metrics scraper stopped (SIGSTOP): no frame is lost, media p99 moves by no
//!                                more than 1 ms beyond what it moves by between two windows in which both run, drops
//!                                counted
//! floods cycles      [count]     calls one after the other: RSS flat within 2 % (1 MiB below 10,000), nothing left
//! floods memory      [count]     calls at once: RSS per session
//! ```
//!
//! Needs Linux, `chrt` and `kill` (util-linux, procps). The edge has one core, everything else the others; where the user may,
//! both run in real time, as on a busy machine tails are otherwise those of its scheduler.

mod caller;
mod edge;
mod flooder;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use loadgen::process::rss_kib;
use tokio::task::{JoinSet, LocalSet};

use caller::{Caller, Heard, call_and_hang_up};
use edge::{Edge, Reader, sum};
use flooder::{Forgery, Tally};

/// Calls that run beside a flood.
const CALLERS: usize = 50;

/// Forged datagrams per second.
const FLOOD: u32 = 50_000;

/// Calls under way at once in `cycles`.
const AT_ONCE: u32 = 48;

/// Set in the process that was started again in real time.
const AGAIN: &str = "FLOODS_REAL_TIME";

type Shared = Rc<RefCell<Heard>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["flooder", rest @ ..] => serve_flood(rest),
        ["scraper", admin] => scrape(admin),
        [scene @ ("flood" | "auxiliaries" | "cycles" | "memory"), rest @ ..] if rest.len() < 2 => {
            match rest.first().map(|number| number.parse()).transpose() {
                Ok(number) => in_real_time(scene, number),
                Err(error) => Err(anyhow::Error::from(error)),
            }
        }
        _ => Err(anyhow::anyhow!("floods flood|auxiliaries|cycles|memory [number]")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("FAILED: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    // Nobody can be told that standard output is gone.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Starts this again under `chrt` where that is allowed.
fn in_real_time(scene: &str, number: Option<u32>) -> anyhow::Result<()> {
    let allowed = || Command::new("chrt").args(["-r", "1", "true"]).status().is_ok_and(|status| status.success());
    // Many calls at once are no question of tails, and would starve a busy machine.
    let tails = matches!(scene, "flood" | "auxiliaries");
    if tails && std::env::var_os(AGAIN).is_none() && allowed() {
        let mut command = Command::new("chrt");
        command.args(["-r", "1"]).arg(std::env::current_exe()?).arg(scene).args(number.map(|n| n.to_string()));
        let status = command.env(AGAIN, "1").status()?;
        if !status.success() {
            bail!("see above");
        }
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match scene {
        "flood" => LocalSet::new().block_on(&runtime, flood(number.unwrap_or(30))),
        "auxiliaries" => LocalSet::new().block_on(&runtime, auxiliaries(number.unwrap_or(60))),
        "cycles" => LocalSet::new().block_on(&runtime, cycles(number.unwrap_or(100_000))),
        _ => LocalSet::new().block_on(&runtime, memory(number.unwrap_or(500))),
    }
}

/// The edge is pinned to the first core by itself; this moves over.
fn leave_the_edges_core() {
    if let Some(core) = net::pin::cores().get(1) {
        let _ = net::pin::current_thread_to(*core);
    }
}

async fn connect(edge: &Edge, heard: &Shared, count: usize) -> anyhow::Result<Vec<Caller>> {
    let mut callers = Vec::new();
    for _ in 0..count {
        callers.push(Caller::connect(&edge.http, Rc::clone(heard)).await?);
    }
    Ok(callers)
}

/// Everybody talks for `time`; the round trips of that time, and the callers back.
async fn talk(callers: Vec<Caller>, heard: &Shared, time: Duration) -> anyhow::Result<(Vec<Caller>, Window)> {
    {
        let mut heard = heard.borrow_mut();
        heard.round_trips.clear();
        heard.sent = 0;
    }
    let until = Instant::now() + time;
    let mut talking = JoinSet::new();
    for mut caller in callers {
        talking.spawn_local(async move {
            caller.talk(until).await?;
            caller.hear_out().await?;
            anyhow::Ok(caller)
        });
    }
    let mut callers = Vec::new();
    while let Some(done) = talking.join_next().await {
        callers.push(done??);
    }
    let mut heard = heard.borrow_mut();
    heard.round_trips.sort_unstable();
    let window = Window { sent: heard.sent, round_trips: std::mem::take(&mut heard.round_trips) };
    Ok((callers, window))
}

/// What was measured in one stretch of time.
struct Window {
    sent: u64,
    /// Microseconds, sorted.
    round_trips: Vec<u32>,
}

impl Window {
    fn percentile(&self, hundredths: usize) -> f64 {
        let at = self.round_trips.len() * hundredths / 10_000;
        self.round_trips.get(at.min(self.round_trips.len().saturating_sub(1))).copied().map_or(f64::INFINITY, f64::from)
    }

    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn lost_percent(&self) -> f64 {
        (1.0 - self.round_trips.len() as f64 / self.sent.max(1) as f64) * 100.0
    }

    fn say(&self, name: &str) {
        say(format_args!(
            "{name:<10} {:>8} frames, lost {:.3} %, round trip p50 {:.0} us, p95 {:.0}, p99 {:.0}, p99.9 {:.0}",
            self.sent,
            self.lost_percent().max(0.0),
            self.percentile(5000),
            self.percentile(9500),
            self.percentile(9900),
            self.percentile(9990),
        ));
    }
}

async fn flood(seconds: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "info")?;
    leave_the_edges_core();
    let time = Duration::from_secs(seconds.into());
    let heard = Shared::default();
    let ended = Caller::connect(&edge.http, Rc::clone(&heard)).await?;
    let ended_check = ended.first_check.clone();
    ended.hang_up().await?;
    let callers = connect(&edge, &heard, CALLERS).await?;
    let live_check = callers.first().context("no caller")?.first_check.clone();
    let (callers, _) = talk(callers, &heard, Duration::from_secs(2)).await?;
    let (callers, quiet) = talk(callers, &heard, time).await?;
    quiet.say("quiet");

    let before = edge.metrics()?;
    // Ahead of what else runs on the machine, behind what is measured.
    let flooder = Command::new("nice")
        .args(["-n", "-15", "chrt", "-o", "0"])
        .arg(std::env::current_exe()?)
        .args(["flooder", &edge.media.to_string(), &seconds.to_string(), &hex(&live_check), &hex(&ended_check)])
        .stdout(Stdio::piped())
        .spawn()
        .context("nice")?;
    heard.borrow_mut().forge = true;
    let (callers, flooded) = talk(callers, &heard, time).await?;
    heard.borrow_mut().forge = false;
    flooded.say("flooded");
    let output = tokio::task::spawn_blocking(move || flooder.wait_with_output()).await??;
    let tally = read_tally(&String::from_utf8_lossy(&output.stdout))?;
    let after = edge.metrics()?;
    for (name, value) in &after {
        let more = value - before.get(name).copied().unwrap_or(0.0);
        if name.starts_with("fronthaul_edge_discards_total") && more > 0.0 {
            say(format_args!("{more:>10} {name}"));
        }
    }
    let [discarded, earlier] = [&after, &before].map(|metrics| sum(metrics, "fronthaul_edge_discards_total"));
    let discarded = discarded - earlier;
    let rate = tally.sent / u64::from(seconds.max(1));
    say(format_args!("{} forged datagrams, {rate} per second, {} answered", tally.sent, tally.answered));
    let (callers, _) = talk(callers, &heard, Duration::from_millis(500)).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], edge.media));
    let replayed = tokio::task::spawn_blocking(move || flooder::replay(address, &live_check, 200)).await??;
    say(format_args!(
        "{} true checks of a running call replayed from elsewhere: {} bytes in, {} bytes out",
        replayed.sent, replayed.sent_bytes, replayed.answered_bytes
    ));
    let (_callers, after_replay) = talk(callers, &heard, Duration::from_secs(1)).await?;

    let moved = (flooded.percentile(9900) - quiet.percentile(9900)) / 1000.0;
    say(format_args!("p99 moved by {moved:.2} ms"));
    if tally.answered > 0 {
        bail!("{} forged datagrams were answered with {} bytes", tally.answered, tally.answered_bytes);
    }
    if rate < u64::from(FLOOD) * 9 / 10 {
        bail!("the flood had {rate} datagrams per second only");
    }
    #[expect(clippy::cast_precision_loss, reason = "a bound of a tenth")]
    let arrived = discarded / tally.sent as f64;
    say(format_args!("discards grew by {:.1} % of that", arrived * 100.0));
    if arrived < 0.9 {
        bail!("the flood did not reach the edge");
    }
    if replayed.answered_bytes > replayed.sent_bytes {
        bail!("replayed checks are amplified");
    }
    if moved >= 5.0 || flooded.lost_percent() > 0.5 || after_replay.lost_percent() > 2.0 {
        bail!("running calls felt the flood");
    }
    Ok(())
}

async fn auxiliaries(seconds: u32) -> anyhow::Result<()> {
    // `cat` stands for whatever collects logs.
    let mut reader = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let pipe = reader.stdin.take().context("a pipe")?;
    let edge = Edge::start(Reader::Process(pipe.into()), "trace")?;
    let mut scraper = Command::new(std::env::current_exe()?).args(["scraper", &edge.admin()?.to_string()]).spawn()?;
    leave_the_edges_core();
    let heard = Shared::default();
    let callers = connect(&edge, &heard, CALLERS).await?;
    // Lines are written as long as all windows last.
    let mut lines = JoinSet::new();
    for _ in 0..3 {
        lines.spawn_local(call_and_hang_up(edge.http.clone()));
    }
    let time = Duration::from_secs(seconds.into());
    let (callers, _) = talk(callers, &heard, Duration::from_secs(2)).await?;
    let (callers, control) = talk(callers, &heard, time).await?;
    control.say("control");
    let (callers, running) = talk(callers, &heard, time).await?;
    running.say("running");
    signal(&reader, "-STOP")?;
    signal(&scraper, "-STOP")?;
    let (_callers, stopped) = talk(callers, &heard, time).await?;
    stopped.say("stopped");
    lines.shutdown().await;
    let metrics = edge.metrics()?;
    let dropped = sum(&metrics, "fronthaul_log_lines_dropped_total");
    signal(&reader, "-CONT")?;
    for child in [&mut reader, &mut scraper] {
        let _ = child.kill();
        let _ = child.wait();
    }
    let moved = (stopped.percentile(9900) - running.percentile(9900)) / 1000.0;
    // What the machine does by itself.
    let noise = (running.percentile(9900) - control.percentile(9900)).abs() / 1000.0;
    say(format_args!("p99 moved by {moved:.2} ms, before by {noise:.2}; {dropped} log lines dropped and counted"));
    if dropped < 1.0 {
        bail!("no log line was dropped: the reader was never missed");
    }
    if moved >= 1.0 + noise || stopped.lost_percent() > 0.0 {
        bail!("media felt that nobody reads");
    }
    Ok(())
}

async fn cycles(count: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "warn")?;
    let heard = Shared::default();
    // Every table and pool finds its size in the first tenth, the allocator in the first hundreds of calls.
    let first = (count / 10).max(500).min(count);
    one_after_the_other(&edge, &heard, first).await?;
    let (base, base_rss) = (edge.metrics()?, rss_kib(&[edge.pid()])?);
    let began = Instant::now();
    let done = count - first;
    for _ in 0..9 {
        one_after_the_other(&edge, &heard, done / 9).await?;
        say(format_args!("{:>6.0} s  {} KiB resident", began.elapsed().as_secs_f64(), rss_kib(&[edge.pid()])?));
    }
    // Longer than an answered offer is remembered.
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (after, rss) = (edge.metrics()?, rss_kib(&[edge.pid()])?);
    for name in ["sessions", "pending_sessions", "paths", "seats_used", "session_streams", "utterance_streams"] {
        let left = sum(&after, &format!("fronthaul_edge_{name}"));
        if left != 0.0 {
            bail!("{left} {name} are left");
        }
    }
    let (fds, base_fds) = (sum(&after, "process_open_fds"), sum(&base, "process_open_fds"));
    if fds > base_fds {
        bail!("{base_fds} descriptors became {fds}");
    }
    let claimed = sum(&after, "fronthaul_edge_sessions_claimed_total");
    let (grown, base_kib) = (i64::try_from(rss)? - i64::try_from(base_rss)?, i64::try_from(base_rss)?);
    say(format_args!(
        "{claimed} calls; {base_rss} KiB resident after the first {first}, {rss} at the end; {fds} descriptors; {} datagrams of others",
        heard.borrow().foreign
    ));
    // In few calls the allocator's own steps are most of what is seen; a leak of half a KiB per call shows all the same.
    let most = if count < 10_000 { 1024 } else { base_kib / 50 };
    if grown > most {
        bail!("resident memory grew by {grown} KiB, more than {most}");
    }
    Ok(())
}

async fn one_after_the_other(edge: &Edge, heard: &Shared, count: u32) -> anyhow::Result<()> {
    let mut lines = JoinSet::new();
    for line in 0..AT_ONCE {
        let (url, heard) = (edge.http.clone(), Rc::clone(heard));
        let calls = count / AT_ONCE + u32::from(line < count % AT_ONCE);
        lines.spawn_local(async move {
            for _ in 0..calls {
                let mut caller = Caller::connect(&url, Rc::clone(&heard)).await?;
                caller.talk(Instant::now() + Duration::from_millis(30)).await?;
                caller.hang_up().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = lines.join_next().await {
        done??;
    }
    heard.borrow_mut().round_trips.clear();
    Ok(())
}

async fn memory(count: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "warn")?;
    let heard = Shared::default();
    // What is there once, and the pools of the first calls.
    one_after_the_other(&edge, &heard, 100).await?;
    let before = rss_kib(&[edge.pid()])?;
    let callers = connect(&edge, &heard, usize::try_from(count)?).await?;
    let (_callers, _) = talk(callers, &heard, Duration::from_secs(5)).await?;
    let after = rss_kib(&[edge.pid()])?;
    let each = after.saturating_sub(before) * 10 / u64::from(count.max(1));
    say(format_args!(
        "{count} sessions: {before} KiB before, {after} KiB with them: {}.{} KiB each",
        each / 10,
        each % 10
    ));
    if each > 400 {
        bail!("a session takes more than 40 KiB");
    }
    Ok(())
}

fn signal(child: &Child, name: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status()?;
    if status.success() { Ok(()) } else { bail!("kill {name}: {status}") }
}

/// `flooder PORT SECONDS LIVE ENDED`: the process that floods.
fn serve_flood(arguments: &[&str]) -> anyhow::Result<()> {
    let [port, seconds, live, ended] = arguments else { bail!("flooder PORT SECONDS LIVE ENDED") };
    let edge = SocketAddr::from(([127, 0, 0, 1], port.parse()?));
    let mut forgery = Forgery::new(&unhex(live)?, &unhex(ended)?);
    let tally = flooder::flood(edge, &mut forgery, FLOOD, Duration::from_secs(seconds.parse()?))?;
    say(format_args!("{} {} {} {}", tally.sent, tally.sent_bytes, tally.answered, tally.answered_bytes));
    Ok(())
}

fn read_tally(line: &str) -> anyhow::Result<Tally> {
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [sent, sent_bytes, answered, answered_bytes] = numbers[..] else { bail!("the flood ended early: {line}") };
    Ok(Tally { sent, sent_bytes, answered, answered_bytes })
}

/// `scraper HOST:PORT`: reads metrics each second, on several connections at once; so it is stopped in mid-answer.
fn scrape(admin: &str) -> anyhow::Result<()> {
    loop {
        let mut connections = Vec::new();
        for _ in 0..5 {
            let mut connection = std::net::TcpStream::connect(admin)?;
            connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: edge\r\n\r\n")?;
            connections.push(connection);
        }
        std::thread::sleep(Duration::from_secs(1));
        for mut connection in connections {
            let mut text = String::new();
            connection.read_to_string(&mut text)?;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2).context("an odd number of digits"));
    digits.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}
