//! The ICE-lite agent of one session (RFC 8445 §2.5, §7.3, §8.2): answers checks, remembers where they came from.
//!
//! A lite agent sends no checks and keeps no candidate pairs: what it knows of the client's addresses are the [`paths`] from
//! which checks came. The offer's candidates are not used, and the client's ufrag and password are not needed. DTLS and SRTP
//! wait for no nomination. Its own credentials may change in mid-call ([`credentials`]).
//!
//! Not implemented: renomination (the NOMINATION attribute), which is not offered and ignored.
//!
//! # Consent
//!
//! RFC 7675 lets a full agent ask for consent. A lite agent cannot ask: every valid check counts as consent, answered
//! whether it nominates or not, and [`Timings::consent`] without one on any path ends the session.

mod credentials;
mod paths;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::sdp::Credentials;
use crate::stun::{Check, IntegrityKey, Refusal, write_refusal, write_success_with};
use crate::{Discard, Path};
pub use credentials::FORMER_MAX;
use credentials::Pairs;
pub(crate) use paths::AMPLIFICATION;
use paths::{Change, Checked, Paths};

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
/// Kinds of methods: input ([`Agent::handle_check`], [`Agent::select`], [`Agent::restart`], [`Agent::handle_timeout`]), the
/// deadline ([`Agent::poll_timeout`]) and queries ([`Agent::is_checked`], [`Agent::selected`]). After
/// [`Agent::handle_timeout`] returned `None`, nothing is due before [`Agent::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Agent {
    pairs: Pairs,
    consent: Duration,
    /// `None` once its passing was reported.
    consent_deadline: Option<Instant>,
    paths: Paths,
}

/// How an authenticated check was answered. The response was written to the buffer given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum CheckOutcome {
    /// With success.
    Answered {
        /// The path that had to go to make room: route it no more.
        displaced: Option<Path>,
        /// The path is challenged from here on: send something to it that the client has to answer.
        challenged: bool,
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
            pairs: Pairs::new(local_ufrag, key),
            consent: timings.consent,
            consent_deadline: Some(now + timings.setup),
            paths: Paths::new(),
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
        let key = self.pairs.verify(now, &check).ok_or(Discard::StunIntegrity)?;
        // RFC 8445 §7.3.1.1, only now: nobody without the key turns anybody's role.
        if let Some(refusal) = check.refusal() {
            write_refusal(&check, key, refusal, out);
            return Ok(CheckOutcome::Refused(refusal));
        }
        write_success_with(&check, key, path.remote, out, |out| more(&check, out));

        if self.consent_deadline.is_some() {
            self.consent_deadline = Some(now + self.consent);
        }
        let (received, answered) = (datagram.len(), out.len());
        let checked = Checked { path, nominates: check.nominates(), received, answered };
        let Change { displaced, challenged } = self.paths.checked(now, checked);
        Ok(CheckOutcome::Answered { displaced, challenged })
    }

    /// Whether a check knows a valid password of ours. Changes nothing.
    pub(crate) fn is_authentic(&self, check: &Check<'_>) -> bool {
        self.pairs.is_authentic(check)
    }

    /// ICE restarted before there was an agent: these credentials of ours came before those that it was made with.
    pub(crate) fn keep_former(&mut self, former: &[Credentials]) {
        self.pairs.keep_former(former);
    }

    /// ICE restarts with these credentials of ours; the former ones stay valid for a while.
    pub(crate) fn restart(&mut self, fresh: &Credentials) {
        self.pairs.restart(fresh);
    }

    /// The client proved that it sits behind `path`: something authentic that nobody saw before came from there. Changes
    /// nothing when the path is not a checked one.
    pub(crate) fn select(&mut self, now: Instant, path: Path) {
        self.paths.select(now, path);
    }

    /// Admits a path without a check: something fresh and authentic came from there, which proves more. Returns the path
    /// that had to go to make room. It is no consent.
    pub(crate) fn admit(&mut self, now: Instant, path: Path) -> Option<Path> {
        self.paths.admit(now, path)
    }

    /// The second path that a datagram of so many bytes goes to, while one is challenged.
    pub(crate) fn duplicate(&mut self, now: Instant, bytes: usize) -> Option<Path> {
        self.paths.duplicate(now, bytes)
    }

    /// Takes one thing that is due out of the agent. Call until `None`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Expired> {
        self.pairs.handle_timeout(now);
        if self.consent_deadline.is_some_and(|deadline| deadline <= now) {
            self.consent_deadline = None;
            return Some(Expired::Consent);
        }
        self.paths.expire(now).map(Expired::Path)
    }

    /// When [`Agent::handle_timeout`] wants to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [self.paths.poll_timeout(), self.consent_deadline, self.pairs.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether DTLS and (S)RTP from this path may be looked at.
    pub(crate) fn is_checked(&self, path: Path, now: Instant) -> bool {
        self.paths.is_checked(path, now)
    }

    /// Where to send. `None` until the first valid check, and after all paths have expired.
    pub(crate) fn selected(&self) -> Option<Path> {
        self.paths.selected()
    }

    /// All checked paths, the one checked last at the end: what a closing session takes out of the routing table.
    pub(crate) fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        self.paths.iter()
    }
}
