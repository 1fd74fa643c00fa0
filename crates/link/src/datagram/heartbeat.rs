//! Heartbeats: a clock, what was heard of the other end's clock, and how the sender finds the path.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Drop, HEAD_BYTES, KIND_HEARTBEAT, Reader, VERSION};

const FLAG_CONGESTED: u8 = 0x01;
const FLAG_ECHO: u8 = 0x02;

/// What each end says to the other some times per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Sender's clock.
    pub clock32: u32,
    /// The sender finds its direction of the path congested.
    pub congested: bool,
    /// The newest heartbeat that the sender got.
    pub echo: Option<Echo>,
}

/// A heartbeat given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The clock in it.
    pub clock32: u32,
    /// Microseconds from its arrival to this heartbeat.
    pub held_us: u32,
}

impl Heartbeat {
    /// The datagram.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut batch = BytesMut::with_capacity(HEAD_BYTES + 9);
        batch.put_u8(VERSION << 4 | KIND_HEARTBEAT);
        batch.put_u32(self.clock32);
        let congested = if self.congested { FLAG_CONGESTED } else { 0 };
        match self.echo {
            Some(echo) => {
                batch.put_u8(congested | FLAG_ECHO);
                batch.put_u32(echo.clock32);
                batch.put_u32(echo.held_us);
            }
            None => batch.put_u8(congested),
        }
        batch.freeze()
    }

    /// What follows the head; bytes after the fields are for later versions.
    pub(super) fn parse(clock32: u32, mut rest: Reader<'_>) -> Result<Self, Drop> {
        let flags = if rest.0.is_empty() { 0 } else { rest.u8()? };
        let echo = match flags & FLAG_ECHO {
            0 => None,
            _ => Some(Echo { clock32: rest.u32()?, held_us: rest.u32()? }),
        };
        Ok(Self { clock32, congested: flags & FLAG_CONGESTED != 0, echo })
    }
}
