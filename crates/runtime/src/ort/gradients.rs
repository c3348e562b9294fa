//! Operators of our own in graphs of losses and gradients.
//!
//! - Products of matrices that are not constant. ONNX Runtime packs the weights of a product when a
//!   session is created, but in training they are inputs.
//! - `ln Σ exp(H Wᵀ + b)` and its gradients, which keep no logits in memory.
//! - Elementwise operations that read each other's results, in one pass.

mod elementwise;
mod masks;

pub(super) use elementwise::{EXTENTS, INSTRUCTIONS, OUTPUTS, decoded};

use crate::program::{
    DOMAIN, Found, Places, Substituted, attribute, integer, other, own, prune, replace,
};
use cognate_export::proto::{DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use std::collections::{BTreeSet, HashMap};

/// `out = A B + bias` of two matrices, which the attributes [`TRANSPOSED`] transpose, with an
/// optional bias `[columns]`.
pub(super) const PRODUCT: &str = "Product";
pub(super) const TRANSPOSED: [&str; 2] = ["transA", "transB"];
/// Inputs: `H: [n, width]`, `W: [vocab, width]` and optionally `b: [vocab]`. Output: `[n, 1]`.
pub(super) const LOG_SUM_EXP: &str = "LogSumExp";
/// Inputs: the output of [`LOG_SUM_EXP`], its gradient `[n, 1]`, and its inputs. Outputs: the
/// gradients of `H`, of `W` and, if it is named, of `b`, `[1, vocab]`.
pub(super) const LOG_SUM_EXP_GRADIENT: &str = "LogSumExpGradient";
/// Both, where the gradient of the logarithms does not depend on them. Inputs: the gradient
/// `[n, 1]`, and those of [`LOG_SUM_EXP`]. Outputs: its output, and those of
/// [`LOG_SUM_EXP_GRADIENT`].
pub(super) const LOG_SUM_EXP_WITH_GRADIENT: &str = "LogSumExpWithGradient";
/// Attributes of all of them.
pub(super) const THREADS: &str = "threads";
pub(super) const IN_BF16: &str = "in_bf16";

/// The graph with our operators; `None` if none applies.
pub(super) fn substitute(
    mut model: ModelProto,
    threads: usize,
    in_bf16: bool,
) -> Option<Substituted> {
    let graph = model.graph.as_mut()?;
    masks::repeat(graph);
    let n_found = replace(graph, gradient_of_log_sum_exp)
        + replace(graph, log_sum_exp)
        + replace(graph, product)
        + elementwise::join(graph);
    if n_found == 0 {
        return None;
    }
    with_gradients(graph);
    prune(graph);
    for node in graph.node.iter_mut().filter(|node| node.domain == DOMAIN) {
        node.attribute.push(integer(THREADS, threads as i64));
        node.attribute.push(integer(IN_BF16, in_bf16.into()));
    }
    model.opset_import.push(OperatorSetIdProto { domain: DOMAIN.into(), version: 1 });
    let [own_lengths, prefill, is_encoder] = [false; 3];
    let programs = Vec::new();
    Some(Substituted { model, programs, own_lengths, prefill, is_encoder, n_inputs: 0 })
}

/// A product of two matrices of f32 that are not constant.
fn product(places: &Places<'_>, index: usize) -> Option<Found> {
    let node = gemm(places, index)?;
    if node.input[..2].iter().any(|operand| places.constant(operand).is_some())
        || elementwise::sums(places, index).is_some()
    {
        return None;
    }
    let transposed = TRANSPOSED.map(|name| integer(name, i64::from(transposes(node, name))));
    let (input, output) = (node.input.clone(), node.output.clone());
    let node = own(PRODUCT, input, output, &node.name, transposed.into());
    Some(Found { node, at: index, replaced: vec![index] })
}

/// The node, if it is the product of two matrices of f32, with a bias `[columns]` or none.
fn gemm<'g>(places: &Places<'g>, index: usize) -> Option<&'g NodeProto> {
    let node = places.node(index, "Gemm")?;
    let is_one = |name| attribute(node, name).is_none_or(|factor| factor.f == Some(1.0));
    let has_one_axis = |bias: &String| {
        bias.is_empty()
            || places.has_axes(bias, 1)
            || places.constant(bias).is_some_and(|bias| bias.dims.len() == 1)
    };
    let is_found = places.has_elements(&node.output[0], DataType::Float)
        && ["alpha", "beta"].into_iter().all(is_one)
        && node.input.get(2).is_none_or(has_one_axis);
    is_found.then_some(node)
}

