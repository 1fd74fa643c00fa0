//! The worker's table of 4-tuples: each media packet is looked up in it.
//!
//! Hashed by a multiplication per word under two secret keys: a tenth of what the standard library's SipHash takes. What that is
//! for, an enemy who fills a table with keys of one hash, has no way in here: an entry takes an authentic check and a seat, a session
//! has 8 at most, and no hash is ever shown.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use rand::Rng;
use rtc::Path;

use super::clients::Key;

/// Whose datagrams come on which 4-tuple.
pub(super) type Paths = HashMap<Path, Key, Keyed>;

/// Begins each hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keyed {
    begin: u64,
    /// Odd, so that multiplying by it loses nothing.
    factor: u64,
}

impl Keyed {
    pub(super) fn new(rng: &mut impl Rng) -> Self {
        Self { begin: rng.next_u64(), factor: rng.next_u64() | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded { state: self.begin, factor: self.factor }
    }
}

/// Multiplies, and folds the upper half of the product into the lower one.
#[derive(Debug)]
pub(super) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        let [low, high] = [product, product >> 64].map(low);
        // The sum keeps one word's fold from being undone by the next.
        self.state = (low ^ high).wrapping_add(self.factor);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::SocketAddr;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn neighbors_spread_over_the_table_and_their_tags() {
        let keyed = Keyed::new(&mut StdRng::seed_from_u64(1));
        let local = SocketAddr::from(([192, 0, 2, 1], 3478));
        let hashes: Vec<u64> = (0..4096_u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                // Addresses in a row, ports in a row.
                let remote = SocketAddr::from(([10, 0, high, low], 40_000 + n % 64));
                keyed.hash_one(Path::udp(local, remote))
            })
            .collect();
        // Of 4096 thrown into as many places at random 63 % are hit; the table takes the low bits.
        let places: HashSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
        let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(places.len() > 2400 && tags.len() == 128, "{} places, {} tags", places.len(), tags.len());
    }

    #[test]
    fn both_ends_count_and_so_does_the_address_family() {
        let keyed = Keyed::new(&mut StdRng::seed_from_u64(2));
        let [a, b, c] = ["192.0.2.1:3478", "198.51.100.7:40000", "[2001:db8::7]:40000"].map(|a| a.parse().unwrap());
        let paths = [Path::udp(a, b), Path::udp(b, a), Path::udp(a, c), Path::udp(c, a), Path::udp(c, b)];
        let hashes: HashSet<u64> = paths.iter().map(|path| keyed.hash_one(path)).collect();
        assert_eq!(hashes.len(), paths.len());
    }
}
