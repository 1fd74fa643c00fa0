//! Where a gRPC backend is, and the connection that its calls share.
//!
//! Keep-alive. No HTTP/2 pings are sent: servers of gRPC take more than two in five minutes without data for an attack (`too_many_pings`), and calls send
//! audio all the time. A peer that is gone is noticed by TCP: what was sent is answered within [`UNANSWERED`], and a connection without calls is
//! probed by the kernel. Where TCP is answered by something between that forwards nothing any more, a stream that is not ready in time, or takes
//! nothing for a while, is left, and the next one gets a [new connection](Endpoint::renew).
//!
//! Windows. A stream may hold [`STREAM_WINDOW`] that its call does not read; the connection's own window is that of [`CALLS`] streams, so that no
//! number of such calls stops the others.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use super::proto::backend_client::BackendClient;

/// Sent and not acknowledged for this long, the connection is over.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Of a connection on which nothing is sent.
const PROBE: Duration = Duration::from_secs(15);

/// Bytes of one stream's outputs on the way: 5 s of PCM at 24 kHz.
const STREAM_WINDOW: u32 = 256 << 10;

/// Calls of one transceiver.
const CALLS: u32 = 1024;

/// What a certificate begins with.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Largest output: a piece of speech of 20 s at 24 kHz.
const OUTPUT_MAX: usize = (1 << 20) + (64 << 10);

/// Where a backend is; clones share its connection.
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

struct Inner {
    endpoint: tonic::transport::Endpoint,
    authorization: Option<MetadataValue<Ascii>>,
    channel: Mutex<Option<Channel>>,
}

/// Why an endpoint is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEndpoint {
    /// It is no `http://host:port` or `https://host:port`.
    Url,
    /// The key has characters that no header has.
    Key,
    /// The certificates cannot be read.
    Certificates,
}

impl Endpoint {
    /// `url`: `http://host:port` or `https://host:port`; `key`: sent as `authorization: Bearer`; `roots`: certificates (PEM) that `https` is
    /// checked by.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn new(url: &str, key: Option<&str>, roots: &[u8]) -> Result<Self, BadEndpoint> {
        let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).map_err(|_| BadEndpoint::Url)?;
        let uri = endpoint.uri();
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(BadEndpoint::Url),
        };
        if uri.host().is_none() || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(BadEndpoint::Url);
        }
        let mut endpoint =
            endpoint.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(STREAM_WINDOW * CALLS);
        if secure {
            // The library looks at them when it connects.
            if !roots.windows(PEM.len()).any(|part| part == PEM) {
                return Err(BadEndpoint::Certificates);
            }
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots));
            endpoint = endpoint.tls_config(tls).map_err(|_| BadEndpoint::Certificates)?;
        }
        let authorization = key.map(|key| format!("Bearer {key}").parse()).transpose().map_err(|_| BadEndpoint::Key)?;
        let authorization = authorization.map(|mut value: MetadataValue<Ascii>| {
            value.set_sensitive(true);
            value
        });
        Ok(Self(Arc::new(Inner { endpoint, authorization, channel: Mutex::new(None) })))
    }

    /// A client over the connection, which is made when it is first needed and again when it broke. To be called in a runtime.
    #[must_use]
    pub fn client(&self) -> BackendClient<Channel> {
        let mut held = self.channel();
        let channel = held.get_or_insert_with(|| {
            let mut connector = HttpConnector::new();
            connector.enforce_http(false);
            connector.set_nodelay(true);
            connector.set_keepalive(Some(PROBE));
            connector.set_keepalive_interval(Some(PROBE / 3));
            connector.set_keepalive_retries(Some(3));
            connector.set_tcp_user_timeout(Some(UNANSWERED));
            self.0.endpoint.connect_with_connector_lazy(connector)
        });
        BackendClient::new(channel.clone()).max_decoding_message_size(OUTPUT_MAX)
    }

    /// The next stream gets a connection of its own: on this one nobody answers. Streams on it go on.
    pub(crate) fn renew(&self) {
        *self.channel() = None;
    }

    fn channel(&self) -> MutexGuard<'_, Option<Channel>> {
        self.0.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn request<T>(&self, inputs: T) -> Request<T> {
        let mut request = Request::new(inputs);
        if let Some(authorization) = &self.0.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }
}

/// Without the key.
impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Endpoint({})", self.0.endpoint.uri())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_hosts_alone() {
        for (url, outcome) in [
            ("http://127.0.0.1:50051", None),
            ("http://[::1]:50051/", None),
            ("http://backend", None),
            ("https://backend.example:443", Some(BadEndpoint::Certificates)),
            ("127.0.0.1:50051", Some(BadEndpoint::Url)),
            ("ws://127.0.0.1:50051", Some(BadEndpoint::Url)),
            ("http://127.0.0.1:50051/path", Some(BadEndpoint::Url)),
            ("http://127.0.0.1:50051/?x", Some(BadEndpoint::Url)),
            ("", Some(BadEndpoint::Url)),
        ] {
            assert_eq!(Endpoint::new(url, None, b"no certificate").err(), outcome, "{url}");
        }
    }

    #[test]
    fn the_key_is_in_no_log_and_has_no_line_ends() {
        let endpoint = Endpoint::new("http://127.0.0.1:1", Some("word"), &[]).unwrap();
        assert!(!format!("{endpoint:?} {:?}", endpoint.request(())).contains("word"));
        assert_eq!(endpoint.request(()).metadata().get("authorization").unwrap(), "Bearer word");
        assert_eq!(Endpoint::new("http://127.0.0.1:1", Some("a\r\nb"), &[]).err(), Some(BadEndpoint::Key));
    }
}
