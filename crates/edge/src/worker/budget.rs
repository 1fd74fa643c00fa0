//! What strangers may cost: established flows come first.
//!
//! A datagram of a connected session, on a 4-tuple that a check proved, is never asked for a budget. Everything else costs
//! one token of its source (an IPv4 address, or an IPv6 /64: that is what one host is given) and one of the worker:
//!
//! ```text
//!               per source                 per worker
//! strangers     [`Limits::per_source`]/s   [`Limits::per_worker`]/s    checks, DTLS and SRTP from unknown 4-tuples, and
//!                                                                      all DTLS until it is connected
//! set-up        -                          one step per turn           claims, DTLS until it is connected ([`super::setup`])
//! ```
//!
//! Either bucket holds one second of its rate, so that a burst after silence passes: a conference room that joins at once,
//! every client of a carrier's NAT after an outage.
//!
//! # Memory
//!
//! Sources live in [`SETS`] sets of [`WAYS`], 128 KiB for ever. A new source takes the place of the one in its set that has most
//! tokens, which is the one about which least is forgotten. Who sends from very many addresses gets past the sources' buckets
//! and meets the worker's.

use std::net::IpAddr;
use std::time::Instant;

/// Sets of sources; a power of two.
const SETS: usize = 1024;

/// Sources per set.
const WAYS: usize = 4;

/// How many datagrams of strangers are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From one IPv4 address or IPv6 /64, per second. A set-up needs about six. Defaults to 5000.
    pub per_source: u32,
    /// On one worker, per second. At ~3 us each the default is 15 % of a core. Defaults to 50000.
    pub per_worker: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_source: 5000, per_worker: 50_000 }
    }
}

/// A second's worth of tokens that refills evenly. Time is counted in microseconds, tokens in millionths, so that no
/// rate is rounded.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// Millionths of a token missing from a full bucket.
    missing: u64,
    /// When that was so.
    at_us: u64,
}

/// One token.
const TOKEN: u64 = 1_000_000;

