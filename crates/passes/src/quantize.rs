//! Layers in integers: of 8 bits with a step size for each column (Jacob et al. 2018, section 2),
//! or of 4 or 8 bits with a step size for each block of inputs; activations are rounded at run
//! time.
//!
//! Every layer whose weight is a parameter and every table of tokens is converted; tables to 8
//! bits. Other tables, attention, normalisations and biases stay f32. Weights stay lazy recipes.

use cognate_graph::{
    Binary, Bits, Blocks, Builder, DType, Dim, Error, Graph, Node, NodeId, Op, Program, Quantized,
    QuantizedBlocks, QuantizedTable, Recipe, Shape, Steps, Tensor, Type,
};
use std::collections::BTreeMap;

/// Settings of the conversion.
#[derive(Clone, Copy, Debug)]
pub enum Options<'a> {
    /// Weights of 8 bits with a step size for each column.
    Columns {
        /// The steps of activations: [`Steps::Row`] or [`Steps::Tensor`].
        steps: Steps,
        /// The name of an output that may stay unscaled, and the name of a new output `[.., 1]`
        /// with the factor of each row. This saves a pass over a large output whose reader needs
        /// only the order within a row. It applies to the output of a layer without bias, with one
        /// step per row.
        unscaled: Option<[&'a str; 2]>,
    },
    /// Weights and activations in blocks.
    Blocks {
        /// The blocks of layers.
        blocks: Blocks,
        /// The name of an output: the layer that computes it always has 8 bits.
        output: &'a str,
    },
}

/// Integers and their step sizes.
type Made = [Part; 2];

/// One tensor of a quantised weight.
struct Part {
    /// Appended to the weight's name.
    name: &'static str,
    dtype: DType,
    recipe: Recipe,
}

impl Part {
    fn parameter<'b>(
        &self,
        builder: &'b Builder,
        weight: &str,
        weights: &mut BTreeMap<String, Recipe>,
    ) -> Tensor<'b> {
        let path = format!("{weight}.{}", self.name);
        weights.insert(path.clone(), self.recipe.clone());
        builder.parameter(&path, Type::new(self.dtype, self.recipe.shape()))
    }
}

/// How a weight is read; in blocks, both uses share the same integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Layer,
    Table,
}

/// Converts programs that are used together. A weight of several programs is converted once.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn quantize(programs: &[&Program], options: Options<'_>) -> Result<Vec<Program>, Error> {
    let mut made = BTreeMap::new();
    programs.iter().map(|program| convert(program, options, &mut made)).collect()
}

