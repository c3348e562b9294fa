//! PyTorch's answers under `testdata/training`, and what they are the answers to.

use cognate_graph::{Program, Shape};
use cognate_model::{DropoutRates, LossNames, Model};
use cognate_runtime::{Engine, Options, Runtime, Session, Values};
use cognate_testing::{golden, testdata};
use cognate_verify::CLOSE;
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;
use std::fs;

/// The models that PyTorch was asked about.
pub(crate) const CASES: [&str; 4] = ["paper", "marian", "bart", "t5-gated"];

/// Dropout at every place.
pub(crate) const EVERYWHERE: DropoutRates =
    DropoutRates { embedding: 0.1, sublayer: 0.2, attention: 0.15, activation: 0.3 };

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: Model,
    pub(crate) answers: Value,
}

impl Case {
    pub(crate) fn open(name: &'static str) -> Self {
        let folder = testdata("training").join(name);
        let model =
            Model::open(&if name == "paper" { folder.clone() } else { golden(name) }).unwrap();
        let answers =
            serde_json::from_str(&fs::read_to_string(folder.join("answers.json")).unwrap())
                .unwrap();
        Self { name, model, answers }
    }

    /// PyTorch's gradients by our paths: a checkpoint of them is bound as one of weights is.
    pub(crate) fn gradients(&self) -> Model {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), self.model.config_json()).unwrap();
        let file = testdata("training").join(self.name).join("gradients.safetensors");
        fs::copy(file, folder.path().join("model.safetensors")).unwrap();
        Model::open(folder.path()).unwrap()
    }

    /// A batch as the loss graph reads it.
    pub(crate) fn tokens(&self) -> Values {
        let names =
            [LossNames::SOURCE, LossNames::SOURCE_MASK, LossNames::TARGET, LossNames::LABELS];
        let rows = |name| -> Vec<Vec<i64>> {
            serde_json::from_value(self.answers["tokens"][name].clone()).unwrap()
        };
        let array = |rows: Vec<Vec<i64>>| {
            ArrayD::from_shape_vec(IxDyn(&[rows.len(), rows[0].len()]), rows.concat()).unwrap()
        };
        names.into_iter().map(|name| (name, array(rows(name)))).collect()
    }

    pub(crate) fn number(&self, pointer: &str) -> f64 {
        self.answers
            .pointer(pointer)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("{}: no number {pointer}", self.name))
    }

    pub(crate) fn numbers(&self, pointer: &str) -> Vec<f64> {
        serde_json::from_value(
            self.answers
                .pointer(pointer)
                .unwrap_or_else(|| panic!("{}: no {pointer}", self.name))
                .clone(),
        )
        .unwrap()
    }
}

/// The weight or gradient at `path` in double precision.
pub(crate) fn weight(model: &Model, path: &str) -> ArrayD<f64> {
    let recipe = model.weights().get(path).unwrap();
    ArrayD::from_shape_vec(IxDyn(recipe.shape()), recipe.values()).unwrap()
}

/// Learned weights with their shapes.
pub(crate) fn learned(model: &Model) -> Vec<(&str, Shape)> {
    model.learned().map(|path| (path, model.weights().get(path).unwrap().shape().into())).collect()
}

/// The gradient program of a model.
pub(crate) fn gradient_program(model: &Model, loss: &cognate_model::Loss) -> Program {
    cognate_train::gradients(&model.loss(loss).unwrap(), &model.learned().collect::<Vec<_>>())
        .unwrap()
}

/// A value as a session computes: the reference in double precision, engines in single.
pub(crate) fn as_in(session: &dyn Session, array: ArrayD<f64>) -> cognate_runtime::Value {
    if session.engine().ends_with("f64") {
        array.into()
    } else {
        array.mapv(|value| value as f32).into()
    }
}

/// The options with which an engine is compared: its own operators, and where there are others for
/// training, these.
pub(crate) fn options_of(engine: &dyn Runtime) -> Vec<Options> {
    let own = Options::default();
    let training = Options { training: true, ..own };
    if engine.engine() == Engine::Ort { vec![own, training] } else { vec![own] }
}

/// Whether a relative error is within [`CLOSE`]; never if it is not a number.
pub(crate) fn is_close(error: f64) -> bool {
    error <= CLOSE.relative_l2
}

pub(crate) fn norm(array: &ArrayD<f64>) -> f64 {
    array.iter().map(|value| value * value).sum::<f64>().sqrt()
}
