//! Where a model's answers come from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use voice::Backend;

use crate::grpc;

/// How long is waited for a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the beginning of a stream to its `Ready`; then another stream is tried.
    pub ready: Duration,
    /// That it takes what is sent, or says something; then its stream is given up.
    pub stalled: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { ready: Duration::from_secs(5), stalled: Duration::from_secs(10) }
    }
}

/// One backend.
#[derive(Debug, Clone)]
pub struct Target {
    /// The model's name in the config; the label of its metrics.
    pub name: Arc<str>,
    /// How it is spoken to.
    pub kind: Kind,
    /// How long is waited.
    pub timeouts: Timeouts,
}

/// How a backend is spoken to.
#[derive(Debug, Clone)]
pub enum Kind {
    /// `proto/fronthaul/backend/v1`.
    Grpc(grpc::Endpoint),
    /// A machine inside this process.
    Local(Local),
}

/// Makes machines inside this process.
#[derive(Clone)]
pub struct Local(pub Arc<dyn Fn() -> Box<dyn Backend> + Send + Sync>);

impl fmt::Debug for Local {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Local")
    }
}

/// Who answers in a call, and who does when they cannot be had.
#[derive(Debug, Clone)]
pub struct Route {
    /// Tried in this order, round and round; never empty.
    pub targets: Arc<[Target]>,
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.targets, &other.targets)
    }
}

/// What a backend is told of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// 16 hex digits.
    pub name: String,
    /// As the client asked for it.
    pub model: String,
    /// Of the user's audio, in Hz.
    pub rate: u32,
}
