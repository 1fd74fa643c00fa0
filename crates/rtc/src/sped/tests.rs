//! The state machine alone, fed with checks from the other end of a wire.

use super::*;
use crate::request::{PASSWORD, Request};

const DATA: u16 = 0xC070;
const ACK: u16 = 0xC071;

fn handshake(number: u8) -> Vec<u8> {
    [&[22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, number, 0, 20][..], &[number; 20]].concat()
}

/// A check with what is given; returns what goes to DTLS.
fn check(sped: &mut Sped, data: Option<&[u8]>, acks: Option<&[u32]>) -> Option<Vec<u8>> {
    let acks = acks.map(|acks| acks.iter().flat_map(|hash| hash.to_be_bytes()).collect::<Vec<u8>>());
    check_raw(sped, data, acks.as_deref())
}

fn check_raw(sped: &mut Sped, data: Option<&[u8]>, acks: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut request = Request::browser();
    if let Some(acks) = acks {
        request = request.with(ACK, acks);
    }
    if let Some(data) = data {
        request = request.with(DATA, data);
    }
    let request = request.sealed();
    sped.handle_check(&Check::parse(&request).unwrap()).map(<[u8]>::to_vec)
}

/// What a response carries: acknowledged hashes, and the datagram.
#[derive(Debug, PartialEq, Eq)]
struct Carried {
    acks: Option<Vec<u32>>,
    data: Option<Vec<u8>>,
}

const NOTHING: Carried = Carried { acks: None, data: None };

fn response(sped: &mut Sped) -> Carried {
    let mut out = vec![0; HEADER + 12];
    let written = sped.write(&mut out, usize::MAX).map(<[u8]>::to_vec);
    let mut carried = NOTHING;
    let mut rest = &out[HEADER + 12..];
    while !rest.is_empty() {
        let kind = u16::from_be_bytes([rest[0], rest[1]]);
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let value = &rest[4..4 + length];
        match kind {
            ACK => {
                carried.acks = Some(value.chunks(4).map(|hash| u32::from_be_bytes(hash.try_into().unwrap())).collect())
            }
            DATA => carried.data = Some(value.to_vec()),
            _ => panic!("attribute {kind:x}"),
        }
        rest = &rest[4 + length.next_multiple_of(4)..];
    }
    assert_eq!(written, carried.data.clone().filter(|data| !data.is_empty()));
    carried
}

fn flight(sped: &mut Sped, numbers: &[u8]) -> Vec<Vec<u8>> {
    let datagrams: Vec<_> = numbers.iter().map(|number| handshake(*number)).collect();
    sped.capture(datagrams.iter().map(Vec::as_slice));
    datagrams
}

/// The handshake ends with ours, 4, which is ciphertext alone as in DTLS 1.3.
fn last_flight(sped: &mut Sped) -> Vec<u8> {
    let mut last = handshake(4);
    last[0] = 0x2E;
    sped.handshake_done(Some([last.as_slice()].into_iter()));
    last
}

/// With the ClientHello, 1, taken.
fn confirmed() -> Sped {
    let mut sped = Sped::new();
    assert_eq!(check(&mut sped, Some(&handshake(1)), Some(&[])), Some(handshake(1)));
    sped.received(&handshake(1), true);
    sped
}

fn hash(number: u8) -> u32 {
    crc32fast::hash(&handshake(number))
}

#[test]
fn the_hash_is_that_of_zlib() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
}

#[test]
fn a_first_check_with_neither_attribute_turns_it_off_for_good() {
    let mut sped = Sped::new();
    assert_eq!(check(&mut sped, None, None), None);
    assert_eq!(response(&mut sped), NOTHING);
    assert_eq!(check(&mut sped, Some(&handshake(1)), Some(&[])), None);
    flight(&mut sped, &[2]);
    assert_eq!(response(&mut sped), NOTHING);
}

#[test]
fn either_attribute_alone_confirms_it() {
    for (data, acks) in [(Some(&handshake(1)[..]), None), (None, Some(&[][..]))] {
        let mut sped = Sped::new();
        check(&mut sped, data, acks);
        assert_eq!(response(&mut sped), Carried { acks: Some(vec![]), data: Some(vec![]) });
        assert_eq!(check(&mut sped, None, None), None);
        assert!(response(&mut sped).acks.is_some(), "a later check with neither changes nothing");
    }
}

