//! The sockets between the edges of a PoP: one to receive, on a thread of its own, and one per worker to send.
//!
//! Which port a peer sends from does not matter: each datagram proves its sender.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use daemon::{Lifecycle, Metrics, Phase};
use link::ids::EdgeId;
use net::{BoundSocket, RecvBatch};

use crate::config::PeerConfig;
use crate::signaling::Shared;
use crate::worker::peers::Gate;

/// What one worker sends with.
pub(super) struct Sender {
    socket: UdpSocket,
    addresses: BTreeMap<EdgeId, SocketAddr>,
    /// What the kernel did not take, over all workers.
    dropped: Arc<AtomicU64>,
}

impl Sender {
    /// From a free port of the address at which peers reach us.
    pub(super) fn bind(bind: SocketAddr, peers: &[PeerConfig], dropped: &Arc<AtomicU64>) -> io::Result<Self> {
        let socket = UdpSocket::bind((bind.ip(), 0))?;
        socket.set_nonblocking(true)?;
        // A socket of IPv6 sends to IPv4 addresses in their IPv6 form alone.
        let reached = |address: SocketAddr| match address.ip() {
            IpAddr::V4(v4) if bind.is_ipv6() => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
            _ => address,
        };
        let addresses = peers.iter().map(|peer| (EdgeId(peer.id), reached(peer.address))).collect();
        Ok(Self { socket, addresses, dropped: Arc::clone(dropped) })
    }

    /// One system call: there is little to forward, and what there is should not wait.
    pub(super) fn send(&self, peer: EdgeId, bytes: &[u8]) {
        let Some(address) = self.addresses.get(&peer) else { return };
        if self.socket.send_to(bytes, address).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the receiving thread is given.
pub(super) struct Start {
    pub(super) socket: BoundSocket,
    pub(super) shared: Arc<Shared>,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Metrics,
}

/// The thread's body.
pub(super) fn run(start: Start) {
    let served = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        start.metrics.register_runtime(runtime.handle().clone());
        let lifecycle = start.lifecycle.clone();
        runtime.block_on(async {
            tokio::select! {
                () = lifecycle.reached(Phase::Stopped) => Ok(()),
                ended = receive(start) => ended,
            }
        })
    });
    if let Err(error) = served {
        tracing::error!(%error, "peers are not heard any more; the edge stops");
    }
}

async fn receive(start: Start) -> io::Result<()> {
    let Start { socket, shared, .. } = start;
    let (socket, directory) = (socket.register()?, &shared.directory);
    let mut gate = Gate::new(shared.edge, &directory.pop.peers);
    let mut batch = RecvBatch::new();
    loop {
        socket.recv_batch(&mut batch).await?;
        let (keys, unix_seconds) = (shared.keys.current(), net::clock::unix_seconds());
        for datagram in batch.iter_mut() {
            match gate.open(keys.route(), unix_seconds, datagram.bytes) {
                Ok(forwarded) => {
                    if let Some(mailbox) = directory.mailbox(Gate::worker_for(directory, &forwarded)) {
                        mailbox.forward(forwarded);
                    }
                }
                Err(discard) => directory.pop.count(discard),
            }
        }
        tokio::task::yield_now().await;
    }
}
