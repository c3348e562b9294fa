//! Where the evaluators meet: one [`Session`] trait over the reference evaluator, tract and ONNX Runtime.
//!
//! [`Runtime::load`] makes a [`Session`] from a [`Source`]: a [`Program`] in memory (the reference evaluates it) or an
//! exported ONNX file (tract and ONNX Runtime execute it). Sessions of one [`Loaded`] source run at the same time in several
//! threads and have its weights in common. Values pass from call to call without a visit to the host:
//! what one [`Session::run`] returns may be given to the next as it is.
//!
//! This crate knows no text and no Transformer.

mod choose;
mod error;
#[cfg(any(feature = "tract", feature = "ort"))]
mod huge_pages;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "reference")]
mod reference;
#[cfg(any(feature = "tract", feature = "ort"))]
mod signature;
#[cfg(feature = "tract")]
mod tract;
mod value;

#[cfg(feature = "ort")]
pub use crate::ort::Ort;
pub use choose::{Engine, available};
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "reference")]
pub use reference::Reference;
#[cfg(feature = "tract")]
pub use tract::Tract;
pub use value::{EngineTensor, Value, Values};

use cognate_graph::Program;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// What a session executes.
#[derive(Clone, Debug)]
pub enum Source {
    /// A graph with its weights.
    Graph(Program),
    /// An ONNX file; external data lies beside it.
    Onnx(PathBuf),
}

impl Source {
    /// What `read` makes of the file, for an engine that executes no graphs; the file was checked before, and is still the same.
    #[cfg(any(feature = "tract", feature = "ort"))]
    fn read_onnx<T>(&self, engine: &str, read: impl FnOnce(&std::path::Path) -> Result<T>) -> Result<T> {
        let path = match self {
            Source::Graph(program) => {
                let message = format!("{engine} runs exported ONNX files, not graphs in memory; export it first, or choose reference");
                return Err(Error::new(ErrorKind::Load, program.graph().name(), message));
            }
            Source::Onnx(path) if path.is_file() => path,
            Source::Onnx(path) => {
                let found = if path.is_dir() {
                    "a folder"
                } else if path.exists() {
                    "no regular file"
                } else {
                    "nothing"
                };
                return Err(Error::new(ErrorKind::Load, path.display(), format!("expected an exported ONNX file, found {found}")));
            }
        };
        let limits = cognate_export::Limits::from_environment().map_err(Error::from_check)?;
        let checked = cognate_export::check_model(path, &limits).map_err(Error::from_check)?;
        let loaded = read(path)?;
        checked.unchanged().map_err(Error::from_check)?;
        Ok(loaded)
    }
}

/// Where a session computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by ONNX Runtime's CUDA execution provider; loading fails where there is none.
    Cuda,
}

/// How to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where to compute.
    pub device: Device,
    /// Threads that one operation may use at most; the runtime's own choice if `None`. tract and the reference use one.
    pub threads: Option<NonZeroUsize>,
    /// Sessions that run at the same time, each on so many threads; one if `None`.
    pub workers: Option<NonZeroUsize>,
    /// ONNX Runtime's own operators only, also where ours are faster.
    pub plain: bool,
    /// Move what the engine allocates while it loads into huge pages, once it has been in use for a while (Linux). Off by default:
    /// this is the memory of the process that embeds this library.
    pub huge_pages: bool,
}

/// An engine that executes graphs.
pub trait Runtime {
    /// Which engine this is; never [`Engine::Auto`].
    fn engine(&self) -> Engine;

    /// The engine's short name: `reference`, `tract`, `ort`.
    fn name(&self) -> &'static str {
        self.engine().as_str()
    }

    /// Prepares `source` for any number of sessions.
    ///
    /// # Errors
    /// If the engine cannot read or execute the source, or has no such device.
    fn read(&self, source: &Source, options: &Options) -> Result<Arc<dyn Loaded>>;

    /// Prepares `source` for running.
    ///
    /// # Errors
    /// As [`Runtime::read`].
    fn load(&self, source: &Source, options: &Options) -> Result<Box<dyn Session>> {
        Ok(self.read(source, options)?.session())
    }
}

/// A source that an engine has read, with its weights.
pub trait Loaded: Send + Sync {
    /// A session, which takes no memory for weights. Those of one source may run at the same time.
    fn session(self: Arc<Self>) -> Box<dyn Session>;
}

/// One loaded graph.
pub trait Session {
    /// What really executes, with version and provider, as `ONNX Runtime 1.31.1, CPUExecutionProvider`.
    fn engine(&self) -> &str;

    /// The names of the inputs, in the graph's order.
    fn inputs(&self) -> &[String];

    /// The names of the outputs, in the graph's order.
    fn outputs(&self) -> &[String];

    /// Computes every output from a value for every input.
    ///
    /// # Errors
    /// If an input is missing, unknown, or has a type or shape that the graph does not take; or if the engine fails.
    fn run(&mut self, inputs: &Values) -> Result<Values>;

    /// As [`Session::run`], and each output of `pairs` (input, output) takes its input's place in `state`; the others are
    /// returned. An engine that can lets an output be written over its input, where both have one shape and lie in the host's
    /// memory: only for graphs that say so.
    ///
    /// # Errors
    /// As [`Session::run`]; and if an output does not exist.
    fn run_in_place(&mut self, state: &mut Values, pairs: &[(String, String)]) -> Result<Values> {
        run_and_exchange(self, state, pairs)
    }
}

/// [`Session::run_in_place`] by [`Session::run`].
fn run_and_exchange<S: Session + ?Sized>(session: &mut S, state: &mut Values, pairs: &[(String, String)]) -> Result<Values> {
    let mut outputs = session.run(state)?;
    for (input, output) in pairs {
        let value = outputs.remove(output).ok_or_else(|| {
            let message = format!("no output {output}; the graph has {}", session.outputs().join(", "));
            Error::new(ErrorKind::Run, session.engine(), message)
        })?;
        state.insert(input, value);
    }
    Ok(outputs)
}
