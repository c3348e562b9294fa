//! Public behaviour of cognate-export.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checked;
mod folders;
mod graphs;
mod in_place;
mod listings;
mod lowering;
mod oracle;
