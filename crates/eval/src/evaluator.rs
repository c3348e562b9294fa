//! Evaluates the nodes of a graph.

use crate::error::Cause;
use crate::{Error, Float, Value, cache, choice, conv, ops, parts, quantized, sums};
use cognate_graph::{Bindings, Class, Dim, Graph, Loop, Node, NodeId, Op, Program, Recipe, Scalar};
use ndarray::{ArcArray, Array, IxDyn};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// Evaluates one program in the precision `F`; see [the crate's example](crate).
#[derive(Debug)]
pub struct Evaluator<F> {
    program: Program,
    /// Converted weights by node, from their first use on.
    parameters: Vec<Option<ArcArray<F, IxDyn>>>,
    /// For each node the last node that reads it.
    last_use: Vec<usize>,
    /// Whether a node is a weight that is read in parts from its storage.
    stored: Vec<bool>,
    /// The bodies of loops, by node.
    bodies: BTreeMap<usize, Self>,
    /// The number of threads of a product with a weight.
    threads: NonZeroUsize,
}

impl<F: Precision> Evaluator<F> {
    /// An evaluator for `program`; weights are read at the first run.
    pub fn new(program: &Program) -> Self {
        let graph = program.graph();
        let mut last_use: Vec<_> = (0..graph.nodes().len()).collect();
        for (id, node) in graph.iter() {
            node.inputs.iter().for_each(|input| last_use[input.index()] = id.index());
        }
        graph.outputs().iter().for_each(|output| last_use[output.node.index()] = usize::MAX);
        let mut stored: Vec<_> = graph
            .nodes()
            .iter()
            .map(|node| node.op == Op::Parameter && node.ty.shape.rank() == 2)
            .collect();
        for (_, node) in graph.iter() {
            let whole = node
                .inputs
                .iter()
                .enumerate()
                .filter(|(place, _)| read_in_parts(&node.op) != Some(*place));
            whole.for_each(|(_, input)| stored[input.index()] = false);
        }
        graph.outputs().iter().for_each(|output| stored[output.node.index()] = false);
        let body = |(id, node): (NodeId, &Node)| {
            let Op::Loop(repeat) = &node.op else { return None };
            let body = Program::new(repeat.body.clone(), program.weights().clone())
                .expect("the weights of the whole are there");
            Some((id.index(), Self::new(&body)))
        };
        let bodies = graph.iter().filter_map(body).collect();
        Self {
            program: program.clone(),
            parameters: vec![None; graph.nodes().len()],
            last_use,
            stored,
            bodies,
            threads: NonZeroUsize::MIN,
        }
    }

    /// Uses several threads; the results are equal.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.bodies = self
            .bodies
            .into_iter()
            .map(|(node, body)| (node, body.with_threads(threads)))
            .collect();
        Self { threads, ..self }
    }

    /// Computes every output; `input` returns the inputs by name.
    ///
    /// # Errors
    /// If an input is missing or has the wrong type or shape, or an id is outside its table.
    pub fn run(
        &mut self,
        input: impl Fn(&str) -> Option<Value<F>>,
    ) -> Result<Vec<(String, Value<F>)>, Error> {
        self.run_observed(input, |_, _| {})
    }

    /// As [`Evaluator::run`]; `observe` receives the value of each input and computed node.
    ///
    /// # Errors
    /// As [`Evaluator::run`].
    pub fn run_observed(
        &mut self,
        input: impl Fn(&str) -> Option<Value<F>>,
        mut observe: impl FnMut(&Node, &Value<F>),
    ) -> Result<Vec<(String, Value<F>)>, Error> {
        F::evaluate(self, &input, &mut observe)
    }
}

/// A precision in which the evaluator computes: `f32` or `f64`.
pub trait Precision: Float {
    /// [`Evaluator::run_observed`], compiled for each precision in this crate and not in its
    /// callers.
    #[doc(hidden)]
    fn evaluate(
        evaluator: &mut Evaluator<Self>,
        input: &dyn Fn(&str) -> Option<Value<Self>>,
        observe: &mut dyn FnMut(&Node, &Value<Self>),
    ) -> Result<Vec<(String, Value<Self>)>, Error>;
}

