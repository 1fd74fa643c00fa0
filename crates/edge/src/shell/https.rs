//! HTTPS as a client, a connection per request: for an authority of certificates and an issuer of tokens, which are asked a few
//! times an hour at most.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::response::Parts;
use axum::http::{HeaderValue, Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// For one request and its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer: a chain of a few certificates, or a set of a few keys, is 10 KiB.
const BODY_MAX: usize = 1 << 20;

type Refused = Box<dyn std::error::Error + Send + Sync>;

/// A client that knows a server by its roots.
#[derive(Clone)]
pub(super) struct Https {
    tls: TlsConnector,
}

impl Https {
    /// `roots`: PEM. `key` is the config's name of it.
    pub(super) fn trusting(key: &str, roots: &Path) -> io::Result<Self> {
        let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{key} {}: {error}", roots.display()));
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(roots).map_err(|error| named(&error))? {
            // Bundles hold some that no library likes.
            let _ = store.add(certificate.map_err(|error| named(&error))?);
        }
        if store.is_empty() {
            return Err(named(&"no certificate is in it"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// One request to the host of its URL.
    pub(super) async fn ask<B>(&self, request: Request<B>) -> Result<(Parts, Bytes), Refused>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: Into<Refused>,
    {
        timeout(PATIENCE, exchange(&self.tls, request)).await.map_err(|_| "there was no answer within 30 s")?
    }
}

async fn exchange<B>(tls: &TlsConnector, mut request: Request<B>) -> Result<(Parts, Bytes), Refused>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Refused>,
{
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or("the URL names no host")?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await?;
    let name = ServerName::try_from(host).map_err(|_| "the URL names no host")?;
    let stream = tls.connect(name, stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(async { drop(connection.await) });
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(authority.as_str())?);
    *request.uri_mut() = uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()));
    let read = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        Ok::<_, Refused>((parts, to_bytes(Body::new(body), BODY_MAX).await?))
    };
    let result = read.await;
    driven.abort();
    result
}
