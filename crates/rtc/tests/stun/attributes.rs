//! Which attributes count, and which do not.

use rtc::stun::{Check, IntegrityKey, Refusal};

use crate::request::{ICE_CONTROLLED, PASSWORD, Request, USE_CANDIDATE, USERNAME};

#[test]
fn s11_username_is_split_at_the_first_colon_only() {
    for (username, local, remote) in
        [("srv:M/34", "srv", "M/34"), ("s+r/v:+dod", "s+r/v", "+dod"), ("srv:a:b", "srv", "a:b"), (":", "", "")]
    {
        let request = Request::empty().with(USERNAME, username.as_bytes()).sealed();
        let check = Check::parse(&request).unwrap();
        assert_eq!((check.local_ufrag(), check.remote_ufrag()), (local, remote));
    }
}

#[test]
fn s11_two_ufrags_of_255_characters_fit() {
    let (local, remote) = ("l".repeat(255), "r".repeat(255));
    let request = Request::empty().with(USERNAME, format!("{local}:{remote}").as_bytes()).sealed();
    let check = Check::parse(&request).unwrap();
    assert_eq!((check.local_ufrag(), check.remote_ufrag()), (&*local, &*remote));
}

#[test]
fn fingerprint_may_be_missing() {
    let request = Request::browser().integrity(PASSWORD).bytes();
    assert!(Check::parse(&request).unwrap().verify(&IntegrityKey::new(PASSWORD)));
}

#[test]
fn use_candidate_nominates() {
    let request = Request::browser().with(USE_CANDIDATE, &[]).sealed();
    assert!(Check::parse(&request).unwrap().nominates());
    let request = Request::browser().sealed();
    assert!(!Check::parse(&request).unwrap().nominates());
}

#[test]
fn i04_a_nomination_attribute_alone_nominates_nothing() {
    for value in [&[0, 0, 1][..], &[0, 0, 0, 9]] {
        let request = Request::browser().with(0xC001, value).sealed();
        let check = Check::parse(&request).unwrap();
        assert!(!check.nominates());
        assert_eq!(check.refusal(), None);
    }
}

/// What is behind MESSAGE-INTEGRITY can be appended by anybody.
#[test]
fn attributes_behind_integrity_are_ignored() {
    let request = Request::browser()
        .integrity(PASSWORD)
        .with(USE_CANDIDATE, &[])
        .with(USERNAME, b"other:one")
        .with(ICE_CONTROLLED, &[0; 8])
        .with(0x7F01, &[])
        .fingerprint()
        .bytes();
    let check = Check::parse(&request).unwrap();
    assert!(check.verify(&IntegrityKey::new(PASSWORD)));
    assert!(!check.nominates());
    assert_eq!(check.local_ufrag(), "server");
    assert_eq!(check.refusal(), None);
}

#[test]
fn of_a_repeated_username_the_first_counts() {
    let request = Request::browser().with(USERNAME, b"other:one").sealed();
    assert_eq!(Check::parse(&request).unwrap().local_ufrag(), "server");
}

#[test]
fn i07_optional_attributes_are_ignored() {
    let request = Request::browser().with(0xC057, &[1]).with(0xC059, &[]).with(0x8022, b"software").sealed();
    assert_eq!(Check::parse(&request).unwrap().refusal(), None);
}

#[test]
fn i07_an_unknown_required_attribute_is_refused() {
    let request = Request::browser().with(0x7F01, &[]).sealed();
    assert_eq!(Check::parse(&request).unwrap().refusal(), Some(Refusal::UnknownAttributes));
}

#[test]
fn i12_controlled_conflicts_and_controlling_does_not() {
    let request = Request::browser().with(ICE_CONTROLLED, &[0; 8]).sealed();
    assert_eq!(Check::parse(&request).unwrap().refusal(), Some(Refusal::RoleConflict));
    let request = Request::browser().sealed();
    assert_eq!(Check::parse(&request).unwrap().refusal(), None);
}
