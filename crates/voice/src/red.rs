//! RED (RFC 2198): a packet with copies of those before it.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |1|  block PT   |     timestamp offset      |   block length    |  each copy, oldest first
//! |0|  block PT   |                                                  the packet itself
//! |  copies, in the same order  |  the packet, to the end  |
//! ```
//!
//! A copy carries no sequence number. Copies are of the packets right before this one, so the last has the number before it
//! and so on; their timestamps are checked where they are used.

/// Copies that are looked at, the nearest ones: 8 of 20 ms reach over any hole that concealment does not end first.
pub const MAX_COPIES: usize = 8;

/// A packet of before, repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied<'a> {
    /// How many packets before.
    pub back: u16,
    /// How much earlier, in ticks of the stream's clock.
    pub offset: u16,
    /// Not empty.
    pub payload: &'a [u8],
}

/// A packet taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Red<'a> {
    /// The packet itself.
    pub primary: &'a [u8],
    copies: [Option<Copied<'a>>; MAX_COPIES],
}

impl<'a> Red<'a> {
    /// Reads a RED payload. `None`: it contradicts itself. Blocks of another payload type than the packet's own and empty
    /// ones are left out.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut rest = payload;
        let mut count = 0_usize;
        let payload_type = loop {
            let first = *rest.first()?;
            if first & 0x80 == 0 {
                break first;
            }
            rest = rest.get(4..)?;
            count += 1;
        };
        let mut blocks = rest.get(1..)?;
        let mut copies = [None; MAX_COPIES];
        for (index, &[first, high, middle, low]) in payload.as_chunks::<4>().0.iter().take(count).enumerate() {
            let length = usize::from(middle & 0b11) << 8 | usize::from(low);
            let (block, behind) = blocks.split_at_checked(length)?;
            blocks = behind;
            let offset = u16::from(high) << 6 | u16::from(middle >> 2);
            let back = count - index;
            let wanted = first & 0x7f == payload_type && offset > 0 && !block.is_empty();
            if let Some(place) = MAX_COPIES.checked_sub(back).and_then(|at| copies.get_mut(at)).filter(|_| wanted) {
                *place = Some(Copied { back: u16::try_from(back).ok()?, offset, payload: block });
            }
        }
        Some(Self { primary: blocks, copies })
    }

    /// The copies, oldest first.
    pub fn copies(&self) -> impl Iterator<Item = Copied<'a>> + '_ {
        self.copies.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each copy as (payload type, offset, bytes), then the packet.
    fn red(copies: &[(u8, u16, &[u8])], (payload_type, primary): (u8, &[u8])) -> Vec<u8> {
        let mut out = Vec::new();
        for (payload_type, offset, block) in copies {
            let word = 1 << 31
                | u32::from(*payload_type) << 24
                | u32::from(*offset) << 10
                | u32::try_from(block.len()).unwrap();
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.push(payload_type);
        copies.iter().for_each(|(_, _, block)| out.extend_from_slice(block));
        out.extend_from_slice(primary);
        out
    }

    #[test]
    fn copies_are_numbered_from_the_packet_back() {
        let packet = red(&[(111, 1920, b"older"), (111, 960, b"old")], (111, b"new"));
        let red = Red::parse(&packet).unwrap();
        assert_eq!(red.primary, b"new");
        let copies: Vec<_> = red.copies().map(|copy| (copy.back, copy.offset, copy.payload)).collect();
        assert_eq!(copies, [(2, 1920, &b"older"[..]), (1, 960, b"old")]);
    }

    /// What Chromium sends at first, and behind silence.
    #[test]
    fn a_packet_without_copies_is_the_packet() {
        let red = Red::parse(&[111, 1, 2, 3]).unwrap();
        assert_eq!((red.primary, red.copies().count()), (&[1, 2, 3][..], 0));
    }

    #[test]
    fn empty_blocks_and_those_of_other_codecs_take_their_place_and_are_left_out() {
        let packet = red(&[(111, 2880, b"oldest"), (13, 1920, b"noise"), (111, 960, b"")], (111, b"new"));
        let red = Red::parse(&packet).unwrap();
        assert_eq!(red.copies().map(|copy| copy.back).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn of_many_copies_the_nearest_are_kept() {
        let many: Vec<(u8, u16, &[u8])> = (0..20).map(|index| (111, 960 * (20 - index), &b"x"[..])).collect();
        let packet = red(&many[4..], (111, b"new"));
        let backs: Vec<u16> = Red::parse(&packet).unwrap().copies().map(|copy| copy.back).collect();
        assert_eq!(backs, [8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_packet_cut_anywhere_in_its_headers_or_copies_is_refused() {
        let packet = red(&[(111, 1920, b"older"), (111, 960, b"old")], (111, b""));
        for cut in 0..packet.len() {
            assert_eq!(Red::parse(&packet[..cut]), None, "{cut}");
        }
        assert_eq!(Red::parse(&packet).unwrap().primary, b"");
    }
}
