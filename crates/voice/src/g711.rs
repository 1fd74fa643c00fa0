//! G.711, the telephone's codec: one byte per sample at 8 kHz, read by table and written by the position of the highest bit.
//!
//! Both laws keep sign, segment (the magnitude's highest bit) and the four bits below it; each segment's value is its middle.

/// Samples per second on the wire.
pub const RATE: u32 = 8000;

/// 48 kHz samples per byte.
pub const FACTOR: u32 = 48_000 / RATE;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// PCMU, of North America and Japan.
    Mu,
    /// PCMA, of the rest.
    A,
}

/// Added to a magnitude by µ-law, so that its lowest segment has a highest bit too.
const BIAS: i32 = 0x84;
/// Beyond this µ-law's highest segment ends.
const CLIP: i32 = 32_635;
/// A-law inverts every other bit on the wire, so that silence has edges a clock can follow.
const INVERTED: u8 = 0x55;

const MU: [i16; 256] = table(Law::Mu);
const A: [i16; 256] = table(Law::A);

/// Appends one sample per byte, at 8 kHz.
pub fn decode(law: Law, bytes: &[u8], out: &mut Vec<i16>) {
    let table = match law {
        Law::Mu => &MU,
        Law::A => &A,
    };
    out.extend(bytes.iter().map(|&byte| table[usize::from(byte)]));
}

/// The byte of one sample.
#[must_use]
pub fn encode(law: Law, sample: i16) -> u8 {
    let value = i32::from(sample);
    let negative = value < 0;
    match law {
        Law::Mu => {
            let (segment, step) = split(value.abs().min(CLIP) + BIAS);
            !(u8::from(negative) << 7 | segment << 4 | step)
        }
        Law::A => {
            let magnitude = if negative { !value } else { value };
            // The lowest segment is twice as long as its place would make it.
            let (segment, step) = if magnitude < 0x100 { (0, low_bits(magnitude >> 4)) } else { split(magnitude) };
            (u8::from(!negative) << 7 | segment << 4 | step) ^ INVERTED
        }
    }
}

/// Segment and step of a magnitude from 0x80 to 0x7fff.
fn split(magnitude: i32) -> (u8, u8) {
    let highest = 31_u32.saturating_sub(magnitude.leading_zeros());
    let segment = highest.saturating_sub(7).min(7);
    (low_bits(segment.cast_signed()) & 7, low_bits(magnitude >> (segment + 3)))
}

/// The low four bits.
fn low_bits(value: i32) -> u8 {
    u8::try_from(value & 0x0f).unwrap_or(0)
}

const fn table(law: Law) -> [i16; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        table[byte as usize] = match law {
            Law::Mu => mu(byte),
            Law::A => a(byte),
        };
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

const fn mu(byte: u8) -> i16 {
    let byte = !byte;
    let magnitude = ((((byte & 0x0f) as i16) << 3) + 0x84) << ((byte & 0x70) >> 4);
    let magnitude = magnitude - 0x84;
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

const fn a(byte: u8) -> i16 {
    let byte = byte ^ INVERTED;
    let (segment, step) = ((byte & 0x70) >> 4, ((byte & 0x0f) as i16) << 4);
    let magnitude = if segment == 0 { step + 8 } else { (step + 0x108) << (segment - 1) };
    if byte & 0x80 == 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(law: Law, byte: u8) -> i16 {
        let mut out = Vec::new();
        decode(law, &[byte], &mut out);
        out[0]
    }

    /// ITU-T G.711 tables 1 and 2: the ends, the smallest steps, zero.
    #[test]
    fn bytes_have_the_values_of_the_standard() {
        for (byte, expected) in
            [(0x00, -32_124), (0x80, 32_124), (0xff, 0), (0x7f, 0), (0xfe, 8), (0x7e, -8), (0xf0, 120)]
        {
            assert_eq!(value(Law::Mu, byte), expected, "mu {byte:#x}");
        }
        for (byte, expected) in [(0xd5, 8), (0x55, -8), (0xaa, 32_256), (0x2a, -32_256), (0xd4, 24), (0xc5, 264)] {
            assert_eq!(value(Law::A, byte), expected, "a {byte:#x}");
        }
    }

    #[test]
    fn each_value_is_written_as_the_byte_it_was_read_from() {
        for byte in 0..=u8::MAX {
            assert_eq!(encode(Law::A, value(Law::A, byte)), byte);
            // Of the two zeros one is written.
            let expected = if byte == 0x7f { 0xff } else { byte };
            assert_eq!(encode(Law::Mu, value(Law::Mu, byte)), expected);
        }
    }

    #[test]
    fn every_sample_comes_back_within_half_a_step() {
        for sample in i16::MIN..=i16::MAX {
            for law in [Law::Mu, Law::A] {
                let back = value(law, encode(law, sample));
                let error = (i32::from(back) - i32::from(sample)).abs();
                let step = (i32::from(sample).abs() + BIAS) / 16;
                assert!(error <= step / 2 + 8 || i32::from(sample).abs() > 32_256, "{law:?} {sample} -> {back}");
            }
        }
    }
}
