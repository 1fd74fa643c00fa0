//! The edge as a running thing: binds, starts its threads, and stops them in order.
//!
//! ```text
//! worker-0..n   one pinned thread each: current-thread runtime, socket, link endpoint, core
//! peers         one thread, where there are any: what other edges of the PoP send
//! websockets    one thread: clients without WebRTC, with links of its own
//! control       one thread: HTTP signaling, admin, leases, metrics, the stop
//! ```

mod control;
mod doors;
mod front;
mod http;
mod https;
mod issuer;
mod lease;
mod links;
mod peers;
mod report;
mod tcp;
mod tls;
mod websocket;
mod worker;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

use daemon::bind::Transport;
use daemon::config::Checked;
use daemon::{Announce, ConfigError, Lifecycle, Metrics, Phase, Problem, Problems, StartError};
use link::identity::{NodeIdentity, Role};
use link::ids::EdgeId;
use net::BoundSocket;
use rtc::Candidate;

use self::issuer::Issuer;
use crate::config::Config;
use crate::directory::{Directory, Pop};
use crate::keys::{Found, Keyring, Watch};
use crate::seats::Seats;
use crate::signaling::{Counts, IceServers, Shared};
use crate::tcp::Places;
use crate::tickets::Tickets;
use crate::waiting::Waiting;
use crate::websocket::WebSockets;
use crate::worker::WorkerConfig;

/// A running edge. Dropping it lets its threads run on; [`Edge::drain`] and [`Edge::wait`] end them.
#[derive(Debug)]
pub struct Edge {
    http: SocketAddr,
    admin: SocketAddr,
    media: SocketAddr,
    peer: Option<SocketAddr>,
    lifecycle: Lifecycle,
    threads: Vec<JoinHandle<()>>,
}

impl Edge {
    /// Binds all ports and starts all threads.
    ///
    /// # Errors
    /// What keeps it from starting; nothing runs then.
    pub fn start(config: Config, metrics: Metrics) -> Result<Self, StartError> {
        let mut problems = Problems::new();
        config.check(&mut problems);
        if !problems.is_empty() {
            return Err(ConfigError { file: None, problems: problems.into_vec() }.into());
        }
        let state_dir = config.state_dir()?;
        let node = NodeIdentity::load_or_create(&state_dir, Role::Edge(config.edge())).map_err(|error| {
            Problem::new("state_dir", format_args!("\"{}\"", state_dir.display()), error.reason(), error.fix())
        })?;
        let source = config.key_source()?;
        let (watch, keys, found) = Watch::start(source, net::clock::unix_seconds())
            .map_err(|error| Problem::new("keys", format_args!("\"{}\"", config.keys), error.reason(), error.fix()))?;
        if found == Found::Adopted {
            tracing::info!("route.key of a former version has become key 0 of pop.keys");
        }

        let workers = config.worker_count();
        let sockets = BoundSocket::group(config.media_bind, workers)
            .map_err(|error| daemon::bind::refused("media_bind", config.media_bind, Transport::Udp, &error))?;
        let media = sockets.first().map_or(config.media_bind, BoundSocket::local_addr);
        let http = Listener::bind("http_bind", config.http_bind)?;
        let admin = Listener::bind("admin_bind", config.admin_bind)?;
        let addresses = config
            .candidates(media.port())
            .map_err(|problems| StartError::from(ConfigError { file: None, problems }))?;
        let tcp_addresses = config.tcp_candidates(&addresses, http.address.port());
        tracing::info!(
            media = %media, workers, http = %http.address, admin = %admin.address,
            candidates = %named(&addresses), tcp_candidates = %named(&tcp_addresses),
            "edge {} advertises", config.id,
        );
        if let Some(insecure) = config.insecure() {
            tracing::warn!("{insecure}");
        }
        if let Some(openness) = config.openness() {
            tracing::warn!("{openness}");
        }
        let auth = config.judge().map_err(|problems| StartError::from(ConfigError { file: None, problems }))?;
        let issuer = Issuer::of(&config.auth).map_err(|error| {
            let fix = "name a PEM file of the roots by which the host of auth.jwks is known";
            Problem::new("auth.jwks_roots", format_args!("\"{}\"", config.auth.jwks_roots.display()), error, fix)
        })?;
        let tls = tls::open(&config.tls, &state_dir, &addresses)?;
        let ice_servers = IceServers::new(&config.ice_servers).map_err(|name| {
            let reason = format!("the environment has no variable {name}");
            Problem::new("ice_servers.secret", "\"...\"", reason, "set it, or write the text itself")
        })?;
        if let Some(buffers) = sockets.first().map(BoundSocket::buffers).filter(net::Buffers::short) {
            tracing::warn!(
                receive_bytes = buffers.receive_bytes,
                send_bytes = buffers.send_bytes,
                "the kernel gives small socket buffers; raise net.core.rmem_max and net.core.wmem_max to {}",
                net::Buffers::WANTED_BYTES,
            );
        }

        let peer_socket = (!config.peers.is_empty())
            .then(|| BoundSocket::bind(config.peer_bind, net::Reuse::Exclusive))
            .transpose()
            .map_err(|error| daemon::bind::refused("peer_bind", config.peer_bind, Transport::Udp, &error))?;
        let peer_ids: Vec<EdgeId> = config.peers.iter().map(|peer| EdgeId(peer.id)).collect();
        let directory = Directory::in_pop(workers, Pop::new(&peer_ids, net::clock::unix_micros()));
        let sends_dropped = Arc::new(AtomicU64::new(0));
        let seats = Seats::new(config.echo_seats);
        let run = rand::random();
        directory.honor(Tickets::new(config.ticket_terms(), Arc::clone(&seats), config.models.values(), run));
        let most = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            edge: config.edge(),
            candidates: addresses
                .into_iter()
                .map(Candidate::udp)
                .chain(tcp_addresses.into_iter().map(Candidate::tcp))
                .collect(),
            ice_servers,
            models: config.models.clone(),
            default_model: config.default_model.clone(),
            setup_timeout: Duration::from_millis(config.setup_timeout_ms),
            uplink: config.media.uplink(),
            keys: Keyring::new(keys.clone()),
            directory: Arc::clone(&directory),
            seats: Arc::clone(&seats),
            waiting: Waiting::new(config.limits.unclaimed_calls_per_source),
            websockets: WebSockets::new(most(config.limits.websockets), most(config.limits.websockets_per_source)),
            auth,
            draining: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let lifecycle = Lifecycle::new();
        let board = report::Board::new(workers);
        let limits = &config.limits;
        let places = Places::new(most(limits.tcp_connections), most(limits.tcp_connections_per_source));
        let doors = Arc::new(doors::Doors::new(places));
        let cores = net::pin::cores();
        let mut threads = Vec::with_capacity(workers + 1);
        for (index, socket) in sockets.into_iter().enumerate() {
            let peers =
                peer_socket.as_ref().map(|_| peers::Sender::bind(config.peer_bind, &config.peers, &sends_dropped));
            let peers = peers
                .transpose()
                .map_err(|error| daemon::bind::refused("peer_bind", config.peer_bind, Transport::Udp, &error))?;
            let start = worker::Start {
                config: WorkerConfig {
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    edge: config.edge(),
                    session: config.session(),
                    limits: config.worker_limits(),
                    reflex: config.media.reflex,
                },
                core: cores.get(index % cores.len().max(1)).copied(),
                spin: Duration::from_micros(config.spin_us),
                socket,
                link_bind: config.link_bind,
                downlink: config.downlink,
                transceivers: config.transceivers.clone(),
                node: node.clone(),
                directory: Arc::clone(&directory),
                peers,
                keys: keys.clone(),
                seed: rand::random(),
                board: Arc::clone(&board),
                doors: Arc::clone(&doors),
                lifecycle: lifecycle.clone(),
                metrics: metrics.clone(),
            };
            threads.push(spawn(format!("worker-{index}"), &lifecycle, move || worker::run(start))?);
        }
        let peer_addr = peer_socket.as_ref().map(BoundSocket::local_addr);
        if let Some(socket) = peer_socket {
            let (shared, lifecycle, metrics) = (Arc::clone(&shared), lifecycle.clone(), metrics.clone());
            let start = peers::Start { socket, shared, lifecycle: lifecycle.clone(), metrics };
            threads.push(spawn("peers".to_owned(), &lifecycle, move || peers::run(start))?);
        }
        let start = websocket::Start {
            edge: config.edge(),
            link_bind: config.link_bind,
            transceivers: config.transceivers.clone(),
            node: node.clone(),
            shared: Arc::clone(&shared),
            lifecycle: lifecycle.clone(),
            metrics: metrics.clone(),
        };
        threads.push(spawn("websockets".to_owned(), &lifecycle, move || websocket::run(start))?);
        let start = control::Start {
            config,
            http: http.listener,
            admin: admin.listener,
            node,
            shared,
            keys: watch,
            issuer,
            tls,
            doors,
            peer_sends_dropped: sends_dropped,
            board,
            lifecycle: lifecycle.clone(),
            metrics,
        };
        threads.push(spawn("control".to_owned(), &lifecycle, move || control::run(start))?);
        Ok(Self { http: http.address, admin: admin.address, media, peer: peer_addr, lifecycle, threads })
    }

