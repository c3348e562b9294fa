//! numpy's default random numbers: PCG64 (O'Neill 2014, XSL-RR 128/64), seeded by its
//! `SeedSequence`.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// numpy's `Generator`.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    pcg: Pcg64,
    /// The upper half of a number whose lower half was drawn.
    half: Option<u32>,
}

impl Generator {
    /// `numpy.random.default_rng(seed)`.
    pub(crate) fn seeded(seed: u64) -> Self {
        let [a, b, c, d] = seed_words(seed).map(u128::from);
        Self { pcg: Pcg64::new(a << 64 | b, c << 64 | d), half: None }
    }

    /// A number below `bound`, as `Generator.integers` and `Generator.choice` draw it (Lemire
    /// 2019).
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        // numpy draws no number here.
        if bound <= 1 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u64::from(self.next_u32()) * u64::from(bound);
            if product as u32 >= threshold {
                return (product >> 32) as u32;
            }
        }
    }

    fn next_u32(&mut self) -> u32 {
        self.half.take().unwrap_or_else(|| {
            let number = self.pcg.next_u64();
            self.half = Some((number >> 32) as u32);
            number as u32
        })
    }
}

/// `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_words(seed: u64) -> [u64; 4] {
    const POOL: usize = 4;
    let hash = |value: u32, constant: &mut u32, multiplier: u32| {
        let value = value ^ *constant;
        *constant = constant.wrapping_mul(multiplier);
        let value = value.wrapping_mul(*constant);
        value ^ (value >> 16)
    };
    let mix = |a: u32, b: u32| {
        let mixed = a.wrapping_mul(0xca01_f9dd).wrapping_sub(b.wrapping_mul(0x4973_f715));
        mixed ^ (mixed >> 16)
    };
    let mut constant = 0x43b0_d7e5;
    let mut enter = |value: u32| hash(value, &mut constant, 0x931e_8875);
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut enter);
    for source in 0..POOL {
        for target in (0..POOL).filter(|&target| target != source) {
            pool[target] = mix(pool[target], enter(pool[source]));
        }
    }
    let mut constant = 0x8b51_f9dd;
    let mut words =
        pool.iter().cycle().map(|&value| u64::from(hash(value, &mut constant, 0x58f3_8ded)));
    let mut next = || words.next().unwrap_or_default();
    [(); 4].map(|()| next() | next() << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// numpy 2.4: `default_rng(seed).integers(0, bound, 8)`.
    #[test]
    fn numbers_are_those_of_numpy() {
        let draw = |seed, bound| {
            let mut generator = Generator::seeded(seed);
            [(); 8].map(|()| generator.below(bound))
        };
        assert_eq!(draw(12345, 1000), [699, 227, 788, 316, 204, 797, 642, 676]);
        assert_eq!(draw(12345, 7), [4, 1, 5, 2, 1, 5, 4, 4]);
        assert_eq!(
            draw(0, 3000000000),
            [
                2551872677, 1910885061, 1533409439, 809360140, 923488268, 122920571, 225720425,
                49582906
            ]
        );
        assert_eq!(draw(1099511627781, 1), [0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            draw(9223372036854775819, 29001),
            [15745, 4927, 12553, 23423, 3910, 7647, 7689, 16909]
        );
    }
}
