//! What the edges of a PoP send each other: a client's datagram as it came, or as it shall leave, with its 4-tuple in
//! front and a MAC behind (docs/LINK.md).
//!
//! ```text
//!  0            1        2      4    6      10    18         19        37         55
//! ┌─────┬──────┬────────┬──────┬────┬──────┬─────┬──────────┬─────────┬──────────┬──────────┬─────┐
//! │ver=1│ kind │ key id │ from │ to │ time │ seq │ families │ local   │ remote   │ datagram │ MAC │
//! │  4  │  4   │   8    │  16  │ 16 │  32  │ 64  │ 8        │ IP, port│ IP, port │          │ 128 │
//! └─────┴──────┴────────┴──────┴────┴──────┴─────┴──────────┴─────────┴──────────┴──────────┴─────┘
//!  families: bit 0 local, bit 1 remote is IPv6, bit 2 the client comes over TCP; an IPv4 address stands in the first 4 of its 16 bytes
//!  MAC: HMAC-SHA256 under the peers' key of that key id over all before it, first 16 bytes
//! ```
//!
//! Authenticated, not encrypted: what is inside is what the client's network saw. `to` keeps one edge's datagrams from
//! being replayed to another; `time` and [`Window`] keep them from being replayed to the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aws_lc_rs::{constant_time, hmac};

use super::RouteKeys;
use crate::ids::EdgeId;

#[cfg(test)]
mod tests;

/// Bytes around a client's datagram: with 28 of IP and UDP, 1400 bytes of it fit an Ethernet frame.
pub const OVERHEAD: usize = HEADER + MAC;

/// Seconds by which the clocks of two edges may differ. A datagram older than this is no news of any client.
pub const CLOCK_SKEW: u32 = 30;

const HEADER: usize = 55;
const MAC: usize = 16;
const VERSION: u8 = 1;
const LOCAL_V6: u8 = 1;
const REMOTE_V6: u8 = 2;
const OVER_TCP: u8 = 4;

/// Why one edge writes to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A client's datagram that is the receiver's, by its token or by what the receiver answered before.
    Up,
    /// A client's datagram that nobody here can open: is it yours?
    Offer,
    /// A datagram of the sender's for a client that the receiver reaches.
    Down,
    /// Yes: this 4-tuple is mine. No datagram.
    Mine,
}

/// One datagram between edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward<'a> {
    /// What it is for.
    pub kind: Kind,
    /// Who sent it.
    pub from: EdgeId,
    /// For whom.
    pub to: EdgeId,
    /// Unix seconds of its sending.
    pub time: u32,
    /// Rises by one with each datagram of the sender's, to whomever, and over restarts too.
    pub seq: u64,
    /// The address of the edge that the client reaches, as that edge sees it.
    pub local: SocketAddr,
    /// The client's address.
    pub remote: SocketAddr,
    /// The client holds a TCP connection to the edge that it reaches (RFC 6544).
    pub over_tcp: bool,
    /// The client's datagram, or what it is to be sent.
    pub datagram: &'a [u8],
}

