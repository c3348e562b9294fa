//! The public behaviour of `cognate-text`.
#![allow(clippy::unwrap_used)]

mod bleu;
mod damaged;
mod errors;
mod families;
mod lines;
mod metrics;
mod tokenizer;
mod training;

use cognate_testing::testdata;

fn json<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_slice(&std::fs::read(testdata(path)).unwrap()).unwrap()
}
