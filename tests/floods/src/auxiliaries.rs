//! Nobody reads what an edge logs and measures: its calls beside those of a second edge on the same core, whose readers go on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::task::JoinSet;

use crate::caller::call_and_hang_up;
use crate::edge::{Edge, Reader, sum};
use crate::say;
use crate::window::{Callers, Window, leave_the_edges_core, moved};

/// Calls at each edge.
const CALLERS: usize = 25;

/// Stretches before the stop, and as many after it.
const STRETCHES: u32 = 8;

pub(crate) async fn run(seconds: u32) -> anyhow::Result<()> {
    let mut control = Observed::start().await?;
    let mut watched = Observed::start().await?;
    leave_the_edges_core();
    // Lines are written as long as all stretches last.
    let mut lines = JoinSet::new();
    for url in [&control.edge.http, &watched.edge.http] {
        for _ in 0..3 {
            lines.spawn_local(call_and_hang_up(url.clone()));
        }
    }
    let stretch = Duration::from_secs(seconds.into()) / STRETCHES;
    side_by_side(&mut control, &mut watched, Duration::from_secs(2)).await?;
    let mut before = Vec::new();
    for _ in 0..STRETCHES {
        before.push(side_by_side(&mut control, &mut watched, stretch).await?);
    }
    watched.signal("-STOP")?;
    let mut after = Vec::new();
    for _ in 0..STRETCHES {
        after.push(side_by_side(&mut control, &mut watched, stretch).await?);
    }
    lines.shutdown().await;
    let dropped = sum(&watched.edge.metrics()?, "fronthaul_log_lines_dropped_total");
    watched.signal("-CONT")?;

    Window::joined(before.iter().map(|pair| &pair.0)).say("control, before");
    Window::joined(before.iter().map(|pair| &pair.1)).say("all read, before");
    let beside = Window::joined(after.iter().map(|pair| &pair.0));
    beside.say("control, beside");
    let stopped = Window::joined(after.iter().map(|pair| &pair.1));
    stopped.say("nobody reads");
    let [own, moved] = [&before, &after].map(|pairs| moved(pairs.iter().map(|(control, watched)| (control, watched))));
    say(format_args!("the median is {moved:.2} ms, {own:.2} before; {dropped} log lines dropped and counted"));
    if dropped < 1.0 {
        bail!("no log line was dropped: the reader was never missed");
    }
    if moved - own >= 1.0 || stopped.lost() > beside.lost() {
        bail!("media felt that nobody reads");
    }
    Ok(())
}

/// Both talk in the same time.
async fn side_by_side(
    control: &mut Observed,
    watched: &mut Observed,
    time: Duration,
) -> anyhow::Result<(Window, Window)> {
    tokio::try_join!(control.callers.talk(time), watched.callers.talk(time))
}

/// An edge with calls, whose log and metrics are read by processes of their own.
struct Observed {
    edge: Edge,
    callers: Callers,
    /// `cat` stands for whatever collects logs.
    reader: Child,
    scraper: Child,
}

impl Observed {
    async fn start() -> anyhow::Result<Self> {
        let mut reader = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let pipe = reader.stdin.take().context("a pipe")?;
        let edge = Edge::start(Reader::Process(pipe.into()), "trace")?;
        let scraper = Command::new(std::env::current_exe()?).args(["scraper", &edge.admin()?.to_string()]).spawn()?;
        let callers = Callers::connect(&edge, CALLERS).await?;
        Ok(Self { edge, callers, reader, scraper })
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        for child in [&self.reader, &self.scraper] {
            let status = Command::new("kill").args([name, &child.id().to_string()]).status()?;
            if !status.success() {
                bail!("kill {name}: {status}");
            }
        }
        Ok(())
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        for child in [&mut self.reader, &mut self.scraper] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `scraper HOST:PORT`: reads metrics each second, on several connections at once; so it is stopped in mid-answer.
pub(crate) fn scrape(admin: &str) -> anyhow::Result<()> {
    loop {
        let mut connections = Vec::new();
        for _ in 0..5 {
            let mut connection = TcpStream::connect(admin)?;
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
