//! `testdata/encoders`: PyTorch's numbers for encoders alone, on every engine and in every layout.

use crate::engines::{everywhere, output};
use crate::golden::{all, array, unpadded};
use cognate_graph::Program;
use cognate_model::interface::{LAST_HIDDEN_STATE, LOGITS, Names, POOLER_OUTPUT};
use cognate_model::{Attentions, Layout, Model};
use cognate_testing::{Golden, testdata};
use cognate_verify::{CLOSE, compare};
use ndarray::{ArrayD, Axis, stack};
use std::fs;

/// The largest relative L2 difference of the reference's f64 to PyTorch's float64. Scales such as `d_k^-1/2` are f32 in our graphs, as in
/// every export, and each of them is good to 6e-8.
const DOUBLE_BOUND: f64 = 3e-7;

fn cases() -> Vec<String> {
    let entries = fs::read_dir(testdata("encoders")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().join("answers.safetensors").is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_encoder_agrees_with_pytorch() {
    let names = cases();
    let failures: Vec<_> = names.iter().flat_map(|name| differences(name)).collect();
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
    assert_eq!(names.len(), 19);
}

/// What of a model, or of its encoder without what reads the states, differs by more than its bound.
fn differences(name: &str) -> Vec<String> {
    let (folder, expected) = (testdata("encoders").join(name), Golden::encoder(name));
    let (whole, encoder) = (Model::open(&folder).unwrap(), Model::open_encoder(&folder).unwrap());
    let mut failures = Vec::new();
    for (part, model, layout) in [("whole", &whole, Layout::Cognate), ("encoder", &encoder, Layout::HuggingFace)] {
        let [program] = <[Program; 1]>::try_from(model.programs(layout, Attentions::All).unwrap()).unwrap();
        let inputs: Vec<_> = program.graph().inputs().map(|(_, node)| node.name.clone()).collect();
        let inputs: Vec<_> = inputs.iter().map(|name| (name.as_str(), array(expected.ids(name)))).collect();
        let mask = array(expected.ids("attention_mask"));
        let outputs: Vec<_> = program.graph().outputs().iter().map(|output| output.name.clone()).collect();
        for mut session in everywhere(&program) {
            let found = session.run(&inputs.iter().cloned().collect()).unwrap();
            let bound = if session.engine().ends_with("f64") { DOUBLE_BOUND } else { CLOSE.relative_l2 };
            let mut hold = |what: &str, ours: Vec<f64>, theirs: Vec<f64>| {
                let flat = |numbers: Vec<f64>| ArrayD::from_shape_vec(vec![numbers.len()], numbers).unwrap();
                let worst = compare(&flat(ours), &flat(theirs)).unwrap().relative_l2;
                eprintln!("{name:20} {part:8} {:30} {what:18} {worst:.1e} of {bound:.1e}", session.engine());
                if worst.is_nan() || worst > bound {
                    failures.push(format!("{name}, {part}, {}: {what}: {worst:e}, at most {bound:e} is allowed", session.engine()));
                }
            };
            for what in [LAST_HIDDEN_STATE, POOLER_OUTPUT, LOGITS].into_iter().filter(|what| outputs.iter().any(|output| output == what)) {
                let (ours, theirs) = (output(&found, what), array(expected.doubles(what)));
                let is_padded = ours.shape().starts_with(mask.shape());
                let read = |numbers| if is_padded { unpadded(numbers, &mask) } else { all(numbers) };
                hold(what, read(&ours), read(&theirs));
            }
            let layers: Vec<_> =
                (0..model.config().encoder.n_layers).map(|layer| output(&found, &Names::encoder_attentions(layer))).collect();
            let layers = stack(Axis(0), &layers.iter().map(|layer| layer.view()).collect::<Vec<_>>()).unwrap();
            // The rows of padded queries.
            let by_query = |numbers: ArrayD<f64>| unpadded(&numbers.permuted_axes(vec![1, 3, 0, 2, 4]), &mask);
            hold("attentions", by_query(layers), by_query(array(expected.doubles("attentions"))));
        }
    }
    failures
}
