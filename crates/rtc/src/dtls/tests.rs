//! Two ends of our own, and an end of the engine's, in virtual time.

mod hello;

use std::sync::Arc;

use super::*;

const DTLS13: u16 = 0xFEFC;
const DTLS12: u16 = 0xFEFD;

fn fingerprint(identity: &Identity) -> Fingerprint {
    let digest = identity.fingerprint().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    Fingerprint { hash: "sha-256".to_owned(), digest }
}

struct End {
    dtls: Dtls,
    connected: Option<(u16, SrtpProfile, Vec<u8>)>,
    data: Vec<Vec<u8>>,
    ended: Option<Option<CloseReason>>,
    outbox: Vec<Vec<u8>>,
}

impl End {
    fn new(now: Instant, active: bool, identity: &Identity, peer: Vec<Fingerprint>) -> Self {
        let dtls = Dtls::new(now, active, identity, peer);
        Self { dtls, connected: None, data: Vec::new(), ended: None, outbox: Vec::new() }
    }

    fn drain(&mut self) {
        while let Some(output) = self.dtls.poll_output() {
            match output {
                Output::Datagram(datagram) => self.outbox.push(datagram),
                Output::Connected { version, profile, keys } => self.connected = Some((version, profile, keys)),
                Output::Data(data) => self.data.push(data),
                Output::Closed => self.ended = Some(None),
                Output::Failed(reason) => self.ended = Some(Some(reason)),
            }
        }
    }
}

struct Pair {
    start: Instant,
    now: Instant,
    client: End,
    server: End,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = (Identity::generate(), Identity::generate());
        let now = Instant::now();
        let client = End::new(now, true, &a, vec![fingerprint(&b)]);
        let server = End::new(now, false, &b, vec![fingerprint(&a)]);
        Self { start: now, now, client, server }
    }

    /// Delivers what is queued, both ways, until nobody has anything to say.
    fn exchange(&mut self) {
        loop {
            self.client.drain();
            self.server.drain();
            let (up, down) = (std::mem::take(&mut self.client.outbox), std::mem::take(&mut self.server.outbox));
            if up.is_empty() && down.is_empty() {
                return;
            }
            for datagram in up {
                let _ = self.server.dtls.handle_datagram(self.now, &datagram);
            }
            for datagram in down {
                let _ = self.client.dtls.handle_datagram(self.now, &datagram);
            }
        }
    }

    /// Goes to the next deadline of either.
    fn step(&mut self) {
        let next = self.client.dtls.poll_timeout().into_iter().chain(self.server.dtls.poll_timeout()).min();
        self.now = next.expect("somebody waits");
        self.client.dtls.handle_timeout(self.now);
        self.server.dtls.handle_timeout(self.now);
    }

    fn connect(&mut self) {
        self.client.dtls.start(self.now);
        self.exchange();
    }
}

#[test]
fn both_ends_export_the_same_keys() {
    let mut pair = Pair::new();
    pair.connect();
    assert!(pair.client.connected.is_some());
    assert_eq!(pair.client.connected, pair.server.connected);
    assert_eq!(pair.server.connected.as_ref().unwrap().0, DTLS13);
}

#[test]
fn data_crosses_both_ways() {
    let mut pair = Pair::new();
    pair.connect();
    for _ in 0..100 {
        pair.client.dtls.send(pair.now, b"up");
        pair.server.dtls.send(pair.now, b"down");
    }
    pair.exchange();
    assert_eq!(pair.server.data, vec![b"up".to_vec(); 100]);
    assert_eq!(pair.client.data, vec![b"down".to_vec(); 100]);
}

#[test]
fn a_wrong_fingerprint_ends_the_server_before_its_keys() {
    let mut pair = Pair::new();
    pair.server.dtls.fingerprints[0].digest[0] ^= 1;
    pair.connect();
    assert_eq!(pair.server.ended, Some(Some(CloseReason::FingerprintMismatch)));
    assert_eq!(pair.server.connected, None);
}

