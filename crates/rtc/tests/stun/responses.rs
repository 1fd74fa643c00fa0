//! What is answered, read back by another implementation.

use rtc::stun::{Check, IntegrityKey, Refusal, write_refusal, write_success};
use rtc_stun::attributes::{ATTR_ERROR_CODE, ATTR_UNKNOWN_ATTRIBUTES};
use rtc_stun::message::{BINDING_ERROR, BINDING_SUCCESS};

use crate::oracle::{error, mapped, read};
use crate::request::{ICE_CONTROLLED, PASSWORD, Request};

fn refuse(request: &[u8], refusal: Refusal) -> Vec<u8> {
    let check = Check::parse(request).unwrap();
    assert_eq!(check.refusal(), Some(refusal));
    let mut out = vec![1, 2, 3];
    write_refusal(&check, &IntegrityKey::new(PASSWORD), refusal, &mut out);
    out
}

#[test]
fn success_maps_the_address_and_keeps_the_transaction() {
    let request = Request::browser().sealed();
    let check = Check::parse(&request).unwrap();
    for address in ["198.51.100.7:1", "0.0.0.0:65535", "[2001:db8::1]:443", "[fe80::1]:8", "[::]:0"] {
        let address = address.parse().unwrap();
        let mut out = b"left over".to_vec();
        write_success(&check, &IntegrityKey::new(PASSWORD), address, &mut out);
        let response = read(&out);
        assert_eq!(response.typ, BINDING_SUCCESS);
        assert_eq!(mapped(&response), address);
        assert_eq!(response.transaction_id.0, request[8..20]);
    }
}

#[test]
fn an_ipv4_client_of_a_dual_stack_socket_sees_its_ipv4_address() {
    let request = Request::browser().sealed();
    let mut out = Vec::new();
    let address = "[::ffff:192.0.2.9]:4000".parse().unwrap();
    write_success(&Check::parse(&request).unwrap(), &IntegrityKey::new(PASSWORD), address, &mut out);
    assert_eq!(mapped(&read(&out)), "192.0.2.9:4000".parse().unwrap());
}

#[test]
fn i12_role_conflict_is_487() {
    let response = read(&refuse(&Request::browser().with(ICE_CONTROLLED, &[0; 8]).sealed(), Refusal::RoleConflict));
    assert_eq!(response.typ, BINDING_ERROR);
    assert_eq!(error(&response), (487, "Role Conflict".to_owned()));
    assert!(!response.contains(ATTR_UNKNOWN_ATTRIBUTES));
}

#[test]
fn i07_unknown_attributes_are_420_and_named_once_each() {
    let request = Request::browser().with(0x7F01, &[]).with(0x0019, b"abc").with(0x7F01, &[1]).sealed();
    let response = read(&refuse(&request, Refusal::UnknownAttributes));
    assert_eq!(response.typ, BINDING_ERROR);
    assert_eq!(error(&response), (420, "Unknown Attribute".to_owned()));
    assert_eq!(response.get(ATTR_UNKNOWN_ATTRIBUTES).unwrap(), [0x7F, 0x01, 0x00, 0x19]);
}

#[test]
fn i07_of_very_many_unknown_attributes_eight_are_named() {
    let request = (0..40).fold(Request::browser(), |request, index| request.with(0x7000 + index, &[]));
    let response = read(&refuse(&request.sealed(), Refusal::UnknownAttributes));
    let named = response.get(ATTR_UNKNOWN_ATTRIBUTES).unwrap();
    assert_eq!(named.len(), 16);
    assert_eq!(named[14..], [0x70, 0x07]);
    assert!(response.contains(ATTR_ERROR_CODE));
}
