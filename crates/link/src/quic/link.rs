//! One warm connection between an edge worker and a transceiver.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::Bytes;
use quinn::{Connection, SendDatagramError, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::error::{LinkLost, StreamError};
use super::framing::{MessageReader, MessageWriter};
use super::incoming::{Incoming, identify};
use super::session::{SessionRx, SessionTx};
use super::stats::{Counts, LinkStats};
use super::stream::ConnectInfo;
use super::utterance::UtteranceTx;
use super::{MAX_SESSION_MESSAGE_BYTES, MAX_UTTERANCE_FRAME_BYTES, Peer, VoiceController, close_code, kind};
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
    control: OnceLock<TransceiverClient<Channel>>,
    /// Streams whose header is on its way: at most as many as the peer may open, each for the header timeout.
    opening: Mutex<JoinSet<Option<Incoming>>>,
}

impl Link {
    /// Makes a link of a connection whose handshake is done, if its certificate names one of our nodes.
    pub(super) fn new(connection: Connection) -> Result<Self, Connection> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(peer) = peer_of(&connection) else { return Err(connection) };
        let info = ConnectInfo { peer, link: NEXT.fetch_add(1, Ordering::Relaxed) };
        let (counts, control, opening) = Default::default();
        Ok(Self { inner: Arc::new(Inner { connection, info, counts, control, opening }) })
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
    /// Queue all that a turn of the loop has and then yield: quinn packs what it finds when its driver runs.
    pub fn send_datagram(&self, datagram: Bytes) {
        let connection = &self.inner.connection;
        if connection.datagram_send_buffer_space() < datagram.len() {
            self.inner.counts.datagrams_crowded.add_one();
        }
        match connection.send_datagram(datagram) {
            Ok(()) => {}
            Err(
                SendDatagramError::TooLarge
                | SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::ConnectionLost(_),
            ) => self.inner.counts.datagrams_refused.add_one(),
        }
    }

    /// The next datagram. Cancel safe.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn read_datagram(&self) -> Result<Bytes, LinkLost> {
        Ok(self.inner.connection.read_datagram().await?)
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
                    let (send, recv) = stream?;
                    (Some(send), recv)
                }
                stream = connection.accept_uni() => (None, stream?),
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
        self.inner.connection.closed().await.into()
    }

    /// Why it ended; `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<LinkLost> {
        self.inner.connection.close_reason().map(LinkLost::from)
    }

    /// Ends the link at once; the peer is told the reason if the path still takes a packet.
    pub fn close(&self, reason: &str) {
        self.inner.connection.close(VarInt::from_u32(close_code::DONE), reason.as_bytes());
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        let Inner { connection, counts, .. } = &*self.inner;
        let stats = connection.stats();
        let controller = connection.congestion_state().into_any().downcast::<VoiceController>();
        LinkStats {
            rtt: stats.path.rtt,
            min_rtt: stats.path.min_rtt,
            mtu: stats.path.current_mtu,
            congested: controller.is_ok_and(|controller| controller.is_congested()),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            datagrams_sent: stats.frame_tx.datagram,
            datagrams_received: stats.frame_rx.datagram,
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
