//! The operations of the fast forms: 8-bit products on every engine, and attention to shared caches
//! on ONNX Runtime, which has an operator for it.

use crate::engines::{assert_close, everywhere, on_ort, output, own_and_plain};
use cognate_export::{ErrorKind, Metadata, to_onnx_bytes};
use cognate_graph::{
    Bits, Blocks, Builder, CachedAttention, DType, Dim, Generator, Op, Program, Quantized,
    QuantizedTable, Recipe, Steps, Type, Weights,
};
use cognate_passes::half::{Facts, half};
use cognate_passes::quantize::{Options, quantize};
use cognate_runtime::{self as runtime, Reference, Runtime, Session, Source, Value, Values};
use cognate_verify::{CLOSE, HALF};
use ndarray::{ArrayD, IxDyn};
use std::sync::Arc;

/// The operations that this file and `blocks.rs` compare.
pub(crate) const OPERATIONS: [&str; 5] =
    ["QuantizedLinear", "BlockLinear", "LargestMagnitude", "CacheWrite", "CachedAttention"];

const BOUND: f64 = CLOSE.relative_l2;

#[derive(Debug)]
pub(crate) struct Wave(pub(crate) f32);

impl Generator for Wave {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values
            .iter_mut()
            .zip(first..)
            .for_each(|(value, index)| *value = (index as f32 * self.0).sin());
    }
}

pub(crate) fn wave(shape: &[usize], step: f32) -> ArrayD<f32> {
    let mut values = ArrayD::zeros(IxDyn(shape));
    Wave(step).fill(1, values.as_slice_mut().unwrap());
    values
}

fn compare(sessions: &mut [Box<dyn Session>], inputs: &Values, outputs: &[&str], what: &str) {
    let (reference, engines) = sessions.split_first_mut().unwrap();
    let expected = reference.run(inputs).unwrap();
    for engine in engines {
        let found = engine.run(inputs).unwrap();
        for name in outputs {
            assert_close(
                &output(&found, name),
                &output(&expected, name),
                BOUND,
                &format!("{}: {what}, {name}", engine.engine()),
            );
        }
    }
}

#[test]
fn products_of_8_bits_agree() {
    const IN: usize = 24;
    const OUT: usize = 10;
    let weight = Recipe::generated(Arc::new(Wave(0.37)), &[OUT, IN]);
    let quantized = Quantized::new(&weight);
    let weights: Weights = [
        ("int8", quantized.values.clone()),
        ("scale", quantized.scales.clone()),
        ("bias", Recipe::generated(Arc::new(Wave(0.9)), &[OUT])),
    ]
    .map(|(name, recipe)| (name.to_string(), recipe))
    .into_iter()
    .collect();
    for steps in [Steps::Row, Steps::RowUnscaled, Steps::Tensor] {
        let builder = Builder::new("layer");
        let x = builder.input("x", DType::F32, ["batch".into(), "len".into(), Dim::from(IN)]);
        let parameter =
            |name: &str, dtype, shape: &[usize]| builder.parameter(name, Type::new(dtype, shape));
        let mut inputs = vec![
            x,
            parameter("int8", DType::I8, &[IN, OUT]),
            parameter("scale", DType::F32, &[OUT]),
        ];
        if steps != Steps::RowUnscaled {
            inputs.push(parameter("bias", DType::F32, &[OUT]));
        }
        let y = builder.node("layer", Op::QuantizedLinear(steps), &inputs);
        builder.output("y", y);
        builder.output("magnitude", builder.node("magnitude", Op::LargestMagnitude, &[x]));
        let program = Program::new(builder.finish().unwrap(), weights.clone()).unwrap();
        let mut sessions = everywhere(&program);
        sessions.extend(on_ort(&program).into_iter().skip(1));
        for (batch, len) in [(3, 2), (1, 1)] {
            // A row of zeros is divided by its largest magnitude too.
            let mut rows =
                wave(&[batch, len, IN], 0.71).into_dimensionality::<ndarray::Ix3>().unwrap();
            rows.slice_mut(ndarray::s![-1, -1, ..]).fill(if batch > 1 { 0.0 } else { 2.0 });
            let inputs: Values = [("x", rows.into_dyn())].into_iter().collect();
            compare(
                &mut sessions,
                &inputs,
                &["y", "magnitude"],
                &format!("{steps:?}, {batch} x {len}"),
            );
        }
    }
}

