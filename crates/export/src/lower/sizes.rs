//! Sizes that are known only at run time, computed from the inputs' shapes as small i64 tensors.
//!
//! `size.past: [1]`, `size.past+tgt: [1]`, `shape.batch.past+tgt.512: [3]`, `scalar.past: []`. Each
//! is emitted once.

use super::Lowering;
use super::emit::Attribute;
use cognate_graph::{DType, Dim, Linear, Shape, Type};

impl Lowering<'_> {
    /// The size `dim`, i64 `[1]`.
    pub(super) fn size(&mut self, dim: &Dim) -> String {
        if let Some(constant) = dim.as_constant() {
            return self.integers(&[constant]);
        }
        if let Some(tensor) = self.sizes.get(dim) {
            return tensor.clone();
        }
        let was = self.enter(std::slice::from_ref(dim));
        let name = format!("size.{}", label(dim));
        let ty = Type::new(DType::I64, [1]);
        let tensor = match parts(dim) {
            Parts::Symbol(symbol) => {
                let (source, axis) = self.symbols[symbol];
                let input = match self.outside_of(source) {
                    Some(tensor) if self.is_before => tensor.to_owned(),
                    _ => self.source(source).to_owned(),
                };
                let whole = &self.graph.node(source).ty.shape.dims()[axis];
                let Linear { factor, constant, .. } =
                    whole.as_linear().expect("symbols are read from such sizes");
                let part =
                    [Attribute::Int("start", axis as i64), Attribute::Int("end", axis as i64 + 1)];
                let mut size = self.emit_between(
                    "Shape",
                    &format!("size.{}", label(whole)),
                    vec![input],
                    &part,
                    &ty,
                );
                for (operator, by, neutral) in [("Sub", constant, 0), ("Div", factor, 1)] {
                    if by != neutral {
                        let inputs = vec![size, self.integers(&[by])];
                        size = self.emit_between(operator, &name, inputs, &[], &ty);
                    }
                }
                size
            }
            Parts::Of(operator, left, right) => {
                let inputs = vec![self.size(&left), self.size(&right)];
                self.emit_between(operator, &name, inputs, &[], &ty)
            }
        };
        self.is_before = was;
        self.sizes.insert(dim.clone(), tensor.clone());
        tensor
    }

    /// The size `dim`, i64 `[]`.
    pub(super) fn scalar(&mut self, dim: &Dim) -> String {
        if let Some(tensor) = self.scalars.get(dim) {
            return tensor.clone();
        }
        let was = self.enter(std::slice::from_ref(dim));
        let name = format!("scalar.{}", label(dim));
        let tensor = match dim.as_constant() {
            Some(value) => self.initializer(&name, DType::I64, &[], value.to_le_bytes().to_vec()),
            None => {
                let inputs = vec![self.size(dim), self.integers(&[0])];
                self.emit_between(
                    "Squeeze",
                    &name,
                    inputs,
                    &[],
                    &Type::new(DType::I64, Shape::default()),
                )
            }
        };
        self.is_before = was;
        self.scalars.insert(dim.clone(), tensor.clone());
        tensor
    }

    /// The sizes of `shape`, i64 `[rank]`.
    pub(super) fn shape(&mut self, shape: &Shape) -> String {
        if let Some(tensor) = self.shapes.get(shape) {
            return tensor.clone();
        }
        let was = self.enter(shape.dims());
        let mut sizes = Vec::new();
        for run in shape
            .dims()
            .chunk_by(|left, right| left.as_constant().is_some() && right.as_constant().is_some())
        {
            sizes.push(match run.iter().map(Dim::as_constant).collect::<Option<Vec<_>>>() {
                Some(constants) => self.integers(&constants),
                None => self.size(&run[0]),
            });
        }
        let tensor = match sizes.as_slice() {
            [only] => only.clone(),
            _ => {
                let labels: Vec<_> = shape.dims().iter().map(label).collect();
                let name = format!("shape.{}", labels.join("."));
                self.emit_between(
                    "Concat",
                    &name,
                    sizes,
                    &[Attribute::Int("axis", 0)],
                    &Type::new(DType::I64, [shape.rank()]),
                )
            }
        };
        self.is_before = was;
        self.shapes.insert(shape.clone(), tensor.clone());
        tensor
    }

    /// A constant number, f32 `[]`.
    pub(super) fn number(&mut self, value: f32) -> String {
        if let Some(tensor) = self.numbers.get(&value.to_bits()) {
            return tensor.clone();
        }
        let tensor = self.initializer(
            &format!("number.{value:e}"),
            DType::F32,
            &[],
            value.to_le_bytes().to_vec(),
        );
        self.numbers.insert(value.to_bits(), tensor.clone());
        tensor
    }

    /// Constant integers, i64 `[n]`.
    pub(super) fn integers(&mut self, values: &[i64]) -> String {
        if let Some(tensor) = self.integers.get(values) {
            return tensor.clone();
        }
        let labels: Vec<_> = values.iter().map(i64::to_string).collect();
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = self.initializer(
            &format!("integers.{}", labels.join(".")),
            DType::I64,
            &[values.len() as i64],
            bytes,
        );
        self.integers.insert(values.to_vec(), tensor.clone());
        tensor
    }
}

/// How a symbolic size is computed.
enum Parts<'d> {
    Symbol(&'d str),
    Of(&'static str, Dim, Dim),
}

/// Splits off the last term of a sum, the coefficient of a product, or its last symbol.
fn parts(dim: &Dim) -> Parts<'_> {
    let (product, coefficient) = dim.terms().last().expect("a constant dim has no parts");
    let symbols = |symbols: &[cognate_graph::Symbol]| {
        symbols.iter().fold(Dim::from(1), |product, symbol| product * Dim::symbol(symbol))
    };
    let term = symbols(product) * coefficient;
    if *dim != term {
        let rest = dim - &term;
        return if coefficient < 0 {
            Parts::Of("Sub", rest, term * -1)
        } else {
            Parts::Of("Add", rest, term)
        };
    }
    match product {
        _ if coefficient != 1 => Parts::Of("Mul", symbols(product), coefficient.into()),
        [symbol] => Parts::Symbol(symbol),
        [leading @ .., last] => Parts::Of("Mul", symbols(leading), Dim::symbol(last)),
        [] => unreachable!("a constant dim has no parts"),
    }
}

/// A name for `past + tgt`: `past+tgt`.
fn label(dim: &Dim) -> String {
    dim.to_string().replace(' ', "")
}
