//! The model against PyTorch's own answers, against its own properties, and against bad checkpoints.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;
mod properties;
mod refused;
mod text;
