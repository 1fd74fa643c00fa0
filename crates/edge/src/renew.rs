//! Later offers and ICE restarts of a call that there is: what signaling asks the session's owner, and what it is told.
//!
//! A call that no worker has claimed yet lies with signaling, which answers by itself; any other is asked of its worker
//! through its mailbox. Both do the same to different things, which is here.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use link::ids::{EdgeId, SessionId, TransceiverId};
use link::route::{Route, RouteKeys};
use rtc::{Candidate, Credentials, Fragment, Identity, Offer, OfferError, Renewal, Renewed};
use tokio::sync::oneshot;

use crate::directory::Pending;
use crate::keys::PopKeys;

/// A question to the owner of a session.
#[derive(Debug)]
pub struct Ask {
    /// Which.
    pub session: SessionId,
    /// What.
    pub change: Change,
    /// Advertised addresses.
    pub candidates: Vec<Candidate>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Changed, Refusal>>,
}

/// What a client wants changed.
#[derive(Debug)]
pub enum Change {
    /// By a later offer.
    Offer(Box<Offer>),
    /// By a fragment that names the ICE sessions to one of which it belongs: `None` is any.
    Fragment(Fragment, Option<Vec<u32>>),
}

/// What became of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Changed {
    /// Answer or fragment, to be sent back; `None`: there is nothing to say.
    pub answer: Option<String>,
    /// The call has another ICE session than before.
    pub restarted: bool,
    /// Number of its ICE session.
    pub ice_session: u32,
}

/// Without the answer, in which our password stands.
impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer: _, restarted, ice_session } = self;
        let mut changed = f.debug_struct("Changed");
        changed.field("restarted", restarted).field("ice_session", ice_session).finish_non_exhaustive()
    }
}

/// Why nothing became of it. The call goes on as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such call here.
    NoSuchCall,
    /// Its owner has more to do than to answer.
    Busy,
    /// The offer asks for what cannot be.
    Offer(OfferError),
    /// The fragment is of another ICE session than the call's.
    OtherIceSession,
    /// The fragment names credentials that are not the ICE session's, and does not ask for another one.
    OtherCredentials,
}

/// What of a call is counted from its creation on, whoever has it.
#[derive(Debug)]
pub struct Versions {
    answers: AtomicU64,
    ice_session: AtomicU32,
}

impl Default for Versions {
    fn default() -> Self {
        Self { answers: AtomicU64::new(1), ice_session: AtomicU32::new(1) }
    }
}

impl Versions {
    /// Number of the ICE session: each restart is one more.
    #[must_use]
    pub fn ice_session(&self) -> u32 {
        self.ice_session.load(Ordering::Relaxed)
    }
}

/// What can be changed: a session, or what will be one.
pub(crate) trait Renewable {
    /// The ufrag that was handed out last.
    fn local_ufrag(&self) -> &str;

    /// Whether these credentials of the client's begin another ICE session.
    fn is_restart(&self, remote: &Credentials) -> bool;

    /// Takes an offer.
    fn offer(&mut self, offer: &Offer, with: &Renewal<'_>) -> Result<Renewed, OfferError>;

    /// Takes a fragment.
    fn fragment(&mut self, fragment: &Fragment, with: &Renewal<'_>) -> Option<Renewed>;
}

/// A call that nobody claimed: only what is agreed changes.
pub(crate) struct PendingCall<'a> {
    pub(crate) pending: &'a mut Pending,
    pub(crate) keys: &'a PopKeys,
}

impl Renewable for PendingCall<'_> {
    fn local_ufrag(&self) -> &str {
        &self.pending.setup.local_ufrag
    }

    fn is_restart(&self, remote: &Credentials) -> bool {
        self.pending.setup.is_restart(&remote.ufrag, &remote.password)
    }

    fn offer(&mut self, offer: &Offer, with: &Renewal<'_>) -> Result<Renewed, OfferError> {
        let fingerprint = self.keys.identity(self.pending.first_ufrag()).map_or("", Identity::fingerprint);
        let renewed = self.pending.setup.renew(offer, &Renewal { fingerprint, ..*with })?;
        self.pending.renew(&renewed);
        Ok(renewed)
    }

    fn fragment(&mut self, fragment: &Fragment, with: &Renewal<'_>) -> Option<Renewed> {
        let renewed = self.pending.setup.restart(fragment, with)?;
        self.pending.renew(&renewed);
        Some(renewed)
    }
}

/// Whose credentials are made, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Minting<'a> {
    pub(crate) keys: &'a RouteKeys,
    pub(crate) edge: EdgeId,
    pub(crate) session: SessionId,
    pub(crate) transceiver: TransceiverId,
    pub(crate) unix_seconds: u32,
}

/// Changes what is agreed.
pub(crate) fn change(
    call: &mut impl Renewable,
    versions: &Versions,
    minting: Minting<'_>,
    change: &Change,
    candidates: &[Candidate],
) -> Result<Changed, Refusal> {
    let fresh = fresh(call.local_ufrag(), minting).ok_or(Refusal::Busy)?;
    let ice_session = versions.ice_session();
    let version = versions.answers.load(Ordering::Relaxed) + 1;
    let with = Renewal { fingerprint: "", candidates, version, ice_session, fresh: &fresh };
    let renewed = match change {
        Change::Offer(offer) => {
            let renewed = call.offer(offer, &with).map_err(Refusal::Offer)?;
            versions.answers.store(version, Ordering::Relaxed);
            Some(renewed)
        }
        Change::Fragment(_, Some(sessions)) if !sessions.contains(&ice_session) => {
            return Err(Refusal::OtherIceSession);
        }
        // RFC 9725 §4.3.3: who restarts ICE says that any session will do.
        Change::Fragment(fragment, Some(_)) => match &fragment.credentials {
            Some(remote) if call.is_restart(remote) => return Err(Refusal::OtherCredentials),
            _ => None,
        },
        Change::Fragment(fragment, None) => call.fragment(fragment, &with),
    };
    let restarted = renewed.as_ref().is_some_and(|renewed| renewed.restarted);
    let ice_session = ice_session + u32::from(restarted);
    versions.ice_session.store(ice_session, Ordering::Relaxed);
    Ok(Changed { answer: renewed.map(|renewed| renewed.answer), restarted, ice_session })
}

/// Credentials that the call never had: equal routes have equal tokens, so each is dated after the last.
fn fresh(last: &str, minting: Minting<'_>) -> Option<Credentials> {
    let Minting { keys, edge, session, transceiver, unix_seconds } = minting;
    let after = keys.open(last).map_or(0, |route| route.minted.saturating_add(1));
    let route = Route { edge, transceiver, session, minted: unix_seconds.max(after) };
    let ufrag = keys.seal(&route);
    let password = keys.password(&ufrag)?.into();
    Some(Credentials { ufrag, password })
}