/// The weights' own rounding: half a step at most, and the largest of a row is met exactly.
#[test]
fn weights_are_rounded_to_the_nearest_step() {
    let weight = Recipe::generated(Arc::new(Wave(0.37)), &[300, 70]);
    let (original, quantized) = (weight.values::<f32>(), Quantized::new(&weight));
    let (values, scales) = (quantized.values.values::<f32>(), quantized.scales.values::<f32>());
    assert_eq!(quantized.values.byte_len(), 300 * 70);
    for (row, scale) in scales.iter().enumerate() {
        let largest =
            (0..70).fold(0f32, |largest, column| largest.max(original[row * 70 + column].abs()));
        assert_eq!(*scale, largest / 127.0);
        for column in 0..70 {
            let (value, steps) = (original[row * 70 + column], values[column * 300 + row]);
            assert!(
                (value - steps * scale).abs() <= 0.5001 * scale && steps.abs() <= 127.0,
                "row {row}, column {column}"
            );
        }
    }
}

/// A table's rows likewise.
#[test]
fn tables_are_rounded_to_the_nearest_step() {
    let table = Recipe::generated(Arc::new(Wave(0.37)), &[300, 70]);
    let (original, quantized) = (table.values::<f32>(), QuantizedTable::new(&table));
    let (values, scales) = (quantized.values.values::<f32>(), quantized.scales.values::<f32>());
    assert_eq!((quantized.values.byte_len(), quantized.scales.shape()), (300 * 70, &[300, 1][..]));
    for (row, (original, values)) in original.chunks(70).zip(values.chunks(70)).enumerate() {
        let largest = original.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        assert_eq!(scales[row], largest / 127.0);
        let worst = original
            .iter()
            .zip(values)
            .map(|(value, steps)| (value - steps * scales[row]).abs())
            .fold(0f32, f32::max);
        assert!(worst <= 0.5001 * scales[row], "row {row}: {worst}");
    }
}

/// Tokens are looked up in tables of 8 bits, by rows or in blocks that a layer shares; positions
/// are not tokens.
#[test]
fn gathered_rows_agree() {
    for (width, integers) in [
        (24, Options::Columns { steps: Steps::Row, unscaled: None }),
        (32, Options::Blocks { blocks: Blocks { bits: Bits::Four, size: 16 }, output: "y" }),
        (24, Options::Blocks { blocks: Blocks { bits: Bits::Four, size: 16 }, output: "y" }),
    ] {
        let builder = Builder::new("embedding");
        let ids = builder.input("ids", DType::I64, ["batch", "len"]);
        let table = builder.parameter("table", Type::new(DType::F32, [50, width]));
        let positions = builder.parameter("positions", Type::new(DType::F32, [20, width]));
        let x = table.gather(ids) + positions.gather(builder.range(0, "len"));
        builder.output("x", x);
        builder.output("y", x.linear(table, None));
        let recipes = [("table", 50, 0.37), ("positions", 20, 0.11)];
        let recipes = recipes.map(|(name, rows, step)| {
            (name.to_string(), Recipe::generated(Arc::new(Wave(step)), &[rows, width]))
        });
        let program =
            Program::new(builder.finish().unwrap(), recipes.into_iter().collect()).unwrap();
        let converted = quantize(&[&program], integers).unwrap().remove(0);
        let parameters: Vec<_> = converted
            .graph()
            .parameters()
            .map(|(_, node)| format!("{}: {}", node.name, node.ty))
            .collect();
        let expected = match integers {
            Options::Columns { .. } => vec![
                "positions: f32 [20, 24]".to_owned(),
                "table.int8: i8 [24, 50]".into(),
                "table.rows.int8: i8 [50, 24]".into(),
                "table.rows.scale: f32 [50, 1]".into(),
                "table.scale: f32 [50]".into(),
            ],
            Options::Blocks { .. } => {
                vec![
                    format!("positions: f32 [20, {width}]"),
                    "table.int8: u8 [50, 2, 16]".into(),
                    "table.scale: f32 [50, 2]".into(),
                ]
            }
        };
        let mut sorted = parameters.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
        let mut sessions = match integers {
            Options::Columns { .. } => everywhere(&converted),
            Options::Blocks { .. } => on_ort(&converted),
        };
        let ids = ArrayD::from_shape_vec(IxDyn(&[2, 3]), vec![0, 49, 7, 7, 31, 2]).unwrap();
        let inputs: Values = [("ids", Value::I64(ids))].into_iter().collect();
        compare(&mut sessions, &inputs, &["x", "y"], &format!("{integers:?}"));
        // Beside the table as it was: off by no more than half of the largest step.
        let mut original =
            Reference::F64.load(&Source::Graph(program), &runtime::Options::default()).unwrap();
        let [found, expected] = [&mut sessions[0], &mut original]
            .map(|session| output(&session.run(&inputs).unwrap(), "x"));
        assert_close(&found, &expected, 0.5 / 127.0, &format!("{integers:?}"));
    }
}

