//! The worked example of the lectures: three inputs through one unscaled attention head, by hand.

use crate::engines::{assert_close, everywhere, output};
use cognate_graph::{Builder, DType, Program, Weights};
use cognate_runtime::Values;
use ndarray::{Array2, array};

#[test]
fn worked_example() {
    let builder = Builder::new("lecture");
    let input = |name| builder.input(name, DType::F32, ["tokens", "features"]);
    let weight = |name| builder.input(name, DType::F32, ["features", "d_k"]);
    let x = input("x");
    let (query, key, value) =
        (x.matmul(weight("w_query")), x.matmul(weight("w_key")), x.matmul(weight("w_value")));
    let scores = query.matmul(key.t());
    builder.output("query", query);
    builder.output("key", key);
    builder.output("value", value);
    builder.output("scores", scores);
    builder.output("weights", scores.softmax());
    builder.output("out", scores.softmax().matmul(value));
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();

    let inputs: Values = [
        ("x", array![[1., 0., 1., 0.], [0., 2., 0., 2.], [1., 1., 1., 1.]]),
        ("w_key", array![[0., 0., 1.], [1., 1., 0.], [0., 1., 0.], [1., 1., 0.]]),
        ("w_value", array![[0., 2., 0.], [0., 3., 0.], [1., 0., 3.], [1., 1., 0.]]),
        ("w_query", array![[1., 0., 1.], [1., 0., 0.], [0., 0., 1.], [0., 1., 1.]]),
    ]
    .map(|(name, values): (&str, Array2<f32>)| (name, values.into_dyn()))
    .into_iter()
    .collect();

    // By hand: e² and e⁴ over their sum.
    let (small, large) = ((2f64).exp(), (4f64).exp());
    let sum = small + 2.0 * large;
    let first_weights = array![small / sum, large / sum, large / sum];
    let values = array![[1., 2., 3.], [2., 8., 0.], [2., 6., 3.]];
    let expected = [
        ("query", array![[1., 0., 2.], [2., 2., 2.], [2., 1., 3.]].into_dyn()),
        ("key", array![[0., 1., 1.], [4., 4., 0.], [2., 3., 1.]].into_dyn()),
        ("value", values.clone().into_dyn()),
    ];
    for mut session in everywhere(&program) {
        let outputs = session.run(&inputs).unwrap();
        let engine = session.engine();
        for (name, expected) in &expected {
            assert_close(&output(&outputs, name), expected, 0.0, &format!("{engine}: {name}"));
        }
        let first = |name: &str| output(&outputs, name).index_axis_move(ndarray::Axis(0), 0);
        assert_close(
            &first("scores"),
            &array![2., 4., 4.].into_dyn(),
            0.0,
            &format!("{engine}: scores of token 1"),
        );
        assert_close(
            &first("weights"),
            &first_weights.clone().into_dyn(),
            1e-6,
            &format!("{engine}: weights of token 1"),
        );
        assert_close(
            &first("out"),
            &first_weights.dot(&values).into_dyn(),
            1e-5,
            &format!("{engine}: output of token 1"),
        );
    }
}
