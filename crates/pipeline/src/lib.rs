//! From input to output: what turns text into a model's tokens, the same for translation and for validation of a training run.
//!
//! Knows no command line and prints nothing.

mod error;
mod language;
mod source;
mod tokenizer;

pub use error::{Error, ErrorKind, Result};
pub use language::{TargetNaming, decode_into};
pub use source::{EncodedSource, SourceEncoder};
pub use tokenizer::{check_tokenizer, open_tokenizer};
