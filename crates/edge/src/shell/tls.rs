//! The certificate of the TCP port: read from files or made here, and replaced while connections run.
//!
//! # Invariant
//!
//! There is always a certificate that was sound when it was taken up: a changed file that is not leaves the former one.

pub(super) mod acme;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use daemon::Problem;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::config::{Tls, TlsMode};

/// The protocol in which an authority asks whether a name is ours (RFC 8737 §6.2).
pub(super) const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// The file of a certificate made here.
const SELF_SIGNED: &str = "tls-self-signed.pem";

/// Between two looks at the files. What has changed is taken up when it is the same at the next look, as chain and key are
/// seldom written at once.
const FILES_INTERVAL: Duration = Duration::from_secs(2);

/// What the port shows.
#[derive(Debug)]
pub(super) struct Certificates {
    current: RwLock<Arc<CertifiedKey>>,
    /// The answers to an authority that asks for names, while it may.
    proofs: RwLock<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl Certificates {
    pub(super) fn new(first: CertifiedKey) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(Arc::new(first)), proofs: RwLock::default() })
    }

    pub(super) fn replace(&self, with: CertifiedKey) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(with);
    }

    /// Shows `proof` to an authority that asks for `name`.
    fn prove(&self, name: String, proof: Arc<CertifiedKey>) {
        self.proofs.write().unwrap_or_else(PoisonError::into_inner).insert(name, proof);
    }

    /// The authority has seen enough.
    fn proven(&self) {
        self.proofs.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The TLS side of the port.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = [&b"h2"[..], b"http/1.1", ACME_PROTOCOL].map(<[u8]>::to_vec).into();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 8737 §3: such a handshake offers this protocol alone, and gets the challenge's certificate or none.
        if hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME_PROTOCOL)) {
            let proofs = self.proofs.read().unwrap_or_else(PoisonError::into_inner);
            return proofs.get(hello.server_name()?).map(Arc::clone);
        }
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A chain and its key in files, one or two.
#[derive(Debug)]
pub(super) struct Files {
    cert: PathBuf,
    key: PathBuf,
    /// What was judged last.
    seen: Contents,
    /// What was there at the last look.
    settling: Option<Contents>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn read(cert: &Path, key: &Path) -> Result<Self, String> {
        let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self { cert: read(cert)?, key: read(key)? })
    }

    fn certified(&self) -> Result<CertifiedKey, String> {
        certified(&self.cert, &self.key, &default_provider())
    }
}

impl Files {
    /// Reads them.
    pub(super) fn open(cert: &Path, key: &Path) -> Result<(Self, CertifiedKey), String> {
        let seen = Contents::read(cert, key)?;
        let certified = seen.certified()?;
        Ok((Self { cert: cert.to_owned(), key: key.to_owned(), seen, settling: None }, certified))
    }

    /// What they say when they have changed and settled: a certificate, or why it is none. Each change is told once.
    pub(super) fn poll(&mut self) -> Option<Result<CertifiedKey, String>> {
        let contents = match Contents::read(&self.cert, &self.key) {
            Ok(contents) => contents,
            // Files that are being replaced may be missing for a moment; an empty one stands for that.
            Err(_) => Contents { cert: Vec::new(), key: Vec::new() },
        };
        if contents == self.seen {
            self.settling = None;
            return None;
        }
        if self.settling.as_ref() != Some(&contents) {
            self.settling = Some(contents);
            return None;
        }
        self.settling = None;
        self.seen = contents;
        Some(self.seen.certified())
    }
}

/// Takes up what the files become.
pub(super) async fn watch(mut files: Files, certificates: Arc<Certificates>) -> io::Result<()> {
    loop {
        sleep(FILES_INTERVAL).await;
        match files.poll() {
            None => {}
            Some(Ok(certified)) => {
                tracing::info!(fingerprint = fingerprint(&certified), "the certificate of the port has changed");
                certificates.replace(certified);
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the certificate's files have changed, but not to the better; the former one stays");
            }
        }
    }
}

/// A chain and its key as PEM, if they belong together.
pub(super) fn certified(cert: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the chain is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("the chain holds no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key is not PEM: {error}"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => "certificate and key do not belong together".to_owned(),
        other => other.to_string(),
    })
}