#[test]
fn a_wrong_fingerprint_ends_the_client_before_its_last_flight() {
    let mut pair = Pair::new();
    pair.client.dtls.fingerprints[0].digest[0] ^= 1;
    pair.connect();
    assert_eq!(pair.client.ended, Some(Some(CloseReason::FingerprintMismatch)));
    assert_eq!(pair.client.connected, None);
    assert_eq!(pair.server.connected, None);
}

#[test]
fn every_known_fingerprint_must_match_and_one_must_be_known() {
    let certificate = b"certificate";
    let of = |hash: &str, algorithm| Fingerprint {
        hash: hash.to_owned(),
        digest: digest::digest(algorithm, certificate).as_ref().to_vec(),
    };
    let (good256, good512) = (of("sha-256", &digest::SHA256), of("sha-512", &digest::SHA512));
    let mut bad384 = of("sha-384", &digest::SHA384);
    bad384.digest.reverse();
    let unknown = Fingerprint { hash: "md5".to_owned(), digest: vec![0; 16] };
    assert!(matches_fingerprints(&[good256.clone(), unknown.clone(), good512], certificate));
    assert!(!matches_fingerprints(&[good256, bad384], certificate));
    assert!(!matches_fingerprints(&[unknown], certificate));
    assert!(!matches_fingerprints(&[], certificate));
}

#[test]
fn the_first_resend_comes_well_before_a_second() {
    let mut pair = Pair::new();
    pair.client.dtls.start(pair.now);
    pair.client.drain();
    pair.client.outbox.clear();
    pair.step();
    pair.exchange();
    assert!(pair.client.connected.is_some());
    let waited = pair.now - pair.start;
    assert!((Duration::from_millis(50)..Duration::from_millis(200)).contains(&waited), "{waited:?}");
}

#[test]
fn a_lost_server_flight_is_sent_again() {
    let mut pair = Pair::new();
    pair.client.dtls.start(pair.now);
    pair.client.drain();
    for datagram in std::mem::take(&mut pair.client.outbox) {
        pair.server.dtls.handle_datagram(pair.now, &datagram).unwrap();
    }
    pair.server.drain();
    assert!(!pair.server.outbox.is_empty());
    pair.server.outbox.clear();
    pair.step();
    pair.exchange();
    assert!(pair.client.connected.is_some() && pair.server.connected.is_some());
}

/// Case D01, as the server of DTLS 1.2 and 1.3: the client repeats its last flight as long as it hears nothing.
#[test]
fn a_repeated_last_flight_of_the_client_is_answered_again() {
    for version in [DTLS12, DTLS13] {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        let now = Instant::now();
        let mut server = End::new(now, false, &ours, vec![fingerprint(&theirs)]);
        let mut client = engine(&theirs, version, now);
        let mut last_flight = Vec::new();
        for _ in 0..4 {
            let flight = poll(&mut client);
            for datagram in &flight {
                server.dtls.handle_datagram(now, datagram).unwrap();
            }
            server.drain();
            if server.connected.is_some() {
                last_flight = flight;
                break;
            }
            for datagram in std::mem::take(&mut server.outbox) {
                client.handle_packet(&datagram).unwrap();
            }
        }
        assert_eq!(server.connected.as_ref().expect("connects").0, version);
        // The engine's own resends: after 1 s, then after 2 s, with a quarter of jitter.
        for later in [now + Duration::from_secs(2), now + Duration::from_secs(6)] {
            server.outbox.clear();
            client.handle_timeout(later).unwrap();
            let again = poll(&mut client);
            assert!(!again.is_empty() && !last_flight.is_empty());
            for datagram in &again {
                server.dtls.handle_datagram(later, datagram).unwrap();
            }
            server.drain();
            assert!(!server.outbox.is_empty(), "{version:x}: no answer");
        }
        for datagram in std::mem::take(&mut server.outbox) {
            client.handle_packet(&datagram).unwrap();
        }
        assert!(client_connected(&mut client), "{version:x}");
    }
}

