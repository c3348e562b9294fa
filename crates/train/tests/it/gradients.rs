//! Gradients of whole models against PyTorch's in float64.

use crate::answers::{CASES, Case, gradient_program, is_close, norm, weight};
use cognate_model::{Loss, LossNames};
use cognate_runtime::{Options, Reference, Runtime, Source};

/// A gradient that is smaller than this share of all gradients together is compared with that share: its own digits are rounding.
const NEGLIGIBLE: f64 = 1e-4;

/// A gradient below this share is zero but for rounding.
const ZERO: f64 = 1e-9;

#[test]
fn every_gradient_agrees_with_pytorch() {
    let failures: Vec<_> = CASES.into_iter().flat_map(|name| differences(&Case::open(name))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn differences(case: &Case) -> Vec<String> {
    let (model, expected) = (&case.model, case.gradients());
    let loss = Loss { label_smoothing: case.number("/label_smoothing") as f32, ..Loss::default() };
    let program = gradient_program(model, &loss);
    let mut session = Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let mut inputs = case.tokens();
    model.learned().for_each(|path| inputs.insert(path, weight(model, path)));
    let outputs = session.run(&inputs).unwrap();
    let output = |name: &str| outputs.get(name).unwrap().to_f64().unwrap();
    let number = |name: &str| output(name).first().copied().unwrap();
    let tokens = number(LossNames::TOKENS);
    let mut failures = Vec::new();
    let loss_error = (number(LossNames::LOSS) / tokens / case.number("/loss") - 1.0).abs();
    if !is_close(loss_error) {
        failures.push(format!(
            "{}: loss {} of {tokens} tokens, PyTorch says {} for each",
            case.name,
            number(LossNames::LOSS),
            case.number("/loss")
        ));
    }
    let all = model.learned().map(|path| norm(&weight(&expected, path)).powi(2)).sum::<f64>().sqrt();
    let (mut worst, mut zero) = (0f64, Vec::new());
    for path in model.learned() {
        let (found, wanted) = (output(&format!("gradient.{path}")) / tokens, weight(&expected, path));
        let error = norm(&(&found - &wanted)) / norm(&wanted).max(NEGLIGIBLE * all);
        if !is_close(error) {
            failures.push(format!("{}: {path}: {error:.1e}, norms {:e} and {:e}", case.name, norm(&found), norm(&wanted)));
        }
        if norm(&wanted) < ZERO * all {
            zero.push(path);
            if norm(&found) > ZERO * all {
                failures.push(format!("{}: {path}: {:e} where PyTorch's is zero", case.name, norm(&found)));
            }
        }
        worst = worst.max(error);
    }
    eprintln!("{}: worst {worst:.1e}; zero: {}", case.name, zero.join(", "));
    // A bias of keys adds one number to all scores of a query, which the softmax does not see. No other gradient is zero.
    let key_biases: Vec<_> = model.learned().filter(|path| path.ends_with("k_proj.bias")).collect();
    if zero != key_biases {
        failures.push(format!("{}: zero are {zero:?}, expected {key_biases:?}", case.name));
    }
    failures
}
