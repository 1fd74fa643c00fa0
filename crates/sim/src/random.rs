//! Random numbers that are the same everywhere and forever: tests record seeds.

/// xoshiro256++ (Blackman and Vigna), its state filled by SplitMix64 from a seed and a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// Generators with different labels are independent.
    #[must_use]
    pub fn new(seed: u64, label: u64) -> Self {
        let mut state = seed ^ split_mix(&mut label.wrapping_add(1));
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number from 0 to `limit` - 1, or 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product is uniform but for a bias of limit / 2^64.
        let product = u128::from(self.bits()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// True with `probability`: never at 0, always at 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, all that an f64 holds.
        let unit = 1.0 / 9_007_199_254_740_992.0;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let drawn = (self.bits() >> 11) as f64 * unit;
        drawn < probability
    }

    /// 32 random bytes, as machines take for a seed.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for chunk in seed.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes());
        }
        seed
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_seeds_give_different_generators() {
        let first = |seed, label| Random::new(seed, label).bits();
        assert_eq!(first(1, 1), first(1, 1));
        assert_ne!(first(1, 1), first(1, 2));
        assert_ne!(first(1, 1), first(2, 1));
    }

    #[test]
    fn chances_come_as_often_as_said() {
        let mut random = Random::new(1, 0);
        for (probability, expected) in [(0.0, 0..=0), (0.1, 900..=1100), (0.5, 4800..=5200), (1.0, 10_000..=10_000)] {
            let hits = (0..10_000).filter(|_| random.chance(probability)).count();
            assert!(expected.contains(&hits), "{hits} of 10000 at {probability}");
        }
    }

    #[test]
    fn numbers_below_a_limit_reach_both_ends() {
        let mut random = Random::new(1, 0);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[usize::try_from(random.below(5)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (140..=260).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
