//! The form for a GPU, on the CPU, which has the same operators except packed rows.

use super::*;
use crate::in_memory::SHARED_CACHE;
use crate::{Options, Ort, Runtime, Source, Value, Values};
use cognate_export::{Existing, Export, Metadata, Target, read_model, write_folder};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use ndarray::{ArrayD, IxDyn};
use prost::Message;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The decoder with shared caches of a checkpoint in `testdata`, and its file.
fn decoder(checkpoint: &str) -> (TempDir, PathBuf, ModelProto) {
    let model = Model::open(&cognate_testing::testdata(checkpoint)).expect("a checkpoint");
    let programs = model.programs(Layout::SharedCache, Attentions::Omit).expect("programs");
    let program = fuse(&programs[1]).expect("a fused program");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [key, value] = SHARED_CACHE.map(str::to_owned);
    let metadata = Metadata { properties: [(key, value)].into(), ..Metadata::default() };
    let graphs = [("decoder.onnx", &program)];
    let export =
        Export { target: Target::Ort, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).expect("a written folder");
    let path = folder.path().join("decoder.onnx");
    let model = read_model(&path).expect("an ONNX file");
    (folder, path, model)
}

/// Values for all inputs: 2 sentences of 3 beams, with 4 positions of a past.
fn inputs(graph: &GraphProto) -> Values {
    let size = |axis: &DimensionProto| match axis.dim_param.as_deref() {
        Some("batch") => 2,
        Some("beams") => 3,
        Some("batch*beams") => 6,
        Some("src") => 5,
        Some("past") => 4,
        Some("capacity") => 8,
        _ => axis.dim_value.and_then(|size| usize::try_from(size).ok()).unwrap_or(1),
    };
    let places = Places::new(graph);
    let value = |input: &ValueInfoProto| {
        let shape: Vec<usize> =
            places.shape(&input.name).expect("a shape").iter().map(size).collect();
        let n = shape.iter().product::<usize>();
        let value: Value = if input.name == "attention_mask" {
            // The last token of the first sentence is padding.
            let mask = (0..n).map(|index| i64::from(index != 4)).collect();
            ArrayD::from_shape_vec(IxDyn(&shape), mask).expect("as many elements").into()
        } else if ["input_ids", "cache_beams"].contains(&input.name.as_str()) {
            let tokens = (0..n as i64).map(|index| index % 3).collect();
            ArrayD::from_shape_vec(IxDyn(&shape), tokens).expect("as many elements").into()
        } else {
            let values = (0..n).map(|index| ((index * 7919) % 101) as f32 / 50.0 - 1.0).collect();
            ArrayD::from_shape_vec(IxDyn(&shape), values).expect("as many elements").into()
        };
        (input.name.clone(), value)
    };
    graph.input.iter().map(value).collect()
}

fn outputs(ort: &Ort, path: &Path, inputs: &Values) -> Values {
    let options = Options { plain: true, ..Options::default() };
    let mut session = ort.load(&Source::Onnx(path.into()), &options).expect("a legal graph");
    session.run(inputs).expect("a run")
}

/// Adds biases after their products, as graphs in half precision do.
fn divide_biases(graph: &mut GraphProto) {
    let nodes = std::mem::take(&mut graph.node);
    for mut node in nodes {
        let Some(bias) = (node.op_type == "Gemm").then(|| node.input.drain(2..).next()).flatten()
        else {
            graph.node.push(node);
            continue;
        };
        let out = node.output[0].clone();
        let product = format!("{out}.product");
        (node.name, node.output) = (product.clone(), vec![product.clone()]);
        graph.node.push(node);
        graph.node.push(standard("Add", &[&product, &bias], &out, Vec::new()));
    }
}

/// The holders of places in 64 bits, which values have.
const WIDE: &str = "wide";

fn widen_places(graph: &mut GraphProto) {
    let inputs = graph.input.iter_mut().filter(|input| input.name == PLACES);
    let tensors = inputs.filter_map(|input| {
        input.name = WIDE.into();
        input.r#type.as_mut()?.tensor_type.as_mut()
    });
    tensors.for_each(|tensor| tensor.elem_type = DataType::Int64 as i32);
    let to = vec![integer("to", DataType::Int32 as i64)];
    graph.node.insert(0, standard("Cast", &[WIDE], PLACES, to));
}

