//! Rows of numbers that pass through several layers, without an engine between the operations.
//!
//! A [`Program`] is a part of a graph: products with weights that are packed once, attention, and
//! the operations in between. They run one after another on reused buffers, with the kernels of
//! `cognate-kernels`. An engine runs a program as one operator: for small models the engine's
//! overhead per operator is most of a step.

mod attention;
mod compile;
mod constants;
mod convolution;
mod embedding;
mod feed_forward;
mod gate;
mod grown;
mod heads;
mod linear;
mod memory;
mod operation;
mod output_layer;
mod places;
mod product;
mod registered;
mod rotation;
mod rows;
mod sizes;
mod substitute;
mod times;

pub(crate) use compile::{Compiled, compile};
pub(crate) use constants::Constants;
pub(crate) use operation::{
    Among, ConvolutionOf, ConvolutionSizes, Counted, MaskOf, Operation, PositionsFrom, PositionsOf,
    Scores, TableOf,
};
#[cfg(feature = "ort")]
pub(crate) use output_layer::{LOGITS, LOGITS_SCALE};
#[cfg(feature = "tract")]
pub(crate) use places::element_type;
pub(crate) use places::{Places, other};
pub(crate) use registered::{Kernel, Registered};
pub(crate) use sizes::Size;
pub(crate) use substitute::{DOMAIN, Substituted, is_large, substitute};
#[cfg(feature = "ort")]
pub(crate) use substitute::{
    Found, MEMORY, attribute, float, integer, join_memory_attention, own, prune, replace,
};
#[cfg(feature = "tract")]
pub(crate) use substitute::{NUMBER, PROGRAM};
pub use times::{Times, start_times, times};

use attention::{CachedAttention, MemoryAttention, SelfAttention};
use cognate_graph::f16;
use cognate_kernels::Parallel;
use convolution::Convolutions;
use embedding::Embedding;
use feed_forward::FeedForward;
use gate::Gate;
use grown::GrownAttention;
use heads::{Divided, Heads};
use linear::Linear;
use output_layer::{Chosen, OutputLayer};
use rotation::Rotation;
use rows::{BetweenProducts, Largest};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Errors are messages; the engine adds the place.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn expected(what: &str, expected: impl Display, found: impl Display) -> String {
    format!("{what}: expected {expected}, found {found}")
}

