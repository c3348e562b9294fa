//! `testdata/encoders`: PyTorch's numbers for encoders alone, on every engine and in every layout.

use crate::engines::{everywhere, output};
use crate::golden::{all, array, distance, unpadded};
use cognate_graph::Program;
use cognate_model::interface::{LAST_HIDDEN_STATE, LOGITS, Names, PIXEL_VALUES, POOLER_OUTPUT};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::{Session, Value, Values};
use cognate_testing::{Golden, golden, testdata};
use cognate_verify::{CLOSE, compare};
use ndarray::{ArrayD, Axis, stack};
use std::fs;

/// The largest relative L2 difference of the reference's f64 to PyTorch's float64. Scales such as
/// `d_k^-1/2` are f32 in our graphs, as in every export, and each of them is good to 6e-8.
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
    assert_eq!(names.len(), 25);
}

/// What of a model, or of its encoder without what reads the states, differs by more than its
/// bound.
fn differences(name: &str) -> Vec<String> {
    let (folder, expected) = (testdata("encoders").join(name), Golden::encoder(name));
    let (whole, encoder) = (Model::open(&folder).unwrap(), Model::open_encoder(&folder).unwrap());
    // Images also have another size than the model's own.
    let sizes = ["", "other."].into_iter().filter(|size| {
        size.is_empty() || expected.find_floats(&format!("{size}{PIXEL_VALUES}")).is_some()
    });
    let sizes: Vec<_> = sizes.collect();
    let mut failures = Vec::new();
    for (part, model, layout) in
        [("whole", &whole, Layout::Cognate), ("encoder", &encoder, Layout::HuggingFace)]
    {
        let [program] =
            <[Program; 1]>::try_from(model.programs(layout, Attentions::All).unwrap()).unwrap();
        for mut session in everywhere(&program) {
            for size in &sizes {
                let part = format!("{part} {size}");
                for (what, worst, bound) in
                    errors(session.as_mut(), &program, model, &expected, size)
                {
                    eprintln!(
                        "{name:20} {part:14} {:30} {what:18} {worst:.1e} of {bound:.1e}",
                        session.engine()
                    );
                    if worst.is_nan() || worst > bound {
                        failures.push(format!(
                            "{name}, {part}, {}: {what}: {worst:e}, at most {bound:e} is allowed",
                            session.engine()
                        ));
                    }
                }
            }
        }
    }
    failures
}

/// The relative L2 error of each output for the inputs of a size, and its bound.
fn errors(
    session: &mut dyn Session,
    program: &Program,
    model: &Model,
    expected: &Golden,
    size: &str,
) -> Vec<(&'static str, f64, f64)> {
    let input = |name: &str| match expected.find_floats(&format!("{size}{name}")) {
        Some(pixels) => Value::from(array(pixels)),
        None => array(expected.ids(name)).into(),
    };
    let mut inputs = Values::new();
    program.graph().inputs().for_each(|(_, node)| inputs.insert(&node.name, input(&node.name)));
    let found = session.run(&inputs).unwrap();
    let theirs = |what: &str| array(expected.doubles(&format!("{size}{what}")));
    let attentions = theirs("attentions");
    let mask = expected.find_ids("attention_mask").map(array);
    let mask =
        mask.unwrap_or_else(|| ArrayD::ones(vec![attentions.shape()[1], attentions.shape()[4]]));
    let bound = if session.engine().ends_with("f64") { DOUBLE_BOUND } else { CLOSE.relative_l2 };
    let flat = |numbers: Vec<f64>| ArrayD::from_shape_vec(vec![numbers.len()], numbers).unwrap();
    let error =
        |ours: Vec<f64>, theirs: Vec<f64>| compare(&flat(ours), &flat(theirs)).unwrap().relative_l2;
    let given = |what: &&str| program.graph().output(what).is_some();
    let mut errors: Vec<_> = [LAST_HIDDEN_STATE, POOLER_OUTPUT, LOGITS]
        .into_iter()
        .filter(given)
        .map(|what| {
            let (ours, theirs) = (output(&found, what), theirs(what));
            let is_padded = ours.shape().starts_with(mask.shape());
            let read = |numbers| if is_padded { unpadded(numbers, &mask) } else { all(numbers) };
            (what, error(read(&ours), read(&theirs)), bound)
        })
        .collect();
    let layers: Vec<_> = (0..model.config().encoder.n_layers)
        .map(|layer| output(&found, &Names::encoder_attentions(layer)))
        .collect();
    let layers =
        stack(Axis(0), &layers.iter().map(|layer| layer.view()).collect::<Vec<_>>()).unwrap();
    // The rows of padded queries.
    let by_query =
        |numbers: ArrayD<f64>| unpadded(&numbers.permuted_axes(vec![1, 3, 0, 2, 4]), &mask);
    errors.push(("attentions", error(by_query(layers), by_query(attentions)), bound));
    errors
}

/// The encoder of a model of two models alone, also where the decoder has its weights.
#[test]
fn encoders_of_pairs_agree_with_pytorch() {
    for name in ["bert-bert", "bert-generation", "bert-tied", "distilbert-gpt2", "roberta-roberta"]
    {
        let name = format!("strange/{name}");
        let (encoder, expected) =
            (Model::open_encoder(&golden(&name)).unwrap(), Golden::open(&name));
        let [program] =
            <[Program; 1]>::try_from(encoder.programs(Layout::Cognate, Attentions::Omit).unwrap())
                .unwrap();
        let [ids, mask] = ["input_ids", "attention_mask"].map(|name| array(expected.ids(name)));
        let theirs = array(expected.doubles("encoder_last_hidden_state"));
        for mut session in everywhere(&program) {
            let mut inputs = Values::new();
            for (_, node) in program.graph().inputs() {
                let values = match node.name.as_str() {
                    "input_ids" => ids.clone(),
                    "attention_mask" => mask.clone(),
                    // Their types.
                    _ => ArrayD::zeros(ids.shape()),
                };
                inputs.insert(&node.name, values);
            }
            let found = session.run(&inputs).unwrap();
            let read = |numbers: &ArrayD<f64>| unpadded(numbers, &mask);
            let worst = distance(&read(&output(&found, LAST_HIDDEN_STATE)), &read(&theirs));
            assert!(worst < 2e-5, "{name}, {}: {worst:e}", session.engine());
        }
    }
}
