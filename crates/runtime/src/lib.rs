//! Where the evaluators meet: one [`Session`] trait over the reference evaluator, tract and ONNX Runtime.
//!
//! [`Runtime::load`] makes a [`Session`] from a [`Source`]: a [`Program`] in memory or an exported ONNX file. The reference
//! evaluates programs; tract and ONNX Runtime execute files, and export a program to a temporary one. Sessions of one [`Loaded`]
//! source run concurrently and share its weights. Values stay in the engine's memory: the outputs of one [`Session::run`] can be
//! inputs of the next.
//!
//! This crate has no notion of text or Transformers.

mod choose;
mod error;
#[cfg(any(feature = "tract", feature = "ort"))]
mod huge_pages;
#[cfg(any(feature = "tract", feature = "ort"))]
mod in_memory;
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
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a session executes.
#[derive(Clone, Debug)]
pub enum Source {
    /// A graph with its weights.
    Graph(Program),
    /// An ONNX file; external data lies beside it.
    Onnx(PathBuf),
}

/// Checks an exported file, gives it to `read`, and checks that it has not changed meanwhile.
#[cfg(any(feature = "tract", feature = "ort"))]
fn read_checked<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    if !path.is_file() {
        let found = if path.is_dir() {
            "a folder"
        } else if path.exists() {
            "no regular file"
        } else {
            "nothing"
        };
        return Err(Error::new(ErrorKind::Load, path.display(), format!("expected an exported ONNX file, found {found}")));
    }
    let limits = cognate_export::Limits::from_environment().map_err(Error::from_export)?;
    let checked = cognate_export::check_model(path, &limits).map_err(Error::from_export)?;
    let loaded = read()?;
    checked.unchanged().map_err(Error::from_export)?;
    Ok(loaded)
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

    /// Prepares an exported ONNX file for any number of sessions.
    ///
    /// # Errors
    /// If the engine cannot read or execute the file, or has no such device.
    fn read_file(&self, path: &Path, options: &Options) -> Result<Arc<dyn Loaded>>;

    /// Prepares graphs, which may have weights in common. An engine that executes files exports them to a temporary folder.
    ///
    /// # Errors
    /// As [`Runtime::read_file`]; and if the graphs cannot be exported.
    fn read_graphs(&self, programs: &[Program], options: &Options) -> Result<Vec<Arc<dyn Loaded>>>;

    /// Prepares `source` for any number of sessions.
    ///
    /// # Errors
    /// As [`Runtime::read_file`] and [`Runtime::read_graphs`].
    fn read(&self, source: &Source, options: &Options) -> Result<Arc<dyn Loaded>> {
        match source {
            Source::Graph(program) => Ok(self.read_graphs(std::slice::from_ref(program), options)?.remove(0)),
            Source::Onnx(path) => self.read_file(path, options),
        }
    }

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
