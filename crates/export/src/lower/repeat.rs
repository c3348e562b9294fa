//! Loops, and the largest elements of rows.
//!
//! A body reads weights, constants and captured values by their names in the graph around it.
//! Values that depend only on sizes known there are computed before the loop.

use super::emit::{Attribute, value_info};
use super::{Lowering, lower_nodes};
use crate::Error;
use crate::proto::{NodeProto, ValueInfoProto};
use cognate_graph::{DType, Dim, Graph, Loop, Node, NodeId, Op, Ranked, Shape, Symbol, Type};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The graph around a loop's body, as the body reads it.
pub(super) struct Outside {
    /// The tensors of the body's inputs: captured ones, and the first values of those that are
    /// carried.
    tensors: HashMap<NodeId, String>,
    symbols: HashSet<Symbol>,
}

impl Lowering<'_> {
    /// A Loop with its body; its results are the outputs, in order.
    pub(super) fn repeat(&mut self, id: NodeId, node: &Node, repeat: &Loop) -> Result<(), Error> {
        let given =
            node.inputs.iter().map(|&input| self.value(input)).collect::<Result<Vec<_>, _>>()?;
        let symbols = node
            .inputs
            .iter()
            .flat_map(|&input| self.graph.node(input).ty.shape.dims())
            .flat_map(Dim::symbols)
            .cloned();
        let inputs: Vec<_> = repeat.body.inputs().collect();
        let tensors = inputs
            .iter()
            .zip(&given)
            .skip(1)
            .map(|((id, _), tensor)| (*id, tensor.clone()))
            .collect();
        let outside = Outside { tensors, symbols: symbols.collect() };
        let most = self.scalar(&Dim::from(repeat.most));
        self.prepare_sizes(&repeat.body, &outside);
        let mut body = Lowering::new(&repeat.body, self.target)?;
        body.tensor_names =
            std::mem::take(&mut self.tensor_names).and(std::mem::take(&mut body.tensor_names));
        body.node_names = std::mem::take(&mut self.node_names);
        // Sizes that exist already are not computed again.
        let is_outside = |dim: &&Dim| dim.symbols().all(|symbol| outside.symbols.contains(symbol));
        let known = |sizes: &HashMap<Dim, String>| {
            sizes.iter().filter(|(dim, _)| is_outside(dim)).map(clone).collect()
        };
        (body.sizes, body.scalars) = (known(&self.sizes), known(&self.scalars));
        body.shapes = self
            .shapes
            .iter()
            .filter(|(shape, _)| shape.dims().iter().all(|dim| is_outside(&dim)))
            .map(clone)
            .collect();
        (body.integers, body.numbers) = (self.integers.clone(), self.numbers.clone());
        body.outside = Some(outside);
        for (index, (input, inside)) in inputs.iter().enumerate() {
            if index > repeat.carried {
                body.inputs.insert(*input, given[index].clone());
            }
            if index == 0 {
                body.made.input.push(value_info(&inside.name, &inside.ty));
                let name = body.tensor_names.fresh("condition");
                body.made.input.push(value_info(&name, &Type::new(DType::Bool, Shape::default())));
            }
        }
        lower_nodes(&mut body)?;
        self.tensor_names = std::mem::take(&mut body.tensor_names);
        self.node_names = std::mem::take(&mut body.node_names);
        let Lowering { before, made, sizes, scalars, shapes, .. } = body;
        let is_new = |tensor: &String| before.node.iter().any(|node| node.output.contains(tensor));
        self.sizes.extend(sizes.into_iter().filter(|(_, tensor)| is_new(tensor)));
        self.scalars.extend(scalars.into_iter().filter(|(_, tensor)| is_new(tensor)));
        self.shapes.extend(shapes.into_iter().filter(|(_, tensor)| is_new(tensor)));
        self.put(before.node, before.value_info);
        if self.outside.is_some() { &mut self.before } else { &mut self.made }
            .initializer
            .extend(before.initializer);

        let mut results = Vec::new();
        for (_, inside) in &inputs[1..=repeat.carried] {
            results.push(self.tensor_names.fresh(&format!("{}.last", inside.name)));
        }
        let name = self.node_names.fresh(&node.name);
        let read: Vec<_> =
            [most].into_iter().chain(given.into_iter().take(repeat.carried + 1)).collect();
        self.emit_several(
            "Loop",
            name,
            results.clone(),
            read,
            &[Attribute::Graph("body", Box::new(made))],
        );
        self.declare(node, results[0].clone());
        self.results.insert(id, results);
        Ok(())
    }

    /// Computes the symbols of a body's sizes before this graph's own loop if they are known there.
    fn prepare_sizes(&mut self, body: &Graph, outside: &Outside) {
        let Some(known) = self.outside.as_ref().map(|outside| outside.symbols.clone()) else {
            return;
        };
        let dims = body.iter().flat_map(|(_, node)| {
            node.op.dims().iter().chain(node.ty.shape.dims()).cloned().collect::<Vec<_>>()
        });
        let symbols: BTreeSet<_> =
            dims.flat_map(|dim| dim.symbols().cloned().collect::<Vec<_>>()).collect();
        for symbol in symbols
            .iter()
            .filter(|symbol| known.contains(*symbol) && outside.symbols.contains(*symbol))
        {
            if self.symbols.contains_key(symbol) {
                self.size(&Dim::symbol(symbol));
            }
        }
    }

    /// Adds nodes of a body that are computed before its loop: before this graph's own loop if they
    /// do not read this graph.
    fn put(&mut self, nodes: Vec<NodeProto>, types: Vec<ValueInfoProto>) {
        let mut inside: HashSet<String> =
            self.made.input.iter().map(|input| input.name.clone()).collect();
        inside.extend(self.made.node.iter().flat_map(|node| node.output.iter().cloned()));
        let is_inside = |node: &NodeProto| {
            let is_inside =
                self.outside.is_none() || node.input.iter().any(|input| inside.contains(input));
            inside.extend(node.output.iter().filter(|_| is_inside).cloned());
            is_inside
        };
        let (here, before): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_inside);
        let (types, types_before): (Vec<_>, Vec<_>) =
            types.into_iter().partition(|value| inside.contains(&value.name));
        self.made.node.extend(here);
        self.made.value_info.extend(types);
        self.before.node.extend(before);
        self.before.value_info.extend(types_before);
    }

    /// Begins the computation of sizes: before the loop if they are known there. Returns the
    /// previous destination of new nodes.
    pub(super) fn enter(&mut self, dims: &[Dim]) -> bool {
        let is_outside = |outside: &Outside| {
            dims.iter().flat_map(Dim::symbols).all(|symbol| outside.symbols.contains(symbol))
        };
        let is_before = self.is_before || self.outside.as_ref().is_some_and(is_outside);
        std::mem::replace(&mut self.is_before, is_before)
    }

    /// The tensor around a loop from which a size of the body is read.
    pub(super) fn outside_of(&self, source: NodeId) -> Option<&str> {
        self.outside.as_ref()?.tensors.get(&source).map(String::as_str)
    }

    /// The values and the positions of the largest elements: one TopK.
    pub(super) fn top_k(
        &mut self,
        id: NodeId,
        node: &Node,
        count: &Dim,
        result: Ranked,
    ) -> Result<(), Error> {
        let twin = self.graph.iter().find(|(other, twin)| {
            let is_twin = matches!(&twin.op, Op::TopK { count: other, result: found } if other == count && *found != result);
            is_twin && twin.inputs == node.inputs && *other != id
        });
        if let Some(tensor) = self.ranked.remove(&id) {
            self.declare(node, tensor);
            return Ok(());
        }
        let name = |lowering: &mut Self, node: &Node| {
            let tensor = lowering.tensor_names.fresh(&node.name);
            lowering.made.value_info.push(value_info(&tensor, &node.ty));
            tensor
        };
        let inputs = vec![self.value(node.inputs[0])?, self.size(count)];
        let own = name(self, node);
        let other = twin.map(|(_, twin)| name(self, twin));
        // Both outputs need a name.
        let unread = other
            .clone()
            .unwrap_or_else(|| self.tensor_names.fresh(&format!("{}.unread", node.name)));
        let outputs = if result == Ranked::Values {
            vec![own.clone(), unread]
        } else {
            vec![unread, own.clone()]
        };
        let node_name = self.node_names.fresh(&node.name);
        self.emit_several("TopK", node_name, outputs, inputs, &[]);
        self.ranked.extend(twin.zip(other).map(|((twin, _), tensor)| (twin, tensor)));
        self.declare(node, own);
        Ok(())
    }
}

fn clone<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}
