//! The answers to a check.

use std::net::{IpAddr, SocketAddr};

use super::{BINDING_REQUEST, Check, FINGERPRINT_XOR, HEADER, IntegrityKey, MAGIC_COOKIE, Refusal, attribute, length};

const BINDING_SUCCESS: [u8; 2] = [0x01, BINDING_REQUEST[1]];
const BINDING_ERROR: [u8; 2] = [0x01, 0x11];

/// Writes the success response to an authenticated check into `out` (cleared first).
pub fn write_success(check: &Check<'_>, key: &IntegrityKey, mapped: SocketAddr, out: &mut Vec<u8>) {
    write_success_with(check, key, mapped, out, |_| {});
}

/// As [`write_success`], with what `more` appends ahead of MESSAGE-INTEGRITY: whole attributes, padded.
pub fn write_success_with(
    check: &Check<'_>,
    key: &IntegrityKey,
    mapped: SocketAddr,
    out: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>),
) {
    begin(out, BINDING_SUCCESS, check);
    xor_mapped_address(out, mapped, check);
    more(out);
    finish(out, key);
}

/// Appends one attribute, padded.
pub(crate) fn append(out: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    attribute_header(out, kind, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    pad(out);
}

/// Writes the error response to an authenticated check into `out` (cleared first). It is authenticated as well
/// (RFC 8489 §9.1.3.1), or the client would ignore it.
pub fn write_refusal(check: &Check<'_>, key: &IntegrityKey, refusal: Refusal, out: &mut Vec<u8>) {
    begin(out, BINDING_ERROR, check);
    match refusal {
        Refusal::UnknownAttributes => {
            error_code(out, 420, "Unknown Attribute");
            out.extend_from_slice(&attribute::UNKNOWN_ATTRIBUTES.to_be_bytes());
            out.extend_from_slice(&length(check.unknown().len() * 2));
            for kind in check.unknown() {
                out.extend_from_slice(&kind.to_be_bytes());
            }
            pad(out);
        }
        Refusal::RoleConflict => error_code(out, 487, "Role Conflict"),
    }
    finish(out, key);
}

fn begin(out: &mut Vec<u8>, kind: [u8; 2], check: &Check<'_>) {
    out.clear();
    out.extend_from_slice(&kind);
    out.extend_from_slice(&[0; 2]); // the length, known in `finish`
    out.extend_from_slice(&MAGIC_COOKIE);
    out.extend_from_slice(check.transaction());
}

/// RFC 8489 §14.2. An IPv4 client of a dual-stack socket is told its IPv4 address.
fn xor_mapped_address(out: &mut Vec<u8>, mapped: SocketAddr, check: &Check<'_>) {
    let [high, low] = mapped.port().to_be_bytes();
    let port = [high ^ MAGIC_COOKIE[0], low ^ MAGIC_COOKIE[1]];
    let mask = MAGIC_COOKIE.iter().chain(check.transaction());
    match mapped.ip().to_canonical() {
        IpAddr::V4(ip) => {
            attribute_header(out, attribute::XOR_MAPPED_ADDRESS, 8);
            out.extend_from_slice(&[0, 0x01, port[0], port[1]]);
            out.extend(ip.octets().iter().zip(mask).map(|(octet, mask)| octet ^ mask));
        }
        IpAddr::V6(ip) => {
            attribute_header(out, attribute::XOR_MAPPED_ADDRESS, 20);
            out.extend_from_slice(&[0, 0x02, port[0], port[1]]);
            out.extend(ip.octets().iter().zip(mask).map(|(octet, mask)| octet ^ mask));
        }
    }
}

/// RFC 8489 §14.8: the hundreds in one byte, the rest in the next.
fn error_code(out: &mut Vec<u8>, code: u16, reason: &str) {
    attribute_header(out, attribute::ERROR_CODE, 4 + reason.len());
    let [_, class] = (code / 100).to_be_bytes();
    let [_, number] = (code % 100).to_be_bytes();
    out.extend_from_slice(&[0, 0, class, number]);
    out.extend_from_slice(reason.as_bytes());
    pad(out);
}

/// MESSAGE-INTEGRITY over what is there, then FINGERPRINT over that (RFC 8489 §14.5, §14.7).
fn finish(out: &mut Vec<u8>, key: &IntegrityKey) {
    let tag = key.sign(out);
    attribute_header(out, attribute::MESSAGE_INTEGRITY, tag.as_ref().len());
    out.extend_from_slice(tag.as_ref());
    let total = length(out.len() - HEADER + 8);
    out[2..4].copy_from_slice(&total);
    let crc = crc32fast::hash(out) ^ FINGERPRINT_XOR;
    attribute_header(out, attribute::FINGERPRINT, 4);
    out.extend_from_slice(&crc.to_be_bytes());
}

fn attribute_header(out: &mut Vec<u8>, kind: u16, bytes: usize) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length(bytes));
}

/// Attributes begin at multiples of four (RFC 8489 §14). The header's 20 bytes keep that true of the whole message.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}
