//! `cognate.Translator`.

use crate::arguments::{Keywords, Made};
use crate::errors::{raised, warn, warn_of_losses};
use crate::interruptible::interruptible;
use crate::streaming::{self, Stream};
use crate::texts::{self, Container};
use cognate::{DecodingOptions, TranslatedText, Translation, TranslatorOptions};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A model that translates.
#[pyclass(module = "cognate", frozen, subclass)]
pub(crate) struct Translator {
    inner: cognate::Translator,
    /// Options of decoding given at loading.
    options: Map<String, Value>,
    made: Made,
}

/// A translation of a sentence.
#[pyclass(module = "cognate", frozen, get_all)]
pub(crate) struct Hypothesis {
    text: String,
    /// Ids without start and end token.
    tokens: Vec<i64>,
    /// Whether the end token was generated.
    complete: bool,
    score: f32,
    /// The source position of each token.
    alignment: Vec<usize>,
}

#[pymethods]
impl Hypothesis {
    #[new]
    fn new(
        text: String,
        tokens: Vec<i64>,
        complete: bool,
        score: f32,
        alignment: Vec<usize>,
    ) -> Self {
        Self { text, tokens, complete, score, alignment }
    }

    /// The arguments of `__new__`, for pickle.
    fn __getnewargs__(&self) -> (&str, Vec<i64>, bool, f32, Vec<usize>) {
        (&self.text, self.tokens.clone(), self.complete, self.score, self.alignment.clone())
    }

    fn __repr__(&self) -> String {
        format!(
            "Hypothesis(text={:?}, score={}, complete={})",
            self.text,
            self.score,
            if self.complete { "True" } else { "False" }
        )
    }
}

#[pymethods]
impl Translator {
    #[new]
    #[pyo3(signature = (model, **options))]
    fn new(py: Python<'_>, model: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made = Made::new(model, options)?;
        let mut keywords = Keywords::of(options)?;
        let load = keywords.load_options()?;
        let (batch_tokens, batch_size) =
            (keywords.take("batch_tokens")?, keywords.take("batch_size")?);
        let options = keywords.rest();
        let decoding = DecodingOptions::from_json(&options).map_err(raised)?;
        let all = TranslatorOptions { load, decoding, batch_tokens, batch_size };
        let opened = interruptible(py, |_| cognate::Translator::open_with(made.model(), &all))?;
        let inner = opened.map_err(raised)?;
        warn(py, inner.notices())?;
        Ok(Self { inner, options, made })
    }

    /// For classes derived in Python, whose `__init__` passes the arguments on; `__new__` has used
    /// them.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __init__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) {}

    /// Translates texts, a string or many, in batches; `options` replace those given at loading.
    #[pyo3(signature = (texts, **options))]
    fn translate<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (translations, container) = self.run(texts, options, false)?;
        container.write(
            texts.py(),
            translations.into_iter().map(|translation| translation.text).collect(),
        )
    }

    /// The `num_return_sequences` best translations of each text, with their scores and tokens.
    #[pyo3(signature = (texts, **options))]
    fn hypotheses<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = texts.py();
        let (translations, container) = self.run(texts, options, true)?;
        let found = |translation: Translation| -> PyResult<Bound<'py, PyAny>> {
            let found: Vec<_> = translation.hypotheses.into_iter().map(Hypothesis::from).collect();
            found.into_pyobject(py)
        };
        container.each(py, translations.into_iter().map(found).collect::<PyResult<_>>()?)
    }

    /// Parts of a translation as soon as they are final.
    #[pyo3(signature = (text, **options))]
    fn stream(&self, text: String, options: Option<&Bound<'_, PyDict>>) -> PyResult<Stream> {
        self.made.check_process()?;
        streaming::start(self.with(options, false)?, self.made.model(), text)
    }

    /// Translates a column of a dictionary, an Arrow table or a frame of pandas or Polars into a new
    /// one; other arguments as `translate`.
    #[pyo3(signature = (batch, column = "text", to = "translation", **options))]
    fn __call__<'py>(
        &self,
        batch: &Bound<'py, PyAny>,
        column: &str,
        to: &str,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(table) = batch.cast::<PyMapping>() {
            let translated = PyDict::new(batch.py());
            translated.update(table)?;
            translated.set_item(to, self.translate(&batch.get_item(column)?, options)?)?;
            return Ok(translated.into_any());
        }
        if batch.hasattr("append_column")? {
            let translated = self.translate(&batch.call_method1("column", (column,))?, options)?;
            let names: Vec<String> = batch.getattr("column_names")?.extract()?;
            return match names.iter().position(|name| name == to) {
                Some(place) => batch.call_method1("set_column", (place, to, translated)),
                None => batch.call_method1("append_column", (to, translated)),
            };
        }
        if batch.hasattr("assign")? {
            let columns = PyDict::new(batch.py());
            columns.set_item(to, self.translate(&batch.get_item(column)?, options)?)?;
            return batch.call_method("assign", (), Some(&columns));
        }
        if batch.hasattr("with_columns")? {
            let translated = self.translate(&batch.get_item(column)?, options)?;
            return batch.call_method1("with_columns", (translated.call_method1("alias", (to,))?,));
        }
        self.translate(batch, options)
    }

    /// The engine with its version and provider.
    #[getter]
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    /// The codes of the languages of a multilingual model.
    #[getter]
    fn languages(&self) -> Vec<String> {
        self.inner.model().tokenizer().languages()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.made.arguments(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "Translator({:?}) on {}",
            self.made.model().display().to_string(),
            self.inner.engine()
        )
    }
}

impl Translator {
    /// The translator with options of a call, which computes scores if they are returned.
    fn with(
        &self,
        options: Option<&Bound<'_, PyDict>>,
        returns_scores: bool,
    ) -> PyResult<cognate::Translator> {
        if !returns_scores && options.is_none_or(|options| options.is_empty()) {
            return Ok(self.inner.clone());
        }
        let mut keywords = Keywords::of(options)?;
        let languages = keywords.languages()?;
        let decoding = DecodingOptions::from_json_over(&self.options, &keywords.rest());
        let mut decoding = decoding.map_err(raised)?;
        decoding.scores |= returns_scores;
        self.inner.with(&languages, &decoding).map_err(raised)
    }

    fn run<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
        returns_scores: bool,
    ) -> PyResult<(Vec<Translation>, Container<'py>)> {
        self.made.check_process()?;
        let translator = self.with(options, returns_scores)?;
        let (sentences, container) = texts::read(texts)?;
        let run = interruptible(texts.py(), |cancellation| {
            translator.translate_while(&sentences, || !cancellation.is_cancelled())
        })?;
        let translations = run.map_err(raised)?;
        warn_of_losses(texts.py(), &translations)?;
        Ok((translations, container))
    }
}

impl From<TranslatedText> for Hypothesis {
    fn from(TranslatedText { text, hypothesis }: TranslatedText) -> Self {
        let cognate::Hypothesis { tokens, complete, score, alignment, .. } = hypothesis;
        Self { text, tokens, complete, score, alignment }
    }
}
