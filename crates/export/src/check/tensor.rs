//! Constants: they must have as many values as their shape requires, in the file or in a range of
//! a weights file.

use super::wire::{Fields, Kind};
use super::{MOST_AXES, Walk};
use crate::proto::{DataType, element_bits};
use std::io::{Read, Seek, SeekFrom};

const TENSOR: Kind = Kind { name: "tensor", once: &[2, 3, 8, 9, 12, 14] };
const ENTRY: Kind = Kind { name: "external data", once: &[1, 2] };

/// Maximum length of integer lists that are evaluated; shapes have a few.
const MOST_SIZES: u64 = 64;

/// A valid constant.
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    /// Its values, if they are few integers.
    pub(super) values: Option<Vec<i64>>,
}

#[derive(Default)]
struct External<'a> {
    location: Option<&'a str>,
    offset: Option<u64>,
    length: Option<u64>,
    n_entries: usize,
}

/// Values in the graph's file.
#[derive(Default)]
struct Inside<'a> {
    raw: Option<&'a [u8]>,
    /// ONNX's numbers of typed fields, and how many values each has.
    typed: Vec<(u32, u64)>,
    /// The values of `int32_data` and `int64_data`, if they are few.
    few: Vec<i64>,
}

impl<'a> Walk<'a> {
    /// Checks the constant in `bytes`.
    pub(super) fn tensor(&mut self, bytes: &'a [u8]) -> Result<Tensor<'a>, String> {
        let (mut name, mut data_type, mut is_external) = ("", 0, false);
        let (mut dims, mut external, mut inside) =
            (Vec::new(), External::default(), Inside::default());
        for field in Fields::of(&TENSOR, bytes) {
            let (field, value) = field?;
            match field {
                1 => dims.extend(value.numbers()?),
                2 => {
                    data_type =
                        i32::try_from(value.number()?).map_err(|_| "its type is out of range")?
                }
                3 => return Err("tensors in segments are not supported".into()),
                4 => inside.add(4, value.count(Some(4))?),
                5 | 7 => {
                    let n_values = value.count(None)?;
                    inside.add(field, n_values);
                    if n_values <= MOST_SIZES && (inside.few.len() as u64) < MOST_SIZES {
                        inside.few.extend(value.numbers()?);
                    }
                }
                6 => inside.add(6, value.bytes().map(|_| 1)?),
                8 => name = value.text()?,
                9 => inside.raw = Some(value.bytes()?),
                10 => inside.add(10, value.count(Some(8))?),
                11 => inside.add(11, value.count(None)?),
                13 => external.entry(value.bytes()?)?,
                14 => is_external = value.number()? == 1,
                _ => {}
            }
            self.spend(if matches!(field, 1 | 6 | 13) { 1 } else { 0 })?;
        }
        if dims.len() > MOST_AXES {
            return Err(format!(
                "tensor {name}: expected at most {MOST_AXES} axes, found {}",
                dims.len()
            ));
        }
        let named = |reason: String| {
            if name.is_empty() { reason } else { format!("tensor {name}: {reason}") }
        };
        let elements = elements(&dims).map_err(named)?;
        let bits = element_bits(data_type);
        let text = DataType::try_from(data_type) == Ok(DataType::String);
        if bits == 0 && !text {
            return Err(named(format!("unknown element type {data_type}")));
        }
        let wanted = elements
            .checked_mul(bits)
            .ok_or_else(|| named(format!("shape {dims:?} is too large")))?
            .div_ceil(8);
        let is_whole = data_type == DataType::Int64 as i32;
        let values = match (is_external, external.n_entries) {
            (false, 0) => {
                inside.check(elements, wanted, data_type).map_err(named)?.filter(|_| is_whole)
            }
            (false, _) => return Err(named("has external data, but another data location".into())),
            (true, _) if inside.raw.is_some() || !inside.typed.is_empty() => {
                return Err(named("has values in this file and in another".into()));
            }
            (true, _) if text => {
                return Err(named("strings in another file are not supported".into()));
            }
            (true, _) => self.external(&external, wanted, is_whole).map_err(named)?,
        };
        Ok(Tensor { name, values })
    }

    /// Checks that a weights file contains `wanted` bytes at a tensor's range; returns its values,
    /// if they are few integers.
    fn external(
        &mut self,
        external: &External<'_>,
        wanted: u64,
        is_whole: bool,
    ) -> Result<Option<Vec<i64>>, String> {
        let location = external.location.ok_or("external data has no location")?;
        let (file, size) = self.files.open(&self.folder, location)?;
        let offset = external.offset.unwrap_or(0);
        let length = external.length.unwrap_or(wanted);
        if length != wanted {
            return Err(format!(
                "expected {wanted} bytes for its shape, found external data of {length}"
            ));
        }
        if offset.checked_add(length).is_none_or(|end| end > *size) {
            return Err(format!(
                "expected {length} bytes at offset {offset} of {location}, found {size} in all"
            ));
        }
        if !is_whole || wanted > 8 * MOST_SIZES {
            return Ok(None);
        }
        let mut bytes = vec![0; wanted as usize];
        let mut file: &std::fs::File = file;
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|error| format!("{location}: cannot be read: {error}"))?;
        Ok(Some(whole_numbers(&bytes)))
    }
}

