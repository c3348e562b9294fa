//! The Python module `cognate`. See `cognate.pyi` for its interface.
//!
//! Built by maturin with the feature `python`; without it this crate is empty.
#![cfg(feature = "python")]

mod arguments;
mod encoders;
mod errors;
mod files;
mod interruptible;
mod quality;
mod streaming;
mod texts;
mod tokenizer;
mod transcriber;
mod translator;

use pyo3::prelude::*;

/// Encoder-decoder Transformers: translate, export to ONNX and verify, without PyTorch.
#[pymodule(name = "cognate")]
mod module {
    use pyo3::prelude::*;
    use pyo3::types::PyModule;

    #[pymodule_export]
    use crate::encoders::{Classifier, Embedder};
    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::files::{export, verify};
    #[pymodule_export]
    use crate::quality::evaluate;
    #[pymodule_export]
    use crate::tokenizer::Tokenizer;
    #[pymodule_export]
    use crate::transcriber::Transcriber;
    #[pymodule_export]
    use crate::translator::{Hypothesis, Translator};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::find_onnxruntime(module.py())
    }
}

/// Adds the library of the package `onnxruntime`, if it is installed, without importing it.
fn find_onnxruntime(py: Python<'_>) -> PyResult<()> {
    // A module without a specification, such as a test's, is an error of `find_spec`.
    let found = py.import("importlib.util")?.call_method1("find_spec", ("onnxruntime",)).ok();
    let Some(spec) = found.filter(|spec| !spec.is_none()) else { return Ok(()) };
    let folders: Option<Vec<std::path::PathBuf>> =
        spec.getattr("submodule_search_locations")?.extract()?;
    for folder in folders.into_iter().flatten() {
        cognate_runtime::Ort::add_library_folder(folder.join("capi"));
    }
    Ok(())
}
