use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn keys() -> RouteKeys {
    RouteKeys::from_secrets(&[(3, [3; 32]), (2, [2; 32])]).unwrap()
}

fn forward(datagram: &[u8]) -> Forward<'_> {
    Forward {
        kind: Kind::Offer,
        from: EdgeId(1),
        to: EdgeId(2),
        time: 1_790_000_000,
        seq: 0x0102_0304_0506_0708,
        local: "192.0.2.1:3478".parse().unwrap(),
        remote: "[2001:db8::7]:40000".parse().unwrap(),
        over_tcp: false,
        datagram,
    }
}

#[test]
fn what_one_edge_seals_another_opens() {
    let mut sealed = Vec::new();
    for kind in [Kind::Up, Kind::Offer, Kind::Down, Kind::Mine] {
        for length in [0, 1, 1400] {
            let datagram = vec![7; length];
            let sent = Forward { kind, ..forward(&datagram) };
            keys().seal_forward(&sent, &mut sealed);
            assert_eq!(sealed.len(), length + OVERHEAD);
            assert_eq!(keys().open_forward(&sealed), Some(sent));
        }
    }
    let swapped = Forward { local: forward(&[]).remote, remote: forward(&[]).local, over_tcp: true, ..forward(&[1]) };
    keys().seal_forward(&swapped, &mut sealed);
    assert_eq!(keys().open_forward(&sealed), Some(swapped));
}

#[test]
fn a_changed_bit_or_a_cut_end_opens_nothing() {
    let mut sealed = Vec::new();
    keys().seal_forward(&forward(&[1, 2, 3]), &mut sealed);
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut bent = sealed.clone();
            bent[at] ^= 1 << bit;
            assert_eq!(keys().open_forward(&bent), None, "bit {bit} of byte {at}");
        }
        assert_eq!(keys().open_forward(&sealed[..at]), None);
    }
}

#[test]
fn any_held_key_opens_and_no_other() {
    let mut sealed = Vec::new();
    RouteKeys::from_secrets(&[(2, [2; 32])]).unwrap().seal_forward(&forward(&[1]), &mut sealed);
    assert!(keys().open_forward(&sealed).is_some());
    RouteKeys::from_secrets(&[(2, [9; 32])]).unwrap().seal_forward(&forward(&[1]), &mut sealed);
    assert!(keys().open_forward(&sealed).is_none());
    RouteKeys::from_secrets(&[(4, [2; 32])]).unwrap().seal_forward(&forward(&[1]), &mut sealed);
    assert!(keys().open_forward(&sealed).is_none());
}

#[test]
fn each_number_is_accepted_once_and_old_ones_never() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut window = Window::default();
        let mut seen = std::collections::HashSet::new();
        let mut highest = 1_000_000_u64;
        for _ in 0..20_000 {
            let seq = match rng.random_range(0..10) {
                0 => highest + rng.random_range(0..3000),
                1..=3 => highest + 1,
                _ => highest - rng.random_range(0..2000),
            };
            let in_reach = highest < seq || highest - seq < WINDOW || seen.is_empty();
            let expected = in_reach && !seen.contains(&seq);
            assert_eq!(window.accept(seq), expected, "seed {seed}: {seq} after {highest}");
            if expected {
                seen.insert(seq);
                highest = if seen.len() == 1 { seq } else { highest.max(seq) };
            }
        }
    }
}
