//! A file loaded by ONNX Runtime.
//!
//! All sessions of a file share one ONNX Runtime session. It contains the weights in the order in
//! which products read them, of which each session would need a copy: 148 MB and 0.25 s for the
//! decoder of the base shape.
//!
//! Outputs stay where they were computed, in the CPU's or the GPU's memory, with reference counts:
//! a `present` passed as `past` is not copied. They are copied to the host on request.

mod gpu;
mod in_place;
mod tensor;
mod together;

use crate::huge_pages::{self, HugePages};
use crate::in_memory::has_shared_caches;
use crate::ort::Ort;
use crate::ort::placement::{self, Placed, left_to_cpu};
use crate::ort::{arena, gradients, kernels};
use crate::program::{Substituted, is_large, substitute};
use crate::signature::{self, Input, Signature};
use crate::{
    BEST, Device, Error, ErrorKind, Loaded, Options, Result, SHORTLIST, Session, Together, Value,
    Values, run_and_exchange,
};
use ::ort::ep::CUDA;
use ::ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::{
    Session as Engine, SessionInputValue, SharedSessionInner, builder::SessionBuilder,
};
use ::ort::value::{DynValue, ValueType};
use ::ort::{
    AsPointer,
    sys::{OrtRunOptions, OrtValue},
};
use cognate_export::proto::ModelProto;
use gpu::{Caches, Form, Gpu, Memory, RowOperations};
use ndarray::ArrayD;
use prost::Message;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tensor::{brought, element_name, given, held, owned};

/// State shared by the sessions of a file.
pub(super) struct Shared {
    /// A GPU runs one call at a time.
    session: Mutex<Engine>,
    /// The inner part of `session`, for concurrent calls on the CPU.
    inner: Arc<SharedSessionInner>,
    signature: Signature,
    /// The names of inputs and outputs as C strings.
    names: [Vec<CString>; 2],
    engine: String,
    own_lengths: bool,
    prefill: bool,
    device: Device,
    /// The nodes that a GPU leaves to the processor.
    left: Vec<String>,
    /// Of a decoder with shared caches on a GPU.
    caches: Option<Caches>,
    /// On a GPU.
    rows: Option<RowOperations>,
    huge_pages: HugePages,
}

impl Loaded for Shared {
    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(OrtSession { shared: self, memory: Mutex::default() })
    }

    fn left_to_processor(&self) -> &[String] {
        &self.left
    }
}

impl Shared {
    /// Loads the file at `path`.
    pub(super) fn load(ort: &Ort, path: &Path, options: &Options) -> Result<Self> {
        Self::load_recorded(ort, path, options, options.device.is_gpu()).map(|(shared, _)| shared)
    }

    /// Counts the nodes of each provider.
    pub(super) fn placement(
        ort: &Ort,
        path: &Path,
        options: &Options,
    ) -> Result<BTreeMap<String, usize>> {
        let (_, nodes) = Self::load_recorded(ort, path, options, true)?;
        let mut counts = BTreeMap::new();
        nodes.into_iter().for_each(|node| *counts.entry(node.provider).or_default() += 1);
        Ok(counts)
    }

