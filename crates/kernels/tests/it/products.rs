//! Products with packed weights, compared with f64.

use crate::common::{SIZES, assert_product, numbers, sets};
use cognate_kernels::{Serial, Weights, reads_halves};
use half::f16;

#[test]
fn products_are_as_in_f64_and_as_without_vectors() {
    // By tiles, if the processor has them; the second with weights of half precision.
    let large = [[141, 300, 77], [150, 150, 33], [2_100, 128, 3]];
    for [n, inputs, outputs] in SIZES.into_iter().chain(large) {
        let (x, mut weights, bias) =
            (numbers(n * inputs, 1), numbers(inputs * outputs, 2), numbers(outputs, 3));
        if n == 150 {
            weights.iter_mut().for_each(|weight| *weight = f16::from_f32(*weight).to_f32());
        }
        let row = |output: usize| &weights[output * inputs..][..inputs];
        let fill = |output: usize, to: &mut [f32]| to.copy_from_slice(row(output));
        for (bias, set) in
            [Some(&*bias), None].into_iter().flat_map(|bias| sets().map(move |set| (bias, set)))
        {
            let mut out = vec![f32::NAN; n * outputs];
            set.limit(|| {
                Weights::pack(inputs, outputs, fill, bias).multiply(&x, &mut out, &Serial)
            });
            for (place, &found) in out.iter().enumerate() {
                let (index, output) = (place / outputs, place % outputs);
                let bias = bias.map_or(0.0, |bias| bias[output]);
                let what = format!("{n} {inputs} {outputs}, {set:?}");
                assert_product(found, [&x[index * inputs..][..inputs], row(output)], bias, &what);
            }
        }
    }
}

/// Each row separately, and all at once: the same bits.
#[test]
fn a_row_is_the_same_in_every_batch() {
    let (n, inputs, outputs) = (31, 40, 77);
    let (x, weights) = (numbers(n * inputs, 1), numbers(inputs * outputs, 2));
    let packed = Weights::pack(
        inputs,
        outputs,
        |output, to| to.copy_from_slice(&weights[output * inputs..][..inputs]),
        None,
    );
    let mut all = vec![0.0; n * outputs];
    packed.multiply(&x, &mut all, &Serial);
    for index in 0..n {
        let mut one = vec![0.0; outputs];
        packed.multiply(&x[index * inputs..][..inputs], &mut one, &Serial);
        assert_eq!(one, all[index * outputs..][..outputs], "row {index}");
    }
}

/// Some columns, also by tiles: the bits of the whole product.
#[test]
fn columns_are_those_of_the_whole_product() {
    let (inputs, outputs) = (70, 333);
    let (weights, bias) = (numbers(inputs * outputs, 2), numbers(outputs, 3));
    for (n, set) in [1, 31, 64, 141].into_iter().flat_map(|n| sets().map(move |set| (n, set))) {
        let x = numbers(n * inputs, 1);
        set.limit(|| {
            let fill = |output: usize, to: &mut [f32]| {
                to.copy_from_slice(&weights[output * inputs..][..inputs]);
            };
            let packed = Weights::pack(inputs, outputs, fill, Some(&bias));
            let mut whole = vec![f32::NAN; n * outputs];
            packed.multiply(&x, &mut whole, &Serial);
            for columns in [0..64, 64..256, 256..outputs, 0..outputs] {
                let mut some = vec![f32::NAN; n * columns.len()];
                packed.multiply_columns(&x, columns.clone(), &mut some, &Serial);
                for (row, found) in some.chunks_exact(columns.len()).enumerate() {
                    let expected = &whole[row * outputs..][columns.clone()];
                    assert_eq!(found, expected, "{n} rows, row {row}, {columns:?}, {set:?}");
                }
            }
        });
    }
}

/// Weights that half precision represents, by themselves and followed by a row that it does
/// not: in half precision and in f32, with the same bits.
#[test]
fn weights_in_half_precision_have_the_same_products() {
    for [n, inputs, outputs] in SIZES {
        let x = numbers(n * inputs, 1);
        let mut weights = numbers(inputs * (outputs + 1), 2);
        for (index, weight) in weights[..inputs * outputs].iter_mut().enumerate() {
            // Some are subnormal in half precision, or negative zeros.
            let scale = [1.0, 1e-5, -0.0][index % 3];
            *weight = f16::from_f32(*weight * scale).to_f32();
        }
        let row = |output: usize| &weights[output * inputs..][..inputs];
        let fill = |output: usize, to: &mut [f32]| to.copy_from_slice(row(output));
        for set in sets() {
            let product = |outputs: usize, are_exact: bool| {
                let bias = vec![0.25; outputs];
                let mut out = vec![f32::NAN; n * outputs];
                set.limit(|| {
                    let packed = Weights::pack(inputs, outputs, fill, Some(&bias));
                    let are_halves = format!("{packed:?}").contains("Halves(");
                    assert_eq!(are_halves, reads_halves() && (are_exact || inputs == 0), "{set:?}");
                    packed.multiply(&x, &mut out, &Serial);
                });
                out
            };
            let (halves, floats) = (product(outputs, true), product(outputs + 1, false));
            assert!(floats.iter().all(|number| number.is_finite()));
            let same = floats.chunks(outputs + 1).flat_map(|row| &row[..outputs]);
            assert!(halves.iter().eq(same), "{n} {inputs} {outputs}, {set:?}");
        }
    }
}
