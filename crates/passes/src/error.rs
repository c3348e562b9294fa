//! Errors of passes.

use cognate_graph::Type;

/// An error that names the output, parameter or node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A requested name does not exist in the graph, or has the wrong type.
    Request,
    /// An operation has no gradient.
    NoGradient,
    /// The result of a pass is not a valid graph.
    Graph,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{graph}: no output {name}; expected one of {}", known.join(", "))]
    Output { graph: String, name: String, known: Vec<String> },
    #[error("{graph}: no parameter or input {}", names.join(", "))]
    Unknown { graph: String, names: Vec<String> },
    #[error("{name}: expected a floating point scalar to differentiate, found {ty}")]
    Loss { name: String, ty: Type },
    #[error("{name}: only floating point numbers have gradients, found {ty}")]
    Integer { name: String, ty: Type },
    #[error(
        "{node}: {operation} has no gradient, and {of} depends on it; differentiate the graph before it is lowered for inference"
    )]
    NoGradient { node: String, operation: &'static str, of: String },
    #[error(transparent)]
    Graph(#[from] cognate_graph::Error),
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Output { .. }
            | Cause::Unknown { .. }
            | Cause::Loss { .. }
            | Cause::Integer { .. } => ErrorKind::Request,
            Cause::NoGradient { .. } => ErrorKind::NoGradient,
            Cause::Graph(_) => ErrorKind::Graph,
        }
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self(Cause::Graph(error))
    }
}
