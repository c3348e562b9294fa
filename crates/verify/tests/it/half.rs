//! Models in half precision, on every engine.

use crate::engines::{everywhere, output};
use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_generate::Settings;
use cognate_graph::{Generator, Recipe};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::half::{Facts, LARGEST, Why, half};
use cognate_runtime::{Device, Options, available};
use cognate_testing::{Golden, golden, golden_models};
use cognate_verify::{HALF, InHalf, Report, Sample, Subject, in_half, verify};
use insta::assert_snapshot;
use ndarray::array;
use std::path::Path;
use std::sync::Arc;

const SEED: u64 = 1;

/// The golden models of the eight families, without the stranger ones.
fn families() -> Vec<String> {
    golden_models().into_iter().filter(|name| !name.contains('/')).collect()
}

/// The golden model's own sources, and sources cut from them, so that there are steps enough to speak of a hundredth.
fn sources(name: &str) -> Vec<Vec<i64>> {
    let expected = Golden::open(name);
    let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
    let width = ids.shape[1];
    let whole = ids.data.chunks(width).zip(mask.data.chunks(width)).map(|(ids, mask)| ids[..mask.iter().sum::<i64>() as usize].to_vec());
    whole.flat_map(|ids| (0..ids.len().saturating_sub(1)).step_by(2).map(move |first| ids[first..].to_vec())).collect()
}

fn sample(model: &Model, sentences: &[Vec<i64>]) -> Sample {
    let settings = Settings::from_json(model.config_json(), None, model.config()).unwrap();
    Sample { sentences: sentences.to_vec(), settings, seed: SEED }
}

fn write(model: &Model, graphs: &InHalf, folder: &Path) {
    let files = [("encoder.onnx", &graphs.encoder), ("decoder.onnx", &graphs.decoder)];
    let export = Export { graphs: &files, weights_file: "weights.onnx_data", metadata: &Metadata::default(), loose: None };
    write_folder(folder, &export, &[("config.json", model.config_json().as_bytes())], Existing::Replace).unwrap();
}

fn report(model: &Model, graphs: &InHalf, sample: &Sample) -> Report {
    let folder = tempfile::tempdir().unwrap();
    write(model, graphs, folder.path());
    let Sample { sentences, settings, seed } = sample.clone();
    let subject = Subject { folder: folder.path(), layout: Layout::Cognate, model, settings, sentences, seed, tolerance: HALF };
    let runtimes: Vec<_> = available(Device::Cpu).unwrap().into_iter().map(|runtime| (runtime, Options::default())).collect();
    verify(&subject, &runtimes, |_| {}).unwrap()
}

#[test]
fn every_family_passes() {
    let mut failures = Vec::new();
    for name in families() {
        let model = Model::open(&golden(&name)).unwrap();
        let sample = sample(&model, &sources(&name));
        let graphs = in_half(&model, Attentions::Omit, &sample, |_| {}).unwrap();
        let report = report(&model, &graphs, &sample);
        let layers = graphs.kept.iter().filter(|kept| kept.why == Why::Precision).count();
        eprintln!("{name}, {layers} operations in f32 for precision: {report}");
        if !report.passed() {
            failures.push(format!("{name}: {report}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Values given one by one.
#[derive(Debug)]
struct Listed(Vec<f32>);

impl Generator for Listed {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.0[first..first + values.len()]);
    }
}

/// The golden T5, whose feed-forward layers count in units so small that their hidden values leave f16: as ReLU is homogeneous, the
/// model computes the same numbers.
fn overflowing() -> Model {
    const UNIT: f32 = 1.0 / 16_384.0;
    let model = Model::open(&golden("t5")).unwrap();
    let weights = model.weights().iter().map(|(path, recipe)| {
        let factor = if path.contains(".fc1.") { 1.0 / UNIT } else { UNIT };
        let is_scaled = path.contains(".fc1.") || path.contains(".fc2.");
        let scaled = || Listed(recipe.values::<f32>().into_iter().map(|value| value * factor).collect());
        let recipe = if is_scaled { Recipe::generated(Arc::new(scaled()), recipe.shape()) } else { recipe.clone() };
        (path.to_string(), recipe)
    });
    Model::with_weights(model.config_json().into(), weights.collect()).unwrap()
}

#[test]
fn what_overflows_stays_in_f32() {
    let model = overflowing();
    let sample = sample(&model, &[]);
    let graphs = in_half(&model, Attentions::Omit, &sample, |_| {}).unwrap();
    let in_first_layer = graphs.kept.iter().filter(|kept| kept.node.starts_with("encoder.layers.0.") && kept.node.contains("fn"));
    let others = graphs.kept.iter().filter(|kept| kept.node.starts_with("encoder.layers.0.fc"));
    let listed: Vec<_> = others.chain(in_first_layer).map(|kept| format!("{} {:?}", kept.node, kept.why)).collect();
    assert_snapshot!(listed.join("\n"), @"
    encoder.layers.0.fc1/Linear Range
    encoder.layers.0.fc2/Linear Reads
    encoder.layers.0.activation_fn/Relu Range
    ");
    assert!(graphs.kept.iter().any(|kept| kept.why == Why::Range && kept.largest > Some(LARGEST)), "{:?}", graphs.kept);
    let report = report(&model, &graphs, &sample);
    eprintln!("{report}");
    assert!(report.passed(), "{report}");

    // As if nobody had looked.
    let programs = [model.encode().unwrap(), model.step(Attentions::Omit).unwrap()];
    let facts = Facts { seen: &|_, _| Some(1.0), interface: &|_| None, keep: &|_, _| false };
    let naive = half(&[&programs[0], &programs[1]], facts).unwrap();
    for mut session in everywhere(&naive.programs[0]).into_iter().take(2) {
        let ids = [("input_ids", array![[4, 5, 6, 1]]), ("attention_mask", array![[1, 1, 1, 1]])];
        let found = session.run(&ids.into_iter().map(|(name, ids)| (name, ids.into_dyn())).collect()).unwrap();
        let finite = output(&found, "encoder_hidden_states").iter().all(|value| value.is_finite());
        assert!(!finite, "{}: the hidden values were meant to overflow", session.engine());
    }
}
