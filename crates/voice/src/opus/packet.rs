//! What an Opus packet says of itself, read in safe code (RFC 6716 §3). Nothing here trusts a length.

/// Longest packet in 48 kHz samples: 120 ms (RFC 6716 §3.2.5).
pub const MAX_PACKET_SAMPLES: u32 = 5760;

/// Most frames of one packet: 48 of 2.5 ms.
const MAX_FRAMES: usize = 48;

/// The duration of one packet in 48 kHz samples, `None` if it is no Opus packet. RFC 6716 §3.1 and §3.2:
///
/// ```text
///  0 1 2 3 4 5 6 7
/// +-+-+-+-+-+-+-+-+   config: mode, bandwidth, frame duration      s: stereo
/// | config  |s| c |   c: 0 one frame, 1 two equal, 2 two, 3 the number is in the low six bits of the next byte
/// +-+-+-+-+-+-+-+-+
/// ```
#[must_use]
pub fn packet_samples(packet: &[u8]) -> Option<u32> {
    let toc = *packet.first()?;
    let frames = match toc & 0b11 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    let samples = frames * frame_samples(toc);
    (1..=MAX_PACKET_SAMPLES).contains(&samples).then_some(samples)
}

/// The duration of one frame of a packet in 48 kHz samples. 0 for an empty packet.
#[must_use]
pub fn packet_frame_samples(packet: &[u8]) -> u32 {
    packet.first().map_or(0, |&toc| frame_samples(toc))
}

/// A packet without sound: DTX sends one or two bytes (RFC 6716 §2.1.9), each about 400 ms.
#[must_use]
pub fn is_dtx(packet: &[u8]) -> bool {
    packet.len() <= 2
}

/// The duration of what the packet's in-band copy restores, in 48 kHz samples; 0 if it has none. A copy is of the frame before
/// the packet (RFC 6716 §4.2.3, §4.2.4): SILK's header is one bit per 20 ms of voice activity and the bit that says there is a
/// copy. Frames of 40 and 60 ms code in a further symbol which parts the copy has; those are not looked for.
#[must_use]
pub fn copy_samples(packet: &[u8]) -> u32 {
    let samples = packet_frame_samples(packet);
    if is_celt(packet) || samples > 960 {
        return 0;
    }
    let Some(first) = Frames::parse(packet).and_then(|frames| frames.get(packet, 0)?.first().copied()) else {
        return 0;
    };
    if first & 0x40 == 0 { 0 } else { samples }
}

/// Coded without SILK.
pub(crate) fn is_celt(packet: &[u8]) -> bool {
    packet.first().is_some_and(|toc| toc >> 3 >= 16)
}

/// CELT that begins with its silence flag (RFC 6716 §4.3: one of 32,768, so 15 bits that are ones).
pub(crate) fn is_silence(packet: &[u8]) -> bool {
    is_celt(packet) && matches!(packet, [toc, 0xff, 0xfe | 0xff, ..] if toc & 0b11 == 0)
}

/// RFC 6716 table 2: 480..2880 samples for SILK, 480 or 960 for hybrid, 120..960 for CELT.
fn frame_samples(toc: u8) -> u32 {
    let config = u32::from(toc >> 3);
    match config {
        0..12 => [480, 960, 1920, 2880][(config & 3) as usize],
        12..16 => [480, 960][(config & 1) as usize],
        _ => 120 << (config & 3),
    }
}

/// Where the frames of a packet lie.
#[derive(Debug)]
pub(crate) struct Frames {
    count: usize,
    bounds: [(u16, u16); MAX_FRAMES],
}

impl Frames {
    /// RFC 6716 §3.2.2 to §3.2.5 with the requirements R1 to R7 of §3.4.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        packet_samples(packet)?;
        let mut frames = Self { count: 0, bounds: [(0, 0); MAX_FRAMES] };
        let end = packet.len();
        match packet[0] & 0b11 {
            0 => frames.push(1, end)?,
            1 => {
                let length = (end - 1) / 2;
                if 1 + 2 * length != end {
                    return None;
                }
                frames.push(1, 1 + length)?;
                frames.push(1 + length, end)?;
            }
            2 => {
                let (length, at) = frame_length(packet, 1)?;
                frames.push(at, at + length)?;
                frames.push(at + length, end)?;
            }
            _ => frames.parse_many(packet)?,
        }
        frames.bounds[..frames.count].iter().all(|&(_, to)| usize::from(to) <= end).then_some(frames)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of one frame.
    pub(crate) fn get<'a>(&self, packet: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.bounds[..self.count].get(index)?;
        packet.get(usize::from(from)..usize::from(to))
    }

    /// Code 3: a frame count byte, padding, lengths, frames.
    fn parse_many(&mut self, packet: &[u8]) -> Option<()> {
        let header = *packet.get(1)?;
        let count = usize::from(header & 0x3f);
        let (mut at, mut end) = (2, packet.len());
        if header & 0x40 != 0 {
            let mut padding = 0;
            loop {
                let byte = usize::from(*packet.get(at)?);
                at += 1;
                // 255 means 254 and another byte of length.
                padding += byte.min(254);
                if byte < 255 {
                    break;
                }
            }
            end = end.checked_sub(padding).filter(|end| *end >= at)?;
        }
        if header & 0x80 == 0 {
            let length = (end - at) / count;
            if length * count != end - at {
                return None;
            }
            return (0..count).try_for_each(|index| self.push(at + index * length, at + (index + 1) * length));
        }
        let mut lengths = [0; MAX_FRAMES];
        for slot in lengths.get_mut(..count.checked_sub(1)?)? {
            (*slot, at) = frame_length(packet, at)?;
        }
        for length in &lengths[..count - 1] {
            self.push(at, at + length)?;
            at += length;
        }
        self.push(at, end)
    }

    fn push(&mut self, from: usize, to: usize) -> Option<()> {
        // R2: a frame has at most 1275 bytes.
        if to < from || to - from > 1275 {
            return None;
        }
        *self.bounds.get_mut(self.count)? = (u16::try_from(from).ok()?, u16::try_from(to).ok()?);
        self.count += 1;
        Some(())
    }
}

/// RFC 6716 §3.2.1: one byte up to 251, two bytes beyond. The length and what lies behind it.
fn frame_length(packet: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = usize::from(*packet.get(at)?);
    if first < 252 {
        return Some((first, at + 1));
    }
    Some((4 * usize::from(*packet.get(at + 1)?) + first, at + 2))
}
