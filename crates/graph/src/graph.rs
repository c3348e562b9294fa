//! Graphs: nodes in the order of evaluation, with named inputs and outputs.

use crate::{Bindings, Error, ErrorKind, Op, Scalar, Symbol, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The position of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// The position in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// One value of a graph: an operation, its inputs, and the type of its output.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique in the graph: an input's name, a parameter's path, or scope path and operation, such
    /// as `encoder.layers.0.fc1/Linear`.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// The nodes that it reads, all earlier in the graph.
    pub inputs: Vec<NodeId>,
    /// Element type and shape of the value.
    pub ty: Type,
}

/// A named result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The name that callers use.
    pub name: String,
    /// The value.
    pub node: NodeId,
}

/// A function of named inputs and parameters, as a list of [`Node`]s in the order of evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<Output>,
    /// Default values of optional inputs.
    pub(crate) defaults: BTreeMap<String, Scalar>,
}

impl Graph {
    /// The graph's name, such as `encoder`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every node; each reads only earlier ones.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node at `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// Nodes with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index), node))
    }

    /// The inputs, in the order of declaration.
    pub fn inputs(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.iter().filter(|(_, node)| node.op == Op::Input)
    }

    /// The default value of an optional input.
    pub fn default_of(&self, input: &str) -> Option<Scalar> {
        self.defaults.get(input).copied()
    }

    /// The parameters, including those of the bodies of loops, each path once, in the order of
    /// first use.
    pub fn all_parameters(&self) -> Vec<&Node> {
        let mut seen = BTreeSet::new();
        let mut parameters = Vec::new();
        for node in &self.nodes {
            if node.op == Op::Parameter {
                parameters.push(node);
            } else if let Op::Loop(repeat) = &node.op {
                parameters.extend(repeat.body.all_parameters());
            }
        }
        parameters.retain(|node| seen.insert(&node.name));
        parameters
    }

    /// The parameters, in the order of first use.
    pub fn parameters(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.iter().filter(|(_, node)| node.op == Op::Parameter)
    }

    /// The outputs, in the order of declaration.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The value of the output called `name`.
    pub fn output(&self, name: &str) -> Option<&Node> {
        let output = self.outputs.iter().find(|output| output.name == name)?;
        Some(self.node(output.node))
    }

    /// The source of each symbol at run time: the first input axis whose size is that symbol alone,
    /// or otherwise [linear](crate::Dim::as_linear) in it, or the node that defines it.
    pub fn symbol_sources(&self) -> BTreeMap<Symbol, (NodeId, usize)> {
        let axes = || {
            self.inputs().flat_map(|(id, node)| {
                node.ty.shape.dims().iter().enumerate().map(move |(axis, dim)| (dim, (id, axis)))
            })
        };
        let plain = axes().filter_map(|(dim, place)| Some((dim.as_symbol()?, place)));
        let mut sources = BTreeMap::new();
        for (symbol, place) in
            plain.chain(axes().filter_map(|(dim, place)| Some((dim.as_linear()?.symbol, place))))
        {
            sources.entry(symbol.clone()).or_insert(place);
        }
        for (id, node) in self.iter() {
            let dims = match &node.op {
                Op::Indices(_) | Op::LoopResult { .. } => node.ty.shape.dims(),
                _ => &[],
            };
            for (axis, symbol) in
                dims.iter().enumerate().filter_map(|(axis, dim)| Some((axis, dim.as_symbol()?)))
            {
                sources.entry(symbol.clone()).or_insert((id, axis));
            }
        }
        sources
    }

    /// The sizes of all symbols, from the inputs' shapes.
    ///
    /// # Errors
    /// If the rank or a size of an input contradicts the graph or another input; the error names
    /// it.
    pub fn bind<'a>(
        &self,
        shape_of: impl Fn(&str) -> Option<&'a [usize]>,
    ) -> Result<Bindings, Error> {
        let mut bindings = Bindings::default();
        let mut shapes = Vec::new();
        for (_, node) in self.inputs() {
            let wrong = |message: String| {
                Error::new(ErrorKind::Input, format!("{}: input {}", self.name, node.name), message)
            };
            let found = shape_of(&node.name)
                .ok_or_else(|| wrong(format!("expected {}, found nothing", node.ty)))?;
            let dims = node.ty.shape.dims();
            if found.len() != dims.len() {
                return Err(wrong(format!("expected {}, found {found:?}", node.ty.shape)));
            }
            for (dim, &size) in dims.iter().zip(found) {
                // Sizes without a solution are rejected below.
                if let Some(linear) = dim.as_linear()
                    && let Some(value) = linear.solve(size)
                {
                    let symbol = linear.symbol;
                    bindings.bind(symbol, value).map_err(|before| {
                        wrong(format!("expected {}, found {found:?}, but {symbol} is {before} in another input", node.ty.shape))
                    })?;
                }
            }
            shapes.push((node, found));
        }
        for (node, found) in shapes {
            let fits = node
                .ty
                .shape
                .dims()
                .iter()
                .zip(found)
                .all(|(dim, &size)| dim.evaluate(&bindings) == i64::try_from(size).ok());
            if !fits {
                let message = format!("expected {}, found {found:?}", node.ty.shape);
                return Err(Error::new(
                    ErrorKind::Input,
                    format!("{}: input {}", self.name, node.name),
                    message,
                ));
            }
        }
        Ok(bindings)
    }
}
