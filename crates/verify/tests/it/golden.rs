//! `testdata/golden`: PyTorch's own numbers, on every engine.

use crate::engines::{everywhere, output};
use cognate_model::{Model, Names};
use cognate_testing::{Array, Golden, golden};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice};

/// The largest absolute difference of an engine's f32 to PyTorch's f32.
const SINGLE_BOUND: f64 = 1e-4;

/// The largest absolute difference of the reference's f64 to PyTorch's float64. Scales such as `d_k^-1/2` are f32 in our
/// graphs, as in every export.
const DOUBLE_BOUND: f64 = 1e-5;

fn array<T: Clone>(array: &Array<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap()
}

/// The numbers of `states: [batch, src, ...]` at positions that `mask` shows.
fn unpadded(states: &ArrayD<f64>, mask: &ArrayD<i64>) -> Vec<f64> {
    let row = |(states, mask): (ArrayViewD<'_, f64>, ArrayViewD<'_, i64>)| {
        states.slice_axis(Axis(0), Slice::from(..mask.sum() as usize)).iter().copied().collect::<Vec<_>>()
    };
    states.outer_iter().zip(mask.outer_iter()).flat_map(row).collect()
}

fn all(array: &ArrayD<f64>) -> Vec<f64> {
    array.iter().copied().collect()
}

#[test]
fn marian_agrees_with_pytorch() {
    let expected = Golden::open("marian");
    let model = Model::open(&golden("marian")).unwrap();
    let mask = array(expected.ids("attention_mask"));
    let inputs = ["input_ids", "attention_mask", "decoder_input_ids"].map(|name| (name, array(expected.ids(name))));
    for mut session in everywhere(&model.teacher_forced().unwrap()) {
        let outputs = session.run(&inputs.clone().into_iter().collect()).unwrap();
        let attentions =
            (0..model.config().decoder.n_layers).map(|layer_index| all(&output(&outputs, &Names::cross_attentions(layer_index))));
        // Like with like: the first source is so sensitive to rounding that any f32 is 1.5e-4 from any f64.
        let is_double = session.engine().ends_with("f64");
        let theirs = |name| if is_double { array(expected.doubles(name)) } else { array(expected.floats(name)).mapv(f64::from) };
        let bound = if is_double { DOUBLE_BOUND } else { SINGLE_BOUND };
        let states = theirs("encoder_last_hidden_state");
        let compared = [
            ("encoder states", unpadded(&output(&outputs, "encoder_hidden_states"), &mask), unpadded(&states, &mask)),
            ("logits", all(&output(&outputs, "logits")), all(&theirs("logits"))),
            ("cross attentions", attentions.flatten().collect(), all(&theirs("cross_attentions"))),
        ];
        for (what, ours, theirs) in compared {
            assert_eq!(ours.len(), theirs.len(), "{}: {what}", session.engine());
            let worst = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
            assert!(worst <= bound, "{}: {what}: {worst:e} from PyTorch", session.engine());
        }
    }
}
