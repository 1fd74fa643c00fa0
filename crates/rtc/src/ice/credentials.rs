//! Our ICE credentials: one pair, and for a while after an ICE restart those before it (RFC 8445 §9).
//!
//! A client goes on with the former pair until it has our answer, and checks its old paths with it until the new ones
//! work. So a pair stays valid until a later one was used and [`GRACE`] has passed since. A client whose answer was lost
//! restarts once more: beside the newest pair the last used one is kept, and one that was handed out after it.

use std::time::{Duration, Instant};

use crate::sdp::Credentials;
use crate::stun::{Check, IntegrityKey};

/// How long former pairs stay once a later one was used: browsers check the old paths for that long at most.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The newest, the last used, and one that was handed out in between.
const PAIRS_MAX: usize = FORMER_MAX + 1;

/// Pairs that a session may begin with beside its newest ([`crate::Session::keep_former`]).
pub const FORMER_MAX: usize = 2;

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

impl Pair {
    fn of(credentials: &Credentials) -> Self {
        Self { ufrag: credentials.ufrag.clone(), key: IntegrityKey::new(credentials.password.expose()), used: false }
    }
}

impl Pairs {
    pub(super) fn new(ufrag: &str, key: IntegrityKey) -> Self {
        Self { list: vec![Pair { ufrag: ufrag.to_owned(), key, used: false }], retire_at: None }
    }

    /// These were handed out before the only one so far, oldest first, and the client may have any of them. Of too many the
    /// first ones stay.
    pub(super) fn keep_former(&mut self, former: &[Credentials]) {
        let room = PAIRS_MAX.saturating_sub(self.list.len());
        self.list.splice(..0, former.iter().take(room).map(Pair::of));
    }

    /// ICE restarts: this pair is the newest from here on.
    pub(super) fn restart(&mut self, fresh: &Credentials) {
        if self.list.len() == PAIRS_MAX {
            self.list.remove(self.least_needed());
        }
        self.list.push(Pair::of(fresh));
        self.retire_at = None;
    }

    /// Which pair goes when there is one too many. The client surely has the last used one, and may go back to any behind it
    /// when the next answer is lost, so those before it go first; then the oldest that was never used.
    fn least_needed(&self) -> usize {
        let last_used = self.list.iter().rposition(|pair| pair.used).unwrap_or(0);
        let before = if last_used == 0 { &self.list[..] } else { &self.list[..last_used] };
        before.iter().position(|pair| !pair.used).unwrap_or(0)
    }

    /// Whether a check is authentic by a valid pair.
    pub(super) fn is_authentic(&self, check: &Check<'_>) -> bool {
        let named = self.list.iter().find(|pair| pair.ufrag == check.local_ufrag());
        named.is_some_and(|pair| check.verify(&pair.key))
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