    /// Loads the file at `path`, with its nodes if they are recorded.
    fn load_recorded(
        ort: &Ort,
        path: &Path,
        options: &Options,
        is_recorded: bool,
    ) -> Result<(Self, Vec<Placed>)> {
        let before = huge_pages::Before::loading(options);
        let _undisturbed = options.device.is_gpu().then(gpu::undisturbed);
        let place = path.display().to_string();
        let engine = format!("ONNX Runtime {}, {}", ort.version, provider(options.device));
        let wrong = |error: ::ort::Error| {
            let text = one_line(&error);
            // The provider exists, but no working GPU was found.
            let kind = if text.contains("CUDA failure") {
                ErrorKind::Unavailable
            } else {
                ErrorKind::Load
            };
            Error::new(kind, &place, format!("{engine} cannot load it: {text}"))
        };
        let mut builder = builder(ort, options).map_err(wrong)?;
        if is_recorded {
            builder = placement::recorded(builder).map_err(wrong)?;
        }
        let form = on_gpu(path, options)?;
        if let (Device::Cuda(number), None) = (options.device, &form) {
            builder = with_cuda(ort, builder, number, None)?;
        }
        let own = substituted(path, options)?;
        let [own_lengths, prefill] =
            own.as_ref().map_or([false; 2], |own| [own.own_lengths, own.prefill]);
        let n_own = own.as_ref().map_or(0, |own| own.n_inputs);
        let mut caches = None;
        let (session, engine) = match own {
            Some(own) => (
                with_kernels(builder, path, own).map_err(wrong)?,
                format!("{engine} with Cognate's operators"),
            ),
            None => match (form, reduced(path, options)?) {
                (Some((number, form)), _) => {
                    served(ort, number)?;
                    let gpu = Gpu::open(number)?;
                    let commit_with = |is_replayed| {
                        let queue = Some(Queue { gpu: &gpu, is_replayed });
                        let builder = with_cuda(ort, builder.clone(), number, queue)?;
                        // It moves sizes to the GPU and back, which prevents replays.
                        let key = "optimization.disable_specified_optimizers";
                        let builder = builder.with_config_entry(key, "GatherToSliceFusion");
                        let builder = builder.map_err(|error| wrong(error.into()))?;
                        commit(builder, path, &form.model).map_err(wrong)
                    };
                    // A graph that leaves a copy between its operators to the processor cannot be
                    // replayed.
                    let session = commit_with(true).or_else(|_| commit_with(false))?;
                    caches = Some(Caches::new(number, gpu, form)?);
                    (session, engine.clone())
                }
                (None, Some(model)) => {
                    (commit(builder, path, &model).map_err(wrong)?, engine.clone())
                }
                (None, None) => (builder.commit_from_file(path).map_err(wrong)?, engine.clone()),
            },
        };
        let outputs: Vec<_> =
            session.outputs().iter().map(|output| output.name().to_string()).collect();
        let optional = session.overridable_initializers();
        let optional = optional.iter().map(|given| described(given.name(), given.dtype()));
        let inputs = session.inputs().iter().map(|outlet| described(outlet.name(), outlet.dtype()));
        let inputs: Vec<_> = inputs.chain(optional).collect();
        let names = [inputs.iter().map(|input| input.name.clone()).collect(), outputs.clone()];
        let signature = match &caches {
            Some(caches) => caches.signature(place, inputs, outputs),
            None => Signature::new(place, inputs, outputs).with_own(n_own),
        };
        let c_names = |names: &[String]| {
            names.iter().map(|name| CString::new(name.as_str())).collect::<Result<Vec<_>, _>>()
        };
        let [inputs, outputs]: [Vec<String>; 2] = names;
        let names = c_names(&inputs).and_then(|inputs| Ok([inputs, c_names(&outputs)?]));
        let names = names.map_err(|error| {
            Error::new(
                ErrorKind::Load,
                signature.place(),
                format!("expected a name without NUL: {error}"),
            )
        })?;
        let (inner, session) = (session.inner(), Mutex::new(session));
        let nodes = match is_recorded {
            true => placement::nodes(&inner).map_err(|error| {
                Error::new(ErrorKind::Load, signature.place(), one_line(&error))
            })?,
            false => Vec::new(),
        };
        let shared = Self {
            left: if options.device.is_gpu() { left_to_cpu(&nodes) } else { Vec::new() },
            inner,
            session,
            signature,
            names,
            engine,
            own_lengths,
            prefill,
            device: options.device,
            caches,
            rows: match options.device {
                Device::Cpu => None,
                Device::Cuda(number) => Some(RowOperations::new(ort, number)),
            },
            huge_pages: before.loaded(),
        };
        Ok((shared, nodes))
    }

