//! Decoding against transformers' own tokens and scores, and settings that are refused.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;
mod settings;
