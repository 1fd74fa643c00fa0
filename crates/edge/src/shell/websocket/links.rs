//! The links of the WebSocket thread, and the streams that its sessions have on them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use link::ids::{EdgeId, Epoch, SessionId, TransceiverId};
use link::proto::transceiver_client::TransceiverClient;
use link::proto::{
    ChannelOpened, Closed, EdgeMessage, OpenRequest, ReleaseRequest, SessionHeader, TransceiverMessage, edge_message,
};
use link::quic::{Endpoint, Link, SessionRx, SessionTx};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::super::links::hello;
use super::session::{Bridge, EVENTS};
use crate::seats::Seat;
use crate::signaling::Shared;
use crate::websocket::{Ending, Reason, Whereabouts, whereabouts};
use crate::worker::EVENTS_LABEL;

/// Before a lost or refused link is dialed again: doubled with each failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(2);

/// As long as a lease lives without a word.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A transceiver that has not answered Open by then does not get the session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// Release is told once; a transceiver that misses it notices that the session's stream ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks for where a call is, while it is set up.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Events that wait between the link's stream and the session: what bounds them is the outbox behind.
const MESSAGES: usize = 16;

type Control = TransceiverClient<tonic::transport::Channel>;

struct Up {
    link: Link,
    control: Control,
}

/// The links that are up.
#[derive(Default)]
pub(super) struct Links(RefCell<BTreeMap<TransceiverId, Up>>);

/// Keeps a link to one transceiver.
pub(super) async fn keep(
    links: Rc<Links>,
    endpoint: Endpoint,
    edge: EdgeId,
    transceiver: TransceiverId,
    address: SocketAddr,
) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        if let Ok(link) = endpoint.connect(address, transceiver).await {
            let mut control = link.control();
            if let Ok(Ok(_)) = timeout(HELLO_TIMEOUT, control.hello(hello(edge))).await {
                backoff = FIRST_BACKOFF;
                links.0.borrow_mut().insert(transceiver, Up { link: link.clone(), control });
                // Heartbeats end in the link, and a transceiver opens nothing here.
                while link.read_datagram().await.is_ok() {}
                links.0.borrow_mut().remove(&transceiver);
            }
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

impl Links {
    fn to(&self, transceiver: TransceiverId) -> Option<(Link, Control)> {
        self.0.borrow().get(&transceiver).map(|up| (up.link.clone(), up.control.clone()))
    }

    /// Opens a session where its seat is, or elsewhere if it is refused there.
    pub(super) async fn open(&self, mut request: OpenRequest, mut seat: Seat) -> Result<(Bridge, Seat), Ending> {
        let mut refused = Vec::new();
        loop {
            let transceiver = seat.transceiver();
            match self.open_at(transceiver, request.clone()).await {
                Ok(bridge) => return Ok((bridge, seat)),
                Err(reason) => {
                    let call = SessionId(request.session);
                    tracing::info!(%call, transceiver = transceiver.0, %reason, "open failed");
                }
            }
            refused.push(transceiver);
            seat = seat.take_other(&request.model, &refused).ok_or_else(|| Ending::of(Reason::OpenFailed))?;
            request.epoch += 1;
        }
    }

    async fn open_at(&self, transceiver: TransceiverId, request: OpenRequest) -> Result<Bridge, String> {
        let (link, mut control) = self.to(transceiver).ok_or("there is no link to it")?;
        let (session, epoch) = (request.session, request.epoch);
        let opening = async {
            let slot = control.open(request).await.map_err(|status| status.to_string())?.into_inner().slot;
            let header = SessionHeader { session, epoch, slot, ..SessionHeader::default() };
            let (mut tx, rx) = link.open_session(&header).await.map_err(|error| error.to_string())?;
            let opened = ChannelOpened { channel: EVENTS, label: EVENTS_LABEL.to_owned() };
            let opened = EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) };
            tx.send(&opened).await.map_err(|error| error.to_string())?;
            Ok::<_, String>((tx, rx))
        };
        let opened = timeout(OPEN_TIMEOUT, opening).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let release = ReleaseRequest { session, epoch, reason: "websocket over".to_owned() };
        match opened {
            Ok((tx, rx)) => Ok(carry(tx, rx, Some((control, release)))),
            Err(reason) => {
                // The Open may have been heard.
                daemon::spawn_local(tell_release(control, release));
                Err(reason)
            }
        }
    }

    /// Joins a call, as soon as a transceiver has it.
    pub(super) async fn join(&self, shared: &Shared, session: SessionId, tenant: u16) -> Result<Bridge, Ending> {
        let until = Instant::now() + shared.setup_timeout;
        let mut stopped = shared.websockets.stopped();
        let transceiver = loop {
            match whereabouts(&shared.directory, session) {
                Whereabouts::At(transceiver) => break transceiver,
                Whereabouts::Nowhere if Instant::now() < until => {}
                Whereabouts::Nowhere | Whereabouts::Gone => return Err(Ending::of(Reason::NotFound)),
            }
            tokio::select! {
                () = sleep(LOOK_AGAIN) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return Err(Ending::of(Reason::Draining)),
            }
        };
        let (link, _) = self.to(transceiver).ok_or_else(|| Ending::of(Reason::TransceiverLost))?;
        let header =
            SessionHeader { session: session.0, epoch: Epoch(0).0, slot: 0, attach: true, tenant: tenant.into() };
        let opened = timeout(OPEN_TIMEOUT, link.open_session(&header)).await;
        let (tx, rx) = opened.ok().and_then(Result::ok).ok_or_else(|| Ending::of(Reason::TransceiverLost))?;
        Ok(carry(tx, rx, None))
    }
}

/// Carries a session's stream: each direction by itself, so that neither waits for the other.
fn carry(
    mut tx: SessionTx<EdgeMessage>,
    mut rx: SessionRx<TransceiverMessage>,
    release: Option<(Control, ReleaseRequest)>,
) -> Bridge {
    // One: the client's next message is read when the link has taken the one before.
    let (to_call, mut outgoing) = mpsc::channel::<EdgeMessage>(1);
    let (incoming, from_call) = mpsc::channel(MESSAGES);
    daemon::spawn_local(async move {
        let mut alive = true;
        while let Some(message) = outgoing.recv().await {
            alive = alive && tx.send(&message).await.is_ok();
        }
        let closed = Closed { reason: "websocket over".to_owned() };
        let _ = tx.send(&EdgeMessage { kind: Some(edge_message::Kind::Closed(closed)) }).await;
        tx.finish();
        if let Some((control, release)) = release {
            tell_release(control, release).await;
        }
    });
    daemon::spawn_local(async move {
        loop {
            let message = tokio::select! {
                message = rx.recv() => message,
                () = incoming.closed() => return,
            };
            let Ok(Some(message)) = message else { return };
            if incoming.send(message).await.is_err() {
                return;
            }
        }
    });
    Bridge::new(to_call, from_call)
}

async fn tell_release(mut control: Control, release: ReleaseRequest) {
    let _ = timeout(RELEASE_TIMEOUT, control.release(release)).await;
}
