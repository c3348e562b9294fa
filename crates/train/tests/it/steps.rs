//! Twelve steps: losses and norms of gradients against PyTorch's.

use crate::answers::{Case, as_in, gradient_program, learned, options_of, weight};
use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_graph::{Program, Weights};
use cognate_model::{Loss, LossNames};
use cognate_runtime::{Device, Options, Reference, Runtime, Session, Source, Values, available};
use cognate_train::{Optimiser, Rule, UpdateNames};
use cognate_verify::CLOSE;
use ndarray::{ArrayD, IxDyn, arr0};
use serde_json::Value;

const OPTIMISERS: [&str; 4] = ["adam", "adamw", "lion", "muon"];

/// Both sessions of training.
struct Engine {
    gradients: Box<dyn Session>,
    update: Box<dyn Session>,
}

fn optimiser(name: &str, settings: &Value) -> Optimiser {
    let number = |name: &str| settings[name].as_f64();
    Optimiser {
        rule: match name {
            "lion" => Rule::Lion,
            "muon" => Rule::Muon,
            _ => Rule::Adam,
        },
        betas: [0, 1].map(|index| settings["betas"][index].as_f64().unwrap()),
        epsilon: number("epsilon").unwrap(),
        weight_decay: number("weight_decay").unwrap(),
        clip_norm: number("clip_norm"),
        average: Some(0.75),
    }
}

/// The reference in f64; with `exported` tract and ONNX Runtime, where its library is found, too.
fn engines(gradients: &Program, update: &Program, exported: bool) -> Vec<Engine> {
    let load = |program: &Program| {
        Reference::F64.load(&Source::Graph(program.clone()), &Options::default()).unwrap()
    };
    let mut engines = vec![Engine { gradients: load(gradients), update: load(update) }];
    if exported {
        let folder = tempfile::tempdir().unwrap();
        let (metadata, graphs) =
            (Metadata::default(), [("gradients.onnx", gradients), ("update.onnx", update)]);
        write_folder(
            folder.path(),
            &Export::new(&graphs, "weights.onnx_data", &metadata),
            &[],
            Existing::Replace,
        )
        .unwrap();
        for engine in available(Device::Cpu).unwrap() {
            for options in options_of(&*engine) {
                let load =
                    |file| engine.load(&Source::Onnx(folder.path().join(file)), &options).unwrap();
                let (gradients, update) = (load("gradients.onnx"), load("update.onnx"));
                engines.push(Engine { gradients, update });
            }
        }
    }
    engines
}

/// The losses of each token before each step and after the last, the norms of gradients, and the
/// mean of the weights' moving averages.
fn train(
    case: &Case,
    engine: &mut Engine,
    optimiser: &Optimiser,
    rate: f64,
    steps: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (mut state, mut names) = (Values::new(), vec![UpdateNames::STEP.to_owned()]);
    state.insert(UpdateNames::STEP, ArrayD::from_shape_vec(IxDyn(&[]), vec![0i64]).unwrap());
    for path in case.model.learned() {
        let start = as_in(&*engine.update, weight(&case.model, path));
        let zeros = as_in(&*engine.update, ArrayD::zeros(start.shape()));
        names.push(path.to_owned());
        for name in optimiser.state(path, &start.shape().into()) {
            state.insert(
                &name,
                if name == UpdateNames::average(path) { start.clone() } else { zeros.clone() },
            );
            names.push(name);
        }
        state.insert(path, start);
    }
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    loop {
        let mut inputs = case.tokens();
        case.model.learned().for_each(|path| inputs.insert(path, state.get(path).unwrap().clone()));
        let mut outputs = engine.gradients.run(&inputs).unwrap();
        let number = |outputs: &Values, name: &str| {
            outputs.get(name).unwrap().to_f64().unwrap().first().copied().unwrap()
        };
        let tokens = number(&outputs, LossNames::TOKENS);
        losses.push(number(&outputs, LossNames::LOSS) / tokens);
        if losses.len() > steps {
            return (losses, norms);
        }
        let mut inputs = Values::new();
        inputs.insert(UpdateNames::LEARNING_RATE, as_in(&*engine.update, arr0(rate).into_dyn()));
        inputs.insert(
            UpdateNames::GRADIENT_SCALE,
            as_in(&*engine.update, arr0(1.0 / tokens).into_dyn()),
        );
        for path in case.model.learned() {
            let name = UpdateNames::gradient(path);
            let gradient = outputs.remove(&name).unwrap();
            inputs.insert(name, gradient);
        }
        names.iter().for_each(|name| inputs.insert(name, state.get(name).unwrap().clone()));
        let mut outputs = engine.update.run(&inputs).unwrap();
        norms.push(number(&outputs, UpdateNames::GRADIENT_NORM));
        for name in &names {
            let next = outputs.remove(&UpdateNames::next(name)).unwrap();
            state.insert(name, next);
        }
    }
}

