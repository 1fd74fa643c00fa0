//! What can be told of a DTLS datagram without keys.
//!
//! ```text
//! plaintext (RFC 6347 §4.1)              ciphertext of 1.3 (RFC 9147 §4)
//! 0      type 20..=26                    0      001CSLEE
//! 1..3   version FE FD | FE FF           1..    sequence, 1 byte, or 2 if S
//! 3..5   epoch                           ..     length, 2 bytes if L, else to the end
//! 5..11  sequence
//! 11..13 length
//! 13     handshake message type, 25: its body
//! ```

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const HELLO_VERIFY_REQUEST: u8 = 3;

/// A content type and the tag, which has 16 bytes in each cipher suite offered.
const MIN_CIPHERTEXT: usize = 17;

const HEADER: usize = 13;
const HANDSHAKE_HEADER: usize = 12;

/// Whether the records fill the datagram exactly and have types that exist.
pub(super) fn well_formed(mut datagram: &[u8]) -> bool {
    if datagram.is_empty() {
        return false;
    }
    while let Some(&first) = datagram.first() {
        let Some(length) = record_length(first, datagram) else { return false };
        let Some(rest) = datagram.get(length..) else { return false };
        datagram = rest;
    }
    true
}

fn record_length(first: u8, datagram: &[u8]) -> Option<usize> {
    match first {
        20..=26 => {
            let header = datagram.get(..HEADER)?;
            if header[1] != 0xFE {
                return None;
            }
            Some(HEADER + usize::from(u16::from_be_bytes([header[11], header[12]])))
        }
        // Connection ids (bit C) are never negotiated.
        0x20..=0x3F if first & 0x10 == 0 => {
            let sequence = if first & 0x08 != 0 { 2 } else { 1 };
            let (header, body) = if first & 0x04 == 0 {
                (1 + sequence, datagram.len().checked_sub(1 + sequence)?)
            } else {
                let length = datagram.get(1 + sequence..3 + sequence)?;
                (3 + sequence, usize::from(u16::from_be_bytes([length[0], length[1]])))
            };
            (body >= MIN_CIPHERTEXT).then_some(header + body)
        }
        _ => None,
    }
}

/// Whether the datagram can belong to the flight that a ServerHello starts.
pub(super) fn may_overtake_server_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&HANDSHAKE) || datagram.first().is_some_and(|first| (0x20..=0x3F).contains(first))
}

fn first_message(datagram: &[u8]) -> Option<u8> {
    match datagram {
        [HANDSHAKE, _, _, 0, 0, ..] if datagram.len() >= HEADER + HANDSHAKE_HEADER => Some(datagram[HEADER]),
        _ => None,
    }
}

/// Whether the datagram starts with a fragment of a ClientHello.
pub(super) fn is_client_hello(datagram: &[u8]) -> bool {
    first_message(datagram) == Some(CLIENT_HELLO)
}

/// Whether the datagram starts with what decides the version: a ServerHello or HelloVerifyRequest, from its first byte.
pub(super) fn starts_with_server_hello(datagram: &[u8]) -> bool {
    let Some(message) = first_message(datagram) else { return false };
    let body = &datagram[HEADER..];
    let record = usize::from(u16::from_be_bytes([datagram[11], datagram[12]]));
    let fragment = usize::from(body[9]) << 16 | usize::from(body[10]) << 8 | usize::from(body[11]);
    let from_start = body[6..9] == [0, 0, 0];
    let whole = body[1..4] == body[9..12];
    matches!(message, SERVER_HELLO | HELLO_VERIFY_REQUEST)
        && from_start
        && whole
        && HANDSHAKE_HEADER + fragment <= record
}

/// Whether the first record carries application data of the first keys: epoch 1 of DTLS 1.2, epoch 3 of 1.3.
pub(super) fn is_application_data(datagram: &[u8]) -> bool {
    match datagram {
        [APPLICATION_DATA, _, _, 0, 1, ..] => true,
        [first, ..] => (0x20..=0x3F).contains(first) && first & 0x03 == 3,
        [] => false,
    }
}

/// Whether the first record is an alert or data in the clear, which nobody may send once there are keys (case D07).
pub(super) fn is_plain_after_handshake(datagram: &[u8]) -> bool {
    matches!(datagram, [ALERT | APPLICATION_DATA, _, _, 0, 0, ..])
}
