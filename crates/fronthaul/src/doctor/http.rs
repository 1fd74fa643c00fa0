//! HTTP/1.1 over TCP or TLS, a connection per request: what a doctor asks for is a handful of them.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs::default_provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};

/// The longest answer that is read.
const ANSWER_MAX: u64 = 256 * 1024;

/// One edge.
pub(super) struct Client {
    host: String,
    port: u16,
    /// Host and port as the URL has them.
    authority: String,
    /// A line of each request's head, or nothing.
    authorization: String,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// A connection, in the clear or not.
pub(super) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

impl Client {
    /// # Errors
    /// The URL cannot be used, or the roots cannot be read.
    pub(super) fn new(
        url: &str,
        key: Option<String>,
        roots: &Path,
        insecure: bool,
        patience: Duration,
    ) -> Result<Self, String> {
        let authorization = key.map(|key| format!("Authorization: Bearer {}\r\n", key.trim())).unwrap_or_default();
        let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(format!("{url:?} is no URL of an edge: write https://host or http://host:port")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
        let default = if secure { 443 } else { 80 };
        let (host, port) = split(&authority, default).ok_or_else(|| format!("{url:?} names no host"))?;
        let tls = Some(trust(roots, insecure)?).filter(|_| secure);
        Ok(Self { host, port, authority, authorization, tls, patience })
    }

    /// What the connection is.
    pub(super) fn protocol(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http, which gives browsers no microphone beyond this machine" }
    }

    /// How certificates of other servers are judged.
    pub(super) fn trust(&self) -> Option<Arc<ClientConfig>> {
        self.tls.clone()
    }

    /// # Errors
    /// Why there is no answer.
    pub(super) fn post(&self, path: &str, content_type: &str, body: &str) -> Result<Answer, String> {
        let length = body.len();
        self.request(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\nContent-Type: {content_type}\r\n\
             Content-Length: {length}\r\n\r\n{body}",
            self.authority, self.authorization
        ))
    }

    /// Asks for a WebSocket (RFC 6455 §4.1).
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) fn upgrade(&self, path: &str) -> Result<Answer, String> {
        self.request(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{}Connection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.authority, self.authorization
        ))
    }

    fn request(&self, request: &str) -> Result<Answer, String> {
        let mut wire = connect(&self.host, self.port, self.tls.clone(), self.patience)?;
        let failed = |error: io::Error| format!("{}: {}", self.authority, reason(&error));
        wire.write_all(request.as_bytes()).and_then(|()| wire.flush()).map_err(failed)?;
        Answer::read(&mut wire).map_err(failed)
    }
}

/// Connects to a server, over TLS if there is a config for it.
///
/// # Errors
/// Why it is not reached.
pub(super) fn connect(
    host: &str,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
) -> Result<Box<dyn Wire>, String> {
    let addresses =
        (host, port).to_socket_addrs().map_err(|error| format!("{host} has no address: {error}"))?.collect::<Vec<_>>();
    let mut last = format!("{host} has no address");
    for address in addresses {
        let stream = match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => stream,
            Err(error) => {
                last = format!("{address}: {}", reason(&error));
                continue;
            }
        };
        let failed = |error: io::Error| format!("{address}: {}", reason(&error));
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(config) = tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a server"))?;
        let connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| format!("{address}: TLS: {}", reason(&error)))?;
        }
        return Ok(Box::new(stream));
    }
    Err(last)
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(super) fn split(authority: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(default), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::UnexpectedEof => "closed before it answered".to_owned(),
        _ => error.to_string(),
    }
}

impl Answer {
    fn read(wire: &mut dyn Wire) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            let count = wire.read(&mut buffer)?;
            if count == 0 || bytes.len() as u64 > ANSWER_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&buffer[..count]);
        };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("what answers does not speak HTTP/1.1"))?;
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let mut answer = Self { status, headers: lines.filter_map(header).collect(), body: String::new() };
        if status == 101 {
            return Ok(answer);
        }
        let mut body = bytes.split_off(head + 4);
        let length = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
        let wanted = length.unwrap_or(usize::MAX).min(usize::try_from(ANSWER_MAX).unwrap_or(usize::MAX));
        while body.len() < wanted {
            match wire.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => body.extend_from_slice(&buffer[..count]),
                // A server that closes TLS without saying so.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && length.is_none() => break,
                Err(error) => return Err(error),
            }
        }
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }

    /// The first header of this name, in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All `Link` headers.
    pub(super) fn links(&self) -> Vec<&str> {
        self.headers.iter().filter(|(name, _)| name == "link").map(|(_, value)| value.as_str()).collect()
    }
}

/// What certificates are believed.
fn trust(roots: &Path, insecure: bool) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if insecure {
        let any = Arc::new(AnyCertificate(provider));
        return Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()));
    }
    let mut store = RootCertStore::empty();
    let named = |error: &dyn fmt::Display| format!("--roots {}: {error}", roots.display());
    for certificate in CertificateDer::pem_file_iter(roots).map_err(|error| named(&error))? {
        // Bundles hold some that no library likes.
        let _ = store.add(certificate.map_err(|error| named(&error))?);
    }
    Ok(Arc::new(builder.with_root_certificates(store).with_no_client_auth()))
}

/// `--insecure`: who it is does not matter, that it has its key does.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        for (text, expected) in [
            ("edge.example", Some(("edge.example", 443))),
            ("edge.example:8443", Some(("edge.example", 8443))),
            ("[2001:db8::1]:8443", Some(("2001:db8::1", 8443))),
            ("[2001:db8::1]", Some(("2001:db8::1", 443))),
            ("edge.example:http", None),
            ("", None),
        ] {
            let found = split(text, 443);
            assert_eq!(found.as_ref().map(|(host, port)| (host.as_str(), *port)), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_is_read_to_its_length_or_its_end() {
        for text in [
            "HTTP/1.1 201 Created\r\nLink: <a>\r\nlink: <b>\r\nContent-Length: 3\r\n\r\nv=0more",
            "HTTP/1.1 201 Created\r\nLink: <a>\r\nLink: <b>\r\n\r\nv=0",
        ] {
            let mut wire = io::Cursor::new(text.as_bytes().to_vec());
            let answer = Answer::read(&mut wire).unwrap();
            assert_eq!((answer.status, answer.links()), (201, vec!["<a>", "<b>"]));
            assert!(answer.body.starts_with("v=0"));
        }
        assert!(Answer::read(&mut io::Cursor::new(b"SSH-2.0\r\n\r\n".to_vec())).is_err());
        assert!(Answer::read(&mut io::Cursor::new(b"HTTP/1.1 200".to_vec())).is_err());
    }
}
