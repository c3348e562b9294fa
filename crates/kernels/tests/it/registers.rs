//! Attention with vectors of different lengths and with numbers in half precision.

use crate::common::{assert_same, numbers, sets};
use cognate_kernels::*;
use half::f16;

/// Widths that fill registers and widths that do not, for few positions and for more than the
/// numbers of a register.
const SIZES: [[usize; 2]; 10] = [
    [16, 1],
    [32, 14],
    [64, 33],
    [128, 18],
    [8, 70],
    [20, 5],
    [33, 40],
    [32, 600],
    [256, 3],
    [4, 16],
];

/// Four heads that share two heads of keys.
fn attention(d_k: usize) -> Attention {
    Attention { key_heads: 2, ..Attention::new(4, d_k, (d_k as f32).sqrt().recip()) }
}

/// The results of queries; keys and values are `[2, places, d_k]`.
fn context<N: Attended>(
    attention: &Attention,
    queries: &[f32],
    [keys, values]: [&[N]; 2],
    packed: bool,
) -> Vec<f32> {
    let (d_k, places) = (attention.d_k, keys.len() / attention.key_width());
    let strides = Strides { head: places * d_k, place: d_k };
    let memory = &Memory { keys, values, strides, places, mask: None, packed };
    let mut out = vec![f32::NAN; queries.len()];
    let results = Results { context: &mut out, weights: None };
    attention.read((queries, attention.width()), memory, results, &Serial);
    out
}

/// For few queries one by one, for many in blocks.
#[test]
fn reads_with_other_registers_are_the_same() {
    for [d_k, places] in SIZES {
        let attention = attention(d_k);
        let [keys, values] = [1, 2].map(|seed| numbers(2 * places * d_k, seed));
        for (n, packed) in [(3, false), (29, true)] {
            let queries = numbers(n * attention.width(), 3);
            let run = || context(&attention, &queries, [&keys, &values], packed);
            assert_same(run, &format!("{n}, {places} places of {d_k}"));
        }
    }
}

#[test]
fn queries_that_share_reads_are_as_alone() {
    for [d_k, places] in SIZES {
        let attention = attention(d_k);
        let [keys, values] = [1, 2].map(|seed| numbers(2 * places * d_k, seed));
        let run = |queries: &[f32]| context(&attention, queries, [&keys, &values], false);
        for n in [2, 3, 5, 7] {
            let queries = numbers(n * attention.width(), 3);
            for set in sets() {
                let [together, alone] = set.limit(|| {
                    let alone = queries.chunks(attention.width()).flat_map(run);
                    [run(&queries), alone.collect()]
                });
                assert_eq!(together, alone, "{n}, {places} of {d_k}, {set:?}");
            }
        }
    }
}

#[test]
fn halves_are_read_as_the_floats_that_they_represent() {
    for [d_k, places] in SIZES {
        let attention = attention(d_k);
        let halves = [1, 2].map(|seed| {
            let numbers = numbers(2 * places * d_k, seed);
            numbers.into_iter().map(f16::from_f32).collect::<Vec<_>>()
        });
        let floats: [Vec<f32>; 2] =
            halves.each_ref().map(|halves| halves.iter().map(|half| half.to_f32()).collect());
        for (n, packed) in [(1, false), (5, false), (9, true), (65, true)] {
            let queries = numbers(n * attention.width(), 3);
            for set in sets() {
                let [of_floats, of_halves] = set.limit(|| {
                    let floats = floats.each_ref().map(Vec::as_slice);
                    let halves = halves.each_ref().map(Vec::as_slice);
                    [
                        context(&attention, &queries, floats, packed),
                        context(&attention, &queries, halves, packed),
                    ]
                });
                assert_eq!(of_halves, of_floats, "{n}, {places} of {d_k}, {set:?}");
            }
        }
    }
}

#[test]
fn steps_with_other_registers_are_the_same() {
    for [d_k, places] in SIZES {
        let (attention, beams, past) = (attention(d_k), 3, places - 1);
        let (capacity, first) = (places + 1, past / 3);
        let holders: Vec<i64> = (0..beams * past).map(|index| (index * 5 % beams) as i64).collect();
        let new = numbers(beams * attention.width(), 3);
        let run = || {
            let size = beams * 2 * capacity * d_k;
            let (mut keys, mut values) = (numbers(size, 1), numbers(size, 2));
            let mut out = vec![f32::NAN; new.len()];
            let step = Step {
                query: &new,
                key: &new,
                value: &new,
                strides: [4 * d_k, 2 * d_k, 2 * d_k],
                past,
                first,
                longest: past,
                holders: &holders,
                bias: None,
            };
            let caches = Caches { keys: &mut keys, values: &mut values, capacity };
            attention.step(&step, caches, &mut out);
            out
        };
        assert_same(run, &format!("{places} places of {d_k}"));
    }
}
