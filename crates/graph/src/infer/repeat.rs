//! Loops.

use super::expect_type;
use crate::{DType, Dim, Loop, Shape, Symbol, Type};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn repeat(repeat: &Loop, inputs: &[&Type]) -> Result<Type, String> {
    let Loop { body, carried, .. } = repeat;
    let given: Vec<&Type> = body.inputs().map(|(_, node)| &node.ty).collect();
    let next: Vec<&Type> = body.outputs().iter().map(|output| &body.node(output.node).ty).collect();
    if *carried == 0
        || inputs.len() != given.len()
        || next.len() != carried + 1
        || inputs.len() <= *carried
    {
        return Err(format!(
            "expected a condition and {} values, {carried} of them carried, found {} inputs and {} outputs of the body",
            given.len().saturating_sub(1),
            inputs.len(),
            next.len()
        ));
    }
    let truth = Type::new(DType::Bool, Shape::default());
    expect_type("condition", inputs[0], &truth)?;
    expect_type("next condition", next[0], &truth)?;
    expect_type("iteration", given[0], &Type::new(DType::I64, Shape::default()))?;
    let outer: BTreeSet<&Symbol> =
        inputs.iter().flat_map(|ty| ty.shape.dims()).flat_map(Dim::symbols).collect();
    let mut growing: BTreeMap<&Symbol, [&Dim; 2]> = BTreeMap::new();
    for (index, (first, inside)) in inputs.iter().zip(&given).enumerate().skip(1) {
        let name = format!("value {}", index - 1);
        if index > *carried {
            expect_type(&name, first, inside)?;
            continue;
        }
        let after = next[index];
        let fits =
            |other: &Type| other.dtype == inside.dtype && other.shape.rank() == inside.shape.rank();
        if !fits(first) || !fits(after) {
            return Err(format!("{name}: expected {inside}, found {first}, then {after}"));
        }
        for (inside, (first, after)) in
            inside.shape.dims().iter().zip(first.shape.dims().iter().zip(after.shape.dims()))
        {
            if inside == first && inside == after {
                continue;
            }
            let changes = inside.as_symbol().filter(|symbol| !outer.contains(symbol));
            let known = changes.map(|symbol| *growing.entry(symbol).or_insert([first, after]));
            if known != Some([first, after]) {
                return Err(format!(
                    "{name}: expected an axis of {inside}, found {first}, then {after}"
                ));
            }
        }
    }
    if given[1] != inputs[1] {
        return Err(format!(
            "the first carried value keeps its shape, found {} and {}",
            inputs[1], given[1]
        ));
    }
    Ok(inputs[1].clone())
}
