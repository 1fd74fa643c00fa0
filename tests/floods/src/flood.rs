//! Running calls while a flood of forged datagrams comes, and while none does, by turns.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::caller::Caller;
use crate::edge::{Edge, Reader, sum};
use crate::flooder::{self, Forgery, Tally};
use crate::say;
use crate::window::{Callers, Window, leave_the_edges_core, moved};

/// Calls that run beside a flood.
const CALLERS: usize = 50;

/// Forged datagrams per second.
const FLOOD: u32 = 50_000;

/// Pairs of a quiet and a flooded stretch.
const PAIRS: u32 = 5;

pub(crate) async fn run(seconds: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "info")?;
    leave_the_edges_core();
    let stretch = seconds.div_ceil(PAIRS);
    let time = Duration::from_secs(stretch.into());
    let ended = Caller::connect(&edge.http, Default::default()).await?;
    let ended_check = ended.first_check.clone();
    ended.hang_up().await?;
    let mut callers = Callers::connect(&edge, CALLERS).await?;
    let live_check = callers.first_check().context("no caller")?.to_vec();
    callers.talk(Duration::from_secs(2)).await?;

    let before = edge.metrics()?;
    let mut tally = Tally::default();
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let quiet = callers.talk(time).await?;
        let flooder = spawn(&edge, stretch, &live_check, &ended_check)?;
        callers.heard.borrow_mut().forge = true;
        let flooded = callers.talk(time).await?;
        callers.heard.borrow_mut().forge = false;
        let output = tokio::task::spawn_blocking(move || flooder.wait_with_output()).await??;
        tally.add(read_tally(&String::from_utf8_lossy(&output.stdout))?);
        pairs.push((quiet, flooded));
    }
    Window::joined(pairs.iter().map(|pair| &pair.0)).say("quiet");
    let flooded = Window::joined(pairs.iter().map(|pair| &pair.1));
    flooded.say("flooded");
    let after = edge.metrics()?;
    for (name, value) in &after {
        let more = value - before.get(name).copied().unwrap_or(0.0);
        if name.starts_with("fronthaul_edge_discards_total") && more > 0.0 {
            say(format_args!("{more:>10} {name}"));
        }
    }
    let [discarded, earlier] = [&after, &before].map(|metrics| sum(metrics, "fronthaul_edge_discards_total"));
    let discarded = discarded - earlier;
    let rate = tally.sent / u64::from((stretch * PAIRS).max(1));
    say(format_args!("{} forged datagrams, {rate} per second, {} answered", tally.sent, tally.answered));
    callers.talk(Duration::from_millis(500)).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], edge.media));
    let replayed = tokio::task::spawn_blocking(move || flooder::replay(address, &live_check, 200)).await??;
    say(format_args!(
        "{} true checks of a running call replayed from elsewhere: {} bytes in, {} bytes out",
        replayed.sent, replayed.sent_bytes, replayed.answered_bytes
    ));
    let after_replay = callers.talk(Duration::from_secs(1)).await?;

    let moved = moved(pairs.iter().map(|(quiet, flooded)| (quiet, flooded)));
    say(format_args!("the median is {moved:.2} ms"));
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

/// Starts the process that floods: ahead of what else runs on the machine, behind what is measured.
fn spawn(edge: &Edge, seconds: u32, live_check: &[u8], ended_check: &[u8]) -> anyhow::Result<Child> {
    Command::new("nice")
        .args(["-n", "-15", "chrt", "-o", "0"])
        .arg(std::env::current_exe()?)
        .args(["flooder", &edge.media.to_string(), &seconds.to_string(), &hex(live_check), &hex(ended_check)])
        .stdout(Stdio::piped())
        .spawn()
        .context("nice")
}

/// `flooder PORT SECONDS LIVE ENDED`: the process that floods.
pub(crate) fn serve(arguments: &[&str]) -> anyhow::Result<()> {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2).context("an odd number of digits"));
    digits.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}
