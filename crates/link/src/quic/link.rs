//! One warm connection between an edge worker and a transceiver.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, SendDatagramError, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::error::{LinkLost, StreamError};
use super::framing::{MessageReader, MessageWriter};
use super::incoming::{Incoming, identify};
use super::path::{Path, PathState};
use super::pulse::{BEAT, Pulse, heard};
use super::queue::MediaQueue;
use super::session::{SessionRx, SessionTx};
use super::stats::{Counts, LinkStats};
use super::stream::ConnectInfo;
use super::utterance::UtteranceTx;
use super::{MAX_SESSION_MESSAGE_BYTES, MAX_UTTERANCE_FRAME_BYTES, Peer, clock32_at, close_code, kind};
use crate::datagram::{Batch, is_heartbeat, parse};
use crate::grpc;
use crate::proto::transceiver_client::TransceiverClient;
use crate::proto::{EdgeMessage, SessionHeader, TransceiverMessage, UtteranceHeader};

/// Session messages go before audio that is sent ahead of its time; control goes before both.
const CONTROL_PRIORITY: i32 = 2;
const SESSION_PRIORITY: i32 = 1;

/// A connection whose peer is known. Clones are the same link; with the last of them it closes, streams or not.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    info: ConnectInfo,
    counts: Arc<Counts>,
    path: Arc<Path>,
    pulse: StdMutex<Pulse>,
    /// Used while the path's window is closing.
    queue: StdMutex<MediaQueue>,
    /// Closed because nothing was heard.
    silent: AtomicBool,
    /// Room in quinn's queue when nothing is in it.
    empty_queue_bytes: usize,
    control: OnceLock<TransceiverClient<Channel>>,
    /// Streams whose header is on its way: at most as many as the peer may open, each for the header timeout.
    opening: Mutex<JoinSet<Option<Incoming>>>,
}

impl Link {
    /// Makes a link of a connection whose handshake is done, if its certificate names one of our nodes.
    pub(super) fn new(connection: Connection, path: Arc<Path>) -> Result<Self, Connection> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(peer) = peer_of(&connection) else { return Err(connection) };
        let info = ConnectInfo { peer, link: NEXT.fetch_add(1, Ordering::Relaxed) };
        let (counts, queue, silent, control, opening) = Default::default();
        let empty_queue_bytes = connection.datagram_send_buffer_space();
        let pulse = StdMutex::new(Pulse::new(Instant::now()));
        let inner = Inner { connection, info, counts, path, pulse, queue, silent, empty_queue_bytes, control, opening };
        let inner = Arc::new(inner);
        tokio::spawn(keep_pulse(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.inner.info.peer
    }

    /// Names this link in this process: no other one has it, or had it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.info.link
    }

    /// Where the peer is.
    #[must_use]
    pub fn remote_addr(&self) -> SocketAddr {
        self.inner.connection.remote_address()
    }

    /// Queues a datagram. Never blocks: the oldest in the queue gives way, and one that cannot be sent is counted.
    ///
    /// Queue all that a turn of the loop has and then yield: quinn packs what it finds when its driver runs. While the
    /// path's window is closing, a datagram waits here for 60 ms at most.
    pub fn send_datagram(&self, datagram: Bytes) {
        if self.inner.path.is_closing() {
            let mut queue = lock(&self.inner.queue);
            let now = Instant::now();
            queue.push(now, datagram);
            self.inner.pump(now, &mut queue);
        } else {
            self.inner.send_now(datagram);
        }
    }

