//! The gradient graph: from a loss, with learned weights as inputs.

use cognate_graph::Program;
use cognate_passes::feed::feed;
use cognate_passes::gradient::gradient;
use cognate_passes::{Error, fold::fold};

/// The program with the inputs of `loss` and the weights `learned`, by their paths, and the outputs
/// of `loss` and `gradient.PATH` of each weight: the gradients of the output `loss`, a sum.
///
/// # Errors
/// If a path is not a weight of the program, or a node in between has no gradient.
///
/// ```
/// use cognate_model::{Loss, Model, Preset};
///
/// let model = Model::preset(Preset::Tiny, 1)?;
/// let learned: Vec<_> = model.learned().collect();
/// let program = cognate_train::gradients(&model.loss(&Loss { label_smoothing: 0.1, ..Loss::default() })?, &learned)?;
/// let table = program.graph().output("gradient.shared.weight").unwrap();
/// assert_eq!(table.ty.to_string(), "f32 [8000, 128]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gradients(loss: &Program, learned: &[&str]) -> Result<Program, Error> {
    let graph = feed(&fold(loss.graph())?, |path| learned.contains(&path))?;
    Ok(Program::new(gradient(&graph, "loss", learned)?, loss.weights().clone())?)
}
