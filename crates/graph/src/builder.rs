//! The builder: cheap copyable handles whose expressions read like the paper's formulas.
//!
//! Calls never fail. The first error is stored with the scope path where it occurred, later calls
//! do nothing, and [`Builder::finish`] returns it.

use crate::infer::infer;
use crate::{
    Binary, CachedAttention, Class, Conv, DType, Dim, Error, ErrorKind, Graph, Loop, Node, NodeId,
    Op, Output, Ranked, Scalar, Shape, Statistic, Type, Unary,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Add, Div, Mul, Rem, Sub};

/// Builds a graph node by node; see [the crate's example](crate).
#[derive(Debug)]
pub struct Builder {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    graph: Graph,
    /// Scope paths that are entered and not left.
    scopes: Vec<String>,
    /// The node of each declared name, and how often each name was requested.
    declared: HashMap<String, NodeId>,
    used: HashMap<String, usize>,
    error: Option<Error>,
}

impl Builder {
    /// An empty graph called `name`.
    pub fn new(name: &str) -> Self {
        let graph = Graph {
            name: name.into(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            defaults: BTreeMap::new(),
        };
        Self {
            state: RefCell::new(State {
                graph,
                scopes: Vec::new(),
                declared: HashMap::new(),
                used: HashMap::new(),
                error: None,
            }),
        }
    }

    /// A value supplied at every run.
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Tensor<'_> {
        self.declare(name, Op::Input, Type::new(dtype, shape))
    }