/// The tensors of a call, in the engine's memory.
pub(crate) trait Tensors<'c>: Parallel {
    /// Shape and elements of an input.
    fn floats(&self, input: usize) -> Result<(Vec<usize>, &'c [f32])>;
    fn bytes(&self, input: usize) -> Result<(Vec<usize>, &'c [u8])>;
    fn integers(&self, input: usize) -> Result<(Vec<usize>, &'c [i64])>;
    fn floats_or_halves(&self, input: usize) -> Result<(Vec<usize>, FloatsOrHalves<'c>)>;
    /// The shape of an input of any type.
    fn shape(&self, input: usize) -> Result<Vec<usize>>;
    /// The elements of an output of this shape; each output is requested once.
    fn new_floats(&self, output: usize, shape: &[usize]) -> Result<&'c mut [f32]>;
    fn new_halves(&self, output: usize, shape: &[usize]) -> Result<&'c mut [f16]>;
    fn new_bytes(&self, output: usize, shape: &[usize]) -> Result<&'c mut [u8]>;
    /// An output with the shape and the elements of an input, usually in its memory.
    fn written(&self, input: usize, output: usize) -> Result<(Vec<usize>, &'c mut [f32])>;
}

/// The elements of an input that may have half precision.
#[derive(Clone, Copy)]
pub(crate) enum FloatsOrHalves<'c> {
    Floats(&'c [f32]),
    Halves(&'c [f16]),
}

/// A part of a graph.
pub(crate) struct Program {
    steps: Vec<Step>,
    buffers: Vec<Buffer>,
    /// Whether a buffer contains bytes.
    is_bytes: Vec<bool>,
    /// The buffers that are not read after each step.
    released: Vec<Vec<usize>>,
    /// Inputs and outputs that are caches: an output may be in the memory of its input.
    pub(crate) caches: Vec<[usize; 2]>,
    /// Buffers of calls that have ended.
    free: Mutex<Vec<Scratch>>,
}

/// An operation; numbers are indices of buffers.
enum Step {
    Product { x: usize, weights: Linear, out: usize },
    Rows(BetweenProducts),
    FeedForward(FeedForward),
    Cached(CachedAttention),
    Memory(MemoryAttention),
    SelfAttention(SelfAttention),
    Grown(GrownAttention),
    Rotation(Rotation),
    Gate(Gate),
    Heads(Heads),
    Divided(Divided),
    Convolutions(Convolutions),
    Embedding(Embedding),
    Largest(Largest),
    Output(Box<OutputLayer>),
}

/// Rows `[n, width]`.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    width: usize,
    place: Place,
}

impl Buffer {
    fn is_output(&self) -> bool {
        matches!(self.place, Place::Output(_))
    }
}

/// The location of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Input(usize),
    Output(usize),
    /// In the memory of this number, which other buffers use before and after.
    Own(usize),
}

/// Columns of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    buffer: usize,
    offset: usize,
    width: usize,
}

/// Memory of buffers.
#[derive(Default)]
struct Scratch {
    floats: Vec<Vec<f32>>,
    bytes: Vec<Vec<u8>>,
    /// For searches for the best tokens.
    best: output_layer::Room,
    /// The columns of the output layer that the last call chose.
    chosen: Option<Chosen>,
}

impl Scratch {
    /// Frees the buffers of long inputs, such as the frames of an encoder of speech, which would
    /// otherwise take memory while their translation is decoded. They cost less to allocate than to
    /// compute.
    fn release_large(&mut self) {
        const LARGE: usize = 1 << 21;
        let Self { floats, bytes, .. } = self;
        let of_floats = floats.iter_mut().filter(|buffer| 4 * buffer.capacity() > LARGE);
        of_floats.for_each(|buffer| *buffer = Vec::new());
        let of_bytes = bytes.iter_mut().filter(|buffer| buffer.capacity() > LARGE);
        of_bytes.for_each(|buffer| *buffer = Vec::new());
    }
}

/// The elements of a buffer.
#[derive(Default)]
enum Elements<'c> {
    #[default]
    None,
    Floats(&'c [f32]),
    Bytes(&'c [u8]),
    NewFloats(&'c mut [f32]),
    NewBytes(&'c mut [u8]),
    OwnFloats(Vec<f32>, usize),
    OwnBytes(Vec<u8>, usize),
}

impl Elements<'_> {
    fn floats(&self) -> &[f32] {
        match self {
            Elements::Floats(floats) => floats,
            Elements::NewFloats(floats) => floats,
            Elements::OwnFloats(floats, n) => &floats[..*n],
            _ => unreachable!("compiled: floats that were computed before"),
        }
    }

    fn floats_mut(&mut self) -> &mut [f32] {
        match self {
            Elements::NewFloats(floats) => floats,
            Elements::OwnFloats(floats, n) => &mut floats[..*n],
            _ => unreachable!("compiled: floats that are computed here"),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Elements::Bytes(bytes) => bytes,
            Elements::NewBytes(bytes) => bytes,
            Elements::OwnBytes(bytes, n) => &bytes[..*n],
            _ => unreachable!("compiled: bytes that were computed before"),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Elements::NewBytes(bytes) => bytes,
            Elements::OwnBytes(bytes, n) => &mut bytes[..*n],
            _ => unreachable!("compiled: bytes that are computed here"),
        }
    }
}

/// A call of a program.
struct Call<'p, 'c> {
    program: &'p Program,
    tensors: &'p dyn Tensors<'c>,
    elements: Vec<Elements<'c>>,
    scratch: Scratch,
    /// Whether rows are positions of a prefill, which computes no logits.
    is_prefill: bool,
    /// Whether sentences may have pasts of different lengths: positions behind the last one that a
    /// beam holds are not padding.
    own_lengths: bool,
}

impl<'c> Call<'_, 'c> {
    /// Loads an input on first use.
    fn load(&mut self, buffer: usize, is_bytes: bool) -> Result<()> {
        let Buffer { place: Place::Input(input), width } = self.program.buffers[buffer] else {
            return Ok(());
        };
        if !matches!(self.elements[buffer], Elements::None) {
            return Ok(());
        }
        let (shape, elements) = match is_bytes {
            true => {
                self.tensors.bytes(input).map(|(shape, bytes)| (shape, Elements::Bytes(bytes)))?
            }
            false => self
                .tensors
                .floats(input)
                .map(|(shape, floats)| (shape, Elements::Floats(floats)))?,
        };
        if shape.last() != Some(&width) {
            return Err(expected("rows", format!("a width of {width}"), format!("{shape:?}")));
        }
        self.elements[buffer] = elements;
        Ok(())
    }

    fn floats(&self, buffer: usize) -> &[f32] {
        self.elements[buffer].floats()
    }

    /// Columns of a buffer of floats, which is loaded.
    fn columns(&self, view: View) -> Columns<'_> {
        let stride = self.program.buffers[view.buffer].width;
        Columns { floats: self.floats(view.buffer), offset: view.offset, stride }
    }

    /// The number of rows in a buffer of floats, which is loaded.
    fn rows(&mut self, buffer: usize) -> Result<usize> {
        self.load(buffer, false)?;
        Ok(self.floats(buffer).len() / self.program.buffers[buffer].width.max(1))
    }

    /// Whether this buffer is for logits of a prefill, which are not computed.
    fn is_unused(&self, buffer: usize) -> bool {
        self.is_prefill && self.program.buffers[buffer].is_output()
    }

    /// Memory for `rows` rows of a buffer, which [`Call::put`] returns.
    fn take_floats(&mut self, buffer: usize, rows: usize) -> Result<Elements<'c>> {
        self.take_columns(buffer, rows, self.program.buffers[buffer].width)
    }

    /// The same with `width` columns.
    fn take_columns(&mut self, buffer: usize, rows: usize, width: usize) -> Result<Elements<'c>> {
        let Buffer { place, .. } = self.program.buffers[buffer];
        Ok(match place {
            Place::Output(output) => {
                Elements::NewFloats(self.tensors.new_floats(output, &[rows, width])?)
            }
            Place::Own(number) => Elements::OwnFloats(
                room(&mut self.scratch.floats, number, rows * width),
                rows * width,
            ),
            Place::Input(_) => unreachable!("compiled: no operation writes an input"),
        })
    }

    fn take_bytes(&mut self, buffer: usize, rows: usize) -> Result<Elements<'c>> {
        let Buffer { width, place } = self.program.buffers[buffer];
        Ok(match place {
            Place::Output(output) => {
                Elements::NewBytes(self.tensors.new_bytes(output, &[rows, width])?)
            }
            Place::Own(number) => Elements::OwnBytes(
                room(&mut self.scratch.bytes, number, rows * width),
                rows * width,
            ),
            Place::Input(_) => unreachable!("compiled: no operation writes an input"),
        })
    }

    fn put(&mut self, buffer: usize, elements: Elements<'c>) {
        self.elements[buffer] = elements;
    }

    /// Makes the memory of a buffer that is not read again available to others.
    fn release(&mut self, buffer: usize) {
        let Buffer { place: Place::Own(number), .. } = self.program.buffers[buffer] else { return };
        match std::mem::take(&mut self.elements[buffer]) {
            Elements::OwnFloats(floats, _) => self.scratch.floats[number] = floats,
            Elements::OwnBytes(bytes, _) => self.scratch.bytes[number] = bytes,
            _ => {}
        }
    }
}

