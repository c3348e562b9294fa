//! Gradients of whole models against PyTorch's in float64.

use crate::answers::{CASES, Case, EVERYWHERE, gradient_program, is_close, learned, norm, weight};
use cognate_graph::{Program, Weights};
use cognate_model::{Loss, LossNames, Model};
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Values};
use cognate_testing::{golden, golden_models};
use cognate_train::UpdateNames;
use ndarray::{ArrayD, Axis};

/// A gradient that is smaller than this share of all gradients together is compared with that share: its own digits are rounding.
const NEGLIGIBLE: f64 = 1e-4;

/// A gradient below this share is zero but for rounding.
const ZERO: f64 = 1e-9;

#[test]
fn every_gradient_agrees_with_pytorch() {
    let failures: Vec<_> = CASES.into_iter().flat_map(|name| differences(&Case::open(name))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The loss of a model and its derivative along a direction in the space of all weights, in f64.
struct Along {
    session: Box<dyn Session>,
    weights: Vec<(String, ArrayD<f64>, ArrayD<f64>)>,
    tokens: Values,
}

impl Along {
    fn of(model: &Model, tokens: Values) -> Self {
        let program = gradient_program(model, &Loss { label_smoothing: 0.1, dropout: EVERYWHERE });
        let session = Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
        let mut place = 0.0;
        let mut wave = || {
            place += 1.0;
            f64::sin(place * 0.37)
        };
        let mut directed = |path: &str| {
            let weight = weight(model, path);
            let direction = ArrayD::from_shape_simple_fn(weight.raw_dim(), &mut wave);
            (path.to_string(), weight, direction)
        };
        Self { session, weights: model.learned().map(&mut directed).collect(), tokens }
    }

    /// The loss `step` along the direction from the weights, and its derivative there.
    fn at(&mut self, step: f64) -> [f64; 2] {
        let mut inputs = self.tokens.clone();
        self.weights.iter().for_each(|(path, weight, direction)| inputs.insert(path, weight + direction * step));
        let outputs = self.session.run(&inputs).unwrap();
        let output = |name: &str| outputs.get(name).unwrap().to_f64().unwrap();
        let along = self.weights.iter().map(|(path, _, direction)| (output(&format!("gradient.{path}")) * direction).sum());
        [output(LossNames::LOSS).sum(), along.sum()]
    }
}

/// Every family with its oddities, with some elements left out.
#[test]
fn gradients_of_every_family_agree_with_differences() {
    const STEP: f64 = 3e-7;
    let mut failures = Vec::new();
    for name in golden_models() {
        let model = Model::open(&golden(&name)).unwrap();
        let rows = |rows: &[[i64; 5]]| ArrayD::from_shape_vec(vec![rows.len(), 5], rows.concat()).unwrap();
        let mut tokens = Values::new();
        let pad = model.config().pad_token as i64;
        tokens.insert(LossNames::SOURCE, rows(&[[5, 9, 4, 11, 3], [7, 6, 8, pad, pad]]));
        tokens.insert(LossNames::SOURCE_MASK, rows(&[[1; 5], [1, 1, 1, 0, 0]]));
        tokens.insert(LossNames::TARGET, rows(&[[model.config().start_token as i64, 4, 7, 9, 12], [4, 8, 8, pad, pad]]));
        tokens.insert(LossNames::LABELS, rows(&[[4, 7, 9, 12, 3], [8, 8, 5, -100, -1]]));
        tokens.insert(LossNames::DROPOUT_SEED, ndarray::arr0(11i64).into_dyn());
        let mut along = Along::of(&model, tokens);
        let difference = (along.at(STEP)[0] - along.at(-STEP)[0]) / (2.0 * STEP);
        let [loss, found] = along.at(0.0);
        // The loss has 16 digits, and its difference those that are left; constants of graphs have 8.
        let error = (found - difference).abs() / found.abs().max(loss);
        eprintln!("{name}: {found:.6} against {difference:.6}: {error:.1e}");
        if error.is_nan() || error > 1e-6 {
            failures.push(format!("{name}: {found} along a direction, differences say {difference}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A longer batch with a row of nothing but padding has the same loss and the same gradients.
#[test]
fn padding_changes_nothing() {
    let case = Case::open("marian");
    let pad = case.model.config().pad_token as i64;
    let program = gradient_program(&case.model, &Loss { label_smoothing: 0.1, ..Loss::default() });
    let mut session = Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let mut run = |tokens: &Values| {
        let mut inputs = tokens.clone();
        case.model.learned().for_each(|path| inputs.insert(path, weight(&case.model, path)));
        session.run(&inputs).unwrap()
    };
    let tokens = case.tokens();
    let mut padded = Values::new();
    for (name, value) in tokens.iter() {
        let fill = match name {
            LossNames::SOURCE_MASK => 0,
            LossNames::LABELS => -100,
            _ => pad,
        };
        let cognate_runtime::Value::I64(array) = value else { panic!("{name}: tokens are integers") };
        let mut larger = ArrayD::from_elem(vec![array.shape()[0] + 1, array.shape()[1] + 2], fill);
        larger.slice_mut(ndarray::s![..array.shape()[0], ..array.shape()[1]]).assign(array);
        padded.insert(name, larger);
    }
    let (expected, found) = (run(&tokens), run(&padded));
    for (name, value) in expected.iter() {
        let (expected, found) = (value.to_f64().unwrap(), found.get(name).unwrap().to_f64().unwrap());
        let error = norm(&(&found - &expected)) / norm(&expected).max(1e-3);
        assert!(error < 1e-10, "{name}: {error:e}");
    }
}

/// Gradients of parts of a batch, summed, are those of the batch.
#[test]
fn parts_of_a_batch_add_up() {
    let case = Case::open("bart");
    let program = gradient_program(&case.model, &Loss { label_smoothing: 0.1, ..Loss::default() });
    let load = |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let mut session = load(program);
    let mut accumulate = load(Program::new(cognate_train::accumulate(&learned(&case.model)).unwrap(), Weights::default()).unwrap());
    let tokens = case.tokens();
    let mut run = |first: usize, end: usize| {
        let mut inputs = Values::new();
        for (name, value) in tokens.iter() {
            let cognate_runtime::Value::I64(array) = value else { panic!("{name}: tokens are integers") };
            inputs.insert(name, array.slice_axis(Axis(0), (first..end).into()).to_owned());
        }
        case.model.learned().for_each(|path| inputs.insert(path, weight(&case.model, path)));
        session.run(&inputs).unwrap()
    };
    let (whole, first, second) = (run(0, 3), run(0, 1), run(1, 3));
    let mut inputs = Values::new();
    for path in case.model.learned() {
        let name = UpdateNames::gradient(path);
        inputs.insert(UpdateNames::earlier(&name), first.get(&name).unwrap().clone());
        inputs.insert(&name, second.get(&name).unwrap().clone());
    }
    let sums = accumulate.run(&inputs).unwrap();
    for path in case.model.learned() {
        let name = UpdateNames::gradient(path);
        let (sum, expected) = (sums.get(&UpdateNames::next(&name)).unwrap(), whole.get(&name).unwrap());
        let error = norm(&(sum.to_f64().unwrap() - expected.to_f64().unwrap()));
        assert!(error < 1e-10, "{name}: {error:e}");
    }
    let number = |outputs: &Values, name: &str| outputs.get(name).unwrap().to_f64().unwrap().sum();
    for name in [LossNames::LOSS, LossNames::NEGATIVE_LOG_LIKELIHOOD, LossNames::TOKENS] {
        assert!((number(&first, name) + number(&second, name) - number(&whole, name)).abs() < 1e-10, "{name}");
    }
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
