//! Certificates of an authority: ordered, proven over the port itself, and renewed (RFC 8555, RFC 8737).
//!
//! ```text
//! account --> order(names) --> for each name a token --> the port shows a certificate that carries its digest
//!                              authority dials name:443 with ALPN acme-tls/1, sees it, and signs our request
//! ```
//!
//! Account and certificate are kept in the state directory, so that a restart orders nothing. A certificate is renewed when
//! a third of its life is left; until it is there, and whenever that fails, the former one is shown.

mod client;
mod validity;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;
use tokio::time::sleep;

use super::{Certificates, certified, fingerprint};
use crate::config::Tls;
use crate::shell::https::Https;

/// After an order that failed. Let's Encrypt takes five failed ones per name and hour.
const AGAIN: Duration = Duration::from_secs(900);

/// Between two looks at the clock, which may be set meanwhile.
const LOOK: Duration = Duration::from_secs(3600);

/// What is ordered, where, and where it is kept.
#[derive(Debug)]
pub(in crate::shell) struct Order {
    names: Vec<String>,
    directory: String,
    contact: String,
    roots: PathBuf,
    account: PathBuf,
    certificate: PathBuf,
}

impl Order {
    pub(in crate::shell) fn new(tls: &Tls, state_dir: &Path) -> Self {
        // Other names or another authority make another certificate.
        let short = |text: &str| {
            digest(&SHA256, text.as_bytes()).as_ref()[..4].iter().fold(String::new(), |s, b| format!("{s}{b:02x}"))
        };
        let mut names = tls.names.clone();
        names.sort();
        names.dedup();
        let (account, certificate) =
            (short(&tls.acme_directory), short(&format!("{} {}", tls.acme_directory, names.join(" "))));
        Self {
            names,
            directory: tls.acme_directory.clone(),
            contact: tls.acme_contact.clone(),
            roots: tls.acme_roots.clone(),
            account: state_dir.join(format!("acme-account-{account}.json")),
            certificate: state_dir.join(format!("tls-acme-{certificate}.pem")),
        }
    }

    /// The certificate of a former order.
    pub(in crate::shell) fn stored(&self) -> Option<CertifiedKey> {
        let pem = fs::read(&self.certificate).ok()?;
        certified(&pem, &pem, &default_provider())
            .inspect_err(|error| tracing::warn!(%error, file = %self.certificate.display(), "not a certificate"))
            .ok()
    }

    /// Orders one.
    async fn place(&self, certificates: &Certificates) -> Result<CertifiedKey, Error> {
        let account = self.account().await?;
        let identifiers: Vec<_> = self.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                _ => return Err(fail("an authorization is neither pending nor valid")),
            }
            let mut challenge = authorization
                .challenge(ChallengeType::TlsAlpn01)
                .ok_or_else(|| fail("the authority offers no tls-alpn-01 challenge"))?;
            let name = challenge.identifier().to_string();
            let proof = proof(&name, challenge.key_authorization().digest().as_ref())?;
            certificates.prove(name, Arc::new(proof));
            challenge.set_ready().await?;
        }
        let status = order.poll_ready(&RetryPolicy::default()).await?;
        if status != OrderStatus::Ready {
            return Err(fail("the authority could not see the proof at port 443 of every name"));
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&RetryPolicy::default()).await?;
        let pem = format!("{key}{chain}");
        let certified = certified(pem.as_bytes(), pem.as_bytes(), &default_provider())
            .map_err(|error| Error::Other(error.into()))?;
        write(&self.certificate, pem.as_bytes()).map_err(other)?;
        Ok(certified)
    }

    /// The account at this authority, made at the first order.
    async fn account(&self) -> Result<Account, Error> {
        let builder = || {
            Ok::<_, Error>(Account::builder_with_http(Box::new(
                Https::trusting("tls.acme_roots", &self.roots).map_err(other)?,
            )))
        };
        if let Ok(text) = fs::read(&self.account) {
            let credentials: AccountCredentials = serde_json::from_slice(&text).map_err(other)?;
            return builder()?.from_credentials(credentials).await;
        }
        let contact = [self.contact.as_str()];
        let new = NewAccount {
            contact: if self.contact.is_empty() { &[] } else { &contact },
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let (account, credentials) = builder()?.create(&new, self.directory.clone(), None).await?;
        write(&self.account, &serde_json::to_vec(&credentials).map_err(other)?).map_err(other)?;
        Ok(account)
    }
}

/// Has a certificate of the authority shown, for as long as the runtime lives. `first` is the one of a former order.
pub(in crate::shell) async fn keep(
    order: Order,
    first: Option<Arc<CertifiedKey>>,
    certificates: Arc<Certificates>,
) -> io::Result<()> {
    let mut renew_at = first.and_then(|certified| renewal(&certified)).unwrap_or_default();
    loop {
        let now = u64::from(net::clock::unix_seconds());
        if now < renew_at {
            sleep(LOOK.min(Duration::from_secs(renew_at - now))).await;
            continue;
        }
        let placed = order.place(&certificates).await;
        certificates.proven();
        match placed {
            Ok(certified) => {
                renew_at = renewal(&certified).unwrap_or(now + AGAIN.as_secs());
                tracing::info!(
                    names = order.names.join(" "),
                    fingerprint = fingerprint(&certified),
                    "the authority has issued a certificate",
                );
                certificates.replace(certified);
            }
            Err(error) => {
                tracing::warn!(
                    %error, names = order.names.join(" "), directory = order.directory,
                    "no certificate was issued; the next try is in {} minutes. Port 443 of each name must lead here",
                    AGAIN.as_secs() / 60,
                );
                sleep(AGAIN).await;
            }
        }
    }
}

/// Unix seconds at which a third of the certificate's life is left.
fn renewal(certified: &CertifiedKey) -> Option<u64> {
    let (from, until) = validity::of(certified.cert.first()?)?;
    Some(until - until.saturating_sub(from) / 3)
}

/// RFC 8737 §3: self-signed, for one name, with the digest in a critical extension.
fn proof(name: &str, digest: &[u8]) -> Result<CertifiedKey, Error> {
    let made = || {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        Ok::<_, rcgen::Error>((params.self_signed(&key)?, key))
    };
    let (certificate, key) = made().map_err(other)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(fail)?;
    let key = default_provider().key_provider.load_private_key(key).map_err(other)?;
    // Not by way of `from_der`, which looks into the certificate and refuses a critical extension that it does not know.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// Readers see the former content or this one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn fail(why: &'static str) -> Error {
    Error::Other(why.into())
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_carries_the_digest_in_a_critical_extension() {
        let proof = proof("edge.example", &[0xab; 32]).unwrap();
        let der = proof.cert[0].as_ref();
        // id-pe-acmeIdentifier 1.3.6.1.5.5.7.1.31, critical, an OCTET STRING in an OCTET STRING.
        let wanted = [&[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xff, 4, 34, 4, 32][..], &[0xab; 32]].concat();
        assert!(der.windows(wanted.len()).any(|part| part == wanted), "{der:02x?}");
    }
}