impl Precision for f32 {
    fn evaluate(
        evaluator: &mut Evaluator<Self>,
        input: &dyn Fn(&str) -> Option<Value<Self>>,
        observe: &mut dyn FnMut(&Node, &Value<Self>),
    ) -> Result<Vec<(String, Value<Self>)>, Error> {
        evaluate(evaluator, input, observe)
    }
}

impl Precision for f64 {
    fn evaluate(
        evaluator: &mut Evaluator<Self>,
        input: &dyn Fn(&str) -> Option<Value<Self>>,
        observe: &mut dyn FnMut(&Node, &Value<Self>),
    ) -> Result<Vec<(String, Value<Self>)>, Error> {
        evaluate(evaluator, input, observe)
    }
}

/// The outputs of one run.
fn evaluate<F: Precision>(
    evaluator: &mut Evaluator<F>,
    input: &dyn Fn(&str) -> Option<Value<F>>,
    observe: &mut dyn FnMut(&Node, &Value<F>),
) -> Result<Vec<(String, Value<F>)>, Error> {
    let Evaluator { program, parameters, last_use, stored, bodies, threads } = evaluator;
    let graph = program.graph();
    let default = |name: &str| graph.default_of(name).map(ops::scalar);
    let given: Vec<_> = graph
        .inputs()
        .map(|(id, node)| (id, input(&node.name).or_else(|| default(&node.name))))
        .collect();
    let shape_of = |name: &str| {
        let (_, value) = given.iter().find(|(id, _)| graph.node(*id).name == name)?;
        value.as_ref().map(Value::shape)
    };
    let mut bindings = graph.bind(shape_of)?;
    let mut carried: BTreeMap<NodeId, Vec<Value<F>>> = BTreeMap::new();
    let mut values: Vec<Option<Value<F>>> = vec![None; graph.nodes().len()];
    for (id, value) in &given {
        let value = checked(graph, graph.node(*id), value.clone())?;
        observe(graph.node(*id), &value);
        values[id.index()] = Some(value);
    }
    for (id, node) in graph.iter() {
        let index = id.index();
        if node.op == Op::Input || stored[index] {
            continue;
        }
        let value = if node.op == Op::Parameter {
            Value::Float(parameters[index].get_or_insert_with(|| weight(program, node)).clone())
        } else {
            let value = |input: &NodeId| {
                values[input.index()].as_ref().expect("inputs come before their use")
            };
            let stored = read_in_parts(&node.op)
                .map(|place| node.inputs[place])
                .filter(|weight| stored[weight.index()]);
            let stored = stored.map(|weight| recipe(program, graph.node(weight)));
            let read = || node.inputs.iter().map(value).collect::<Vec<_>>();
            let value = match (stored, node.inputs.as_slice()) {
                (_, [of, ..]) if node.op.class() == Class::Loop => {
                    if let Op::Loop(repeat) = &node.op {
                        let body = bodies.get_mut(&index).expect("each loop has a body");
                        carried.insert(id, iterate(repeat, body, &read())?);
                    }
                    let (of, index) = if let Op::LoopResult { index, .. } = node.op {
                        (of, index)
                    } else {
                        (&id, 0)
                    };
                    carried[of][index].clone()
                }
                (Some(weight), [x, _, bias @ ..]) if node.op == Op::Linear => {
                    parts::linear(value(x), weight, bias.first().map(value), *threads)
                }
                (Some(table), [_, ids]) => parts::gather(table, value(ids))
                    .map_err(|(id, rows)| outside(node, id, rows))?,
                _ => compute(node, &read(), &bindings)?,
            };
            let value = ops::rounded(node.ty.dtype, value);
            if matches!(node.op, Op::Indices(_) | Op::LoopResult { .. }) {
                let dims = node.ty.shape.dims().iter().zip(value.shape());
                for (symbol, &size) in dims.filter_map(|(dim, size)| Some((dim.as_symbol()?, size)))
                {
                    bindings.bind(symbol, size).expect("verified: the same size in all results");
                }
            }
            observe(node, &value);
            value
        };
        values[index] = Some(value);
        for input in &node.inputs {
            if last_use[input.index()] <= index {
                values[input.index()] = None;
            }
        }
    }
    let outputs = graph.outputs().iter();
    Ok(outputs
        .map(|output| {
            (output.name.clone(), values[output.node.index()].clone().expect("outputs are kept"))
        })
        .collect())
}

