//! What somebody may.

use std::sync::Arc;

use link::route::ticket::DEFAULT_TENANT;
use serde::{Deserialize, Serialize};

/// Limits that a key, a token or an ephemeral key names. What is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allowance {
    /// Longest duration of a call, in seconds; 0 for no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_seconds: u32,
    /// Calls at once, at each edge; 0 for no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_concurrent: u32,
    /// Models that may be asked for, by the names of the edge's `models`; none for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Calls that count together, and how many of them there may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Whose calls: `key:...`, `sub:...` or `ek:...`.
    pub subject: Arc<str>,
    /// Calls at once.
    pub most: u32,
}

/// What the holder of a secret may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whose calls these are.
    pub tenant: u16,
    /// Who it is, for logs and for ephemeral keys made of it.
    pub subject: Arc<str>,
    /// Longest duration of a call, in seconds; 0 for no limit.
    pub max_seconds: u32,
    /// Those whose number its calls add to: itself, and whoever it was made by.
    pub counted: Vec<Counted>,
    /// The models that may be asked for. `None`: all.
    pub models: Option<Vec<String>>,
    /// The session as JSON that it brings; the client's own is laid over it.
    pub preset: Option<String>,
    /// Whether ephemeral keys may be made of it.
    pub mints: bool,
    /// Unix seconds from which on it is nothing. `None`: it lasts.
    pub expires: Option<u64>,
}

impl Grant {
    /// Everything: of who showed nothing at an edge that is open.
    #[must_use]
    pub fn open() -> Self {
        Self::new(DEFAULT_TENANT, "open", Allowance::default())
    }

    /// Of a lasting secret.
    #[must_use]
    pub fn new(tenant: u16, subject: &str, allowance: Allowance) -> Self {
        let subject: Arc<str> = subject.into();
        let Allowance { max_seconds, max_concurrent, models } = allowance;
        let counted = (max_concurrent != 0).then(|| Counted { subject: Arc::clone(&subject), most: max_concurrent });
        let models = (!models.is_empty()).then_some(models);
        Self {
            tenant,
            subject,
            max_seconds,
            counted: counted.into_iter().collect(),
            models,
            preset: None,
            mints: true,
            expires: None,
        }
    }

    /// What is left of it for somebody else: the smaller of each limit, on top of its own count.
    #[must_use]
    pub fn narrowed(&self, subject: &str, allowance: &Allowance) -> Self {
        let mut counted = self.counted.clone();
        if allowance.max_concurrent != 0 {
            counted.push(Counted { subject: subject.into(), most: allowance.max_concurrent });
        }
        let asked = &allowance.models;
        let models = match &self.models {
            own if asked.is_empty() => own.clone(),
            None => Some(asked.clone()),
            Some(own) => Some(asked.iter().filter(|model| own.contains(model)).cloned().collect()),
        };
        Self {
            tenant: self.tenant,
            subject: subject.into(),
            max_seconds: shorter(self.max_seconds, allowance.max_seconds),
            counted,
            models,
            preset: None,
            mints: false,
            expires: self.expires,
        }
    }

    /// Whether a client may ask for this model by this name.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|model| model == name))
    }
}

/// The shorter of two durations, of which 0 is none.
#[must_use]
pub(crate) fn shorter(one: u32, other: u32) -> u32 {
    match (one, other) {
        (0, limit) | (limit, 0) => limit,
        (one, other) => one.min(other),
    }
}
