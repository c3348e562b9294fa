//! The providers of a session's nodes, which ONNX Runtime records on request.
//!
//! A session with CUDA's provider may still place nodes on the CPU.

use ::ort::AsPointer;
use ::ort::session::{SharedSessionInner, builder::SessionBuilder};
use std::ffi::{CStr, c_char};
use std::ptr;
use std::slice;

/// Integers of shapes, which ONNX Runtime computes on the CPU on purpose.
const OF_SHAPES: [&str; 23] = [
    "Shape",
    "Size",
    "Gather",
    "Concat",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Reshape",
    "Range",
    "Cast",
    "ConstantOfShape",
    "Expand",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Max",
    "Min",
    "Equal",
    "Where",
    "ReduceMax",
    "ReduceProd",
];

/// A node and its provider.
pub(super) struct Placed {
    pub(super) provider: String,
    operator: String,
    name: String,
}

/// Requests the record.
pub(super) fn recorded(builder: SessionBuilder) -> ::ort::Result<SessionBuilder> {
    Ok(builder.with_config_entry("session.record_ep_graph_assignment_info", "1")?)
}

/// The nodes of a session whose builder is [`recorded`].
pub(super) fn nodes(session: &SharedSessionInner) -> ::ort::Result<Vec<Placed>> {
    let mut placed = Vec::new();
    let api = ::ort::api();
    // SAFETY: the functions write a pointer and a count, or a string, that belong to the session.
    unsafe {
        let groups = listed(|list, count| {
            (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), list, count)
        })?;
        for &group in groups {
            let provider = text(|text| (api.EpAssignedSubgraph_GetEpName)(group, text))?;
            let nodes =
                listed(|list, count| (api.EpAssignedSubgraph_GetNodes)(group, list, count))?;
            for &node in nodes {
                placed.push(Placed {
                    provider: provider.clone(),
                    operator: text(|text| (api.EpAssignedNode_GetOperatorType)(node, text))?,
                    name: text(|text| (api.EpAssignedNode_GetName)(node, text))?,
                });
            }
        }
    }
    Ok(placed)
}

/// Operators and names of the nodes that a GPU leaves to the CPU, except those of shapes.
pub(super) fn left_to_cpu(nodes: &[Placed]) -> Vec<String> {
    let left = nodes.iter().filter(|node| {
        node.provider == "CPUExecutionProvider" && !OF_SHAPES.contains(&node.operator.as_str())
    });
    left.map(|node| format!("{} {}", node.operator, node.name)).collect()
}

/// # Safety
/// The call writes a list and its length, or fails.
unsafe fn listed<'s, T>(
    call: impl FnOnce(*mut *const *const T, *mut usize) -> ::ort::sys::OrtStatusPtr,
) -> ::ort::Result<&'s [*const T]> {
    let (mut list, mut count) = (ptr::null(), 0);
    let status = call(&raw mut list, &raw mut count);
    // SAFETY: as the caller promises.
    unsafe {
        ::ort::Error::result_from_status(status)?;
        Ok(if count == 0 { &[] } else { slice::from_raw_parts(list, count) })
    }
}

/// # Safety
/// The call writes a string, or fails.
unsafe fn text(
    call: impl FnOnce(*mut *const c_char) -> ::ort::sys::OrtStatusPtr,
) -> ::ort::Result<String> {
    let mut text = ptr::null();
    let status = call(&raw mut text);
    // SAFETY: as the caller promises.
    unsafe {
        ::ort::Error::result_from_status(status)?;
        Ok(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_shapes_belong_on_the_processor() {
        let node = |provider: &str, operator: &str| Placed {
            provider: provider.into(),
            operator: operator.into(),
            name: "a/b".into(),
        };
        let nodes = [
            node("CUDAExecutionProvider", "MatMul"),
            node("CPUExecutionProvider", "Shape"),
            node("CPUExecutionProvider", "MatMul"),
        ];
        assert_eq!(left_to_cpu(&nodes), ["MatMul a/b"]);
    }
}
