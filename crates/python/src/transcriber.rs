//! `cognate.Transcriber`.

use crate::arguments::{Keywords, Made};
use crate::errors::{of_kind, raised, warn};
use crate::files::loads;
use crate::interruptible::interruptible;
use cognate::{
    AudioReader, ErrorKind, Languages, ModelSource, TranscriberOptions, TranscriptFormat,
    TranscriptionOptions,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyTuple};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A speech model that transcribes audio.
#[pyclass(module = "cognate", frozen, subclass)]
pub(crate) struct Transcriber {
    inner: cognate::Transcriber,
    /// Options of transcription given at loading.
    options: Map<String, Value>,
    made: Made,
}

/// Audio as a file, or as the contents of one.
enum Audio {
    File(PathBuf),
    Bytes(Vec<u8>),
}

#[pymethods]
impl Transcriber {
    #[new]
    #[pyo3(signature = (model, **options))]
    fn new(py: Python<'_>, model: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made = Made::new(model, options)?;
        let mut keywords = Keywords::of(options)?;
        let load = keywords.load_options()?;
        if load.languages != Languages::default() {
            let message = "expected language and task, which speech models have";
            return Err(of_kind(ErrorKind::Options, format_args!("target_language: {message}")));
        }
        let options = keywords.rest();
        let transcription = TranscriptionOptions::from_json(&options).map_err(raised)?;
        let options_of_model = TranscriberOptions { load, transcription };
        let opened = interruptible(py, |_| {
            cognate::Transcriber::load(ModelSource::find(made.model())?, &options_of_model)
        })?;
        let inner = opened.map_err(raised)?;
        warn(py, inner.notices())?;
        Ok(Self { inner, options, made })
    }

    /// For classes derived in Python, whose `__init__` passes the arguments on; `__new__` has used
    /// them.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __init__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) {}

    /// The text of audio with its segments, as OpenAI's `transcribe` returns it; `options` replace
    /// those given at loading.
    #[pyo3(signature = (audio, **options))]
    fn transcribe<'py>(
        &self,
        audio: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.made.check_process()?;
        let options = Keywords::of(options)?.rest();
        let options = TranscriptionOptions::from_json_over(&self.options, &options);
        let transcriber = self.inner.with(options.map_err(raised)?).map_err(raised)?;
        let (py, audio) = (audio.py(), Audio::read(audio)?);
        let found = interruptible(py, |cancellation| {
            let reader = match audio {
                Audio::File(path) => AudioReader::open(&path)?,
                Audio::Bytes(bytes) => AudioReader::from_bytes("audio", bytes)?,
            };
            transcriber.transcribe_while(reader, &mut |_| {}, &|| !cancellation.is_cancelled())
        })?;
        let found = found.map_err(raised)?;
        if let Some(damage) = found.damage.description() {
            warn(py, &[damage])?;
        }
        loads(py, &TranscriptFormat::object(&found).to_string())
    }

    /// The engine with its version and provider.
    #[getter]
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.made.arguments(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "Transcriber({:?}) on {}",
            self.made.model().display().to_string(),
            self.inner.engine()
        )
    }
}

impl Audio {
    fn read(audio: &Bound<'_, PyAny>) -> PyResult<Self> {
        if audio.is_instance_of::<PyBytes>() || audio.is_instance_of::<PyByteArray>() {
            return Ok(Self::Bytes(audio.extract()?));
        }
        if let Ok(path) = audio.extract() {
            return Ok(Self::File(path));
        }
        let package: String = audio.get_type().getattr("__module__")?.extract()?;
        if package != "numpy" {
            return Err(PyTypeError::new_err(
                "audio: expected a path, the bytes of a file, or a NumPy array of samples",
            ));
        }
        let (ndim, kind): (usize, String) = (
            audio.getattr("ndim")?.extract()?,
            audio.getattr("dtype")?.getattr("kind")?.extract()?,
        );
        if (ndim, kind.as_str()) != (1, "f") {
            let message = format!(
                "audio: expected an array of floats and of one axis, found kind {kind:?} and {ndim} axes"
            );
            return Err(PyValueError::new_err(message));
        }
        let samples = audio.call_method1("astype", ("<f4",))?.call_method0("tobytes")?;
        Ok(Self::Bytes(wav(samples.cast::<PyBytes>()?.as_bytes())?))
    }
}

/// A WAV file of samples in f32 at 16 kHz.
fn wav(samples: &[u8]) -> PyResult<Vec<u8>> {
    const RATE: u32 = 16_000;
    let too_long =
        || PyValueError::new_err("audio: expected at most 2^30 samples; pass the path of a file");
    let length = u32::try_from(samples.len())
        .ok()
        .filter(|length| *length < u32::MAX - 36)
        .ok_or_else(too_long)?;
    let mut bytes = Vec::with_capacity(44 + samples.len());
    bytes.extend(b"RIFF");
    bytes.extend((36 + length).to_le_bytes());
    // 16 bytes of format: IEEE floats, one channel.
    bytes.extend(b"WAVEfmt \x10\0\0\0\x03\0\x01\0");
    bytes.extend(RATE.to_le_bytes());
    bytes.extend((4 * RATE).to_le_bytes());
    bytes.extend(b"\x04\0\x20\0data");
    bytes.extend(length.to_le_bytes());
    bytes.extend(samples);
    Ok(bytes)
}
