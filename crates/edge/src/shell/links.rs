//! The links of one worker: one to each transceiver, dialed at start and again whenever it is lost, and the tasks that
//! carry its streams to and from the core.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use daemon::spawn_local;
use link::datagram::{Batch, parse};
use link::ids::{EdgeId, Epoch, SessionId, Slot, TransceiverId, UtteranceId};
use link::proto::transceiver_client::TransceiverClient;
use link::proto::{EdgeMessage, HelloRequest, OpenRequest, ReleaseRequest, SessionHeader, UtteranceHeader};
use link::quic::{Endpoint, Incoming, Link, PathState, SessionRx, SessionTx, UtteranceRx};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::report::Paths;
use super::worker::Shell;
use crate::config::Downlink;
use crate::worker::{LinkInput, payload_bytes};

/// Before a lost or refused link is dialed again: doubled with each failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(2);

/// A transceiver that has not answered Open by then does not get the call.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// As long as a lease lives without a word.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Release is told once; a transceiver that misses it notices that the session stream ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages of one session that wait for its stream: effects of playout come at most some per frame, so this is seconds
/// of a stream that does not move.
const OUTBOX_MESSAGES: usize = 1024;

/// Their bytes: eight channel messages of the largest size.
const OUTBOX_BYTES: usize = 2 << 20;

/// Link datagrams of one turn: 16 x 8 frames of ~3 us are ~400 us of a turn's 500.
const DATAGRAMS_PER_TURN: usize = 16;

type ControlClient = TransceiverClient<tonic::transport::Channel>;

/// A live link and its sessions.
pub(super) struct Connected {
    pub(super) link: Link,
    path: watch::Receiver<PathState>,
    control: ControlClient,
    sessions: BTreeMap<(SessionId, Epoch), Outbox>,
}

/// The way to a session's stream.
struct Outbox {
    messages: mpsc::Sender<EdgeMessage>,
    waiting_bytes: Rc<std::cell::Cell<usize>>,
}

impl Connected {
    /// Queues a message; a stream that does not move ends its session.
    pub(super) fn message(
        &mut self,
        shell: &Rc<Shell>,
        transceiver: TransceiverId,
        session: SessionId,
        epoch: Epoch,
        message: EdgeMessage,
    ) {
        let Some(outbox) = self.sessions.get(&(session, epoch)) else { return };
        let bytes = outbox.waiting_bytes.get() + size(&message);
        if bytes <= OUTBOX_BYTES && outbox.messages.try_send(message).is_ok() {
            outbox.waiting_bytes.set(bytes);
            return;
        }
        self.sessions.remove(&(session, epoch));
        let shell = Rc::clone(shell);
        // The core is in the middle of a turn.
        spawn_local(async move {
            let backlog = LinkInput::Backlog { session, epoch };
            shell.turn(|core, now| core.handle_link(now, transceiver, backlog));
        });
    }

    /// Ends a session: its stream after what was queued, its seat by Release.
    pub(super) fn release(&mut self, request: ReleaseRequest) {
        self.sessions.remove(&(SessionId(request.session), Epoch(request.epoch)));
        let mut control = self.control.clone();
        spawn_local(async move {
            let _ = timeout(RELEASE_TIMEOUT, control.release(request)).await;
        });
    }
}

