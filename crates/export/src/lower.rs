//! Lowers a graph to an ONNX graph of standard operators.
//!
//! A match over [`Op`] lowers each operation. `forms` tracks the tensors that contain each value's
//! elements, so that rows stay flat from one `Gemm` to the next, and `sizes` computes symbolic
//! sizes from the inputs' shapes.
//!
//! A tensor with the name of a node has that node's value in the graph's shape; `NAME.flat` has the
//! same elements as `[rows, width]`, `NAME.read` in the shape in which they are read.

mod caches;
mod contrib;
mod emit;
mod forms;
mod quantized;
mod repeat;
mod sizes;
mod sums;

use crate::Error;
use crate::error::Problem;
use crate::proto::{DataType, GraphProto, TensorProto};
use cognate_graph::{
    Binary, Class, DType, Dim, Graph, Node, NodeId, Op, Scalar, Shape, Symbol, Type,
};
use contrib::Pending;
use emit::{Attribute, Names, value_info};
use forms::{Form, RowsOf};
use repeat::Outside;
use std::collections::{BTreeMap, HashMap, HashSet};
use sums::Statistics;

/// The version of ONNX's operator set that lowering uses.
pub const OPSET: i64 = 18;

/// The engines that a graph is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// All engines: standard operators only.
    #[default]
    Portable,
    /// Only ONNX Runtime: its contrib operators (`com.microsoft`) if they are faster or have no
    /// standard equivalent.
    Ort,
}

/// The domain of ONNX Runtime's contrib operators.
pub(crate) const CONTRIB: &str = "com.microsoft";

/// Returns the ONNX graph without parameters, which the writer adds. The graph is valid, since it
/// is verified when built.
pub(crate) fn lower(graph: &Graph, target: Target) -> Result<GraphProto, Error> {
    let expanded =
        if target == Target::Ort { caches::expanded(graph).map_err(Problem::from)? } else { None };
    let mut lowering = Lowering::new(expanded.as_ref().unwrap_or(graph), target)?;
    lower_nodes(&mut lowering)?;
    Ok(lowering.made)
}

fn lower_nodes(lowering: &mut Lowering<'_>) -> Result<(), Error> {
    let outputs: HashSet<NodeId> =
        lowering.graph.outputs().iter().map(|output| output.node).collect();
    for (id, node) in lowering.graph.iter() {
        lowering.node(id, node)?;
        // Other reshapes are done where they are read.
        if matches!(node.op, Op::Reshape(_)) && outputs.contains(&id) {
            lowering.value(id)?;
        }
    }
    lowering.outputs()
}

/// ONNX's number of an element type.
pub(crate) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F32 => DataType::Float,
        DType::F16 => DataType::Float16,
        DType::Bf16 => DataType::Bfloat16,
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
        DType::I64 => DataType::Int64,
        DType::Bool => DataType::Bool,
    }
}