    /// An optional input: a scalar with a default.
    pub fn input_or(&self, name: &str, default: Scalar) -> Tensor<'_> {
        self.state.borrow_mut().graph.defaults.insert(name.into(), default);
        self.input(name, default.dtype(), Shape::default())
    }

    /// The top scope, from which parameters and nodes get their paths.
    pub fn root(&self) -> Scope<'_> {
        Scope { builder: self, path: String::new() }
    }

    /// The weight called `path`, of any element type; two calls return the same one.
    /// [`Scope::parameter`] is shorter.
    pub fn parameter(&self, path: &str, ty: Type) -> Tensor<'_> {
        self.declare(path, Op::Parameter, ty)
    }

    /// The operation `op` on `inputs`, as a node called `name`, made unique by a number. Passes
    /// copy nodes with it. Declared values have separate methods.
    pub fn node(&self, name: &str, op: Op, inputs: &[Tensor<'_>]) -> Tensor<'_> {
        self.push_as(|_| name.into(), op, inputs)
    }

    /// A copy of a node of another graph; `value` maps the nodes that it reads.
    pub fn copy<'b>(&'b self, node: &Node, value: impl FnMut(NodeId) -> Tensor<'b>) -> Tensor<'b> {
        if node.op.class() == Class::Declared {
            return self.declare(&node.name, node.op.clone(), node.ty.clone());
        }
        self.node(
            &node.name,
            node.op.clone(),
            &node.inputs.iter().copied().map(value).collect::<Vec<_>>(),
        )
    }

    /// The outputs of a copy of `graph`; `input` returns the values of its inputs.
    pub fn inline<'b>(
        &'b self,
        graph: &Graph,
        mut input: impl FnMut(&Node) -> Tensor<'b>,
    ) -> Vec<Tensor<'b>> {
        let mut values: Vec<Tensor<'b>> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let value =
                if node.op == Op::Input { input(node) } else { self.copy(node, |id| values[id.0]) };
            values.push(value);
        }
        graph.outputs.iter().map(|output| values[output.node.0]).collect()
    }

    /// The carried values after a loop; see [`Loop`]. A size that changes has the name of the body.
    pub fn repeat<'b>(&'b self, repeat: Repeat<'_, 'b>) -> Vec<Tensor<'b>> {
        let Repeat { body, most, condition, carried, captured } = repeat;
        let types: Vec<_> =
            body.inputs().skip(1).take(carried.len()).map(|(_, node)| node.ty.clone()).collect();
        let inputs: Vec<_> = [condition].iter().chain(carried).chain(captured).copied().collect();
        let node =
            self.push(Op::Loop(Box::new(Loop { body, carried: carried.len(), most })), &inputs);
        let result = |(index, ty)| match index {
            0 => node,
            _ => self.push(Op::LoopResult { index, ty: Box::new(ty) }, &[node]),
        };
        types.into_iter().enumerate().map(result).collect()
    }

    /// A constant f32.
    pub fn scalar(&self, value: f32) -> Tensor<'_> {
        self.push(Op::Scalar(Scalar::F32(value)), &[])
    }

    /// A constant i64.
    pub fn integer(&self, value: i64) -> Tensor<'_> {
        self.push(Op::Scalar(Scalar::I64(value)), &[])
    }

    /// Constant integers; i64 `[n]`.
    pub fn integers(&self, values: Vec<i64>) -> Tensor<'_> {
        self.push(Op::Integers(values), &[])
    }

    /// The integers `start..end`; i64 `[end - start]`.
    pub fn range(&self, start: impl Into<Dim>, end: impl Into<Dim>) -> Tensor<'_> {
        self.push(Op::Range { start: start.into(), end: end.into() }, &[])
    }

    /// Declares `tensor` as an output called `name`.
    pub fn output(&self, name: &str, tensor: Tensor<'_>) {
        let mut state = self.state.borrow_mut();
        if state.graph.outputs.iter().any(|output| output.name == name) {
            state.fail(ErrorKind::Grammar, name, "two outputs have this name");
        }
        state.graph.outputs.push(Output { name: name.into(), node: tensor.id });
    }

    /// Records an error of a higher layer at the current scope.
    pub fn fail(&self, message: impl fmt::Display) {
        let mut state = self.state.borrow_mut();
        let place = state.place();
        state.fail(ErrorKind::Type, place, message);
    }

    /// The verified graph, without nodes that no output needs (inputs are kept).
    ///
    /// # Errors
    /// The first error of any call, with the scope path where it occurred, or an error of
    /// [`Graph::verify`].
    pub fn finish(self) -> Result<Graph, Error> {
        let state = self.state.into_inner();
        if let Some(error) = state.error {
            return Err(error);
        }
        let graph = prune(state.graph);
        graph.verify()?;
        Ok(graph)
    }

    fn declare(&self, name: &str, op: Op, ty: Type) -> Tensor<'_> {
        let mut state = self.state.borrow_mut();
        let id = match state.declared.get(name) {
            None => {
                let id = state.append(Node { name: name.into(), op, inputs: Vec::new(), ty });
                state.declared.insert(name.into(), id);
                id
            }
            Some(&id) => {
                let node = &state.graph.nodes[id.0];
                if node.op != op || node.ty != ty {
                    let message = format!("declared as {}, then as {ty}", node.ty);
                    state.fail(ErrorKind::Type, name, message);
                }
                id
            }
        };
        Tensor { builder: self, id }
    }

    fn push(&self, op: Op, inputs: &[Tensor<'_>]) -> Tensor<'_> {
        let name = op.name();
        self.push_as(|state| state.place_of(name), op, inputs)
    }

    fn push_as(
        &self,
        name: impl Fn(&State) -> String,
        op: Op,
        inputs: &[Tensor<'_>],
    ) -> Tensor<'_> {
        let mut state = self.state.borrow_mut();
        if state.error.is_some() {
            return Tensor { builder: self, id: NodeId(0) };
        }
        let ids: Vec<_> = inputs.iter().map(|tensor| tensor.id).collect();
        let types: Vec<_> = ids.iter().map(|id| &state.graph.nodes[id.0].ty).collect();
        let id = match infer(&op, &types) {
            Ok(ty) => {
                let name = name(&state);
                state.append(Node { name, op, inputs: ids, ty })
            }
            Err(message) => {
                let place = name(&state);
                state.fail(ErrorKind::Type, place, message);
                NodeId(0)
            }
        };
        Tensor { builder: self, id }
    }
}

impl State {
    fn place(&self) -> String {
        self.scopes.last().filter(|path| !path.is_empty()).unwrap_or(&self.graph.name).clone()
    }

    fn place_of(&self, op: &str) -> String {
        match self.scopes.last() {
            Some(path) if !path.is_empty() => format!("{path}/{op}"),
            _ => op.into(),
        }
    }

    /// Appends `node` under its name, which is made unique by a number.
    fn append(&mut self, mut node: Node) -> NodeId {
        loop {
            let count = self.used.entry(node.name.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                break;
            }
            node.name = format!("{}_{}", node.name, *count - 1);
        }
        self.graph.nodes.push(node);
        NodeId(self.graph.nodes.len() - 1)
    }

    fn fail(&mut self, kind: ErrorKind, place: impl fmt::Display, message: impl fmt::Display) {
        self.error.get_or_insert_with(|| Error::new(kind, place, message));
    }
}

/// Removes nodes that no output needs.
fn prune(graph: Graph) -> Graph {
    let mut needed: Vec<bool> = graph.nodes.iter().map(|node| node.op == Op::Input).collect();
    for output in &graph.outputs {
        needed[output.node.0] = true;
    }
    let sizes: HashMap<_, _> =
        graph.symbol_sources().into_iter().map(|(symbol, (id, _))| (symbol, id)).collect();
    for index in (0..graph.nodes.len()).rev() {
        if needed[index] {
            let Node { op, ty, .. } = &graph.nodes[index];
            for symbol in op.dims().iter().chain(ty.shape.dims()).flat_map(Dim::symbols) {
                sizes.get(symbol).into_iter().for_each(|source| needed[source.0] = true);
            }
            for input in &graph.nodes[index].inputs {
                needed[input.0] = true;
            }
        }
    }
    let mut moved = vec![NodeId(0); graph.nodes.len()];
    let mut nodes = Vec::new();
    for (index, mut node) in graph.nodes.into_iter().enumerate() {
        if needed[index] {
            moved[index] = NodeId(nodes.len());
            node.inputs.iter_mut().for_each(|input| *input = moved[input.0]);
            nodes.push(node);
        }
    }
    let outputs = graph
        .outputs
        .into_iter()
        .map(|output| Output { node: moved[output.node.0], ..output })
        .collect();
    Graph { name: graph.name, nodes, outputs, defaults: graph.defaults }
}

/// A loop to be added; see [`Builder::repeat`].
#[derive(Debug)]
pub struct Repeat<'a, 'g> {
    /// The body.
    pub body: Graph,
    /// Maximum number of iterations.
    pub most: usize,
    /// Whether the first iteration runs; bool `[]`.
    pub condition: Tensor<'g>,
    /// The first carried values.
    pub carried: &'a [Tensor<'g>],
    /// Values that the body reads.
    pub captured: &'a [Tensor<'g>],
}

