//! Selects an engine by name.

use crate::{Device, Error, ErrorKind, Result, Runtime};
use std::fmt;
use std::str::FromStr;

/// An engine, by its name on the command line.
///
/// ```
/// use cognate_runtime::Engine;
/// assert_eq!("tract".parse(), Ok(Engine::Tract));
/// assert_eq!(Engine::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// ONNX Runtime if its library is found, otherwise tract.
    #[default]
    Auto,
    /// The reference evaluator, in single precision.
    Reference,
    /// tract.
    Tract,
    /// ONNX Runtime.
    Ort,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 4] = [Engine::Auto, Engine::Reference, Engine::Tract, Engine::Ort];

    /// Opens the engine for loading graphs on `device`; [`Runtime::name`] returns the one
    /// that `auto` chose.
    ///
    /// # Errors
    /// If this build does not contain the engine; if ONNX Runtime is requested and its library is
    /// missing; or if a library in `ORT_DYLIB_PATH` or `target/onnxruntime/` cannot be used, which
    /// `auto` does not ignore.
    pub fn open(self, device: Device) -> Result<Box<dyn Runtime>> {
        match self {
            Engine::Auto => auto(device),
            Engine::Reference => reference(),
            Engine::Tract => tract(),
            Engine::Ort => ort(device),
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Reference => "reference",
            Engine::Tract => "tract",
            Engine::Ort => "ort",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Engine::ALL.into_iter().find(|engine| engine.as_str() == name);
        found.ok_or_else(|| {
            unavailable(
                "engine",
                format!("expected {}, found {name}", Engine::ALL.map(Engine::as_str).join(", ")),
            )
        })
    }
}

impl Device {
    /// All devices.
    pub const ALL: [Device; 2] = [Device::Cpu, Device::Cuda];

    fn as_str(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Device::ALL.into_iter().find(|device| device.as_str() == name);
        found.ok_or_else(|| {
            unavailable(
                "device",
                format!("expected {}, found {name}", Device::ALL.map(Device::as_str).join(", ")),
            )
        })
    }
}

/// All engines of this build that execute exported files on `device` and are installed.
///
/// # Errors
/// If a library of ONNX Runtime is found and cannot be used.
pub fn available(device: Device) -> Result<Vec<Box<dyn Runtime>>> {
    let mut engines = Vec::new();
    if device == Device::Cpu && cfg!(feature = "tract") {
        engines.push(tract()?);
    }
    engines.extend(ort_if_found(device)?);
    Ok(engines)
}

fn auto(device: Device) -> Result<Box<dyn Runtime>> {
    match (ort_if_found(device)?, device) {
        (Some(ort), _) => Ok(ort),
        // tract does not support CUDA; ONNX Runtime's error says what is missing.
        (None, Device::Cuda) => ort(device),
        (None, Device::Cpu) => tract(),
    }
}

#[cfg(feature = "reference")]
fn reference() -> Result<Box<dyn Runtime>> {
    Ok(Box::new(crate::Reference::F32))
}

#[cfg(not(feature = "reference"))]
fn reference() -> Result<Box<dyn Runtime>> {
    Err(not_built("reference"))
}

#[cfg(feature = "tract")]
fn tract() -> Result<Box<dyn Runtime>> {
    Ok(Box::new(crate::Tract))
}

#[cfg(not(feature = "tract"))]
fn tract() -> Result<Box<dyn Runtime>> {
    Err(not_built("tract"))
}

#[cfg(feature = "ort")]
fn ort(device: Device) -> Result<Box<dyn Runtime>> {
    Ok(Box::new(crate::Ort::find_for(device)?))
}

#[cfg(not(feature = "ort"))]
fn ort(_device: Device) -> Result<Box<dyn Runtime>> {
    Err(not_built("ort"))
}

#[cfg(feature = "ort")]
fn ort_if_found(device: Device) -> Result<Option<Box<dyn Runtime>>> {
    Ok(crate::Ort::search(device)?.ok().map(|ort| Box::new(ort) as Box<dyn Runtime>))
}

#[cfg(not(feature = "ort"))]
fn ort_if_found(_device: Device) -> Result<Option<Box<dyn Runtime>>> {
    Ok(None)
}

#[cfg(not(all(feature = "reference", feature = "tract", feature = "ort")))]
fn not_built(engine: &str) -> Error {
    unavailable(engine, format!("not in this build; enable the feature `{engine}`"))
}

fn unavailable(place: &str, message: String) -> Error {
    Error::new(ErrorKind::Unavailable, place, message)
}
