//! Positions and initial weights, graphs as text, invalid checkpoints.
#![allow(clippy::unwrap_used, missing_docs)]

mod fuzz;
mod properties;
mod refused;
mod stored;
mod text;
mod written;
