//! Keys pressed on the user's side (RFC 4733): each is told once, however many packets say it.
//!
//! ```text
//! |     event     |E|R|  volume   |           duration            |
//! ```
//!
//! A key is one RTP timestamp, that of its begin; packets about it come each 50 ms or so while it is down and three times
//! after it. A key held longer than the 16 bits of its duration goes on under another timestamp (§2.5.1.3), which is
//! the same key.

/// Events 0 to 15 (RFC 4733 §3.2); others are tones of modems and lines.
const KEYS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '*', '#', 'A', 'B', 'C', 'D'];

/// An event further back than this is another stream's, not a late packet: 10 s.
const LATE: i32 = 10 * 48_000;

/// Durations from which on a key under the next timestamp is taken for the same: the last packet before the 16 bits end may
/// be lost.
const LONG: u16 = 0xe000;

/// Longest distance of two segments of one key: 2^16 ticks of 8 kHz on a 48 kHz clock, and a half more for lost packets.
const SEGMENT: i32 = 65_536 * 6 * 3 / 2;

/// What was heard last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keys {
    last: Option<Pressed>,
}

#[derive(Debug, Clone, Copy)]
struct Pressed {
    event: u8,
    timestamp: u32,
    duration: u16,
    ended: bool,
}

impl Keys {
    /// Takes a packet with its timestamp on the 48 kHz clock; the key, when it was not told before.
    pub(crate) fn handle(&mut self, timestamp: u32, payload: &[u8]) -> Option<char> {
        let &[event, flags, high, low] = payload.first_chunk()?;
        let key = *KEYS.get(usize::from(event))?;
        let heard = Pressed { event, timestamp, duration: u16::from_be_bytes([high, low]), ended: flags & 0x80 != 0 };
        let Some(last) = &mut self.last else {
            self.last = Some(heard);
            return Some(key);
        };
        let since = timestamp.wrapping_sub(last.timestamp).cast_signed();
        if since == 0 && event == last.event {
            last.duration = last.duration.max(heard.duration);
            last.ended |= heard.ended;
            return None;
        }
        if (-LATE..0).contains(&since) {
            return None;
        }
        let goes_on = event == last.event && !last.ended && last.duration >= LONG && (1..=SEGMENT).contains(&since);
        self.last = Some(heard);
        (!goes_on).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(packets: &[(u32, [u8; 4])]) -> String {
        let mut keys = Keys::default();
        packets.iter().filter_map(|(timestamp, payload)| keys.handle(*timestamp, payload)).collect()
    }

    #[test]
    fn a_key_is_told_once_at_its_begin() {
        let down = |duration: u8| (7000, [5, 10, duration, 0]);
        let up = (7000, [5, 0x80 | 10, 4, 0]);
        assert_eq!(told(&[down(1), down(2), down(3), up, up, up]), "5");
    }

    #[test]
    fn the_same_key_again_is_told_again_and_a_late_packet_of_the_first_is_not() {
        let first = (7000, [11, 0x80, 4, 0]);
        let second = (17_000, [11, 0x80, 4, 0]);
        assert_eq!(told(&[first, first, second, first, second]), "##");
    }

    #[test]
    fn a_key_whose_begin_was_lost_is_told() {
        assert_eq!(told(&[(7000, [0, 0x80, 4, 0])]), "0");
    }

    #[test]
    fn a_key_held_for_long_is_one_key() {
        let segments = [(0, [1, 0, 0xff, 0xff]), (65_535, [1, 0, 0xff, 0xff]), (131_070, [1, 0x80, 9, 0])];
        assert_eq!(told(&segments), "1");
        let slow = [(0, [1, 0, 0xff, 0xff]), (65_535 * 6, [1, 0x80, 9, 0])];
        assert_eq!(told(&slow), "1");
    }

    #[test]
    fn tones_that_are_no_keys_and_short_packets_are_nothing() {
        assert_eq!(told(&[(0, [16, 0, 1, 0]), (0, [255, 0, 1, 0])]), "");
        assert_eq!(Keys::default().handle(0, &[1, 0, 1]), None);
    }
}
