//! Post-quantum ClientHellos: the shape of Chromium's, 1413 bytes, in two datagrams, extensions in random order.

use super::*;

/// What makes a ServerHello a HelloRetryRequest (RFC 8446 §4.1.3).
const RETRY: [u8; 8] = [0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11];

const X25519: [u8; 2] = [0x00, 0x1D];
const X25519_MLKEM768: [u8; 2] = [0x11, 0xEC];

/// Handshake header and body, as they are hashed.
const HELLO_BYTES: usize = 1413;

/// Behind a length of `width` bytes.
fn vector(width: usize, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[4 - width..], &body].concat()
}

fn extension(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, parts)].concat()
}

/// The ClientHello's body. `order` shuffles the extensions.
fn hello(order: u64, dtls13: bool) -> Vec<u8> {
    // The base point (RFC 7748 §6.1) and something as long as a post-quantum share.
    let point = [&[9][..], &[0; 31]].concat();
    let share = |group: [u8; 2], key: &[u8]| [&group[..], &vector(2, &[key])].concat();
    let mut extensions = vec![
        extension(0x000A, &[&vector(2, &[&X25519_MLKEM768, &X25519, &[0x00, 0x17], &[0x00, 0x18]])]),
        extension(0x000D, &[&vector(2, &[&[4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1, 8, 6, 6, 1]])]),
        extension(0x000E, &[&vector(2, &[&[0, 1, 0, 8, 0, 7]]), &[0]]),
        extension(0x000B, &[&[1, 0]]),
        extension(0x0017, &[]),
        extension(0xFF01, &[&[0]]),
        extension(0x0023, &[]),
    ];
    if dtls13 {
        extensions.push(extension(0x002B, &[&vector(1, &[&[0xFE, 0xFC, 0xFE, 0xFD]])]));
        extensions
            .push(extension(0x0033, &[&vector(2, &[&share(X25519_MLKEM768, &[7; 1216]), &share(X25519, &point)])]));
    }
    let mut random = sim::Random::new(order, 1);
    for at in (1..extensions.len()).rev() {
        extensions.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
    }
    let start = [&[0xFE, 0xFD][..], &[0x5A; 32], &[0, 0]].concat();
    let suites: Vec<u8> =
        if dtls13 { vec![0x13, 1, 0x13, 2, 0xC0, 0x2B, 0xC0, 0x2F] } else { vec![0xC0, 0x2B, 0xC0, 0x2F] };
    let middle = [vector(2, &[&suites]), vec![1, 0]].concat();
    let known: usize = extensions.iter().map(Vec::len).sum();
    // Padding up to the length seen (RFC 7685), in both versions.
    let pad = HELLO_BYTES - 12 - start.len() - middle.len() - 2 - known - 4;
    extensions.push(extension(0x0015, &[&vec![0; pad]]));
    [start, middle, vector(2, &[&extensions.concat()])].concat()
}

/// Datagrams of one fragment each, as DTLS cuts a message for an MTU of 900.
fn fragments(body: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(12 + body.len(), HELLO_BYTES);
    let number = |value: usize| u32::try_from(value).unwrap().to_be_bytes()[1..].to_vec();
    let room = 900 - 13 - 12;
    let cut = |(at, part): (usize, &[u8])| {
        let sequence = u8::try_from(at).unwrap();
        let fragment = [&[1][..], &number(body.len()), &[0, 0], &number(at * room), &number(part.len()), part].concat();
        [&[22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, sequence][..], &vector(2, &[&fragment])].concat()
    };
    body.chunks(room).enumerate().map(cut).collect()
}

/// What the server says to these datagrams, in order.
fn answer(datagrams: &[Vec<u8>]) -> (Option<u16>, Vec<Vec<u8>>) {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let now = Instant::now();
    let mut server = End::new(now, false, &ours, vec![fingerprint(&theirs)]);
    for datagram in datagrams {
        let _ = server.dtls.handle_datagram(now, datagram);
        server.drain();
    }
    assert_eq!(server.ended, None);
    let version = server.dtls.engine.as_ref().and_then(dimpl::Dtls::protocol_version);
    (version.map(|version| version.as_u16()), server.outbox)
}

fn assert_server_hello(flight: &[Vec<u8>], case: &str) {
    let first = flight.first().unwrap_or_else(|| panic!("{case}: no answer"));
    assert_eq!((first[0], first[13]), (22, 2), "{case}: a ServerHello, no HelloVerifyRequest");
    assert_ne!(first[27..35], RETRY, "{case}: no HelloRetryRequest");
}

#[test]
fn whole_in_two_datagrams_of_either_order_it_is_answered_by_dtls_13_at_once() {
    for order in 0..24 {
        let datagrams = fragments(&hello(order, true));
        assert_eq!(datagrams.len(), 2);
        let reversed: Vec<_> = datagrams.iter().rev().cloned().collect();
        for (case, datagrams) in [("in order", datagrams), ("reversed", reversed)] {
            let case = format!("order {order}, {case}");
            assert_eq!(answer(&datagrams[..1]), (None, vec![]), "{case}: half a hello decides nothing");
            let (version, flight) = answer(&datagrams);
            assert_eq!(version, Some(DTLS13), "{case}");
            assert_server_hello(&flight, &case);
            assert_eq!(flight.len(), 1, "{case}: one flight");
        }
    }
}

/// That a hello has no DTLS 1.3 is known at its end as well.
#[test]
fn whole_in_two_datagrams_without_dtls_13_it_is_answered_by_dtls_12() {
    for order in 0..8 {
        let datagrams = fragments(&hello(order, false));
        for datagrams in [datagrams.clone(), datagrams.iter().rev().cloned().collect()] {
            let (version, flight) = answer(&datagrams);
            assert_eq!(version, Some(DTLS12), "order {order}");
            assert_server_hello(&flight, "1.2");
        }
    }
}

#[test]
fn fragments_repeated_and_mixed_with_junk_make_one_hello() {
    let datagrams = fragments(&hello(3, true));
    let junk = [&[22, 0xFE, 0xFD][..], &[0x5A; 60]].concat();
    let mixed: Vec<_> = [1, 1, 1, 2, 1, 0].map(|at| datagrams.get(at).unwrap_or(&junk).clone()).into();
    let (version, flight) = answer(&mixed);
    assert_eq!((version, flight.len()), (Some(DTLS13), 1));
    assert_server_hello(&flight, "mixed");
}
