//! Keyword arguments, and how a model was made: its arguments and its process.

use crate::errors::of_kind;
use cognate::{Devices, Engine, ErrorKind, Languages, LoadOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What JSON has for a number or an array of NumPy, or a path.
#[pyfunction]
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if value.hasattr("tolist")? {
        return value.call_method0("tolist");
    }
    if value.hasattr("__fspath__")? {
        return value.call_method0("__fspath__");
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("unsupported type {found}")))
}

/// Keyword arguments by name; those that were taken are removed.
pub(crate) struct Keywords(Map<String, Value>);

impl Keywords {
    pub(crate) fn of(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let Some(keywords) = keywords else { return Ok(Self(Map::new())) };
        let py = keywords.py();
        let dumps = py.import("json")?.getattr("dumps")?;
        let settings = PyDict::new(py);
        settings.set_item("default", wrap_pyfunction!(plain, py)?)?;
        settings.set_item("allow_nan", false)?;
        let mut values = Map::new();
        for (name, value) in keywords {
            let name: String = name.extract()?;
            let failed = |error: &dyn std::fmt::Display| {
                of_kind(ErrorKind::Options, format_args!("{name}: {error}"))
            };
            let json = dumps.call((value,), Some(&settings));
            let json: String =
                json.map_err(|error| failed(&error.value(py).to_string()))?.extract()?;
            // Python writes lone surrogates and numbers of any size.
            let value: Value = serde_json::from_str(&json).map_err(|error| {
                let message = error.to_string();
                let is_text = message.contains("surrogate") || message.contains("hex escape");
                if is_text {
                    failed(&"expected text, found a lone surrogate")
                } else {
                    failed(&message)
                }
            })?;
            values.insert(name, value);
        }
        Ok(Self(values))
    }

    /// The value of an argument that may be missing.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> PyResult<Option<T>> {
        let value = self.0.remove(name).filter(|value| !value.is_null());
        value
            .map(serde_json::from_value)
            .transpose()
            .map_err(|error| of_kind(ErrorKind::Options, format_args!("{name}: {error}")))
    }

    /// The value of an argument that is one of several names.
    pub(crate) fn choice<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> PyResult<Option<T>> {
        let text: Option<String> = self.take(name)?;
        text.map(|text| text.parse())
            .transpose()
            .map_err(|error| of_kind(ErrorKind::Options, format_args!("{name}: {error}")))
    }

    pub(crate) fn languages(&mut self) -> PyResult<Languages> {
        Ok(Languages {
            source_language: self.take("source_language")?,
            target_language: self.take("target_language")?,
        })
    }

    pub(crate) fn load_options(&mut self) -> PyResult<LoadOptions> {
        Ok(LoadOptions {
            engine: self.choice::<Engine>("engine")?.unwrap_or_default(),
            device: self.choice::<Devices>("device")?.unwrap_or_default(),
            languages: self.languages()?,
            workers: self.take("workers")?,
            threads: self.take("threads")?,
            ignore_unused: self.take("ignore_unused")?.unwrap_or(false),
            allow_missing_language: false,
            huge_pages: false,
            shortlist: self.take("shortlist")?,
        })
    }

    /// The other arguments.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.0
    }

    /// Fails if an argument is left.
    pub(crate) fn end(self) -> PyResult<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(PyTypeError::new_err(format!("unexpected keyword argument '{name}'")))
            }
        }
    }
}

/// How a model was made.
pub(crate) struct Made {
    model: PathBuf,
    keywords: Option<Py<PyDict>>,
    process: u32,
}

impl Made {
    pub(crate) fn new(model: PathBuf, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        // Another process can have another current folder.
        let model = if model.exists() { std::path::absolute(&model)? } else { model };
        let keywords = keywords.map(|keywords| keywords.copy().map(Bound::unbind)).transpose()?;
        Ok(Self { model, keywords, process: std::process::id() })
    }

    pub(crate) fn model(&self) -> &Path {
        &self.model
    }

    /// The arguments of `__new__`, for pickle.
    pub(crate) fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keywords = self
            .keywords
            .as_ref()
            .map_or_else(|| PyDict::new(py), |keywords| keywords.bind(py).clone());
        ((&self.model,), keywords).into_pyobject(py)
    }

    /// Fails in a process that was forked after the model was loaded: threads and locks of engines
    /// do not survive that.
    pub(crate) fn check_process(&self) -> PyResult<()> {
        check_process(&self.model, self.process)
    }
}

/// Fails in another process than that which loaded the model.
pub(crate) fn check_process(model: &Path, process: u32) -> PyResult<()> {
    if process == std::process::id() {
        return Ok(());
    }
    let message = format!(
        "{}: was loaded by process {process}, before a fork; load it in each process, or start processes by \
         multiprocessing.get_context('spawn')",
        model.display()
    );
    Err(of_kind(ErrorKind::Engine, message))
}
