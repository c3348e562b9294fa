//! Tests of `cognate-kernels`.

#![allow(clippy::unwrap_used)]

mod attention;
mod best;
mod bf16;
mod coarse;
mod common;
mod elementwise;
mod exponentials;
mod instructions;
mod integers;
mod log_sum_exp;
mod matrices;
mod products;
mod registers;
mod rows;
mod screen;
