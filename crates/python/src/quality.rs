//! `cognate.evaluate`.

use crate::arguments::Keywords;
use crate::errors::{of_kind, raised};
use crate::interruptible::interruptible;
use crate::texts;
use cognate::ErrorKind;
use cognate::evaluation::{BleuSettings, ChrfSettings, Metric, Words};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// BLEU and chrF of translations, equal to sacreBLEU's.
#[pyfunction]
#[pyo3(signature = (hypotheses, references, **options))]
pub(crate) fn evaluate<'py>(
    hypotheses: &Bound<'py, PyAny>,
    references: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = hypotheses.py();
    let mut keywords = Keywords::of(options)?;
    let names = keywords
        .take::<Vec<String>>("metrics")?
        .unwrap_or_else(|| vec!["bleu".into(), "chrf".into()]);
    let lowercase = keywords.take("lowercase")?.unwrap_or(false);
    let words = keywords.take::<String>("tokenize")?;
    keywords.end()?;
    let all = [Words::V13a, Words::International, Words::Characters, Words::Given];
    let words = match words {
        None => Words::default(),
        Some(name) => all.into_iter().find(|words| words.name() == name).ok_or_else(|| {
            of_kind(
                ErrorKind::Options,
                format_args!(
                    "tokenize: expected {}, found {name}",
                    all.map(Words::name).join(", ")
                ),
            )
        })?,
    };
    let metric = |name: &String| match name.as_str() {
        "bleu" => Ok(Metric::Bleu(BleuSettings { words, lowercase, ..BleuSettings::default() })),
        "chrf" => Ok(Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::default() })),
        "chrf++" => Ok(Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::plus_plus() })),
        other => Err(of_kind(
            ErrorKind::Options,
            format_args!("metrics: expected bleu, chrf or chrf++, found {other}"),
        )),
    };
    let metrics = names.iter().map(metric).collect::<PyResult<Vec<_>>>()?;
    let (hypotheses, _) = texts::read(hypotheses)?;
    let references = references_of(references)?;
    let lists: Vec<&[String]> = references.iter().map(Vec::as_slice).collect();
    let scores = interruptible(py, |_| {
        let score = |metric: &Metric| Ok(metric.statistics(&hypotheses, &lists)?.score().value());
        metrics.iter().map(score).collect::<cognate::Result<Vec<f64>>>()
    })?;
    let found = PyDict::new(py);
    for ((name, metric), score) in names.iter().zip(&metrics).zip(scores.map_err(raised)?) {
        let entry = PyDict::new(py);
        entry.set_item("score", score)?;
        entry.set_item("signature", metric.signature(lists.len(), None))?;
        found.set_item(name, entry)?;
    }
    Ok(found)
}

/// One list of references, or several.
fn references_of(references: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<String>>> {
    // A generator can be read once.
    let listed = references.hasattr("__next__")?.then(|| {
        PyList::new(references.py(), references.try_iter()?.collect::<PyResult<Vec<_>>>()?)
    });
    let listed = listed.transpose()?;
    let references = listed.as_ref().map_or(references, |list| list.as_any());
    if references.hasattr("to_pylist")? {
        return Ok(vec![texts::read(references)?.0]);
    }
    let first = references.try_iter().ok().and_then(|mut items| items.next()).transpose()?;
    match first {
        Some(first) if !first.is_instance_of::<PyString>() => {
            references.try_iter()?.map(|list| Ok(texts::read(&list?)?.0)).collect()
        }
        _ => Ok(vec![texts::read(references)?.0]),
    }
}
