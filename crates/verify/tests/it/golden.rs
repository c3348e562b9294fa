//! `testdata/golden`: PyTorch's own numbers, on every engine.

use crate::engines::{everywhere, output};
use cognate_model::{Model, Names};
use cognate_runtime::{Value, Values};
use cognate_testing::{
    Array, Golden, IMAGE_MODELS, SPEECH_MODELS, golden, golden_models, shared_golden,
};
use cognate_verify::{CLOSE, Tolerance, compare};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice};

/// The largest absolute difference of the reference's f64 to PyTorch's float64. Scales such as
/// `d_k^-1/2` are f32 in our graphs, as in every export.
const DOUBLE_BOUND: f64 = 1e-5;

pub(crate) fn array<T: Clone>(array: &Array<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap()
}

/// The numbers of `states: [batch, src, ...]` at positions that `mask` shows.
pub(crate) fn unpadded(states: &ArrayD<f64>, mask: &ArrayD<i64>) -> Vec<f64> {
    let row = |(states, mask): (ArrayViewD<'_, f64>, ArrayViewD<'_, i64>)| {
        states
            .slice_axis(Axis(0), Slice::from(..mask.sum() as usize))
            .iter()
            .copied()
            .collect::<Vec<_>>()
    };
    states.outer_iter().zip(mask.outer_iter()).flat_map(row).collect()
}

/// The largest absolute difference.
pub(crate) fn distance(ours: &[f64], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let differences = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
    differences.fold(0.0, |worst, difference| {
        if worst.is_nan() || difference.is_nan() { f64::NAN } else { worst.max(difference) }
    })
}

pub(crate) fn all(array: &ArrayD<f64>) -> Vec<f64> {
    array.iter().copied().collect()
}

/// The largest absolute difference of an engine's f32 to PyTorch's float64, where numbers are not
/// above 10.
const SINGLE_BOUND: f64 = 1e-4;

/// What PyTorch answers: which tensors, and whether they are `[batch, src, ...]` with padding.
const ANSWERS: [(&str, bool); 3] =
    [("encoder_last_hidden_state", true), ("logits", false), ("cross_attentions", false)];

/// A golden tensor in f32 and in float64, without padding.
fn answers(expected: &Golden, (what, is_padded): (&str, bool)) -> [Vec<f64>; 2] {
    let mask = expected.find_ids("attention_mask").map(array).filter(|_| is_padded);
    let read = |theirs: ArrayD<f64>| {
        mask.as_ref().map_or_else(|| all(&theirs), |mask| unpadded(&theirs, mask))
    };
    [read(array(expected.floats(what)).mapv(f64::from)), read(array(expected.doubles(what)))]
}

/// The relative L2 distance.
fn relative(found: &[f64], expected: &[f64]) -> f64 {
    let array =
        |numbers: &[f64]| ArrayD::from_shape_vec(vec![numbers.len()], numbers.to_vec()).unwrap();
    compare(&array(found), &array(expected)).unwrap().relative_l2
}

/// [`CLOSE`], or twice the distance of PyTorch's own f32 from its float64, if that is more.
pub(crate) fn beside_pytorch(name: &str) -> Tolerance {
    let expected = Golden::open(name);
    let roundings = ANSWERS.map(|answer| {
        let [single, double] = answers(&expected, answer);
        relative(&single, &double)
    });
    CLOSE.beside(roundings.into_iter().fold(0.0, f64::max))
}

#[test]
fn every_family_agrees_with_pytorch() {
    let failures: Vec<_> = golden_models()
        .iter()
        .map(String::as_str)
        .chain(SPEECH_MODELS)
        .chain(IMAGE_MODELS)
        .flat_map(differences)
        .collect();
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

/// Other models of the same form, which are not part of the repository.
pub(crate) fn shared_models() -> Vec<String> {
    let folders = ["t5gemma", "byt5"].into_iter().filter_map(shared_golden);
    folders.map(|folder| folder.to_str().unwrap().to_owned()).collect()
}

#[test]
fn shared_models_agree_with_pytorch() {
    let failures: Vec<_> = shared_models().iter().flat_map(|name| differences(name)).collect();
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

/// What of the model, below `testdata/golden` or at an absolute path, differs by more than its
/// bound, a line each.
fn differences(name: &str) -> Vec<String> {
    let expected = Golden::open(name);
    let model = Model::open(&golden(name)).unwrap();
    let mask = expected.find_ids("attention_mask").map(array);
    let inputs: Values = match &mask {
        Some(_) => ["input_ids", "attention_mask", "decoder_input_ids"]
            .map(|name| (name, array(expected.ids(name))))
            .into_iter()
            .collect(),
        None => {
            let (name, _) = model.config().front.features().unwrap();
            let features = (name, Value::from(array(expected.floats(name))));
            [features, ("decoder_input_ids", array(expected.ids("decoder_input_ids")).into())]
                .into_iter()
                .collect()
        }
    };
    let mut failures = Vec::new();
    for mut session in everywhere(&model.teacher_forced().unwrap()) {
        let outputs = session.run(&inputs).unwrap();
        let attentions = (0..model.config().decoder.n_layers)
            .map(|layer_index| all(&output(&outputs, &Names::cross_attentions(layer_index))));
        let states = output(&outputs, "encoder_hidden_states");
        let is_double = session.engine().ends_with("f64");
        let compared = [
            mask.as_ref().map_or_else(|| all(&states), |mask| unpadded(&states, mask)),
            all(&output(&outputs, "logits")),
            attentions.flatten().collect::<Vec<_>>(),
        ];
        for (answer, ours) in ANSWERS.into_iter().zip(compared) {
            let [single, double] = answers(&expected, answer);
            let what = answer.0;
            let mut hold = |measure: &str, worst: f64, bound: f64| {
                eprintln!(
                    "{name:30} {:45} {what:26} {measure} {worst:.1e} of {bound:.1e}",
                    session.engine()
                );
                if worst.is_nan() || worst > bound {
                    failures.push(format!(
                        "{name}, {}: {what}: {measure} {worst:e}, at most {bound:e} is allowed",
                        session.engine()
                    ));
                }
            };
            if is_double {
                hold("max abs", distance(&ours, &double), DOUBLE_BOUND);
                continue;
            }
            hold(
                "rel L2",
                relative(&ours, &double),
                CLOSE.beside(relative(&single, &double)).relative_l2,
            );
            // The digits of f32 are relative to what is added up; and where a row magnifies
            // roundings, programs differ: the worst of Whisper's is 4.9e-5 in PyTorch's f32, 6.1e-5
            // in ONNX Runtime, and 1.1e-4 in tract without AVX-512.
            let largest = double.iter().fold(0f64, |largest, number| largest.max(number.abs()));
            let bound =
                SINGLE_BOUND.max(CLOSE.relative_l2 * largest).max(3.0 * distance(&single, &double));
            hold("max abs", distance(&ours, &double), bound);
        }
    }
    failures
}