impl RouteKeys {
    /// Writes a datagram for a peer into `out` (cleared first).
    pub fn seal_forward(&self, forward: &Forward<'_>, out: &mut Vec<u8>) {
        out.clear();
        let key_id = self.newest();
        let Some(keys) = &self.ring.slots[usize::from(key_id)] else { return };
        out.reserve(OVERHEAD + forward.datagram.len());
        let kind = match forward.kind {
            Kind::Up => 0,
            Kind::Offer => 1,
            Kind::Down => 2,
            Kind::Mine => 3,
        };
        out.extend_from_slice(&[VERSION << 4 | kind, key_id]);
        out.extend_from_slice(&forward.from.0.to_be_bytes());
        out.extend_from_slice(&forward.to.0.to_be_bytes());
        out.extend_from_slice(&forward.time.to_be_bytes());
        out.extend_from_slice(&forward.seq.to_be_bytes());
        let v6 = |address: SocketAddr, bit| if address.is_ipv6() { bit } else { 0 };
        let tcp = if forward.over_tcp { OVER_TCP } else { 0 };
        out.push(v6(forward.local, LOCAL_V6) | v6(forward.remote, REMOTE_V6) | tcp);
        for address in [forward.local, forward.remote] {
            let mut ip = [0; 16];
            match address.ip() {
                IpAddr::V4(v4) => ip[..4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => ip = v6.octets(),
            }
            out.extend_from_slice(&ip);
            out.extend_from_slice(&address.port().to_be_bytes());
        }
        out.extend_from_slice(forward.datagram);
        let mac = hmac::sign(&keys.peer, out);
        out.extend_from_slice(&mac.as_ref()[..MAC]);
    }

    /// Reads what [`RouteKeys::seal_forward`] wrote. `None`: not of an edge that holds our keys. Allocates nothing.
    #[must_use]
    pub fn open_forward<'a>(&self, bytes: &'a [u8]) -> Option<Forward<'a>> {
        let (signed, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        let (head, datagram) = signed.split_at_checked(HEADER)?;
        if head[0] >> 4 != VERSION {
            return None;
        }
        let kind = match head[0] & 0x0f {
            0 => Kind::Up,
            1 => Kind::Offer,
            2 => Kind::Down,
            3 => Kind::Mine,
            _ => return None,
        };
        let keys = self.ring.slots.get(usize::from(head[1]))?.as_ref()?;
        let expected = hmac::sign(&keys.peer, signed);
        constant_time::verify_slices_are_equal(&expected.as_ref()[..MAC], mac).ok()?;
        let families = head[18];
        Some(Forward {
            kind,
            from: EdgeId(u16::from_be_bytes(*head[2..].first_chunk()?)),
            to: EdgeId(u16::from_be_bytes(*head[4..].first_chunk()?)),
            time: u32::from_be_bytes(*head[6..].first_chunk()?),
            seq: u64::from_be_bytes(*head[10..].first_chunk()?),
            local: address(&head[19..37], families & LOCAL_V6 != 0)?,
            remote: address(&head[37..55], families & REMOTE_V6 != 0)?,
            over_tcp: families & OVER_TCP != 0,
            datagram,
        })
    }
}

fn address(bytes: &[u8], v6: bool) -> Option<SocketAddr> {
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?))
    };
    let port = u16::from_be_bytes(*bytes.get(16..)?.first_chunk()?);
    Some(SocketAddr::new(ip, port))
}

/// Datagrams of one peer that may overtake each other: 1024 are what its workers have under way at once, and some.
const WINDOW: u64 = 1024;
const WORDS: usize = 16;

/// Which of one peer's datagrams were seen.
#[derive(Debug, Clone)]
pub struct Window {
    highest: Option<u64>,
    /// Bit n mod 1024 stands for the n-th datagram, as long as n is among the last 1024.
    seen: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self { highest: None, seen: [0; WORDS] }
    }
}

impl Window {
    /// Whether this one is neither seen nor too old to tell; it is seen from then on.
    pub fn accept(&mut self, seq: u64) -> bool {
        match self.highest {
            Some(highest) if seq <= highest => {
                if highest - seq >= WINDOW {
                    return false;
                }
                let (word, bit) = place(seq);
                let fresh = self.seen[word] & bit == 0;
                self.seen[word] |= bit;
                return fresh;
            }
            Some(highest) if seq - highest < WINDOW => {
                for passed in highest + 1..seq {
                    let (word, bit) = place(passed);
                    self.seen[word] &= !bit;
                }
            }
            _ => self.seen = Default::default(),
        }
        let (word, bit) = place(seq);
        self.seen[word] |= bit;
        self.highest = Some(seq);
        true
    }
}

fn place(seq: u64) -> (usize, u64) {
    let at = seq % WINDOW;
    (usize::try_from(at / 64).unwrap_or_default(), 1 << (at % 64))
}