/// A path from which parameters and nodes get their names: `decoder.layers.2.fc1`.
#[derive(Clone, Debug)]
pub struct Scope<'g> {
    builder: &'g Builder,
    path: String,
}

impl<'g> Scope<'g> {
    /// The scope `name` inside this one.
    pub fn at(&self, name: impl fmt::Display) -> Scope<'g> {
        Scope { builder: self.builder, path: join(&self.path, name) }
    }

    /// The path, empty at the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The builder.
    pub fn builder(&self) -> &'g Builder {
        self.builder
    }

    /// The weight called `name` in this scope; f32. Two calls return the same one.
    pub fn parameter(&self, name: &str, shape: impl Into<Shape>) -> Tensor<'g> {
        self.builder.declare(&join(&self.path, name), Op::Parameter, Type::new(DType::F32, shape))
    }

    /// New nodes are named after this scope until the guard is dropped.
    #[must_use = "the scope ends when the guard is dropped"]
    pub fn enter(&self) -> ScopeGuard<'g> {
        self.builder.state.borrow_mut().scopes.push(self.path.clone());
        ScopeGuard { builder: self.builder }
    }
}

fn join(path: &str, name: impl fmt::Display) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// Ends a scope when dropped; see [`Scope::enter`].
#[derive(Debug)]
pub struct ScopeGuard<'g> {
    builder: &'g Builder,
}

impl Drop for ScopeGuard<'_> {
    fn drop(&mut self) {
        self.builder.state.borrow_mut().scopes.pop();
    }
}

/// A value of the graph being built.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'g> {
    builder: &'g Builder,
    id: NodeId,
}

impl<'g> Tensor<'g> {
    /// Element type and shape; those of an f32 scalar after an error.
    pub fn ty(self) -> Type {
        let state = self.builder.state.borrow();
        match (&state.error, state.graph.nodes.get(self.id.0)) {
            (None, Some(node)) => node.ty.clone(),
            _ => Type::new(DType::F32, Shape::default()),
        }
    }

    /// The builder.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// The node's id in the builder.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The size of `axis`, counted from the front; 0 after an error.
    pub fn dim(self, axis: usize) -> Dim {
        self.ty().shape.dims().get(axis).cloned().unwrap_or_default()
    }

