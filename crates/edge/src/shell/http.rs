//! HTTP on one connection, bounded in time: clients which stall cannot keep others out.

use std::pin::pin;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower::Layer;

use crate::signaling::Caller;

/// Requests at once on one connection of HTTP/2: a page, its files and its call.
const STREAMS_MAX: u32 = 16;

/// Bytes of all headers of a request: ten times those of a browser.
const HEADERS_MAX: u32 = 16 * 1024;

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For the whole head of a request, and for the next request on a connection that is kept open: long enough for a
    /// page and its call, short enough that the descriptors of clients that are gone come back.
    head: Duration,
    /// From accepting to the last request. The head is not all that can stall: bodies and answers can as well.
    life: Duration,
    /// For the request that runs when life is over.
    last_request: Duration,
}

pub(super) const PATIENCE: Patience =
    Patience { head: Duration::from_secs(10), life: Duration::from_secs(20), last_request: Duration::from_secs(10) };

/// Which versions a connection may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocols {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 as well, as ALPN found it.
    Both,
}

/// Serves one connection to its end.
pub(super) async fn connection<S>(stream: S, protocols: Protocols, router: Router, caller: Caller, patience: Patience)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(Extension(caller).layer(router));
    let mut builder = Builder::new(TokioExecutor::new());
    if protocols == Protocols::Http1 {
        builder = builder.http1_only();
    }
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience.head);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEADERS_MAX);
    http2.keep_alive_interval(patience.head).keep_alive_timeout(patience.head);
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // A client that breaks off is no news. Neither is one that becomes a WebSocket: its life is for that to bound.
    if timeout(patience.life, serving.as_mut()).await.is_err() {
        serving.as_mut().graceful_shutdown();
        let _ = timeout(patience.last_request, serving).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use axum::body::Bytes;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::signaling::Callers;

    const BRIEF: Patience = Patience {
        head: Duration::from_secs(60),
        life: Duration::from_millis(50),
        last_request: Duration::from_millis(400),
    };

    async fn connect() -> (TcpStream, tokio::task::JoinHandle<()>) {
        let slow = get(async || {
            tokio::time::sleep(BRIEF.life * 3).await;
            "late"
        });
        let router = Router::new()
            .route("/body", post(async |_: Bytes| ()))
            .route("/big", get(async || vec![0_u8; 64 << 20]))
            .route("/slow", slow);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, from) = listener.accept().await.unwrap();
        let caller = Callers::new(Instant::now(), 1, 1).caller(from.ip());
        (client, tokio::spawn(connection(server, Protocols::Http1, router, caller, BRIEF)))
    }

    async fn ends(serving: tokio::task::JoinHandle<()>) {
        timeout(Duration::from_secs(20), serving).await.expect("the connection is held forever").unwrap();
    }

    #[tokio::test]
    async fn a_client_that_stalls_in_its_body_loses_its_connection() {
        let (mut client, serving) = connect().await;
        client.write_all(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nv=0").await.unwrap();
        ends(serving).await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_loses_its_connection() {
        let (mut client, serving) = connect().await;
        client.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        ends(serving).await;
    }

    #[tokio::test]
    async fn a_request_that_runs_at_the_end_of_a_connection_is_answered() {
        let (mut client, serving) = connect().await;
        client.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"), "{answer}");
        ends(serving).await;
    }
}
