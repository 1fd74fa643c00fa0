//! Our ICE credentials: one pair, and for a while after an ICE restart those before it (RFC 8445 §9).
//!
//! A client goes on with the former pair until it has our answer, and checks its old paths with it until the new ones
//! work. So a pair stays valid until a later one was used and [`GRACE`] has passed since. A client whose answer was lost
//! restarts once more: of the pairs before the newest the last used one is kept, and one that was not.

use std::time::{Duration, Instant};

use crate::sdp::Credentials;
use crate::stun::{Check, IntegrityKey};

/// How long former pairs stay once a later one was used: browsers check the old paths for that long at most.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The newest, the last used, and one that was handed out in between.
const PAIRS_MAX: usize = 3;

/// The pairs that are valid. Never empty.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Oldest first.
    list: Vec<Pair>,
    /// When all but the newest go.
    retire_at: Option<Instant>,
}

#[derive(Debug)]
struct Pair {
    ufrag: String,
    key: IntegrityKey,
    used: bool,
}

impl Pairs {
    pub(super) fn new(ufrag: &str, key: IntegrityKey) -> Self {
        Self { list: vec![Pair { ufrag: ufrag.to_owned(), key, used: false }], retire_at: None }
    }

    /// ICE restarts: this pair is the newest from here on.
    pub(super) fn restart(&mut self, fresh: &Credentials) {
        if self.list.len() == PAIRS_MAX {
            // At most one has been used and not retired: it is the one that the client surely has.
            let unused = self.list.iter().position(|pair| !pair.used).unwrap_or(0);
            self.list.remove(unused);
        }
        let key = IntegrityKey::new(&fresh.password);
        self.list.push(Pair { ufrag: fresh.ufrag.clone(), key, used: false });
        self.retire_at = None;
    }

    /// The key by which this check is authentic.
    pub(super) fn verify(&mut self, now: Instant, check: &Check<'_>) -> Option<&IntegrityKey> {
        let newest = self.list.len() - 1;
        let named = |(_, pair): &(usize, &mut Pair)| pair.ufrag == check.local_ufrag();
        let (at, pair) = self.list.iter_mut().enumerate().find(named)?;
        if !check.verify(&pair.key) {
            return None;
        }
        let first = !std::mem::replace(&mut pair.used, true);
        if first && at == newest && newest > 0 {
            self.retire_at = Some(now + GRACE);
        }
        Some(&pair.key)
    }

    /// Drops what is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.retire_at.is_some_and(|at| at <= now) {
            self.retire_at = None;
            self.list.drain(..self.list.len() - 1);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.retire_at
    }
}
