//! The public behaviour of `cognate-text`.
#![allow(clippy::unwrap_used)]

mod bleu;
mod errors;
mod lines;
mod tokenizer;

use std::path::PathBuf;

/// A file under `testdata/`.
fn testdata(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata")).join(path)
}

fn json<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_slice(&std::fs::read(testdata(path)).unwrap()).unwrap()
}