fn convert(
    program: &Program,
    options: Options<'_>,
    made: &mut BTreeMap<(String, Use), Made>,
) -> Result<Program, Error> {
    let graph = program.graph();
    let (unscaled, precise) = match options {
        Options::Columns { steps: Steps::Row, unscaled: Some([name, _]) } => {
            (unscaled_layer(graph, name), None)
        }
        Options::Columns { .. } => (None, None),
        Options::Blocks { output, .. } => {
            (None, output_layer(graph, output).map(|id| graph.node(id).inputs[1]))
        }
    };
    let builder = Builder::new(graph.name());
    let mut weights: BTreeMap<String, Recipe> =
        program.weights().iter().map(|(path, recipe)| (path.into(), recipe.clone())).collect();
    let mut values: Vec<Tensor<'_>> = Vec::new();
    let mut scale = None;
    for (id, node) in graph.iter() {
        let input = |id: NodeId| values[id.index()];
        let value = if node.op == Op::Linear && is_plain(graph, node.inputs[1]) {
            let weight = &graph.node(node.inputs[1]).name;
            let recipe =
                program.weights().get(weight).expect("a program has a weight for each parameter");
            let (op, make): (_, &dyn Fn() -> Made) = match options {
                Options::Columns { steps, .. } => {
                    let steps = if unscaled == Some(id) { Steps::RowUnscaled } else { steps };
                    (Op::QuantizedLinear(steps), &|| in_columns(recipe))
                }
                Options::Blocks { blocks, .. } => {
                    let bits =
                        if precise == Some(node.inputs[1]) { Bits::Eight } else { blocks.bits };
                    let blocks = Blocks { bits, ..blocks };
                    (Op::BlockLinear(blocks), &move || in_blocks(recipe, blocks))
                }
            };
            let made = made.entry((weight.clone(), Use::Layer)).or_insert_with(make);
            let parameters =
                made.each_ref().map(|part| part.parameter(&builder, weight, &mut weights));
            let (x, bias) = (input(node.inputs[0]), node.inputs.get(2).copied().map(input));
            if unscaled == Some(id) {
                scale = Some(builder.node(
                    &format!("{}.magnitude", node.name),
                    Op::LargestMagnitude,
                    &[x],
                ));
            }
            let inputs: Vec<_> = [x].into_iter().chain(parameters).chain(bias).collect();
            builder.node(&node.name, op, &inputs)
        } else if node.op == Op::Gather
            && is_plain(graph, node.inputs[0])
            && is_given(graph, node.inputs[1])
        {
            let table = &graph.node(node.inputs[0]).name;
            let recipe =
                program.weights().get(table).expect("a program has a weight for each parameter");
            let ids = input(node.inputs[1]);
            match options {
                Options::Columns { .. } => {
                    let made =
                        made.entry((table.clone(), Use::Table)).or_insert_with(|| in_rows(recipe));
                    let parts =
                        made.each_ref().map(|part| part.parameter(&builder, table, &mut weights));
                    gather_rows(&builder, node, parts, ids)
                }
                Options::Blocks { blocks, .. } => {
                    let blocks = Blocks { bits: Bits::Eight, ..blocks };
                    let made = made
                        .entry((table.clone(), Use::Layer))
                        .or_insert_with(|| in_blocks(recipe, blocks));
                    let parts =
                        made.each_ref().map(|part| part.parameter(&builder, table, &mut weights));
                    gather_blocks(&builder, node, blocks, parts, ids)
                }
            }
        } else {
            builder.copy(node, input)
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
    [
        Part { name: "int8", dtype: DType::I8, recipe: values },
        Part { name: "scale", dtype: DType::F32, recipe: scales },
    ]
}

fn in_rows(table: &Recipe) -> Made {
    let QuantizedTable { values, scales } = QuantizedTable::new(table);
    [
        Part { name: "rows.int8", dtype: DType::I8, recipe: values },
        Part { name: "rows.scale", dtype: DType::F32, recipe: scales },
    ]
}

fn in_blocks(weight: &Recipe, blocks: Blocks) -> Made {
    let QuantizedBlocks { values, scales } = QuantizedBlocks::new(weight, blocks);
    let name = match blocks.bits {
        Bits::Four => "int4",
        Bits::Eight => "int8",
    };
    [
        Part { name, dtype: DType::U8, recipe: values },
        Part { name: "scale", dtype: DType::F32, recipe: scales },
    ]
}

/// Rows of a table `i8 [rows, width]` with steps `[rows, 1]`.
fn gather_rows<'b>(
    builder: &'b Builder,
    node: &Node,
    [table, scales]: [Tensor<'_>; 2],
    ids: Tensor<'_>,
) -> Tensor<'b> {
    let part = |what: &str| format!("{}.{what}", node.name);
    let integers = builder.node(&part("integers"), Op::Gather, &[table, ids]);
    let counts = builder.node(&part("counts"), Op::Cast(DType::F32), &[integers]);
    let steps = builder.node(&part("steps"), Op::Gather, &[scales, ids]);
    builder.node(&node.name, Op::Binary(Binary::Mul), &[counts, steps])
}

/// Rows of a table `u8 [rows, blocks, size]` with steps `[rows, blocks]`.
fn gather_blocks<'b>(
    builder: &'b Builder,
    node: &Node,
    blocks: Blocks,
    [table, scales]: [Tensor<'_>; 2],
    ids: Tensor<'_>,
) -> Tensor<'b> {
    let part = |what: &str| format!("{}.{what}", node.name);
    let [leading @ .., width] = node.ty.shape.dims() else {
        unreachable!("verified: rows of a matrix")
    };
    let bytes = builder.node(&part("bytes"), Op::Gather, &[table, ids]);
    let numbers = builder.node(&part("numbers"), Op::Cast(DType::F32), &[bytes]);
    let zero = builder.scalar(blocks.bits.zero().into());
    let counts = builder.node(&part("counts"), Op::Binary(Binary::Sub), &[numbers, zero]);
    let steps = builder.node(&part("steps"), Op::Gather, &[scales, ids]);
    let column: Shape = steps.ty().shape.dims().iter().chain([&Dim::from(1)]).collect();
    let steps = builder.node(&part("column"), Op::Reshape(column), &[steps]);
    let filled = builder.node(&part("blocks"), Op::Binary(Binary::Mul), &[counts, steps]);
    let whole = filled.ty().shape.dims()[leading.len()..]
        .iter()
        .fold(Dim::from(1), |product, dim| product * dim);
    let row: Shape = leading.iter().chain([&whole]).collect();
    if whole == *width {
        return builder.node(&node.name, Op::Reshape(row), &[filled]);
    }
    let row = builder.node(&part("row"), Op::Reshape(row), &[filled]);
    builder.node(
        &node.name,
        Op::Slice { axis: leading.len(), start: 0.into(), end: width.clone() },
        &[row],
    )
}

/// Whether ids are an input: tokens. Tables of positions and distances are small and unchanged.
pub(crate) fn is_given(graph: &Graph, mut ids: NodeId) -> bool {
    while let Op::Reshape(_) = graph.node(ids).op {
        ids = graph.node(ids).inputs[0];
    }
    graph.node(ids).op == Op::Input
}

/// Whether a weight is a parameter in f32.
pub(crate) fn is_plain(graph: &Graph, weight: NodeId) -> bool {
    let weight = graph.node(weight);
    weight.op == Op::Parameter && weight.ty.dtype == DType::F32
}

/// The layer that computes an output, possibly followed by functions of elements and factors.
fn output_layer(graph: &Graph, output: &str) -> Option<NodeId> {
    let mut id = graph.outputs().iter().find(|known| known.name == output)?.node;
    while let Op::Reshape(_) | Op::Unary(_) | Op::Binary(Binary::Mul | Binary::Div) =
        graph.node(id).op
    {
        id = graph.node(id).inputs[0];
    }
    (graph.node(id).op == Op::Linear && is_plain(graph, graph.node(id).inputs[1])).then_some(id)
}

/// The layer without bias that computes an output, if nothing else reads its result.
fn unscaled_layer(graph: &Graph, output: &str) -> Option<NodeId> {
    let mut id = graph.outputs().iter().find(|known| known.name == output)?.node;
    loop {
        let readers = graph
            .nodes()
            .iter()
            .flat_map(|node| &node.inputs)
            .filter(|&&input| input == id)
            .count();
        let outputs = graph.outputs().iter().filter(|output| output.node == id).count();
        if readers + outputs != 1 {
            return None;
        }
        let node = graph.node(id);
        if !matches!(node.op, Op::Reshape(_)) {
            return (node.op == Op::Linear
                && node.inputs.len() == 2
                && is_plain(graph, node.inputs[1]))
            .then_some(id);
        }
        id = node.inputs[0];
    }
}
