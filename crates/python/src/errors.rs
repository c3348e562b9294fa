//! `cognate.Error`, with the kinds of the library's errors.

use cognate::{Error as LibraryError, ErrorKind, Translation, Warning};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::fmt::Display;

pyo3::create_exception!(
    cognate,
    Error,
    PyException,
    "An error of Cognate. `kind` is 'text', 'mismatch', 'folder', 'options', 'input', 'engine' or 'cancelled'."
);

/// The library's error as an exception.
pub(crate) fn raised(error: impl Into<LibraryError>) -> PyErr {
    let error = error.into();
    of_kind(error.kind(), error)
}

/// An exception of this kind.
pub(crate) fn of_kind(kind: ErrorKind, message: impl Display) -> PyErr {
    let error = Error::new_err(message.to_string());
    let kind = format!("{kind:?}").to_lowercase();
    // Without memory for an attribute the message is still there.
    Python::attach(|py| error.value(py).setattr("kind", kind).ok());
    error
}

/// Passes messages to Python's `warnings`.
pub(crate) fn warn(py: Python<'_>, notices: &[impl Display]) -> PyResult<()> {
    let category = py.get_type::<pyo3::exceptions::PyUserWarning>();
    for notice in notices {
        let text =
            std::ffi::CString::new(notice.to_string().replace('\0', " ")).unwrap_or_default();
        PyErr::warn(py, &category, &text, 1)?;
    }
    Ok(())
}

/// Warns of the first sentence or translation that was truncated or has no language.
pub(crate) fn warn_of_losses(py: Python<'_>, translations: &[Translation]) -> PyResult<()> {
    let all = translations.iter().enumerate();
    let mut losses = all
        .flat_map(|(index, found)| found.warnings.iter().map(move |warning| (index, warning)))
        .filter(|(_, warning)| **warning != Warning::Empty);
    match (losses.next(), losses.count()) {
        (None, _) => Ok(()),
        (Some((index, warning)), 0) => warn(py, &[format!("text {}: {warning}", index + 1)]),
        (Some((index, warning)), more) => {
            warn(py, &[format!("text {}: {warning}; and {more} more warnings", index + 1)])
        }
    }
}