    /// Where signaling listens.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    /// Where health and metrics are served.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Where media is received.
    #[must_use]
    pub fn media_addr(&self) -> SocketAddr {
        self.media
    }

    /// Where peers are heard, if there are any.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Its phases.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// Takes no further calls, gives running ones `drain_timeout_ms` to end, then closes them and stops.
    pub fn drain(&self) {
        self.lifecycle.advance(Phase::Draining);
    }

    /// Waits until everything has stopped.
    ///
    /// # Errors
    /// A thread of it panicked.
    pub fn wait(self) -> Result<(), StartError> {
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            thread.join().map_err(|_| StartError::failed(name, "ended by a panic"))?;
        }
        Ok(())
    }
}

/// The daemon from start to stop: logs, metrics, the edge, and an orderly end on SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, or ended it early.
pub fn run(config: Config, announce: Announce) -> Result<(), StartError> {
    let _log = daemon::log::init(&config.log)?;
    let metrics = Metrics::install()?;
    let edge = Edge::start(config, metrics)?;
    let peer = edge.peer.map(|peer| ("peer", peer));
    let ports = [("http", edge.http), ("admin", edge.admin), ("media", edge.media)].into_iter().chain(peer);
    announce.say(&ports.collect::<Vec<_>>());
    edge.wait()
}

fn named(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    fn bind(key: &str, address: SocketAddr) -> Result<Self, StartError> {
        let listener = daemon::bind::tcp(key, address)?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self { listener, address })
    }
}

/// A thread of the edge. One that cannot be started stops those that were.
fn spawn(
    name: String,
    lifecycle: &Lifecycle,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let guard = StopWithMe(lifecycle.clone());
    let guarded = move || {
        let _guard = guard;
        body();
    };
    std::thread::Builder::new().name(name.clone()).spawn(guarded).map_err(|error| {
        lifecycle.advance(Phase::Stopped);
        StartError::failed(format!("starting thread {name}"), error)
    })
}

/// The edge runs with all of its threads or not at all, also when one of them panics.
struct StopWithMe(Lifecycle);

impl Drop for StopWithMe {
    fn drop(&mut self) {
        self.0.advance(Phase::Stopped);
    }
}