/// Keeps a link to one transceiver.
pub(super) async fn keep(
    shell: Rc<Shell>,
    endpoint: Endpoint,
    edge: EdgeId,
    transceiver: TransceiverId,
    address: SocketAddr,
) -> std::io::Result<()> {
    let mut backoff = FIRST_BACKOFF;
    loop {
        match endpoint.connect(address, transceiver).await {
            Ok(link) => match greet(&link, edge).await {
                Ok(control) => {
                    backoff = FIRST_BACKOFF;
                    let connected =
                        Connected { control, path: link.path(), link: link.clone(), sessions: BTreeMap::new() };
                    shell.with_links(|links| links.insert(transceiver, connected));
                    let lost = serve(&shell, transceiver, &link).await;
                    tracing::debug!(transceiver = transceiver.0, reason = %lost, "link lost");
                    shell.with_links(|links| links.remove(&transceiver));
                    shell.turn(|core, now| core.handle_link(now, transceiver, LinkInput::LinkLost));
                }
                Err(reason) => tracing::debug!(transceiver = transceiver.0, %reason, "no answer to Hello"),
            },
            Err(error) => tracing::debug!(transceiver = transceiver.0, %error, "no link"),
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// A link is up when Hello was answered: with TLS 1.3 a peer that refuses us does so after its side of the handshake. It
/// also has control ready before the first call, which would wait for it otherwise.
async fn greet(link: &Link, edge: EdgeId) -> Result<ControlClient, String> {
    let mut control = link.control();
    match timeout(HELLO_TIMEOUT, control.hello(hello(edge))).await {
        Ok(Ok(_)) => Ok(control),
        Ok(Err(status)) => Err(status.to_string()),
        Err(_) => Err("timeout".to_owned()),
    }
}

/// What this edge says of itself.
pub(super) fn hello(edge: EdgeId) -> HelloRequest {
    HelloRequest { edge: u32::from(edge.0), software: concat!("fronthaul/", env!("CARGO_PKG_VERSION")).to_owned() }
}

/// Takes what the transceiver opens, until the link is lost; its streams end with it.
async fn serve(shell: &Rc<Shell>, transceiver: TransceiverId, link: &Link) -> link::quic::LinkLost {
    let mut utterances = JoinSet::new();
    let (frames, path) =
        (direct(Rc::clone(shell), transceiver, link.clone()), follow(Rc::clone(shell), transceiver, link));
    utterances.spawn_local(daemon::counted(frames));
    utterances.spawn_local(daemon::counted(path));
    loop {
        tokio::select! {
            incoming = link.accept() => match incoming {
                Ok(Incoming::Utterance(header, frames)) => {
                    utterances.spawn_local(daemon::counted(utterance(Rc::clone(shell), transceiver, header, frames)));
                }
                // A transceiver opens nothing else; what it opens is dropped and so refused.
                Ok(Incoming::Control(_) | Incoming::Session(..)) => {}
                Err(lost) => return lost,
            },
            Some(_) = utterances.join_next() => {}
        }
    }
}

/// Frames that come by datagrams into the core: all that are here with one wake-up and in one turn.
async fn direct(shell: Rc<Shell>, transceiver: TransceiverId, link: Link) {
    let mut datagrams = Vec::with_capacity(DATAGRAMS_PER_TURN);
    while link.read_datagrams(DATAGRAMS_PER_TURN, &mut datagrams).await.is_ok() {
        shell.turn(|core, now| {
            for datagram in &datagrams {
                let mut give = |input| core.handle_link(now, transceiver, input);
                match parse(datagram) {
                    Ok(Batch::MediaDown { frames, .. }) => {
                        for frame in frames {
                            give(frame.map_or(LinkInput::Malformed, LinkInput::Direct));
                        }
                    }
                    // Heartbeats end in the link, and nothing else comes down.
                    Ok(Batch::MediaUp { .. } | Batch::Playout { .. } | Batch::Heartbeat(_)) | Err(_) => {
                        give(LinkInput::Malformed);
                    }
                }
            }
        });
        datagrams.clear();
        yield_now().await;
    }
}

/// Tells the core how the path is to be used, now and whenever that changes.
fn follow(shell: Rc<Shell>, transceiver: TransceiverId, link: &Link) -> impl Future<Output = ()> + use<> {
    let mut path = link.path();
    async move {
        let mut congested = false;
        loop {
            let state = *path.borrow_and_update();
            if state.is_congested() != congested {
                congested = state.is_congested();
                tracing::warn!(transceiver = transceiver.0, congested, closing = state.closing, "the path of a link");
            }
            shell.feed(|core, now| core.handle_link(now, transceiver, LinkInput::Path { repeat: state.repeat }));
            if path.changed().await.is_err() {
                return;
            }
        }
    }
}

/// How the paths of these links are.
pub(super) fn paths(links: &BTreeMap<TransceiverId, Connected>) -> Paths {
    let mut paths = Paths::default();
    for connected in links.values() {
        let state = *connected.path.borrow();
        paths.congested += u32::from(state.is_congested());
        paths.closing += u32::from(state.closing);
        paths.repeating += u32::from(state.repeat);
    }
    paths
}

/// One utterance stream into the core.
async fn utterance(shell: Rc<Shell>, transceiver: TransceiverId, header: UtteranceHeader, mut frames: UtteranceRx) {
    let _open = Open::one(&shell, |streams| &streams.utterances);
    let slot = Slot(header.slot);
    let epoch = Epoch(header.epoch).low8();
    let utterance = UtteranceId(header.utterance);
    shell.feed(|core, now| core.handle_link(now, transceiver, LinkInput::UtteranceStart(header)));
    while let Some(frame) = frames.recv().await {
        shell.feed(|core, now| {
            let (samples, payload) = (frame.samples, &frame.payload);
            core.handle_link(now, transceiver, LinkInput::UtteranceFrame { slot, epoch, utterance, samples, payload });
        });
    }
    shell.feed(|core, now| core.handle_link(now, transceiver, LinkInput::UtteranceEnd { slot, epoch, utterance }));
}

/// Asks a transceiver to take a session, and carries the session's stream from then on.
pub(super) fn open(
    shell: &Rc<Shell>,
    transceiver: TransceiverId,
    connected: Option<&Connected>,
    mut request: OpenRequest,
) {
    let shell = Rc::clone(shell);
    request.set_downlink(match shell.downlink {
        Downlink::Stream => link::proto::Downlink::Stream,
        Downlink::Datagram => link::proto::Downlink::Datagram,
    });
    let session = SessionId(request.session);
    let epoch = Epoch(request.epoch);
    let way = connected.map(|c| (c.link.clone(), c.control.clone()));
    spawn_local(async move {
        let opened = match way {
            Some((link, control)) => open_session(&link, control, request).await,
            None => Err("there is no link to it".to_owned()),
        };
        match opened {
            Ok((slot, tx, rx, link)) => session_stream(shell, transceiver, link, (session, epoch), slot, tx, rx).await,
            Err(reason) => {
                tracing::info!(call = %session, transceiver = transceiver.0, %reason, "open failed");
                let failed = LinkInput::OpenFailed { session, epoch, reason: &reason };
                shell.turn(|core, now| core.handle_link(now, transceiver, failed));
            }
        }
    });
}

type Opened = (Slot, SessionTx<EdgeMessage>, SessionRx<link::proto::TransceiverMessage>, u64);

async fn open_session(link: &Link, mut control: ControlClient, request: OpenRequest) -> Result<Opened, String> {
    let (session, epoch) = (request.session, request.epoch);
    let opening = async {
        let slot = control.open(request).await.map_err(|status| status.to_string())?.into_inner().slot;
        let header = SessionHeader { session, epoch, slot, ..SessionHeader::default() };
        let (tx, rx) = link.open_session(&header).await.map_err(|error| error.to_string())?;
        Ok((Slot(slot), tx, rx, link.id()))
    };
    timeout(OPEN_TIMEOUT, opening).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

/// Both directions of a session's stream, until the session is released or the stream ends.
async fn session_stream(
    shell: Rc<Shell>,
    transceiver: TransceiverId,
    link: u64,
    (session, epoch): (SessionId, Epoch),
    slot: Slot,
    mut tx: SessionTx<EdgeMessage>,
    mut rx: SessionRx<link::proto::TransceiverMessage>,
) {
    let _open = Open::one(&shell, |streams| &streams.sessions);
    let (messages, mut outgoing) = mpsc::channel(OUTBOX_MESSAGES);
    let waiting_bytes = Rc::new(std::cell::Cell::new(0));
    let outbox = Outbox { messages, waiting_bytes: Rc::clone(&waiting_bytes) };
    let entered = shell.with_links(|links| match links.get_mut(&transceiver).filter(|c| c.link.id() == link) {
        Some(connected) => {
            connected.sessions.insert((session, epoch), outbox);
            true
        }
        None => false,
    });
    if !entered {
        return;
    }
    if let Some(entry) = shell.directory.get(session) {
        entry.placed(transceiver);
    }
    shell.turn(|core, now| core.handle_link(now, transceiver, LinkInput::Opened { session, epoch, slot }));
    // Both at once: each end must read while it writes, or two full windows wait for one another.
    let write = async {
        while let Some(message) = outgoing.recv().await {
            waiting_bytes.set(waiting_bytes.get().saturating_sub(size(&message)));
            if tx.send(&message).await.is_err() {
                return false;
            }
        }
        tx.finish();
        true
    };
    let read = async {
        while let Ok(Some(message)) = rx.recv().await {
            let input = LinkInput::Message { session, epoch, message };
            shell.turn(|core, now| core.handle_link(now, transceiver, input));
        }
    };
    let released = tokio::select! {
        released = write => released,
        () = read => false,
    };
    if released {
        return;
    }
    shell.with_links(|links| {
        if let Some(connected) = links.get_mut(&transceiver).filter(|c| c.link.id() == link) {
            connected.sessions.remove(&(session, epoch));
        }
    });
    shell.turn(|core, now| core.handle_link(now, transceiver, LinkInput::SessionLost { session, epoch }));
}

/// What a message costs while it waits.
fn size(message: &EdgeMessage) -> usize {
    64 + payload_bytes(message)
}

/// One more open stream, for as long as it lives.
struct Open {
    shell: Rc<Shell>,
    which: fn(&super::worker::Streams) -> &std::cell::Cell<u32>,
}

impl Open {
    fn one(shell: &Rc<Shell>, which: fn(&super::worker::Streams) -> &std::cell::Cell<u32>) -> Self {
        let counter = which(&shell.streams);
        counter.set(counter.get() + 1);
        Self { shell: Rc::clone(shell), which }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let counter = (self.which)(&self.shell.streams);
        counter.set(counter.get().saturating_sub(1));
    }
}
