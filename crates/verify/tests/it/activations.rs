//! Every activation, on every engine: PyTorch's numbers, also far from zero.

use crate::engines::{assert_close, everywhere, output};
use cognate_graph::{Builder, DType, Program, Weights};
use cognate_model::Activation;
use cognate_testing::testdata;
use cognate_verify::CLOSE;
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

/// Rounding of f32 at the farthest point, 12. tract's tanh and sigmoid are good to 1e-6, and are
/// multiplied by it: 5.7e-6 was measured.
const ROUNDING: f64 = CLOSE.relative_l2;

#[test]
fn activations_equal_pytorch() {
    let text = std::fs::read_to_string(testdata("golden/activations.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let numbers = |value: &Value| -> ArrayD<f64> {
        let values: Vec<f64> = serde_json::from_value(value.clone()).unwrap();
        ArrayD::from_shape_vec(IxDyn(&[values.len()]), values).unwrap()
    };
    let x = numbers(&file["x"]);
    let expected = file["activations"].as_object().unwrap();
    let mut names: Vec<_> = Activation::names().collect();
    names.sort_unstable();
    assert!(expected.keys().map(String::as_str).eq(names));
    for (name, expected) in expected {
        let builder = Builder::new("activation");
        builder.output(
            "y",
            Activation::named(name).unwrap().apply(builder.input("x", DType::F32, [x.len()])),
        );
        let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
        for mut session in everywhere(&program) {
            let found = output(
                &session.run(&[("x", x.mapv(|x| x as f32))].into_iter().collect()).unwrap(),
                "y",
            );
            assert_close(
                &found,
                &numbers(expected),
                ROUNDING,
                &format!("{}: {name}", session.engine()),
            );
        }
    }
}
