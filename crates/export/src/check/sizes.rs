//! Amounts that a small file can request: tensors of constant size, iterations of a loop, messages
//! that unpack to many times their bytes.
//!
//! Exported graphs often compute shapes from constants by a few operators, which are
//! evaluated here.

use super::tensor::elements;
use super::wire::{Fields, Kind, Value};
use super::{Limits, to_allow};
use std::collections::HashMap;

/// The properties of a node that determine the size of its result.
#[derive(Default)]
pub(super) struct Node<'a> {
    /// The standard operator; empty for others.
    operator: &'a str,
    inputs: Vec<&'a str>,
    /// The attribute `shape` of random numbers.
    shape: Option<Vec<i64>>,
    /// The value of `Constant`.
    constant: Option<Vec<i64>>,
}

impl<'a> Node<'a> {
    pub(super) fn new(operator: &'a str, inputs: Vec<&'a str>) -> Self {
        Self { operator, inputs, ..Self::default() }
    }

    pub(super) fn attribute(&mut self, name: &str, values: Option<Vec<i64>>) {
        match name {
            "shape" => self.shape = values,
            "value" | "value_int" | "value_ints" => self.constant = values,
            _ => {}
        }
    }
}

/// Returns the integers that a node computes, if they are constant and few.
///
/// # Errors
/// If constants make the result too large, or a loop may not end.
pub(super) fn value(
    node: &Node<'_>,
    constants: &HashMap<&str, Vec<i64>>,
    limits: &Limits,
) -> Result<Option<Vec<i64>>, String> {
    let input = |index: usize| node.inputs.get(index).and_then(|name| constants.get(name));
    let bounded = |shape: &[i64], what: &str| match elements(shape) {
        Ok(elements) if elements <= limits.elements => Ok(()),
        Ok(elements) => Err(format!(
            "{what} {elements} elements; expected at most {}{}",
            limits.elements,
            to_allow("elements")
        )),
        Err(reason) => Err(reason),
    };
    match node.operator {
        "ConstantOfShape" => {
            input(0).map_or(Ok(()), |shape| bounded(shape, "creates a tensor of"))?
        }
        "Expand" => {
            // A size of 1 keeps that of the input; others must not be negative.
            input(1).map_or(Ok(()), |shape| bounded(shape, "expands to"))?;
        }
        "Tile" => input(1).map_or(Ok(()), |repeats| bounded(repeats, "repeats its input to"))?,
        "OneHot" => input(1).map_or(Ok(()), |depth| bounded(depth, "has a depth of"))?,
        "Pad" => {
            let widths = input(1)
                .map(|pads| pads.iter().map(|pad| pad.saturating_abs()).collect::<Vec<_>>());
            // The larger padding is less than the result.
            widths
                .map_or(Ok(()), |pads| bounded(&[pads.into_iter().max().unwrap_or(0)], "adds"))?;
        }
        "Range" => {
            if let (Some([start]), Some([limit]), Some([step])) = (
                input(0).map(Vec::as_slice),
                input(1).map(Vec::as_slice),
                input(2).map(Vec::as_slice),
            ) {
                let steps = (i128::from(*limit) - i128::from(*start))
                    .checked_div(i128::from(*step))
                    .ok_or("has a step of zero")?;
                bounded(&[i64::try_from(steps).unwrap_or(i64::MAX).max(0)], "counts")?;
            }
        }
        "RandomNormal" | "RandomUniform" => {
            node.shape.as_deref().map_or(Ok(()), |shape| bounded(shape, "creates a tensor of"))?
        }
        "Loop" => match input(0).map(Vec::as_slice) {
            Some(&[rounds]) => bounded(&[rounds.max(0)], "iterates for")?,
            _ => {
                return Err("may not end; only a constant number of iterations is supported".into());
            }
        },
        _ => {}
    }
    Ok(computed(node, &input))
}

/// The result of operators that compute shapes.
fn computed<'c>(
    node: &Node<'_>,
    input: &impl Fn(usize) -> Option<&'c Vec<i64>>,
) -> Option<Vec<i64>> {
    const MOST: usize = 64;
    let pairs = |combine: fn(i64, i64) -> Option<i64>| -> Option<Vec<i64>> {
        let (one, other) = (input(0)?, input(1)?);
        let n_values = match (one.len(), other.len()) {
            (one, other) if one == other => one,
            (n_values, 1) | (1, n_values) => n_values,
            _ => return None,
        };
        let at = |values: &[i64], index: usize| values[if values.len() == 1 { 0 } else { index }];
        // Overflow becomes the maximum, which the limits reject.
        Some(
            (0..n_values)
                .map(|index| combine(at(one, index), at(other, index)).unwrap_or(i64::MAX))
                .collect(),
        )
    };
    match node.operator {
        "Constant" => node.constant.clone(),
        "Identity" | "Cast" | "Unsqueeze" | "Squeeze" | "Reshape" | "Flatten" => input(0).cloned(),
        "Concat" => {
            let parts: Option<Vec<_>> = (0..node.inputs.len()).map(input).collect();
            parts
                .map(|parts| parts.into_iter().flatten().copied().collect::<Vec<_>>())
                .filter(|values| values.len() <= MOST)
        }
        "Mul" => pairs(i64::checked_mul),
        "Add" => pairs(i64::checked_add),
        "Sub" => pairs(i64::checked_sub),
        "Div" => pairs(i64::checked_div),
        _ => None,
    }
}

/// Messages of an ONNX file that contain others.
#[derive(Clone, Copy)]
enum Part {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Value,
    Type,
    TensorType,
    Shape,
    /// Any other message, or a string.
    Leaf,
}

impl Part {
    /// The content of `field`, if it unpacks to its own part.
    fn of(self, field: u32) -> Option<Part> {
        Some(match (self, field) {
            (Part::Model, 7) | (Part::Attribute, 6) => Part::Graph,
            (Part::Graph, 1) => Part::Node,
            (Part::Graph, 5) | (Part::Attribute, 5) => Part::Tensor,
            (Part::Graph, 11..=13) => Part::Value,
            (Part::Node, 5) => Part::Attribute,
            (Part::Value, 2) => Part::Type,
            (Part::Type, 1) => Part::TensorType,
            (Part::TensorType, 2) => Part::Shape,
            (Part::Model, 8 | 14) | (Part::Node, 1 | 2) | (Part::Tensor, 13) | (Part::Shape, 1) => {
                Part::Leaf
            }
            _ => return None,
        })
    }
}

/// Limits the memory of a file's unpacked parts: two bytes of it may need some hundred. Counting
/// stops at invalid encoding, as unpacking does.
pub(super) fn amount(bytes: &[u8], limits: &Limits) -> Result<(), String> {
    const ANY: Kind = Kind { name: "message", once: &[] };
    let mut waiting = vec![(Part::Model, bytes)];
    let mut parts = 0;
    while let Some((part, bytes)) = waiting.pop() {
        for (field, value) in Fields::of(&ANY, bytes).map_while(Result::ok) {
            if let (Some(inner), Value::Bytes(bytes)) = (part.of(field), value) {
                parts += 1;
                if parts > limits.parts {
                    return Err(too_many_parts(limits));
                }
                waiting.extend(match inner {
                    Part::Leaf => None,
                    inner => Some((inner, bytes)),
                });
            }
        }
    }
    Ok(())
}

pub(super) fn too_many_parts(limits: &Limits) -> String {
    format!("expected at most {} parts{}", limits.parts, to_allow("parts"))
}