/// A reshape makes other rows of the same numbers, and each row has a scale of its own.
#[test]
fn rows_of_other_lengths_agree() {
    let builder = Builder::new("rows");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 6.into()]);
    let weight = |width: i64| {
        builder.parameter(&format!("weight{width}"), Type::new(DType::F32, [4, width]))
    };
    builder.output("y", x.linear(weight(6), None));
    builder.output("z", x.reshape([Dim::from("rows"), 2.into(), 3.into()]).linear(weight(3), None));
    let recipes = [6, 3].map(|width| {
        (format!("weight{width}"), Recipe::generated(Arc::new(Wave(0.37)), &[4, width]))
    });
    let program = Program::new(builder.finish().unwrap(), recipes.into_iter().collect()).unwrap();
    let converted = quantize(&[&program], Options::Columns { steps: Steps::Row, unscaled: None })
        .unwrap()
        .remove(0);
    let x = ArrayD::from_shape_fn(IxDyn(&[5, 6]), |place| (place[0] * 6 + place[1]) as f32 - 7.0);
    compare(
        &mut everywhere(&converted),
        &[("x", Value::F32(x))].into_iter().collect(),
        &["y", "z"],
        "rows",
    );
}

/// The layers that read a source have no rows after the first call; in Optimum's layout a slice is
/// then empty.
#[test]
fn no_rows_have_no_magnitudes() {
    let builder = Builder::new("rest");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 6.into()]);
    let past = builder.input("past", DType::F32, [Dim::from("covered"), 4.into()]);
    let rest = x
        .slice(0, "covered", "rows")
        .linear(builder.parameter("weight", Type::new(DType::F32, [4, 6])), None);
    builder.output("y", cognate_graph::concat(0, &[past, rest]));
    let weights = [("weight".to_string(), Recipe::generated(Arc::new(Wave(0.37)), &[4, 6]))];
    let program = Program::new(builder.finish().unwrap(), weights.into_iter().collect()).unwrap();
    let converted = quantize(&[&program], Options::Columns { steps: Steps::Row, unscaled: None })
        .unwrap()
        .remove(0);
    for covered in [0, 2, 5] {
        let matrix = |rows, width| {
            Value::F32(ArrayD::from_shape_fn(IxDyn(&[rows, width]), |place| {
                (place[0] * 6 + place[1]) as f32 - 7.0
            }))
        };
        let inputs = [("x", matrix(5, 6)), ("past", matrix(covered, 4))].into_iter().collect();
        compare(&mut everywhere(&converted), &inputs, &["y"], &format!("{covered} of 5 rows"));
    }
}

/// A layer of attention over caches with heads of width `d_k`, with a bias or without.
fn attention(attention: CachedAttention, d_k: usize, with_bias: bool) -> Program {
    let CachedAttention { heads, key_heads, .. } = attention;
    let builder = Builder::new("step");
    let rows = Dim::symbol("batch") * Dim::symbol("beams");
    let beams = builder.input("cache_beams", DType::I64, ["batch", "beams", "past"]);
    let row = |name: &str, heads: usize| {
        builder.input(name, DType::F32, [&rows, &1.into(), &Dim::from(heads * d_k)])
    };
    let cache = |name: &str| {
        builder.input(
            name,
            DType::F32,
            [&rows, &Dim::from(key_heads), &"capacity".into(), &Dim::from(d_k)],
        )
    };
    let written = |cached: &str, new: &str| cache(cached).cache_write(row(new, key_heads), "past");
    let (keys, values) = (written("keys", "key"), written("values", "value"));
    let bias = with_bias.then(|| {
        builder.input(
            "bias",
            DType::F32,
            [&1.into(), &Dim::from(heads), &1.into(), &(Dim::symbol("past") + 1)],
        )
    });
    builder.output(
        "context",
        row("query", heads).attend_cached(attention, [keys, values], beams, bias) * 1.0,
    );
    builder.output("new_keys", keys);
    builder.output("new_values", values);
    Program::new(builder.finish().unwrap(), Weights::default()).unwrap()
}

