//! The bit that says of a message that it is deflated (RFC 7692 §6), taken out of frames on their way to a library that refuses it.
//!
//! Run loop: bytes of the connection pass through [`Rsv1::pass`] before the library reads them, and for each message that it
//! hands out [`Rsv1::take`] says what the message was. A deflated text becomes a binary message for the library, as its bytes
//! are no UTF-8. Everything else passes as it is, wrong bits too: what is wrong with a frame the library says.
//!
//! Invariant: of each message that began and was not handed out there is one [`Kind`], in order. A library that reads only
//! when it holds no whole frame, and B bytes at a time, leaves at most B / 6 + 2 of them: the smallest frame has 6 bytes, and
//! one message may be in parts. Behind [`Rsv1::end`] there is none: what is read then is thrown away.

use std::collections::VecDeque;

const RSV1: u8 = 0x40;
const MASKED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// What a message was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As the library sees it.
    Plain,
    /// Deflated text.
    Text,
    /// Deflated bytes.
    Binary,
}

/// The next byte of a frame (RFC 6455 §5.2).
#[derive(Debug, Clone, Copy)]
enum Next {
    First,
    Second,
    /// Of the extended length: so many bytes, the length so far, and the bytes of the mask.
    Length(u8, u64, u64),
    /// Mask and payload: so many bytes.
    Rest(u64),
}

/// One connection's frames on their way in.
#[derive(Debug)]
pub struct Rsv1 {
    next: Next,
    kinds: VecDeque<Kind>,
    ended: bool,
}

impl Default for Rsv1 {
    fn default() -> Self {
        Self { next: Next::First, kinds: VecDeque::new(), ended: false }
    }
}

impl Rsv1 {
    /// Takes the bit out of bytes that arrived.
    pub fn pass(&mut self, mut bytes: &mut [u8]) {
        while let Some(byte) = bytes.first_mut() {
            let mut passed = 1;
            self.next = match self.next {
                Next::First => {
                    *byte = self.begin(*byte);
                    Next::Second
                }
                Next::Second => {
                    let mask = if *byte & MASKED == 0 { 0 } else { 4 };
                    match *byte & !MASKED {
                        126 => Next::Length(2, 0, mask),
                        127 => Next::Length(8, 0, mask),
                        length => rest(mask + u64::from(length)),
                    }
                }
                Next::Length(left, length, mask) => {
                    let length = length << 8 | u64::from(*byte);
                    if left == 1 { rest(length.saturating_add(mask)) } else { Next::Length(left - 1, length, mask) }
                }
                Next::Rest(left) => {
                    passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    rest(left - passed as u64)
                }
            };
            bytes = &mut bytes[passed..];
        }
    }

    /// What the message was that the library hands out.
    pub fn take(&mut self) -> Kind {
        self.kinds.pop_front().unwrap_or(Kind::Plain)
    }

    /// Nobody asks any more what messages were.
    pub fn end(&mut self) {
        self.ended = true;
        self.kinds = VecDeque::new();
    }

    fn begin(&mut self, byte: u8) -> u8 {
        let (kind, byte) = match (byte & OPCODE, byte & RSV1) {
            (TEXT | BINARY, 0) => (Kind::Plain, byte),
            (TEXT, _) => (Kind::Text, byte & !RSV1 & !OPCODE | BINARY),
            (BINARY, _) => (Kind::Binary, byte & !RSV1),
            _ => return byte,
        };
        if !self.ended {
            self.kinds.push_back(kind);
        }
        byte
    }
}

fn rest(left: u64) -> Next {
    if left == 0 { Next::First } else { Next::Rest(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame of so many bytes that look like the beginning of a deflated text.
    fn frame(first: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![first];
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(length @ 0..126), _) => frame.push(0x80 | length),
            (_, Ok(length)) => {
                frame.push(0x80 | 126);
                frame.extend(length.to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + 4 + length, 0xc1);
        frame
    }

    #[test]
    fn only_the_first_byte_of_a_deflated_message_is_changed_however_the_bytes_are_cut() {
        let lengths = [0, 1, 125, 126, 65535, 65536];
        let wire: Vec<u8> = lengths.iter().flat_map(|length| frame(0xc1, *length)).collect();
        let wanted: Vec<u8> = lengths
            .iter()
            .flat_map(|length| {
                let mut frame = frame(0xc1, *length);
                frame[0] = 0x82;
                frame
            })
            .collect();
        for cut in [1, 2, 3, 7, 4096, wire.len()] {
            let mut rsv1 = Rsv1::default();
            let mut passed = wire.clone();
            passed.chunks_mut(cut).for_each(|chunk| rsv1.pass(chunk));
            assert!(passed == wanted, "{cut}");
            assert_eq!([(); 6].map(|()| rsv1.take()), [Kind::Text; 6]);
        }
    }

    #[test]
    fn messages_are_told_in_order_and_parts_and_pings_are_none() {
        let firsts = [0x81, 0x41, 0x00, 0x89, 0x80, 0xc2, 0x82, 0xc1];
        let mut wire: Vec<u8> = firsts.iter().flat_map(|first| frame(*first, 3)).collect();
        let mut rsv1 = Rsv1::default();
        rsv1.pass(&mut wire);
        let passed: Vec<u8> = wire.chunks(9).map(|frame| frame[0]).collect();
        assert_eq!(passed, [0x81, 0x02, 0x00, 0x89, 0x80, 0x82, 0x82, 0x82]);
        assert_eq!([(); 5].map(|()| rsv1.take()), [Kind::Plain, Kind::Text, Kind::Binary, Kind::Plain, Kind::Text]);
    }

    #[test]
    fn behind_the_end_the_bit_is_taken_out_and_nothing_is_kept() {
        let mut rsv1 = Rsv1::default();
        rsv1.pass(&mut frame(0xc1, 3));
        rsv1.end();
        let mut wire = frame(0xc1, 3);
        rsv1.pass(&mut wire);
        assert_eq!((wire[0], rsv1.kinds.capacity()), (0x82, 0));
    }

    #[test]
    fn the_bit_stays_where_it_is_wrong() {
        // Parts, pings, closes, and opcodes that are none (RFC 7692 §6.1).
        for first in [0xc0, 0x40, 0xc9, 0xca, 0xc8, 0xc3] {
            let mut wire = frame(first, 1);
            Rsv1::default().pass(&mut wire);
            assert_eq!(wire[0], first);
        }
    }
}
