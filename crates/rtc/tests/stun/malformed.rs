//! I06, I08: what is dropped, and as what it is counted. Nothing here may panic.

use rtc::Discard;
use rtc::stun::{Check, IntegrityKey};

use crate::request::{FINGERPRINT, MESSAGE_INTEGRITY, PASSWORD, Request, USERNAME};

fn discard(datagram: &[u8]) -> Discard {
    Check::parse(datagram).unwrap_err()
}

#[test]
fn i06_every_prefix_of_a_request_is_malformed() {
    let request = Request::browser().sealed();
    for end in 0..request.len() {
        assert_eq!(discard(&request[..end]), Discard::StunMalformed, "the first {end} bytes");
    }
}

/// The length field is mended for each prefix, so that the attributes themselves end early.
#[test]
fn i06_every_shorter_message_of_stated_length_is_dropped() {
    let request = Request::browser().sealed();
    for end in 20..request.len() {
        let mut short = request[..end].to_vec();
        short[2..4].copy_from_slice(&u16::try_from(end - 20).unwrap().to_be_bytes());
        let accepted = Check::parse(&short).is_ok();
        // Without FINGERPRINT it is a whole request again.
        assert_eq!(accepted, end == request.len() - 8, "the first {end} bytes");
    }
}

#[test]
fn i06_a_wrong_length_field_is_malformed() {
    for length in [0_u16, 1, 4, 60, 0xFFFC, 0xFFFF] {
        let mut request = Request::browser().sealed();
        request[2..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(discard(&request), Discard::StunMalformed, "length {length}");
    }
}

#[test]
fn i06_an_attribute_longer_than_the_message_is_malformed() {
    for length in [5_u16, 200, 0xFFFF] {
        let mut request = Request::empty().with(USERNAME, b"a:bc").bytes();
        request[22..24].copy_from_slice(&length.to_be_bytes());
        assert_eq!(discard(&request), Discard::StunMalformed, "length {length}");
    }
}

#[test]
fn a_wrong_cookie_is_malformed() {
    let mut request = Request::browser().sealed();
    request[4] ^= 1;
    assert_eq!(discard(&request), Discard::StunMalformed);
}

#[test]
fn only_binding_requests_are_expected() {
    for kind in [[0x01, 0x01], [0x01, 0x11], [0x00, 0x11], [0x00, 0x03]] {
        let mut message = Request::browser().sealed();
        message[..2].copy_from_slice(&kind);
        assert_eq!(discard(&message), Discard::StunUnexpected, "{kind:02x?}");
    }
}

#[test]
fn i08_integrity_of_another_length_is_malformed() {
    for length in [0, 4, 19, 24] {
        let request = Request::browser().with(MESSAGE_INTEGRITY, &vec![7; length]).fingerprint().bytes();
        assert_eq!(discard(&request), Discard::StunMalformed, "{length} bytes");
    }
}

#[test]
fn i08_wrong_integrity_of_right_length_does_not_verify() {
    let request = Request::browser().with(MESSAGE_INTEGRITY, &[7; 20]).fingerprint().bytes();
    assert!(!Check::parse(&request).unwrap().verify(&IntegrityKey::new(PASSWORD)));
}

#[test]
fn i08_integrity_behind_fingerprint_is_malformed() {
    let request = Request::browser().fingerprint().integrity(PASSWORD).bytes();
    assert_eq!(discard(&request), Discard::StunMalformed);
}

#[test]
fn i08_a_wrong_fingerprint_is_dropped_though_integrity_matches() {
    let request = Request::browser().integrity(PASSWORD).with(FINGERPRINT, &[1, 2, 3, 4]).bytes();
    assert_eq!(discard(&request), Discard::StunIncomplete);
    let request = Request::browser().integrity(PASSWORD).with(FINGERPRINT, &[1, 2, 3]).bytes();
    assert_eq!(discard(&request), Discard::StunMalformed);
}

#[test]
fn a_request_without_credentials_is_incomplete() {
    assert_eq!(discard(&Request::empty().fingerprint().bytes()), Discard::StunIncomplete);
    assert_eq!(discard(&Request::empty().with(USERNAME, b"a:b").fingerprint().bytes()), Discard::StunIncomplete);
    assert_eq!(discard(&Request::empty().sealed()), Discard::StunIncomplete);
    assert_eq!(discard(&Request::empty().with(USERNAME, b"no colon").sealed()), Discard::StunIncomplete);
}

#[test]
fn a_username_too_long_or_not_text_is_malformed() {
    assert_eq!(discard(&Request::empty().with(USERNAME, &[b':'; 513]).sealed()), Discard::StunMalformed);
    assert_eq!(discard(&Request::empty().with(USERNAME, &[b':', 0xFF]).sealed()), Discard::StunMalformed);
}

/// A flipped bit anywhere before FINGERPRINT's value is found by FINGERPRINT or by an earlier look at the shape.
#[test]
fn no_single_bit_error_is_accepted() {
    let request = Request::browser().sealed();
    for bit in 0..request.len() * 8 {
        let mut broken = request.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        let accepted = Check::parse(&broken).is_ok_and(|check| check.verify(&IntegrityKey::new(PASSWORD)));
        // FINGERPRINT turned into an attribute that may be ignored: what is authenticated is whole.
        let fingerprint_type = (request.len() - 8) * 8..(request.len() - 6) * 8;
        assert!(!accepted || fingerprint_type.contains(&bit), "bit {bit}");
    }
}

/// Requests with several bytes changed and their ends moved. FINGERPRINT is mended, so that the look at the shape does
/// not end there.
#[test]
fn no_mangled_request_panics() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64; // the seed
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
    };
    let key = IntegrityKey::new(PASSWORD);
    let whole = Request::browser().integrity(PASSWORD).bytes();
    let mut parsed = 0;
    for _ in 0..200_000 {
        let mut request = whole.clone();
        request.truncate(20 + random(whole.len() - 19));
        request.resize(request.len().next_multiple_of(4), 0);
        for _ in 0..random(4) {
            let at = 20 + random(request.len() - 19).min(request.len().saturating_sub(21));
            if let Some(byte) = request.get_mut(at) {
                *byte = u8::try_from(random(256)).unwrap();
            }
        }
        let length = u16::try_from(request.len() - 20 + 8).unwrap();
        request[2..4].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&request) ^ 0x5354_554E;
        request.extend([0x80, 0x28, 0, 4]);
        request.extend(crc.to_be_bytes());
        if let Ok(check) = Check::parse(&request) {
            parsed += 1;
            let _ = (check.verify(&key), check.refusal(), check.local_ufrag().len() + check.remote_ufrag().len());
        }
    }
    assert!(parsed > 1000, "only {parsed} were parsed: the mangling is too coarse to test anything behind");
}
