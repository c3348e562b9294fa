//! A common interface of the evaluators: one [`Session`] trait for the reference evaluator, tract
//! and ONNX Runtime.
//!
//! [`Runtime::load`] creates a [`Session`] from a [`Source`]: a [`Program`] in memory or an
//! exported ONNX file. The reference evaluates programs; tract and ONNX Runtime execute files, and
//! export a program to a temporary one. Sessions of one [`Loaded`] source run concurrently and
//! share its weights. Values stay in the engine's memory: the outputs of one [`Session::run`] can
//! be inputs of the next.
//!
//! This crate contains no text processing and no Transformers.

mod choose;
mod engine;
mod error;
mod free_memory;
#[cfg(any(feature = "tract", feature = "ort"))]
mod huge_pages;
#[cfg(any(feature = "tract", feature = "ort"))]
mod in_memory;
#[cfg(feature = "ort")]
mod ort;
#[cfg(any(feature = "tract", feature = "ort"))]
mod program;
#[cfg(feature = "reference")]
mod reference;
#[cfg(any(feature = "tract", feature = "ort"))]
mod signature;
#[cfg(feature = "tract")]
mod tract;
mod value;

#[cfg(feature = "ort")]
pub use crate::ort::Ort;
pub use choose::available;
#[cfg(any(feature = "tract", feature = "ort"))]
pub use cognate_kernels::multiplies_bf16;
pub use engine::{Device, Devices, Engine};
pub use error::{Error, ErrorKind, Result};
pub use free_memory::return_free_memory;
#[cfg(any(feature = "tract", feature = "ort"))]
pub use program::{Times, start_times, times};
#[cfg(feature = "reference")]
pub use reference::Reference;
#[cfg(feature = "tract")]
pub use tract::Tract;
pub use value::{EngineTensor, Value, Values};

use cognate_graph::Program;
use ndarray::ArrayD;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The input that restricts the logits of [a session](Session::takes_shortlist) to these tokens:
/// i64 `[candidates]`.
pub const SHORTLIST: &str = "shortlist";

/// The input that requests the best tokens of a session that [finds them](Session::finds_best): i64
/// `[2 + n]`, the number of tokens per row, 1 to request the softmax of rows or 0, and `n` tokens
/// that are included in every row.
pub const BEST: &str = "best";

/// The source of a session.
#[derive(Clone, Debug)]
pub enum Source {
    /// A graph and its weights.
    Graph(Program),
    /// An ONNX file, with external data in its folder.
    Onnx(PathBuf),
}

/// Validates an exported file, calls `read`, and checks that the file has not changed meanwhile.
#[cfg(any(feature = "tract", feature = "ort"))]
fn read_checked<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    if !path.is_file() {
        let found = if path.is_dir() {
            "a folder"
        } else if path.exists() {
            "a pipe or device"
        } else {
            "nothing"
        };
        return Err(Error::new(
            ErrorKind::Load,
            path.display(),
            format!("expected an exported ONNX file, found {found}"),
        ));
    }
    let limits = cognate_export::Limits::from_environment().map_err(Error::from_export)?;
    let checked = cognate_export::check_model(path, &limits).map_err(Error::from_export)?;
    let loaded = read()?;
    checked.unchanged().map_err(Error::from_export)?;
    Ok(loaded)
}

/// Options of loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The device.
    pub device: Device,
    /// Maximum number of threads per operation; `None` for the runtime's default, which is one in
    /// tract and the reference. tract never uses more.
    pub threads: Option<NonZeroUsize>,
    /// Number of sessions that run at the same time, each with its threads; `None` for one.
    pub workers: Option<NonZeroUsize>,
    /// Use only the engine's operators, even if Cognate's are faster. tract ignores this for files
    /// with ONNX Runtime's operators, which it lacks.
    pub plain: bool,
    /// Move the memory that the engine allocates while loading into huge pages, after it has been
    /// used for a while (Linux). Off by default, since it is the memory of the embedding process.
    pub huge_pages: bool,
    /// Outputs of an ONNX file whose names begin with one of these are removed: they are neither
    /// kept nor copied, and not computed if nothing else needs them.
    pub without_outputs: &'static [&'static str],
    /// Keys and values of sources pass from an encoder with 8-bit weights to its decoder in half
    /// precision, if Cognate's operators compute and read them: half the memory, and half of what
    /// each step reads. Both graphs are loaded with the same choice. Rounding to half precision
    /// changes them by at most 0.05%, that of 8-bit rows by up to 0.4% of the largest.
    pub half_memory: bool,
    /// The graphs are those of a training: their weights are inputs, and they run in turn. Unless
    /// [`Options::plain`] is set, Cognate's operators then compute products, the loss and
    /// elementwise operations for ONNX Runtime on the CPU. Its sessions share one arena of memory,
    /// which is less, and is not returned to the system when they end.
    pub training: bool,
    /// With [`Options::training`]: Cognate's operators round the operands of products to bfloat16,
    /// with sums in f32, where the processor [multiplies it faster](multiplies_bf16).
    pub in_bf16: bool,
}

