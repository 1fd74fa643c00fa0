//! The client's part of a playout report.

use bytes::{BufMut, BytesMut};

use super::{Drop, Reader, VARINT_MAX, put_varint, varint_len};

const FLAG_TRANSPORT_WIDE: u8 = 0x01;
const FLAG_DELAY: u8 = 0x02;

/// What the edge knows of the way to the client and of what the client plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientView {
    /// Round trip between edge and client in microseconds; 0 until known.
    pub rtt_us: u32,
    /// From the arrival of a packet at the client to its sound, in microseconds.
    pub delay_us: Option<u32>,
    /// The item sample (48 kHz) of the utterance behind the last packet that is known to have reached the client.
    pub arrived: u64,
    /// Item samples sent behind that one and known not to have.
    pub lost: u64,
    /// Of what goes to the client, the part that is lost now, in 1/256.
    pub loss: u8,
    /// How often the client has told of loss, low 8 bits.
    pub told: u8,
    /// Told packet by packet (transport-wide feedback), not by receiver reports alone.
    pub transport_wide: bool,
}

impl ClientView {
    /// On the wire, its length included.
    pub(super) fn bytes(&self) -> usize {
        1 + self.body_bytes()
    }

    fn body_bytes(&self) -> usize {
        let delay = self.delay_us.map_or(0, |delay| varint_len(delay.into()));
        let place = varint_len(self.arrived.min(VARINT_MAX)) + varint_len(self.lost.min(VARINT_MAX));
        3 + varint_len(self.rtt_us.into()) + place + delay
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        // At most 3 + 4 * 8.
        out.put_u8(u8::try_from(self.body_bytes()).unwrap_or(u8::MAX));
        let transport_wide = if self.transport_wide { FLAG_TRANSPORT_WIDE } else { 0 };
        let delay = if self.delay_us.is_some() { FLAG_DELAY } else { 0 };
        out.put_slice(&[transport_wide | delay, self.loss, self.told]);
        put_varint(out, self.rtt_us.into());
        put_varint(out, self.arrived.min(VARINT_MAX));
        put_varint(out, self.lost.min(VARINT_MAX));
        if let Some(delay_us) = self.delay_us {
            put_varint(out, delay_us.into());
        }
    }

    /// What follows the fields known here, and flags not known, are skipped.
    pub(super) fn read(rest: &mut Reader<'_>) -> Result<Self, Drop> {
        let len = rest.u8()?;
        let mut body = Reader(rest.take(len.into())?);
        let flags = body.u8()?;
        Ok(Self {
            transport_wide: flags & FLAG_TRANSPORT_WIDE != 0,
            loss: body.u8()?,
            told: body.u8()?,
            rtt_us: body.varint32()?,
            arrived: body.varint()?,
            lost: body.varint()?,
            delay_us: if flags & FLAG_DELAY == 0 { None } else { Some(body.varint32()?) },
        })
    }
}