fn differences(case: &Case, name: &str, exported: bool) -> Vec<String> {
    let pointer = |field: &str| format!("/steps/{name}/{field}");
    let settings = &case.answers["steps"][name];
    let (optimiser, rate) = (optimiser(name, settings), case.number(&pointer("learning_rate")));
    let loss = Loss { label_smoothing: case.number("/label_smoothing") as f32, ..Loss::default() };
    let gradients = gradient_program(&case.model, &loss);
    let update =
        Program::new(optimiser.update(&learned(&case.model)).unwrap(), Weights::default()).unwrap();
    let expected = [
        ("losses_float64", "losses_rounded_constants"),
        ("gradient_norms", "gradient_norms_rounded_constants"),
    ]
    .map(|(exact, rounded)| {
        let wanted = case.numbers(&pointer(exact));
        let bounds = bounds(&wanted, &case.numbers(&pointer(rounded)));
        (wanted, bounds)
    });
    let mut failures = Vec::new();
    for mut engine in engines(&gradients, &update, exported) {
        let (losses, norms) = train(case, &mut engine, &optimiser, rate, expected[1].0.len());
        let engine_name = engine.gradients.engine().to_string();
        for (what, found, (wanted, bounds)) in
            [("losses", losses, &expected[0]), ("norms", norms, &expected[1])]
        {
            let errors: Vec<_> = found
                .iter()
                .zip(wanted)
                .map(|(found, wanted)| (found / wanted - 1.0).abs())
                .collect();
            let is_within = errors.iter().zip(bounds).all(|(error, bound)| error <= bound);
            let worst = errors.iter().copied().fold(0.0, |worst: f64, error| {
                if error.is_nan() { f64::NAN } else { worst.max(error) }
            });
            eprintln!(
                "{}, {name}, {engine_name}: {what} {worst:.1e}, bounds {:.0e} to {:.0e}",
                case.name,
                bounds[0],
                bounds[bounds.len() - 1]
            );
            if !is_within || errors.len() != wanted.len() || found.len() != wanted.len() {
                failures.push(format!(
                    "{}, {name}, {engine_name}: {what}: {errors:?}\n  of at most {bounds:?}",
                    case.name
                ));
            }
        }
    }
    failures
}

/// How far each number of a training may be from PyTorch's float64: [`CLOSE`], or twice as far as
/// those of PyTorch's own float64 have gone by then with nothing but f32 constants in place of its
/// own. Constants of graphs are f32; Adam's first steps are as large for small gradients as for
/// large ones, and large random weights magnify the difference at every step.
fn bounds(exact: &[f64], rounded: &[f64]) -> Vec<f64> {
    assert_eq!(exact.len(), rounded.len());
    let errors = exact.iter().zip(rounded).map(|(exact, rounded)| (rounded / exact - 1.0).abs());
    let so_far = errors.scan(0.0, |worst: &mut f64, error| {
        *worst = worst.max(error);
        Some(*worst)
    });
    so_far.map(|rounding| CLOSE.beside(rounding).relative_l2).collect()
}

/// On the reference and, exported, on tract and ONNX Runtime: forgetting nothing, in f32, of what
/// twelve steps need.
#[test]
fn twelve_steps_of_the_paper_agree_everywhere() {
    let case = Case::open("paper");
    let failures: Vec<_> =
        OPTIMISERS.into_iter().flat_map(|optimiser| differences(&case, optimiser, true)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn twelve_steps_of_families_agree() {
    let cases = ["marian", "bart", "t5-gated"].map(Case::open);
    // Of T5, Muon magnifies the rounding of GELU's constants; PyTorch has no answer with rounded
    // ones.
    let has_answer = |case: &Case, optimiser: &str| case.answers["steps"].get(optimiser).is_some();
    let of_case = |case| {
        OPTIMISERS
            .into_iter()
            .filter(move |name| has_answer(case, name))
            .flat_map(move |name| differences(case, name, false))
    };
    let failures: Vec<_> = cases.iter().flat_map(of_case).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