#[test]
fn attention_to_shared_caches_agrees() {
    const HEADS: usize = 4;
    const D_K: usize = 4;
    let plain = CachedAttention::new(HEADS, 0.5);
    let alone = CachedAttention { padded: true, ..plain };
    for (with_bias, given) in [false, true].into_iter().flat_map(|with_bias| {
        let all = CachedAttention { key_heads: 1, cap: Some(0.4), window: Some(2), ..alone };
        let of = [
            plain,
            CachedAttention { key_heads: 2, ..plain },
            alone,
            CachedAttention { window: Some(3), ..plain },
            all,
        ];
        of.map(|attention| (with_bias, attention))
    }) {
        let mut sessions = own_and_plain(&attention(given, D_K, with_bias));
        for (batch, beams, past, capacity) in
            [(1, 1, 0, 1), (2, 3, 0, 4), (2, 3, 4, 7), (3, 1, 6, 7)]
        {
            let (rows, key_heads) = (batch * beams, given.key_heads);
            let caches = [("keys", 0.31), ("values", 0.47)]
                .map(|(name, step)| (name, wave(&[rows, key_heads, capacity, D_K], step)));
            let row =
                [("query", 0.83, HEADS), ("key", 0.59, key_heads), ("value", 0.67, key_heads)]
                    .map(|(name, step, heads)| (name, wave(&[rows, 1, heads * D_K], step)));
            let mut inputs: Values = caches.into_iter().chain(row).collect();
            // The first two places of all sentences but one are padding.
            let is_padding =
                |index: usize| given.padded && index >= beams * past && index % past < 2;
            let holder =
                |index: usize| if is_padding(index) { -1 } else { (index * 7 % 5 % beams) as i64 };
            let holders = (0..batch * beams * past).map(holder).collect();
            inputs.insert(
                "cache_beams",
                Value::I64(ArrayD::from_shape_vec(vec![batch, beams, past], holders).unwrap()),
            );
            if with_bias {
                inputs.insert("bias", wave(&[1, HEADS, 1, past + 1], 0.9));
            }
            let what = format!(
                "{batch} x {beams}, past {past} of {capacity}, bias {with_bias}, {given:?}"
            );
            compare(&mut sessions, &inputs, &["context", "new_keys", "new_values"], &what);
            // The same in place: the caches become what the outputs were.
            let pairs = [("keys", "new_keys"), ("values", "new_values")]
                .map(|(input, output)| (input.to_string(), output.to_string()));
            let expected = sessions[0].run(&inputs).unwrap();
            for session in &mut sessions {
                let mut state = inputs.clone();
                let outputs = session.run_in_place(&mut state, &pairs).unwrap();
                assert_eq!(outputs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["context"]);
                let what = format!("{}, in place: {what}", session.engine());
                assert_close(
                    &output(&outputs, "context"),
                    &output(&expected, "context"),
                    BOUND,
                    &what,
                );
                for (input, output_name) in &pairs {
                    assert_close(
                        &output(&state, input),
                        &output(&expected, output_name),
                        BOUND,
                        &what,
                    );
                }
            }
        }
    }
}

#[test]
fn special_attention_to_shared_caches_in_f16_agrees() {
    let special = CachedAttention {
        key_heads: 2,
        cap: Some(0.4),
        window: Some(2),
        ..CachedAttention::new(4, 0.5)
    };
    let full = attention(special, 4, true);
    let facts = Facts {
        seen: &|_, _| Some(1.0),
        interface: &|name| Some(name.to_owned()),
        keep: &|_, _| false,
        computes_in_f32: true,
    };
    let halved = half(&[&full], facts).unwrap().programs.remove(0);
    let (rows, past, capacity) = (6, 4, 7);
    let mut inputs: Values = [
        ("keys", &[rows, 2, capacity, 4][..], 0.31),
        ("values", &[rows, 2, capacity, 4], 0.47),
        ("query", &[rows, 1, 16], 0.83),
        ("key", &[rows, 1, 8], 0.59),
        ("value", &[rows, 1, 8], 0.67),
        ("bias", &[1, 4, 1, past + 1], 0.9),
    ]
    .into_iter()
    .map(|(name, shape, step)| (name, wave(shape, step)))
    .collect();
    let holders = (0..rows * past).map(|index| (index * 7 % 5 % 3) as i64).collect();
    inputs.insert(
        "cache_beams",
        Value::I64(ArrayD::from_shape_vec(vec![2, 3, past], holders).unwrap()),
    );
    let mut in_f64 =
        Reference::F64.load(&Source::Graph(full), &runtime::Options::default()).unwrap();
    let expected = output(&in_f64.run(&inputs).unwrap(), "context");
    for session in &mut own_and_plain(&halved)[1..] {
        let found = output(&session.run(&inputs).unwrap(), "context");
        assert_close(&found, &expected, HALF.relative_l2, session.engine());
    }
}

#[test]
fn only_onnx_runtime_has_an_operator_for_caches() {
    let error =
        to_onnx_bytes(&attention(CachedAttention::new(2, 0.5), 4, false), &Metadata::default())
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Graph);
    insta::assert_snapshot!(error, @"CacheWrite: CacheWrite has no standard ONNX operator; set the target to ONNX Runtime");
}
