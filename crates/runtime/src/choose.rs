//! Opens engines.

use crate::{Device, Engine, Result, Runtime};

impl Engine {
    /// Opens the engine for loading graphs on `device`; [`Runtime::name`] returns the one
    /// that `auto` chose.
    ///
    /// # Errors
    /// If this build does not contain the engine; if ONNX Runtime is requested and its library is
    /// missing; if a library in `ORT_DYLIB_PATH` or `target/onnxruntime/` cannot be used, which
    /// `auto` does not ignore; or if `COGNATE_INSTRUCTIONS`, which limits the instructions of
    /// Cognate's operators, has another value than `scalar`, `avx2`, `avx-vnni`, `avx512` or `all`.
    pub fn open(self, device: Device) -> Result<Box<dyn Runtime>> {
        check_instructions()?;
        match self {
            Engine::Auto => auto(device),
            Engine::Reference => reference(),
            Engine::Tract => tract(),
            Engine::Ort => ort(device),
        }
    }
}

/// All engines of this build that execute exported files on `device` and are installed.
///
/// # Errors
/// As of [`Engine::open`].
pub fn available(device: Device) -> Result<Vec<Box<dyn Runtime>>> {
    check_instructions()?;
    let mut engines = Vec::new();
    if device == Device::Cpu && cfg!(feature = "tract") {
        engines.push(tract()?);
    }
    engines.extend(ort_if_found(device)?);
    Ok(engines)
}

#[cfg(any(feature = "tract", feature = "ort"))]
fn check_instructions() -> Result<()> {
    use cognate_kernels::Instructions;
    let Err(found) = Instructions::of_process() else { return Ok(()) };
    let names = Instructions::NAMES.map(|(name, _)| name).join(", ");
    Err(crate::Error::new(
        crate::ErrorKind::Unavailable,
        Instructions::VARIABLE,
        format!("expected one of {names}, found {found:?}"),
    ))
}

#[cfg(not(any(feature = "tract", feature = "ort")))]
fn check_instructions() -> Result<()> {
    Ok(())
}

fn auto(device: Device) -> Result<Box<dyn Runtime>> {
    match (ort_if_found(device)?, device) {
        (Some(ort), _) => Ok(ort),
        // tract does not support CUDA; ONNX Runtime's error says what is missing.
        (None, Device::Cuda(_)) => ort(device),
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
fn not_built(engine: &str) -> crate::Error {
    crate::engine::unavailable(engine, format!("not in this build; enable the feature `{engine}`"))
}
