//! The TCP port: HTTPS, HTTP and WebRTC over TCP, told apart by the first byte.
//!
//! ```text
//!  0x16        TLS: a ClientHello (RFC 8446 §5.1)      -> handshake, then HTTP/2 or HTTP/1.1
//!  0x00..0x07  high byte of a frame's length (RFC 4571) -> the first check says whose it is (super::tcp)
//!  'A'..'Z'    a method of HTTP                         -> HTTP, or the way to HTTPS
//! ```
//!
//! # Invariant
//!
//! Connections are bounded in number, per source, and in time, so that those which stall cannot keep others out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::doors::{Doors, Refused};
use super::http::{self, Protocols};
use super::tcp::Admission;
use crate::signaling::Callers;
use crate::tcp::{FRAME_MAX, Place, Places};

/// Connections at once that have not become WebRTC; the next one waits in the kernel. A call needs one for the length of
/// its POST.
const MAX_CONNECTIONS: usize = 1024;

/// Of these, from one IPv4 address or IPv6 /64: a quarter, so that it takes many addresses to keep others out.
const CONNECTIONS_PER_SOURCE: usize = 256;

/// Until a connection has said what it is, in so many bytes that it can be served or refused.
const FIRST_WORDS: Duration = Duration::from_secs(5);

/// For a TLS handshake: two flights of the client's.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Until accepting is tried again when the process is out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What serves the port.
pub(super) struct Front {
    pub(super) router: Router,
    pub(super) callers: Callers,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) webrtc: Option<Admission>,
    pub(super) doors: Arc<Doors>,
}

/// What the first byte of a connection says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tls,
    Http,
    Frame,
    Unknown,
}

impl Kind {
    fn of(byte: u8) -> Self {
        match byte {
            0x16 => Self::Tls,
            b'A'..=b'Z' => Self::Http,
            high if usize::from(high) < FRAME_MAX.div_ceil(256) => Self::Frame,
            _ => Self::Unknown,
        }
    }
}

/// Serves until the runtime ends.
pub(super) async fn serve(listener: TcpListener, front: Arc<Front>) -> io::Result<()> {
    let places = Places::new(MAX_CONNECTIONS, CONNECTIONS_PER_SOURCE);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, from)) => match places.take(from.ip()) {
                    Some(place) => drop(connections.spawn(connection(Arc::clone(&front), stream, from, place))),
                    None => front.doors.count(Refused::Crowded),
                },
                // The client is gone already, or we have no descriptor left: neither ends the listener.
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(front: Arc<Front>, stream: TcpStream, from: SocketAddr, place: Place) {
    if let Err(refused) = take_in(&front, stream, from, place).await {
        front.doors.count(refused);
    }
}

async fn take_in(front: &Front, stream: TcpStream, from: SocketAddr, place: Place) -> Result<(), Refused> {
    // What is sent is small and complete; waiting to fill a segment would cost a round trip.
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let peeked = timeout(FIRST_WORDS, stream.peek(&mut first)).await.map_err(|_| Refused::Silent)?;
    if !matches!(peeked, Ok(1)) {
        return Err(Refused::Silent);
    }
    let caller = || front.callers.caller(from.ip());
    match (Kind::of(first[0]), &front.tls, &front.webrtc) {
        (Kind::Tls, Some(acceptor), _) => {
            let handshake = timeout(HANDSHAKE, acceptor.accept(stream)).await.map_err(|_| Refused::Tls)?;
            let stream = handshake.map_err(|error| {
                tracing::debug!(%error, "a TLS handshake failed");
                Refused::Tls
            })?;
            if stream.get_ref().1.alpn_protocol() == Some(super::tls::ACME_PROTOCOL) {
                // The handshake was all that the authority wanted (RFC 8737 §3).
                return Ok(());
            }
            http::connection(stream, Protocols::Both, front.router.clone(), caller(), http::PATIENCE).await;
        }
        (Kind::Http, None, _) => {
            http::connection(stream, Protocols::Http1, front.router.clone(), caller(), http::PATIENCE).await;
        }
        // What comes from this machine crosses no network, and browsers take it for secure.
        (Kind::Http, Some(_), _) if from.ip().to_canonical().is_loopback() => {
            http::connection(stream, Protocols::Http1, front.router.clone(), caller(), http::PATIENCE).await;
        }
        (Kind::Http, Some(_), _) => {
            http::connection(stream, Protocols::Http1, elsewhere(), caller(), http::PATIENCE).await;
        }
        (Kind::Frame, _, Some(admission)) => {
            let admitted = timeout(FIRST_WORDS, admission.admit(&front.doors, stream, from));
            admitted.await.map_err(|_| Refused::Silent)??;
        }
        _ => return Err(Refused::Unknown),
    }
    drop(place);
    Ok(())
}

/// Sends everything to HTTPS on the same port.
fn elsewhere() -> Router {
    Router::new().fallback(async |request: Request| -> Response {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        match host {
            Some(host) => {
                (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, format!("https://{host}{path}"))]).into_response()
            }
            None => (StatusCode::BAD_REQUEST, "this port speaks HTTPS\n").into_response(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells_tls_http_and_frames_apart() {
        for byte in 0..=255 {
            let expected = match byte {
                0x16 => Kind::Tls,
                b'A'..=b'Z' => Kind::Http,
                0..=7 => Kind::Frame,
                _ => Kind::Unknown,
            };
            assert_eq!(Kind::of(byte), expected, "{byte:#04x}");
        }
    }
}
