//! Another STUN implementation reads our responses and writes requests for us.

use std::sync::Arc;

use rtc::stun::{Check, IntegrityKey};
use rtc_stun::attributes::{ATTR_PRIORITY, ATTR_USE_CANDIDATE, ATTR_USERNAME};
use rtc_stun::crypto::{RTCCryptoProvider, default_provider};
use rtc_stun::error_code::ErrorCodeAttribute;
use rtc_stun::fingerprint::FINGERPRINT;
use rtc_stun::integrity::MessageIntegrity;
use rtc_stun::message::{BINDING_REQUEST, Getter, Message, Setter};
use rtc_stun::textattrs::TextAttribute;
use rtc_stun::xoraddr::XorMappedAddress;

use crate::request::PASSWORD;

pub(crate) fn provider() -> Arc<dyn RTCCryptoProvider> {
    default_provider().unwrap()
}

/// A response that the other implementation took whole: parsed, integrity and fingerprint verified.
pub(crate) fn read(response: &[u8]) -> Message {
    let mut message = Message::new();
    message.unmarshal_binary(response).unwrap();
    FINGERPRINT.check(&message).unwrap();
    MessageIntegrity::check(&mut message, PASSWORD.as_bytes(), provider().crypto()).unwrap();
    message
}

pub(crate) fn mapped(message: &Message) -> std::net::SocketAddr {
    let mut address = XorMappedAddress::default();
    address.get_from(message).unwrap();
    (address.ip, address.port).into()
}

pub(crate) fn error(message: &Message) -> (u16, String) {
    let mut error = ErrorCodeAttribute::default();
    error.get_from(message).unwrap();
    (error.code.0, String::from_utf8(error.reason).unwrap())
}

fn request(username: &str, nominate: bool) -> Vec<u8> {
    let provider = provider();
    let mut message = Message::new();
    message.set_type(BINDING_REQUEST);
    message.new_transaction_id().unwrap();
    message.write_header();
    TextAttribute::new(ATTR_USERNAME, username.to_owned()).add_to(&mut message).unwrap();
    message.add(ATTR_PRIORITY, &[1, 2, 3, 4]);
    if nominate {
        message.add(ATTR_USE_CANDIDATE, &[]);
    }
    MessageIntegrity::new_short_term_integrity_with_provider(PASSWORD.to_owned(), provider.crypto())
        .add_to(&mut message)
        .unwrap();
    FINGERPRINT.add_to(&mut message).unwrap();
    message.raw
}

/// Usernames of all lengths move MESSAGE-INTEGRITY to all alignments and HMAC block borders.
#[test]
fn requests_of_the_other_implementation_verify() {
    let key = IntegrityKey::new(PASSWORD);
    for length in 1..=200 {
        let local = "u".repeat(length);
        let request = request(&format!("{local}:cli"), length % 2 == 0);
        let check = Check::parse(&request).unwrap();
        assert_eq!((check.local_ufrag(), check.remote_ufrag()), (&*local, "cli"));
        assert_eq!(check.nominates(), length % 2 == 0);
        assert!(check.verify(&key), "ufrag of {length} characters");
        assert!(!check.verify(&IntegrityKey::new("another")), "ufrag of {length} characters");
    }
}
