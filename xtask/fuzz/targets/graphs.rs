//! The graph language: the reference, tract and ONNX Runtime agree on a graph, or all reject it.
#![no_main]

#[path = "../../../crates/verify/tests/it/random_graphs/examined.rs"]
mod examined;

use examined::{Gene, examine};
use libfuzzer_sys::fuzz_target;

/// Maximum number of operations of a graph.
const MOST: usize = 12;

fuzz_target!(|genes: Vec<Gene>| {
    let genes = &genes[..genes.len().min(MOST)];
    examine(genes).unwrap_or_else(|wrong| panic!("{genes:?}: {wrong}"));
});