    /// Locks the session; a panic does not invalidate the library's session.
    fn alone(&self) -> MutexGuard<'_, Engine> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs concurrently with other calls. The crate's `run` requires exclusive access, because
    /// some execution providers do; the CPU's does not.
    fn run_on_host(&self, inputs: &[SessionInputValue<'_>]) -> ::ort::Result<Values> {
        let given: Vec<*const OrtValue> = inputs.iter().map(|value| value.ptr()).collect();
        // SAFETY: the values live through the call, and no output is given.
        unsafe { self.run_given(&given, vec![ptr::null_mut(); self.names[1].len()]) }
    }

    /// Runs with values for all inputs; an output that is null is allocated and returned,
    /// others are written.
    ///
    /// # Safety
    /// As [`Shared::run_named`].
    unsafe fn run_given(
        &self,
        given: &[*const OrtValue],
        outputs: Vec<*mut OrtValue>,
    ) -> ::ort::Result<Values> {
        assert_eq!(outputs.len(), self.names[1].len(), "a value for each output");
        let outputs: Vec<_> = self.names[1].iter().map(CString::as_c_str).zip(outputs).collect();
        // SAFETY: as the caller promises.
        Ok(unsafe { self.run_named(ptr::null(), given, &outputs) }?.into_iter().collect())
    }

    /// Runs with values for all inputs, for some of the outputs: one that is null is allocated, on
    /// the host, and returned; others are written. Null options are the defaults.
    ///
    /// # Safety
    /// The values and options live through the call, and nothing else reads or writes the outputs
    /// meanwhile.
    unsafe fn run_named(
        &self,
        options: *const OrtRunOptions,
        given: &[*const OrtValue],
        outputs: &[(&CStr, *mut OrtValue)],
    ) -> ::ort::Result<Vec<(String, Value)>> {
        let pointers =
            |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let input_names = pointers(&self.names[0]);
        assert_eq!(given.len(), input_names.len(), "a value for each input");
        let output_names: Vec<*const c_char> =
            outputs.iter().map(|(name, _)| name.as_ptr()).collect();
        let mut found: Vec<*mut OrtValue> = outputs.iter().map(|(_, output)| *output).collect();
        {
            let _alone = self.device.is_gpu().then(|| self.alone());
            // SAFETY: the session lives as long as `self`, and `Run` of ONNX Runtime's C interface
            // may be called by many threads at a time, which the CPU's provider supports; the counts
            // of names and values are right and they live through the call, as the options do; a
            // null output requests a new value.
            let status = unsafe {
                (::ort::api().Run)(
                    self.inner.ptr().cast_mut(),
                    options,
                    input_names.as_ptr(),
                    given.as_ptr(),
                    given.len(),
                    output_names.as_ptr(),
                    output_names.len(),
                    found.as_mut_ptr(),
                )
            };
            // SAFETY: the status comes from the call.
            unsafe { ::ort::Error::result_from_status(status) }?;
        }
        self.huge_pages.after_run();
        let session = self.alone();
        let made = outputs.iter().zip(found).filter(|((_, output), _)| output.is_null());
        let made = made.map(|((name, _), found)| {
            let found =
                NonNull::new(found).ok_or_else(|| ::ort::Error::new("an output has no value"))?;
            // SAFETY: the caller owns this value, which the session's allocator allocated.
            let value = unsafe { DynValue::from_ptr(found, Some(session.allocator())) };
            held((name.to_string_lossy(), value))
        });
        made.collect()
    }

    fn run_on_gpu(&self, inputs: Vec<SessionInputValue<'_>>, number: u16) -> ::ort::Result<Values> {
        let _undisturbed = gpu::undisturbed();
        let mut session = self.alone();
        // A new binding per run: a reused binding would overwrite the outputs of the previous run.
        let mut binding = session.create_binding()?;
        for (name, value) in self.signature.input_names().iter().zip(&inputs) {
            binding.bind_input(name, value)?;
        }
        let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
        let gpu = MemoryInfo::new(AllocationDevice::CUDA, number.into(), kind, memory)?;
        for name in self.signature.output_names() {
            binding.bind_output_to_device(name, &gpu)?;
        }
        binding.synchronize_inputs()?;
        let outputs = session.run_binding(&binding)?;
        outputs.into_iter().map(held).collect()
    }
}

fn provider(device: Device) -> &'static str {
    match device {
        Device::Cpu => "CPUExecutionProvider",
        Device::Cuda(_) => "CUDAExecutionProvider",
    }
}

