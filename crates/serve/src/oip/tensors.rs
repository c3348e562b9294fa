//! Tensors of requests and answers: nested lists in JSON, or binary: numbers in little endian, each
//! string after its length in 4 bytes.

use crate::error::Failure;
use cognate_export::tensor_type;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    /// Strings in UTF-8.
    Bytes,
    Fp32,
    Int64,
}

impl Datatype {
    const ALL: [Self; 3] = [Self::Bytes, Self::Fp32, Self::Int64];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "BYTES",
            Self::Fp32 => "FP32",
            Self::Int64 => "INT64",
        }
    }
}

impl FromStr for Datatype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|datatype| datatype.name() == name);
        found.ok_or_else(|| {
            format!("expected {}, found {name}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    Bytes(Vec<String>),
    Fp32(Vec<f32>),
    Int64(Vec<i64>),
}

impl Elements {
    pub(crate) fn datatype(&self) -> Datatype {
        match self {
            Self::Bytes(_) => Datatype::Bytes,
            Self::Fp32(_) => Datatype::Fp32,
            Self::Int64(_) => Datatype::Int64,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(texts) => texts.len(),
            Self::Fp32(numbers) => numbers.len(),
            Self::Int64(numbers) => numbers.len(),
        }
    }

    /// The elements of nested lists.
    pub(super) fn of_json(datatype: Datatype, data: &Value) -> Result<Self, Failure> {
        Ok(match datatype {
            Datatype::Bytes => {
                Self::Bytes(flat(data, "strings", |value| value.as_str().map(str::to_owned))?)
            }
            Datatype::Fp32 => Self::Fp32(flat(data, "numbers", |value| {
                value.as_f64().map(|number| number as f32)
            })?),
            Datatype::Int64 => Self::Int64(flat(data, "integers", Value::as_i64)?),
        })
    }

    /// The elements of a binary tensor.
    pub(super) fn of_bytes(datatype: Datatype, bytes: &[u8]) -> Result<Self, Failure> {
        Ok(match datatype {
            Datatype::Bytes => Self::Bytes(strings(bytes)?),
            Datatype::Fp32 => Self::Fp32(numbers(bytes)?.map(f32::from_le_bytes).collect()),
            Datatype::Int64 => Self::Int64(numbers(bytes)?.map(i64::from_le_bytes).collect()),
        })
    }

    pub(super) fn json(&self) -> Value {
        // JSON has neither infinity nor NaN.
        let finite = |number: &f32| {
            if number.is_nan() { Value::Null } else { json!(number.clamp(f32::MIN, f32::MAX)) }
        };
        match self {
            Self::Bytes(texts) => json!(texts),
            Self::Fp32(numbers) => numbers.iter().map(finite).collect(),
            Self::Int64(numbers) => json!(numbers),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let of_text = |text: &String| {
            let length = u32::try_from(text.len()).expect("a text is shorter than 4 GiB");
            [&length.to_le_bytes(), text.as_bytes()].concat()
        };
        match self {
            Self::Bytes(texts) => texts.iter().flat_map(of_text).collect(),
            Self::Fp32(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Self::Int64(numbers) => {
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
            }
        }
    }
}

/// A tensor by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Elements,
}

impl Tensor {
    /// A tensor of a request; its shape must match the number of elements.
    pub(super) fn asked<S: Copy + fmt::Debug + TryInto<usize>>(
        name: String,
        shape: &[S],
        elements: Elements,
    ) -> Result<Self, Failure> {
        let sizes: Option<Vec<usize>> = shape.iter().map(|&size| size.try_into().ok()).collect();
        // Sizes next to a 0 must be valid, too.
        let product = |least: usize| {
            let product = |product: usize, size: &usize| product.checked_mul(*size.max(&least));
            sizes
                .as_ref()?
                .iter()
                .try_fold(1, product)
                .filter(|&product| isize::try_from(product).is_ok())
        };
        let places = product(1).and(product(0));
        match sizes {
            Some(shape) if places == Some(elements.len()) => Ok(Self { name, shape, elements }),
            _ => Err(Failure::bad(format_args!(
                "{name}: has the shape {shape:?}, but {} elements",
                elements.len()
            ))),
        }
    }
}

/// All values in nested lists.
fn flat<T>(data: &Value, expected: &str, read: fn(&Value) -> Option<T>) -> Result<Vec<T>, Failure> {
    fn collect<T>(
        data: &Value,
        expected: &str,
        read: fn(&Value) -> Option<T>,
        found: &mut Vec<T>,
    ) -> Result<(), Failure> {
        if let Value::Array(items) = data {
            return items.iter().try_for_each(|item| collect(item, expected, read, found));
        }
        found.push(
            read(data)
                .ok_or_else(|| Failure::bad(format_args!("expected {expected}, found {data}")))?,
        );
        Ok(())
    }
    let mut found = Vec::new();
    collect(data, expected, read, &mut found)?;
    Ok(found)
}

fn numbers<const N: usize>(bytes: &[u8]) -> Result<impl Iterator<Item = [u8; N]>, Failure> {
    let (numbers, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(Failure::bad(format_args!(
            "expected a multiple of {N} bytes, found {}",
            bytes.len()
        )));
    }
    Ok(numbers.iter().copied())
}

fn strings(mut bytes: &[u8]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    let cut = |place: usize| Failure::bad(format_args!("string {place} is cut off"));
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().ok_or_else(|| cut(texts.len()))?;
        let (text, rest) = rest
            .split_at_checked(u32::from_le_bytes(*length) as usize)
            .ok_or_else(|| cut(texts.len()))?;
        texts.push(text);
        bytes = rest;
    }
    utf8(texts.into_iter())
}

/// The strings of bytes.
pub(super) fn utf8<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Result<Vec<String>, Failure> {
    let of_bytes = |(place, text): (usize, &[u8])| match std::str::from_utf8(text) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(Failure::bad(format_args!("string {place}: {error}"))),
    };
    texts.enumerate().map(of_bytes).collect()
}

/// Name, type and sizes of an input or output; sizes that are not constant are -1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorType {
    pub(crate) name: String,
    pub(crate) datatype: Datatype,
    pub(crate) shape: Vec<i64>,
}