fn transposes(node: &NodeProto, name: &str) -> bool {
    attribute(node, name).is_some_and(|attribute| attribute.i == Some(1))
}

/// Whether a node reduces rows, to `[n, 1]`, or columns, to `[1, n]`.
fn reduces(places: &Places<'_>, node: &NodeProto, axes: &[i64]) -> bool {
    let axis = node.input.get(1).and_then(|axis| places.integer(axis));
    axis.is_some_and(|axis| axes.contains(&axis))
        && attribute(node, "keepdims").is_none_or(|keepdims| keepdims.i == Some(1))
}

const ROWS: [i64; 2] = [-1, 1];

/// The logits of `ln Σ exp(logits)`.
struct Logits<'g> {
    /// The layer, `H Wᵀ + b`.
    layer: &'g NodeProto,
    result: &'g str,
    exponentials: &'g str,
    /// From the layer to the result.
    nodes: Vec<usize>,
}

impl<'g> Logits<'g> {
    /// By the index of the node of the exponentials.
    fn of(places: &Places<'g>, index: usize) -> Option<Self> {
        let exponentials = places.node(index, "Exp")?;
        let (of_difference, difference) = places.giver(&exponentials.input[0], "Sub")?;
        let [logits, largest] = difference.input.as_slice() else { return None };
        let (of_largest, of_rows) = places.giver(largest, "ReduceMax")?;
        let of_layer = places.source(logits)?;
        let layer = gemm(places, of_layer)?;
        let is_layer = !transposes(layer, TRANSPOSED[0]) && transposes(layer, TRANSPOSED[1]);
        let is_max = of_rows.input[0] == *logits && reduces(places, of_rows, &ROWS);
        let exponentials = exponentials.output[0].as_str();
        let found = places.readers(exponentials).iter().find_map(|&of_sum| {
            let sum = places.node(of_sum, "ReduceSum").filter(|sum| reduces(places, sum, &ROWS))?;
            let of_logarithm = places.only_reader(&sum.output[0], "Log")?.0;
            let logarithm = &places.graph.node[of_logarithm].output[0];
            let (of_result, result) = places.only_reader(logarithm, "Add")?;
            (other(result, logarithm)? == largest)
                .then(|| (vec![of_sum, of_logarithm, of_result], result.output[0].as_str()))
        });
        let (mut nodes, result) = found.filter(|_| is_layer && is_max)?;
        nodes.extend([of_layer, of_largest, of_difference, index]);
        Some(Self { layer, result, exponentials, nodes })
    }
}

/// [`LOG_SUM_EXP`] in place of a layer, the largest of its logits, exponentials, sum and logarithm,
/// which nothing else reads.
fn log_sum_exp(places: &Places<'_>, index: usize) -> Option<Found> {
    let Logits { layer, result, nodes, .. } = Logits::of(places, index)?;
    let is_read = |&node: &usize| {
        let output = places.graph.node[node].output[0].as_str();
        output != result
            && (places.is_output(output)
                || places.readers(output).iter().any(|reader| !nodes.contains(reader)))
    };
    if nodes.iter().any(is_read) {
        return None;
    }
    let (input, output) = (layer.input.clone(), vec![result.to_owned()]);
    let node = own(LOG_SUM_EXP, input, output, &layer.name, Vec::new());
    Some(Found { node, at: index, replaced: nodes })
}