struct Lowering<'g> {
    graph: &'g Graph,
    target: Target,
    symbols: BTreeMap<Symbol, (NodeId, usize)>,
    /// Names of outputs for a node's elements under a shape, by the node before all reshapes.
    titles: HashMap<(NodeId, &'g Shape), &'g str>,
    titled: HashSet<&'g str>,
    /// The index in `elements` of each node.
    elements_of: Vec<usize>,
    /// Tensors with the same elements, row by row, under different shapes.
    elements: Vec<Vec<Form>>,
    /// Tensors created so far, by content.
    sizes: HashMap<Dim, String>,
    scalars: HashMap<Dim, String>,
    shapes: HashMap<Shape, String>,
    integers: HashMap<Vec<i64>, String>,
    /// The maximum magnitude of each row, by the rows, and whether zero is replaced by
    /// a small number.
    magnitudes: HashMap<(RowsOf, bool), String>,
    /// Results of normalisations that other nodes use.
    statistics: Statistics,
    /// `exp(x - max(x))`, its shape and `max(x)`, by the rows.
    exponentials: HashMap<RowsOf, (String, Shape, String)>,
    /// Caches that attention writes, and its other inputs.
    caches: Pending,
    /// For a loop's body: the graph around it.
    outside: Option<Outside>,
    /// For a loop's body: the nodes that are computed before the loop, and whether new nodes belong
    /// there.
    before: GraphProto,
    is_before: bool,
    /// For a loop's body: the inputs that have names in the graph around it.
    inputs: HashMap<NodeId, String>,
    /// Results of a TopK for nodes that follow.
    ranked: HashMap<NodeId, String>,
    /// The results of loops, by the loop.
    results: HashMap<NodeId, Vec<String>>,
    /// Constants by their bits.
    numbers: HashMap<u32, String>,
    node_names: Names,
    tensor_names: Names,
    made: GraphProto,
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, target: Target) -> Result<Self, Error> {
        let mut titles = HashMap::new();
        for output in graph.outputs() {
            let root = before_reshapes(graph, output.node);
            if !matches!(
                graph.node(output.node).op,
                Op::Input | Op::Parameter | Op::Scalar(_) | Op::Integers(_)
            ) {
                titles
                    .entry((root, &graph.node(output.node).ty.shape))
                    .or_insert(output.name.as_str());
            }
        }
        Ok(Self {
            graph,
            target,
            symbols: graph.symbol_sources(),
            titles,
            titled: HashSet::new(),
            elements_of: Vec::new(),
            elements: Vec::new(),
            sizes: HashMap::new(),
            scalars: HashMap::new(),
            shapes: HashMap::new(),
            integers: HashMap::new(),
            numbers: HashMap::new(),
            magnitudes: HashMap::new(),
            statistics: Statistics::of(graph),
            exponentials: HashMap::new(),
            caches: Pending::default(),
            outside: None,
            before: GraphProto::default(),
            is_before: false,
            inputs: HashMap::new(),
            ranked: HashMap::new(),
            results: HashMap::new(),
            node_names: Names::of_given(graph),
            tensor_names: Names::of_interface(graph)?,
            made: GraphProto {
                name: graph.name().into(),
                output: graph
                    .outputs()
                    .iter()
                    .map(|output| value_info(&output.name, &graph.node(output.node).ty))
                    .collect(),
                ..GraphProto::default()
            },
        })
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Result<(), Error> {
        let axis = |axis: i64| Attribute::Int("axis", axis);
        match &node.op {
            Op::Input if self.inputs.contains_key(&id) => {
                self.declare(node, self.inputs[&id].clone())
            }
            // The number of the iteration.
            Op::Input if self.made.input.iter().any(|known| known.name == node.name) => {
                self.declare(node, node.name.clone())
            }
            Op::Input => {
                let info = value_info(&node.name, &node.ty);
                self.made.input.push(info);
                if let Some(default) = self.graph.default_of(&node.name) {
                    let data_type = data_type(default.dtype()).into();
                    let raw_data = Some(bytes(default).into());
                    let tensor = TensorProto {
                        name: node.name.clone(),
                        data_type,
                        raw_data,
                        ..TensorProto::default()
                    };
                    self.made.initializer.push(tensor);
                }
                self.declare(node, node.name.clone());
            }
            Op::Parameter => self.declare(node, node.name.clone()),
            Op::Scalar(value) => {
                let tensor = self.initializer(&node.name, node.ty.dtype, &[], bytes(*value));
                self.declare(node, tensor);
            }
            Op::Integers(values) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let tensor =
                    self.initializer(&node.name, DType::I64, &[values.len() as i64], bytes);
                self.declare(node, tensor);
            }
            Op::Range { start, end } => {
                let inputs = vec![self.scalar(start), self.scalar(end), self.scalar(&Dim::from(1))];
                self.define(id, &node.ty.shape, "Range", inputs, &[]);
            }
            // tract 0.23.9 replaces it by a square, which it supports for floats only.
            Op::Binary(Binary::Mul)
                if node.ty.dtype == DType::I64
                    && is_same(self.graph, node.inputs[0], node.inputs[1]) =>
            {
                let x = self.value(node.inputs[0])?;
                let negative = self.emit_between(
                    "Neg",
                    &format!("{}.negative", node.name),
                    vec![x.clone()],
                    &[],
                    &node.ty,
                );
                let product = self.emit_between(
                    "Mul",
                    &format!("{}.product", node.name),
                    vec![x, negative],
                    &[],
                    &node.ty,
                );
                self.define(id, &node.ty.shape, "Neg", vec![product], &[]);
            }
            Op::Indices(_) => {
                let inputs = vec![
                    self.scalar(&Dim::from(0)),
                    self.value(node.inputs[0])?,
                    self.scalar(&Dim::from(1)),
                ];
                self.define(id, &node.ty.shape, "Range", inputs, &[]);
            }
            Op::Unary(_) | Op::Binary(_) | Op::LessOrEqual | Op::Equal | Op::Select => {
                self.by_rows(id, &[])?
            }
            // For layers that read rows.
            Op::Cast(dtype @ DType::Bf16) => {
                let shape = rows(&node.ty.shape);
                let x = self.form(node.inputs[0], &shape)?;
                self.define(
                    id,
                    &shape,
                    "Cast",
                    vec![x],
                    &[Attribute::Int("to", data_type(*dtype) as i64)],
                );
            }
            Op::Cast(dtype) => {
                self.by_rows(id, &[Attribute::Int("to", data_type(*dtype) as i64)])?
            }
            Op::Softmax | Op::LogSoftmax => self.by_rows(id, &[axis(-1)])?,
            // ONNX's reference evaluator counts axes from the front.
            Op::GatherElements => self.whole(id, &[axis(node.ty.shape.rank() as i64 - 1)])?,
            Op::ScatterElements => self.whole(
                id,
                &[axis(node.ty.shape.rank() as i64 - 1), Attribute::Text("reduction", "add")],
            )?,
            Op::TopK { count, result } => self.top_k(id, node, count, *result)?,
            Op::LayerNorm { epsilon } => {
                let (shape, inputs) = self.rows_of_inputs(id)?;
                self.define(
                    id,
                    &shape,
                    "LayerNormalization",
                    inputs,
                    &[axis(-1), Attribute::Float("epsilon", *epsilon)],
                );
                self.give_statistics(node, *epsilon, &shape);
            }
            Op::LayerNormStatistic { statistic, epsilon } => {
                self.layer_norm_statistic(id, node, *statistic, *epsilon)?
            }
            Op::Sum(axes) => self.sum(id, node, axes)?,
            Op::Expand(shape) => self.expand(id, node, shape)?,
            Op::ScatterAdd => self.scatter_add(id, node)?,
            Op::Gemm { transposed } => {
                let turns =
                    ["transA", "transB"].into_iter().zip(transposed).filter(|(_, turned)| **turned);
                let attributes: Vec<_> = turns.map(|(name, _)| Attribute::Int(name, 1)).collect();
                self.whole(id, &attributes)?;
            }
            Op::Conv(conv) => {
                let ints = |values: &mut dyn Iterator<Item = &usize>| {
                    values.map(|&value| value as i64).collect()
                };
                let (strides, pads) =
                    (ints(&mut conv.strides.iter()), ints(&mut conv.pads.iter().chain(&conv.pads)));
                // Dilations of 1 are the default, which rten 0.27 does not know.
                let dilations = vec![1; conv.strides.len()];
                let attributes = [("dilations", dilations), ("strides", strides), ("pads", pads)];
                self.whole(id, &attributes.map(|(name, values)| Attribute::Ints(name, values)))?;
            }
            Op::LogSumExp => self.log_sum_exp(id, node)?,
            Op::ShiftedExp => {
                let (tensor, shape, _) = self.exponentials(node)?;
                self.declare_form(shape, tensor);
            }
            Op::RmsNorm { epsilon } => self.rms_norm(id, node, *epsilon)?,
            Op::Slice { axis, start, end } => {
                let x = node.inputs[0];
                let (from, to) = self.shapes_of_slice(id, *axis);
                let mut inputs = vec![self.form(x, &from)?, self.size(start), self.size(end)];
                inputs.push(
                    self.integers(&[from.rank() as i64 - (node.ty.shape.rank() - axis) as i64]),
                );
                self.define(id, &to, "Slice", inputs, &[]);
            }
            Op::CumSum => {
                let inputs = vec![
                    self.value(node.inputs[0])?,
                    self.scalar(&Dim::from(node.ty.shape.rank() - 1)),
                ];
                self.define(id, &node.ty.shape, "CumSum", inputs, &[]);
            }
            Op::Gather => self.whole(id, &[axis(0)])?,
            Op::MatMul => self.whole(id, &[])?,
            Op::Transpose(order) => {
                let order = order.iter().map(|&axis| axis as i64).collect();
                self.whole(id, &[Attribute::Ints("perm", order)])?;
            }
            Op::Concat { axis: along } => self.whole(id, &[axis(*along as i64)])?,
            Op::Linear => {
                // Gemm reads the weight as stored; MatMul would need it transposed.
                let x = node.inputs[0];
                let mut inputs = vec![self.form(x, &rows(&self.graph.node(x).ty.shape))?];
                for &parameter in &node.inputs[1..] {
                    inputs.push(self.value(parameter)?);
                }
                let (shape, transposed) = (rows(&node.ty.shape), [Attribute::Int("transB", 1)]);
                // tract 0.23.9 converts the bias of an f16 Gemm to f32 and then rejects the node,
                // so the sum is a separate node.
                match (node.ty.dtype, inputs.as_slice()) {
                    (DType::F16, [x, weight, bias]) => {
                        let (factors, bias, full) = (
                            vec![x.clone(), weight.clone()],
                            bias.clone(),
                            Type::new(DType::F16, shape.clone()),
                        );
                        let product = self.emit_between(
                            "Gemm",
                            &format!("{}.product", node.name),
                            factors,
                            &transposed,
                            &full,
                        );
                        self.define(id, &shape, "Add", vec![product, bias], &[]);
                    }
                    _ => self.define(id, &shape, "Gemm", inputs, &transposed),
                }
            }
            Op::QuantizedLinear(steps) => self.quantized_linear(id, node, *steps)?,
            Op::BlockLinear(blocks) => self.block_linear(id, node, *blocks)?,
            Op::LargestMagnitude => self.largest_magnitude(id, node)?,
            Op::CacheWrite { at } => self.cache_write(id, node, at)?,
            Op::CachedAttention(attention) => self.cached_attention(id, node, attention)?,
            Op::Loop(repeat) => self.repeat(id, node, repeat)?,
            Op::LoopResult { index, .. } => {
                let tensor = self.results[&node.inputs[0]][*index].clone();
                self.declare(node, tensor);
            }
            Op::Reshape(_) => self.elements_of.push(self.elements_of[node.inputs[0].index()]),
        }
        Ok(())
    }

    /// Lowers an operation on tensors in the graph's shapes.
    fn whole(&mut self, id: NodeId, attributes: &[Attribute]) -> Result<(), Error> {
        let node = self.graph.node(id);
        let inputs =
            node.inputs.iter().map(|&input| self.value(input)).collect::<Result<_, _>>()?;
        self.define(id, &node.ty.shape, node.op.name(), inputs, attributes);
        Ok(())
    }

    /// Lowers an operation that acts on each row, on flat tensors if one is available.
    fn by_rows(&mut self, id: NodeId, attributes: &[Attribute]) -> Result<(), Error> {
        let (shape, inputs) = self.rows_of_inputs(id)?;
        self.define(id, &shape, self.graph.node(id).op.name(), inputs, attributes);
        Ok(())
    }

    /// Returns the best shape for an operation on rows, and its inputs in that shape.
    fn rows_of_inputs(&mut self, id: NodeId) -> Result<(Shape, Vec<String>), Error> {
        let graph = self.graph;
        let node = graph.node(id);
        let own = &node.ty.shape;
        let shape_of = |input: &NodeId| &graph.node(*input).ty.shape;
        let flat = rows(own);
        let is_flexible = |shape: &Shape| shape == own || is_column_of(shape, own);
        let allowed = own.rank() > 2
            && node
                .inputs
                .iter()
                .all(|input| is_flexible(shape_of(input)) || is_row(shape_of(input)));
        let wanted =
            node.inputs.iter().any(|&input| self.has(input, &flat) && !self.has(input, own));
        let shape = if allowed && wanted { &flat } else { own };
        let mut inputs = Vec::new();
        for input in &node.inputs {
            let given = shape_of(input);
            let as_rows = shape == &flat && is_flexible(given);
            inputs.push(if as_rows {
                self.form(*input, &rows(given))?
            } else {
                self.value(*input)?
            });
        }
        Ok((shape.clone(), inputs))
    }

    /// Returns the best shapes for a slice, before and after. Columns are sliced in the only shape
    /// in which they are read, or in flat rows.
    fn shapes_of_slice(&self, id: NodeId, axis: usize) -> (Shape, Shape) {
        let node = self.graph.node(id);
        let (own, x) = (&node.ty.shape, node.inputs[0]);
        let whole = &self.graph.node(x).ty.shape;
        let of_columns = axis > 0 && axis + 1 == own.rank();
        if !of_columns || !self.has(x, &rows(whole)) || self.has(x, whole) {
            return (whole.clone(), own.clone());
        }
        let mut readers =
            self.graph.nodes().iter().filter(|reader| reader.inputs.contains(&id)).map(|reader| {
                let Op::Reshape(shape) = &reader.op else { return None };
                (shape.dims().last() == own.dims().last()).then_some(shape)
            });
        let read =
            readers.next().flatten().filter(|shape| readers.all(|other| other == Some(shape)));
        match read {
            Some(read) => {
                let mut dims = read.dims().to_vec();
                dims.pop();
                dims.extend(whole.dims().last().cloned());
                (dims.into(), read.clone())
            }
            None => (rows(whole), rows(own)),
        }
    }

    /// `x / sqrt(mean(x²) + epsilon) · scale`, in basic operators: RMSNormalization is in opset 23,
    /// which few engines support. ONNX Runtime fuses this form. Squares and epsilon exceed the
    /// range of f16, so intermediate values are f32.
    fn rms_norm(&mut self, id: NodeId, node: &Node, epsilon: f32) -> Result<(), Error> {
        let (shape, inputs) = self.rows_of_inputs(id)?;
        let [x, scale] = inputs.as_slice() else { unreachable!("verified: x and scale") };
        let part = |what: &str| format!("{}.{what}", node.name);
        let is_half = node.ty.dtype == DType::F16;
        let to = |dtype| [Attribute::Int("to", data_type(dtype) as i64)];
        let x = match is_half {
            true => self.emit_between(
                "Cast",
                &part("single"),
                vec![x.clone()],
                &to(DType::F32),
                &Type::new(DType::F32, shape.clone()),
            ),
            false => x.clone(),
        };
        let full = Type::new(DType::F32, shape.clone());
        let mut dims = shape.dims().to_vec();
        if let Some(width) = dims.last_mut() {
            *width = Dim::from(1);
        }
        let mean = Type::new(DType::F32, dims);
        let (two, epsilon, last_axis) =
            (self.number(2.0), self.number(epsilon), self.integers(&[-1]));
        let square = self.emit_between("Pow", &part("square"), vec![x.clone(), two], &[], &full);
        let keep = [Attribute::Int("keepdims", 1)];
        let mean_square =
            self.emit_between("ReduceMean", &part("mean"), vec![square, last_axis], &keep, &mean);
        let shifted =
            self.emit_between("Add", &part("shifted"), vec![mean_square, epsilon], &[], &mean);
        let root = self.emit_between("Sqrt", &part("root"), vec![shifted], &[], &mean);
        let mut unit = self.emit_between("Div", &part("unit"), vec![x, root], &[], &full);
        if is_half {
            let half = Type::new(DType::F16, shape.clone());
            unit = self.emit_between("Cast", &part("half"), vec![unit], &to(DType::F16), &half);
        }
        self.define(id, &shape, "Mul", vec![unit, scale.clone()], &[]);
        Ok(())
    }

    /// Names the tensor of every output.
    fn outputs(&mut self) -> Result<(), Error> {
        self.no_cache_is_left()?;
        for output in self.graph.outputs() {
            let tensor = self.value(output.node)?;
            if tensor != output.name {
                // An input, a weight, or a value that already has another output's name.
                let node = self.node_names.fresh(&output.name);
                self.emit("Identity", node, output.name.clone(), vec![tensor], &[]);
            }
        }
        let outputs: Vec<_> =
            self.graph.outputs().iter().map(|output| output.name.as_str()).collect();
        self.made.value_info.retain(|info| !outputs.contains(&info.name.as_str()));
        Ok(())
    }
}

