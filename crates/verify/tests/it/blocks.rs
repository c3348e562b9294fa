//! Weights in blocks, of 4 and of 8 bits: their rounding, and products on ONNX Runtime, which has
//! an operator for them.

use crate::engines::{assert_close, on_ort, output};
use crate::fast::{Wave, wave};
use cognate_export::{ErrorKind, Metadata, to_onnx_bytes};
use cognate_graph::{
    Bits, Blocks, Builder, DType, Dim, Op, Program, QuantizedBlocks, Recipe, Storage, Type, Weights,
};
use cognate_runtime::Values;
use cognate_verify::CLOSE;
use std::sync::Arc;

/// f32 against f64; where an activation lies between two steps to the last bit, both may choose
/// another.
const BOUND: f64 = CLOSE.relative_l2;

fn layer(blocks: Blocks, inputs: usize, outputs: usize, with_bias: bool) -> Program {
    let quantized =
        QuantizedBlocks::new(&Recipe::generated(Arc::new(Wave(0.37)), &[outputs, inputs]), blocks);
    let bias = Recipe::generated(Arc::new(Wave(0.9)), &[outputs]);
    let builder = Builder::new("layer");
    let x = builder.input("x", DType::F32, ["batch".into(), "len".into(), Dim::from(inputs)]);
    let parameter = |name: &str, dtype, recipe: &Recipe| {
        builder.parameter(name, Type::new(dtype, recipe.shape()))
    };
    let mut given = vec![
        x,
        parameter("values", DType::U8, &quantized.values),
        parameter("scale", DType::F32, &quantized.scales),
    ];
    if with_bias {
        given.push(parameter("bias", DType::F32, &bias));
    }
    builder.output("y", builder.node("layer", Op::BlockLinear(blocks), &given));
    let weights: Weights =
        [("values", quantized.values), ("scale", quantized.scales), ("bias", bias)]
            .map(|(name, recipe)| (name.into(), recipe))
            .into_iter()
            .collect();
    Program::new(builder.finish().unwrap(), weights).unwrap()
}

