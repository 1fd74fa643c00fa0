//! Where a session's client can be reached, and which way its downlink goes.
//!
//! What is known of the client's addresses is the list of **checked paths**: 4-tuples from which an authenticated check
//! came within [`PATH_LIFETIME`], or media that proves more ([`Paths::admit`]). One of them is **selected**.
//!
//! # Who moves the downlink
//!
//! A check can be recorded and sent again from anywhere, so a check alone moves nothing once there is something to lose:
//!
//! ```text
//! first check ------------> selected, unproven      a nominating check selects its path
//! fresh authentic packet -> selected, proven        a check from elsewhere starts a challenge there
//! challenge --------------> the downlink goes both ways, with something the client has to answer
//! fresh authentic packet from a checked path -----> that path, at most one move per [`MOVE_INTERVAL`]
//! life of the selected path over -----------------> the path checked last, unproven
//! ```
//!
//! Nomination is no condition of any of it: against a lite agent Chromium nominates late, Firefox checks without
//! USE-CANDIDATE after its NAT gave it another port, and aggressive nominators name every path they have.
//!
//! # Invariant
//!
//! Whatever is replayed from wherever: what goes to an unproven path beside the proven one is at most [`AMPLIFICATION`]
//! times what its checks brought, within [`CHALLENGE_FOR`] of the check that started the challenge. One challenge runs at
//! a time.

use std::time::{Duration, Instant};

use crate::Path;

/// Paths of one session at most. A phone with two interfaces in both address families, rebound once, has eight; the
/// bound keeps a client that changes its port with each check from filling the edge's table of 4-tuples.
pub(crate) const PATHS_MAX: usize = 8;

/// How long a path stays after its last valid check. Browsers check each path that they keep at least every 5 s or so
/// (RFC 7675 §5.1), so five lost in a row are survived.
pub(crate) const PATH_LIFETIME: Duration = Duration::from_secs(30);

/// How long the downlink goes both ways: a client that is there answers within a round trip.
pub(crate) const CHALLENGE_FOR: Duration = Duration::from_secs(1);

/// Bytes sent for each byte that a check brought to a path that is not proven, as in QUIC (RFC 9000 §8.1): to a challenged one,
/// and as its response. Somebody may have recorded the check and send it from the address of somebody else's.
pub(crate) const AMPLIFICATION: usize = 3;

/// Between two challenges of one path: a client with a spare interface checks it every few seconds for the whole call.
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(2);

/// Between two moves. A client whose packets take two ways at once is followed to one of them.
pub(crate) const MOVE_INTERVAL: Duration = Duration::from_secs(1);

/// The paths of one session.
#[derive(Debug)]
pub(super) struct Paths {
    /// In order of their last check, oldest first. Never more than [`PATHS_MAX`].
    list: Vec<CheckedPath>,
    /// Always one of `list`; `None` only while there are none.
    selected: Option<Path>,
    /// A fresh authentic packet came from `selected`.
    proven: bool,
    moved_at: Option<Instant>,
    challenge: Option<Challenge>,
}

#[derive(Debug, Clone, Copy)]
struct CheckedPath {
    path: Path,
    last_check: Instant,
    challenged_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Challenge {
    path: Path,
    until: Instant,
    /// What may still be sent there.
    bytes: usize,
}

/// A valid check that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    pub(super) path: Path,
    pub(super) nominates: bool,
    /// Bytes of the check.
    pub(super) received: usize,
    /// Bytes of its answer.
    pub(super) answered: usize,
}

/// What a valid check changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The path that had to go to make room.
    pub(super) displaced: Option<Path>,
    /// A challenge began: send something to the path that the client has to answer.
    pub(super) challenged: bool,
}

impl Paths {
    pub(super) fn new() -> Self {
        Self { list: Vec::with_capacity(PATHS_MAX), selected: None, proven: false, moved_at: None, challenge: None }
    }

    /// Takes note of a valid check.
    pub(super) fn checked(&mut self, now: Instant, check: Checked) -> Change {
        let Checked { path, nominates, received, answered } = check;
        let displaced = self.renew(now, path);
        if self.selected.is_none() || (nominates && !self.proven) {
            self.selected = Some(path);
        }
        let challenged = self.challenge(now, path);
        if let Some(challenge) = self.challenge.as_mut().filter(|challenge| challenge.path == path) {
            challenge.bytes = (challenge.bytes + received * AMPLIFICATION).saturating_sub(answered);
        }
        Change { displaced, challenged }
    }