fn bytes(value: Scalar) -> Vec<u8> {
    match value {
        Scalar::F32(value) => value.to_le_bytes().to_vec(),
        Scalar::F16(value) => value.to_le_bytes().to_vec(),
        Scalar::I64(value) => value.to_le_bytes().to_vec(),
    }
}

/// The node that computes the elements of `id`.
fn before_reshapes(graph: &Graph, mut id: NodeId) -> NodeId {
    while let Op::Reshape(_) = graph.node(id).op {
        id = graph.node(id).inputs[0];
    }
    id
}

/// The shape of the elements as a matrix: `[rows, width]`.
fn rows(shape: &Shape) -> Shape {
    match shape.dims() {
        [] => [1, 1].into(),
        [leading @ .., width] => {
            [leading.iter().collect::<Shape>().elements(), width.clone()].into()
        }
    }
}

/// Whether each row of `full` is combined with one value: `[..., 1]`.
fn is_column_of(shape: &Shape, full: &Shape) -> bool {
    match (shape.dims(), full.dims()) {
        ([leading @ .., last], [full_leading @ .., _]) => {
            leading == full_leading && *last == Dim::from(1)
        }
        _ => false,
    }
}

/// Whether every row is combined with the same values: `[]`, `[width]` or `[1, width]`.
fn is_row(shape: &Shape) -> bool {
    match shape.dims() {
        [] | [_] => true,
        [first, _] => *first == Dim::from(1),
        _ => false,
    }
}

/// Whether two nodes compute the same value: engines that merge such nodes treat them as one.
fn is_same(graph: &Graph, one: NodeId, other: NodeId) -> bool {
    let (left, right) = (graph.node(one), graph.node(other));
    let computed = left.op.class() != Class::Declared
        && left.op == right.op
        && left.inputs.len() == right.inputs.len();
    one == other
        || computed
            && left
                .inputs
                .iter()
                .zip(&right.inputs)
                .all(|(&one, &other)| is_same(graph, one, other))
}