    /// Matrix product over the last two axes; other axes are broadcast.
    pub fn matmul(self, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::MatMul, &[self, right])
    }

    /// `x Wᵀ + b`: `x: [..., in]`, `weight: [out, in]`, `bias: [out]`.
    pub fn linear(self, weight: Tensor<'g>, bias: Option<Tensor<'g>>) -> Tensor<'g> {
        match bias {
            Some(bias) => self.builder.push(Op::Linear, &[self, weight, bias]),
            None => self.builder.push(Op::Linear, &[self, weight]),
        }
    }

    /// Rows of this table, one for each id.
    pub fn gather(self, ids: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::Gather, &[self, ids])
    }

    /// The same elements under `shape`.
    pub fn reshape(self, shape: impl Into<Shape>) -> Tensor<'g> {
        self.builder.push(Op::Reshape(shape.into()), &[self])
    }

    /// Axes in the given order.
    pub fn transpose(self, order: &[usize]) -> Tensor<'g> {
        self.builder.push(Op::Transpose(order.to_vec()), &[self])
    }

    /// Exchanges the last two axes.
    pub fn t(self) -> Tensor<'g> {
        let rank = self.ty().shape.rank();
        let mut order: Vec<_> = (0..rank).collect();
        if rank >= 2 {
            order.swap(rank - 2, rank - 1);
        }
        self.transpose(&order)
    }

    /// Convolution of `self: [batch, in, ...]` with `weight: [out, in, ...]` and `bias: [out]`; see
    /// [`Conv`].
    pub fn conv(self, weight: Tensor<'g>, bias: Option<Tensor<'g>>, conv: Conv) -> Tensor<'g> {
        self.builder
            .push(Op::Conv(conv), &[self, weight].into_iter().chain(bias).collect::<Vec<_>>())
    }

    /// Softmax along the last axis.
    pub fn softmax(self) -> Tensor<'g> {
        self.builder.push(Op::Softmax, &[self])
    }

    /// `x - ln Σ exp(x)` along the last axis.
    pub fn log_softmax(self) -> Tensor<'g> {
        self.builder.push(Op::LogSoftmax, &[self])
    }

    /// `ln Σ exp(x)` along the last axis, which keeps size 1.
    pub fn log_sum_exp(self) -> Tensor<'g> {
        self.builder.push(Op::LogSumExp, &[self])
    }

    /// `exp(x - max(x))` along the last axis; see [`Op::ShiftedExp`].
    pub fn shifted_exp(self) -> Tensor<'g> {
        self.builder.push(Op::ShiftedExp, &[self])
    }

    /// Sums along axes in increasing order; they keep size 1.
    pub fn sum(self, axes: &[usize]) -> Tensor<'g> {
        self.builder.push(Op::Sum(axes.to_vec()), &[self])
    }

    /// Broadcast to `shape`.
    pub fn expand(self, shape: impl Into<Shape>) -> Tensor<'g> {
        self.builder.push(Op::Expand(shape.into()), &[self])
    }

    /// This table with `updates` added to the rows `ids`.
    pub fn scatter_add(self, ids: Tensor<'g>, updates: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::ScatterAdd, &[self, ids, updates])
    }

    /// Product of two matrices, each optionally transposed; see [`Op::Gemm`].
    pub fn gemm(self, right: Tensor<'g>, transposed: [bool; 2]) -> Tensor<'g> {
        self.builder.push(Op::Gemm { transposed }, &[self, right])
    }

    /// The mean or inverse deviation of each row, as layer normalisation computes it.
    pub fn layer_norm_statistic(self, statistic: Statistic, epsilon: f32) -> Tensor<'g> {
        self.builder.push(Op::LayerNormStatistic { statistic, epsilon }, &[self])
    }

    /// Layer normalisation along the last axis.
    pub fn layer_norm(self, scale: Tensor<'g>, bias: Tensor<'g>, epsilon: f32) -> Tensor<'g> {
        self.builder.push(Op::LayerNorm { epsilon }, &[self, scale, bias])
    }

    /// Normalisation by the root of the mean square, along the last axis.
    pub fn rms_norm(self, scale: Tensor<'g>, epsilon: f32) -> Tensor<'g> {
        self.builder.push(Op::RmsNorm { epsilon }, &[self, scale])
    }

    /// This cache with `new` written at position `at`; see [`Op::CacheWrite`].
    pub fn cache_write(self, new: Tensor<'g>, at: impl Into<Dim>) -> Tensor<'g> {
        self.builder.push(Op::CacheWrite { at: at.into() }, &[self, new])
    }

    /// Attention from this query to caches; see [`CachedAttention`].
    pub fn attend_cached(
        self,
        attention: CachedAttention,
        [keys, values]: [Tensor<'g>; 2],
        beams: Tensor<'g>,
        bias: Option<Tensor<'g>>,
    ) -> Tensor<'g> {
        let inputs: Vec<_> = [self, keys, values, beams].into_iter().chain(bias).collect();
        self.builder.push(Op::CachedAttention(attention), &inputs)
    }

    /// Inclusive cumulative sums along the last axis.
    pub fn cumulative_sum(self) -> Tensor<'g> {
        self.builder.push(Op::CumSum, &[self])
    }

    /// The elements `start..end` of `axis`.
    pub fn slice(self, axis: usize, start: impl Into<Dim>, end: impl Into<Dim>) -> Tensor<'g> {
        self.builder.push(Op::Slice { axis, start: start.into(), end: end.into() }, &[self])
    }

    /// The elements `ids: i64 [..., m]` of the last axis.
    pub fn gather_elements(self, ids: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::GatherElements, &[self, ids])
    }

    /// With `updates` added to the elements `ids` of the last axis.
    pub fn scatter_elements(self, ids: Tensor<'g>, updates: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::ScatterElements, &[self, ids, updates])
    }

    /// The `count` largest elements of the last axis and their positions; see [`Op::TopK`].
    pub fn top_k(self, count: impl Into<Dim>) -> [Tensor<'g>; 2] {
        let count = count.into();
        [Ranked::Values, Ranked::Positions]
            .map(|result| self.builder.push(Op::TopK { count: count.clone(), result }, &[self]))
    }

    /// The integers below this one; their number becomes the size `symbol`; see [`Op::Indices`].
    pub fn indices(self, symbol: &str) -> Tensor<'g> {
        self.builder.push(Op::Indices(symbol.into()), &[self])
    }

    /// A function of the elements of this tensor and another.
    pub fn with(self, function: Binary, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::Binary(function), &[self, right])
    }

    /// A function of each element.
    pub fn map(self, function: Unary) -> Tensor<'g> {
        self.builder.push(Op::Unary(function), &[self])
    }

    /// `self <= right`.
    pub fn less_or_equal(self, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::LessOrEqual, &[self, right])
    }

    /// `self = right`; bool.
    pub fn equal(self, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::Equal, &[self, right])
    }

    /// `left` where this is true, otherwise `right`.
    pub fn select(self, left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::Select, &[self, left, right])
    }

    /// A constant of this tensor's element type; f32 for integers and truth values.
    pub fn number(self, value: f32) -> Tensor<'g> {
        match self.ty().dtype {
            DType::F16 => {
                self.builder.push(Op::Scalar(Scalar::F16(half::f16::from_f32(value))), &[])
            }
            DType::F32 | DType::Bf16 | DType::I8 | DType::U8 | DType::I64 | DType::Bool => {
                self.builder.scalar(value)
            }
        }
    }

    /// The elements converted to `dtype`.
    pub fn cast(self, dtype: DType) -> Tensor<'g> {
        self.builder.push(Op::Cast(dtype), &[self])
    }
}

/// Tensors concatenated along `axis`.
///
/// # Panics
/// If `tensors` is empty.
pub fn concat<'g>(axis: usize, tensors: &[Tensor<'g>]) -> Tensor<'g> {
    tensors[0].builder.push(Op::Concat { axis }, tensors)
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident),*) => {$(
        impl<'g> $trait for Tensor<'g> {
            type Output = Tensor<'g>;
            fn $method(self, right: Tensor<'g>) -> Tensor<'g> {
                self.builder.push(Op::Binary(Binary::$trait), &[self, right])
            }
        }
        impl<'g> $trait<f32> for Tensor<'g> {
            type Output = Tensor<'g>;
            fn $method(self, right: f32) -> Tensor<'g> {
                self.$method(self.number(right))
            }
        }
    )*};
}
arithmetic!(Add add, Sub sub, Mul mul, Div div);

impl<'g> Rem for Tensor<'g> {
    type Output = Tensor<'g>;
    fn rem(self, right: Tensor<'g>) -> Tensor<'g> {
        self.builder.push(Op::Binary(Binary::Rem), &[self, right])
    }
}