    /// Admits a path without a check: something fresh and authentic came from there, which proves more.
    pub(super) fn admit(&mut self, now: Instant, path: Path) -> Option<Path> {
        self.renew(now, path)
    }

    /// Something fresh and authentic came from `path`. Changes nothing when the path is not a checked one, or when the
    /// client moved a moment ago.
    pub(super) fn select(&mut self, now: Instant, path: Path) {
        if self.selected == Some(path) {
            self.proven = true;
            return;
        }
        let lately = |at| now.saturating_duration_since(at) < MOVE_INTERVAL;
        if !self.is_listed(path) || (self.proven && self.moved_at.is_some_and(lately)) {
            return;
        }
        if self.proven {
            self.moved_at = Some(now);
        }
        self.selected = Some(path);
        self.proven = true;
        self.challenge = None;
    }

    /// The path that `bytes` for the selected one go to as well, if a challenge has room for them.
    pub(super) fn duplicate(&mut self, now: Instant, bytes: usize) -> Option<Path> {
        let challenge = self.challenge.as_mut()?;
        if now >= challenge.until {
            self.challenge = None;
            return None;
        }
        challenge.bytes = challenge.bytes.checked_sub(bytes)?;
        Some(challenge.path)
    }

    /// Takes out one path whose life is over.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Path> {
        let oldest = self.list.first()?;
        if now < oldest.last_check + PATH_LIFETIME {
            return None;
        }
        let expired = self.list.remove(0).path;
        self.forget_challenge(expired);
        if self.selected == Some(expired) {
            self.selected = self.list.last().map(|checked| checked.path);
            self.proven = false;
        }
        Some(expired)
    }

    /// When [`Self::expire`] has something next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.list.first().map(|oldest| oldest.last_check + PATH_LIFETIME)
    }

    pub(super) fn is_checked(&self, path: Path, now: Instant) -> bool {
        self.list.iter().any(|checked| checked.path == path && now < checked.last_check + PATH_LIFETIME)
    }

    pub(super) fn selected(&self) -> Option<Path> {
        self.selected
    }

    /// All of them, the one checked last at the end.
    pub(super) fn iter(&self) -> impl Iterator<Item = Path> + '_ {
        self.list.iter().map(|checked| checked.path)
    }

    fn is_listed(&self, path: Path) -> bool {
        self.list.iter().any(|checked| checked.path == path)
    }

    /// Starts a challenge of the path checked last, unless there is nothing to lose, or it had one a moment ago.
    fn challenge(&mut self, now: Instant, path: Path) -> bool {
        if !self.proven || self.selected == Some(path) {
            return false;
        }
        let Some(checked) = self.list.last_mut().filter(|checked| checked.path == path) else { return false };
        let lately = |at| now.saturating_duration_since(at) < CHALLENGE_INTERVAL;
        if checked.challenged_at.is_some_and(lately) {
            return false;
        }
        checked.challenged_at = Some(now);
        self.challenge = Some(Challenge { path, until: now + CHALLENGE_FOR, bytes: 0 });
        true
    }

    fn forget_challenge(&mut self, path: Path) {
        self.challenge.take_if(|challenge| challenge.path == path);
    }

    /// Moves `path` to the end of the list. Returns the one that went for it, if it is new and there was no room.
    fn renew(&mut self, now: Instant, path: Path) -> Option<Path> {
        let known = self.list.iter().position(|checked| checked.path == path);
        let (challenged_at, displaced) = match known {
            Some(at) => (self.list.remove(at).challenged_at, None),
            // The selected path is spared: eight replays from eight addresses must not cut the downlink.
            None if self.list.len() == PATHS_MAX => {
                let place = self.list.iter().position(|checked| Some(checked.path) != self.selected);
                (None, place.map(|at| self.list.remove(at).path))
            }
            None => (None, None),
        };
        if let Some(displaced) = displaced {
            self.forget_challenge(displaced);
        }
        self.list.push(CheckedPath { path, last_check: now, challenged_at });
        displaced
    }
}
