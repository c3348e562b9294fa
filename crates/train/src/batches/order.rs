//! Seeded order: the same on every machine and in every version.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The use of random numbers; each has its own sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The blocks of an epoch.
    Blocks,
    /// The pairs of a window.
    Pairs,
    /// The batches of a window.
    Batches,
    /// The blocks that a tokenizer is trained on.
    Sample,
    /// The pieces of a window's words.
    Segmentation,
    /// The first values of adapters.
    Adapters,
}

/// Random numbers that depend on the arguments alone.
pub(crate) fn random(purpose: Purpose, seed: u64, epoch: u64, window: u64) -> impl FnMut() -> u64 {
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip([seed, epoch, window, purpose as u64]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let mut random = ChaCha8Rng::from_seed(key);
    move || random.next_u64()
}

/// Shuffles by [`random`] numbers.
pub(crate) fn shuffle<T>(items: &mut [T], purpose: Purpose, seed: u64, epoch: u64, window: u64) {
    let mut random = random(purpose, seed, epoch, window);
    // Fisher and Yates, from the end.
    for last in (1..items.len()).rev() {
        // The high word of the product is below `last + 1`, and nearly uniform: 64 random bits are
        // mapped to few values.
        let chosen = (u128::from(random()) * (last as u128 + 1)) >> 64;
        items.swap(last, chosen as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(n: u32, purpose: Purpose, seed: u64, epoch: u64, window: u64) -> Vec<u32> {
        let mut items: Vec<u32> = (0..n).collect();
        shuffle(&mut items, purpose, seed, epoch, window);
        items
    }

    #[test]
    fn every_argument_changes_the_order_and_nothing_is_lost() {
        let mut seen = std::collections::HashSet::new();
        for purpose in [Purpose::Blocks, Purpose::Pairs, Purpose::Batches, Purpose::Sample] {
            for (seed, epoch, window) in
                [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (u64::MAX, u64::MAX, u64::MAX)]
            {
                let order = shuffled(50, purpose, seed, epoch, window);
                assert_eq!(order, shuffled(50, purpose, seed, epoch, window));
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..50));
                assert!(seen.insert(order));
            }
        }
        assert!(shuffled(0, Purpose::Pairs, 1, 1, 1).is_empty());
        assert_eq!(shuffled(1, Purpose::Pairs, 1, 1, 1), [0]);
    }

    /// Each place of 6 gets each item a sixth of the time: 6,000 shuffles, χ² with 25 degrees of
    /// freedom, 99.9% below 52.6.
    #[test]
    fn places_are_even() {
        let mut counts = [[0_u32; 6]; 6];
        for seed in 0..6_000 {
            for (place, item) in shuffled(6, Purpose::Pairs, seed, 0, 0).into_iter().enumerate() {
                counts[place][item as usize] += 1;
            }
        }
        let chi_squared: f64 = counts
            .iter()
            .flatten()
            .map(|count| (f64::from(*count) - 1_000.0).powi(2) / 1_000.0)
            .sum();
        assert!(chi_squared < 52.6, "{chi_squared}: {counts:?}");
    }
}
