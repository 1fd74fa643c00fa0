//! Numbers and keys of a QUIC endpoint, with the arithmetic behind them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Once};
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use quinn_proto::congestion::{CubicConfig, NewRenoConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use socket2::{Domain, Protocol, Socket, Type};

use super::controller::VoiceControllerFactory;
use super::error::EndpointError;
use super::path::Path;
use crate::identity::NodeIdentity;

/// Application protocol of the handshake.
pub const ALPN: &[u8] = b"fronthaul/1";

/// Sessions that one link is laid out for. Not an admission limit: those are seats.
pub const SESSIONS_PER_LINK: u32 = 1024;

/// Interval of QUIC's own pings. Three may be lost before a link times out.
pub const KEEP_ALIVE: Duration = Duration::from_millis(250);

/// Silence after which QUIC gives a link up: a backstop, twice [`super::SILENCE`]. 8 keep-alives.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Concurrent streams of one kind: a session may have its next stream open while the former one drains, and control
/// and bursts of refused ones need some: 2 x 1024 + 64.
const STREAMS: u32 = 2 * SESSIONS_PER_LINK + 64;

/// Unread bytes of one stream. One second of speech ahead at 64 kbit/s in 20 ms frames is 50 x (160 + 8) = 8.4 kB; this
/// is 7 times that, so a stream stalls for its own reader only.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Unread bytes of all streams: 1024 sessions x 16 KiB, twice what all of them may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = SESSIONS_PER_LINK * 16 * 1024;

/// Datagrams that wait for quinn's driver; the oldest gives way. 40 ms of 240 speaking sessions: 240 x 50/s x 135 B x
/// 0.04 s = 64.8 kB, and seven receive batches of 64 frames at once. What is older than that is better lost.
pub(super) const DATAGRAM_SEND_BYTES: usize = 64 * 1024;

/// Datagrams that wait for their reader; the oldest gives way. 40 ms of 1024 speaking sessions:
/// 1024 x 50/s x 135 B x 0.04 s = 276 kB.
const DATAGRAM_RECEIVE_BYTES: usize = 276 * 1024;

/// Kernel buffers of the socket. The default, about 208 KiB, holds 256 small packets; this holds 5000, 100 ms at 50 k/s.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Handshakes kept by quinn before they are accepted; the sum of their first packets is bounded beside it.
const PENDING_HANDSHAKES: usize = 1024;
const PENDING_HANDSHAKE_BYTES: u64 = 4 * 1024 * 1024;

/// What the edge asks of its dialed transceivers, and what it gives them: utterance streams.
pub(super) fn client(identity: &NodeIdentity) -> Result<ClientConfig, EndpointError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = TransceiverVerifier { roots: Arc::clone(identity.roots()), provider: Arc::clone(&provider) };
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(vec![identity.certificate().clone()], identity.key().clone_key())?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(|_| EndpointError::Cipher)?;
    Ok(ClientConfig::new(Arc::new(crypto)))
}

/// The transport of one dialed link.
pub(super) fn client_transport(controller: Controller, path: &Arc<Path>) -> Arc<TransportConfig> {
    let mut transport = transport(controller, path);
    transport.max_concurrent_uni_streams(VarInt::from_u32(STREAMS)).max_concurrent_bidi_streams(VarInt::from_u32(0));
    Arc::new(transport)
}

/// What the transceiver asks of edges, and what it gives them: control and session streams.
pub(super) fn server(identity: &NodeIdentity) -> Result<ServerConfig, EndpointError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(identity.roots()), Arc::clone(&provider)).build()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate().clone()], identity.key().clone_key())?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).map_err(|_| EndpointError::Cipher)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.max_incoming(PENDING_HANDSHAKES).incoming_buffer_size_total(PENDING_HANDSHAKE_BYTES);
    Ok(config)
}

/// The transport of one link that an edge dialed.
pub(super) fn server_transport(controller: Controller, path: &Arc<Path>) -> Arc<TransportConfig> {
    let mut transport = transport(controller, path);
    transport.max_concurrent_uni_streams(VarInt::from_u32(0)).max_concurrent_bidi_streams(VarInt::from_u32(STREAMS));
    Arc::new(transport)
}

/// Both keys come from files, so that a process that takes a dead one's place resets the dead one's links at once
/// (RFC 9000 §10.3) instead of leaving its peers to their idle timeouts.
pub(super) fn endpoint(identity: &NodeIdentity) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(identity.reset_key()));
    let cid_key = identity.cid_key();
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(cid_key)));
    config
}

/// What decides how much of a link's load is under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Controller {
    /// [`super::VoiceController`].
    #[default]
    Voice,
    /// What QUIC stacks use by default, for comparison.
    Cubic,
    /// The controller of RFC 9002, for comparison.
    NewReno,
}

fn transport(controller: Controller, path: &Arc<Path>) -> TransportConfig {
    // A tenth of the acknowledgements for a sixth of the CPU; 20 ms is far below what the loss rules wait for.
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(10)).max_ack_delay(Some(Duration::from_millis(20)));
    let idle_ms = VarInt::from_u32(u32::try_from(IDLE_TIMEOUT.as_millis()).unwrap_or(u32::MAX));

    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(IdleTimeout::from(idle_ms)))
        .keep_alive_interval(Some(KEEP_ALIVE))
        // Three probe timeouts of a first, unanswered packet then end before the idle timeout does: 3 x 3 x 100 ms.
        .initial_rtt(Duration::from_millis(100))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(CONNECTION_WINDOW_BYTES.into())
        .datagram_send_buffer_size(DATAGRAM_SEND_BYTES)
        .datagram_receive_buffer_size(Some(DATAGRAM_RECEIVE_BYTES))
        .ack_frequency_config(Some(acks));
    match controller {
        Controller::Voice => {
            config.congestion_controller_factory(Arc::new(VoiceControllerFactory(Arc::clone(path))));
        }
        Controller::Cubic => {
            config.congestion_controller_factory(Arc::new(CubicConfig::default()));
        }
        Controller::NewReno => {
            config.congestion_controller_factory(Arc::new(NewRenoConfig::default()));
        }
    }
    config
}

/// A bound socket with room for a burst. The kernel caps the buffers silently: what it gave is looked at.
pub(super) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    static WARNED: Once = Once::new();
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    let (receive_bytes, send_bytes) = (socket.recv_buffer_size()?, socket.send_buffer_size()?);
    // Linux doubles what it grants, for its own bookkeeping.
    if receive_bytes.min(send_bytes) < SOCKET_BUFFER_BYTES {
        WARNED.call_once(|| {
            tracing::warn!(
                receive_bytes,
                send_bytes,
                "the kernel gives links small socket buffers; raise net.core.rmem_max and net.core.wmem_max to {}",
                SOCKET_BUFFER_BYTES,
            );
        });
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Accepts what the authority vouches for. There is no host name to compare: which node it is, its SPIFFE id says, and
/// every [`super::Link`] is made from that.
#[derive(Debug)]
struct TransceiverVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for TransceiverVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
