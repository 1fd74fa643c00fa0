//! Who a process is to its peers, and the secrets of its node: files in one directory.
//!
//! ```text
//! state_dir/            0700, refused when others can write to it
//!   lock                held while any file is read or made, so that processes that start at once agree
//!   ca.pem              certificate of the built-in authority
//!   ca-key.pem          its key; absent where certificates come from elsewhere
//!   edge-1.pem          key and certificate of edge 1 in one file, so that they never disagree; likewise transceiver-1.pem
//!   reset.key cid.key   so that a restarted process can tell its old peers, at once, that it forgot them
//!   pop.keys            what the edges of a PoP share: route keys and DTLS certificates ([`keys`])
//! ```
//!
//! Files are 0600, made on first use and replaced by rename: what is there is whole. A node's certificate is renewed when
//! it is within 30 days of its end or the authority changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::{hkdf, hmac};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::ids::{EdgeId, TransceiverId};

mod authority;
pub mod keys;
mod state_dir;

use state_dir::StateDir;

/// A certificate closer to its end than this is replaced at start.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a process is on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It speaks to users.
    Edge(EdgeId),
    /// It speaks to models.
    Transceiver(TransceiverId),
}

impl Role {
    /// The name in its certificate: a SPIFFE id as URI.
    #[must_use]
    pub fn spiffe_id(self) -> String {
        match self {
            Self::Edge(EdgeId(id)) => format!("spiffe://fronthaul/edge/{id}"),
            Self::Transceiver(TransceiverId(id)) => format!("spiffe://fronthaul/transceiver/{id}"),
        }
    }

    /// Reads a SPIFFE id. `None`: another trust domain, another kind of node, or another spelling of the number.
    #[must_use]
    pub fn from_spiffe_id(uri: &str) -> Option<Self> {
        let (kind, id) = uri.strip_prefix("spiffe://fronthaul/")?.split_once('/')?;
        let role = match kind {
            "edge" => Self::Edge(EdgeId(id.parse().ok()?)),
            "transceiver" => Self::Transceiver(TransceiverId(id.parse().ok()?)),
            _ => return None,
        };
        (role.spiffe_id() == uri).then_some(role)
    }

    /// The role in a certificate that was verified. `None`: no SPIFFE id of ours, or more than one URI.
    pub(crate) fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        let mut uris = parsed.valid_uri_names();
        let (first, more) = (uris.next()?, uris.next());
        if more.is_some() { None } else { Self::from_spiffe_id(first) }
    }

    fn file_stem(self) -> String {
        match self {
            Self::Edge(EdgeId(id)) => format!("edge-{id}"),
            Self::Transceiver(TransceiverId(id)) => format!("transceiver-{id}"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge(EdgeId(id)) => write!(f, "edge {id}"),
            Self::Transceiver(TransceiverId(id)) => write!(f, "transceiver {id}"),
        }
    }
}

/// Why a node has no identity. Each names its file.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others could read or replace secrets.
    #[error("{} is open to other users (mode {mode:03o}): chmod {fix:03o} it", .path.display())]
    Permissions {
        /// What is open.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What the mode should be.
        fix: u32,
    },
    /// A file is not what its name says.
    #[error("{}: {reason}: {fix}", .path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to do.
        fix: String,
    },
}

impl IdentityError {
    /// File and reason, without what to do.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Io { .. } => self.to_string(),
            Self::Permissions { path, mode, .. } => {
                format!("{} is open to other users (mode {mode:03o})", path.display())
            }
            Self::Invalid { path, reason, .. } => format!("{}: {reason}", path.display()),
        }
    }

    /// What to do.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Io { .. } => "name a place where this user may read and write".to_owned(),
            Self::Permissions { path, fix, .. } => format!("chmod {fix:03o} {}", path.display()),
            Self::Invalid { fix, .. } => fix.clone(),
        }
    }
}

/// A process's certificate, key and trust, and the node's secrets for QUIC.
#[derive(Clone)]
pub struct NodeIdentity {
    role: Role,
    roots: Arc<RootCertStore>,
    certificate: CertificateDer<'static>,
    key: Arc<PrivateKeyDer<'static>>,
    reset_key: [u8; 32],
    cid_key: u64,
}

impl NodeIdentity {
    /// Reads a node's files, and makes those that are missing.
    ///
    /// # Errors
    /// A file that cannot be read or made, or is not what it should be.
    pub fn load_or_create(state_dir: &Path, role: Role) -> Result<Self, IdentityError> {
        let dir = StateDir::lock(state_dir)?;
        let authority = authority::load_or_create(&dir)?;
        let name = format!("{}.pem", role.file_stem());
        let (certificate, key) = match dir.read(&name)? {
            Some(pem) if authority.vouches_for(&pem, role) => read_pair(&dir.path(&name), &pem)?,
            found => {
                let why_needed = if found.is_some() { "renew" } else { "make" };
                let pem = authority.issue(&dir.path(&name), role, why_needed)?;
                dir.write(&name, pem.as_bytes())?;
                read_pair(&dir.path(&name), &pem)?
            }
        };
        let reset = dir.secret("reset.key")?;
        let cid = dir.secret("cid.key")?;
        Ok(Self {
            role,
            roots: Arc::new(authority.into_roots()),
            certificate,
            key: Arc::new(key),
            reset_key: derive(&reset, role),
            cid_key: u64::from_le_bytes(*derive(&cid, role).first_chunk().unwrap_or(&[0; 8])),
        })
    }

    /// Which node this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    /// Key of the stateless resets (RFC 9000 §10.3): the same before and after a restart.
    pub(crate) fn reset_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.reset_key)
    }

    /// Key by which a restarted endpoint recognizes its former connection ids.
    pub(crate) fn cid_key(&self) -> u64 {
        self.cid_key
    }
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity").field("role", &self.role).finish_non_exhaustive()
    }
}

/// `$XDG_STATE_HOME/fronthaul`, or `~/.local/state/fronthaul`. `None`: neither variable names an absolute path.
#[must_use]
pub fn default_state_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("fronthaul"))
}

fn read_pair(path: &Path, pem: &str) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), IdentityError> {
    let invalid = |what| IdentityError::Invalid {
        path: path.to_owned(),
        reason: format!("holds no {what} in PEM"),
        fix: authority::RESTORE.to_owned(),
    };
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| invalid("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| invalid("private key"))?;
    Ok((certificate, key))
}

/// Nodes of one machine share the files, not the keys: a packet that strays to another node's endpoint must not be
/// answered with a reset that its peer believes.
fn derive(secret: &[u8; 32], role: Role) -> [u8; 32] {
    let mut key = [0; 32];
    let name = role.spiffe_id();
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"fronthaul node 1").extract(secret);
    // Expanding to one hash length cannot fail (RFC 5869 §2.3: up to 255).
    prk.expand(&[name.as_bytes()], hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key)).expect("32 bytes of key");
    key
}

fn unix_time(after_now: Duration) -> UnixTime {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::since_unix_epoch(since_epoch + after_now)
}
