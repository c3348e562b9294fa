//! Fusion: layers that read the same value become one product.
//!
//! `x W_qᵀ, x W_kᵀ, x W_vᵀ` are slices of `x [W_q; W_k; W_v]ᵀ`: one large product instead of three,
//! and `x` is read (and, in 8 bits, rounded) once. A bias of zeros is removed, unless another layer
//! of the group has a bias. Weights are joined as recipes; only biases are read.
//!
//! ```
//! use cognate_graph::{Builder, DType, Element, Program, Recipe, Storage, Weights};
//! use cognate_passes::fuse::fuse;
//! # #[derive(Debug)] struct Zeros;
//! # impl Storage for Zeros { fn bytes(&self) -> &[u8] { &[0; 64] } }
//!
//! let builder = Builder::new("layers");
//! let x = builder.input("x", DType::F32, ["rows".into(), cognate_graph::Dim::from(4)]);
//! let layer = |name: &str| x.linear(builder.root().at(name).parameter("weight", [2, 4]), None);
//! builder.output("y", layer("q") + layer("k"));
//! let weight = Recipe::stored(std::sync::Arc::new(Zeros), 0..32, &[2, 4])?;
//! let weights: Weights = ["q.weight", "k.weight"].map(|name| (name.to_string(), weight.clone())).into_iter().collect();
//!
//! let fused = fuse(&Program::new(builder.finish()?, weights)?)?;
//! let parameters: Vec<_> = fused.graph().parameters().map(|(_, node)| format!("{}: {}", node.name, node.ty.shape)).collect();
//! assert_eq!(parameters, ["q+1.weight: [4, 4]"]);
//! # Ok::<(), cognate_graph::Error>(())
//! ```

use cognate_graph::{
    Builder, DType, Dim, Error, Generator, Graph, Node, NodeId, Op, Program, Recipe, Tensor, Type,
    Weights,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

/// Layers that read the same value, in the order of the graph.
struct Group {
    members: Vec<NodeId>,
    has_bias: bool,
}

/// The program with the linear layers of each input joined, and without biases of zeros.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn fuse(program: &Program) -> Result<Program, Error> {
    let graph = program.graph();
    let layers = Layers { graph, weights: program.weights() };
    let groups = layers.groups();
    let group_of = |id: NodeId| {
        groups.iter().find(|group| group.members.len() > 1 && group.members.contains(&id))
    };
    let builder = Builder::new(graph.name());
    let mut weights: BTreeMap<String, Recipe> =
        program.weights().iter().map(|(path, recipe)| (path.into(), recipe.clone())).collect();
    let mut values: Vec<Option<Tensor<'_>>> = vec![None; graph.nodes().len()];
    for (id, node) in graph.iter() {
        if values[id.index()].is_some() {
            continue;
        }
        let value = |id: NodeId| values[id.index()].expect("inputs come before their use");
        if let Some(group) = group_of(id) {
            let slices = layers.join(group, &builder, value(node.inputs[0]), &mut weights)?;
            group
                .members
                .iter()
                .zip(slices)
                .for_each(|(member, slice)| values[member.index()] = Some(slice));
            continue;
        }
        let made = if node.op == Op::Linear && layers.bias(node).is_none() {
            builder.node(&node.name, Op::Linear, &[value(node.inputs[0]), value(node.inputs[1])])
        } else {
            builder.copy(node, value)
        };
        values[id.index()] = Some(made);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()].expect("every node was made"));
    }
    drop(values);
    Program::new(builder.finish()?, weights.into_iter().collect())
}

/// The bias of a layer without one in a group of layers with biases.
#[derive(Debug)]
struct Zeros;

impl Generator for Zeros {
    fn fill(&self, _first: usize, values: &mut [f32]) {
        values.fill(0.0);
    }
}

struct Layers<'p> {
    graph: &'p Graph,
    weights: &'p Weights,
}

impl Layers<'_> {
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (id, node) in
            self.graph.iter().filter(|(_, node)| node.op == Op::Linear && self.is_plain(node))
        {
            let has_bias = self.bias(node).is_some();
            let x_of = |id: NodeId| self.graph.node(id).inputs[0];
            match groups.iter_mut().find(|group| x_of(group.members[0]) == node.inputs[0]) {
                Some(group) => {
                    group.members.push(id);
                    group.has_bias |= has_bias;
                }
                None => groups.push(Group { members: vec![id], has_bias }),
            }
        }
        groups
    }

    /// Whether weight and bias are parameters in f32.
    fn is_plain(&self, node: &Node) -> bool {
        let mut parameters = node.inputs[1..].iter().map(|&input| self.graph.node(input));
        parameters
            .all(|parameter| parameter.op == Op::Parameter && parameter.ty.dtype == DType::F32)
    }

    fn recipe(&self, id: NodeId) -> &Recipe {
        self.weights
            .get(&self.graph.node(id).name)
            .expect("a program has a weight for each parameter")
    }

    /// The bias of a layer, unless it is all zeros.
    fn bias(&self, node: &Node) -> Option<NodeId> {
        let bias = *node.inputs.get(2)?;
        let is_zero = self.graph.node(bias).op == Op::Parameter && {
            let mut is_zero = true;
            let bits = |bytes: &[u8]| {
                is_zero &= bytes.iter().all(|&byte| byte == 0);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = self.recipe(bias).stream(bits);
            is_zero
        };
        (!is_zero).then_some(bias)
    }

    /// The layers of a group as slices of one layer that reads `x`.
    fn join<'b>(
        &self,
        group: &Group,
        builder: &'b Builder,
        x: Tensor<'b>,
        weights: &mut BTreeMap<String, Recipe>,
    ) -> Result<Vec<Tensor<'b>>, Error> {
        let first = self.graph.node(group.members[0]);
        let more = group.members.len() - 1;
        let path = |id: NodeId| {
            self.graph.node(id).name.rsplit_once('.').map_or("", |(path, _)| path).to_string()
        };
        let scope = format!("{}+{more}", path(first.inputs[1]));
        let mut join = |name: &str, part: &dyn Fn(&Node) -> Recipe| {
            let parts: Vec<_> =
                group.members.iter().map(|&member| part(self.graph.node(member))).collect();
            let (joined, path) = (Recipe::joined(&parts)?, format!("{scope}.{name}"));
            let parameter = builder.parameter(&path, Type::new(DType::F32, joined.shape()));
            weights.insert(path, joined);
            Ok::<_, Error>(parameter)
        };
        let mut inputs = vec![x, join("weight", &|node| self.recipe(node.inputs[1]).clone())?];
        if group.has_bias {
            let zeros = |node: &Node| {
                Recipe::generated(Arc::new(Zeros), &self.recipe(node.inputs[1]).shape()[..1])
            };
            inputs.push(join("bias", &|node| {
                self.bias(node).map_or_else(|| zeros(node), |bias| self.recipe(bias).clone())
            })?);
        }
        let all = builder.node(&format!("{scope}/Linear"), Op::Linear, &inputs);
        let axis = first.ty.shape.rank() - 1;
        let mut start = Dim::from(0);
        let slice = |&member: &NodeId| {
            let node = self.graph.node(member);
            let end = &start + &node.ty.shape.dims()[axis];
            let name = node
                .name
                .rsplit_once('/')
                .map_or("Slice".into(), |(path, _)| format!("{path}/Slice"));
            let slice = builder.node(
                &name,
                Op::Slice { axis, start: start.clone(), end: end.clone() },
                &[all],
            );
            start = end;
            slice
        };
        Ok(group.members.iter().map(slice).collect())
    }
}