impl Bucket {
    /// What is missing at `now_us`: `rate` tokens come back each second, which are `rate` millionths each microsecond.
    fn missing(&self, now_us: u64, rate: u32) -> u64 {
        self.missing.saturating_sub(now_us.saturating_sub(self.at_us).saturating_mul(rate.into()))
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now_us: u64, rate: u32) -> bool {
        let missing = self.missing(now_us, rate);
        if missing + TOKEN > u64::from(rate) * TOKEN {
            return false;
        }
        *self = Self { missing: missing + TOKEN, at_us: now_us };
        true
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Source {
    /// 0: nobody.
    key: u64,
    bucket: Bucket,
}

/// The budgets of one worker, or of signaling.
pub struct Budget {
    limits: Limits,
    begin: Instant,
    /// Keyed, so that nobody can choose addresses that share a set.
    seed: u64,
    worker: Bucket,
    sources: Box<[[Source; WAYS]]>,
}

impl Budget {
    /// Full buckets.
    #[must_use]
    pub fn new(now: Instant, limits: Limits, seed: u64) -> Self {
        let sources = vec![[Source::default(); WAYS]; SETS].into_boxed_slice();
        Self { limits, begin: now, seed, worker: Bucket::default(), sources }
    }

    /// Pays for one datagram, or one request, of a stranger's. `false`: it is refused unread.
    #[must_use]
    pub fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let now_us = u64::try_from(now.saturating_duration_since(self.begin).as_micros()).unwrap_or(u64::MAX);
        let rate = self.limits.per_source;
        // The source pays first: one that has nothing left must not empty the bucket that all share.
        let bucket = &mut self.source(now_us, source).bucket;
        bucket.take(now_us, rate) && self.worker.take(now_us, self.limits.per_worker)
    }

    fn source(&mut self, now_us: u64, source: IpAddr) -> &mut Source {
        let rate = self.limits.per_source;
        let key = source_key(source);
        let set = &mut self.sources[set_of(key, self.seed)];
        let way = set.iter().position(|source| source.key == key).unwrap_or_else(|| {
            let fullest = (0..WAYS).min_by_key(|way| set[*way].bucket.missing(now_us, rate)).unwrap_or_default();
            set[fullest] = Source { key, bucket: Bucket::default() };
            fullest
        });
        &mut set[way]
    }
}

/// The part of an address that one host cannot choose, as a number that is not 0.
pub(crate) fn source_key(source: IpAddr) -> u64 {
    match source.to_canonical() {
        // Apart from the numbers of 64-bit prefixes: 0100::/8 is discarded by routers (RFC 6666).
        IpAddr::V4(address) => 0x01ff_0000_0000_0000 | u64::from(address.to_bits()),
        IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or_default().max(1),
    }
}

/// Multiplying by an odd number and taking the upper bits spreads keys; the seed makes the spread ours.
#[expect(clippy::cast_possible_truncation, reason = "ten bits are left")]
fn set_of(key: u64, seed: u64) -> usize {
    let mut mixed = (key ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(seed | 1);
    (mixed >> (64 - SETS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use super::*;

    fn budget(per_source: u32, per_worker: u32) -> (Budget, Instant) {
        let now = Instant::now();
        (Budget::new(now, Limits { per_source, per_worker }, 0x1234_5678_9abc_def1), now)
    }

    fn v4(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }

    /// How many of `count` pass.
    fn passing(budget: &mut Budget, now: Instant, source: IpAddr, count: u32) -> u32 {
        (0..count).map(|_| u32::from(budget.take(now, source))).sum()
    }

    #[test]
    fn a_source_has_a_second_of_burst_and_then_its_rate() {
        let (mut budget, now) = budget(100, 1_000_000);
        assert_eq!(passing(&mut budget, now, v4(1), 1000), 100);
        assert_eq!(passing(&mut budget, now + Duration::from_millis(500), v4(1), 1000), 50);
        assert_eq!(passing(&mut budget, now + Duration::from_secs(60), v4(1), 1000), 100);
    }

    #[test]
    fn another_source_is_not_touched() {
        let (mut budget, now) = budget(100, 1_000_000);
        passing(&mut budget, now, v4(1), 1000);
        assert_eq!(passing(&mut budget, now, v4(2), 1000), 100);
    }

    #[test]
    fn an_ipv6_host_is_its_64_bit_prefix() {
        let (mut budget, now) = budget(100, 1_000_000);
        let host = |interface| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | interface));
        let all: u32 = (0..1000).map(|interface| passing(&mut budget, now, host(interface), 1)).sum();
        assert_eq!(all, 100);
        let neighbor = IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (1 << 64)));
        assert!(budget.take(now, neighbor));
    }

    #[test]
    fn an_ipv4_address_in_ipv6_dress_is_the_same_source() {
        let (mut budget, now) = budget(100, 1_000_000);
        passing(&mut budget, now, v4(1), 100);
        let IpAddr::V4(plain) = v4(1) else { unreachable!() };
        assert!(!budget.take(now, IpAddr::V6(plain.to_ipv6_mapped())));
    }

    #[test]
    fn all_sources_together_stay_under_the_workers_rate() {
        let (mut budget, now) = budget(10, 500);
        let all: u32 = (0..100_000).map(|number| passing(&mut budget, now, v4(number), 1)).sum();
        assert_eq!(all, 500);
        let later: u32 =
            (0..100_000).map(|number| passing(&mut budget, now + Duration::from_millis(100), v4(number), 1)).sum();
        assert_eq!(later, 50);
    }

    #[test]
    fn a_refused_source_takes_nothing_from_the_worker() {
        let (mut budget, now) = budget(10, 30);
        passing(&mut budget, now, v4(1), 100_000);
        assert_eq!(passing(&mut budget, now, v4(2), 100), 10);
    }

    #[test]
    fn sources_in_debt_are_kept_while_others_come_and_go() {
        let (mut budget, now) = budget(100, 1_000_000);
        passing(&mut budget, now, v4(1), 1000);
        // More than the table holds, one datagram each.
        for number in 2..20_000 {
            assert!(budget.take(now, v4(number)));
        }
        assert!(!budget.take(now, v4(1)));
    }
}