#[test]
fn the_response_to_the_hello_carries_the_flight_and_acknowledges() {
    let mut sped = confirmed();
    let ours = flight(&mut sped, &[2]);
    assert_eq!(response(&mut sped), Carried { acks: Some(vec![hash(1)]), data: Some(ours[0].clone()) });
    assert!(sped.used());
}

#[test]
fn the_bytes_are_those_of_the_wire_format() {
    let mut sped = confirmed();
    let short = [22, 0xFE, 0xFD, 7, 7];
    sped.capture([&short[..]].into_iter());
    let mut out = vec![0; HEADER];
    sped.write(&mut out, usize::MAX);
    let expected = [&[0xC0, 0x71, 0, 4][..], &hash(1).to_be_bytes(), &[0xC0, 0x70, 0, 5], &short, &[0; 3]].concat();
    assert_eq!(out[HEADER..], expected);
}

#[test]
fn a_datagram_is_given_to_dtls_once() {
    let mut sped = confirmed();
    assert_eq!(check(&mut sped, Some(&handshake(1)), Some(&[])), None);
    sped.received(&handshake(1), false);
    assert_eq!(response(&mut sped).acks, Some(vec![hash(1)]));
}

/// What DTLS dropped must not be acknowledged, or it never comes again.
#[test]
fn a_datagram_that_dtls_dropped_is_given_to_it_again() {
    let mut sped = Sped::new();
    for _ in 0..2 {
        assert_eq!(check(&mut sped, Some(&handshake(1)), Some(&[])), Some(handshake(1)));
        assert_eq!(response(&mut sped).acks, Some(vec![]));
    }
}

#[test]
fn the_last_four_are_acknowledged_oldest_first() {
    let mut sped = confirmed();
    for number in 2..=5 {
        sped.received(&handshake(number), number % 2 == 0);
    }
    assert_eq!(response(&mut sped).acks, Some(vec![hash(2), hash(3), hash(4), hash(5)]));
}

#[test]
fn a_flight_is_carried_in_turn_until_each_datagram_is_acknowledged() {
    let mut sped = confirmed();
    let ours = flight(&mut sped, &[2, 3, 4]);
    let next = |sped: &mut Sped| response(sped).data.unwrap();
    assert_eq!(
        (next(&mut sped), next(&mut sped), next(&mut sped)),
        (ours[0].clone(), ours[1].clone(), ours[2].clone())
    );
    check(&mut sped, Some(&[]), Some(&[hash(2)]));
    assert_eq!(
        (next(&mut sped), next(&mut sped), next(&mut sped)),
        (ours[1].clone(), ours[2].clone(), ours[1].clone())
    );
    check(&mut sped, Some(&[]), Some(&[hash(4), hash(4), 7]));
    assert_eq!((next(&mut sped), next(&mut sped)), (ours[1].clone(), ours[1].clone()));
    check(&mut sped, Some(&[]), Some(&[hash(3)]));
    assert_eq!(next(&mut sped), [], "the client is not to take the handshake for done");
}

#[test]
fn a_fresh_flight_replaces_the_former_and_an_acknowledgement_does_not() {
    let mut sped = confirmed();
    flight(&mut sped, &[2, 3]);
    flight(&mut sped, &[4]);
    let mut acknowledgement = handshake(9);
    acknowledgement[0] = 0x2E;
    sped.capture([acknowledgement.as_slice()].into_iter());
    sped.capture(std::iter::empty());
    for _ in 0..2 {
        assert_eq!(response(&mut sped).data, Some(handshake(4)));
    }
}

#[test]
fn a_last_flight_of_the_clients_proves_ours_and_is_acknowledged_until_it_comes_no_more() {
    let mut sped = confirmed();
    flight(&mut sped, &[2]);
    response(&mut sped);
    check(&mut sped, Some(&handshake(3)), Some(&[]));
    sped.received(&handshake(3), true);
    sped.handshake_done(None::<std::iter::Empty<_>>);
    let acks = Some(vec![hash(1), hash(3)]);
    assert_eq!(response(&mut sped), Carried { acks: acks.clone(), data: None });
    // The response was lost.
    assert_eq!(check(&mut sped, Some(&handshake(3)), Some(&[hash(2)])), None);
    assert_eq!(response(&mut sped), Carried { acks, data: None });
    check(&mut sped, None, Some(&[hash(2)]));
    assert_eq!(response(&mut sped), NOTHING);
    assert_eq!(check(&mut sped, Some(&handshake(4)), Some(&[])), None, "complete is the end");
}

