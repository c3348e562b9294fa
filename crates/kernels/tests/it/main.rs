//! Tests of `cognate-kernels`.

#![allow(clippy::unwrap_used)]

mod attention;
mod exponentials;
mod rows;
