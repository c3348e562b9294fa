//! Decoding against transformers' own tokens and scores, drawing, and settings that are refused.
#![allow(clippy::unwrap_used, missing_docs)]

mod beam_tree;
mod device;
mod golden;
mod margins;
mod observed;
mod optimum;
mod settings;
mod shortlist;
mod unusable;
