//! The operators of [`gradients`](crate::ort::gradients).

use super::context::Context;
use super::operator::{Attributes, Operator};
use crate::ort::gradients::{
    EXTENTS, IN_BF16, INSTRUCTIONS, OUTPUTS, THREADS, TRANSPOSED, decoded,
};
use crate::program::{self, Tensors};
use ::ort::sys::OrtKernelContext;
use ::ort::{Error, Result};
use cognate_kernels::{Extent, Gradients, Matrix, Softmax};
use std::ffi::CStr;
use std::ops::Range;

/// [`PRODUCT`](crate::ort::gradients::PRODUCT)
pub(super) struct Product {
    transposed: [bool; 2],
    node: Node,
}

/// [`LOG_SUM_EXP`](crate::ort::gradients::LOG_SUM_EXP)
pub(super) struct LogSumExp(Node);

/// [`LOG_SUM_EXP_GRADIENT`](crate::ort::gradients::LOG_SUM_EXP_GRADIENT)
pub(super) struct LogSumExpGradient(Node);

/// See [`LOG_SUM_EXP_WITH_GRADIENT`](crate::ort::gradients::LOG_SUM_EXP_WITH_GRADIENT).
pub(super) struct LogSumExpWithGradient(Node);

/// Several [elementwise operations](cognate_kernels::Elementwise) in one pass.
pub(super) struct Elementwise {
    extents: Vec<Extent>,
    work: cognate_kernels::Elementwise,
    node: Node,
}

/// What every node has.
struct Node {
    inputs: usize,
    outputs: usize,
    threads: usize,
    /// Whether products may be in bfloat16.
    in_bf16: bool,
}

impl Node {
    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let [inputs, outputs] = attributes.counts()?;
        let threads = usize::try_from(attributes.named(THREADS)?).unwrap_or(1);
        let in_bf16 = attributes.named(IN_BF16)? == 1;
        Ok(Self { inputs, outputs, threads, in_bf16 })
    }

    fn run(
        &self,
        context: *mut OrtKernelContext,
        compute: impl FnOnce(&Context<'_>) -> program::Result<()>,
    ) -> Result<()> {
        // SAFETY: the context is that of this call and lives as long.
        let tensors = unsafe { Context::new(context, &[], self.threads) };
        compute(&tensors).map_err(Error::new)
    }
}

impl Operator for Product {
    const NAME: &CStr = c"Product";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let [left, right] = TRANSPOSED.map(|name| attributes.named(name));
        Ok(Self { transposed: [left? == 1, right? == 1], node: Node::new(attributes)? })
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        self.node.run(context, |tensors| {
            let matrix = |input: usize| {
                let (sizes, numbers) = matrix(tensors, input)?;
                let matrix = Matrix::new(numbers, sizes);
                Ok::<_, String>(if self.transposed[input] { matrix.transposed() } else { matrix })
            };
            let (left, right) = (matrix(0)?, matrix(1)?);
            let ([rows, inputs], [height, columns]) = (left.sizes(), right.sizes());
            same("inputs of a product", inputs, height)?;
            let bias = vector(tensors, (self.node.inputs > 2).then_some(2), columns)?;
            let out = tensors.new_floats(0, &[rows, columns])?;
            left.in_bf16(self.node.in_bf16).multiply(right, bias, out, tensors);
            Ok(())
        })
    }
}

impl Operator for LogSumExp {
    const NAME: &CStr = c"LogSumExp";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        Node::new(attributes).map(Self)
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        self.0.run(context, |tensors| {
            let ([n, _], layer) = layer(tensors, 0, &self.0)?;
            layer.logarithms(tensors.new_floats(0, &[n, 1])?, tensors);
            Ok(())
        })
    }
}

impl Operator for LogSumExpGradient {
    const NAME: &CStr = c"LogSumExpGradient";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        Node::new(attributes).map(Self)
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        self.0.run(context, |tensors| {
            let ([n, vocab], layer) = layer(tensors, 2, &self.0)?;
            let [(_, logarithms), (_, factors)] = [tensors.floats(0)?, tensors.floats(1)?];
            same("logarithms", n, logarithms.len())?;
            same("gradients of logarithms", n, factors.len())?;
            let to = gradients(tensors, 0..self.0.outputs, [n, vocab, layer.width])?;
            layer.differentiate(Softmax { logarithms, factors }, to, tensors);
            Ok(())
        })
    }
}

impl Operator for LogSumExpWithGradient {
    const NAME: &CStr = c"LogSumExpWithGradient";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        Node::new(attributes).map(Self)
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        self.0.run(context, |tensors| {
            let ([n, vocab], layer) = layer(tensors, 1, &self.0)?;
            let (_, factors) = tensors.floats(0)?;
            same("gradients of logarithms", n, factors.len())?;
            let to = gradients(tensors, 1..self.0.outputs, [n, vocab, layer.width])?;
            let logarithms = tensors.new_floats(0, &[n, 1])?;
            layer.logarithms_and_gradients(factors, logarithms, to, tensors);
            Ok(())
        })
    }
}