#[test]
fn products_in_blocks_agree() {
    for bits in [Bits::Four, Bits::Eight] {
        for (size, inputs, outputs) in
            [(16, 32, 10), (16, 24, 7), (32, 24, 7), (32, 70, 33), (64, 130, 5), (128, 256, 16)]
        {
            for with_bias in [false, true] {
                let mut sessions =
                    on_ort(&layer(Blocks { bits, size }, inputs, outputs, with_bias));
                for (batch, len) in [(1, 1), (3, 2), (2, 20)] {
                    // A row of zeros, whose blocks have no largest magnitude, and one that is zero
                    // in its first block alone.
                    let mut rows = wave(&[batch, len, inputs], 0.71)
                        .into_dimensionality::<ndarray::Ix3>()
                        .unwrap();
                    if batch > 1 {
                        rows.slice_mut(ndarray::s![-1, -1, ..]).fill(0.0);
                        rows.slice_mut(ndarray::s![0, 0, ..size.min(inputs)]).fill(0.0);
                    }
                    let given: Values = [("x", rows.into_dyn())].into_iter().collect();
                    let (reference, engines) = sessions.split_first_mut().unwrap();
                    let expected = output(&reference.run(&given).unwrap(), "y");
                    for engine in engines {
                        let what = format!(
                            "{bits:?} bits, blocks of {size}, {inputs} to {outputs}, {batch} x {len}, bias {with_bias}"
                        );
                        assert_close(
                            &output(&engine.run(&given).unwrap(), "y"),
                            &expected,
                            BOUND,
                            &what,
                        );
                    }
                }
            }
        }
    }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Storage for Bytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn stored(values: &[f32], shape: &[usize]) -> Recipe {
    let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let len = bytes.len();
    Recipe::stored(Arc::new(Bytes(bytes)), 0..len, shape).unwrap()
}

/// Multiples of one step are met exactly, and lie in the bytes as ONNX wants them: the first of two
/// in the lower half, 8 or 128 for zero, which also fills the last block.
#[test]
fn integers_lie_in_bytes_as_onnx_wants_them() {
    let steps: Vec<f32> = (-8..8).chain([3]).map(|step| step as f32 * 0.25).collect();
    let quantized =
        QuantizedBlocks::new(&stored(&steps, &[1, 17]), Blocks { bits: Bits::Four, size: 16 });
    assert_eq!(quantized.values.shape(), [1, 2, 8]);
    let bytes = quantized.values.values::<f32>();
    assert_eq!(
        bytes[..8],
        [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe].map(|byte: u8| f32::from(byte))
    );
    assert!(bytes[9..].iter().all(|&byte| byte == f32::from(0x88u8)), "{bytes:?}");
    let scales = quantized.scales.values::<f32>();
    assert!((scales[0] - 0.25).abs() < 1e-6, "{scales:?}");
    let last = (bytes[8] as u8 & 15) as f32 - 8.0;
    assert!((last * scales[1] - 0.75).abs() < 1e-6, "{last} x {scales:?}");

    let eight: Vec<f32> = [-127, -1, 0, 1, 127].map(|step| step as f32 * 0.5).to_vec();
    let quantized =
        QuantizedBlocks::new(&stored(&eight, &[1, 5]), Blocks { bits: Bits::Eight, size: 16 });
    let mut expected = [128.0f32; 16];
    expected[..5].copy_from_slice(&[1.0, 127.0, 128.0, 129.0, 255.0]);
    assert_eq!(quantized.values.values::<f32>(), expected);
    assert_eq!(quantized.scales.values::<f32>(), [0.5]);
}

/// In 8 bits no weight is off by more than half a step; in 4, no block's squared error is more than
/// that of steps of a seventh of its largest magnitude, which all together is a sixth more at
/// least.
#[test]
fn weights_are_rounded_to_good_steps() {
    const SHAPE: [usize; 2] = [90, 70];
    let weight = Recipe::generated(Arc::new(Wave(0.37)), &SHAPE);
    let original = weight.values::<f32>();
    for bits in [Bits::Eight, Bits::Four] {
        let blocks = Blocks { bits, size: 32 };
        let quantized = QuantizedBlocks::new(&weight, blocks);
        assert_eq!(quantized.values.byte_len() as usize, SHAPE[0] * 3 * 32 * bits.count() / 8);
        let (bytes, scales) = (quantized.values.values::<f32>(), quantized.scales.values::<f32>());
        let (mut found_error, mut plain_error) = (0.0, 0.0);
        for (row, values) in original.chunks(SHAPE[1]).enumerate() {
            for (index, block) in values.chunks(blocks.size).enumerate() {
                let (block_index, scale) = (row * 3 + index, scales[row * 3 + index]);
                let integer = |place: usize| match bits {
                    Bits::Eight => bytes[block_index * 32 + place] - 128.0,
                    Bits::Four => {
                        f32::from(
                            (bytes[block_index * 16 + place / 2] as u8) >> (4 * (place % 2)) & 15,
                        ) - 8.0
                    }
                };
                let largest = block.iter().fold(0f32, |largest, value| largest.max(value.abs()));
                let squared = |rounded: &dyn Fn(usize, f32) -> f32| -> f32 {
                    block
                        .iter()
                        .enumerate()
                        .map(|(place, &value)| (rounded(place, value) - value).powi(2))
                        .sum()
                };
                let found = squared(&|place, _| integer(place) * scale);
                let plain = squared(&|_, value| (value / largest * 7.0).round() * largest / 7.0);
                match bits {
                    Bits::Eight => {
                        assert_eq!(scale, largest / 127.0);
                        let worst = block
                            .iter()
                            .enumerate()
                            .map(|(place, value)| (integer(place) * scale - value).abs());
                        assert!(
                            worst.fold(0f32, f32::max) <= 0.5001 * scale,
                            "row {row}, block {index}"
                        );
                    }
                    Bits::Four => assert!(
                        found <= plain * 1.0001,
                        "row {row}, block {index}: {found} and {plain}"
                    ),
                }
                (found_error, plain_error) = (found_error + found, plain_error + plain);
            }
        }
        assert!(found_error < 0.85 * plain_error, "{bits:?}: {found_error} and {plain_error}");
    }
}

#[test]
fn blocks_are_for_onnx_runtime_alone() {
    let program = layer(Blocks { bits: Bits::Four, size: 32 }, 64, 8, false);
    let error = to_onnx_bytes(&program, &Metadata::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Graph);
    insta::assert_snapshot!(error, @"layer: BlockLinear has no standard ONNX operator; set the target to ONNX Runtime");
}

#[test]
fn wrong_blocks_are_refused() {
    let blocks = Blocks { bits: Bits::Four, size: 32 };
    let refused = |weight: [usize; 3], scale: [usize; 2]| {
        let builder = Builder::new("layer");
        let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(70)]);
        let parameters = [
            builder.parameter("values", Type::new(DType::U8, weight)),
            builder.parameter("scale", Type::new(DType::F32, scale)),
        ];
        builder.output(
            "y",
            builder.node("layer", Op::BlockLinear(blocks), &[x, parameters[0], parameters[1]]),
        );
        builder.finish().unwrap_err().to_string()
    };
    insta::assert_snapshot!(refused([8, 3, 32], [8, 3]), @"layer: weight: expected u8 [8, 3, 16], found u8 [8, 3, 32]");
    insta::assert_snapshot!(refused([8, 2, 16], [8, 2]), @"layer: weight: expected u8 [8, 3, 16], found u8 [8, 2, 16]");
    insta::assert_snapshot!(refused([8, 3, 16], [8, 2]), @"layer: scale: expected f32 [8, 3], found f32 [8, 2]");
}
