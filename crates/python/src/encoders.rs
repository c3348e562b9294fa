//! `cognate.Embedder` and `cognate.Classifier`.

use crate::arguments::{Keywords, Made};
use crate::errors::{of_kind, raised};
use crate::interruptible::interruptible;
use crate::texts::{self, Container};
use cognate::{EmbedOptions, ErrorKind, ModelSource, Pooling};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};
use std::path::PathBuf;

/// A model that turns texts into vectors.
#[pyclass(module = "cognate", frozen, subclass)]
pub(crate) struct Embedder {
    inner: cognate::Embedder,
    made: Made,
}

/// A classifier of texts, such as `BertForSequenceClassification`.
#[pyclass(module = "cognate", frozen, subclass)]
pub(crate) struct Classifier {
    inner: cognate::Classifier,
    made: Made,
}

#[pymethods]
impl Embedder {
    #[new]
    #[pyo3(signature = (model, **options))]
    fn new(py: Python<'_>, model: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made = Made::new(model, options)?;
        let mut keywords = Keywords::of(options)?;
        let pooling = match keywords.take::<String>("pooling")?.as_deref() {
            None => None,
            Some("mean") => Some(Pooling::Mean),
            Some("first" | "cls") => Some(Pooling::First),
            Some("pooler") => Some(Pooling::Pooler),
            Some(other) => {
                return Err(of_kind(
                    ErrorKind::Options,
                    format_args!("pooling: expected mean, first, cls or pooler, found {other}"),
                ));
            }
        };
        let (normalize, max_tokens) = (keywords.take("normalize")?, keywords.take("max_tokens")?);
        let (prompt, prompt_name) = (keywords.take("prompt")?, keywords.take("prompt_name")?);
        let load = keywords.load_options()?;
        let options = EmbedOptions { pooling, normalize, max_tokens, prompt, prompt_name, load };
        keywords.end()?;
        let opened = interruptible(py, |_| {
            cognate::Embedder::load(ModelSource::find(made.model())?, &options)
        })?;
        let inner = opened.map_err(raised)?;
        Ok(Self { inner, made })
    }

    /// For classes derived in Python, whose `__init__` passes the arguments on; `__new__` has used
    /// them.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __init__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) {}

    /// A NumPy array of float32, `[texts, width]`; `[width]` for one string.
    fn embed<'py>(&self, texts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = texts.py();
        let (vectors, container) =
            run(&self.made, texts, |texts, is_wanted| self.inner.embed_while(texts, is_wanted))?;
        let n_texts = vectors.len();
        let bytes: Vec<u8> = vectors.into_iter().flatten().flat_map(f32::to_le_bytes).collect();
        let missing = |_| PyImportError::new_err("embed returns a NumPy array; install numpy");
        let flat = py
            .import("numpy")
            .map_err(missing)?
            .call_method1("frombuffer", (PyByteArray::new(py, &bytes), "<f4"))?;
        let matrix = flat.call_method1("reshape", (n_texts, self.inner.width()))?;
        if matches!(container, Container::One) { matrix.get_item(0) } else { Ok(matrix) }
    }

    /// Numbers in a vector.
    #[getter]
    fn width(&self) -> usize {
        self.inner.width()
    }

    /// The engine with its version and provider.
    #[getter]
    fn engine(&self) -> &str {
        self.inner.model().engine()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.made.arguments(py)
    }
}

#[pymethods]
impl Classifier {
    #[new]
    #[pyo3(signature = (model, **options))]
    fn new(py: Python<'_>, model: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made = Made::new(model, options)?;
        let mut keywords = Keywords::of(options)?;
        let load = keywords.load_options()?;
        keywords.end()?;
        let opened = interruptible(py, |_| {
            cognate::Classifier::load(ModelSource::find(made.model())?, &load)
        })?;
        let inner = opened.map_err(raised)?;
        Ok(Self { inner, made })
    }

    /// For classes derived in Python, whose `__init__` passes the arguments on; `__new__` has used
    /// them.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __init__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) {}

    /// All classes of each text with their scores, the likeliest first.
    fn classify<'py>(&self, texts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = texts.py();
        let (found, container) =
            run(&self.made, texts, |texts, is_wanted| self.inner.classify_while(texts, is_wanted))?;
        let classes = |classes: Vec<cognate::Class>| {
            classes
                .into_iter()
                .map(|class| (class.label, class.score))
                .collect::<Vec<_>>()
                .into_pyobject(py)
        };
        container.each(py, found.into_iter().map(classes).collect::<PyResult<_>>()?)
    }

    /// The engine with its version and provider.
    #[getter]
    fn engine(&self) -> &str {
        self.inner.model().engine()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.made.arguments(py)
    }
}

/// A result for each text; Ctrl-C ends it after a batch.
fn run<'py, T: Send>(
    made: &Made,
    texts: &Bound<'py, PyAny>,
    work: impl FnOnce(&[String], &(dyn Fn() -> bool + Sync)) -> cognate::Result<Vec<T>> + Send,
) -> PyResult<(Vec<T>, Container<'py>)> {
    made.check_process()?;
    let (texts_of, container) = texts::read(texts)?;
    let found = interruptible(texts.py(), |cancellation| {
        work(&texts_of, &|| !cancellation.is_cancelled())
    })?;
    Ok((found.map_err(raised)?, container))
}