/// SCTP's first packets, with SNAP a whole window, leave right behind the client's last flight, and networks reorder. In DTLS 1.2 the client has to
/// wait for our answer to that flight.
#[test]
fn data_ahead_of_the_clients_last_flight_is_kept_for_it() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let now = Instant::now();
    let mut server = End::new(now, false, &ours, vec![fingerprint(&theirs)]);
    let mut client = engine(&theirs, DTLS13, now);
    for datagram in poll(&mut client) {
        server.dtls.handle_datagram(now, &datagram).unwrap();
    }
    server.drain();
    for datagram in std::mem::take(&mut server.outbox) {
        client.handle_packet(&datagram).unwrap();
    }
    let last_flight = poll(&mut client);
    for number in 0..12 {
        client.send_application_data(&[number]).unwrap();
        for datagram in poll(&mut client) {
            let kept = server.dtls.handle_datagram(now, &datagram).is_ok();
            assert_eq!(kept, usize::from(number) < EARLY_DATA_MAX);
        }
    }
    server.drain();
    assert_eq!((server.connected.is_some(), server.data.len()), (false, 0));
    for datagram in &last_flight {
        server.dtls.handle_datagram(now, datagram).unwrap();
    }
    server.drain();
    assert!(server.connected.is_some());
    let first_window: Vec<Vec<u8>> = (0..10).map(|number| vec![number]).collect();
    assert_eq!(server.data, first_window);
}

#[test]
fn a_client_of_dtls_12_only_is_served() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let now = Instant::now();
    let mut server = End::new(now, false, &ours, vec![fingerprint(&theirs)]);
    let mut client = engine(&theirs, DTLS12, now);
    for _ in 0..4 {
        for datagram in poll(&mut client) {
            server.dtls.handle_datagram(now, &datagram).unwrap();
        }
        server.drain();
        for datagram in std::mem::take(&mut server.outbox) {
            client.handle_packet(&datagram).unwrap();
        }
    }
    assert_eq!(server.connected.map(|connected| connected.0), Some(DTLS12));
}

#[test]
fn a_server_of_dtls_12_only_is_used() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let now = Instant::now();
    let mut client = End::new(now, true, &ours, vec![fingerprint(&theirs)]);
    let (config, certificate) = theirs.engine_parts(FIRST_RESEND);
    let mut server = dimpl::Dtls::new_12(config, certificate, now);
    server.handle_timeout(now).unwrap();
    client.dtls.start(now);
    for _ in 0..4 {
        client.drain();
        for datagram in std::mem::take(&mut client.outbox) {
            server.handle_packet(&datagram).unwrap();
        }
        for datagram in poll(&mut server) {
            client.dtls.handle_datagram(now, &datagram).unwrap();
        }
    }
    client.drain();
    assert_eq!(client.connected.map(|connected| connected.0), Some(DTLS12));
}

/// Case D07, and what the auto-sensing engine would end on.
#[test]
fn junk_is_discarded_at_every_stage() {
    let alert = [21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 255];
    let data = [23, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 7];
    let over = [22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 9, 0xFF, 0xFF, 1];
    let junk: Vec<Vec<u8>> = (20..64_u8)
        .map(|first| [&[first][..], &[0x5A; 40]].concat())
        .chain([alert.to_vec(), data.to_vec(), over.to_vec(), vec![20], vec![63]])
        .collect();
    let mut pair = Pair::new();
    for datagram in &junk {
        assert_eq!(pair.server.dtls.handle_datagram(pair.now, datagram), Err(Discard::Dtls));
        assert_eq!(pair.client.dtls.handle_datagram(pair.now, datagram), Err(Discard::Dtls));
    }
    pair.client.dtls.start(pair.now);
    for datagram in &junk {
        let _ = pair.client.dtls.handle_datagram(pair.now, datagram);
    }
    pair.exchange();
    assert!(pair.client.connected.is_some() && pair.server.connected.is_some());
    for datagram in &junk {
        let _ = pair.server.dtls.handle_datagram(pair.now, datagram);
        let _ = pair.client.dtls.handle_datagram(pair.now, datagram);
    }
    assert_eq!(pair.server.dtls.handle_datagram(pair.now, &alert), Err(Discard::Dtls));
    pair.client.dtls.send(pair.now, b"alive");
    pair.exchange();
    assert_eq!(pair.server.data, [b"alive"]);
    assert_eq!(pair.server.ended, None);
}

