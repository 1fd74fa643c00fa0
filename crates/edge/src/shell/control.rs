//! The control thread: HTTP signaling, admin, leases, metrics, and the orderly stop.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use daemon::{Condition, Lifecycle, Metrics, Phase};
use link::identity::NodeIdentity;
use link::ids::TransceiverId;
use link::quic::Endpoint;
use metrics::counter;
use tokio::time::sleep;

use super::doors::Doors;
use super::front::{self, Front};
use super::issuer::{self, Issuer};
use super::report::Board;
use super::tcp::Admission;
use super::{lease, tls};
use crate::config::Config;
use crate::directory::Command;
use crate::keys::Watch;
use crate::signaling::{self, Callers, ECHO, Shared};
use crate::worker::CloseCause;

/// Between two looks at what expires, counts and drains.
const TICK: Duration = Duration::from_millis(250);

/// Between two looks at the file of the keys: a rotated key signs 60 s later by default.
const KEYS_INTERVAL: Duration = Duration::from_secs(2);

/// Between two looks at the clients of peers. They are forgotten after 30 s.
const PEERS_INTERVAL: Duration = Duration::from_secs(1);

/// For a client's first check after its answer, told before 5 s are over.
const CHECK_PATIENCE: Duration = Duration::from_millis(4500);

/// Between two warnings of calls that no check reached.
const UNREACHED_INTERVAL: Duration = Duration::from_secs(60);

/// After the last call: time for its close to leave, for Release to be told, for the last datagrams.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What the control thread is given.
pub(super) struct Start {
    pub(super) config: Config,
    pub(super) http: TcpListener,
    pub(super) admin: TcpListener,
    pub(super) node: NodeIdentity,
    pub(super) shared: Arc<Shared>,
    pub(super) keys: Watch,
    pub(super) issuer: Option<Issuer>,
    pub(super) tls: Option<(Arc<tls::Certificates>, tls::Source)>,
    pub(super) doors: Arc<Doors>,
    pub(super) peer_sends_dropped: Arc<AtomicU64>,
    pub(super) board: Arc<Board>,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Metrics,
}

/// The thread's body. When it ends, the edge has stopped.
pub(super) fn run(start: Start) {
    let served = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        start.metrics.register_runtime(runtime.handle().clone());
        runtime.block_on(serve(start))
    });
    if let Err(error) = served {
        tracing::error!(%error, "control cannot go on; the edge stops");
    }
}

async fn serve(start: Start) -> std::io::Result<()> {
    let Start {
        config,
        http,
        admin,
        node,
        shared,
        keys,
        issuer,
        tls,
        doors,
        peer_sends_dropped,
        board,
        lifecycle,
        metrics,
    } = start;
    let endpoint = Endpoint::client_on(&node, config.link_bind).map_err(std::io::Error::other)?;
    let mut tasks = tokio::task::JoinSet::new();
    for transceiver in &config.transceivers {
        let id = TransceiverId(transceiver.id);
        let seats = Arc::clone(&shared.seats);
        let held = lease::keep(endpoint.clone(), config.edge(), id, transceiver.address, seats);
        tasks.spawn(async move {
            held.await;
            Ok(())
        });
    }
    http.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(http)?;
    let router = signaling::router(Arc::clone(&shared));
    let callers = Callers::new(Instant::now(), config.limits.calls_per_source, rand::random());
    let acceptor = tls.as_ref().map(|(certificates, _)| certificates.acceptor()).transpose();
    let acceptor = acceptor.map_err(std::io::Error::other)?;
    let webrtc = config.takes_tcp().then(|| Admission::new(Arc::clone(&shared)));
    let front = Front { router, callers, tls: acceptor, webrtc, doors: Arc::clone(&doors) };
    tasks.spawn(front::serve(listener, Arc::new(front)));
    match tls {
        Some((certificates, tls::Source::Files(files))) => drop(tasks.spawn(tls::watch(files, certificates))),
        Some((certificates, tls::Source::Authority(order, first))) => {
            tasks.spawn(tls::acme::keep(order, first, certificates));
        }
        None => {}
    }
    tasks.spawn(daemon::admin::serve(admin, metrics, lifecycle.clone()));
    tasks.spawn(lifecycle.clone().drain_on_signals());
    let needs_link = config.models.values().any(|model| model != ECHO);
    let condition = needs_link.then(|| lifecycle.condition("a transceiver with seats, linked to every worker"));
    tasks.spawn(tick(Arc::clone(&shared), Arc::clone(&board), doors, condition));
    tasks.spawn(tend_peers(Arc::clone(&shared), peer_sends_dropped));
    tasks.spawn(watch_keys(keys, Arc::clone(&shared)));
    if let Some(issuer) = issuer {
        tasks.spawn(issuer::watch(issuer, config.auth.jwks.clone(), Arc::clone(&shared)));
    }
    lifecycle.advance(Phase::Ready);

    let result = tokio::select! {
        () = lifecycle.reached(Phase::Draining) => {
            drain(&shared, &lifecycle, Duration::from_millis(config.drain_timeout_ms)).await;
            Ok(())
        }
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| Err(std::io::Error::other(error))),
    };
    tasks.shutdown().await;
    endpoint.close();
    let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    result
}