/// [`LOG_SUM_EXP_GRADIENT`] in place of the softmax times the gradient, at `index`, its products
/// with the operands of the layer, and the sums of its columns.
fn gradient_of_log_sum_exp(places: &Places<'_>, index: usize) -> Option<Found> {
    let product = places.node(index, "Mul")?;
    let (of_exponentials, _) = product.input.iter().find_map(|input| places.giver(input, "Exp"))?;
    let Logits { layer, result, exponentials, .. } = Logits::of(places, of_exponentials)?;
    let (of_quotient, quotient) = places.giver(other(product, exponentials)?, "Div")?;
    let [gradient, sum] = quotient.input.as_slice() else { return None };
    let (of_sum, sum) = places.giver(sum, "ReduceSum")?;
    if sum.input[0] != exponentials
        || !reduces(places, sum, &ROWS)
        || places.is_output(&product.output[0])
        || [&quotient.output[0], &product.output[0]]
            .into_iter()
            .zip([1, 3])
            .any(|(output, most)| places.readers(output).len() > most)
    {
        return None;
    }
    let [hidden, weight, bias @ ..] = layer.input.as_slice() else { return None };
    let (mut outputs, mut replaced) = (vec![String::new(); 3], vec![index, of_quotient]);
    if places.readers(&sum.output[0]).len() == 1 {
        replaced.push(of_sum);
    }
    for &reader in places.readers(&product.output[0]) {
        let node = &places.graph.node[reader];
        let place = match gemm(places, reader).map(|node| (node, node.input.as_slice())) {
            Some((node, [_, right])) if !transposes(node, TRANSPOSED[1]) => {
                match transposes(node, TRANSPOSED[0]) {
                    false if right == weight => 0,
                    true if right == hidden => 1,
                    _ => return None,
                }
            }
            None if node.op_type == "ReduceSum" && reduces(places, node, &[0]) => 2,
            _ => return None,
        };
        let output = std::mem::replace(&mut outputs[place], node.output[0].clone());
        if !output.is_empty() {
            return None;
        }
        replaced.push(reader);
    }
    if outputs[..2].contains(&String::new()) {
        return None;
    }
    if outputs[2].is_empty() {
        outputs.pop();
    }
    let mut input = vec![result.to_owned(), gradient.clone(), hidden.clone(), weight.clone()];
    input.extend_from_slice(bias);
    let node = own(LOG_SUM_EXP_GRADIENT, input, outputs, &product.name, Vec::new());
    Some(Found { node, at: index, replaced })
}

/// Joins each [`LOG_SUM_EXP`] with its gradient, if the gradient that it reads does not depend on
/// the logarithms.
fn with_gradients(graph: &mut GraphProto) {
    for result in outputs_of(graph, LOG_SUM_EXP) {
        let reads = |node: &NodeProto| {
            node.op_type == LOG_SUM_EXP_GRADIENT && node.input.first() == Some(&result)
        };
        let mut of_gradient = graph.node.iter().filter(|node| reads(node));
        let (Some(found), None) = (of_gradient.next(), of_gradient.next()) else { continue };
        if depends_on(graph, &found.input[1], &result) {
            continue;
        }
        graph.node.retain(|node| node.op_type != LOG_SUM_EXP || node.output[0] != result);
        for node in graph.node.iter_mut().filter(|node| reads(node)) {
            node.op_type = LOG_SUM_EXP_WITH_GRADIENT.into();
            node.input.remove(0);
            node.output.insert(0, result.clone());
        }
        elementwise::sort(graph);
    }
}

/// The first output of each node of a type.
fn outputs_of(graph: &GraphProto, operator: &str) -> Vec<String> {
    let nodes = graph.node.iter().filter(|node| node.op_type == operator);
    nodes.map(|node| node.output[0].clone()).collect()
}

