//! How endpoints, links and streams end.

use quinn::{ConnectionError, ReadError, WriteError};

use super::Peer;
use super::close_code;

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The socket could not be bound, or registered with the runtime.
    #[error("cannot use {address} for the link: {source}")]
    Socket {
        /// Which address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The node's certificate and key are of no use.
    #[error("the certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The node trusts nobody.
    #[error("the authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// The TLS library lacks the cipher suite that QUIC begins with (RFC 9001 §5.2).
    #[error("TLS without AES-128-GCM cannot serve QUIC")]
    Cipher,
}

/// Why there is no link to a transceiver.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address, or this endpoint, cannot be used.
    #[error("cannot dial: {0}")]
    Dial(#[from] quinn::ConnectError),
    /// The handshake failed, or was not answered.
    #[error("no link: {0}")]
    Handshake(LinkLost),
    /// Somebody else is there.
    #[error("wanted {wanted}, found {}", .found.map_or_else(|| "a node without an id".to_owned(), |found| found.to_string()))]
    WrongPeer {
        /// Who should be there.
        wanted: Peer,
        /// Who is, by its certificate.
        found: Option<Peer>,
    },
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkLost {
    /// The peer closed it in good order.
    #[error("closed by the peer: {reason}")]
    ClosedByPeer {
        /// What the peer gave as reason.
        reason: String,
    },
    /// The peer's certificate names nobody that may be here, or this one's did to the peer.
    #[error("refused: {reason}")]
    Refused {
        /// Which name is wrong.
        reason: String,
    },
    /// Nothing was heard from the peer for [`super::SILENCE`].
    #[error("timed out")]
    TimedOut,
    /// The peer's process restarted and knows nothing of this link (stateless reset).
    #[error("the peer restarted")]
    PeerRestarted,
    /// Closed on this side.
    #[error("closed here")]
    ClosedHere,
    /// The handshake or the protocol failed.
    #[error("{reason}")]
    Failed {
        /// What TLS or QUIC says.
        reason: String,
    },
}

impl From<ConnectionError> for LinkLost {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                if close.error_code == close_code::WRONG_PEER.into() {
                    Self::Refused { reason }
                } else {
                    Self::ClosedByPeer { reason }
                }
            }
            ConnectionError::TimedOut => Self::TimedOut,
            ConnectionError::Reset => Self::PeerRestarted,
            ConnectionError::LocallyClosed => Self::ClosedHere,
            other => Self::Failed { reason: other.to_string() },
        }
    }
}

/// Why a stream gives or takes no more messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The link is gone, and all its streams with it.
    #[error("link lost: {0}")]
    Lost(#[from] LinkLost),
    /// The peer gave it up: what was not yet read is gone.
    #[error("reset by the peer with code {0}")]
    Reset(u64),
    /// The peer reads no more of it.
    #[error("stopped by the peer with code {0}")]
    Stopped(u64),
    /// It ended within a message.
    #[error("ended within a message")]
    Truncated,
    /// A message longer than the bound.
    #[error("a message of {bytes} bytes, {limit} at most")]
    Oversize {
        /// Its length, as far as it was read.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A message that protobuf cannot read.
    #[error("malformed message")]
    Malformed,
    /// It was finished, or failed, before.
    #[error("already ended")]
    Ended,
}

impl From<ReadError> for StreamError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Reset(code.into()),
            ReadError::ConnectionLost(error) => Self::Lost(error.into()),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => Self::Ended,
        }
    }
}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stopped(code.into()),
            WriteError::ConnectionLost(error) => Self::Lost(error.into()),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::Ended,
        }
    }
}