/// Gives up what was never claimed, publishes counts, says whether calls can be placed.
async fn tick(
    shared: Arc<Shared>,
    board: Arc<Board>,
    doors: Arc<Doors>,
    condition: Option<Condition>,
) -> std::io::Result<()> {
    let mut unreached = Unreached::default();
    loop {
        let now = Instant::now();
        unreached.look(&shared, now);
        shared.directory.expire(now);
        board.publish(&shared);
        doors.publish();
        if let Some(condition) = &condition {
            let leased = shared.seats.status().iter().any(|place| !place.models.is_empty() && place.granted > 0);
            match (leased, board.linked()) {
                (true, true) => condition.met(),
                (true, false) => condition.unmet("links are being dialed"),
                (false, _) => condition.unmet("no transceiver leases seats"),
            }
        }
        sleep(TICK).await;
    }
}

/// Calls whose client's checks reach nothing: most often an advertised address is wrong.
#[derive(Default)]
struct Unreached {
    calls: u64,
    told: Option<Instant>,
}

impl Unreached {
    /// Warns of the first such call, and of those after it once a minute.
    fn look(&mut self, shared: &Shared, now: Instant) {
        self.calls += shared.directory.unreached(awaited_until(now, shared.setup_timeout));
        if self.calls == 0 || self.told.is_some_and(|told| now < told + UNREACHED_INTERVAL) {
            return;
        }
        let addresses: Vec<String> = shared
            .candidates
            .iter()
            .map(|candidate| format!("{}/{:?}", candidate.address, candidate.transport).to_lowercase())
            .collect();
        tracing::warn!(
            calls = self.calls,
            advertised = %addresses.join(" "),
            "no check reached any advertised address within 5 s of the answer: the client is gone, or it cannot reach them; \
             compare `public` and `internal` with the addresses that clients reach, and what firewalls let through, or ask \
             `fronthaul doctor URL` from where clients are",
        );
        (self.calls, self.told) = (0, Some(now));
    }
}

/// Calls that expire until then were answered so long ago that a check should have come: a call expires one set-up timeout after
/// its answer.
fn awaited_until(now: Instant, setup_timeout: Duration) -> Instant {
    now + setup_timeout - CHECK_PATIENCE.min(setup_timeout / 2)
}

/// Takes up a key set that was rotated, and lets its keys sign when their time has come.
async fn watch_keys(mut watch: Watch, shared: Arc<Shared>) -> std::io::Result<()> {
    counter!("fronthaul_edge_keys_refused_total").absolute(0);
    loop {
        sleep(KEYS_INTERVAL).await;
        match watch.poll(net::clock::unix_seconds()) {
            Ok(None) => {}
            Ok(Some(keys)) => {
                tracing::info!(?keys, "the keys of the PoP have changed");
                // Workers first: no token leaves that one of them cannot open.
                shared.directory.command_all(&Command::Keys(keys.clone()));
                shared.keys.replace(keys);
            }
            Err(error) => {
                counter!("fronthaul_edge_keys_refused_total").increment(1);
                tracing::warn!(%error, "the keys of the PoP have changed, but not to the better; the former ones stay")
            }
        }
    }
}

/// Forgets clients of peers that no peer speaks of any more, and publishes what the peers' sockets dropped.
async fn tend_peers(shared: Arc<Shared>, sends_dropped: Arc<AtomicU64>) -> std::io::Result<()> {
    loop {
        shared.directory.pop.expire(Instant::now());
        super::report::publish_peers(&shared.directory.pop, sends_dropped.load(Ordering::Relaxed));
        sleep(PEERS_INTERVAL).await;
    }
}

/// The orderly stop: no further calls, time for running ones, then their end.
async fn drain(shared: &Shared, lifecycle: &Lifecycle, patience: Duration) {
    shared.draining.store(true, Ordering::Relaxed);
    if let Some(tickets) = shared.directory.tickets() {
        tickets.close();
    }
    let deadline = Instant::now() + patience;
    let running = || shared.directory.sessions() + shared.websockets.places.taken();
    tracing::info!(calls = running(), patience_ms = patience.as_millis(), "no further calls are taken");
    let over = || lifecycle.phase() >= Phase::Stopped;
    while running() > 0 && Instant::now() < deadline && !over() {
        sleep(TICK / 5).await;
    }
    if running() > 0 {
        tracing::info!(calls = running(), "closing what still runs");
        shared.directory.abandon_all();
        shared.directory.command_all(&Command::CloseAll { cause: CloseCause::Draining });
        shared.websockets.close_all();
    }
    sleep(LAST_WORDS).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_no_check_reached_is_told_within_five_seconds_or_half_of_its_set_up() {
        let answered = Instant::now();
        for (setup_timeout, patience) in [(30_000, 4500), (9000, 4500), (1000, 500)]
            .map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
        {
            let expires = answered + setup_timeout;
            let told_at = |at: Duration| expires <= awaited_until(answered + at, setup_timeout);
            assert!(!told_at(patience - Duration::from_millis(1)) && told_at(patience));
            assert!(patience + TICK <= Duration::from_secs(5));
        }
    }
}
