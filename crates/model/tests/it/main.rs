//! Positions and initial weights, graphs as text, invalid checkpoints.
#![allow(clippy::unwrap_used, missing_docs)]

mod fuzz;
mod interface;
mod properties;
mod reading;
mod refused;
mod stored;
mod text;
mod transformers_5;
mod written;
