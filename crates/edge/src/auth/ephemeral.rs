//! Ephemeral keys, `ek_...`: a grant and a session, sealed, for as long as it says.

use link::route::RouteKeys;
use link::route::ephemeral::NONCE_BYTES;
use serde::{Deserialize, Serialize};

use super::Refusal;
use super::grant::{Allowance, Counted, Grant};

/// Bytes of a session's JSON in a key: it travels in a header of each request, and those are read up to 16 KiB.
pub const PRESET_MAX: usize = 8 << 10;

/// What a key is to be made of.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// Unix seconds from which on it is nothing; sooner, if who asks is nothing sooner.
    pub expires: u64,
    /// Limits beyond those of who asks.
    pub allowance: Allowance,
    /// The session as JSON, [`PRESET_MAX`] bytes at most.
    pub preset: Option<&'a str>,
}

/// A key that was made.
pub struct Minted {
    /// Its text.
    pub value: String,
    /// Unix seconds from which on it is nothing.
    pub expires: u64,
}

/// What is sealed in it, in short words, as all of it travels in a header.
#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(rename = "x")]
    expires: u64,
    #[serde(rename = "t")]
    tenant: u16,
    #[serde(rename = "s")]
    subject: String,
    #[serde(rename = "d", default)]
    max_seconds: u32,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    counted: Vec<(String, u32)>,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    models: Option<Vec<String>>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
}

impl Grant {
    /// An ephemeral key that grants what `terms` leave of this.
    #[must_use]
    pub fn mint(&self, routes: &RouteKeys, nonce: [u8; NONCE_BYTES], terms: &Terms<'_>) -> Minted {
        let id: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let grant = self.narrowed(&format!("ek:{id}"), &terms.allowance);
        let expires = grant.expires.map_or(terms.expires, |own| own.min(terms.expires));
        let content = Content {
            expires,
            tenant: grant.tenant,
            subject: grant.subject.to_string(),
            max_seconds: grant.max_seconds,
            counted: grant.counted.iter().map(|counted| (counted.subject.to_string(), counted.most)).collect(),
            models: grant.models,
            preset: terms.preset.map(str::to_owned),
        };
        // Texts and numbers: there is nothing in it that JSON has no word for.
        let plain = serde_json::to_vec(&content).unwrap_or_default();
        Minted { value: routes.seal_ephemeral(nonce, &plain), expires }
    }
}

/// What a key grants.
pub(super) fn open(routes: &RouteKeys, key: &str, now: u64) -> Result<Grant, Refusal> {
    let plain = routes.open_ephemeral(key).ok_or(Refusal::Unknown)?;
    let content: Content = serde_json::from_slice(&plain).map_err(|_| Refusal::Unknown)?;
    if now >= content.expires {
        return Err(Refusal::Expired(now - content.expires));
    }
    let counted = content.counted.into_iter().map(|(subject, most)| Counted { subject: subject.into(), most });
    Ok(Grant {
        tenant: content.tenant,
        subject: content.subject.into(),
        max_seconds: content.max_seconds,
        counted: counted.collect(),
        models: content.models,
        preset: content.preset,
        mints: false,
        expires: Some(content.expires),
    })
}
