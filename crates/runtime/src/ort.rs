//! ONNX Runtime: exported ONNX files on the CPU, or on an NVIDIA GPU with CUDA.
//!
//! The library is found at run time, never linked or downloaded by the build. A process uses one
//! library, the first that is opened. Telemetry is off, and so is the log unless `ORT_LOG` sets a
//! level (`warning`).

mod arena;
mod gradients;
mod kernels;
mod library;
mod placement;
mod session;

use self::library::{Found, Library, Places};
use self::session::Shared;
use crate::{
    Device, Engine, Error, ErrorKind, Loaded, Options, Result, Runtime, in_memory, read_checked,
};
use ::ort::environment::{Environment, EnvironmentBuilder};
use ::ort::ep::{CUDA, ExecutionProvider};
use ::ort::logging::LogLevel;
use cognate_graph::Program;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The library of this process. ONNX Runtime's environment can be created only once.
static OPENED: Mutex<Option<Ort>> = Mutex::new(None);

/// Runs exported ONNX files on ONNX Runtime.
#[derive(Clone, Debug)]
pub struct Ort {
    environment: Environment,
    library: PathBuf,
    version: String,
}

impl Ort {
    /// Returns the library of this process; otherwise that of `ORT_DYLIB_PATH`, of
    /// `target/onnxruntime/` in or above the program's and the current folder, or of the system.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none; [`ErrorKind::Library`] if the library in
    /// `ORT_DYLIB_PATH` or `target/onnxruntime/` is not ONNX Runtime 1.24 or newer.
    pub fn find() -> Result<Self> {
        Self::find_for(Device::Cpu)
    }

    /// As [`Ort::find`], preferring a library with the provider for `device`.
    ///
    /// # Errors
    /// As [`Ort::find`]; also [`ErrorKind::Library`] if the process already uses a library without
    /// that provider.
    pub fn find_for(device: Device) -> Result<Self> {
        Self::search(device)?.map_err(|missing| Error::new(ErrorKind::Unavailable, "ort", missing))
    }

    /// Also searches `folder`, such as that of another language's package, before the system's
    /// loader is asked. An unsupported version there is skipped.
    pub fn add_library_folder(folder: impl Into<PathBuf>) {
        library::add_folder(folder.into());
    }

    /// Opens the library at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Library`] if it is not ONNX Runtime 1.24 or newer, or if the process already
    /// uses another one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::start(library::probe(&path.display().to_string(), path)?)
    }

    /// Returns the engine, or the reason why no library was found.
    pub(crate) fn search(device: Device) -> Result<Result<Self, String>> {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(opened) = opened.filter(|opened| opened.serves(device)) {
            return Ok(Ok(opened));
        }
        Ok(match library::search(&Places::of_process(), device)? {
            Found::Library(library) => Ok(Self::start(library)?),
            Found::Nothing(account) => Err(account),
        })
    }

    fn start(library: Library) -> Result<Self> {
        let wrong =
            |message: String| Error::new(ErrorKind::Library, library.path.display(), message);
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.as_ref() {
            if opened.library == library.path {
                return Ok(opened.clone());
            }
            let message = format!(
                "a process can load only one ONNX Runtime; {} is already loaded",
                opened.library.display()
            );
            return Err(wrong(message));
        }
        let builder = ::ort::init_from(&library.path).map_err(|error| wrong(error.to_string()))?;
        let environment =
            environment(builder.with_telemetry(false)).map_err(|error| wrong(error.to_string()))?;
        Ok(opened
            .insert(Self { environment, library: library.path, version: library.version })
            .clone())
    }

    /// The library's path, or its name for the system's loader.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The library's version, such as `1.31.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the library contains the provider for `device`; the device itself may be missing.
    pub fn serves(&self, device: Device) -> bool {
        match device {
            Device::Cpu => true,
            Device::Cuda(_) => CUDA::is_available().unwrap_or(false),
        }
    }

    /// Loads the file at `path`, and counts the nodes of each execution provider.
    ///
    /// # Errors
    /// If the file cannot be loaded.
    pub fn placement(&self, path: &Path, options: &Options) -> Result<BTreeMap<String, usize>> {
        read_checked(path, || Shared::placement(self, path, options))
    }
}

/// The library's log is off, since errors are returned as values.
fn environment(builder: EnvironmentBuilder) -> ::ort::Result<Environment> {
    if env::var_os("ORT_LOG").is_some() {
        return builder.build();
    }
    let environment = builder.with_logger(Arc::new(|_, _, _, _, _| {})).build()?;
    // Otherwise the library would pass all messages to the logger.
    environment.set_log_level(LogLevel::Fatal);
    Ok(environment)
}

impl Runtime for Ort {
    fn engine(&self) -> Engine {
        Engine::Ort
    }

    fn read_file(&self, path: &Path, options: &Options) -> Result<Arc<dyn Loaded>> {
        read_checked(path, || {
            let shared: Arc<dyn Loaded> = Arc::new(Shared::load(self, path, options)?);
            Ok(shared)
        })
    }

    fn read_graphs(&self, programs: &[Program], options: &Options) -> Result<Vec<Arc<dyn Loaded>>> {
        in_memory::read_graphs(self, programs, options)
    }
}
