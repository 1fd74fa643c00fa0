//! The route token: the ICE ufrag as an encrypted, authenticated, expiring address (design: docs/LINK.md).
//! CONTRACT skeleton.

use crate::ids::{EdgeId, SessionId, TransceiverId};

/// What a ufrag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Which edge answered.
    pub edge: EdgeId,
    /// Which transceiver was chosen at set-up: a hint for tools.
    pub transceiver: TransceiverId,
    /// Which session.
    pub session: SessionId,
    /// Unix seconds at which the token was made.
    pub minted: u32,
}

/// Sixteen key slots: sign with the newest, accept all that are filled. Cheap to clone, `Send + Sync`, redacted in `Debug`.
#[derive(Clone)]
pub struct RouteKeys { /* private */ }

impl RouteKeys {
    /// Derives route and password key of key id 0 from a 32-byte secret.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self { todo!() }
    /// Seals a route into a ufrag.
    #[must_use]
    pub fn seal(&self, route: &Route) -> String { todo!() }
    /// Opens the token at the start of a ufrag; what follows it is ignored. `None`: not one of ours. Allocates nothing.
    #[must_use]
    pub fn open(&self, ufrag: &str) -> Option<Route> { todo!() }
    /// The ICE password that belongs to a ufrag made by [`RouteKeys::seal`].
    #[must_use]
    pub fn password(&self, ufrag: &str) -> Option<String> { todo!() }
}