/// The holders of 4 places, and of 4 more behind them.
fn places_of(given: &Values) -> Value {
    let Some(Value::I64(holders)) = given.get("cache_beams") else { panic!("integers") };
    let behind = ArrayD::zeros(holders.shape());
    let axis = ndarray::Axis(2);
    ndarray::concatenate(axis, &[holders.view(), behind.view()]).expect("one shape").into()
}

fn count(graph: &GraphProto, operator: &str) -> usize {
    graph.node.iter().filter(|node| node.op_type == operator).count()
}

/// Post-norm, pre-norm, whose sums are read twice, and relative positions.
#[test]
fn fewer_operators_compute_the_same() {
    let Ok(ort) = Ort::find() else {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    };
    let checkpoints = ["multi30k-en-de", "golden/mbart", "golden/t5"];
    for (checkpoint, is_divided) in checkpoints.map(|name| [(name, false), (name, true)]).concat() {
        let (_folder, path, mut model) = decoder(checkpoint);
        let graph = model.graph.as_mut().expect("a graph");
        let (mut given, before) = (inputs(graph), graph.clone());
        if is_divided {
            divide_biases(graph);
        }
        let expected = outputs(&ort, &path, &given);
        attend_to_source(graph);
        add_before_normalisations(graph);
        assert!(take_places(graph), "{checkpoint}");
        widen_places(graph);
        prune(graph);
        let vocab = find_best(graph).expect("logits");
        assert_eq!(count(graph, "Softmax"), 0, "{checkpoint}: attention to the source");
        assert_eq!(
            count(graph, "SkipLayerNormalization") + count(graph, "LayerNormalization"),
            count(&before, "LayerNormalization")
        );
        assert!(count(graph, "LayerNormalization") <= 2, "{checkpoint}: only those of embeddings");
        let changed = path.with_file_name("changed.onnx");
        std::fs::write(&changed, model.encode_to_vec()).expect("a written file");
        let wanted = [3, 1];
        given.insert(COUNT, ndarray::arr1(&[3i64]).into_dyn());
        given.insert(ALWAYS, ndarray::arr1(&wanted).into_dyn());
        given.insert(WIDE, places_of(&given));
        let found = outputs(&ort, &changed, &given);
        let floats = |values: &Values, name: &str| {
            values.get(name).expect("an output").to_f32().expect("floats")
        };
        for name in [LOGITS, "present.0.key", "present.1.value"] {
            let (found, expected) = (floats(&found, name), floats(&expected, name));
            let error =
                (&found - &expected).iter().fold(0.0, |most: f32, error| most.max(error.abs()));
            let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            assert!(error <= 2e-6 * largest, "{checkpoint}: {name} {error} of {largest}");
        }
        let logits = floats(&expected, LOGITS);
        for (row, logits) in logits.outer_iter().enumerate() {
            let sum = logits.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln();
            let mut ranked: Vec<_> = (0..vocab).collect();
            ranked.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            for (place, &token) in ranked[..3].iter().enumerate() {
                let score = f64::from(floats(&found, SCORES)[[row, place]]);
                assert!((score - (f64::from(logits[token]) - sum)).abs() < 1e-4, "{checkpoint}");
                assert_eq!(floats(&found, TOKENS)[[row, place]], token as f32, "{checkpoint}");
            }
            let always = floats(&found, ALWAYS_SCORES);
            for (place, token) in wanted.iter().enumerate() {
                let expected = f64::from(logits[*token as usize]) - sum;
                assert!((f64::from(always[[row, place]]) - expected).abs() < 1e-4, "{checkpoint}");
            }
        }
    }
}

#[test]
fn attention_reads_queries_keys_and_values_from_one_tensor() {
    let (_folder, _, model) = decoder("multi30k-en-de");
    let form = of(model).expect("heads of 32").expect("shared caches");
    assert_eq!(form.keys.len(), 2 * 4);
    assert_eq!(form.vocab, Some(8000));
    let graph = form.model.graph.expect("a graph");
    let attentions: Vec<_> = graph.node.iter().filter(|node| attends(node)).collect();
    for node in &attentions {
        assert!(node.input[0].ends_with("q_proj+2/Linear.read"), "{:?}", node.input);
        assert_eq!(node.input[1..3], ["", ""]);
    }
    assert_eq!((attentions.len(), count(&graph, "Slice")), (4, 1));
}

#[test]
fn small_heads_are_refused() {
    let (_folder, _, model) = decoder("golden/mbart");
    let error = of(model).err().expect("heads of 4");
    insta::assert_snapshot!(error);
}