#[test]
fn a_last_flight_of_ours_is_carried_until_it_is_acknowledged() {
    let mut sped = confirmed();
    flight(&mut sped, &[2]);
    let last = last_flight(&mut sped);
    for _ in 0..2 {
        check(&mut sped, None, Some(&[]));
        assert_eq!(response(&mut sped).data, Some(last.clone()));
    }
    check(&mut sped, None, Some(&[crc32fast::hash(&last)]));
    assert_eq!(response(&mut sped), NOTHING);
}

#[test]
fn data_or_media_of_the_clients_acknowledges_our_last_flight() {
    let mut sped = confirmed();
    flight(&mut sped, &[4]);
    sped.heard();
    assert!(response(&mut sped).data.is_some(), "not while the handshake lasts");
    last_flight(&mut sped);
    sped.heard();
    assert_eq!(response(&mut sped), Carried { acks: Some(vec![hash(1)]), data: None });
}

#[test]
fn a_client_that_is_complete_completes_us() {
    let mut sped = confirmed();
    flight(&mut sped, &[2]);
    last_flight(&mut sped);
    check(&mut sped, None, None);
    assert_eq!(response(&mut sped), NOTHING);
}

/// (STUN length so far + 4 + data) <= 1168.
#[test]
fn a_datagram_rides_on_a_response_up_to_the_limit_exactly() {
    // Behind 12 bytes of XOR-MAPPED-ADDRESS and an ACK of one hash.
    let room = 1168 - 12 - 8 - 4;
    for (length, fits) in [(room, true), (room + 1, false)] {
        let mut sped = confirmed();
        let large = [&handshake(2)[..], &vec![7; length - handshake(2).len()]].concat();
        sped.capture([large.as_slice(), &handshake(3)].into_iter());
        assert_eq!(response(&mut sped).data, Some(if fits { large } else { handshake(3) }));
    }
}

/// A check of `most / 3` bytes from anywhere may be one that somebody recorded.
#[test]
fn a_response_that_may_have_fewer_bytes_carries_nothing_larger() {
    let mut sped = confirmed();
    let ours = flight(&mut sped, &[2]).remove(0);
    // Header, ACK of one hash, DATA, its padding, MESSAGE-INTEGRITY and FINGERPRINT.
    let needs = 20 + 8 + 4 + ours.len() + 32;
    for (most, carries) in [(needs, true), (needs - 1, false), (0, false)] {
        let mut out = vec![0; HEADER];
        assert_eq!(sped.write(&mut out, most).is_some(), carries, "{most}");
    }
}

#[test]
fn no_more_is_kept_than_four_datagrams() {
    let mut sped = confirmed();
    flight(&mut sped, &[2, 3, 4, 5, 6, 7]);
    assert_eq!(sped.pending.len(), PENDING_MAX);
}

#[test]
fn malformed_acknowledgements_count_as_far_as_they_are_whole_and_no_further_than_four() {
    let mut sped = confirmed();
    flight(&mut sped, &[2, 3]);
    let cut = [&hash(2).to_be_bytes()[..], &hash(3).to_be_bytes()[..3]].concat();
    check_raw(&mut sped, Some(&[]), Some(&cut));
    assert_eq!(sped.pending, [handshake(3)]);
    let flood = [&[0; 16][..], &hash(3).to_be_bytes()].concat();
    check_raw(&mut sped, Some(&[]), Some(&flood));
    assert_eq!(sped.pending, [handshake(3)]);
}

#[test]
fn attributes_behind_the_integrity_are_not_read() {
    let request = Request::browser().integrity(PASSWORD).with(DATA, &handshake(1)).with(ACK, &[]).fingerprint();
    let request = request.bytes();
    let check = Check::parse(&request).unwrap();
    assert_eq!((check.sped_data(), check.sped_acks()), (None, None));
}

#[test]
fn of_repeated_attributes_the_first_counts() {
    let request = Request::browser().with(DATA, &handshake(1)).with(DATA, &handshake(2)).sealed();
    assert_eq!(Check::parse(&request).unwrap().sped_data(), Some(&handshake(1)[..]));
}
