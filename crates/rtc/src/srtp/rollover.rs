//! From a 16-bit sequence number to the 48-bit packet index.

/// Guesses the index of `seq` from the stream's highest authenticated index (RFC 3711 §3.3.1, appendix A): the one
/// nearest to it. The first packet of a stream has rollover counter 0.
///
/// Below 2^15 there is no counter to step back to, so every sequence number is taken to be ahead.
pub(super) fn guess(highest: Option<u64>, seq: u16) -> u64 {
    const HALF: u64 = 1 << 15;
    let Some(highest) = highest else { return u64::from(seq) };
    let index = highest & !0xffff | u64::from(seq);
    if index + HALF < highest {
        index + (1 << 16)
    } else if index > highest + HALF && index >= 1 << 16 {
        index - (1 << 16)
    } else {
        index
    }
}
