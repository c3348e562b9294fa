//! Producers and readers of a graph's tensors.

use cognate_export::proto::{
    DataType, DimensionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto,
};
use cognate_graph::f16;
use std::collections::{BTreeSet, HashMap};

/// A graph, indexed by its tensors.
pub(crate) struct Places<'g> {
    pub(crate) graph: &'g GraphProto,
    givers: HashMap<&'g str, usize>,
    readers: HashMap<&'g str, Vec<usize>>,
    outputs: BTreeSet<&'g str>,
    constants: HashMap<&'g str, &'g TensorProto>,
    shapes: HashMap<&'g str, &'g [DimensionProto]>,
    elements: HashMap<&'g str, i32>,
}

impl<'g> Places<'g> {
    pub(crate) fn new(graph: &'g GraphProto) -> Self {
        let (mut givers, mut readers) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (index, node) in graph.node.iter().enumerate() {
            // An omitted input or output has no name.
            givers.extend(
                node.output
                    .iter()
                    .filter(|output| !output.is_empty())
                    .map(|output| (output.as_str(), index)),
            );
            let inputs = node.input.iter().filter(|input| !input.is_empty());
            inputs.for_each(|input| readers.entry(input.as_str()).or_default().push(index));
        }
        let said = || graph.input.iter().chain(&graph.output).chain(&graph.value_info);
        let shapes = said().filter_map(|value| {
            let shape = value.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
            Some((value.name.as_str(), shape.dim.as_slice()))
        });
        Self {
            graph,
            givers,
            readers,
            outputs: graph.output.iter().map(|output| output.name.as_str()).collect(),
            constants: graph
                .initializer
                .iter()
                .map(|tensor| (tensor.name.as_str(), tensor))
                .collect(),
            shapes: shapes.collect(),
            elements: said()
                .filter_map(|value| Some((value.name.as_str(), element_type(value)?)))
                .collect(),
        }
    }

    /// The node at `index`, if it is this standard operation.
    pub(crate) fn node(&self, index: usize, operation: &str) -> Option<&'g NodeProto> {
        Some(&self.graph.node[index])
            .filter(|node| node.op_type == operation && node.domain.is_empty())
    }

    /// The index of the node that computes `tensor`.
    pub(crate) fn source(&self, tensor: &str) -> Option<usize> {
        self.givers.get(tensor).copied()
    }

    /// The node that computes `tensor`, if it is this operation.
    pub(crate) fn giver(&self, tensor: &str, operation: &str) -> Option<(usize, &'g NodeProto)> {
        let &index = self.givers.get(tensor)?;
        Some((index, self.node(index, operation)?))
    }

    /// The nodes that read `tensor`, in order.
    pub(crate) fn readers(&self, tensor: &str) -> &[usize] {
        self.readers.get(tensor).map_or(&[], Vec::as_slice)
    }

    /// Whether `tensor` is an output of the graph.
    pub(crate) fn is_output(&self, tensor: &str) -> bool {
        self.outputs.contains(tensor)
    }

    /// Whether `tensor` is an output of the graph in half precision.
    pub(crate) fn is_half_output(&self, tensor: &str) -> bool {
        let mut outputs = self.graph.output.iter();
        outputs.any(|output| {
            output.name == tensor && element_type(output) == Some(DataType::Float16 as i32)
        })
    }

    /// The only node that reads `tensor`, if it is this operation.
    pub(crate) fn only_reader(
        &self,
        tensor: &str,
        operation: &str,
    ) -> Option<(usize, &'g NodeProto)> {
        match self.readers(tensor) {
            &[index] if !self.is_output(tensor) => Some((index, self.node(index, operation)?)),
            _ => None,
        }
    }

    /// The constant with this name.
    pub(crate) fn constant(&self, tensor: &str) -> Option<&'g TensorProto> {
        self.constants.get(tensor).copied()
    }

    /// The bytes of a small constant.
    pub(crate) fn bytes(&self, tensor: &str) -> Option<&'g [u8]> {
        self.constant(tensor)?.raw_data.as_deref()
    }

    /// A constant number, in single or half precision.
    pub(crate) fn number(&self, tensor: &str) -> Option<f32> {
        match self.bytes(tensor)? {
            &[low, high] => Some(f16::from_le_bytes([low, high]).to_f32()),
            bytes => Some(f32::from_le_bytes(bytes.try_into().ok()?)),
        }
    }

    /// A constant integer.
    pub(crate) fn integer(&self, tensor: &str) -> Option<i64> {
        Some(i64::from_le_bytes(self.bytes(tensor)?.try_into().ok()?))
    }

    /// The sizes of a tensor, if they are known.
    pub(crate) fn shape(&self, tensor: &str) -> Option<&'g [DimensionProto]> {
        self.shapes.get(tensor).copied()
    }

    /// Whether the tensor is known to have elements of this type.
    pub(crate) fn has_elements(&self, tensor: &str, kind: DataType) -> bool {
        self.elements.get(tensor) == Some(&(kind as i32))
    }

    /// Whether the tensor is known to have this number of axes.
    pub(crate) fn has_axes(&self, tensor: &str, n_axes: usize) -> bool {
        self.shape(tensor).is_some_and(|shape| shape.len() == n_axes)
    }
}

/// The type of a tensor's elements.
pub(crate) fn element_type(value: &ValueInfoProto) -> Option<i32> {
    Some(value.r#type.as_ref()?.tensor_type.as_ref()?.elem_type)
}

/// The other input of a node with two inputs.
pub(crate) fn other<'n>(node: &'n NodeProto, tensor: &str) -> Option<&'n String> {
    match node.input.as_slice() {
        [a, b] if a == tensor && b != tensor => Some(b),
        [a, b] if b == tensor && a != tensor => Some(a),
        _ => None,
    }
}
