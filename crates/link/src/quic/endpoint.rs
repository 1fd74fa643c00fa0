//! A UDP socket that dials transceivers, or that edges dial.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, Connection, TokioRuntime, VarInt};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::error::{ConnectError, EndpointError, LinkLost};
use super::link::Link;
use super::path::Path;
use super::socket::LinkSocket;
use super::{Controller, Peer, close_code, config};
use crate::identity::NodeIdentity;
use crate::ids::TransceiverId;

/// A handshake that takes longer is given up: one round trip and a few losses.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at once, at a transceiver: every worker of the edges that dial after a restart, some CPU each.
const HANDSHAKES: usize = 256;
/// Beyond this many, a peer proves its address first (RFC 9000 §8.1.2).
const HANDSHAKES_UNPROVEN: usize = 64;
/// The name that TLS wants of a host; nodes have ids instead.
const SERVER_NAME: &str = "transceiver.fronthaul.internal";

/// One socket and the links over it. Clones are the same endpoint. It lives on the tokio runtime on which it was made.
#[derive(Clone)]
pub struct Endpoint {
    endpoint: quinn::Endpoint,
    client: Option<ClientConfig>,
    server: Option<quinn::ServerConfig>,
    controller: Controller,
    handshakes: Arc<Mutex<JoinSet<Option<Link>>>>,
}

impl Endpoint {
    /// For an edge worker: dials, on a port of the loopback interface.
    ///
    /// # Errors
    /// No socket, or an identity that TLS cannot use.
    pub fn client(identity: &NodeIdentity) -> Result<Self, EndpointError> {
        Self::client_on(identity, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
    }

    /// For an edge worker: dials from an address of its own.
    ///
    /// # Errors
    /// No socket, or an identity that TLS cannot use.
    pub fn client_on(identity: &NodeIdentity, bind: SocketAddr) -> Result<Self, EndpointError> {
        let client = config::client(identity)?;
        Self::new(identity, bind, Some(client), None)
    }

    /// For a transceiver: is dialed. One endpoint per address: sharing the port would let one answer the other's peers
    /// with resets.
    ///
    /// # Errors
    /// No socket, or an identity that TLS cannot use.
    pub fn server(identity: &NodeIdentity, bind: SocketAddr) -> Result<Self, EndpointError> {
        let server = config::server(identity)?;
        Self::new(identity, bind, None, Some(server))
    }

    fn new(
        identity: &NodeIdentity,
        bind: SocketAddr,
        client: Option<ClientConfig>,
        server: Option<quinn::ServerConfig>,
    ) -> Result<Self, EndpointError> {
        let endpoint = config::socket(bind)
            .and_then(LinkSocket::new)
            .and_then(|socket| {
                let (config, server, socket) = (config::endpoint(identity), server.clone(), Arc::new(socket));
                quinn::Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
            })
            .map_err(|source| EndpointError::Socket { address: bind, source })?;
        Ok(Self { endpoint, client, server, controller: Controller::default(), handshakes: Arc::default() })
    }

    /// With another congestion controller, for comparison. Call it before the first link.
    #[must_use]
    pub fn with_controller(self, controller: Controller) -> Self {
        Self { controller, ..self }
    }

    /// Dials a transceiver and makes sure that it is the one that was meant.
    ///
    /// # Errors
    /// Nobody answers, the handshake fails, or somebody else answers. An endpoint that is dialed cannot dial.
    pub async fn connect(&self, address: SocketAddr, wanted: TransceiverId) -> Result<Link, ConnectError> {
        let mut client = self.client.clone().ok_or(quinn::ConnectError::NoDefaultClientConfig)?;
        let path = Arc::new(Path::new());
        client.transport_config(config::client_transport(self.controller, &path));
        let connecting = self.endpoint.connect_with(client, address, SERVER_NAME)?;
        let connection = tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting)
            .await
            .map_err(|_| ConnectError::Handshake(LinkLost::TimedOut))?
            .map_err(|error| ConnectError::Handshake(error.into()))?;
        let wanted = Peer::Transceiver(wanted);
        match Link::new(connection, path) {
            Ok(link) if link.peer() == wanted => Ok(link),
            Ok(link) => Err(ConnectError::WrongPeer { wanted, found: Some(link.peer()) }),
            Err(connection) => {
                refuse(&connection, "a node without an id");
                Err(ConnectError::WrongPeer { wanted, found: None })
            }
        }
    }

    /// The next edge that dialed; peers whose handshake fails, or that are no edge, are turned away here. `None`: the
    /// endpoint is closed. Cancel safe.
    pub async fn accept(&self) -> Option<Link> {
        let mut handshakes = self.handshakes.lock().await;
        loop {
            let incoming = tokio::select! {
                biased;
                Some(done) = handshakes.join_next() => {
                    if let Ok(Some(link)) = done {
                        return Some(link);
                    }
                    continue;
                }
                incoming = self.endpoint.accept(), if handshakes.len() < HANDSHAKES => incoming?,
            };
            if handshakes.len() >= HANDSHAKES_UNPROVEN && !incoming.remote_address_validated() {
                // Fails for those that proved it alone.
                let _ = incoming.retry();
            } else if let Some(mut server) = self.server.clone() {
                let path = Arc::new(Path::new());
                server.transport_config(config::server_transport(self.controller, &path));
                handshakes.spawn(admit(incoming, server, path));
            }
        }
    }

    /// Where the socket is bound.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Closes every link of this endpoint, and takes no more.
    pub fn close(&self) {
        self.endpoint.close(VarInt::from_u32(close_code::DONE), b"shutting down");
    }

    /// Waits until the peers know of the end, after [`Endpoint::close`]: three probe timeouts at most.
    pub async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("local_addr", &self.local_addr().ok()).finish_non_exhaustive()
    }
}

async fn admit(incoming: quinn::Incoming, server: quinn::ServerConfig, path: Arc<Path>) -> Option<Link> {
    let address = incoming.remote_address();
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async { incoming.accept_with(Arc::new(server))?.await });
    match handshake.await.map_err(|_| LinkLost::TimedOut).and_then(|connected| connected.map_err(LinkLost::from)) {
        Ok(connection) => match Link::new(connection.clone(), path) {
            Ok(link) if matches!(link.peer(), Peer::Edge(_)) => Some(link),
            Ok(link) => {
                tracing::warn!(%address, peer = %link.peer(), "link refused: not an edge");
                refuse(&connection, "only edges dial a transceiver");
                None
            }
            Err(connection) => {
                tracing::warn!(%address, "link refused: the certificate names no node");
                refuse(&connection, "the certificate names no node");
                None
            }
        },
        Err(error) => {
            tracing::debug!(%address, %error, "link handshake failed");
            None
        }
    }
}

fn refuse(connection: &Connection, reason: &str) {
    connection.close(VarInt::from_u32(close_code::WRONG_PEER), reason.as_bytes());
}
