//! Gradients of whole models against PyTorch's in float64.

use crate::answers::{CASES, Case, EVERYWHERE, gradient_program, is_close, norm, weight};
use cognate_model::{Loss, LossNames, Model};
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Values};
use cognate_testing::{golden, golden_models};
use cognate_train::UpdateNames;
use cognate_verify::CLOSE;
use ndarray::{ArrayD, Axis};

/// A gradient that is smaller than this share of all gradients together is compared with that
/// share: its own digits are rounding.
const NEGLIGIBLE: f64 = 1e-4;

/// A gradient below this share is zero but for rounding.
const ZERO: f64 = 1e-9;

#[test]
fn every_gradient_agrees_with_pytorch() {
    let failures: Vec<_> =
        CASES.into_iter().flat_map(|name| differences(&Case::open(name))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The loss of a model along directions in the space of its weights, in f64.
struct Along {
    session: Box<dyn Session>,
    weights: Vec<(String, ArrayD<f64>)>,
    tokens: Values,
}

impl Along {
    fn of(model: &Model, tokens: Values, consistency: f32) -> Self {
        let program = gradient_program(
            model,
            &Loss { label_smoothing: 0.1, dropout: EVERYWHERE, consistency },
        );
        let session = Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
        Self {
            session,
            weights: model.learned().map(|path| (path.to_string(), weight(model, path))).collect(),
            tokens,
        }
    }

    /// The loss and all gradients `step` along `directions` from the weights.
    fn at(&mut self, step: f64, directions: &[(usize, ArrayD<f64>)]) -> (f64, Vec<ArrayD<f64>>) {
        let mut inputs = self.tokens.clone();
        self.weights.iter().for_each(|(path, weight)| inputs.insert(path, weight.clone()));
        for (index, direction) in directions {
            let (path, weight) = &self.weights[*index];
            inputs.insert(path, weight + direction * step);
        }
        let outputs = self.session.run(&inputs).unwrap();
        let output = |name: &str| outputs.get(name).unwrap().to_f64().unwrap();
        (
            output(LossNames::LOSS).sum(),
            self.weights.iter().map(|(path, _)| output(&UpdateNames::gradient(path))).collect(),
        )
    }

    /// The derivative by central differences of two points, or of four, whose error is of the
    /// fourth order in the step.
    fn difference(
        &mut self,
        (step, n_points): (f64, usize),
        directions: &[(usize, ArrayD<f64>)],
    ) -> f64 {
        let mut of_two =
            |step: f64| (self.at(step, directions).0 - self.at(-step, directions).0) / (2.0 * step);
        if n_points == 2 { of_two(step) } else { (4.0 * of_two(step) - of_two(2.0 * step)) / 3.0 }
    }
}

/// A direction in which no element of a gradient takes from another: uphill everywhere, by a length
/// of its own for each element. The derivative along it is the sum of all magnitudes, each times
/// its length, and is near zero only where the whole gradient is. An element that is zero counts as
/// positive: if it ought not to be, the difference shows it.
fn uphill(gradient: &ArrayD<f64>, place: &mut f64) -> ArrayD<f64> {
    gradient.mapv(|element| {
        *place += 1.0;
        f64::sin(*place * 0.37).abs() * if element < 0.0 { -1.0 } else { 1.0 }
    })
}

/// The largest distance of a derivative along all weights from the difference, relative to the
/// derivative. Constants of graphs have 8 digits, of which derivatives along the weights of one
/// kind may lose more: [`CLOSE`] bounds them, as it bounds single gradients.
const DIFFERENCE: f64 = 1e-6;

/// `path` without the number of its layer: the layers of a kind are changed together.
fn kind(path: &str) -> String {
    path.split('.').filter(|part| part.parse::<usize>().is_err()).collect::<Vec<_>>().join(".")
}

/// Every family with its oddities, with some elements left out, and one by R-Drop: along all
/// weights at once, and along those of each kind.
#[test]
fn gradients_of_every_family_agree_with_differences() {
    // Where a model bends much, shorter steps follow it, and where rounding counts, a longer one. A
    // wrong gradient is wrong by all of them.
    const STEPS: [(f64, usize); 5] = [(3e-7, 2), (3e-6, 4), (3e-7, 4), (1e-7, 4), (3e-8, 4)];
    let mut failures = Vec::new();
    let families = golden_models();
    let by_r_drop = families.first().map(|name| (name, 0.7));
    for (name, consistency) in families.iter().map(|name| (name, 0.0)).chain(by_r_drop) {
        let model = Model::open(&golden(name)).unwrap();
        let rows =
            |rows: &[[i64; 5]]| ArrayD::from_shape_vec(vec![rows.len(), 5], rows.concat()).unwrap();
        let mut tokens = Values::new();
        let pad = model.config().pad_token as i64;
        let of_source = model.config().source_pad(pad);
        let sources = [[5, 9, 4, 11, 3], [7, 6, 8, of_source, of_source]];
        tokens.insert(LossNames::SOURCE, rows(&sources));
        tokens.insert(LossNames::SOURCE_MASK, rows(&[[1; 5], [1, 1, 1, 0, 0]]));
        tokens.insert(
            LossNames::TARGET,
            rows(&[[model.config().start_token as i64, 4, 7, 9, 12], [4, 8, 8, pad, pad]]),
        );
        tokens.insert(LossNames::LABELS, rows(&[[4, 7, 9, 12, 3], [8, 8, 5, -100, -1]]));
        tokens.insert(LossNames::DROPOUT_SEED, ndarray::arr0(11i64).into_dyn());
        let mut along = Along::of(&model, tokens, consistency);
        let (loss, gradients) = along.at(0.0, &[]);
        let mut place = 0.0;
        let directions: Vec<_> =
            gradients.iter().map(|gradient| uphill(gradient, &mut place)).enumerate().collect();
        let kinds: Vec<_> = along.weights.iter().map(|(path, _)| kind(path)).collect();
        let chosen = |wanted: &str| {
            directions
                .iter()
                .filter(|(index, _)| wanted.is_empty() || kinds[*index] == wanted)
                .cloned()
                .collect()
        };
        // A sum of some thousand roundings of a loss: what is below it, divided by the step, no
        // difference can tell from zero.
        let noise = 1e3 * f64::EPSILON * loss / STEPS[0].0;
        let mut worst = 0f64;
        for kind in [""].into_iter().chain(
            kinds
                .iter()
                .enumerate()
                .filter(|(index, kind)| !kinds[..*index].contains(kind))
                .map(|(_, kind)| kind.as_str()),
        ) {
            let directions: Vec<_> = chosen(kind);
            let found: f64 = directions
                .iter()
                .map(|(index, direction)| (&gradients[*index] * direction).sum())
                .sum();
            let is_zero = kind.ends_with("k_proj.bias") && found.abs() < noise;
            let share = if kind.is_empty() { DIFFERENCE } else { CLOSE.relative_l2 };
            let bound = if is_zero { noise } else { share * found.abs() };
            let mut tried = Vec::new();
            for step in STEPS {
                tried.push((found - along.difference(step, &directions)).abs());
                if tried.last().is_some_and(|error| *error <= bound) {
                    break;
                }
            }
            let error = tried.iter().copied().fold(f64::INFINITY, f64::min);
            if !is_zero {
                worst = worst.max(error / found.abs());
            }
            if found.is_nan() || error > bound {
                failures.push(format!(
                    "{name}: along {kind:?}: {found:e}, differences are off by {tried:?}: {:.1e}",
                    error / found.abs()
                ));
            }
        }
        eprintln!("{name}: {worst:.1e}");
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
        let cognate_runtime::Value::I64(array) = value else {
            panic!("{name}: tokens are integers")
        };
        let mut larger = ArrayD::from_elem(vec![array.shape()[0] + 1, array.shape()[1] + 2], fill);
        larger.slice_mut(ndarray::s![..array.shape()[0], ..array.shape()[1]]).assign(array);
        padded.insert(name, larger);
    }
    let (expected, found) = (run(&tokens), run(&padded));
    for (name, value) in expected.iter() {
        let (expected, found) =
            (value.to_f64().unwrap(), found.get(name).unwrap().to_f64().unwrap());
        let error = norm(&(&found - &expected)) / norm(&expected).max(1e-3);
        assert!(error < 1e-10, "{name}: {error:e}");
    }
}

/// Gradients of parts of a batch, summed, are those of the batch.
#[test]
fn parts_of_a_batch_add_up() {
    let case = Case::open("bart");
    let program = gradient_program(&case.model, &Loss { label_smoothing: 0.1, ..Loss::default() });
    let mut session = Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let tokens = case.tokens();
    let mut run = |first: usize, end: usize| {
        let mut inputs = Values::new();
        for (name, value) in tokens.iter() {
            let cognate_runtime::Value::I64(array) = value else {
                panic!("{name}: tokens are integers")
            };
            inputs.insert(name, array.slice_axis(Axis(0), (first..end).into()).to_owned());
        }
        case.model.learned().for_each(|path| inputs.insert(path, weight(&case.model, path)));
        session.run(&inputs).unwrap()
    };
    let (whole, first, second) = (run(0, 3), run(0, 1), run(1, 3));
    for path in case.model.learned() {
        let name = UpdateNames::gradient(path);
        let [expected, first, second] =
            [&whole, &first, &second].map(|outputs| outputs.get(&name).unwrap().to_f64().unwrap());
        let error = norm(&(first + second - expected));
        assert!(error < 1e-10, "{name}: {error:e}");
    }
    let number = |outputs: &Values, name: &str| outputs.get(name).unwrap().to_f64().unwrap().sum();
    for name in [LossNames::LOSS, LossNames::NEGATIVE_LOG_LIKELIHOOD, LossNames::TOKENS] {
        assert!(
            (number(&first, name) + number(&second, name) - number(&whole, name)).abs() < 1e-10,
            "{name}"
        );
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
    let all =
        model.learned().map(|path| norm(&weight(&expected, path)).powi(2)).sum::<f64>().sqrt();
    let (mut worst, mut zero) = (0f64, Vec::new());
    for path in model.learned() {
        let (found, wanted) =
            (output(&format!("gradient.{path}")) / tokens, weight(&expected, path));
        let error = norm(&(&found - &wanted)) / norm(&wanted).max(NEGLIGIBLE * all);
        if !is_close(error) {
            failures.push(format!(
                "{}: {path}: {error:.1e}, norms {:e} and {:e}",
                case.name,
                norm(&found),
                norm(&wanted)
            ));
        }
        if norm(&wanted) < ZERO * all {
            zero.push(path);
            if norm(&found) > ZERO * all {
                failures.push(format!(
                    "{}: {path}: {:e} where PyTorch's is zero",
                    case.name,
                    norm(&found)
                ));
            }
        }
        worst = worst.max(error);
    }
    eprintln!("{}: worst {worst:.1e}; zero: {}", case.name, zero.join(", "));
    // A bias of keys adds one number to all scores of a query, which the softmax does not see. No
    // other gradient is zero.
    let key_biases: Vec<_> = model.learned().filter(|path| path.ends_with("k_proj.bias")).collect();
    if zero != key_biases {
        failures.push(format!("{}: zero are {zero:?}, expected {key_biases:?}", case.name));
    }
    failures
}
