//! `testdata/golden/marian`: PyTorch's encoder states, logits and cross attentions.

use cognate_eval::{Evaluator, Value};
use cognate_model::Model;
use cognate_testing::{Array, Golden, golden};
use ndarray::{ArrayD, Axis, Slice};

#[test]
fn marian_agrees_with_pytorch() {
    let expected = Golden::open("marian");
    let model = Model::open(&golden("marian")).unwrap();
    let outputs = teacher_forced(&model, &expected);
    let output = |name: &str| outputs.iter().find(|(known, _)| known == name).unwrap().1.as_float().unwrap().to_owned();

    let mask = array(expected.ids("attention_mask"));
    let worst = |ours: &ArrayD<f64>, theirs: &ArrayD<f32>| {
        assert_eq!(ours.shape(), theirs.shape());
        ours.iter().zip(theirs).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max)
    };
    let (states, expected_states) = (output("encoder_hidden_states"), array(expected.floats("encoder_last_hidden_state")));
    for (sentence, row) in mask.outer_iter().enumerate() {
        let len = row.sum() as usize;
        let unpadded = |array: ArrayD<f64>| array.index_axis(Axis(0), sentence).slice_axis(Axis(0), Slice::from(..len)).to_owned();
        let error = worst(&unpadded(states.clone()), &unpadded(expected_states.mapv(f64::from)).mapv(|value| value as f32));
        eprintln!("enc {error:e}");
        assert!(error < 2e-1, "encoder states of sentence {sentence}: {error:e}");
    }
    let error = worst(&output("logits"), &array(expected.floats("logits")));
    eprintln!("log {error:e}");
    assert!(error < 5e-5, "logits: {error:e}");
    let attentions = array(expected.floats("cross_attentions"));
    for (layer_index, expected) in attentions.outer_iter().enumerate() {
        let error = worst(&output(&format!("cross_attentions.{layer_index}")), &expected.to_owned());
        assert!(error < 2e-6, "cross attentions of layer {layer_index}: {error:e}");
    }
}

fn teacher_forced(model: &Model, inputs: &Golden) -> Vec<(String, Value<f64>)> {
    let program = model.teacher_forced().unwrap();
    let input = |name: &str| Some(Value::from(array(inputs.ids(name))));
    Evaluator::<f64>::new(&program).run(input).unwrap()
}

fn array<T: Clone>(array: &Array<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap()
}
