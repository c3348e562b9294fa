//! Attention with shared caches: an operator of ONNX Runtime that also writes the caches.
//!
//! A [`CacheWrite`](Op::CacheWrite) emits nothing if such attention reads the cache, and writes it.
//! Caches are written in place if the caller binds input and output to the same memory.

use super::emit::{Attribute, value_info};
use super::{Lowering, Target};
use crate::Error;
use crate::error::Problem;
use crate::proto::DataType;
use cognate_graph::{CachedAttention, DType, Dim, Node, NodeId, Op, Shape, Type};
use std::collections::{BTreeSet, HashMap};

/// Caches that no attention has written yet, and tensors shared by several attentions.
#[derive(Default)]
pub(super) struct Pending {
    writes: BTreeSet<NodeId>,
    /// i32 `[1]`, by size.
    counts: HashMap<Dim, String>,
    /// i32 `[batch, beams, capacity]`, by the node of the beams.
    beams: HashMap<NodeId, String>,
}

impl Lowering<'_> {
    pub(super) fn cache_write(&mut self, id: NodeId, node: &Node, at: &Dim) -> Result<(), Error> {
        if self.target == Target::Portable {
            return Err(
                Problem::Contrib { place: node.name.clone(), operation: node.op.name() }.into()
            );
        }
        let is_written = |reader: &Node| {
            matches!(reader.op, Op::CachedAttention(_)) && reader.inputs.contains(&id)
        };
        if !self.graph.nodes().iter().any(is_written) {
            return self.scattered(id, node, at);
        }
        let title = self
            .titles
            .get(&(id, &node.ty.shape))
            .copied()
            .filter(|title| self.titled.insert(title));
        let tensor = title.map_or_else(|| self.tensor_names.fresh(&node.name), str::to_owned);
        if title.is_none() {
            self.made.value_info.push(value_info(&tensor, &node.ty));
        }
        self.declare(node, tensor);
        self.caches.writes.insert(id);
        Ok(())
    }

    /// A cache that is read by standard operations.
    fn scattered(&mut self, id: NodeId, node: &Node, at: &Dim) -> Result<(), Error> {
        let [rows, heads, _, d_k] = node.ty.shape.dims() else {
            unreachable!("verified: four axes")
        };
        let place: Shape = [rows, heads, &Dim::from(1), d_k].into_iter().collect();
        let (at, shape) = (self.size(at), self.shape(&place));
        let places = self.emit_between(
            "Expand",
            "places",
            vec![at, shape],
            &[],
            &Type::new(DType::I64, place.clone()),
        );
        let inputs = vec![self.value(node.inputs[0])?, places, self.form(node.inputs[1], &place)?];
        self.define(id, &node.ty.shape, "ScatterElements", inputs, &[Attribute::Int("axis", 2)]);
        Ok(())
    }

    pub(super) fn cached_attention(
        &mut self,
        id: NodeId,
        node: &Node,
        attention: &CachedAttention,
    ) -> Result<(), Error> {
        let &[query, keys, values, beams, ref bias @ ..] = node.inputs.as_slice() else {
            unreachable!("verified: four or five")
        };
        let past = &self.graph.node(beams).ty.shape.dims()[2];
        let (mut olds, mut news, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for cache in [keys, values] {
            let write = self.graph.node(cache);
            let is_here = matches!(&write.op, Op::CacheWrite { at } if at == past)
                && self.caches.writes.remove(&cache);
            let [old, new] = write.inputs[..] else {
                unreachable!("verified: a cache and what is new")
            };
            if !is_here {
                return Err(self.lonely_cache(cache));
            }
            olds.push(self.value(old)?);
            news.push(self.value(new)?);
            outputs.push(self.value(cache)?);
        }
        let bias = bias.first().map(|&bias| self.value(bias)).transpose()?.unwrap_or_default();
        let capacity = &self.graph.node(keys).ty.shape.dims()[2];
        let (places, n_beams) = (
            self.places(beams, past, capacity)?,
            self.graph.node(beams).ty.shape.dims()[1].clone(),
        );
        let none = String::new;
        let [past, n_beams] = [past, &n_beams].map(|size| self.count(size));
        let inputs = [self.value(query)?]
            .into_iter()
            .chain(news)
            .chain([none(), bias])
            .chain(olds)
            .chain([past, n_beams, places]);
        let context = self.tensor_names.fresh(&node.name);
        self.made.value_info.push(value_info(&context, &node.ty));
        outputs.insert(0, context.clone());
        let attributes = [
            Attribute::Int("num_heads", attention.heads as i64),
            Attribute::Float("scale", attention.scale),
            Attribute::Int("past_present_share_buffer", 1),
        ];
        let name = self.node_names.fresh(&node.name);
        let inputs = inputs.collect();
        self.emit_several(
            "com.microsoft.DecoderMaskedMultiHeadAttention",
            name,
            outputs,
            inputs,
            &attributes,
        );
        debug_assert!(
            !self.titles.contains_key(&(id, &node.ty.shape)),
            "a context is not an output of a graph"
        );
        self.declare(node, context);
        Ok(())
    }

    /// Fails if a cache is not written by an attention.
    pub(super) fn no_cache_is_left(&mut self) -> Result<(), Error> {
        match self.caches.writes.first() {
            Some(&cache) => Err(self.lonely_cache(cache)),
            None => Ok(()),
        }
    }

    fn lonely_cache(&self, cache: NodeId) -> Error {
        Problem::LonelyCache { place: self.graph.node(cache).name.clone() }.into()
    }

    /// A size for ONNX Runtime's attention, i32 `[1]`.
    fn count(&mut self, dim: &Dim) -> String {
        if let Some(tensor) = self.caches.counts.get(dim) {
            return tensor.clone();
        }
        let size = self.size(dim);
        let tensor = self.cast_to_i32(&format!("count.{dim}").replace(' ', ""), size);
        self.caches.counts.insert(dim.clone(), tensor.clone());
        tensor
    }

    /// The beam of each position, padded to the capacity, for ONNX Runtime's attention.
    fn places(&mut self, beams: NodeId, past: &Dim, capacity: &Dim) -> Result<String, Error> {
        if let Some(tensor) = self.caches.beams.get(&beams) {
            return Ok(tensor.clone());
        }
        let node = self.graph.node(beams);
        let (zeros, rest) = (self.integers(&[0, 0, 0, 0, 0]), self.size(&(capacity - past)));
        let pads = self.emit_between(
            "Concat",
            "places.pads",
            vec![zeros, rest],
            &[Attribute::Int("axis", 0)],
            &Type::new(DType::I64, [6]),
        );
        let dims = node.ty.shape.dims();
        let inputs = vec![self.value(beams)?, pads];
        let filled = self.emit_between(
            "Pad",
            "places.filled",
            inputs,
            &[],
            &Type::new(DType::I64, [&dims[0], &dims[1], capacity]),
        );
        let tensor = self.cast_to_i32("places", filled);
        self.caches.beams.insert(beams, tensor.clone());
        Ok(tensor)
    }

    fn cast_to_i32(&mut self, name: &str, tensor: String) -> String {
        let cast = self.tensor_names.fresh(name);
        let node = self.node_names.fresh(name);
        self.emit(
            "Cast",
            node,
            cast.clone(),
            vec![tensor],
            &[Attribute::Int("to", DataType::Int32 as i64)],
        );
        cast
    }
}
