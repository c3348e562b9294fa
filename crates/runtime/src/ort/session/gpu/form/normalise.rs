//! Sums before normalisations, which one operator computes with them.

use crate::program::{Places, attribute, float};
use cognate_export::proto::{GraphProto, NodeProto};
use std::collections::BTreeSet;

/// Lets normalisations add the residual before them, and the bias of its product.
pub(super) fn add_before_normalisations(graph: &mut GraphProto) {
    let places = Places::new(graph);
    let mut removed = BTreeSet::new();
    let mut made = Vec::new();
    for (index, node) in graph.node.iter().enumerate() {
        let Some(found) =
            places.node(index, "LayerNormalization").and_then(|_| residual(&places, index))
        else {
            continue;
        };
        removed.extend(found.replaced);
        let mut outputs = vec![node.output[0].clone()];
        // The sum is the fourth output.
        if places.readers(&node.input[0]).len() > 1 || places.is_output(&node.input[0]) {
            outputs.extend([String::new(), String::new(), node.input[0].clone()]);
        }
        let [rows, skipped] = found.summands;
        let inputs = [rows, skipped, node.input[1].clone(), node.input[2].clone()];
        let epsilon = attribute(node, "epsilon").and_then(|epsilon| epsilon.f).unwrap_or(1e-5);
        let fused = NodeProto {
            input: inputs.into_iter().chain(found.bias).collect(),
            output: outputs,
            name: node.name.clone(),
            op_type: "SkipLayerNormalization".into(),
            attribute: vec![float("epsilon", epsilon)],
            domain: "com.microsoft".into(),
        };
        made.push((index, fused));
    }
    for (index, node) in made {
        graph.node[index] = node;
    }
    let mut index = 0;
    graph.node.retain(|_| {
        index += 1;
        !removed.contains(&(index - 1))
    });
}

/// A sum before a normalisation.
struct Residual {
    summands: [String; 2],
    bias: Option<String>,
    replaced: Vec<usize>,
}

/// The sum that the normalisation at `index` reads.
fn residual(places: &Places<'_>, index: usize) -> Option<Residual> {
    let [sum, _, _] = places.graph.node[index].input.as_slice() else { return None };
    let (at, add) = places.giver(sum, "Add")?;
    let [rows, skipped] = add.input.as_slice() else { return None };
    let shape = places.shape(rows).filter(|shape| shape.len() == 2)?;
    if places.shape(skipped) != Some(shape) || places.constant(rows).is_some() {
        return None;
    }
    // Another reader must not come before the normalisation, which computes the sum then.
    if places.readers(sum).iter().any(|&reader| reader < index) {
        return None;
    }
    let biased = |tensor: &String| {
        let (at, add) = places.giver(tensor, "Add")?;
        let [product, bias] = add.input.as_slice() else { return None };
        let is_own = places.constant(bias).is_some_and(|bias| bias.dims.len() == 1)
            && places.readers(tensor).len() == 1
            && !places.is_output(tensor);
        is_own.then(|| (at, product.clone(), bias.clone()))
    };
    let found = match (biased(rows), biased(skipped)) {
        (Some((bias_at, product, bias)), _) => Residual {
            summands: [product, skipped.clone()],
            bias: Some(bias),
            replaced: vec![at, bias_at],
        },
        (None, Some((bias_at, product, bias))) => Residual {
            summands: [product, rows.clone()],
            bias: Some(bias),
            replaced: vec![at, bias_at],
        },
        (None, None) => {
            Residual { summands: [rows.clone(), skipped.clone()], bias: None, replaced: vec![at] }
        }
    };
    Some(found)
}
