//! The story of the daemon: start, serve, drain, stop.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use daemon::{Announce, Lifecycle, Metrics, Phase, StartError, admin, bind, log};

use crate::{Config, Transceiver};

/// Runs a transceiver until SIGTERM, and then until its calls are gone or `drain_timeout_ms` is over.
///
/// # Errors
/// What keeps it from starting, or ended it early.
pub fn run(config: Config, announce: Announce) -> Result<(), StartError> {
    let _log = log::init(&config.log)?;
    let metrics = Metrics::install()?;
    let lifecycle = Lifecycle::new();
    let admin_port = bind::tcp("admin_bind", config.admin_bind)?;
    let admin_addr = admin_port.local_addr().unwrap_or(config.admin_bind);
    let transceiver = Transceiver::start(&config)?;
    announce.say(&[("link", transceiver.link_addr()), ("admin", admin_addr)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("starting the admin runtime", error))?;
    metrics.register_runtime(runtime.handle().clone());
    metrics.register_runtime(transceiver.runtime().clone());
    let pages = transceiver.records().pages();
    let admin = admin::serve_with(admin_port, metrics, lifecycle.clone(), pages);
    runtime.block_on(serve(&config, transceiver, lifecycle, admin_addr, admin))
}

async fn serve(
    config: &Config,
    transceiver: Transceiver,
    lifecycle: Lifecycle,
    admin_addr: SocketAddr,
    admin: impl Future<Output = std::io::Result<()>> + Send + 'static,
) -> Result<(), StartError> {
    tokio::spawn(async move {
        if let Err(error) = admin.await {
            tracing::error!(%error, "admin port ended");
        }
    });
    tokio::spawn({
        let lifecycle = lifecycle.clone();
        async move {
            if let Err(error) = lifecycle.drain_on_signals().await {
                tracing::error!(%error, "signals cannot be heard");
            }
        }
    });
    lifecycle.advance(Phase::Ready);
    tracing::info!(
        id = config.id,
        link = %transceiver.link_addr(),
        admin = %admin_addr,
        seats = config.seats,
        "transceiver ready"
    );
    let mut transceiver = transceiver;
    tokio::select! {
        () = lifecycle.reached(Phase::Draining) => {
            transceiver.stop(Duration::from_millis(config.drain_timeout_ms));
            transceiver.ended().await;
        }
        () = transceiver.ended() => {
            return Err(StartError::failed("serving", "the link thread ended"));
        }
    }
    lifecycle.advance(Phase::Stopped);
    tracing::info!("transceiver stopped");
    Ok(())
}
