//! The handshake's part of a session: what passes between SPED and DTLS, and the pause before the first downlink packet.

use std::time::{Duration, Instant};

use crate::dtls::Dtls;
use crate::sped::Sped;
use crate::{Discard, Path, SrtpProfile};

/// How long after a response that carried our flight the first media or data of ours may leave. A client that hears either
/// while its own last flight waits for its next check takes the handshake for done everywhere, and drops that flight:
/// it then stalls until its DTLS timer, 200 ms. One turn of its network thread is enough; 3 to 5 ms are sure.
pub(super) const HOLD: Duration = Duration::from_millis(4);

/// Taken for the round trip of a client whose handshake is in its checks, of which none is known. These repeat our flight
/// every 50 ms or so; sending it by itself is the way out when they stop.
pub(super) const SPED_ROUND_TRIP: Duration = Duration::from_millis(200);

/// Data kept that came in the pause: the initial window of an SCTP client, as with SNAP that may come at once. 10 of 1200
/// bytes are 12 KB, for a few milliseconds.
const HELD_DATA_MAX: usize = crate::dtls::EARLY_DATA_MAX;

/// DTLS 1.3 on the wire.
const DTLS13: u16 = 0xFEFC;

/// DTLS is connected, and the pause is not over.
pub(super) struct Held {
    pub(super) version: u16,
    pub(super) profile: SrtpProfile,
    pub(super) keys: Vec<u8>,
    pub(super) from: Option<Path>,
    pub(super) data: Vec<(Option<Path>, Vec<u8>)>,
}

impl Held {
    pub(super) fn keep(&mut self, from: Option<Path>, data: Vec<u8>) -> Result<(), Discard> {
        if self.data.len() == HELD_DATA_MAX {
            return Err(Discard::BeforeKeys);
        }
        self.data.push((from, data));
        Ok(())
    }
}

/// Gives DTLS a datagram that a check `carried` or that came by itself, and SPED what follows from it. `active`: we are the
/// DTLS client.
pub(super) fn take(
    now: Instant,
    sped: &mut Sped,
    dtls: &mut Dtls,
    active: bool,
    datagram: &[u8],
    carried: bool,
) -> Result<(), Discard> {
    let connected = dtls.connected_version().is_some();
    dtls.handle_datagram(now, datagram)?;
    if !connected || carried {
        sped.received(datagram, carried);
    }
    if !connected {
        match dtls.connected_version() {
            Some(version) => {
                let ours = active == (version == DTLS13);
                sped.handshake_done(ours.then(|| dtls.datagrams()));
            }
            None => sped.capture(dtls.datagrams()),
        }
    }
    Ok(())
}