    /// The next datagram of media. Cancel safe.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn read_datagram(&self) -> Result<Bytes, LinkLost> {
        loop {
            let read = self.inner.connection.read_datagram().await;
            let datagram = read.map_err(|error| self.inner.lost(error))?;
            if let Some(media) = self.inner.sort(datagram) {
                return Ok(media);
            }
        }
    }

    /// Waits for datagrams of media and takes those that are here, `most` at most: one wake-up for all of them. Cancel safe.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn read_datagrams(&self, most: usize, datagrams: &mut Vec<Bytes>) -> Result<(), LinkLost> {
        datagrams.push(self.read_datagram().await?);
        let mut context = Context::from_waker(Waker::noop());
        while datagrams.len() < most {
            let next = pin!(self.inner.connection.read_datagram());
            let Poll::Ready(Ok(datagram)) = next.poll(&mut context) else { break };
            datagrams.extend(self.inner.sort(datagram));
        }
        Ok(())
    }

    /// How the path is; changes wake the receiver.
    #[must_use]
    pub fn path(&self) -> watch::Receiver<PathState> {
        self.inner.path.watch()
    }

    /// Microseconds that a batch was on its way, which was stamped `clock32` and is here at `now`: from the peer's
    /// heartbeats, or half a round trip before there are any.
    #[must_use]
    pub fn transit_us(&self, now: Instant, clock32: u32) -> u32 {
        let known = lock(&self.inner.pulse).transit_us(clock32_at(now), clock32);
        known.unwrap_or_else(|| u32::try_from(self.inner.connection.rtt().as_micros() / 2).unwrap_or(u32::MAX))
    }

    /// Opens the stream of a session, at an edge.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn open_session(
        &self,
        header: &SessionHeader,
    ) -> Result<(SessionTx<EdgeMessage>, SessionRx<TransceiverMessage>), StreamError> {
        let (send, recv) = self.inner.connection.open_bi().await.map_err(LinkLost::from)?;
        // Fails on streams that are stopped alone, which the first write reports.
        let _ = send.set_priority(SESSION_PRIORITY);
        let writer = MessageWriter::open(send, MAX_SESSION_MESSAGE_BYTES, kind::SESSION, header).await?;
        let reader = MessageReader::new(recv, MAX_SESSION_MESSAGE_BYTES, Arc::clone(&self.inner.counts));
        Ok((SessionTx::new(writer), SessionRx::new(reader)))
    }

    /// Opens the stream of an utterance, at a transceiver.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn open_utterance(&self, header: &UtteranceHeader) -> Result<UtteranceTx, StreamError> {
        let send = self.inner.connection.open_uni().await.map_err(LinkLost::from)?;
        let writer = MessageWriter::open(send, MAX_UTTERANCE_FRAME_BYTES, kind::UTTERANCE, header).await?;
        Ok(UtteranceTx::new(writer))
    }

    /// The next stream that the peer opened, once its header is here: a stream without one holds up no other. Streams
    /// come in the order of their headers. Cancel safe.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn accept(&self) -> Result<Incoming, LinkLost> {
        let Inner { connection, info, counts, opening, .. } = &*self.inner;
        let mut opening = opening.lock().await;
        loop {
            // Streams that came before the end are still queued after it, and of no use.
            if let Some(lost) = self.close_reason() {
                return Err(lost);
            }
            let (send, recv) = tokio::select! {
                biased;
                Some(identified) = opening.join_next() => {
                    if let Ok(Some(incoming)) = identified {
                        return Ok(incoming);
                    }
                    continue;
                }
                stream = connection.accept_bi() => {
                    let (send, recv) = stream.map_err(|error| self.inner.lost(error))?;
                    (Some(send), recv)
                }
                stream = connection.accept_uni() => (None, stream.map_err(|error| self.inner.lost(error))?),
            };
            // Mostly the header has come with the stream: no task then, and streams keep their order.
            let mut identified = Box::pin(identify(send, recv, *info, Arc::clone(counts)));
            match poll_fn(|cx| Poll::Ready(identified.as_mut().poll(cx))).await {
                Poll::Ready(Some(incoming)) => return Ok(incoming),
                Poll::Ready(None) => {}
                Poll::Pending => drop(opening.spawn(identified)),
            }
        }
    }

    /// The client of the transceiver's gRPC service, at an edge. Its stream opens with the first call; its calls fail
    /// with the link. Clones of it share the stream.
    #[must_use]
    pub fn control(&self) -> TransceiverClient<Channel> {
        let Inner { connection, info, control, .. } = &*self.inner;
        control.get_or_init(|| TransceiverClient::new(grpc::channel(connection.clone(), *info))).clone()
    }

    /// Waits for the end.
    pub async fn closed(&self) -> LinkLost {
        self.inner.lost(self.inner.connection.closed().await)
    }

    /// Why it ended; `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<LinkLost> {
        self.inner.connection.close_reason().map(|error| self.inner.lost(error))
    }

    /// Ends the link at once; the peer is told the reason if the path still takes a packet.
    pub fn close(&self, reason: &str) {
        self.inner.connection.close(VarInt::from_u32(close_code::DONE), reason.as_bytes());
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        let Inner { connection, counts, path, queue, .. } = &*self.inner;
        let stats = connection.stats();
        let state = path.state();
        LinkStats {
            rtt: stats.path.rtt,
            min_rtt: stats.path.min_rtt,
            mtu: stats.path.current_mtu,
            congested: state.congested,
            closing: state.closing,
            repeating: state.repeat,
            loss_ppm: path.loss_ppm(),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            datagrams_sent: stats.frame_tx.datagram,
            datagrams_received: stats.frame_rx.datagram,
            datagrams_late: lock(queue).dropped,
            datagrams_crowded: counts.datagrams_crowded.get(),
            datagrams_refused: counts.datagrams_refused.get(),
            streams_unknown: counts.streams_unknown.get(),
            streams_silent: counts.streams_silent.get(),
            messages_malformed: counts.messages_malformed.get(),
            messages_oversize: counts.messages_oversize.get(),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id()).field("peer", &self.peer()).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Link {
    /// What a peer that does not behave would use.
    pub(super) fn connection(&self) -> &Connection {
        &self.inner.connection
    }
}

impl Inner {
    /// Why the link ended.
    fn lost(&self, error: ConnectionError) -> LinkLost {
        match error {
            ConnectionError::LocallyClosed if self.silent.load(Ordering::Relaxed) => LinkLost::TimedOut,
            error => error.into(),
        }
    }

    fn send_now(&self, datagram: Bytes) {
        if self.connection.datagram_send_buffer_space() < datagram.len() {
            self.counts.datagrams_crowded.add_one();
        }
        match self.connection.send_datagram(datagram) {
            Ok(()) => {}
            Err(
                SendDatagramError::TooLarge
                | SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::ConnectionLost(_),
            ) => self.counts.datagrams_refused.add_one(),
        }
    }

    /// Gives quinn one datagram, if it has none and the path takes it at once; all of them when the window is open again.
    fn pump(&self, now: Instant, queue: &mut MediaQueue) {
        while !queue.is_empty() {
            let closing = self.path.is_closing();
            let idle = self.connection.datagram_send_buffer_space() >= self.empty_queue_bytes;
            if closing && !(idle && self.path.has_room()) {
                return;
            }
            let Some(datagram) = queue.pop(now) else { return };
            self.send_now(datagram);
        }
    }

    /// Keeps heartbeats, gives back the rest.
    fn sort(&self, datagram: Bytes) -> Option<Bytes> {
        if !is_heartbeat(&datagram) {
            return Some(datagram);
        }
        // One that cannot be read goes to whoever counts such.
        let Ok(Batch::Heartbeat(beat)) = parse(&datagram) else { return Some(datagram) };
        let now = Instant::now();
        let mut pulse = lock(&self.pulse);
        pulse.handle(now, clock32_at(now), &beat);
        let congested = pulse.peer_congested();
        drop(pulse);
        self.path.change(|state| state.peer_congested = congested);
        None
    }

    /// One beat; `false`: the peer is gone.
    fn beat(&self) -> bool {
        let heard = heard(self.connection.side(), &self.connection.stats());
        let now = Instant::now();
        let congested = self.path.state().congested;
        let beat = lock(&self.pulse).beat(now, clock32_at(now), heard, congested);
        match beat {
            Some(beat) => self.send_now(beat.encode()),
            None => {
                self.silent.store(true, Ordering::Relaxed);
                self.connection.close(VarInt::from_u32(close_code::SILENT), b"nothing heard");
            }
        }
        beat.is_some()
    }
}

/// Beats until the link is gone, and pumps what waits while its window closes.
async fn keep_pulse(link: Weak<Inner>) {
    /// A packet of control and one of media take longer than this on any path that has a closing window.
    const PUMP: Duration = Duration::from_millis(5);
    let mut next = Instant::now();
    loop {
        let Some(link) = link.upgrade() else { return };
        if link.connection.close_reason().is_some() {
            return;
        }
        let now = Instant::now();
        if now >= next {
            next = (next + BEAT).max(now);
            if !link.beat() {
                return;
            }
        }
        let waits = {
            let mut queue = lock(&link.queue);
            link.pump(now, &mut queue);
            !queue.is_empty()
        };
        let wake = if waits { (now + PUMP).min(next) } else { next };
        drop(link);
        tokio::time::sleep_until(wake.into()).await;
    }
}

/// What is behind these locks is whole after any panic: plain numbers and a queue.
fn lock<T>(mutex: &StdMutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Streams and the gRPC channel hold the connection too; the link's end is theirs.
        self.connection.close(VarInt::from_u32(close_code::DONE), b"dropped");
    }
}

/// Opens a control stream.
pub(crate) async fn open_control(connection: Connection, info: ConnectInfo) -> std::io::Result<super::QuicStream> {
    let (mut send, recv) = connection.open_bi().await?;
    let _ = send.set_priority(CONTROL_PRIORITY);
    send.write_all(&[kind::CONTROL]).await?;
    Ok(super::QuicStream::new(send, recv, Bytes::new(), info))
}

/// Who the peer's verified certificate says it is.
fn peer_of(connection: &Connection) -> Option<Peer> {
    let certificates = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Peer::from_certificate(certificates.first()?)
}
