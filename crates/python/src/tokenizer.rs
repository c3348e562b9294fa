//! `cognate.Tokenizer`.

use crate::arguments::{Keywords, Made};
use crate::errors::raised;
use crate::interruptible::interruptible;
use crate::texts;
use cognate::Error;
use cognate_folder::Configuration;
use cognate_pipeline::open_tokenizer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyTuple};
use std::path::PathBuf;

/// The tokenizer of a model's folder.
#[pyclass(module = "cognate", frozen)]
pub(crate) struct Tokenizer {
    inner: cognate_text::Tokenizer,
    made: Made,
}

#[pymethods]
impl Tokenizer {
    #[new]
    #[pyo3(signature = (model, **options))]
    fn new(model: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made = Made::new(model, options)?;
        let mut keywords = Keywords::of(options)?;
        let languages = keywords.languages()?;
        keywords.end()?;
        let open = || -> cognate::Result<_> {
            let config = Configuration::read(made.model())?.config;
            languages.choose(open_tokenizer(made.model(), &config)?, &config)
        };
        Ok(Self { inner: open().map_err(raised)?, made })
    }

    /// The ids of texts with the special tokens around them; with `target` those of a translation,
    /// without them.
    #[pyo3(signature = (texts, target = false))]
    fn encode<'py>(&self, texts: &Bound<'py, PyAny>, target: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = texts.py();
        let (texts, container) = texts::read(texts)?;
        let encode = |text: &String| {
            if target { self.inner.encode_target(text) } else { self.inner.encode(text) }
        };
        let ids = interruptible(py, |cancellation| {
            let wanted = texts.iter().take_while(|_| !cancellation.is_cancelled());
            wanted.map(encode).collect::<Result<Vec<_>, _>>()
        })?;
        let ids = ids.map_err(raised)?;
        container
            .each(py, ids.into_iter().map(|ids| ids.into_pyobject(py)).collect::<PyResult<_>>()?)
    }

    /// The text of ids, or the texts of lists of ids.
    fn decode<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = ids.py();
        let one = |ids: &[i64]| self.inner.decode(ids).map_err(raised);
        if ids.is_instance_of::<PyBytes>() || ids.is_instance_of::<PyByteArray>() {
            return Err(PyTypeError::new_err("ids: expected a list of ids, found bytes"));
        }
        if let Ok(ids) = ids.extract::<Vec<i64>>() {
            return Ok(one(&ids)?.into_pyobject(py)?.into_any());
        }
        let many: Vec<Vec<i64>> = ids.extract().map_err(|_| {
            PyTypeError::new_err("ids: expected a list of ids, or a list of such lists")
        })?;
        many.iter().map(|ids| one(ids)).collect::<PyResult<Vec<_>>>()?.into_pyobject(py)
    }

    /// The pieces of a text.
    #[pyo3(signature = (text, target = false))]
    fn tokenize(&self, text: &str, target: bool) -> PyResult<Vec<String>> {
        let ids = if target { self.inner.encode_target(text) } else { self.inner.encode(text) };
        let piece = |&id: &i64| {
            let piece = if target { self.inner.piece(id) } else { self.inner.source_piece(id) };
            piece.unwrap_or_else(|| format!("<{id}>"))
        };
        Ok(ids.map_err(|error| raised(Error::from(error)))?.iter().map(piece).collect())
    }

    /// The codes of the languages of a multilingual model.
    #[getter]
    fn languages(&self) -> Vec<String> {
        self.inner.languages()
    }

    fn __len__(&self) -> usize {
        self.inner.vocab_size()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.made.arguments(py)
    }
}
