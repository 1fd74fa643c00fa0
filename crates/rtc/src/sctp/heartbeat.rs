//! A HEARTBEAT of our own (RFC 9260 §3.3.5, §8.3), as the engine sends them on idle associations alone: a client answers it
//! at once, which shows where it is.

/// The engine knows its own heartbeats by a counter of four bytes from 0; an answer to this one it ignores.
const INFO: [u8; 4] = *b"path";

/// One packet with one HEARTBEAT chunk. `header`: ports and verification tag.
pub(super) fn packet(header: [u8; 8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(24);
    packet.extend_from_slice(&header);
    packet.extend_from_slice(&[0; 4]);
    // Chunk HEARTBEAT of 12 bytes: parameter Heartbeat Info of 8.
    packet.extend_from_slice(&[4, 0, 0, 12, 0, 1, 0, 8]);
    packet.extend_from_slice(&INFO);
    let checksum = crc32c(&packet);
    // RFC 9260 appendix A: the one field in little endian order.
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    packet
}

/// Bit by bit: 24 bytes once per challenge.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // RFC 3720 appendix B.4: 32 bytes of zeroes.
        assert_eq!(super::crc32c(&[0; 32]), 0x8A91_36AA);
    }
}
