//! Products of 8-bit or 4-bit integers.
//!
//! Activations are unsigned bytes with zero point 128, weights are signed: processors have
//! instructions for this pair. Standard operators compute 32-bit integers and scale them in
//! separate passes; ONNX Runtime's contrib operators do both at once.

use super::emit::Attribute;
use super::{Lowering, data_type, rows};
use crate::Error;
use crate::error::Problem;
use crate::lower::Target;
use crate::proto::DataType;
use cognate_graph::{Blocks, DType, Dim, Node, NodeId, Op, SMALLEST_MAGNITUDE, Shape, Steps, Type};

/// The number of steps on either side of zero.
const SIDE: f32 = 127.0;
/// The zero point.
const ZERO: u8 = 128;

impl Lowering<'_> {
    pub(super) fn quantized_linear(
        &mut self,
        id: NodeId,
        node: &Node,
        steps: Steps,
    ) -> Result<(), Error> {
        let shape = rows(&node.ty.shape);
        let x = self.form(node.inputs[0], &rows(&self.graph.node(node.inputs[0]).ty.shape))?;
        let parameters = node.inputs[1..]
            .iter()
            .map(|&input| self.value(input))
            .collect::<Result<Vec<_>, _>>()?;
        let (weight, scale, bias) =
            (parameters[0].clone(), parameters[1].clone(), parameters.get(2).cloned());
        let full = Type::new(DType::F32, shape.clone());
        let part = |what: &str| format!("{}.{what}", node.name);
        if steps == Steps::Tensor {
            if self.target == Target::Ort {
                let inputs = [x, weight, scale, String::new()].into_iter().chain(bias).collect();
                self.define(id, &shape, "com.microsoft.DynamicQuantizeMatMul", inputs, &[]);
                return Ok(());
            }
            let [bytes, step, zero] =
                ["bytes", "step", "zero"].map(|what| self.tensor_names.fresh(&part(what)));
            let outputs = vec![bytes.clone(), step.clone(), zero.clone()];
            let name = self.node_names.fresh(&part("bytes"));
            self.emit_several("DynamicQuantizeLinear", name, outputs, vec![x], &[]);
            let counted = self.counted(node, &shape, vec![bytes, weight, zero]);
            let scaled =
                self.emit_between("Mul", &part("scaled"), vec![counted, scale], &[], &full);
            self.last(id, &shape, scaled, step, bias);
            return Ok(());
        }
        // ONNX Runtime converts 0/0 to some integer, and the product is multiplied by the
        // magnitude, zero. Other engines, and unscaled rows, need a divisor other than zero.
        let is_divisor = self.target == Target::Portable || steps == Steps::RowUnscaled;
        let magnitude = self.row_magnitudes(node.inputs[0], is_divisor)?;
        let wide = Type::new(DType::F32, rows(&self.graph.node(node.inputs[0]).ty.shape));
        let unit = self.emit_between("Div", &part("unit"), vec![x, magnitude.clone()], &[], &wide);
        let (step, zero) = (self.number(1.0 / SIDE), self.zero_byte());
        let bytes = self.tensor_names.fresh(&part("bytes"));
        let name = self.node_names.fresh(&part("bytes"));
        self.emit(
            "QuantizeLinear",
            name,
            bytes.clone(),
            vec![unit, step.clone(), zero.clone()],
            &[],
        );
        let scaled = match self.target {
            Target::Ort if steps == Steps::RowUnscaled => {
                self.define(
                    id,
                    &shape,
                    "com.microsoft.MatMulIntegerToFloat",
                    vec![bytes, weight, step, scale, zero],
                    &[],
                );
                return Ok(());
            }
            Target::Ort => {
                let inputs = vec![bytes, weight, step, scale, zero];
                self.emit_between(
                    "com.microsoft.MatMulIntegerToFloat",
                    &part("scaled"),
                    inputs,
                    &[],
                    &full,
                )
            }
            Target::Portable => {
                let counted = self.counted(node, &shape, vec![bytes, weight, zero]);
                let scaled =
                    self.emit_between("Mul", &part("scaled"), vec![counted, scale], &[], &full);
                if steps == Steps::RowUnscaled {
                    self.define(id, &shape, "Mul", vec![scaled, step], &[]);
                    return Ok(());
                }
                self.emit_between("Mul", &part("steps"), vec![scaled, step], &[], &full)
            }
        };
        self.last(id, &shape, scaled, magnitude, bias);
        Ok(())
    }

    /// Accuracy level 4 quantises activations as in [`Blocks`]. Other levels do not, and take 3
    /// times (4 bits) or 50 times (8 bits) as long for one row.
    pub(super) fn block_linear(
        &mut self,
        id: NodeId,
        node: &Node,
        blocks: Blocks,
    ) -> Result<(), Error> {
        let (x, shape) = (node.inputs[0], rows(&node.ty.shape));
        let flat = rows(&self.graph.node(x).ty.shape);
        let [Some(width), Some(outputs)] =
            [&flat, &shape].map(|shape| shape.dims()[1].as_constant())
        else {
            unreachable!("verified: constant widths")
        };
        if self.target == Target::Portable {
            return Err(
                Problem::Contrib { place: node.name.clone(), operation: node.op.name() }.into()
            );
        }
        let mut inputs =
            vec![self.form(x, &flat)?, self.value(node.inputs[1])?, self.value(node.inputs[2])?];
        if let Some(&bias) = node.inputs.get(3) {
            inputs.extend([String::new(), String::new(), self.value(bias)?]);
        }
        let attributes = [
            Attribute::Int("K", width),
            Attribute::Int("N", outputs),
            Attribute::Int("bits", blocks.bits.count() as i64),
            Attribute::Int("block_size", blocks.size as i64),
            Attribute::Int("accuracy_level", 4),
        ];
        self.define(id, &shape, "com.microsoft.MatMulNBits", inputs, &attributes);
        Ok(())
    }

    /// The product of integers as floats.
    fn counted(&mut self, node: &Node, shape: &Shape, factors: Vec<String>) -> String {
        let counts = self.tensor_names.fresh(&format!("{}.counts", node.name));
        let name = self.node_names.fresh(&format!("{}.counts", node.name));
        self.emit("MatMulInteger", name, counts.clone(), factors, &[]);
        let to = [Attribute::Int("to", data_type(DType::F32) as i64)];
        self.emit_between(
            "Cast",
            &format!("{}.counted", node.name),
            vec![counts],
            &to,
            &Type::new(DType::F32, shape.clone()),
        )
    }

    /// Emits `product · factor (+ bias)`, the node's value.
    fn last(
        &mut self,
        id: NodeId,
        shape: &Shape,
        product: String,
        factor: String,
        bias: Option<String>,
    ) {
        match bias {
            None => self.define(id, shape, "Mul", vec![product, factor], &[]),
            Some(bias) => {
                let (name, full) = (
                    format!("{}.product", self.graph.node(id).name),
                    Type::new(DType::F32, shape.clone()),
                );
                let product = self.emit_between("Mul", &name, vec![product, factor], &[], &full);
                self.define(id, shape, "Add", vec![product, bias], &[]);
            }
        }
    }

    pub(super) fn largest_magnitude(&mut self, id: NodeId, node: &Node) -> Result<(), Error> {
        let tensor = self.row_magnitudes(node.inputs[0], true)?;
        self.define(id, &rows(&node.ty.shape), "Identity", vec![tensor], &[]);
        Ok(())
    }

    /// The maximum magnitude of each row, `[rows, 1]`, and not zero if `is_divisor`.
    fn row_magnitudes(&mut self, id: NodeId, is_divisor: bool) -> Result<String, Error> {
        let key = (self.rows_of(id), is_divisor);
        if let Some(tensor) = self.magnitudes.get(&key) {
            return Ok(tensor.clone());
        }
        let node = self.graph.node(id);
        let flat = rows(&node.ty.shape);
        let column = Type::new(DType::F32, [&flat.dims()[0], &Dim::from(1)]);
        let part = |what: &str| format!("{}.{what}", node.name);
        let tensor = if is_divisor {
            let (largest, smallest) =
                (self.row_magnitudes(id, false)?, self.number(SMALLEST_MAGNITUDE));
            self.emit_between("Max", &part("magnitude"), vec![largest, smallest], &[], &column)
        } else {
            let (x, last_axis) = (self.form(id, &flat)?, self.integers(&[-1]));
            let sizes = self.emit_between(
                "Abs",
                &part("sizes"),
                vec![x],
                &[],
                &Type::new(DType::F32, flat),
            );
            let keep = [Attribute::Int("keepdims", 1)];
            let largest = self.emit_between(
                "ReduceMax",
                &part("largest"),
                vec![sizes, last_axis],
                &keep,
                &column,
            );
            match node.op {
                // A slice may have no rows, and of none ONNX Runtime 1.31 keeps the reduced axis.
                Op::Slice { .. } => {
                    let shape = self.integers(&[-1, 1]);
                    self.emit_between(
                        "Reshape",
                        &part("column"),
                        vec![largest, shape],
                        &[],
                        &column,
                    )
                }
                _ => largest,
            }
        };
        self.magnitudes.insert(key, tensor.clone());
        Ok(tensor)
    }

    /// The zero point, u8 `[]`.
    fn zero_byte(&mut self) -> String {
        const NAME: &str = "number.zero_byte";
        if !self.made.initializer.iter().any(|tensor| tensor.name == NAME) {
            return self.initializer_of(NAME, DataType::Uint8, &[], vec![ZERO]);
        }
        NAME.into()
    }
}