/// Whether a tensor is computed from another.
fn depends_on(graph: &GraphProto, tensor: &str, other: &str) -> bool {
    let givers: HashMap<&str, &NodeProto> = graph
        .node
        .iter()
        .flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)))
        .collect();
    let (mut left, mut seen) = (vec![tensor], BTreeSet::new());
    while let Some(tensor) = left.pop() {
        if tensor == other {
            return true;
        }
        if seen.insert(tensor) {
            left.extend(
                givers.get(tensor).into_iter().flat_map(|node| &node.input).map(String::as_str),
            );
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
mod tests {
    use super::*;
    use cognate_export::{Existing, Export, Metadata, write_folder};
    use cognate_graph::{Builder, DType, Dim, Graph, Program, Shape, Tensor, Unary, Weights};
    use cognate_passes::gradient::gradient;
    use insta::assert_snapshot;

    /// The nodes of a graph with our operators.
    fn nodes(graph: Graph) -> Vec<NodeProto> {
        let program = Program::new(graph, Weights::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let graphs = [("0.onnx", &program)];
        let metadata = Metadata::default();
        let export = Export::new(&graphs, "weights.onnx_data", &metadata);
        let path = folder.path().join("graphs");
        write_folder(&path, &export, &[], Existing::Refuse).unwrap();
        let model = cognate_export::read_model(&path.join("0.onnx")).unwrap();
        substitute(model, 1, false).map_or_else(Vec::new, |found| found.model.graph.unwrap().node)
    }

    /// A loss of the logarithms and the logits.
    type Loss = for<'g> fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>;

    /// The custom operators of the gradients of a loss of `ln Σ exp(x Wᵀ + b)`, and some standard ones.
    fn operators(wanted: &[&str], loss: Loss) -> String {
        let builder = Builder::new("loss");
        let input = |name: &str, shape: Shape| builder.input(name, DType::F32, shape);
        let x = input("x", Shape::from([Dim::symbol("rows"), 4.into()]));
        let weight = input("W", Shape::from([9, 4].as_slice()));
        let logits = x.linear(weight, Some(input("b", Shape::from([9].as_slice()))));
        let losses = loss(logits.log_sum_exp(), logits);
        builder.output("loss", losses.sum(&[0, 1]).reshape(Shape::default()));
        let graph = builder.finish().unwrap();
        let graph =
            if wanted.is_empty() { graph } else { gradient(&graph, "loss", wanted).unwrap() };
        let nodes: Vec<String> = nodes(graph)
            .into_iter()
            .filter(|node| node.domain == DOMAIN || ["Exp", "Gemm"].contains(&&*node.op_type))
            .map(|node| format!("{} {} -> {}", node.op_type, node.input.len(), node.output.len()))
            .collect();
        nodes.join("\n")
    }

    /// All nodes, with what is joined in them.
    fn described(graph: Graph) -> String {
        let described = |node: NodeProto| {
            let all = |name: &str| {
                attribute(&node, name).map_or(String::new(), |found| format!(" {:?}", found.ints))
            };
            let [extents, instructions] = [EXTENTS, INSTRUCTIONS].map(all);
            let [given, made] = [node.input.join(" "), node.output.join(" ")];
            format!("{} ({given}) -> {made}{extents}{instructions}", node.op_type)
        };
        nodes(graph).into_iter().map(described).collect::<Vec<_>>().join("\n")
    }

    /// A result that is needed for an operand of another group is an output; operands that are
    /// computed from a group's results are not joined with it.
    #[test]
    fn elementwise_operations_are_joined_where_none_waits_for_another() {
        let builder = Builder::new("groups");
        let input = |name: &str, shape: Shape| builder.input(name, DType::F32, shape);
        let rows = || Dim::symbol("rows");
        let x = input("x", Shape::from([rows(), 4.into()]));
        let column = input("column", Shape::from([4].as_slice()));
        let row = input("row", Shape::from([rows(), 1.into()]));
        let scaled = (x + 1.0) * column - row;
        let sums = scaled.sum(&[1]);
        let centred = (scaled - sums) * 2.0;
        builder.output("y", centred * scaled + x);
        builder.output("total", (sums * 3.0 + 1.0).sum(&[0]));
        assert_snapshot!(described(builder.finish().unwrap()), @r"
        Elementwise (x Constant column row) -> Sub [0, 3, 2, 1] [0, 0, 1, 2, 4, 2, 1, 5, 3]
        ReduceSum (Sub integers.1) -> Sum
        Elementwise (Sub Sum Constant_1 x) -> y [0, 1, 3, 0] [1, 0, 1, 2, 4, 2, 2, 5, 0, 0, 6, 3]
        Elementwise (Sum Constant_2 Constant_3) -> Add_2 [0, 3, 3] [2, 0, 1, 0, 3, 2]
        ReduceSum (Add_2 integers.0) -> total
        ");
    }

    /// What two groups read is computed in both, and not kept between them.
    #[test]
    fn factors_of_dropout_are_computed_where_they_are_read() {
        let builder = Builder::new("dropout");
        let input = |name: &str, shape: Shape| builder.input(name, DType::F32, shape);
        let shape = || Shape::from([Dim::symbol("sentences"), Dim::symbol("tokens"), 6.into()]);
        let rows = Dim::symbol("sentences") * Dim::symbol("tokens");
        let (x, rows) = (input("x", shape()), input("rows", Shape::from([rows, 4.into()])));
        let columns = input("columns", Shape::from([6, 4].as_slice()));
        let numbers = rows.linear(columns, None).reshape(shape());
        let factors = (numbers + 0.25).map(Unary::Floor) * 1.5 - numbers.map(Unary::Floor);
        let dropped = (x + 1.0) * factors;
        builder.output("y", (dropped - dropped.sum(&[2])) * factors);
        assert_snapshot!(described(builder.finish().unwrap()), @r"
        Add (x Constant_2) -> Add_1
        Reshape (Add_1 integers.-1.6) -> Add_1.flat
        Elementwise (rows columns Constant Constant_1 Add_1.flat) -> Mul_1.flat [4, 5, 3, 3, 0] [8, 0, 1, 0, 5, 2, 6, 6, 6, 2, 7, 3, 6, 5, 5, 1, 8, 9, 2, 4, 10]
        ReduceSum (Mul_1.flat integers.1) -> Sum.flat
        Elementwise (Mul_1.flat Sum.flat rows columns Constant Constant_1) -> Mul_2.flat [0, 1, 4, 5, 3, 3] [1, 0, 1, 8, 2, 3, 0, 7, 4, 6, 8, 8, 2, 9, 5, 6, 7, 7, 1, 10, 11, 2, 6, 12]
        Shape (x) -> size.sentences
        Shape (x) -> size.tokens
        Concat (size.sentences size.tokens integers.6) -> shape.sentences.tokens.6
        Reshape (Mul_2.flat shape.sentences.tokens.6) -> y
        ");
    }

    /// What a gradient asks of a result is computed with the gradient.
    #[test]
    fn comparisons_are_computed_where_they_are_read() {
        let builder = Builder::new("rectified");
        let x = builder.input("x", DType::F32, Shape::from([Dim::symbol("rows"), 6.into()]));
        let y = (x + 1.0).map(Unary::Relu);
        let is_above = builder.scalar(1e-9).less_or_equal(y).cast(DType::F32);
        builder.output("z", (x - y.sum(&[1])) * is_above);
        builder.output("same", (x * 2.0) * is_above);
        assert_snapshot!(described(builder.finish().unwrap()), @r"
        Elementwise (x Constant) -> Relu [0, 3] [0, 0, 1, 7, 2, 2]
        ReduceSum (Relu integers.1) -> Sum
        Mul (x Constant_2) -> Mul_1
        Elementwise (x Sum Constant_1 Relu Mul_1) -> z same [0, 1, 3, 0, 0] [1, 0, 1, 4, 2, 3, 2, 5, 6, 2, 4, 6]
        ");
    }

    #[test]
    fn logits_that_only_their_sum_reads_are_not_written() {
        assert_snapshot!(operators(&[], |sums, _| sums), @"LogSumExp 3 -> 1");
        let squares: Loss = |sums, _| sums * sums;
        let of_operands = [&["x", "W"][..], &["x", "W", "b"]];
        assert_snapshot!(of_operands.map(|wanted| operators(wanted, squares)).join("\n"), @r"
        LogSumExp 3 -> 1
        Elementwise 2 -> 1
        LogSumExpGradient 5 -> 2
        LogSumExp 3 -> 1
        Elementwise 2 -> 1
        LogSumExpGradient 5 -> 3
        ");
        // The gradient is known before the logarithms.
        assert_snapshot!(of_operands.map(|wanted| operators(wanted, |sums, _| sums)).join("\n"), @r"
        LogSumExpWithGradient 4 -> 3
        LogSumExpWithGradient 4 -> 4
        ");
        // Of one operand alone, and of logits that something else reads.
        assert_snapshot!(operators(&["x"], |sums, _| sums), @r"
        Product 3 -> 1
        Exp 1 -> 1
        Product 2 -> 1
        ");
        assert_snapshot!(operators(&["x", "W"], |sums, logits| sums + logits), @r"
        Product 3 -> 1
        Exp 1 -> 1
        Elementwise 3 -> 1
        Product 2 -> 1
        Product 2 -> 1
        ");
    }
}
