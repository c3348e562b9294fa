//! A whole training step as one graph: the loss, its gradients and the updated weights.
//!
//! [`Trainer`](crate::Trainer) runs gradients and update separately, so that gradients can be
//! summed between them. A program that updates after every batch needs only this graph.

use std::collections::HashSet;

use cognate_graph::{Builder, DType, Graph, Program, Shape};
use cognate_model::LossNames;
use cognate_passes::Error;
use cognate_passes::join::join;

use crate::gradients::gradients;
use crate::optimiser::{Optimiser, UpdateNames};

/// The program of one step on one batch.
///
/// Inputs: those of `loss`, the [`UpdateNames::STEP`] and the weights `learned` with their
/// [state](Optimiser::state), and [`learning_rate`](UpdateNames::LEARNING_RATE). Outputs: those of
/// `loss`, [`gradient_norm`](UpdateNames::GRADIENT_NORM), and the [`next`](UpdateNames::next) of
/// all state. The gradient is that of the loss per token: of the sum divided by the number of
/// tokens.
///
/// # Errors
/// If a path is not a weight of the program, or a node in between has no gradient.
///
/// ```
/// use cognate_model::{Loss, Model, Preset};
/// use cognate_train::{Optimiser, training_step};
///
/// let model = Model::preset(Preset::Tiny, 1)?;
/// let learned: Vec<_> = model.learned().collect();
/// let step = training_step(&model.loss(&Loss::default())?, &learned, &Optimiser::default())?;
/// assert_eq!(step.graph().output("next.first_moment.shared.weight").unwrap().ty.to_string(), "f32 [8000, 128]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn training_step(
    loss: &Program,
    learned: &[&str],
    optimiser: &Optimiser,
) -> Result<Program, Error> {
    let gradients = gradients(loss, learned)?;
    let shape = |path: &str| {
        loss.weights().get(path).map_or_else(Shape::default, |recipe| Shape::from(recipe.shape()))
    };
    let shapes: Vec<(&str, Shape)> = learned.iter().map(|&path| (path, shape(path))).collect();
    let update = optimiser.update(&shapes)?;
    let mut between: HashSet<String> =
        learned.iter().map(|path| UpdateNames::gradient(path)).collect();
    between.insert(UpdateNames::GRADIENT_SCALE.to_owned());
    let graph = join("training_step", &[gradients.graph(), &scale()?, &update], |name| {
        !between.contains(name)
    })?;
    Ok(Program::new(graph, loss.weights().clone())?)
}

/// 1 over the number of tokens, or 1 if there are none.
fn scale() -> Result<Graph, Error> {
    let builder = Builder::new("scale");
    let tokens = builder.input(LossNames::TOKENS, DType::I64, Shape::default());
    let one = builder.integer(1);
    let counted = one.less_or_equal(tokens).select(tokens, one);
    builder.output(UpdateNames::GRADIENT_SCALE, builder.scalar(1.0) / counted.cast(DType::F32));
    Ok(builder.finish()?)
}
