//! Every engine, the same numbers: the lecture's example, the properties of the Transformer, whole models.
#![allow(clippy::unwrap_used, missing_docs)]

mod activations;
mod agreement;
mod beam_sampling;
mod blocks;
mod compare;
mod decoders;
mod decoding;
mod encoders;
mod engines;
mod fast;
mod golden;
mod golden_tokens;
mod half;
mod lecture;
mod loops;
mod ops;
mod own_operators;
mod profile;
mod properties;
mod random_graphs;
mod research;
mod scatter;
mod search;
mod snapshots;
mod speech;
