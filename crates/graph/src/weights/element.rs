//! Element types of stored weights.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;

/// A number type, little-endian in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16: 11 bits of precision, maximum 65,504.
    F16,
    /// The upper half of binary32: 8 bits of precision, the range of binary32.
    Bf16,
    /// Integers from -128 to 127.
    I8,
    /// Integers from 0 to 255.
    U8,
}

impl Element {
    /// Number of bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::F16 | Element::Bf16 => 2,
            Element::I8 | Element::U8 => 1,
        }
    }

    /// Decodes `values.len()` numbers exactly; `bytes` need no alignment.
    pub(super) fn decode(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Element::F32 => each(bytes, values, f32::from_le_bytes),
            Element::F16 => each(bytes, values, |pair| f16::from_le_bytes(pair).to_f32()),
            Element::Bf16 => each(bytes, values, |pair| bf16::from_le_bytes(pair).to_f32()),
            Element::I8 => each(bytes, values, |byte| i8::from_le_bytes(byte).into()),
            Element::U8 => each(bytes, values, |byte| u8::from_le_bytes(byte).into()),
        }
    }

    /// The first number in `bytes` that is not finite, with its position.
    pub(super) fn first_non_finite(self, bytes: &[u8]) -> Option<(usize, f32)> {
        match self {
            // All bits of the exponent are set.
            Element::F32 => first(
                bytes,
                |bits| u32::from_le_bytes(bits) & 0x7f80_0000 == 0x7f80_0000,
                f32::from_le_bytes,
            ),
            Element::F16 => first(
                bytes,
                |bits| u16::from_le_bytes(bits) & 0x7c00 == 0x7c00,
                |bits| f16::from_le_bytes(bits).to_f32(),
            ),
            Element::Bf16 => first(
                bytes,
                |bits| u16::from_le_bytes(bits) & 0x7f80 == 0x7f80,
                |bits| bf16::from_le_bytes(bits).to_f32(),
            ),
            Element::I8 | Element::U8 => None,
        }
    }

    /// Appends the numbers, rounded to nearest, ties to even; values out of range become infinite,
    /// or the largest or smallest integer.
    pub(super) fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Element::F32 => {
                let before = bytes.len();
                bytes.resize(before + 4 * values.len(), 0);
                let (numbers, _) = bytes[before..].as_chunks_mut();
                numbers
                    .iter_mut()
                    .zip(values)
                    .for_each(|(number, value)| *number = value.to_le_bytes());
            }
            Element::F16 => {
                let mut rounded = vec![f16::ZERO; values.len()];
                rounded.convert_from_f32_slice(values);
                bytes.extend(rounded.iter().flat_map(|value| value.to_le_bytes()));
            }
            Element::Bf16 => {
                bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()))
            }
            // The conversions saturate.
            Element::I8 => {
                bytes.extend(values.iter().map(|value| value.round_ties_even() as i8 as u8))
            }
            Element::U8 => bytes.extend(values.iter().map(|value| value.round_ties_even() as u8)),
        }
    }

    /// Rounds as [`Element::encode`] does.
    pub(super) fn round(self, values: &mut [f32]) {
        match self {
            Element::F32 => {}
            Element::F16 => {
                values.iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32())
            }
            Element::Bf16 => {
                values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32())
            }
            Element::I8 => {
                values.iter_mut().for_each(|value| *value = (value.round_ties_even() as i8).into())
            }
            Element::U8 => {
                values.iter_mut().for_each(|value| *value = (value.round_ties_even() as u8).into())
            }
        }
    }
}

fn each<const SIZE: usize>(bytes: &[u8], values: &mut [f32], decode: impl Fn([u8; SIZE]) -> f32) {
    let (numbers, _) = bytes.as_chunks::<SIZE>();
    for (value, &number) in values.iter_mut().zip(numbers) {
        *value = decode(number);
    }
}

/// Blocks are tested without a branch, so that many numbers are tested at once.
fn first<const SIZE: usize>(
    bytes: &[u8],
    is_wanted: impl Fn([u8; SIZE]) -> bool,
    decode: impl Fn([u8; SIZE]) -> f32,
) -> Option<(usize, f32)> {
    const BLOCK: usize = 1024;
    let (numbers, _) = bytes.as_chunks::<SIZE>();
    let has_one =
        |block: &[[u8; SIZE]]| block.iter().fold(false, |found, &number| found | is_wanted(number));
    let block = numbers.chunks(BLOCK).position(has_one)? * BLOCK;
    let place = block + numbers[block..].iter().position(|&number| is_wanted(number))?;
    Some((place, decode(numbers[place])))
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::I8 => "i8",
            Element::U8 => "u8",
        })
    }
}