impl Operator for Elementwise {
    const NAME: &CStr = c"Elementwise";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let node = Node::new(attributes)?;
        let [extents, instructions, outputs] =
            [EXTENTS, INSTRUCTIONS, OUTPUTS].map(|name| attributes.all_named(name));
        let counts = |extents: &[i64], outputs: &[i64]| [extents.len(), outputs.len()];
        let (extents, instructions, outputs) = (extents?, instructions?, outputs?);
        let found = (counts(&extents, &outputs) == [node.inputs, node.outputs])
            .then(|| decoded([extents, instructions, outputs]))
            .flatten();
        let (extents, work) = found.ok_or_else(|| Error::new("no operations of this form"))?;
        Ok(Self { extents, work, node })
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        // SAFETY: the context is that of this call and lives as long.
        let tensors = unsafe { Context::new(context, &[], self.node.threads) };
        let inputs = (0..self.node.inputs).map(|input| tensors.memory(input));
        let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
        let mut of_extents = self.extents.iter().zip(&inputs);
        let (_, (shape, _)) = of_extents
            .find(|(extent, _)| **extent == Extent::All)
            .ok_or_else(|| Error::new("expected an input of the outputs' shape"))?;
        let (width, rows) = match shape.split_last() {
            Some((width, rows)) => (*width, rows.iter().product::<usize>()),
            None => (1, 1),
        };
        for (extent, (found, _)) in self.extents.iter().zip(&inputs) {
            let expected = match extent {
                Extent::All => rows * width,
                Extent::Rows => rows,
                Extent::Columns => width,
                Extent::One => 1,
                Extent::RowFours => 4 * rows,
                Extent::ColumnFours => 4 * width,
            };
            same("numbers of an operand", expected, found.iter().product()).map_err(Error::new)?;
        }
        let outputs = (0..self.node.outputs).map(|output| tensors.new_memory(output, shape));
        let outputs: Vec<_> = outputs.collect::<Result<_>>()?;
        let inputs: Vec<_> = inputs.iter().map(|(_, memory)| *memory).collect();
        // SAFETY: inputs have these sizes, and outputs as many numbers as the shape. The library
        // gives each output memory of its own, or the caller that of an input of the same shape.
        unsafe { self.work.run([rows, width], &inputs, &outputs, &tensors) };
        Ok(())
    }
}

/// The layer whose operands are the inputs from `first` on, with its numbers of rows and columns.
fn layer<'c>(
    tensors: &Context<'c>,
    first: usize,
    &Node { inputs: n_inputs, in_bf16, .. }: &Node,
) -> program::Result<([usize; 2], cognate_kernels::LogSumExp<'c>)> {
    let ([n, width], hidden) = matrix(tensors, first)?;
    let ([vocab, inputs], weight) = matrix(tensors, first + 1)?;
    same("inputs of a layer", width, inputs)?;
    let bias = vector(tensors, (n_inputs > first + 2).then_some(first + 2), vocab)?;
    Ok(([n, vocab], cognate_kernels::LogSumExp { hidden, weight, bias, width, in_bf16 }))
}

/// Some outputs as the gradients of a layer; without the third, that of the bias is not wanted.
fn gradients<'c>(
    tensors: &Context<'c>,
    outputs: Range<usize>,
    [n, vocab, width]: [usize; 3],
) -> program::Result<Gradients<'c>> {
    let first = outputs.start;
    let of_bias = (outputs.len() > 2).then(|| tensors.new_floats(first + 2, &[1, vocab]));
    Ok(Gradients {
        hidden: tensors.new_floats(first, &[n, width])?,
        weight: tensors.new_floats(first + 1, &[vocab, width])?,
        bias: of_bias.transpose()?,
    })
}

fn matrix<'c>(tensors: &Context<'c>, input: usize) -> program::Result<([usize; 2], &'c [f32])> {
    let (shape, numbers) = tensors.floats(input)?;
    let sizes = shape.as_slice().try_into();
    Ok((sizes.map_err(|_| format!("expected a matrix, found {shape:?}"))?, numbers))
}

/// A vector of `n` numbers, if there is this input.
fn vector<'c>(
    tensors: &Context<'c>,
    input: Option<usize>,
    n: usize,
) -> program::Result<Option<&'c [f32]>> {
    let Some(input) = input else { return Ok(None) };
    let (_, numbers) = tensors.floats(input)?;
    same("numbers of a bias", n, numbers.len())?;
    Ok(Some(numbers))
}

fn same(what: &str, expected: usize, found: usize) -> program::Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected}, found {found}")),
    }
}
