//! The built-in certificate authority: one key in the state directory vouches for the nodes that share it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::ParsedCertificate;

use super::state_dir::StateDir;
use super::{IdentityError, RENEW_BEFORE, Role, read_pair, unix_time};

/// For a damaged certificate or key. Nodes without a certificate of their own get one as long as the pair is there.
pub(super) const RESTORE: &str = "restore it from a backup; without one remove it, and where it is of the authority \
                                  (ca.pem, ca-key.pem) both of these at every node, and restart";

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A node's certificate, renewed at a start in its last 30 days.
const NODE_DAYS: u32 = 365;
const AUTHORITY_DAYS: u32 = 3650;
/// Clocks of machines that share an authority may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// What the node trusts, and, where its key is at hand, what signs certificates.
pub(super) struct Authority {
    roots: RootCertStore,
    key: Option<KeyPair>,
    key_path: PathBuf,
}

pub(super) fn load_or_create(dir: &StateDir) -> Result<Authority, IdentityError> {
    let (path, key_path) = (dir.path("ca.pem"), dir.path("ca-key.pem"));
    let mut key = match dir.read("ca-key.pem")? {
        Some(pem) => Some(KeyPair::from_pem(&pem).map_err(|error| invalid(&key_path, &error))?),
        None => None,
    };
    let pem = match (dir.read("ca.pem")?, &key) {
        (Some(pem), _) => pem,
        (None, Some(key)) => make_certificate(dir, &path, key)?,
        (None, None) => {
            let made = KeyPair::generate().map_err(|error| invalid(&key_path, &error))?;
            // The key first: a crash in between leaves what the certificate can be made from.
            dir.write("ca-key.pem", made.serialize_pem().as_bytes())?;
            let pem = make_certificate(dir, &path, &made)?;
            key = Some(made);
            pem
        }
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| invalid(&path, &error))?;
        roots.add(certificate).map_err(|error| invalid(&path, &error))?;
    }
    if roots.is_empty() {
        return Err(invalid(&path, &"holds no certificate in PEM"));
    }
    Ok(Authority { roots, key, key_path })
}

impl Authority {
    pub(super) fn into_roots(self) -> RootCertStore {
        self.roots
    }

    /// Whether a node's file holds a certificate for that role that peers accept for some time to come.
    pub(super) fn vouches_for(&self, pem: &str, role: Role) -> bool {
        let Ok((certificate, _)) = read_pair(Path::new(""), pem) else { return false };
        Role::from_certificate(&certificate) == Some(role)
            && ParsedCertificate::try_from(&certificate).is_ok_and(|parsed| {
                rustls::client::verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    &self.roots,
                    &[],
                    unix_time(RENEW_BEFORE),
                    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all,
                )
                .is_ok()
            })
    }

    /// A key and a certificate for a node, as the text of its file.
    pub(super) fn issue(&self, path: &Path, role: Role, why_needed: &str) -> Result<String, IdentityError> {
        let Some(authority_key) = &self.key else {
            let reason = format!(
                "the built-in authority cannot {why_needed} this certificate without {}",
                self.key_path.display(),
            );
            let fix =
                format!("put a certificate signed by ca.pem, with the URI {}, and its key here", role.spiffe_id());
            return Err(IdentityError::Invalid { path: path.to_owned(), reason, fix });
        };
        let params = authority_params();
        let issuer = Issuer::from_params(&params, authority_key);
        let made = || -> Result<String, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, format!("fronthaul {role}"));
            params.subject_alt_names = vec![SanType::URI(role.spiffe_id().try_into()?)];
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            // Each node is both: it dials and is dialed in later arrangements of edges.
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
            valid_for(&mut params, NODE_DAYS);
            let certificate = params.signed_by(&key, &issuer)?;
            Ok(key.serialize_pem() + &certificate.pem())
        };
        let pem = made().map_err(|error| invalid(path, &error))?;
        if self.vouches_for(&pem, role) {
            Ok(pem)
        } else {
            let reason = "does not belong to ca.pem".to_owned();
            let fix = "restore the pair, or remove both and restart every node".to_owned();
            Err(IdentityError::Invalid { path: self.key_path.clone(), reason, fix })
        }
    }
}

fn make_certificate(dir: &StateDir, path: &Path, key: &KeyPair) -> Result<String, IdentityError> {
    let certificate = authority_params().self_signed(key).map_err(|error| invalid(path, &error))?;
    let pem = certificate.pem();
    dir.write("ca.pem", pem.as_bytes())?;
    Ok(pem)
}

/// Always the same name, so that a certificate made from the key again vouches for the same nodes.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "fronthaul built-in authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, AUTHORITY_DAYS);
    params
}

pub(super) fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + DAY * days).into();
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> IdentityError {
    IdentityError::Invalid { path: path.to_owned(), reason: error.to_string(), fix: RESTORE.to_owned() }
}
