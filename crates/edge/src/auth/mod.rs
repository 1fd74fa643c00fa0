//! Who asks for a call, and what they may: API keys, signed tokens (JWT) and ephemeral keys.
//!
//! A request shows one secret ([`Presented`]); [`Auth::judge`] makes a [`Grant`] of it, or says why not. Everything is decided
//! here and now from what the secret says and the config holds: there is no store to ask. What a grant limits is enforced at
//! the edge that gave it: the calls under way are counted per edge ([`Running`]).
//!
//! # Invariant
//!
//! A grant made of another one allows nothing that the other did not.

mod ephemeral;
mod grant;
mod presented;
mod running;
mod signed;
#[cfg(test)]
mod tests;

use std::sync::{PoisonError, RwLock};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use link::route::RouteKeys;
use link::route::ephemeral::PREFIX;

pub use ephemeral::{Minted, PRESET_MAX, Terms};
pub(crate) use grant::shorter;
pub use grant::{Allowance, Counted, Grant};
pub use presented::{Presented, SUBPROTOCOL_KEY};
pub use running::{Held, Running};
pub use signed::{Keyset, Signed, sign};

/// Why a request is none of a known client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It shows no secret.
    Missing,
    /// What it shows is not known here.
    Unknown,
    /// It was good until so many seconds ago.
    Expired(u64),
    /// It is not good yet.
    Early,
    /// It is signed, but says what it must not, or not what it must.
    Claims(String),
}

impl Refusal {
    /// The label of the counter.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Expired(_) => "expired",
            Self::Early => "early",
            Self::Claims(_) => "claims",
        }
    }

    /// What the client is told.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Missing => {
                "No API key: send Authorization: Bearer with an API key, a token or an ephemeral key.".to_owned()
            }
            Self::Unknown => "Incorrect API key: it is none of this edge's, or was changed on its way.".to_owned(),
            Self::Expired(seconds) => format!("The key expired {seconds} s ago: fetch a new one."),
            Self::Early => "The token is not good yet: look at its nbf claim and at both clocks.".to_owned(),
            Self::Claims(what) => format!("The token is refused: {what}."),
        }
    }
}

/// A lasting key, of which only the hash is held.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    hash: [u8; 32],
    grant: Grant,
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl ApiKey {
    /// From the SHA-256 of its text.
    #[must_use]
    pub fn of_hash(hash: [u8; 32], grant: Grant) -> Self {
        Self { hash, grant }
    }

    /// From its text.
    #[must_use]
    pub fn of_text(text: &str, grant: Grant) -> Self {
        Self::of_hash(hash(text), grant)
    }
}

/// What the config may hold instead of a key: its SHA-256 as 64 hex digits.
#[must_use]
pub fn hash_text(key: &str) -> String {
    hash(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    // SHA-256 has 32 bytes.
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

/// The judge.
#[derive(Debug, Default)]
pub struct Auth {
    /// Whoever shows nothing is let in.
    open: bool,
    keys: Vec<ApiKey>,
    signed: RwLock<Option<Signed>>,
    /// Calls under way of those whose number is limited.
    pub running: std::sync::Arc<Running>,
}

impl Auth {
    /// Lets everybody in: for an edge that only this machine reaches.
    #[must_use]
    pub fn open() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// With these API keys and signers. `open`: whoever shows nothing is let in all the same.
    #[must_use]
    pub fn new(open: bool, keys: Vec<ApiKey>, signed: Option<Signed>) -> Self {
        Self { open, keys, signed: RwLock::new(signed), running: std::sync::Arc::default() }
    }

    /// From here on these keys verify tokens.
    pub fn trust(&self, keys: Keyset) {
        if let Some(signed) = &mut *self.signed.write().unwrap_or_else(PoisonError::into_inner) {
            signed.trust(keys);
        }
    }

    /// What the holder of a secret may.
    ///
    /// # Errors
    /// Why nothing.
    pub fn judge(&self, presented: Option<&Presented>, routes: &RouteKeys, now: u64) -> Result<Grant, Refusal> {
        let Some(presented) = presented else {
            return if self.open { Ok(Grant::open()) } else { Err(Refusal::Missing) };
        };
        let secret = presented.expose();
        if secret.starts_with(PREFIX) {
            let judged = ephemeral::open(routes, secret, now);
            // Of another server, or made up: clients in browsers take no other kind.
            let foreign = self.open && judged == Err(Refusal::Unknown);
            return if foreign { Ok(Grant::open()) } else { judged };
        }
        if let Some(grant) = self.api_key(secret) {
            return Ok(grant);
        }
        let signed = self.signed.read().unwrap_or_else(PoisonError::into_inner);
        let judged = match &*signed {
            Some(signed) if signed::is_token(secret) => signed.judge(secret, now),
            _ => Err(Refusal::Unknown),
        };
        // SDKs insist on a key where none is needed.
        if self.open { judged.or_else(|_| Ok(Grant::open())) } else { judged }
    }

    /// Every key is compared, so that the time says nothing.
    fn api_key(&self, secret: &str) -> Option<Grant> {
        let hash = hash(secret);
        let mut found = None;
        for key in &self.keys {
            if verify_slices_are_equal(&key.hash, &hash).is_ok() {
                found = Some(key);
            }
        }
        found.map(|key| key.grant.clone())
    }
}