fn builder(ort: &Ort, options: &Options) -> ::ort::Result<SessionBuilder> {
    // Memory patterns are planned and stored for each combination of sizes; a decoder's past
    // differs at every step (5% slower).
    //
    // On x86 processors without VNNI, sums of two 8-bit products saturate, unless the weights are
    // unsigned, which this setting makes them.
    let mut builder = Engine::builder(&ort.environment)?
        .with_memory_pattern(false)?
        .with_config_entry("session.x64quantprecision", "1")?;
    builder = match options.threads {
        // Callers compute too, so a pool of one has no other threads.
        Some(threads) => {
            let workers = options.workers.map_or(1, NonZeroUsize::get);
            builder.with_intra_threads(workers * (threads.get() - 1) + 1)?
        }
        // A thread for each core, which must not take it from other work while it waits.
        None => builder.with_intra_op_spinning(false)?,
    };
    if options.training && options.device == Device::Cpu {
        builder = arena::shared(ort, builder)?;
    }
    Ok(builder)
}

/// The file at `path` with custom operators, if it is an export to which they apply, and the
/// device is the CPU.
fn substituted(path: &Path, options: &Options) -> Result<Option<Substituted>> {
    if options.plain || options.device != Device::Cpu || is_large(path) {
        return Ok(None);
    }
    let model = cognate_export::read_model(path).map_err(Error::from_export)?;
    let threads = options
        .threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get);
    Ok(match options.training {
        true => gradients::substitute(model, threads, options.in_bf16),
        false if !has_shared_caches(&model) => None,
        false => substitute(model, folder_of(path), threads, options.half_memory),
    })
}

/// The file at `path` in the form for a GPU, with the GPU's number, if it is a decoder with shared
/// caches.
fn on_gpu(path: &Path, options: &Options) -> Result<Option<(u16, Form)>> {
    let Device::Cuda(number) = options.device else { return Ok(None) };
    if is_large(path) {
        return Ok(None);
    }
    let model = cognate_export::read_model(path).map_err(Error::from_export)?;
    let form = gpu::form_of(model)
        .map_err(|message| Error::new(ErrorKind::Load, path.display(), message))?;
    Ok(form.map(|form| (number, form)))
}

/// The file at `path` without the outputs that [`Options`] removes, if it has any.
fn reduced(path: &Path, options: &Options) -> Result<Option<ModelProto>> {
    if options.without_outputs.is_empty() || is_large(path) {
        return Ok(None);
    }
    let mut model = cognate_export::read_model(path).map_err(Error::from_export)?;
    let outputs = model.graph.as_mut().map(|graph| &mut graph.output);
    let is_reduced = outputs.is_some_and(|outputs| {
        let n_outputs = outputs.len();
        outputs.retain(|output| !options.removes(&output.name));
        outputs.len() < n_outputs
    });
    Ok(is_reduced.then_some(model))
}

/// Creates a session of a modified graph whose weights are in the folder of `path`.
fn commit(builder: SessionBuilder, path: &Path, model: &ModelProto) -> ::ort::Result<Engine> {
    in_folder(builder, path)?.commit_from_memory(&model.encode_to_vec())
}

