//! The ICE-lite agent of one session (RFC 8445 §2.5, §7.3, §8.2): answers checks, remembers where they came from.
//!
//! A lite agent sends no checks and keeps no candidate pairs. What it knows of the client's addresses is the list of
//! **checked paths**: 4-tuples from which an authenticated check came within [`PATH_LIFETIME`], or media that proves more
//! ([`Agent::admit`]): a path without a check lives that long and is renewed by the checks that follow. The offer's
//! candidates are not used, and the client's ufrag and password are not needed.
//!
//! # Which path is sent on
//!
//! The first checked path is selected at once: DTLS and SRTP wait for no nomination, because against a lite agent
//! Chromium nominates only 115 ms later. From then on:
//!
//! * A fresh authentic packet from a checked path selects and **proves** it ([`Agent::select`]). Clients that change their
//!   address without nominating anew (Firefox after a NAT rebind) are followed so.
//! * A check with USE-CANDIDATE selects its path as long as the selected one is not proven. Whoever sniffed a check can
//!   send it again from elsewhere, so once there is something to lose, a check alone moves nothing.
//! * When the life of the selected path is over, the path checked last takes its place, unproven.
//!
//! Not implemented: a challenge to a nominated path. A client that changes its address and sends no audio is followed
//! with its next report or message, which may take 5 s. Renomination (the NOMINATION attribute) is not offered and
//! ignored.
//!
//! # Consent
//!
//! RFC 7675 lets a full agent ask for consent. A lite agent cannot ask: every valid check counts as consent, answered
//! whether it nominates or not, and [`Timings::consent`] without one on any path ends the session.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::stun::{Check, IntegrityKey, Refusal, write_refusal, write_success_with};
use crate::{Discard, Path};

/// Paths of one session at most. A phone with two interfaces in both address families, rebound once, has eight; the
/// bound keeps a client that changes its port with each check from filling the edge's table of 4-tuples.
pub(crate) const PATHS_MAX: usize = 8;

/// How long a path stays after its last valid check. Browsers check each path that they keep at least every 5 s or so
/// (RFC 7675 §5.1), so five lost in a row are survived.
pub(crate) const PATH_LIFETIME: Duration = Duration::from_secs(30);

/// How long an agent waits for checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timings {
    /// For the first one, counted from creation.
    pub(crate) setup: Duration,
    /// For the next one, counted from the last.
    pub(crate) consent: Duration,
}

/// Authenticated checks of one session and what follows from them.
///
/// Kinds of methods: input ([`Agent::handle_check`], [`Agent::select`], [`Agent::handle_timeout`]), the deadline ([`Agent::poll_timeout`])
/// and queries ([`Agent::is_checked`], [`Agent::selected`]). After [`Agent::handle_timeout`] returned `None`, nothing is
/// due before [`Agent::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Agent {
    key: IntegrityKey,
    local_ufrag: String,
    consent: Duration,
    /// `None` once its passing was reported.
    consent_deadline: Option<Instant>,
    /// In order of their last check, oldest first. Never more than [`PATHS_MAX`].
    paths: Vec<CheckedPath>,
    /// Always one of `paths`; `None` only while there are none.
    selected: Option<Path>,
    /// A fresh authentic packet came from `selected`.
    proven: bool,
}

#[derive(Debug, Clone, Copy)]
struct CheckedPath {
    path: Path,
    last_check: Instant,
}

/// How an authenticated check was answered. The response was written to the buffer given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum CheckOutcome {
    /// With success.
    Answered {
        /// The path that had to go to make room: route it no more.
        displaced: Option<Path>,
    },
    /// With an error response; it changed nothing and is no consent.
    Refused(Refusal),
}

/// What has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// A path: route it no more. [`Agent::selected`] may be another one since.
    Path(Path),
    /// Consent (or, when no check ever came, the setup): the session is over. Reported once.
    Consent,
}

impl Agent {
    /// `local_ufrag` and `key` are what our answer handed out.
    pub(crate) fn new(now: Instant, key: IntegrityKey, local_ufrag: &str, timings: Timings) -> Self {
        Self {
            key,
            local_ufrag: local_ufrag.to_owned(),
            consent: timings.consent,
            consent_deadline: Some(now + timings.setup),
            paths: Vec::with_capacity(PATHS_MAX),
            selected: None,
            proven: false,
        }
    }

