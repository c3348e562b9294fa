//! Products of 8-bit integers, compared with f64.

use crate::common::{SIZES, sets};
use cognate_kernels::{IntegerWeights, Serial};

/// Integers without a pattern, including the extremes.
fn number(index: usize, seed: usize, n: usize) -> usize {
    (index * 7_919 + seed * 104_729) % 2_003 % n
}

/// With every instruction set, exactly as in f64.
#[test]
fn products_of_integers_are_exact() {
    let more = [[3, 31, 33], [16, 64, 32], [45, 128, 130], [64, 192, 40]];
    for [n, inputs, outputs] in SIZES.into_iter().chain(more) {
        let x: Vec<u8> = (0..n * inputs).map(|index| number(index, 1, 256) as u8).collect();
        let weights: Vec<u8> =
            (0..inputs * outputs).map(|index| number(index, 2, 256) as u8).collect();
        let factors: Vec<f32> =
            (0..outputs).map(|index| number(index, 3, 100) as f32 / 64.0 - 0.5).collect();
        for set in sets() {
            let mut out = vec![f32::NAN; n * outputs];
            let packed = set.limit(|| IntegerWeights::pack(inputs, &weights, &factors));
            packed.multiply(&x, &mut out, &Serial);
            // Every third output, starting from the last, and the first one twice.
            let chosen: Vec<usize> = (0..outputs).rev().step_by(3).chain([0]).collect();
            let mut some = vec![f32::NAN; n * chosen.len()];
            packed.select(&chosen).multiply(&x, &mut some, &Serial);
            let expected =
                out.chunks(outputs).flat_map(|row| chosen.iter().map(|&output| row[output]));
            assert_eq!(
                some,
                expected.collect::<Vec<_>>(),
                "{set:?} {n} {inputs} {outputs}: some outputs"
            );
            for index in 0..n {
                for output in 0..outputs {
                    let product = |input| {
                        (i64::from(x[index * inputs + input]) - 128)
                            * i64::from(weights[input * outputs + output] as i8)
                    };
                    let expected = (0..inputs).map(product).sum::<i64>() as f32 * factors[output];
                    assert_eq!(
                        out[index * outputs + output],
                        expected,
                        "{set:?} {n} {inputs} {outputs}: row {index}, output {output}"
                    );
                }
            }
        }
    }
}