fn in_folder(builder: SessionBuilder, path: &Path) -> ::ort::Result<SessionBuilder> {
    let folder = folder_of(path).display().to_string();
    Ok(builder.with_config_entry("session.model_external_initializers_file_folder_path", folder)?)
}

/// Whether the library has registered the operators' domain. Two sessions created at the same time
/// would both register it, and one would fail.
static DOMAIN_IS_KNOWN: Mutex<bool> = Mutex::new(false);

/// Creates a session from a modified graph whose weights are in the folder of `path`.
fn with_kernels(builder: SessionBuilder, path: &Path, own: Substituted) -> ::ort::Result<Engine> {
    let mut builder = in_folder(builder, path)?;
    kernels::register(&mut builder)?;
    if own.is_encoder {
        // An arena would keep the memory of outputs while they are decoded.
        let cpu = ::ort::ep::CPU::default().with_arena_allocator(false);
        builder = builder.with_execution_providers([cpu.build()])?;
    }
    let Substituted { model, programs, .. } = own;
    let known = DOMAIN_IS_KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut first = (!*known).then_some(known);
    let session = builder.commit_from_memory(&model.encode_to_vec());
    if let Some(known) = first.as_mut().filter(|_| session.is_ok()) {
        **known = true;
    }
    // Now its kernels have the programs.
    drop(programs);
    session
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The queue of a session whose steps may be replayed.
struct Queue<'a> {
    gpu: &'a Gpu,
    is_replayed: bool,
}

/// Registers CUDA's provider, or fails: by default ONNX Runtime would continue on the CPU.
fn with_cuda(
    ort: &Ort,
    builder: SessionBuilder,
    number: u16,
    queue: Option<Queue<'_>>,
) -> Result<SessionBuilder> {
    served(ort, number)?;
    // TF32 rounds factors to 10 bits: errors near 1e-3, where f32 requires 1e-5.
    let mut cuda = CUDA::default().with_device_id(number.into()).with_tf32(false);
    if let Some(Queue { gpu, is_replayed }) = queue {
        // SAFETY: the decoder's caches, which live longer than the session, keep it.
        cuda = unsafe { cuda.with_compute_stream(gpu.stream()) }.with_cuda_graph(is_replayed);
    }
    let cuda = cuda.build().error_on_failure();
    builder.with_execution_providers([cuda]).map_err(|error| {
        let library = ort.library.display();
        let needs = "it requires an NVIDIA GPU and the library's versions of CUDA and cuDNN; without them, omit `--device cuda`";
        no_cuda(number, format!("{library} cannot start CUDAExecutionProvider: {}; {needs}", one_line(&error)))
    })
}

/// Fails if the library has no CUDA.
fn served(ort: &Ort, number: u16) -> Result<()> {
    if ort.serves(Device::Cuda(number)) {
        return Ok(());
    }
    let library = ort.library.display();
    Err(no_cuda(
        number,
        format!(
            "expected a library with CUDAExecutionProvider, found {library} without it; run `cargo xtask onnxruntime --cuda`, or omit `--device cuda`"
        ),
    ))
}

fn no_cuda(number: u16, message: String) -> Error {
    let place = format!("ort: device {}", Device::Cuda(number));
    Error::new(ErrorKind::Unavailable, place, message)
}

