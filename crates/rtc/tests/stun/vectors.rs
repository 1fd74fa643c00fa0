//! RFC 5769.

use rtc::stun::{Check, IntegrityKey, Refusal, write_success};

const FILE: &str = include_str!("../../../../tests/vectors/stun-rfc5769.txt");
const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

fn vector(name: &str) -> Vec<u8> {
    FILE.lines()
        .skip_while(|line| !line.starts_with(&format!("[{name}]")))
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .flat_map(str::split_ascii_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// The attribute of this type, header included.
fn attribute(message: &[u8], kind: u16) -> &[u8] {
    let mut rest = &message[20..];
    loop {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let (attribute, after) = rest.split_at(4 + length.next_multiple_of(4));
        if attribute[..2] == kind.to_be_bytes() {
            return attribute;
        }
        rest = after;
    }
}

#[test]
fn the_request_is_read_and_verified() {
    let request = vector("request");
    let check = Check::parse(&request).unwrap();
    assert_eq!((check.local_ufrag(), check.remote_ufrag()), ("evtj", "h6vY"));
    assert!(check.verify(&IntegrityKey::new(PASSWORD)));
    assert!(!check.nominates());
    assert_eq!(check.refusal(), Some(Refusal::RoleConflict), "the vector says ICE-CONTROLLED");
}

#[test]
fn the_request_does_not_verify_with_another_password() {
    let request = vector("request");
    assert!(!Check::parse(&request).unwrap().verify(&IntegrityKey::new("VOkJxbRl1RmTxUk/WvJxBT")));
}

/// The vectors carry SOFTWARE and so another integrity; the mapped address must agree to the byte.
#[test]
fn mapped_addresses_are_written_as_in_the_responses() {
    let request = vector("request");
    let check = Check::parse(&request).unwrap();
    for (name, mapped) in
        [("response-ipv4", "192.0.2.1:32853"), ("response-ipv6", "[2001:db8:1234:5678:11:2233:4455:6677]:32853")]
    {
        let mut out = Vec::new();
        write_success(&check, &IntegrityKey::new(PASSWORD), mapped.parse().unwrap(), &mut out);
        let expected = vector(name);
        assert_eq!(attribute(&out, 0x0020), attribute(&expected, 0x0020), "{name}");
        assert_eq!(out[4..20], expected[4..20], "cookie and transaction of {name}");
    }
}