#[test]
fn a_panic_of_the_engine_ends_its_session_alone() {
    let mut pair = Pair::new();
    pair.connect();
    pair.server.dtls.run(|_| panic!("on purpose"));
    pair.server.drain();
    assert_eq!(pair.server.ended, Some(Some(CloseReason::DtlsFailed)));
    assert_eq!(pair.server.dtls.handle_datagram(pair.now, &[22; 40]), Err(Discard::Dtls));
    pair.server.dtls.send(pair.now, b"nothing");
    pair.server.dtls.handle_timeout(pair.now);
    pair.server.dtls.close(pair.now);
    assert!(pair.server.dtls.poll_output().is_none());
    assert_eq!(pair.server.dtls.poll_timeout(), None);
}

#[test]
fn close_notify_is_answered_by_ours() {
    let mut pair = Pair::new();
    pair.connect();
    pair.client.dtls.close(pair.now);
    pair.client.drain();
    assert_eq!(pair.client.outbox.len(), 1);
    for datagram in std::mem::take(&mut pair.client.outbox) {
        pair.server.dtls.handle_datagram(pair.now, &datagram).unwrap();
    }
    pair.server.drain();
    assert_eq!(pair.server.ended, Some(None));
    assert_eq!(pair.server.outbox.len(), 1, "our close_notify");
}

#[test]
fn no_datagram_of_the_handshake_exceeds_1000_bytes() {
    let mut pair = Pair::new();
    pair.client.dtls.start(pair.now);
    for _ in 0..4 {
        pair.client.drain();
        pair.server.drain();
        for datagram in pair.client.outbox.iter().chain(&pair.server.outbox) {
            assert!(datagram.len() <= 1000, "{}", datagram.len());
        }
        for datagram in std::mem::take(&mut pair.client.outbox) {
            let _ = pair.server.dtls.handle_datagram(pair.now, &datagram);
        }
        for datagram in std::mem::take(&mut pair.server.outbox) {
            let _ = pair.client.dtls.handle_datagram(pair.now, &datagram);
        }
    }
}

/// A bare engine as the client, speaking one version.
fn engine(identity: &Identity, version: u16, now: Instant) -> dimpl::Dtls {
    let (_, certificate) = identity.engine_parts(FIRST_RESEND);
    let config = Arc::new(dimpl::Config::builder().build().unwrap());
    let mut engine = match version {
        DTLS12 => dimpl::Dtls::new_12(config, certificate, now),
        _ => dimpl::Dtls::new_13(config, certificate, now),
    };
    engine.set_active(true);
    engine.handle_timeout(now).unwrap();
    engine
}

fn poll(engine: &mut dimpl::Dtls) -> Vec<Vec<u8>> {
    let mut buffer = [0; 4096];
    let mut datagrams = Vec::new();
    loop {
        match engine.poll_output(&mut buffer) {
            dimpl::Output::Packet(datagram) => datagrams.push(datagram.to_vec()),
            dimpl::Output::Timeout(_) => return datagrams,
            _ => {}
        }
    }
}

fn client_connected(engine: &mut dimpl::Dtls) -> bool {
    // Application data is refused while the handshake is not done, and queued without output.
    engine.send_application_data(b"x").unwrap();
    !poll(engine).is_empty()
}
