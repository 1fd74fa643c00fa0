//! What a stream that the peer opened turns out to be.

use std::sync::Arc;
use std::time::Duration;

use quinn::{RecvStream, SendStream, VarInt};

use super::error::StreamError;
use super::framing::{MessageReader, MessageWriter};
use super::session::{SessionRx, SessionTx};
use super::stats::Counts;
use super::stream::{ConnectInfo, QuicStream};
use super::utterance::UtteranceRx;
use super::{MAX_HEADER_BYTES, MAX_SESSION_MESSAGE_BYTES, MAX_UTTERANCE_FRAME_BYTES, kind, stream_code};
use crate::proto::{EdgeMessage, SessionHeader, TransceiverMessage, UtteranceHeader};

/// A header is sent with the stream's first packet; this leaves room for losing it three times at 250 ms of round trip.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// A stream that the peer opened, its header read.
#[derive(Debug)]
pub enum Incoming {
    /// At a transceiver: gRPC, for [`crate::grpc::serve`].
    Control(QuicStream),
    /// At a transceiver: the messages of a session.
    Session(SessionHeader, SessionTx<TransceiverMessage>, SessionRx<EdgeMessage>),
    /// At an edge: the audio of an utterance.
    Utterance(UtteranceHeader, UtteranceRx),
}

/// Reads the header. `None`: the stream was refused and counted, or is gone.
pub(super) async fn identify(
    send: Option<SendStream>,
    recv: RecvStream,
    info: ConnectInfo,
    counts: Arc<Counts>,
) -> Option<Incoming> {
    let mut reader = MessageReader::new(recv, MAX_HEADER_BYTES, Arc::clone(&counts));
    let header = tokio::time::timeout(HEADER_TIMEOUT, read_header(&mut reader, send.is_some())).await;
    let refusal = match header {
        Ok(Ok(Header::Control)) => {
            let (early, recv) = reader.into_parts();
            return Some(Incoming::Control(QuicStream::new(send?, recv, early, info)));
        }
        Ok(Ok(Header::Session(header))) => {
            reader.set_limit(MAX_SESSION_MESSAGE_BYTES);
            let writer = MessageWriter::new(send?, MAX_SESSION_MESSAGE_BYTES);
            return Some(Incoming::Session(header, SessionTx::new(writer), SessionRx::new(reader)));
        }
        Ok(Ok(Header::Utterance(header))) => {
            reader.set_limit(MAX_UTTERANCE_FRAME_BYTES);
            return Some(Incoming::Utterance(header, UtteranceRx::new(reader)));
        }
        Ok(Ok(Header::Unknown)) => {
            counts.streams_unknown.add_one();
            stream_code::UNKNOWN_KIND
        }
        // The reader has counted it.
        Ok(Err(_)) => stream_code::MALFORMED,
        Err(_) => {
            counts.streams_silent.add_one();
            stream_code::NO_HEADER
        }
    };
    reader.stop(refusal);
    if let Some(mut send) = send {
        let _ = send.reset(VarInt::from_u32(refusal));
    }
    None
}

enum Header {
    Control,
    Session(SessionHeader),
    Utterance(UtteranceHeader),
    Unknown,
}

async fn read_header(reader: &mut MessageReader, bidirectional: bool) -> Result<Header, StreamError> {
    match (reader.kind().await?, bidirectional) {
        (Some(kind::CONTROL), true) => Ok(Header::Control),
        (Some(kind::SESSION), true) => Ok(Header::Session(reader.message().await?.ok_or(StreamError::Truncated)?)),
        (Some(kind::UTTERANCE), false) => Ok(Header::Utterance(reader.message().await?.ok_or(StreamError::Truncated)?)),
        _ => Ok(Header::Unknown),
    }
}