impl Options {
    /// Whether an output is removed.
    #[cfg(any(feature = "tract", feature = "ort"))]
    fn removes(&self, output: &str) -> bool {
        self.without_outputs.iter().any(|prefix| output.starts_with(prefix))
    }
}

/// An engine that executes graphs.
pub trait Runtime {
    /// The engine; never [`Engine::Auto`].
    fn engine(&self) -> Engine;

    /// The engine's short name: `reference`, `tract`, `ort`.
    fn name(&self) -> &'static str {
        self.engine().as_str()
    }

    /// Loads an exported ONNX file for any number of sessions.
    ///
    /// # Errors
    /// If the engine cannot read or execute the file, or does not support the device.
    fn read_file(&self, path: &Path, options: &Options) -> Result<Arc<dyn Loaded>>;

    /// Loads graphs, which may share weights. An engine that executes files exports them to a
    /// temporary folder.
    ///
    /// # Errors
    /// As [`Runtime::read_file`]; also if the graphs cannot be exported.
    fn read_graphs(&self, programs: &[Program], options: &Options) -> Result<Vec<Arc<dyn Loaded>>>;

    /// Loads `source` for any number of sessions.
    ///
    /// # Errors
    /// As [`Runtime::read_file`] and [`Runtime::read_graphs`].
    fn read(&self, source: &Source, options: &Options) -> Result<Arc<dyn Loaded>> {
        match source {
            Source::Graph(program) => {
                Ok(self.read_graphs(std::slice::from_ref(program), options)?.remove(0))
            }
            Source::Onnx(path) => self.read_file(path, options),
        }
    }

    /// Loads `source` for a single session.
    ///
    /// # Errors
    /// As [`Runtime::read`].
    fn load(&self, source: &Source, options: &Options) -> Result<Box<dyn Session>> {
        Ok(self.read(source, options)?.session())
    }
}

/// A loaded source and its weights.
pub trait Loaded: Send + Sync {
    /// Creates a session, which needs no memory for weights. Sessions of one source may run at
    /// the same time.
    fn session(self: Arc<Self>) -> Box<dyn Session>;

    /// Operators and names of the nodes that a GPU leaves to the processor, except those of shapes;
    /// none if the processor computes all.
    fn left_to_processor(&self) -> &[String] {
        &[]
    }
}

/// An executable instance of a loaded graph.
pub trait Session {
    /// Engine, version and provider, such as `ONNX Runtime 1.31.1, CPUExecutionProvider`.
    fn engine(&self) -> &str;

    /// The names of the inputs, in the graph's order.
    fn inputs(&self) -> &[String];

    /// The names of the outputs, in the graph's order.
    fn outputs(&self) -> &[String];

    /// Whether sentences may have pasts of different lengths in caches that beams share: in the
    /// `beams` of [`CachedAttention`](cognate_graph::CachedAttention), positions behind the past of
    /// a shorter sentence are -1. Each sentence then has the same results as alone, and its new
    /// position follows its own past.
    fn has_own_lengths(&self) -> bool {
        false
    }

    /// Whether one call may compute several positions of a hypothesis (prefill). They are rows of
    /// the sentence in `input_ids`; the past of each is one longer than that of the previous row.
    /// Their keys and values are written to the sentence's first row of the caches; no logits are
    /// computed. Such a session also [supports different lengths](Session::has_own_lengths).
    fn supports_prefill(&self) -> bool {
        false
    }

    /// Whether the session has an input that its file lacks: [`SHORTLIST`]. `logits` then have one
    /// column per token, in that order; without the input, or if it is empty, all columns.
    fn takes_shortlist(&self) -> bool {
        false
    }

    /// Whether the session has an input that its file lacks: [`BEST`]. `logits` are then
    /// `[rows, 2 n]`: tokens in ascending order, followed by their logits. They include the
    /// requested number of largest logits of a row, and possibly others. Unused places have a token
    /// beyond the vocabulary and minus infinity. With a [`SHORTLIST`] in ascending order, they are
    /// the best of its tokens. The softmax adds two columns: the largest logit and
    /// `ln Σ exp(logit - largest)`, of all logits times `logits_scale`, if the file has it. Without
    /// the input, or if it is empty, `logits` are all logits.
    fn finds_best(&self) -> bool {
        false
    }

