//! Attention to the source, as one operator.

use super::standard;
use crate::program::{MEMORY, Places, attribute, float, integer, join_memory_attention};
use cognate_export::proto::{DataType, GraphProto, NodeProto, TensorProto};

/// Lets one operator compute attention to the source, whose mask is the one of padding.
pub(super) fn attend_to_source(graph: &mut GraphProto) {
    let before = graph.clone();
    join_memory_attention(graph);
    let places = Places::new(&before);
    let found: Vec<_> = graph.node.iter().filter(|node| node.op_type == MEMORY).cloned().collect();
    let is_right = |node: &NodeProto| {
        let mask = node.input.get(3).is_none_or(|mask| is_padding(&places, mask));
        mask && node.output.len() == 1 && heads(&places, &node.input[1]).is_some()
    };
    if found.is_empty() || !found.iter().all(is_right) {
        *graph = before;
        return;
    }
    let constant = |name: &str, numbers: &[i64]| TensorProto {
        dims: vec![numbers.len() as i64],
        data_type: DataType::Int64 as i32,
        name: name.into(),
        raw_data: Some(numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
        ..TensorProto::default()
    };
    let [n_heads, d_k] = heads(&places, &found[0].input[1]).unwrap_or_default();
    graph.initializer.extend([
        constant("source.rest", &[-1, n_heads * d_k]),
        constant("source.start", &[0]),
        constant("source.end", &[1]),
    ]);
    let mut first = vec![
        standard("Shape", &[&found[0].input[1]], "source.sizes", Vec::new()),
        standard(
            "Slice",
            &["source.sizes", "source.start", "source.end"],
            "source.batch",
            Vec::new(),
        ),
        standard(
            "Concat",
            &["source.batch", "source.rest"],
            "source.shape",
            vec![integer("axis", 0)],
        ),
    ];
    let has_mask = found.iter().any(|node| node.input.len() == 4);
    if has_mask {
        let to = vec![integer("to", DataType::Int32 as i64)];
        first.push(standard("Cast", &["attention_mask"], "source.mask", to));
    }
    let nodes = std::mem::take(&mut graph.node);
    graph.node = first;
    for node in nodes {
        if node.op_type != MEMORY {
            graph.node.push(node);
            continue;
        }
        let out = &node.output[0];
        let [queries, context] = ["queries", "context"].map(|part| format!("{out}.{part}"));
        let scale = attribute(&node, "scale").and_then(|scale| scale.f).unwrap_or(1.0);
        let mut inputs = vec![queries.clone(), node.input[1].clone(), node.input[2].clone()];
        if node.input.len() == 4 {
            inputs.extend([String::new(), "source.mask".into()]);
        }
        let attend = NodeProto {
            input: inputs,
            output: vec![context.clone()],
            name: format!("{}/MultiHeadAttention", node.name),
            op_type: "MultiHeadAttention".into(),
            attribute: vec![integer("num_heads", n_heads), float("scale", scale)],
            domain: "com.microsoft".into(),
        };
        graph.node.extend([
            standard("Reshape", &[&node.input[0], "source.shape"], &queries, Vec::new()),
            attend,
            standard("Reshape", &[&context, "source.rest"], out, Vec::new()),
        ]);
    }
}

/// Heads and d_k of keys `[batch, heads, src, d_k]`.
fn heads(places: &Places<'_>, keys: &str) -> Option<[i64; 2]> {
    match places.shape(keys)? {
        [_, heads, _, d_k] => Some([heads.dim_value?, d_k.dim_value?]),
        _ => None,
    }
}

/// Whether a tensor depends only on the mask of padding.
fn is_padding(places: &Places<'_>, tensor: &str) -> bool {
    if tensor == "attention_mask" || places.constant(tensor).is_some() {
        return true;
    }
    let Some(at) = places.source(tensor) else { return false };
    let node = &places.graph.node[at];
    // A shape may follow the batch.
    node.op_type == "Reshape" && is_padding(places, &node.input[0])
        || ["Cast", "Sub", "Mul"].contains(&node.op_type.as_str())
            && node.input.iter().all(|input| is_padding(places, input))
}