impl<'a> External<'a> {
    fn entry(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let (mut key, mut text) = ("", "");
        for field in Fields::of(&ENTRY, bytes) {
            match field? {
                (1, value) => key = value.text()?,
                (2, value) => text = value.text()?,
                _ => {}
            }
        }
        self.n_entries += 1;
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = || {
            text.parse()
                .ok()
                .filter(|_| is_digits)
                .ok_or_else(|| format!("external data: {key}: expected a number, found {text:?}"))
        };
        let is_repeated = match key {
            "location" => self.location.replace(text).is_some(),
            "offset" => self.offset.replace(number()?).is_some(),
            "length" => self.length.replace(number()?).is_some(),
            _ => false,
        };
        if is_repeated { Err(format!("external data: duplicate {key}")) } else { Ok(()) }
    }
}

impl Inside<'_> {
    fn add(&mut self, field: u32, n_values: u64) {
        match self.typed.iter_mut().find(|(known, _)| *known == field) {
            Some((_, sum)) => *sum += n_values,
            None => self.typed.push((field, n_values)),
        }
    }

    /// Checks that there are as many values as the shape requires; returns them, if they
    /// are few integers.
    fn check(
        &self,
        elements: u64,
        wanted: u64,
        data_type: i32,
    ) -> Result<Option<Vec<i64>>, String> {
        let few =
            |bytes: &[u8]| (bytes.len() as u64 <= 8 * MOST_SIZES).then(|| whole_numbers(bytes));
        match (self.raw, self.typed.as_slice()) {
            (Some(raw), [])
                if raw.len() as u64 == wanted && data_type != DataType::String as i32 =>
            {
                Ok(few(raw))
            }
            (Some(raw), []) => {
                Err(format!("expected {wanted} bytes for its shape, found {}", raw.len()))
            }
            (Some(_), _) | (None, [_, _, ..]) => Err("has values of several kinds".into()),
            (None, []) if elements == 0 => Ok(Some(Vec::new())),
            (None, []) => Err(format!("expected {elements} values for its shape, found none")),
            (None, &[(_, n_values)]) => {
                let fits = match DataType::try_from(data_type) {
                    // Two per 32-bit number, or one: exporters write both.
                    Ok(DataType::Int4 | DataType::Uint4 | DataType::Float4e2m1) => {
                        n_values == elements || n_values == elements.div_ceil(2)
                    }
                    Ok(DataType::Complex64 | DataType::Complex128) => {
                        elements.checked_mul(2) == Some(n_values)
                    }
                    Ok(_) | Err(_) => n_values == elements,
                };
                if fits {
                    Ok((self.few.len() as u64 == n_values).then(|| self.few.clone()))
                } else {
                    Err(format!("expected {elements} values for its shape, found {n_values}"))
                }
            }
        }
    }
}

/// The number of elements of a shape.
pub(super) fn elements(dims: &[i64]) -> Result<u64, String> {
    let sizes = dims.iter().map(|&size| {
        u64::try_from(size).map_err(|_| format!("shape {} has a negative size", shown(dims)))
    });
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    // A size of zero does not hide an overflow of the others.
    let bound = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size.max(1)));
    let bound = bound
        .filter(|bound| *bound <= i64::MAX as u64)
        .ok_or_else(|| format!("shape {} is too large", shown(dims)))?;
    Ok(if sizes.contains(&0) { 0 } else { bound })
}

fn shown(dims: &[i64]) -> String {
    const MOST: usize = 8;
    if dims.len() > MOST { format!("of {} sizes", dims.len()) } else { format!("{dims:?}") }
}

fn whole_numbers(bytes: &[u8]) -> Vec<i64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers.iter().map(|number| i64::from_le_bytes(*number)).collect()
}
