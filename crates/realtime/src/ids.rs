//! Public ids: a prefix and 21 characters, like the API's own, from a seed.

/// `[0-9A-Za-z]`: what the API's ids are made of.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Characters after the prefix: 21 * log2(62) = 125 bits, more than the generator's 64-bit state gives.
const LENGTH: usize = 21;

/// Mints ids. Unguessable only as far as the seed is: ids name things inside one session and grant nothing.
#[derive(Debug)]
pub(crate) struct Ids {
    state: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next id with this prefix.
    pub(crate) fn mint(&mut self, prefix: &str) -> String {
        let mut id = String::with_capacity(prefix.len() + LENGTH);
        id.push_str(prefix);
        let mut bits = 0;
        for position in 0..LENGTH {
            // One draw of 64 bits feeds ten characters (62^10 < 2^60).
            if position % 10 == 0 {
                bits = self.next();
            }
            let index = usize::try_from(bits % 62).unwrap_or(0);
            bits /= 62;
            id.push(char::from(ALPHABET[index]));
        }
        id
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_of_one_session_differ_and_follow_from_the_seed() {
        let mut ids = Ids::new(7);
        let minted: Vec<String> = (0..1000).map(|_| ids.mint("event_")).collect();
        assert_eq!(minted.iter().collect::<BTreeSet<_>>().len(), 1000);
        assert!(minted.iter().all(|id| id.len() == 27 && id.starts_with("event_")));
        assert_eq!(Ids::new(7).mint("event_"), minted[0]);
        assert_ne!(Ids::new(8).mint("event_"), minted[0]);
    }
}
