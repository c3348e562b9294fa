//! Sums, their opposites, and the statistics of normalisations.

use super::emit::{Attribute, value_info};
use super::{Lowering, rows};
use crate::Error;
use cognate_graph::{DType, Dim, Graph, Node, NodeId, Op, Shape, Statistic, Type};
use std::collections::HashMap;

/// A value, its epsilon (as bits), and the statistic.
type Key = (NodeId, u32, Statistic);

/// The statistics that nodes request, by name, and the shapes of those that a
/// normalisation has computed.
pub(super) struct Statistics {
    wanted: HashMap<Key, String>,
    given: HashMap<Key, (String, Shape)>,
}

impl Statistics {
    pub(super) fn of(graph: &Graph) -> Self {
        let wanted = graph.nodes().iter().filter_map(|node| {
            let Op::LayerNormStatistic { statistic, epsilon } = node.op else { return None };
            Some(((node.inputs[0], epsilon.to_bits(), statistic), node.name.clone()))
        });
        Self { wanted: wanted.collect(), given: HashMap::new() }
    }
}

impl Lowering<'_> {
    /// Adds the requested statistics to the outputs of the last LayerNormalization, of
    /// rows of `shape`.
    pub(super) fn give_statistics(&mut self, node: &Node, epsilon: f32, shape: &Shape) {
        let of_rows = Type::new(node.ty.dtype, one_each(shape));
        let mut outputs = Vec::new();
        for statistic in [Statistic::Mean, Statistic::InverseDeviation] {
            let key = (node.inputs[0], epsilon.to_bits(), statistic);
            // The first normalisation of a value computes them for all.
            let name = self
                .statistics
                .wanted
                .get(&key)
                .filter(|_| !self.statistics.given.contains_key(&key))
                .cloned();
            let tensor = name.map(|name| {
                let tensor = self.tensor_names.fresh(&name);
                self.made.value_info.push(value_info(&tensor, &of_rows));
                self.statistics.given.insert(key, (tensor.clone(), of_rows.shape.clone()));
                tensor
            });
            // An empty name omits an output.
            outputs.push(tensor.unwrap_or_default());
        }
        while outputs.last().is_some_and(String::is_empty) {
            outputs.pop();
        }
        if let Some(emitted) = self.made.node.last_mut() {
            emitted.output.extend(outputs);
        }
    }

    pub(super) fn layer_norm_statistic(
        &mut self,
        id: NodeId,
        node: &Node,
        statistic: Statistic,
        epsilon: f32,
    ) -> Result<(), Error> {
        let x = node.inputs[0];
        if let Some((tensor, shape)) =
            self.statistics.given.get(&(x, epsilon.to_bits(), statistic)).cloned()
        {
            self.declare_form(shape, tensor);
            return Ok(());
        }
        // No earlier normalisation of this value exists: computed here, so a later one need not
        // compute it.
        self.statistics.wanted.remove(&(x, epsilon.to_bits(), statistic));
        let (full, own) =
            (Type::new(node.ty.dtype, self.graph.node(x).ty.shape.clone()), node.ty.shape.clone());
        let (part, keep) =
            (|what: &str| format!("{}.{what}", node.name), [Attribute::Int("keepdims", 1)]);
        let (x, last_axis) = (self.value(x)?, self.integers(&[-1]));
        if statistic == Statistic::Mean {
            self.define(id, &own, "ReduceMean", vec![x, last_axis], &keep);
            return Ok(());
        }
        let mean = self.emit_between(
            "ReduceMean",
            &part("mean"),
            vec![x.clone(), last_axis.clone()],
            &keep,
            &node.ty,
        );
        let centred = self.emit_between("Sub", &part("centred"), vec![x, mean], &[], &full);
        let square =
            self.emit_between("Mul", &part("square"), vec![centred.clone(), centred], &[], &full);
        let variance = self.emit_between(
            "ReduceMean",
            &part("variance"),
            vec![square, last_axis],
            &keep,
            &node.ty,
        );
        let epsilon = self.number(epsilon);
        let shifted =
            self.emit_between("Add", &part("shifted"), vec![variance, epsilon], &[], &node.ty);
        let root = self.emit_between("Sqrt", &part("root"), vec![shifted], &[], &node.ty);
        self.define(id, &own, "Reciprocal", vec![root], &[]);
        Ok(())
    }

    pub(super) fn expand(&mut self, id: NodeId, node: &Node, shape: &Shape) -> Result<(), Error> {
        let x = node.inputs[0];
        let is_product =
            |reader: &&Node| matches!(reader.op, Op::MatMul | Op::Linear | Op::Gemm { .. });
        if !self.graph.nodes().iter().filter(is_product).any(|reader| reader.inputs.contains(&id)) {
            let inputs = vec![self.value(x)?, self.shape(shape)];
            self.define(id, shape, "Expand", inputs, &[]);
            return Ok(());
        }
        // tract 0.23.9 removes Expand and Tile before products, and with them an axis that the
        // other operand lacks. It does not remove a Gather that reads the first row of an axis
        // several times.
        let given = &self.graph.node(x).ty.shape;
        let mut dims: Vec<Dim> = vec![Dim::from(1); shape.rank() - given.rank()];
        dims.extend_from_slice(given.dims());
        let mut tensor = self.form(x, &dims.iter().collect())?;
        let mut repeated: Vec<usize> =
            (0..dims.len()).filter(|&axis| dims[axis] != shape.dims()[axis]).collect();
        let last = repeated.pop();
        let mut gather = |lowering: &mut Self, tensor: String, axis: usize| {
            let size = &shape.dims()[axis];
            let inputs = vec![lowering.integers(&[0]), lowering.size(size)];
            let first = lowering.emit_between(
                "Expand",
                &format!("{}.first", node.name),
                inputs,
                &[],
                &Type::new(DType::I64, [size]),
            );
            dims[axis] = size.clone();
            (
                vec![tensor, first],
                [Attribute::Int("axis", axis as i64)],
                Type::new(node.ty.dtype, dims.clone()),
            )
        };
        for axis in repeated {
            let (inputs, along, ty) = gather(self, tensor, axis);
            tensor = self.emit_between(
                "Gather",
                &format!("{}.repeated", node.name),
                inputs,
                &along,
                &ty,
            );
        }
        match last {
            Some(axis) => {
                let (inputs, along, _) = gather(self, tensor, axis);
                self.define(id, shape, "Gather", inputs, &along);
            }
            None => self.declare_form(shape.clone(), tensor),
        }
        Ok(())
    }

    pub(super) fn sum(&mut self, id: NodeId, node: &Node, axes: &[usize]) -> Result<(), Error> {
        let x = node.inputs[0];
        let own = &self.graph.node(x).ty.shape;
        // Sums over columns can read flat rows.
        let is_flat = own.rank() > 2
            && *axes == [own.rank() - 1]
            && self.has(x, &rows(own))
            && !self.has(x, own);
        let (from, to, axes) = match is_flat {
            true => (rows(own), rows(&node.ty.shape), vec![1]),
            false => {
                (own.clone(), node.ty.shape.clone(), axes.iter().map(|&axis| axis as i64).collect())
            }
        };
        let inputs = vec![self.form(x, &from)?, self.integers(&axes)];
        self.define(id, &to, "ReduceSum", inputs, &[Attribute::Int("keepdims", 1)]);
        Ok(())
    }

    /// `table: [rows, ...]`, `ids: [a, b]`, `updates: [a, b, ...]`: ScatterElements along
    /// the first axis.
    ///
    /// ScatterND would not need an index per element, but ONNX Runtime's CPU implementation adds
    /// rows from several threads without a lock, and loses additions of repeated ids.
    pub(super) fn scatter_add(&mut self, id: NodeId, node: &Node) -> Result<(), Error> {
        let [table, ids, updates] = [0, 1, 2].map(|input| node.inputs[input]);
        let ids_ty = &self.graph.node(ids).ty;
        let count = ids_ty.shape.dims().iter().fold(Dim::from(1), |count, dim| count * dim);
        let row = &node.ty.shape.dims()[1..];
        let one_each_row: Shape =
            [&count].into_iter().chain(std::iter::repeat_n(&Dim::from(1), row.len())).collect();
        let flat: Shape = [&count].into_iter().chain(row).collect();
        let mut indices = self.form(ids, &one_each_row)?;
        if one_each_row != flat {
            let inputs = vec![indices, self.shape(&flat)];
            indices = self.emit_between(
                "Expand",
                &format!("{}.ids", node.name),
                inputs,
                &[],
                &Type::new(ids_ty.dtype, flat.clone()),
            );
        }
        let inputs = vec![self.value(table)?, indices, self.form(updates, &flat)?];
        let attributes = [Attribute::Int("axis", 0), Attribute::Text("reduction", "add")];
        self.define(id, &node.ty.shape, "ScatterElements", inputs, &attributes);
        Ok(())
    }

    /// `max(x) + ln Σ exp(x - max(x))`: ONNX Runtime's ReduceLogSumExp takes five times as long,
    /// and the gradient needs the exponentials.
    pub(super) fn log_sum_exp(&mut self, id: NodeId, node: &Node) -> Result<(), Error> {
        let (exponentials, shape, largest) = self.exponentials(node)?;
        let (shape, axes, part) =
            (one_each(&shape), self.integers(&[-1]), |what: &str| format!("{}.{what}", node.name));
        let of_rows = Type::new(node.ty.dtype, shape.clone());
        let sum = self.emit_between(
            "ReduceSum",
            &part("sum"),
            vec![exponentials, axes],
            &[Attribute::Int("keepdims", 1)],
            &of_rows,
        );
        let logarithm = self.emit_between("Log", &part("logarithm"), vec![sum], &[], &of_rows);
        self.define(id, &shape, "Add", vec![logarithm, largest], &[]);
        Ok(())
    }

    /// Returns `exp(x - max(x))` of the node's input, its shape, which is flat if that of `x`
    /// is, and `max(x)`.
    pub(super) fn exponentials(&mut self, node: &Node) -> Result<(String, Shape, String), Error> {
        let x = node.inputs[0];
        let own = &self.graph.node(x).ty.shape;
        let rows_of = self.rows_of(x);
        if let Some(known) = self.exponentials.get(&rows_of) {
            return Ok(known.clone());
        }
        let is_flat = own.rank() > 2 && self.has(x, &rows(own)) && !self.has(x, own);
        let shape = if is_flat { rows(own) } else { own.clone() };
        let (full, of_rows) =
            (Type::new(node.ty.dtype, shape.clone()), Type::new(node.ty.dtype, one_each(&shape)));
        let (x, axes, part) = (self.form(x, &shape)?, self.integers(&[-1]), |what: &str| {
            format!("{}.{what}", node.name)
        });
        let largest = self.emit_between(
            "ReduceMax",
            &part("largest"),
            vec![x.clone(), axes],
            &[Attribute::Int("keepdims", 1)],
            &of_rows,
        );
        let shifted =
            self.emit_between("Sub", &part("shifted"), vec![x, largest.clone()], &[], &full);
        let exponentials =
            self.emit_between("Exp", &part("exponentials"), vec![shifted], &[], &full);
        let made = (exponentials, shape, largest);
        self.exponentials.insert(rows_of, made.clone());
        Ok(made)
    }
}

/// `[..., n]` -> `[..., 1]`
fn one_each(shape: &Shape) -> Shape {
    let leading = &shape.dims()[..shape.rank().saturating_sub(1)];
    leading.iter().chain([&1.into()]).collect()
}
