//! Texts in and out: one string, or many in a list, a NumPy array, a series of pandas or Polars, or
//! an array of pyarrow, as which other arrays with Arrow's PyCapsule interface come back. What else
//! can be iterated comes back as a list.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString};

/// What texts came in, and go out in.
pub(crate) enum Container<'py> {
    /// One string.
    One,
    /// Anything else that can be iterated.
    List,
    /// A NumPy array of one axis.
    Numpy,
    /// An array of pyarrow, or a chunked one.
    Arrow(Bound<'py, PyAny>),
    /// A pandas series.
    Pandas(Bound<'py, PyAny>),
    /// A Polars series.
    Polars(Bound<'py, PyAny>),
}

/// The texts of an argument.
pub(crate) fn read<'py>(texts: &Bound<'py, PyAny>) -> PyResult<(Vec<String>, Container<'py>)> {
    if let Ok(text) = texts.cast::<PyString>() {
        return Ok((vec![text.extract()?], Container::One));
    }
    let kind = texts.get_type();
    let name = kind.name()?.to_string();
    let is_table = matches!(name.as_str(), "DataFrame" | "LazyFrame" | "RecordBatch" | "Table");
    if is_table || texts.cast::<PyMapping>().is_ok() {
        return Err(PyTypeError::new_err(format!(
            "texts: expected a string or several, found {name}; pass tables and dictionaries to the translator itself"
        )));
    }
    let package: String = kind.getattr("__module__")?.extract()?;
    let (items, container) = match (package.split('.').next().unwrap_or_default(), &*name) {
        ("numpy", _) => {
            let ndim: usize = texts.getattr("ndim")?.extract()?;
            if ndim != 1 {
                return Err(PyValueError::new_err(format!(
                    "texts: expected an array of one axis, found {ndim}"
                )));
            }
            (texts.call_method0("tolist")?, Container::Numpy)
        }
        ("pyarrow", _) if texts.hasattr("to_pylist")? => {
            (texts.call_method0("to_pylist")?, Container::Arrow(texts.clone()))
        }
        ("pandas", "Series") => (texts.call_method0("tolist")?, Container::Pandas(texts.clone())),
        ("polars", "Series") => (texts.call_method0("to_list")?, Container::Polars(texts.clone())),
        _ => match in_pyarrow(texts)? {
            Some(array) => (array.call_method0("to_pylist")?, Container::Arrow(array)),
            None => (texts.clone(), Container::List),
        },
    };
    let text = |(place, item): (usize, PyResult<Bound<'py, PyAny>>)| -> PyResult<String> {
        let item = item?;
        let text = item.cast::<PyString>().map_err(|_| {
            let found = item
                .get_type()
                .name()
                .map_or_else(|_| "another type".into(), |name| name.to_string());
            PyTypeError::new_err(format!("texts: expected strings, found {found} at index {place}"))
        })?;
        text.extract()
    };
    let items = items
        .try_iter()
        .map_err(|_| PyTypeError::new_err("texts: expected a string, or a list, NumPy array, pandas series or Arrow array of strings"))?;
    Ok((items.enumerate().map(text).collect::<PyResult<_>>()?, container))
}

/// An array of another package with Arrow's PyCapsule interface, if pyarrow is installed.
fn in_pyarrow<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let interfaces = [("__arrow_c_array__", "array"), ("__arrow_c_stream__", "chunked_array")];
    for (interface, make) in interfaces {
        if texts.hasattr(interface)?
            && let Ok(arrow) = texts.py().import("pyarrow")
        {
            return arrow.call_method1(make, (texts,)).map(Some);
        }
    }
    Ok(None)
}

impl<'py> Container<'py> {
    /// The texts as they came.
    pub(crate) fn write(
        &self,
        py: Python<'py>,
        mut texts: Vec<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keywords = PyDict::new(py);
        match self {
            Self::One => Ok(PyString::new(py, &texts.pop().unwrap_or_default()).into_any()),
            Self::List => Ok(PyList::new(py, texts)?.into_any()),
            Self::Numpy => {
                keywords.set_item("dtype", "object")?;
                py.import("numpy")?.call_method("array", (texts,), Some(&keywords))
            }
            Self::Arrow(array) => {
                let arrow = py.import("pyarrow")?;
                let is_large = arrow
                    .getattr("types")?
                    .call_method1("is_large_string", (array.getattr("type")?,))?
                    .is_truthy()?;
                let kind = arrow.call_method0(if is_large { "large_string" } else { "string" })?;
                if array.hasattr("chunks")? {
                    arrow.call_method1("chunked_array", ([texts], kind))
                } else {
                    arrow.call_method1("array", (texts, kind))
                }
            }
            Self::Pandas(series) => {
                keywords.set_item("index", series.getattr("index")?)?;
                keywords.set_item("name", series.getattr("name")?)?;
                py.import("pandas")?.call_method("Series", (texts,), Some(&keywords))
            }
            Self::Polars(series) => {
                keywords.set_item("dtype", py.import("polars")?.getattr("String")?)?;
                series.get_type().call((series.getattr("name")?, texts), Some(&keywords))
            }
        }
    }

    /// Values for each text: one value for one string.
    pub(crate) fn each(
        &self,
        py: Python<'py>,
        values: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match (self, values.first()) {
            (Self::One, Some(value)) => Ok(value.clone()),
            _ => Ok(PyList::new(py, values)?.into_any()),
        }
    }
}