    /// Whether caches should stay in the memory of the session's device, which is not the host's:
    /// see [`Session::reserve`].
    fn has_own_memory(&self) -> bool {
        false
    }

    /// A value for an input in the memory of the session's device, with any contents; `None` if
    /// that is the host's.
    ///
    /// # Errors
    /// If the device has too little memory.
    fn reserve(&self, _input: &str, _shape: &[usize]) -> Result<Option<Value>> {
        Ok(None)
    }

    /// A value of [`Session::reserve`] with these rows from the row `first` on; they are in the
    /// memory of the session's device, too.
    ///
    /// # Errors
    /// If a value is elsewhere, if it has no such rows, or if the engine has no such memory.
    fn with_rows(&self, _whole: Value, _first: usize, _rows: &Value) -> Result<Value> {
        let message = "expected an engine that reserves memory";
        Err(Error::new(ErrorKind::Run, self.engine(), message))
    }

    /// The arrays in one block of the memory of the session's device; `None` if the engine has no
    /// such memory.
    ///
    /// # Errors
    /// If the device has too little memory.
    fn reserve_together(&self, _arrays: &[ArrayD<f32>]) -> Result<Option<Together>> {
        Ok(None)
    }

    /// As [`Session::run`], but the outputs that `over` names are written to its values, which are
    /// of [`Session::reserve_together`], and not returned. An input can be overwritten if the graph
    /// allows it.
    ///
    /// # Errors
    /// As [`Session::run`]; also if a value of `over` is another, or the engine has none.
    fn run_over(&mut self, _inputs: &Values, _over: &Values) -> Result<Values> {
        let message = "expected an engine that reserves memory together";
        Err(Error::new(ErrorKind::Run, self.engine(), message))
    }

    /// The given rows of a value, whose first axes count rows, with the sizes `leading` of these
    /// axes; `None` if it is not in the memory of the session's device.
    ///
    /// # Errors
    /// If the engine fails.
    fn select(&self, _value: &Value, _leading: &[usize], _rows: &[usize]) -> Result<Option<Value>> {
        Ok(None)
    }

    /// A cache `[rows, heads, places, d_k]` with more places; `None` if it is not in the memory of
    /// the session's device.
    ///
    /// # Errors
    /// If the engine fails.
    fn widened(&self, _cache: &Value, _places: usize) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Computes all outputs from values for all inputs.
    ///
    /// # Errors
    /// If an input is missing, unknown, or has a wrong type or shape; or if the engine fails.
    fn run(&mut self, inputs: &Values) -> Result<Values>;

    /// As [`Session::run`], but each output of `pairs` (input, output) replaces its input in
    /// `state`; the other outputs are returned. Some engines overwrite the input's memory if both
    /// have the same shape and are in the host's memory, so the graph must allow that.
    ///
    /// # Errors
    /// As [`Session::run`]; also if an output does not exist.
    fn run_in_place(&mut self, state: &mut Values, pairs: &[(String, String)]) -> Result<Values> {
        run_and_exchange(self, state, pairs)
    }
}

/// Tensors in one block of a device's memory. What is written to a part is seen in the whole, and
/// the other way round.
#[derive(Debug)]
pub struct Together {
    /// All elements `[n]`; between the parts are zeros.
    pub whole: Value,
    /// A tensor for each array, with its shape.
    pub parts: Vec<Value>,
}

/// Implements [`Session::run_in_place`] by [`Session::run`].
fn run_and_exchange<S: Session + ?Sized>(
    session: &mut S,
    state: &mut Values,
    pairs: &[(String, String)],
) -> Result<Values> {
    let outputs = session.run(state)?;
    exchange(session, outputs, state, pairs)
}

/// Moves each output of `pairs` to its input in `state`; returns the other outputs.
fn exchange<S: Session + ?Sized>(
    session: &S,
    mut outputs: Values,
    state: &mut Values,
    pairs: &[(String, String)],
) -> Result<Values> {
    for (input, output) in pairs {
        let value = outputs.remove(output).ok_or_else(|| {
            let message =
                format!("output {output}: expected one of {}", session.outputs().join(", "));
            Error::new(ErrorKind::Run, session.engine(), message)
        })?;
        state.insert(input, value);
    }
    Ok(outputs)
}
