//! HTTPS to the authority, a connection per request: an order takes some twenty, a few times a year.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderValue, Request, Uri, header};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::fail;

/// For one request and its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer: a chain of a few certificates is 10 KiB.
const BODY_MAX: usize = 1 << 20;

/// A client that knows the authority by its roots.
pub(super) struct Https {
    tls: TlsConnector,
}

impl Https {
    /// `roots`: PEM.
    pub(super) fn trusting(roots: &Path) -> io::Result<Self> {
        let named =
            |error: &dyn std::fmt::Display| io::Error::other(format!("tls.acme_roots {}: {error}", roots.display()));
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
}

type Answer = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

impl HttpClient for Https {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Answer {
        let tls = self.tls.clone();
        Box::pin(async move {
            let late = |_| Error::Other("the authority did not answer within 30 s".into());
            timeout(PATIENCE, exchange(tls, request)).await.map_err(late)?
        })
    }
}

async fn exchange(tls: TlsConnector, mut request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
    let other = |error: io::Error| Error::Other(Box::new(error));
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or_else(|| fail("a URL of the authority names no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await.map_err(other)?;
    let name = ServerName::try_from(host).map_err(|_| fail("a URL of the authority names no host"))?;
    let stream = tls.connect(name, stream).await.map_err(other)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Error::Other(Box::new(error)))?;
    let driven = tokio::spawn(connection);
    let host = HeaderValue::from_str(authority.as_str()).map_err(|error| Error::Other(Box::new(error)))?;
    request.headers_mut().insert(header::HOST, host);
    *request.uri_mut() = uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()));
    let answered = sender.send_request(request).await.map_err(|error| Error::Other(Box::new(error)));
    let read = async {
        let (parts, body) = answered?.into_parts();
        let body = to_bytes(Body::new(body), BODY_MAX).await.map_err(|error| Error::Other(Box::new(error)))?;
        Ok(BytesResponse { parts, body: Box::new(body) })
    };
    let result = read.await;
    driven.abort();
    result
}