fn checked<F: Precision>(
    graph: &Graph,
    node: &Node,
    value: Option<Value<F>>,
) -> Result<Value<F>, Error> {
    let value = value.expect("binding has seen every input");
    if value.is(node.ty.dtype) {
        return Ok(ops::rounded(node.ty.dtype, value));
    }
    let found = match value {
        Value::Float(_) => "floating point numbers",
        Value::Int(_) => "integers",
        Value::Bool(_) => "truth values",
    };
    let (graph, input, expected) =
        (graph.name().to_string(), node.name.clone(), node.ty.to_string());
    Err(Cause::InputType { graph, input, expected, found }.into())
}

/// The index of the input of which an operation reads a few rows at a time, if that is a weight.
fn read_in_parts(op: &Op) -> Option<usize> {
    (*op == Op::Linear).then_some(1).or_else(|| (*op == Op::Gather).then_some(0))
}

fn outside(node: &Node, id: i64, rows: usize) -> Error {
    Cause::Id { node: node.name.clone(), id, rows }.into()
}

fn recipe<'p>(program: &'p Program, node: &Node) -> &'p Recipe {
    program.weights().get(&node.name).expect("a program has a weight for each parameter")
}

fn weight<F: Precision>(program: &Program, node: &Node) -> ArcArray<F, IxDyn> {
    let recipe = recipe(program, node);
    Array::from_shape_vec(IxDyn(recipe.shape()), recipe.values())
        .expect("a recipe gives as many values as its shape holds")
        .into_shared()
}

/// The carried values after a loop.
fn iterate<F: Precision>(
    repeat: &Loop,
    body: &mut Evaluator<F>,
    inputs: &[&Value<F>],
) -> Result<Vec<Value<F>>, Error> {
    let holds = |condition: &Value<F>| matches!(condition, Value::Bool(condition) if condition.iter().all(|&holds| holds));
    let names: Vec<String> = repeat.body.inputs().map(|(_, node)| node.name.clone()).collect();
    let mut condition = inputs[0].clone();
    let mut carried: Vec<Value<F>> =
        inputs[1..=repeat.carried].iter().map(|&value| value.clone()).collect();
    for iteration in 0..repeat.most as i64 {
        if !holds(&condition) {
            break;
        }
        let given = |name: &str| match names.iter().position(|known| known == name)? {
            0 => Some(ops::scalar(Scalar::I64(iteration))),
            index => Some(carried.get(index - 1).unwrap_or_else(|| inputs[index]).clone()),
        };
        let mut next = body.run(given)?.into_iter().map(|(_, value)| value);
        condition = next.next().expect("verified: the condition");
        carried = next.collect();
    }
    Ok(carried)
}

