//! The gradient graph: from a loss, with learned weights as inputs.

use cognate_graph::{Builder, DType, Error as GraphError, Graph, Op, Program, Shape, Tensor, Type};
use cognate_model::LossNames;
use cognate_passes::feed::feed;
use cognate_passes::gradient::gradient;
use cognate_passes::half::{Facts, half};
use cognate_passes::order::leaves_in_reverse;
use cognate_passes::{Error, fold::fold};

/// The output that is minimised.
const LOSS: &str = LossNames::LOSS;

/// Input of [`gradients_in_half`]: the factor of the loss and of all gradients, f32 `[]`.
pub const LOSS_SCALE: &str = "loss_scale";

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
    let graph = leaves_in_reverse(&gradient(&graph, LOSS, learned)?)?;
    Ok(Program::new(graph, loss.weights().clone())?)
}

/// As [`gradients`], with products and the values between them in f16 (Micikevicius et al. 2018):
/// each layer casts its weights, which are inputs in f32, and their gradients are f32 again. Tables,
/// normalisations, softmax, dropout and the loss stay f32.
///
/// Small gradients would be 0 in f16, so they are those of the loss times the input [`LOSS_SCALE`].
/// If it is too large, some are infinite.
///
/// # Errors
/// As of [`gradients`].
pub fn gradients_in_half(loss: &Program, learned: &[&str]) -> Result<Program, Error> {
    let tables = loss.graph().iter().filter(|(_, node)| node.op == Op::Gather);
    let tables: Vec<&str> = tables.map(|(_, node)| node.name.as_str()).collect();
    let facts = Facts {
        // Activations of a model that learns are far from the limit.
        seen: &|_, _| Some(1.0),
        interface: &|_| None,
        // Dropout counts in f32.
        keep: &|_, node| node.starts_with("dropout/") || tables.contains(&node),
        computes_in_f32: false,
    };
    let made = half(&[loss], facts)?;
    let [program] = made.programs.as_slice() else { unreachable!("one for each program") };
    let graph = feed(&fold(program.graph())?, |path| learned.contains(&path))?;
    let graph = leaves_in_reverse(&gradient(&scaled(&graph)?, SCALED, learned)?)?;
    Ok(Program::new(graph, loss.weights().clone())?)
}

/// Output of the scaled loss.
const SCALED: &str = "scaled_loss";

/// The graph with the loss times [`LOSS_SCALE`] as another output, and with weights in f32, which are
/// cast.
fn scaled(graph: &Graph) -> Result<Graph, GraphError> {
    let builder = Builder::new(graph.name());
    let mut values: Vec<Tensor<'_>> = Vec::new();
    for (_, node) in graph.iter() {
        values.push(match node.op {
            Op::Input => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
            Op::Parameter if node.ty.dtype == DType::F16 => {
                let ty = Type::new(DType::F32, node.ty.shape.clone());
                builder.parameter(&node.name, ty).cast(DType::F16)
            }
            _ => builder.copy(node, |input| values[input.index()]),
        });
    }
    for output in graph.outputs() {
        let value = values[output.node.index()];
        builder.output(&output.name, value);
        if output.name == LOSS {
            let scale = builder.input(LOSS_SCALE, DType::F32, Shape::default());
            builder.output(SCALED, value * scale);
        }
    }
    drop(values);
    builder.finish()
}
