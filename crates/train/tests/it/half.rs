//! Gradients in half precision, and updates that overflow.

use crate::answers::{EVERYWHERE, gradient_program, norm, weight};
use cognate_graph::{DType, Op, Program, Weights};
use cognate_model::{DropoutRates, Loss, LossNames, Model, Preset};
use cognate_runtime::{
    Device, Options, Reference, Runtime, Session, Source, Tract, Values, available,
};
use cognate_train::{LOSS_SCALE, Optimiser, UpdateNames, gradients_in_half};
use ndarray::{ArrayD, IxDyn, arr0};

/// The distance from f64 of PyTorch 2.15's gradients of the bundled model on this batch, under
/// `torch.autocast` to f16 and without dropout. (To bf16 it is 1.4e-2.)
const PYTORCH: f64 = 1.23e-3;

fn program(model: &Model, dropout: DropoutRates) -> Program {
    let loss = Loss { label_smoothing: 0.1, dropout, ..Loss::default() };
    gradients_in_half(&model.loss(&loss).unwrap(), &model.learned().collect::<Vec<_>>()).unwrap()
}

/// The loss and the gradients at a scale.
fn run(session: &mut dyn Session, model: &Model, scale: f32) -> (f64, Vec<ArrayD<f64>>) {
    let rows = |rows: [[i64; 5]; 2]| ArrayD::from_shape_vec(IxDyn(&[2, 5]), rows.concat()).unwrap();
    let mut inputs = Values::new();
    inputs.insert(LossNames::SOURCE, rows([[5, 9, 4, 11, 0], [7, 6, 0, 2, 2]]));
    inputs.insert(LossNames::SOURCE_MASK, rows([[1; 5], [1, 1, 1, 0, 0]]));
    inputs.insert(LossNames::TARGET, rows([[2, 4, 7, 9, 12], [2, 8, 8, 2, 2]]));
    inputs.insert(LossNames::LABELS, rows([[4, 7, 9, 12, 0], [8, 8, 0, -100, -100]]));
    inputs.insert(LossNames::DROPOUT_SEED, arr0(11i64).into_dyn());
    inputs.insert(LOSS_SCALE, arr0(scale).into_dyn());
    for path in model.learned() {
        inputs.insert(path, weight(model, path).mapv(|value| value as f32));
    }
    let known: Vec<_> = inputs.iter().map(|(name, _)| name.to_owned()).collect();
    for name in known.iter().filter(|name| !session.inputs().contains(name)) {
        inputs.remove(name);
    }
    let outputs = session.run(&inputs).unwrap();
    let output = |name: &str| outputs.get(name).unwrap().to_f64().unwrap();
    let gradients = model.learned().map(|path| output(&UpdateNames::gradient(path)));
    (output(LossNames::LOSS).sum(), gradients.collect())
}

/// The distance of all gradients together, relative to those expected.
fn distance(found: &[ArrayD<f64>], expected: &[ArrayD<f64>]) -> f64 {
    let squares =
        |arrays: &mut dyn Iterator<Item = f64>| arrays.map(|norm| norm * norm).sum::<f64>();
    let differences =
        &mut found.iter().zip(expected).map(|(found, expected)| norm(&(found - expected)));
    (squares(differences) / squares(&mut expected.iter().map(norm))).sqrt()
}

/// With and without dropout, which leaves out the same elements.
#[test]
fn gradients_are_as_exact_as_those_of_pytorch() {
    let model = Model::open(&cognate_testing::bundled_checkpoint()).unwrap();
    for dropout in [DropoutRates::default(), EVERYWHERE] {
        let loss = Loss { label_smoothing: 0.1, dropout, ..Loss::default() };
        let exact = Source::Graph(gradient_program(&model, &loss));
        let mut exact = Reference::F64.load(&exact, &Options::default()).unwrap();
        let (loss, expected) = run(&mut *exact, &model, 1.0);
        let source = Source::Graph(program(&model, dropout));
        // tract sums products in f16.
        let engines = available(Device::Cpu).unwrap();
        for engine in engines.iter().filter(|engine| engine.name() != Tract.name()) {
            let mut session = engine.load(&source, &Options::default()).unwrap();
            let (found, gradients) = run(&mut *session, &model, 64.0);
            let gradients: Vec<_> = gradients.iter().map(|gradient| gradient / 64.0).collect();
            let error = distance(&gradients, &expected);
            assert!(error <= PYTORCH, "{}: {error:e}", session.engine());
            assert!((found / loss - 1.0).abs() <= PYTORCH, "loss {found}, not {loss}");
        }
    }
}

/// Layers compute in f16; tables, normalisations and dropout do not.
#[test]
fn products_are_in_half_precision() {
    let program = program(&Model::preset(Preset::Tiny, 1).unwrap(), EVERYWHERE);
    let mut n_half = 0;
    for (_, node) in program.graph().iter() {
        let is_half = node.ty.dtype == DType::F16;
        match node.op {
            Op::Linear | Op::MatMul if !node.name.starts_with("dropout/") => {
                assert!(is_half, "{}", node.name);
                n_half += 1;
            }
            Op::Gather | Op::LayerNorm { .. } | Op::Softmax | Op::LogSumExp | Op::Input => {
                assert!(!is_half, "{}", node.name)
            }
            _ => assert!(!(is_half && node.name.starts_with("dropout/")), "{}", node.name),
        }
    }
    assert!(n_half > 20, "{n_half}");
}

#[test]
fn an_update_without_finite_gradients_changes_nothing() {
    let optimiser = Optimiser { average: Some(0.5), ..Optimiser::default() };
    let shape = [3usize];
    let graph = optimiser.update_if_finite(&[("w", shape[..].into())]).unwrap();
    let program = Program::new(graph, Weights::default()).unwrap();
    let mut session = Reference::F32.load(&Source::Graph(program), &Options::default()).unwrap();
    let state = optimiser.state("w", &shape[..].into());
    let names: Vec<_> = std::iter::once("w".to_owned()).chain(state).collect();
    for (gradient, changes) in [(1.0, true), (f32::INFINITY, false), (f32::NAN, false)] {
        let mut inputs = Values::new();
        for name in &names {
            inputs.insert(name, ArrayD::from_elem(IxDyn(&shape), 0.5f32));
        }
        let mut gradients = ArrayD::from_elem(IxDyn(&shape), 1.0f32);
        gradients[1] = gradient;
        inputs.insert(UpdateNames::gradient("w"), gradients);
        inputs.insert(UpdateNames::LEARNING_RATE, arr0(0.1f32).into_dyn());
        inputs.insert(UpdateNames::GRADIENT_SCALE, arr0(1f32).into_dyn());
        inputs.insert(UpdateNames::STEP, arr0(0i64).into_dyn());
        let outputs = session.run(&inputs).unwrap();
        let norm = outputs.get(UpdateNames::GRADIENT_NORM).unwrap().to_f64().unwrap().sum();
        assert_eq!(norm.is_finite(), changes);
        for name in &names {
            let next = outputs.get(&UpdateNames::next(name)).unwrap().to_f32().unwrap();
            assert_eq!(next.iter().all(|&value| value == 0.5), !changes, "{gradient} {name}");
        }
    }
}
