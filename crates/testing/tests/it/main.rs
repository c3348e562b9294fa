//! Tests of `cognate-testing`.

#![allow(clippy::unwrap_used)]

mod files;
mod golden;
mod mutations;
