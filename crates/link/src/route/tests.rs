use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;

const SECRET: [u8; 32] = *b"the secret of the tests, 32 byte";

fn route() -> Route {
    Route {
        edge: EdgeId(1),
        transceiver: TransceiverId(2),
        session: SessionId(0x0123_4567_89ab_cdef),
        minted: 1_790_000_000,
    }
}

fn any_route(rng: &mut StdRng) -> Route {
    Route {
        edge: EdgeId(rng.random()),
        transceiver: TransceiverId(rng.random()),
        session: SessionId(rng.random()),
        minted: rng.random(),
    }
}

#[test]
fn a_token_has_48_characters_of_the_ice_alphabet() {
    let keys = RouteKeys::from_secret(&SECRET);
    for seed in 0..200 {
        let ufrag = keys.seal(&any_route(&mut StdRng::seed_from_u64(seed)));
        assert_eq!((ufrag.len(), TOKEN_CHARS), (48, 48), "seed {seed}");
        assert!(ufrag.bytes().all(|char| ALPHABET.contains(&char)), "seed {seed}: {ufrag}");
        assert!(ufrag.starts_with('Q'), "version 1, key id 0");
    }
}

#[test]
fn the_same_secret_and_route_give_the_same_token_and_password_for_ever() {
    let keys = RouteKeys::from_secret(&SECRET);
    let ufrag = keys.seal(&route());
    assert_eq!(ufrag, VECTOR_UFRAG);
    assert_eq!(keys.password(&ufrag).as_deref(), Some(VECTOR_PASSWORD));
}

// Computed with another implementation (OpenSSL's AES-GCM-SIV, Python's hmac) from docs/LINK.md, "Route token".
const VECTOR_UFRAG: &str = "Qhx7vIMddhosNHwg6m4bEZaNTT+9McDBjS+Ls2e2q4voHkWE";
const VECTOR_PASSWORD: &str = "Bw9Hj94NPgje9YJD1yn7+IUU";

#[test]
fn every_route_comes_back_whatever_follows_the_token() {
    let keys = RouteKeys::from_secret(&SECRET);
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let route = any_route(&mut rng);
        let mut ufrag = keys.seal(&route);
        assert_eq!(keys.open(&ufrag), Some(route), "seed {seed}");
        let password = keys.password(&ufrag);
        assert_eq!(password.as_ref().map(String::len), Some(PASSWORD_CHARS));
        ufrag.push_str("instant/connect+payload");
        assert_eq!(keys.open(&ufrag), Some(route), "seed {seed}");
        assert_eq!(keys.password(&ufrag), password, "seed {seed}");
    }
}

#[test]
fn a_changed_character_anywhere_opens_nothing() {
    let keys = RouteKeys::from_secret(&SECRET);
    for forged in forgeries(&keys.seal(&route())) {
        assert_eq!(keys.open(&forged), None, "{forged}");
    }
}

/// The text with each of its characters changed into each other one.
fn forgeries(ufrag: &str) -> impl Iterator<Item = String> {
    (0..ufrag.len()).flat_map(move |at| {
        let others = ALPHABET.iter().filter(move |other| **other != ufrag.as_bytes()[at]);
        others.map(move |other| format!("{}{}{}", &ufrag[..at], char::from(*other), &ufrag[at + 1..]))
    })
}

#[test]
fn a_short_token_opens_nothing() {
    let keys = RouteKeys::from_secret(&SECRET);
    let ufrag = keys.seal(&route());
    for len in 0..ufrag.len() {
        assert_eq!((keys.open(&ufrag[..len]), keys.password(&ufrag[..len])), (None, None));
    }
}

#[test]
fn tokens_of_another_secret_open_nothing() {
    let ufrag = RouteKeys::from_secret(&[7; 32]).seal(&route());
    assert_eq!(RouteKeys::from_secret(&SECRET).open(&ufrag), None);
    assert_ne!(RouteKeys::from_secret(&SECRET).password(&ufrag), RouteKeys::from_secret(&[7; 32]).password(&ufrag));
}