    /// Takes a datagram of class STUN and writes the response for `path` to `out` (cleared first), with the attributes that
    /// `more` appends once the check is known to be the client's. Allocates nothing once `out` has room for 128 bytes.
    ///
    /// USERNAME's second half is not compared: it is the client's own, and MESSAGE-INTEGRITY proves the client.
    ///
    /// # Errors
    /// Why the datagram was dropped; `out` is empty then, and nothing changed.
    pub(crate) fn handle_check(
        &mut self,
        now: Instant,
        path: Path,
        datagram: &[u8],
        out: &mut Vec<u8>,
        more: impl FnOnce(&Check<'_>, &mut Vec<u8>),
    ) -> Result<CheckOutcome, Discard> {
        out.clear();
        let check = Check::parse(datagram)?;
        if check.local_ufrag() != self.local_ufrag || !check.verify(&self.key) {
            return Err(Discard::StunIntegrity);
        }
        if let Some(refusal) = check.refusal() {
            write_refusal(&check, &self.key, refusal, out);
            return Ok(CheckOutcome::Refused(refusal));
        }
        write_success_with(&check, &self.key, path.remote, out, |out| more(&check, out));

        if self.consent_deadline.is_some() {
            self.consent_deadline = Some(now + self.consent);
        }
        let displaced = self.renew(now, path);
        if self.selected.is_none() || (check.nominates() && !self.proven) {
            self.selected = Some(path);
        }
        Ok(CheckOutcome::Answered { displaced })
    }

    /// The client proved that it sits behind `path`: something authentic that nobody saw before came from there. Changes
    /// nothing when the path is not a checked one.
    pub(crate) fn select(&mut self, path: Path) {
        if self.paths.iter().any(|checked| checked.path == path) {
            self.selected = Some(path);
            self.proven = true;
        }
    }

    /// Admits a path without a check: something fresh and authentic came from there, which proves more. Returns the path
    /// that had to go to make room. It is no consent.
    pub(crate) fn admit(&mut self, now: Instant, path: Path) -> Option<Path> {
        self.renew(now, path)
    }

    /// Takes one thing that is due out of the agent. Call until `None`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Expired> {
        if self.consent_deadline.is_some_and(|deadline| deadline <= now) {
            self.consent_deadline = None;
            return Some(Expired::Consent);
        }
        let oldest = self.paths.first()?;
        if now < oldest.last_check + PATH_LIFETIME {
            return None;
        }
        let expired = self.paths.remove(0).path;
        if self.selected == Some(expired) {
            self.selected = self.paths.last().map(|checked| checked.path);
            self.proven = false;
        }
        Some(Expired::Path(expired))
    }

    /// When [`Agent::handle_timeout`] wants to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let path = self.paths.first().map(|oldest| oldest.last_check + PATH_LIFETIME);
        [path, self.consent_deadline].into_iter().flatten().min()
    }

    /// Whether DTLS and (S)RTP from this path may be looked at.
    pub(crate) fn is_checked(&self, path: Path, now: Instant) -> bool {
        self.paths.iter().any(|checked| checked.path == path && now < checked.last_check + PATH_LIFETIME)
    }

    /// Where to send. `None` until the first valid check, and after all paths have expired.
    pub(crate) fn selected(&self) -> Option<Path> {
        self.selected
    }

    /// All checked paths, the one checked last at the end: what a closing session takes out of the routing table.
    pub(crate) fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        self.paths.iter().map(|checked| checked.path)
    }

    /// Moves `path` to the end of the list. Returns the one that went for it, if it is new and there was no room.
    fn renew(&mut self, now: Instant, path: Path) -> Option<Path> {
        let known = self.paths.iter().position(|checked| checked.path == path);
        let displaced = match known {
            Some(at) => {
                self.paths.remove(at);
                None
            }
            // The selected path is spared: eight replays from eight addresses must not cut the downlink.
            None if self.paths.len() == PATHS_MAX => self
                .paths
                .iter()
                .position(|checked| Some(checked.path) != self.selected)
                .map(|at| self.paths.remove(at).path),
            None => None,
        };
        self.paths.push(CheckedPath { path, last_check: now });
        displaced
    }
}
