//! Later offers and ICE restarts of sessions that this worker owns.

use std::time::Instant;

use link::ids::SessionId;
use rtc::{Candidate, Credentials, Fragment, Offer, OfferError, Renewal, Renewed, Session};

use super::Worker;
use super::client::Side;
use crate::renew::{self, Change, Changed, Minting, Refusal, Renewable};
use crate::seats::LOCAL;

struct Running<'a> {
    now: Instant,
    session: &'a mut Session,
}

impl Renewable for Running<'_> {
    fn local_ufrag(&self) -> &str {
        &self.session.agreed().local_ufrag
    }

    fn is_restart(&self, remote: &Credentials) -> bool {
        self.session.agreed().is_restart(&remote.ufrag, &remote.password)
    }

    fn offer(&mut self, offer: &Offer, with: &Renewal<'_>) -> Result<Renewed, OfferError> {
        self.session.handle_offer(self.now, offer, with)
    }

    fn fragment(&mut self, fragment: &Fragment, with: &Renewal<'_>) -> Option<Renewed> {
        self.session.handle_fragment(self.now, fragment, with)
    }
}

impl Worker {
    /// Takes what a client asks signaling to change in its call. `unix_seconds` dates the token of an ICE restart.
    ///
    /// # Errors
    /// Why nothing changed.
    pub fn handle_change(
        &mut self,
        now: Instant,
        unix_seconds: u32,
        session: SessionId,
        change: &Change,
        candidates: &[Candidate],
    ) -> Result<Changed, Refusal> {
        self.now = now;
        let key = *self.by_id.get(&session).ok_or(Refusal::NoSuchCall)?;
        let client = self.clients.get_mut(key).ok_or(Refusal::NoSuchCall)?;
        let entry = self.directory.get(session).ok_or(Refusal::NoSuchCall)?;
        let transceiver = match &client.side {
            Side::Remote(remote) => remote.transceiver(),
            Side::Echo(_) => LOCAL,
        };
        let minting = Minting { keys: self.keys.route(), edge: self.config.edge, session, transceiver, unix_seconds };
        let mut running = Running { now, session: &mut client.rtc };
        let changed = renew::change(&mut running, &entry.versions, minting, change, candidates);
        self.service(now, key);
        changed
    }
}