/// The value of one node: one function per operation.
fn compute<F: Precision>(
    node: &Node,
    inputs: &[&Value<F>],
    bindings: &Bindings,
) -> Result<Value<F>, Error> {
    let size = |dim: &Dim| -> Result<usize, Error> {
        let size = dim.evaluate(bindings).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| Cause::Size { node: node.name.clone(), dim: dim.to_string() }.into())
    };
    Ok(match &node.op {
        Op::Input | Op::Parameter => unreachable!("declared values are not computed"),
        Op::Loop(_) | Op::LoopResult { .. } => unreachable!("loops are not computed by themselves"),
        Op::Indices(_) => ops::indices(inputs[0]),
        Op::Scalar(value) => ops::scalar(*value),
        Op::Integers(values) => ops::integers(values),
        Op::Range { start, end } => ops::range(size(start)?, size(end)?),
        Op::Unary(function) => ops::unary(*function, inputs[0]),
        Op::Binary(function) => ops::binary(*function, inputs[0], inputs[1]),
        Op::LessOrEqual => ops::less_or_equal(inputs[0], inputs[1]),
        Op::Equal => ops::equal(inputs[0], inputs[1]),
        Op::Select => ops::select(inputs[0], inputs[1], inputs[2]),
        Op::Cast(dtype) => ops::cast(*dtype, inputs[0]),
        Op::Gather => {
            ops::gather(inputs[0], inputs[1]).map_err(|(id, rows)| outside(node, id, rows))?
        }
        Op::GatherElements => choice::gather_elements(inputs[0], inputs[1])
            .map_err(|(id, rows)| outside(node, id, rows))?,
        Op::ScatterElements => choice::scatter_elements(inputs[0], inputs[1], inputs[2])
            .map_err(|(id, rows)| outside(node, id, rows))?,
        Op::TopK { count, result } => {
            let (count, width) = (size(count)?, inputs[0].shape()[inputs[0].shape().len() - 1]);
            if count > width {
                return Err(Cause::Slice {
                    node: node.name.clone(),
                    start: 0,
                    end: count,
                    len: width,
                }
                .into());
            }
            choice::top_k(count, *result, inputs[0])
        }
        Op::MatMul => ops::matmul(inputs[0], inputs[1]),
        Op::Linear => ops::linear(inputs[0], inputs[1], inputs.get(2).copied()),
        Op::Reshape(shape) => {
            ops::reshape(inputs[0], &shape.dims().iter().map(size).collect::<Result<Vec<_>, _>>()?)
        }
        Op::Transpose(order) => ops::transpose(inputs[0], order),
        Op::Concat { axis } => ops::concat(*axis, inputs),
        Op::Slice { axis, start, end } => {
            let (start, end, len) = (size(start)?, size(end)?, inputs[0].shape()[*axis]);
            if start > end || end > len {
                return Err(Cause::Slice { node: node.name.clone(), start, end, len }.into());
            }
            ops::slice(inputs[0], *axis, start, end)
        }
        Op::CumSum => ops::cumulative_sum(inputs[0]),
        Op::Sum(axes) => sums::sum(axes, inputs[0]),
        Op::Expand(shape) => {
            let sizes = shape.dims().iter().map(size).collect::<Result<Vec<_>, _>>()?;
            sums::expand(inputs[0], &sizes)
                .ok_or_else(|| Cause::Size { node: node.name.clone(), dim: shape.to_string() })?
        }
        Op::ScatterAdd => sums::scatter_add(inputs[0], inputs[1], inputs[2])
            .map_err(|(id, rows)| outside(node, id, rows))?,
        Op::Gemm { transposed } => sums::gemm(*transposed, inputs[0], inputs[1]),
        Op::Conv(conv) => {
            let sizes =
                node.ty.shape.dims()[2..].iter().map(size).collect::<Result<Vec<_>, _>>()?;
            conv::conv(conv, &sizes, inputs)
        }
        Op::Softmax => ops::softmax(inputs[0]),
        Op::LogSoftmax => sums::log_softmax(inputs[0]),
        Op::LogSumExp => sums::log_sum_exp(inputs[0]),
        Op::ShiftedExp => sums::shifted_exp(inputs[0]),
        Op::LayerNorm { epsilon } => ops::layer_norm(inputs[0], inputs[1], inputs[2], *epsilon),
        Op::LayerNormStatistic { statistic, epsilon } => {
            sums::layer_norm_statistic(*statistic, inputs[0], *epsilon)
        }
        Op::RmsNorm { epsilon } => ops::rms_norm(inputs[0], inputs[1], *epsilon),
        Op::QuantizedLinear(steps) => {
            quantized::linear(*steps, inputs[0], inputs[1], inputs[2], inputs.get(3).copied())
        }
        Op::BlockLinear(blocks) => quantized::block_linear(
            *blocks,
            inputs[0],
            inputs[1],
            inputs[2],
            inputs.get(3).copied(),
        ),
        Op::LargestMagnitude => quantized::largest_magnitude(inputs[0]),
        Op::CacheWrite { at } => {
            let (at, len) = (size(at)?, inputs[0].shape()[2]);
            if at >= len {
                return Err(
                    Cause::Slice { node: node.name.clone(), start: at, end: at + 1, len }.into()
                );
            }
            cache::write(inputs[0], inputs[1], at)
        }
        Op::CachedAttention(attention) => {
            let (past, len) = (inputs[3].shape()[2], inputs[1].shape()[2]);
            if past >= len {
                return Err(
                    Cause::Slice { node: node.name.clone(), start: 0, end: past + 1, len }.into()
                );
            }
            let caches = [inputs[0], inputs[1], inputs[2]];
            cache::attend(attention, caches, inputs[3], inputs.get(4).copied())
                .map_err(|(id, rows)| outside(node, id, rows))?
        }
    })
}