/// SHA-256 of the certificate, as browsers show it.
pub(super) fn fingerprint(certified: &CertifiedKey) -> String {
    let der = certified.cert.first().map_or(&[][..], |certificate| certificate.as_ref());
    digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// What keeps a certificate fresh.
#[derive(Debug)]
pub(super) enum Source {
    /// Files that somebody else writes.
    Files(Files),
    /// An authority, and the certificate of a former order.
    Authority(acme::Order, Option<Arc<CertifiedKey>>),
}

/// What the config asks for.
pub(super) fn open(
    tls: &Tls,
    state_dir: &Path,
    addresses: &[SocketAddr],
) -> Result<Option<(Arc<Certificates>, Source)>, Problem> {
    let order = (tls.mode == TlsMode::Acme).then(|| acme::Order::new(tls, state_dir));
    if let Some(certified) = order.as_ref().and_then(acme::Order::stored)
        && let Some(order) = order
    {
        let certificates = Certificates::new(certified);
        let current = Arc::clone(&certificates.current.read().unwrap_or_else(PoisonError::into_inner));
        return Ok(Some((certificates, Source::Authority(order, Some(current)))));
    }
    let (cert, key) = match tls.mode {
        TlsMode::Off => return Ok(None),
        TlsMode::Files => (tls.cert.clone(), tls.key.clone()),
        TlsMode::SelfSigned | TlsMode::Acme => {
            let file = self_signed(state_dir, &tls.names, addresses).map_err(|error| {
                let fix = "name a state_dir that this user may write";
                Problem::new("tls.mode", "\"self_signed\"", format_args!("no certificate could be made: {error}"), fix)
            })?;
            (file.clone(), file)
        }
    };
    let (files, certified) = Files::open(&cert, &key).map_err(|error| {
        let fix = "name the PEM files of a chain, the server's own certificate first, and of its key";
        Problem::new("tls.cert", format_args!("\"{}\"", cert.display()), error, fix)
    })?;
    if tls.mode == TlsMode::SelfSigned {
        tracing::warn!(
            fingerprint = fingerprint(&certified),
            "the certificate is self-signed: browsers warn, until it is trusted by its fingerprint",
        );
    } else {
        tracing::info!(fingerprint = fingerprint(&certified), "the certificate of the port");
    }
    let source = order.map_or(Source::Files(files), |order| Source::Authority(order, None));
    Ok(Some((Certificates::new(certified), source)))
}

/// The file of a certificate for these names and addresses, made if it is not there.
fn self_signed(state_dir: &Path, names: &[String], addresses: &[SocketAddr]) -> io::Result<PathBuf> {
    let path = state_dir.join(SELF_SIGNED);
    if path.exists() {
        return Ok(path);
    }
    let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let listed = names.iter().cloned().chain(addresses.iter().map(|address| address.ip().to_string()));
    for name in listed {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    let made = rcgen::generate_simple_self_signed(all).map_err(io::Error::other)?;
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let draft = state_dir.join(format!(".{SELF_SIGNED}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(pem.as_bytes())?;
    file.sync_all()?;
    // Where two edges share a state directory, the first one's stays: a link does not replace.
    match fs::hard_link(&draft, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::remove_file(&draft)?,
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("fronthaul-tls-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, pair: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (PathBuf, PathBuf) {
            let (cert, key) = (self.0.join(format!("{name}.crt")), self.0.join(format!("{name}.key")));
            fs::write(&cert, pair.cert.pem()).unwrap();
            fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
            (cert, key)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pair() -> rcgen::CertifiedKey<rcgen::KeyPair> {
        rcgen::generate_simple_self_signed(["edge.example".to_owned()]).unwrap()
    }

    /// Two looks: a change settles in one.
    fn settled(files: &mut Files) -> Option<Result<CertifiedKey, String>> {
        assert!(files.poll().is_none());
        files.poll()
    }

    #[test]
    fn a_changed_pair_is_taken_up_and_a_broken_one_is_told_once() {
        let folder = Folder::new("reload");
        let (cert, key) = folder.write("edge", &pair());
        let (mut files, first) = Files::open(&cert, &key).unwrap();
        assert!(settled(&mut files).is_none());

        folder.write("edge", &pair());
        let second = settled(&mut files).unwrap().unwrap();
        assert_ne!(fingerprint(&first), fingerprint(&second));

        fs::write(&key, pair().signing_key.serialize_pem()).unwrap();
        assert!(settled(&mut files).unwrap().unwrap_err().contains("do not belong together"));
        assert!(settled(&mut files).is_none(), "told twice");

        fs::remove_file(&key).unwrap();
        assert!(settled(&mut files).unwrap().is_err());
        folder.write("edge", &pair());
        assert!(settled(&mut files).unwrap().is_ok());
    }

    #[test]
    fn a_pair_whose_second_file_comes_later_is_no_broken_one() {
        let folder = Folder::new("later");
        let (cert, key) = folder.write("edge", &pair());
        let (mut files, _) = Files::open(&cert, &key).unwrap();
        let next = pair();
        fs::write(&cert, next.cert.pem()).unwrap();
        assert!(files.poll().is_none());
        fs::write(&key, next.signing_key.serialize_pem()).unwrap();
        assert!(settled(&mut files).unwrap().is_ok());
    }

    #[test]
    fn files_that_hold_no_pair_are_refused_with_the_reason() {
        let folder = Folder::new("refused");
        let (cert, key) = folder.write("edge", &pair());
        let (other, _) = folder.write("other", &pair());
        fs::write(folder.0.join("empty"), "").unwrap();
        for (cert, key, reason) in [
            (folder.0.join("missing"), key.clone(), "missing"),
            (folder.0.join("empty"), key.clone(), "no certificate"),
            (cert.clone(), folder.0.join("empty"), "not PEM"),
            (other, key.clone(), "do not belong together"),
        ] {
            let error = Files::open(&cert, &key).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn a_certificate_is_made_once() {
        let folder = Folder::new("self-signed");
        let addresses = ["192.0.2.1:3478".parse().unwrap(), "[2001:db8::1]:3478".parse().unwrap()];
        let first = self_signed(&folder.0, &["edge.example".to_owned()], &addresses).unwrap();
        let made = fs::read(&first).unwrap();
        assert_eq!(self_signed(&folder.0, &[], &[]).unwrap(), first);
        assert_eq!(fs::read(&first).unwrap(), made);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "a draft is left");
        assert!(Files::open(&first, &first).is_ok());
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
