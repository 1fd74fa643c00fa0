//! What calls take and leave behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;
use loadgen::process::rss_kib;
use tokio::task::JoinSet;

use crate::caller::{Caller, Heard};
use crate::edge::{Edge, Reader, sum};
use crate::say;
use crate::window::Callers;

/// Calls under way at once in `cycles`.
const AT_ONCE: u32 = 48;

pub(crate) async fn cycles(count: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "warn")?;
    let heard = Rc::default();
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

async fn one_after_the_other(edge: &Edge, heard: &Rc<RefCell<Heard>>, count: u32) -> anyhow::Result<()> {
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

pub(crate) async fn at_once(count: u32) -> anyhow::Result<()> {
    let edge = Edge::start(Reader::Thread, "warn")?;
    let heard = Rc::default();
    // What is there once, and the pools of the first calls.
    one_after_the_other(&edge, &heard, 100).await?;
    let before = rss_kib(&[edge.pid()])?;
    let mut callers = Callers::connect(&edge, usize::try_from(count)?).await?;
    callers.talk(Duration::from_secs(5)).await?;
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
