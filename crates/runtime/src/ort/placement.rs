//! The placement of nodes, from ONNX Runtime's profile.
//!
//! A session with CUDA's provider may still place nodes on the CPU; the profile contains the
//! provider of each node that ran.

use crate::ort::Ort;
use crate::ort::session::Shared;
use crate::{Error, ErrorKind, Loaded, Options, Result, Values, read_checked};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

/// Runs the file at `path` once, and counts the nodes that each provider ran.
pub(super) fn count(
    ort: &Ort,
    path: &Path,
    options: &Options,
    inputs: &Values,
) -> Result<BTreeMap<String, usize>> {
    static PROFILES: AtomicUsize = AtomicUsize::new(0);
    let number = PROFILES.fetch_add(1, Ordering::Relaxed);
    let beginning = env::temp_dir().join(format!("cognate-profile-{}-{number}", process::id()));
    let shared =
        read_checked(path, || Ok(Arc::new(Shared::load(ort, path, options, Some(&beginning))?)))?;
    let run = shared.clone().session().run(inputs);
    // The file must be removed even if the run failed.
    let profile = shared.end_profile()?;
    let text = fs::read(&profile);
    // Best effort: a file left in the temporary folder is harmless.
    let _ = fs::remove_file(&profile);
    run?;
    let wrong = |reason: String| {
        Error::new(
            ErrorKind::Run,
            &profile,
            format!("cannot read ONNX Runtime's profile: {reason}"),
        )
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let events: Vec<Json> =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(nodes_by_provider(&events))
}

/// Each node has one event of the category `Node` whose name ends in `_kernel_time`.
fn nodes_by_provider(events: &[Json]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        let is_kernel = event["cat"] == "Node"
            && event["name"].as_str().is_some_and(|name| name.ends_with("_kernel_time"));
        if let (true, Some(provider)) = (is_kernel, event["args"]["provider"].as_str()) {
            *counts.entry(provider.to_string()).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kernels_are_counted_and_other_events_are_not() {
        let kernel = |provider: &str| json!({"cat": "Node", "name": "a/MatMul_kernel_time", "args": {"provider": provider}});
        let events = [
            json!({"cat": "Session", "name": "model_run", "args": {}}),
            kernel("CUDAExecutionProvider"),
            json!({"cat": "Node", "name": "a/MatMul_fence_before", "args": {"provider": "CUDAExecutionProvider"}}),
            kernel("CPUExecutionProvider"),
            kernel("CUDAExecutionProvider"),
        ];
        let counts = nodes_by_provider(&events);
        assert_eq!(
            counts,
            BTreeMap::from([
                ("CPUExecutionProvider".into(), 1),
                ("CUDAExecutionProvider".into(), 2)
            ])
        );
    }
}
