//! The HTTP port for the operator: health, readiness, metrics.
//!
//! It answers without authentication and is meant for the loopback interface or a private network.

use std::io;
use std::net::TcpListener;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::{Lifecycle, Metrics};

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
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(listener, router(metrics, lifecycle)).await
}

fn router(metrics: Metrics, lifecycle: Lifecycle) -> Router {
    Router::new()
        .route("/healthz", get(async || answer(StatusCode::OK, "ok\n".to_owned())))
        .route("/readyz", get(async move || ready(&lifecycle)))
        .route("/metrics", get(async move || exposition(&metrics)))
        .fallback(async || answer(StatusCode::NOT_FOUND, "here are /healthz, /readyz and /metrics\n".to_owned()))
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