/// Replaces line breaks in ONNX Runtime's messages.
fn one_line(error: &impl Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

struct OrtSession {
    shared: Arc<Shared>,
    /// Of a decoder with shared caches on a GPU.
    memory: Mutex<Memory>,
}

impl OrtSession {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session for OrtSession {
    fn engine(&self) -> &str {
        &self.shared.engine
    }

    fn inputs(&self) -> &[String] {
        self.shared.signature.inputs_of_file()
    }

    fn outputs(&self) -> &[String] {
        self.shared.signature.output_names()
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        if let Some(caches) = &self.shared.caches {
            return gpu::run(&self.shared, caches, &mut self.memory(), inputs);
        }
        let Shared { signature, engine, device, .. } = &*self.shared;
        let given = inputs.iter().map(|(name, value)| match value {
            // Values have no boolean type.
            Value::I64(array) if signature.takes_bool(name) => {
                Ok((name, owned(array.mapv(|value| value != 0))?))
            }
            value => Ok((name, given(value, *device, signature.takes_half(name))?)),
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        let arranged = signature.arrange(given)?;
        let outputs = match device {
            Device::Cpu => self.shared.run_on_host(&arranged),
            Device::Cuda(number) => self.shared.run_on_gpu(arranged, *number),
        };
        outputs.map_err(|error| {
            Error::new(
                ErrorKind::Run,
                signature.place(),
                format!("{engine} failed: {}", one_line(&error)),
            )
        })
    }

    fn has_own_lengths(&self) -> bool {
        self.shared.own_lengths
    }

    fn supports_prefill(&self) -> bool {
        self.shared.prefill
    }

    fn takes_shortlist(&self) -> bool {
        self.shared.signature.has_own(SHORTLIST)
    }

    fn finds_best(&self) -> bool {
        self.shared.signature.has_own(BEST)
    }

    fn run_in_place(&mut self, state: &mut Values, pairs: &[(String, String)]) -> Result<Values> {
        match (self.shared.device, &self.shared.caches) {
            (Device::Cpu, _) => in_place::run(&self.shared, state, pairs),
            (Device::Cuda(_), Some(caches)) => {
                gpu::run_in_place(&self.shared, caches, &mut self.memory(), state, pairs)
            }
            // On the GPU outputs stay there; nothing is copied to the host either.
            (Device::Cuda(_), None) => run_and_exchange(self, state, pairs),
        }
    }

    fn reserve_together(&self, arrays: &[ArrayD<f32>]) -> Result<Option<Together>> {
        together::together(self.shared.device, arrays).map(Some)
    }

    fn run_over(&mut self, inputs: &Values, over: &Values) -> Result<Values> {
        together::run_over(&self.shared, inputs, over)
    }

    fn has_own_memory(&self) -> bool {
        self.shared.caches.is_some()
    }

    fn reserve(&self, input: &str, shape: &[usize]) -> Result<Option<Value>> {
        let caches = self.shared.caches.as_ref();
        let reserve =
            |caches: &Caches| caches.reserve(&self.shared, &mut self.memory(), input, shape);
        caches.map(reserve).transpose()
    }

    fn with_rows(&self, whole: Value, first: usize, rows: &Value) -> Result<Value> {
        match &self.shared.caches {
            Some(caches) => caches.with_rows(whole, first, rows),
            None => Err(brought("expected a decoder on a GPU")),
        }
    }

    fn select(&self, value: &Value, leading: &[usize], rows: &[usize]) -> Result<Option<Value>> {
        self.shared.rows.as_ref().map_or(Ok(None), |of| gpu::select(of, value, leading, rows))
    }

    fn widened(&self, cache: &Value, places: usize) -> Result<Option<Value>> {
        self.shared.rows.as_ref().map_or(Ok(None), |of| gpu::widened(of, cache, places))
    }
}

fn described(name: &str, dtype: &ValueType) -> Input {
    let (element, axes) = match dtype {
        ValueType::Tensor { ty, shape, dimension_symbols } => {
            let axes = shape.iter().zip(dimension_symbols.iter()).map(|(&size, symbol)| {
                match usize::try_from(size) {
                    Ok(size) => signature::Axis::Size(size),
                    Err(_) if symbol.is_empty() => signature::Axis::Open,
                    Err(_) => signature::Axis::Symbol(symbol.clone()),
                }
            });
            (element_name(*ty), Some(axes.collect()))
        }
        other => (other.to_string().into(), None),
    };
    Input { name: name.to_owned(), element, axes }
}
