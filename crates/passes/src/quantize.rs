//! Layers in integers: of 8 bits with steps of their own for each column (Jacob et al. 2018, section 2), or of 4 or 8 bits with
//! steps for each block of inputs; activations are rounded at run time.
//!
//! Every layer whose weight is a parameter is converted; tables, attention, normalisations and biases stay f32. Weights stay lazy
//! recipes.

use cognate_graph::{
    Bits, Blocks, Builder, DType, Error, Graph, NodeId, Op, Program, Quantized, QuantizedBlocks, Recipe, Steps, Tensor, Type,
};
use std::collections::BTreeMap;

/// How layers are converted.
#[derive(Clone, Copy, Debug)]
pub enum Options<'a> {
    /// Weights of 8 bits in steps of their own for each column.
    Columns {
        /// The steps of activations: [`Steps::Row`] or [`Steps::Tensor`].
        steps: Steps,
        /// The name of an output, and that of a new one: by which the first is to be multiplied, row by row, `[.., 1]`. That
        /// spares a pass over a large output whose reader needs no more than the order of each row's numbers. It is there where
        /// the output is that of a layer without bias, and steps are those of rows.
        unscaled: Option<[&'a str; 2]>,
    },
    /// Weights and activations in blocks.
    Blocks {
        /// Those of layers.
        blocks: Blocks,
        /// The name of an output: the layer that gives it has 8 bits in any case.
        output: &'a str,
    },
}

/// What a weight becomes: names that follow its own, types and recipes.
type Made = [(&'static str, DType, Recipe); 2];

/// Converts programs that work together. A weight of several programs is one in all.
///
/// # Errors
/// None that a caller can cause.
pub fn quantize(programs: &[&Program], options: Options<'_>) -> Result<Vec<Program>, Error> {
    let mut made = BTreeMap::new();
    programs.iter().map(|program| convert(program, options, &mut made)).collect()
}

fn convert(program: &Program, options: Options<'_>, made: &mut BTreeMap<String, Made>) -> Result<Program, Error> {
    let graph = program.graph();
    let (unscaled, precise) = match options {
        Options::Columns { steps: Steps::Row, unscaled: Some([name, _]) } => (unscaled_layer(graph, name), None),
        Options::Columns { .. } => (None, None),
        Options::Blocks { output, .. } => (None, output_layer(graph, output).map(|id| graph.node(id).inputs[1])),
    };
    let builder = Builder::new(graph.name());
    let mut weights: BTreeMap<String, Recipe> = program.weights().iter().map(|(path, recipe)| (path.into(), recipe.clone())).collect();
    let mut values: Vec<Tensor<'_>> = Vec::new();
    let mut scale = None;
    for (id, node) in graph.iter() {
        let inputs = || node.inputs.iter().map(|input| values[input.index()]).collect::<Vec<_>>();
        let value = match &node.op {
            Op::Input => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
            Op::Parameter => builder.parameter(&node.name, node.ty.clone()),
            Op::Linear if is_plain(graph, node.inputs[1]) => {
                let weight = &graph.node(node.inputs[1]).name;
                let recipe = program.weights().get(weight).expect("a program has a weight for each parameter");
                let (op, make): (_, &dyn Fn() -> Made) = match options {
                    Options::Columns { steps, .. } => {
                        let steps = if unscaled == Some(id) { Steps::RowUnscaled } else { steps };
                        (Op::QuantizedLinear(steps), &|| in_columns(recipe))
                    }
                    Options::Blocks { blocks, .. } => {
                        let bits = if precise == Some(node.inputs[1]) { Bits::Eight } else { blocks.bits };
                        let blocks = Blocks { bits, ..blocks };
                        (Op::BlockLinear(blocks), &move || in_blocks(recipe, blocks))
                    }
                };
                let parameters = made.entry(weight.clone()).or_insert_with(make).each_ref().map(|(name, dtype, recipe)| {
                    let path = format!("{weight}.{name}");
                    weights.insert(path.clone(), recipe.clone());
                    builder.parameter(&path, Type::new(*dtype, recipe.shape()))
                });
                let given = inputs();
                let (x, bias) = (given[0], given.get(2).copied());
                if unscaled == Some(id) {
                    scale = Some(builder.node(&format!("{}.magnitude", node.name), Op::LargestMagnitude, &[x]));
                }
                let inputs: Vec<_> = [x].into_iter().chain(parameters).chain(bias).collect();
                builder.node(&node.name, op, &inputs)
            }
            op => builder.node(&node.name, op.clone(), &inputs()),
        };
        values.push(value);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    if let (Options::Columns { unscaled: Some([_, name]), .. }, Some(scale)) = (options, scale) {
        builder.output(name, scale);
    }
    drop(values);
    Program::new(builder.finish()?, weights.into_iter().collect())
}

fn in_columns(weight: &Recipe) -> Made {
    let Quantized { values, scales } = Quantized::new(weight);
    [("int8", DType::I8, values), ("scale", DType::F32, scales)]
}

fn in_blocks(weight: &Recipe, blocks: Blocks) -> Made {
    let QuantizedBlocks { values, scales } = QuantizedBlocks::new(weight, blocks);
    let name = match blocks.bits {
        Bits::Four => "int4",
        Bits::Eight => "int8",
    };
    [(name, DType::U8, values), ("scale", DType::F32, scales)]
}

/// Whether a layer's weight is a parameter in f32.
fn is_plain(graph: &Graph, weight: NodeId) -> bool {
    let weight = graph.node(weight);
    weight.op == Op::Parameter && weight.ty.dtype == DType::F32
}

/// The layer whose elements are those of an output.
fn output_layer(graph: &Graph, output: &str) -> Option<NodeId> {
    let mut id = graph.outputs().iter().find(|known| known.name == output)?.node;
    while let Op::Reshape(_) = graph.node(id).op {
        id = graph.node(id).inputs[0];
    }
    (graph.node(id).op == Op::Linear && is_plain(graph, graph.node(id).inputs[1])).then_some(id)
}

/// The layer without bias whose elements are those of an output, if nothing else reads them.
fn unscaled_layer(graph: &Graph, output: &str) -> Option<NodeId> {
    let mut id = graph.outputs().iter().find(|known| known.name == output)?.node;
    loop {
        let readers = graph.nodes().iter().flat_map(|node| &node.inputs).filter(|&&input| input == id).count();
        let outputs = graph.outputs().iter().filter(|output| output.node == id).count();
        if readers + outputs != 1 {
            return None;
        }
        let node = graph.node(id);
        if !matches!(node.op, Op::Reshape(_)) {
            return (node.op == Op::Linear && node.inputs.len() == 2 && is_plain(graph, node.inputs[1])).then_some(id);
        }
        id = node.inputs[0];
    }
}
