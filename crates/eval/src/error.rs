//! Errors of an evaluation.

/// An error that names the input or node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An input is missing or has the wrong type or shape.
    Input,
    /// An operation does not accept a value, such as an id outside its table.
    Value,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Binding(#[from] cognate_graph::Error),
    #[error("{graph}: input {input}: expected {expected}, found {found}")]
    InputType { graph: String, input: String, expected: String, found: &'static str },
    #[error("{node}: size {dim} is negative or too large for these inputs")]
    Size { node: String, dim: String },
    #[error("{node}: id {id} is outside the table of {rows} rows")]
    Id { node: String, id: i64, rows: usize },
    #[error("{node}: slice {start}..{end} is outside the axis of {len}")]
    Slice { node: String, start: usize, end: usize, len: usize },
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Binding(_) | Cause::InputType { .. } => ErrorKind::Input,
            Cause::Size { .. } | Cause::Id { .. } | Cause::Slice { .. } => ErrorKind::Value,
        }
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self(Cause::Binding(error))
    }
}