/// The same columns of each row.
#[derive(Clone, Copy)]
struct Columns<'e> {
    floats: &'e [f32],
    offset: usize,
    stride: usize,
}

impl<'e> Columns<'e> {
    /// The elements from this row on, with those of other columns in between.
    fn starting_at(self, row: usize) -> &'e [f32] {
        self.floats.get(row * self.stride + self.offset..).unwrap_or_default()
    }
}

/// The memory `number`, with at least `len` elements.
fn room<E: Clone + Default>(memory: &mut Vec<Vec<E>>, number: usize, len: usize) -> Vec<E> {
    if memory.len() <= number {
        memory.resize(number + 1, Vec::new());
    }
    let mut room = std::mem::take(&mut memory[number]);
    if room.len() < len {
        room.resize(len, E::default());
    }
    room
}

impl Program {
    /// The inputs that attention to caches reads as the beam of each position, and as biases.
    pub(crate) fn inputs_of_caches(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let cached = || {
            self.steps.iter().filter_map(|step| {
                if let Step::Cached(cached) = step { Some(cached) } else { None }
            })
        };
        (
            cached().map(|cached| cached.beams).collect(),
            cached().filter_map(|cached| cached.bias).collect(),
        )
    }

    /// Whether rows may be positions of a prefill: only attention to caches depends on the order of
    /// rows.
    pub(crate) fn supports_prefill(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Cached(cached) => cached.bias.is_none(),
            Step::Embedding(embedding) => !embedding.counts_tokens(),
            Step::SelfAttention(_) | Step::Grown(_) => false,
            Step::Heads(_) | Step::Divided(_) | Step::Convolutions(_) => false,
            Step::Product { .. }
            | Step::Rows(_)
            | Step::FeedForward(_)
            | Step::Memory(_)
            | Step::Largest(_) => true,
            Step::Rotation(_) | Step::Gate(_) | Step::Output(_) => true,
        })
    }

    /// Computes the outputs; sentences may have pasts of [different
    /// lengths](crate::Session::has_own_lengths) if `own_lengths` is true.
    pub(crate) fn run<'c>(&self, tensors: &dyn Tensors<'c>, own_lengths: bool) -> Result<()> {
        let scratch = self.scratch(tensors);
        let elements = self.buffers.iter().map(|_| Elements::None).collect();
        let mut call =
            Call { program: self, tensors, elements, scratch, is_prefill: false, own_lengths };
        for (index, step) in self.steps.iter().enumerate() {
            times::timed(self, step, || step.run(&mut call))?;
            for buffer in &self.released[index] {
                call.release(*buffer);
            }
        }
        let mut scratch = call.scratch;
        scratch.release_large();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        Ok(())
    }
}

