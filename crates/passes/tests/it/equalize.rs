//! Equalised channels: the same bits, and what must stay as it is.

use cognate_eval::{Evaluator, Value};
use cognate_graph::{Builder, DType, Dim, Generator, Program, Recipe, Weights};
use cognate_passes::equalize::equalize;
use ndarray::ArrayD;
use std::sync::Arc;

/// Waves, whose third channel of four is 1,000 times larger or smaller.
#[derive(Debug)]
struct Uneven(f32);

impl Generator for Uneven {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let value =
            |place: usize| (place as f32 + 1.0).sin() * if place % 4 == 2 { self.0 } else { 1.0 };
        values.iter_mut().zip(first..).for_each(|(slot, place)| *slot = value(place));
    }
}

/// A normalisation and its reader; `is_shared` adds a second one.
fn program(is_shared: bool) -> Program {
    let builder = Builder::new("pair");
    let root = builder.root();
    let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(4)]);
    let (scale, bias) =
        (root.at("norm").parameter("weight", [4]), root.at("norm").parameter("bias", [4]));
    let normal = x.layer_norm(scale, bias, 1e-5);
    builder.output("y", normal.linear(root.at("layer").parameter("weight", [3, 4]), None));
    if is_shared {
        builder.output("z", normal * 2.0);
    }
    let recipe = |height: f32, shape: &[usize]| Recipe::generated(Arc::new(Uneven(height)), shape);
    let weights: Weights = [
        ("norm.weight", recipe(1e3, &[4])),
        ("norm.bias", recipe(1.0, &[4])),
        ("layer.weight", recipe(1e-3, &[3, 4])),
    ]
    .map(|(name, recipe)| (name.to_string(), recipe))
    .into_iter()
    .collect();
    Program::new(builder.finish().unwrap(), weights).unwrap()
}

fn run(program: &Program) -> Vec<ArrayD<f64>> {
    let x =
        ArrayD::from_shape_vec(vec![2, 4], vec![1.0, -2.0, 0.5, 3.0, 0.1, 0.2, -0.7, 0.4]).unwrap();
    let outputs = Evaluator::<f64>::new(program).run(|_| Some(Value::from(x.clone()))).unwrap();
    outputs.into_iter().map(|(_, value)| value.as_float().unwrap().clone().to_owned()).collect()
}

/// The largest element of a parameter over the smallest.
fn spread(program: &Program, name: &str) -> f32 {
    let recipe = program.weights().get(name).unwrap();
    let mut values = vec![0f32; recipe.shape().iter().product()];
    recipe.read(0, &mut values);
    let sizes = values.iter().map(|value| value.abs());
    sizes.clone().fold(0.0, f32::max) / sizes.fold(f32::INFINITY, f32::min)
}

#[test]
fn equalized_channels_compute_the_same_bits() {
    let before = program(false);
    let after = equalize(&before).unwrap();
    assert_eq!(run(&after), run(&before));
    for name in ["norm.weight", "layer.weight"] {
        let (uneven, even) = (spread(&before, name), spread(&after, &format!("{name}.equalized")));
        assert!(even * 10.0 < uneven, "{name}: {uneven} and then {even}");
    }
}

#[test]
fn a_normalisation_that_others_read_keeps_its_values() {
    let before = program(true);
    assert_eq!(equalize(&before).unwrap().graph().to_string(), before.graph().to_string());
}
