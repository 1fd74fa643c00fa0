//! WebSocket sessions: one thread with links of its own, and a task per session.
//!
//! Signaling answers the request and leaves a [`Joining`]; here its connection becomes a WebSocket whose text frames are the
//! messages of channel 0 of a session at a transceiver. Events are not read: audio travels inside them.
//!
//! The connections stay registered with the control thread, which says when they can be read; everything else, the
//! encryption of TLS included, is work of this thread.

mod deflation;
mod links;
mod session;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Lifecycle, Metrics, Phase};
use hyper_util::rt::TokioIo;
use link::identity::NodeIdentity;
use link::ids::{EdgeId, TransceiverId};
use link::quic::Endpoint;
use tokio::task::LocalSet;
use tokio::time::timeout;

use self::deflation::Deflation;
use self::links::Links;
use self::session::{Bridge, Socket, converse};
use crate::config::TransceiverConfig;
use crate::signaling::{ECHO, Shared};
use crate::websocket::{Deflater, Ending, Joining, Reason, Wanted};

/// From the answer to the connection: it needs no word of the client's.
const UPGRADE: Duration = Duration::from_secs(5);

/// What the thread is given.
pub(super) struct Start {
    pub(super) edge: EdgeId,
    pub(super) link_bind: std::net::SocketAddr,
    pub(super) transceivers: Vec<TransceiverConfig>,
    pub(super) node: NodeIdentity,
    pub(super) shared: Arc<Shared>,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Metrics,
}

/// The thread's body.
pub(super) fn run(start: Start) {
    let served = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        start.metrics.register_runtime(runtime.handle().clone());
        LocalSet::new().block_on(&runtime, serve(start))
    });
    if let Err(error) = served {
        tracing::error!(%error, "WebSockets cannot go on; the edge stops");
    }
}

async fn serve(start: Start) -> std::io::Result<()> {
    let endpoint = Endpoint::client_on(&start.node, start.link_bind).map_err(std::io::Error::other)?;
    let links = Rc::new(Links::default());
    let deflater = Rc::new(RefCell::new(Deflater::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for transceiver in &start.transceivers {
        let id = TransceiverId(transceiver.id);
        let kept = links::keep(Rc::clone(&links), endpoint.clone(), start.edge, id, transceiver.address);
        tasks.spawn_local(daemon::counted(kept));
    }
    let shared = start.shared;
    let stopping = Arc::clone(&shared);
    let accepting = async {
        let Some(mut arriving) = shared.websockets.arriving() else { return };
        while let Some(joining) = arriving.recv().await {
            let deflation = joining.deflate.then(|| Deflation::new(Rc::clone(&deflater)));
            daemon::spawn_local(attend(Arc::clone(&shared), Rc::clone(&links), joining, deflation));
        }
    };
    tokio::select! {
        () = start.lifecycle.reached(Phase::Stopped) => {}
        () = accepting => {}
    }
    stopping.websockets.close_all();
    tasks.shutdown().await;
    endpoint.close();
    let _ = timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    Ok(())
}

/// One client, to its end.
async fn attend(shared: Arc<Shared>, links: Rc<Links>, joining: Joining, deflation: Option<Deflation>) {
    let Joining { upgrade, wanted, place, .. } = joining;
    let began = Instant::now();
    let Ok(Ok(upgraded)) = timeout(UPGRADE, upgrade).await else {
        return shared.websockets.count(Reason::Lost);
    };
    let socket = Socket::new(TokioIo::new(upgraded), deflation).await;
    let reason = match wanted {
        Wanted::Beta => session::end(socket, Ending::of(Reason::Beta)).await,
        Wanted::Sideband { session, tenant } => match links.join(&shared, session, tenant).await {
            Ok(bridge) => converse(&shared.websockets, socket, bridge, 0).await,
            Err(ending) => session::end(socket, ending).await,
        },
        // Its seat and its place among the calls of its key are given back at the end.
        Wanted::Session { request, seat, held } => {
            let _held = held;
            if request.model == ECHO {
                let _seat = seat;
                converse(&shared.websockets, socket, Bridge::echo(request.session), request.max_seconds).await
            } else {
                let (session, max_seconds) = (request.session, request.max_seconds);
                match links.open(*request, seat).await {
                    Ok((bridge, _seat)) => {
                        let reason = converse(&shared.websockets, socket, bridge, max_seconds).await;
                        tracing::info!(call = %link::ids::SessionId(session), reason = reason.label(), "websocket over");
                        reason
                    }
                    Err(ending) => session::end(socket, ending).await,
                }
            }
        }
    };
    drop(place);
    shared.websockets.count(reason);
    metrics::histogram!("fronthaul_edge_websocket_seconds", "reason" => reason.label()).record(began.elapsed());
}