impl Step {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        match self {
            Step::Product { x, weights, out } => {
                let rows = weights.rows(call, *x)?;
                let rows = if call.is_unused(*out) { 0 } else { rows };
                let mut made = call.take_floats(*out, rows)?;
                let (x, columns) = ((&call.elements[*x], 0..rows), 0..weights.outputs());
                weights.multiply(x, columns, made.floats_mut(), call.tensors);
                call.put(*out, made);
            }
            Step::Rows(step) => step.run(call)?,
            Step::FeedForward(step) => step.run(call)?,
            Step::Cached(step) => step.run(call)?,
            Step::Memory(step) => step.run(call)?,
            Step::SelfAttention(step) => step.run(call)?,
            Step::Grown(step) => step.run(call)?,
            Step::Rotation(step) => step.run(call)?,
            Step::Gate(step) => step.run(call)?,
            Step::Heads(step) => step.run(call)?,
            Step::Divided(step) => step.run(call)?,
            Step::Convolutions(step) => step.run(call)?,
            Step::Embedding(step) => step.run(call)?,
            Step::Largest(step) => step.run(call)?,
            Step::Output(step) => step.run(call)?,
        }
        Ok(())
    }
}

/// The largest number of rows that pass several operations at once.
const ROWS_AT_ONCE: usize = 256;

/// Parts of rows that pass several operations, so that what is between exists for some rows at a
/// time. They have nearly the same size, since products of few rows may have other bits.
fn parts_of_rows(n: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = n.div_ceil(ROWS_AT_ONCE);
    (0..parts).map(move |part| n * part / parts..n * (part + 1) / parts)
}

/// Calls `work` for each part, on all threads.
fn by_parts<P: Send>(
    threads: &dyn Parallel,
    parts: impl Iterator<Item = P>,
    work: impl Fn(usize, P) + Sync,
) {
    if threads.threads() <= 1 {
        return parts.enumerate().for_each(|(index, part)| work(index, part));
    }
    let parts: Vec<_> = parts.map(|part| Mutex::new(Some(part))).collect();
    threads.each(parts.len(), &|index| {
        // A panic ends the process, so the state after one is never seen.
        if let Some(part) = parts[index].lock().unwrap_or_else(PoisonError::into_inner).take() {
            work(index, part);
        }
    });
}
