//! The HTTP listener: connections are bounded in number, and one that says nothing is closed.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Connections at once; the next one waits in the kernel. A call needs one for the length of its POST.
const MAX_CONNECTIONS: usize = 1024;

/// For the whole head of a request, and for the next request on a connection that is kept open: long enough for a page
/// and its call, short enough that the descriptors of clients that are gone come back.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Until accepting is tried again when the process is out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until the runtime ends.
pub(super) async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, router.clone()))),
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

async fn connection(stream: TcpStream, router: Router) {
    // The answer to a POST is one small write; waiting to fill a segment would cost a round trip.
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // A client that breaks off is no news.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
