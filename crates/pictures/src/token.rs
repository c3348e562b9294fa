//! The tokens of a document.

use serde::{Deserialize, Serialize};

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The piece of the vocabulary.
    pub piece: String,
    /// The id.
    pub id: i64,
}
