//! The HTTP port for the operator: health, readiness, metrics.
//!
//! A daemon may have a [`Page`] or two beside these. It answers without authentication and is meant for the loopback interface or a private network. A scraper that stops
//! reading holds one of [`MAX_CONNECTIONS`] connections for [`PATIENCE`] at most.

use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{Lifecycle, Metrics};

/// Connections at once; the next one waits in the kernel.
const MAX_CONNECTIONS: usize = 64;

/// For one request and its answer, which are some 20 KiB.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until accepting is tried again when the process is out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What a page answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAnswer {
    /// An HTTP status; one that is none becomes 500.
    pub status: u16,
    /// The body.
    pub json: String,
}

type Answering = Pin<Box<dyn Future<Output = PageAnswer> + Send>>;

/// A page of a daemon's own: `GET` of a path, or of a prefix and a name.
#[derive(Clone)]
pub struct Page {
    path: &'static str,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    At(Arc<dyn Fn() -> Answering + Send + Sync>),
    Below(Arc<dyn Fn(String) -> Answering + Send + Sync>),
}

impl Page {
    /// `prefix` begins and ends with a slash; `answer` gets what follows it, up to the next slash.
    pub fn new<F>(prefix: &'static str, answer: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = PageAnswer> + Send + 'static,
    {
        Self { path: prefix, answer: Answer::Below(Arc::new(move |name| Box::pin(answer(name)))) }
    }

    /// `path` begins with a slash.
    pub fn at<F>(path: &'static str, answer: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = PageAnswer> + Send + 'static,
    {
        Self { path, answer: Answer::At(Arc::new(move || Box::pin(answer()))) }
    }
}

/// Serves the admin port on the current runtime until that ends.
///
/// * `GET /healthz`: 200 while the process lives;
/// * `GET /readyz`: 200 when traffic is welcome, else 503 and why;
/// * `GET /metrics`: Prometheus' text format.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve(listener: TcpListener, metrics: Metrics, lifecycle: Lifecycle) -> io::Result<()> {
    serve_with(listener, metrics, lifecycle, Vec::new()).await
}

/// [`serve`] with pages of the daemon's own.
///
/// # Errors
///
/// As [`serve`].
pub async fn serve_with(
    listener: TcpListener,
    metrics: Metrics,
    lifecycle: Lifecycle,
    pages: Vec<Page>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = router(metrics, lifecycle, pages);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, router.clone(), PATIENCE))),
                // The scraper is gone already, or there is no descriptor left: neither ends the port.
                Err(_) => sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, router: Router, patience: Duration) {
    let builder = Builder::new(TokioExecutor::new()).http1_only();
    // A scraper that breaks off, or is given up, is no news.
    let _ = timeout(patience, builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))).await;
}

fn router(metrics: Metrics, lifecycle: Lifecycle, pages: Vec<Page>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(async || answer(StatusCode::OK, "ok\n".to_owned())))
        .route("/readyz", get(async move || ready(&lifecycle)))
        .route("/metrics", get(async move || exposition(&metrics)))
        .fallback(async || answer(StatusCode::NOT_FOUND, "here are /healthz, /readyz and /metrics\n".to_owned()));
    for Page { path, answer } in pages {
        router = match answer {
            Answer::At(answer) => router.route(path, get(async move || json(answer().await))),
            Answer::Below(answer) => router
                .route(&format!("{path}{{name}}"), get(async move |Path(name): Path<String>| json(answer(name).await))),
        };
    }
    router
}

fn json(answer: PageAnswer) -> impl IntoResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json"), (header::CONNECTION, "close")], answer.json)
}

fn ready(lifecycle: &Lifecycle) -> impl IntoResponse + use<> {
    match lifecycle.readiness() {
        Ok(()) => answer(StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => answer(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn exposition(metrics: &Metrics) -> impl IntoResponse + use<> {
    const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, TYPE), (header::CONNECTION, "close")], metrics.render())
}

/// Each answer closes its connection, so that an idle scraper holds no descriptor and no task, and two
/// readings of the metrics of an idle daemon are equal.
fn answer(status: StatusCode, body: String) -> impl IntoResponse {
    (status, [(header::CONNECTION, "close")], body)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_scraper_that_does_not_read_its_answer_loses_its_connection() {
        let router = Router::new().route("/metrics", get(async || vec![0_u8; 64 << 20]));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut scraper = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let serving = connection(stream, router, Duration::from_millis(50));
        timeout(Duration::from_secs(20), serving).await.expect("the connection is held for ever");
    }
}
