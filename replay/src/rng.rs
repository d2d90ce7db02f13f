//! The pseudorandom numbers of a replay: the same seed gives the same numbers on any host and in any version.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator for one purpose: different streams of one seed are independent of each other, so that
    /// a further use of random numbers in one place changes none in another.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self { state: seed };
        let base = mixed.next_u64();
        let mut rng = Self { state: base ^ stream.wrapping_mul(0xA076_1D64_78BD_642F) };
        rng.next_u64();
        rng
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where the bound is 0. The bias of the multiplication is below 2^-32 for the
    /// bounds in use, which matters nothing here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Shuffles in place (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_algorithm() {
        // Reference output of splitmix64.c (Vigna) for the state 1234567.
        let mut rng = SplitMix64 { state: 1_234_567 };
        let numbers: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn streams_of_a_seed_differ_and_each_repeats() {
        let first = |seed, stream| SplitMix64::new(seed, stream).next_u64();
        assert_eq!(first(42, 1), first(42, 1));
        assert_ne!(first(42, 1), first(42, 2));
        assert_ne!(first(42, 1), first(43, 1));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_a_shuffle_keeps_every_item() {
        let mut rng = SplitMix64::new(7, 0);
        assert!((0..1000).all(|_| rng.below(10) < 10));
        assert_eq!(rng.below(0), 0);
        let mut items: Vec<u32> = (0..100).collect();
        rng.shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..100));
    }
}
