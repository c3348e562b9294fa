//! Products in bfloat16, compared with f64.

use crate::common::{SIZES, assert_product, numbers};
use cognate_kernels::*;

/// All upper halves, with lower halves that are ties or next to ties.
#[test]
fn numbers_are_rounded_to_the_nearest() {
    for bits in (0..1 << 16).flat_map(|upper: u32| {
        [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|lower| upper << 16 | lower)
    }) {
        let mut number = [f32::from_bits(bits)];
        let expected = half::bf16::from_f32(number[0]).to_f32();
        round_to_bf16(&mut number);
        assert_eq!(number[0].to_bits(), expected.to_bits(), "{bits:x}");
    }
}

/// With the processor's instructions and without.
#[test]
fn products_are_those_of_rounded_numbers() {
    for [n, inputs, outputs] in SIZES {
        let (x, mut weights, bias) =
            (numbers(n * inputs, 1), numbers(inputs * outputs, 2), numbers(outputs, 3));
        round_to_bf16(&mut weights);
        let mut rounded = x.clone();
        round_to_bf16(&mut rounded);
        for (native, bias) in [(true, Some(&*bias)), (true, None), (false, Some(&*bias))] {
            let set = if native { Instructions::All } else { Instructions::Avx2 };
            set.limit(|| check([n, inputs, outputs], [&x, &rounded, &weights], bias));
        }
    }
}

/// Compares the product of rows, and of each row by itself, and each of its columns.
fn check(
    [n, inputs, outputs]: [usize; 3],
    [x, rounded, weights]: [&[f32]; 3],
    bias: Option<&[f32]>,
) {
    let row = |output: usize| &weights[output * inputs..][..inputs];
    let fill = |output: usize, to: &mut [f32]| to.copy_from_slice(row(output));
    let packed = Bf16Weights::pack(inputs, outputs, fill, bias);
    assert_eq!(packed.inputs(), inputs);
    let mut out = vec![f32::NAN; n * outputs];
    packed.multiply(x, &mut out, &Serial);
    // The upper bits of the weights, which are bfloat16.
    let upper = |output: usize| {
        let bits = row(output).iter().map(|weight| (weight.to_bits() >> 16) as u16);
        bits.chain([0]).take(padded_bf16(inputs))
    };
    let rows: Vec<u16> = (0..outputs).flat_map(upper).collect();
    for index in 0..n {
        let (x, out) = (&x[index * inputs..][..inputs], &out[index * outputs..][..outputs]);
        let mut alone = vec![f32::NAN; outputs];
        packed.multiply(x, &mut alone, &Serial);
        assert_eq!(alone, out, "a row by itself has the same bits");
        dots_of_bf16(x, &rows, &mut alone);
        let bias = |output: usize| bias.map_or(0.0, |bias| bias[output]);
        alone.iter_mut().enumerate().for_each(|(output, sum)| *sum += bias(output));
        assert_eq!(alone, out, "some columns have the same bits");
        for (output, &found) in out.iter().enumerate() {
            let rounded = &rounded[index * inputs..][..inputs];
            let what = format!("{n} {inputs} {outputs}");
            assert_product(found, [rounded, row(output)], bias(output), &what);
        }
    }
}