#[test]
fn the_newest_key_seals_and_all_held_keys_open() {
    let old = RouteKeys::from_secrets(&[(3, [3; 32])]).unwrap();
    let rotated = RouteKeys::from_secrets(&[(15, [15; 32]), (3, [3; 32])]).unwrap();
    let (before, after) = (old.seal(&route()), rotated.seal(&route()));
    assert!(before.starts_with('T') && after.starts_with('f'), "{before} {after}");
    assert_eq!((rotated.open(&before), rotated.open(&after)), (Some(route()), Some(route())));
    assert_eq!(rotated.password(&before), old.password(&before));
    assert_eq!((old.open(&after), old.password(&after)), (None, None));
}

#[test]
fn a_key_ring_needs_one_key_per_id_and_ids_below_16() {
    assert_eq!(RouteKeys::from_secrets(&[]).unwrap_err(), KeyRingError::Empty);
    assert_eq!(RouteKeys::from_secrets(&[(16, [0; 32])]).unwrap_err(), KeyRingError::KeyId(16));
    assert_eq!(RouteKeys::from_secrets(&[(1, [0; 32]), (1, [1; 32])]).unwrap_err(), KeyRingError::Duplicate(1));
}

#[test]
fn random_text_opens_nothing() {
    let keys = RouteKeys::from_secret(&SECRET);
    for seed in 0..5_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..260)];
        rng.fill_bytes(&mut bytes);
        assert_eq!(keys.open(&String::from_utf8_lossy(&bytes)), None, "seed {seed}");
        let mut ufrag: String = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte & 63)])).collect();
        ufrag.insert(0, 'Q');
        assert_eq!(keys.open(&ufrag), None, "seed {seed}");
    }
}

#[test]
fn keys_do_not_show_in_debug_output() {
    let shown = format!("{:?}", RouteKeys::from_secret(&SECRET));
    assert_eq!(shown, "RouteKeys { newest: 0, held: [0], .. }");
}

fn ticket() -> ticket::Ticket {
    ticket::Ticket {
        route: route(),
        lifetime: 60,
        max_tens: 360,
        tenant: 7,
        model: ticket::model_id("parrot"),
        has_config: true,
    }
}

#[test]
fn a_ticket_comes_back_and_is_a_route_whatever_follows_it() {
    let keys = RouteKeys::from_secret(&SECRET);
    let mut ufrag = keys.seal_ticket(&ticket());
    assert_eq!((ufrag.len(), ticket::TICKET_CHARS), (61, 61));
    assert!(
        ufrag.starts_with('g') && ufrag.bytes().all(|char| ALPHABET.contains(&char)),
        "version 2, key id 0: {ufrag}"
    );
    assert_eq!((ticket().expires(), ticket().max_seconds()), (1_790_000_060, 3600));
    let (password, derived) = (keys.password(&ufrag), keys.derive(&ufrag).unwrap());
    assert_eq!(ticket::added(&ufrag), Some(""));
    ufrag.push_str("what the client adds");
    assert_eq!((keys.open_ticket(&ufrag), keys.open(&ufrag)), (Some(ticket()), Some(route())));
    assert_eq!((keys.password(&ufrag), keys.derive(&ufrag)), (password.clone(), Some(derived)));
    assert_eq!(ticket::added(&ufrag), Some("what the client adds"));
    assert!(keys.is_password(&ufrag, &password.unwrap()) && !keys.is_password(&ufrag, ""));
    assert!(derived.sctp_tag != 0 && derived.ssrc != 0 && derived.sdp_session >> 63 == 0);
}

#[test]
fn a_changed_ticket_is_none() {
    let keys = RouteKeys::from_secret(&SECRET);
    let ufrag = keys.seal_ticket(&ticket());
    for forged in forgeries(&ufrag) {
        assert_eq!((keys.open_ticket(&forged), keys.open(&forged)), (None, None), "{forged}");
    }
    for at in 0..ufrag.len() {
        assert_eq!((keys.open_ticket(&ufrag[..at]), keys.password(&ufrag[..at])), (None, None));
    }
}

#[test]
fn routes_are_no_tickets() {
    let keys = RouteKeys::from_secret(&SECRET);
    let ufrag = keys.seal(&route());
    assert_eq!((keys.open_ticket(&ufrag), keys.derive(&ufrag), ticket::added(&ufrag)), (None, None, None));
}
