//! `cognate.export` and `cognate.verify`.

use crate::arguments::Keywords;
use crate::errors::{of_kind, raised, warn};
use crate::interruptible::interruptible;
use cognate::{
    ErrorKind, Export, Layout, ModelSource, Precision, SentenceSettings, Target, VerifyOptions,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Writes a checkpoint, or `preset:tiny`, as ONNX graphs to the folder `out`, and returns the
/// contents of `cognate.json`.
#[pyfunction]
#[pyo3(signature = (model, out, **options))]
pub(crate) fn export<'py>(
    py: Python<'py>,
    model: PathBuf,
    out: PathBuf,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut keywords = Keywords::of(options)?;
    let named = |name: &str, expected: &str, found: &str| {
        of_kind(ErrorKind::Options, format_args!("{name}: expected {expected}, found {found}"))
    };
    let is_encoder = match keywords.take::<String>("part")?.as_deref() {
        None => None,
        Some("all") => Some(false),
        Some("encoder") => Some(true),
        Some(other) => return Err(named("part", "all or encoder", other)),
    };
    let layout = keywords.choice::<Layout>("layout")?.unwrap_or_default();
    let target = match keywords.take::<String>("target")?.as_deref() {
        None | Some("portable") => Target::Portable,
        Some("ort") => Target::Ort,
        Some(other) => return Err(named("target", "portable or ort", other)),
    };
    let precision = keywords.choice::<Precision>("precision")?.unwrap_or_default();
    let (seed, ignore_unused) =
        (keywords.take("seed")?, keywords.take("ignore_unused")?.unwrap_or(false));
    let (attentions, force) =
        (keywords.take("attentions")?.unwrap_or(false), keywords.take("force")?.unwrap_or(false));
    let block_size = keywords.take::<usize>("block_size")?;
    let languages = keywords.languages()?;
    let allow_non_finite = keywords.take("allow_non_finite")?.unwrap_or(false);
    keywords.end()?;
    let written = interruptible(py, |cancellation| -> cognate::Result<_> {
        let source = ModelSource::find(&model)?.into_checkpoint();
        let is_encoder = match (&source, is_encoder) {
            (_, Some(is_encoder)) => is_encoder,
            (ModelSource::Checkpoint(folder), None) => SentenceSettings::read(folder)?.is_some(),
            (_, None) => false,
        };
        let export = if is_encoder {
            Export::open_encoder(&source)?
        } else {
            Export::open_with(&source, seed, ignore_unused)?
        };
        let export = export
            .layout(layout)
            .target(target)
            .precision(precision)
            .attentions(attentions)
            .languages(languages);
        let export = export.force(force).allow_non_finite(allow_non_finite);
        export.block_size(block_size).cancellation(cancellation.clone()).write(&out)
    })?;
    let written = written.map_err(raised)?;
    warn(py, &written.notices)?;
    loads(py, &written.manifest.to_json())
}

/// Compares an export with the f64 reference on every engine, and its files with their hashes;
/// returns the report.
#[pyfunction]
#[pyo3(signature = (folder, checkpoint = None, **options))]
pub(crate) fn verify<'py>(
    py: Python<'py>,
    folder: PathBuf,
    checkpoint: Option<PathBuf>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut keywords = Keywords::of(options)?;
    let languages = keywords.languages()?;
    let ignore_unused = keywords.take("ignore_unused")?.unwrap_or(false);
    keywords.end()?;
    let verified = interruptible(py, |cancellation| -> cognate::Result<_> {
        let checkpoint = checkpoint
            .map(|checkpoint| Export::open_for(&folder, &checkpoint, ignore_unused))
            .transpose()?;
        cognate::verify(
            &folder,
            &VerifyOptions {
                model: checkpoint.as_ref().map(Export::model),
                languages,
                cancellation: cancellation.clone(),
                ..VerifyOptions::default()
            },
            |_| {},
        )
    })?;
    let verified = verified.map_err(raised)?;
    warn(py, &verified.notices)?;
    let text = serde_json::to_string(&verified.report)
        .map_err(|error| of_kind(ErrorKind::Folder, error))?;
    let report = loads(py, &text)?;
    report.set_item("passed", verified.report.passed())?;
    report.set_item("damaged", verified.damaged)?;
    Ok(report)
}

/// A Python object of JSON.
pub(crate) fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
