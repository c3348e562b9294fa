//! Products of matrices, compared with f64.

use crate::common::{InTurn, numbers, rounding};
use cognate_kernels::{Instructions, Matrix, Parallel, Serial, round_to_bf16};

/// Sizes that fill tiles and sizes that do not, each matrix and its transpose in memory.
#[test]
fn products_are_as_in_f64() {
    for sizes in [
        [1, 7, 3],
        [5, 31, 33],
        [64, 32, 16],
        [70, 33, 17],
        [141, 300, 77],
        // Threads share inputs, rows, and columns.
        [20, 600, 130],
        [300, 64, 70],
        [40, 64, 300],
        // Inputs and columns in parts.
        [5, 1100, 40],
        [3, 2, 300],
        [3, 100, 1],
        [2, 1, 40],
        [0, 4, 4],
        [3, 0, 5],
    ] {
        let [n, inputs, outputs] = sizes;
        let (left, right) = (numbers(n * inputs, 1), numbers(inputs * outputs, 2));
        let bias = numbers(outputs, 3);
        let [mut rounded_left, mut rounded_right] = [left.clone(), right.clone()];
        round_to_bf16(&mut rounded_left);
        round_to_bf16(&mut rounded_right);
        for ((turned, bias), in_bf16) in [[false; 2], [true, false], [false, true], [true; 2]]
            .into_iter()
            .flat_map(|turned| [None, Some(&*bias)].map(|bias| (turned, bias)))
            .flat_map(|form| [false, true].map(|in_bf16| (form, in_bf16)))
        {
            let matrix = |numbers, [rows, columns]: [usize; 2], is_turned| match is_turned {
                true => Matrix::new(numbers, [columns, rows]).transposed(),
                false => Matrix::new(numbers, [rows, columns]),
            };
            let at = |numbers: &[f32],
                      [rows, columns]: [usize; 2],
                      is_turned,
                      [row, column]: [usize; 2]| {
                f64::from(
                    numbers[if is_turned { column * rows + row } else { row * columns + column }],
                )
            };
            let ways = [
                (&Serial as &dyn Parallel, Instructions::All),
                (&InTurn, Instructions::All),
                (&Serial, Instructions::Avx2),
                (&Serial, Instructions::Scalar),
            ];
            let out = ways.map(|(threads, set)| {
                let mut out = vec![f32::NAN; n * outputs];
                let left = matrix(&left, [n, inputs], turned[0]).in_bf16(in_bf16);
                let right = matrix(&right, [inputs, outputs], turned[1]);
                set.limit(|| left.multiply(right, bias, &mut out, threads));
                let before = out.clone();
                set.limit(|| left.add(right, &mut out, threads));
                // What was added, but for its rounding.
                let bias = |place: usize| bias.map_or(0.0, |bias| bias[place % outputs]);
                for (place, (sum, first)) in out.iter().zip(&before).enumerate() {
                    let added = f64::from(*sum) - f64::from(*first) + f64::from(bias(place));
                    assert!((added - f64::from(*first)).abs() < 1e-5 * (inputs + 1) as f64);
                }
                before
            });
            for (place, &found) in out.iter().flat_map(|out| out.iter().enumerate()) {
                let (row, column) = (place / outputs, place % outputs);
                let is_near = |left, right| {
                    let products = (0..inputs).map(|input| {
                        at(left, [n, inputs], turned[0], [row, input])
                            * at(right, [inputs, outputs], turned[1], [input, column])
                    });
                    let (sum, size) =
                        products.fold((0.0, 1.0), |(sum, size), x| (sum + x, size + x.abs()));
                    let expected = sum + bias.map_or(0.0, |bias| f64::from(bias[column]));
                    (f64::from(found) - expected).abs() < rounding(inputs) * size
                };
                // Small products, and those of some processors, are not rounded.
                assert!(
                    is_near(&left, &right) || in_bf16 && is_near(&rounded_left, &rounded_right),
                    "{sizes:?} {turned:?} {row} {column}: {found}"
                );
            }
        }
    }
}