impl TensorType {
    pub(super) fn of_text(name: &str, datatype: Datatype) -> Self {
        Self { name: name.into(), datatype, shape: vec![-1] }
    }

    /// An input or output of a graph. Half precision is transferred as single precision.
    pub(crate) fn of_graph(name: &str, described: &str) -> Option<Self> {
        let (element, sizes) = tensor_type(described)?;
        let datatype = match element {
            "f32" | "f16" => Datatype::Fp32,
            "i64" => Datatype::Int64,
            _ => return None,
        };
        Some(Self {
            name: name.into(),
            datatype,
            shape: sizes.into_iter().map(|size| size.unwrap_or(-1)).collect(),
        })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {:?}", self.name, self.datatype, self.shape)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn strings_return_from_bytes() {
        // numpy.array(["a", "é", ""]) as tritonclient.utils.serialize_byte_tensor writes it.
        let bytes = b"\x01\0\0\0a\x02\0\0\0\xc3\xa9\0\0\0\0";
        let texts = Elements::Bytes(["a", "é", ""].map(String::from).into());
        assert_eq!(Elements::of_bytes(Datatype::Bytes, bytes).unwrap(), texts);
        assert_eq!(texts.bytes(), bytes);
        for damaged in [&bytes[..3], &bytes[..8], b"\xff\xff\xff\xffa", b"\x01\0\0\0\xff"] {
            assert!(Elements::of_bytes(Datatype::Bytes, damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn numbers_return_from_bytes_and_lists() {
        let integers = Elements::Int64(vec![1, -2]);
        assert_eq!(integers.bytes(), b"\x01\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(Elements::of_bytes(Datatype::Int64, &integers.bytes()).unwrap(), integers);
        assert_eq!(Elements::of_json(Datatype::Int64, &json!([[1], [-2]])).unwrap(), integers);
        assert_eq!(
            Elements::of_json(Datatype::Fp32, &json!([1, 0.5])).unwrap(),
            Elements::Fp32(vec![1.0, 0.5])
        );
        assert_eq!(Elements::Fp32(vec![f32::NAN, f32::INFINITY]).json(), json!([null, f32::MAX]));
        assert!(Elements::of_json(Datatype::Int64, &json!([0.5])).is_err());
        assert!(Elements::of_bytes(Datatype::Fp32, b"abc").is_err());
        let asked = |shape: &[i64]| Tensor::asked("x".into(), shape, integers.clone());
        assert!(asked(&[2, 1]).is_ok());
        for wrong in [&[3][..], &[-1, -2], &[i64::MAX, 4, 2], &[0, i64::MAX, 4]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }
}
