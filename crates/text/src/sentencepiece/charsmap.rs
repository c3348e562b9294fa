//! A normalizer's precompiled map of byte sequences to replacements.
//!
//! Source: SentencePiece's `precompiled_charsmap`: the size of a double array in bytes (u32, little
//! endian), the double array (Darts, u32 units), then the replacements, each ended by NUL, which
//! the double array's values point into.

/// The maximum length of a replacement in bytes, which bounds the growth of a text. Those of
/// Unicode have at most 54.
const MAX_REPLACEMENT_BYTES: usize = 256;

/// Replacements of the longest matching sequence.
#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

impl Charsmap {
    /// Reads a map; the error is the reason.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (size, rest) = bytes
            .split_first_chunk::<4>()
            .ok_or_else(|| format!("its {} bytes have no room for its size", bytes.len()))?;
        let size = u32::from_le_bytes(*size) as usize;
        if size >= rest.len() {
            return Err(format!("its double array needs {size} bytes, found {}", rest.len()));
        }
        if size == 0 || !size.is_multiple_of(1024) {
            return Err(format!("its double array has {size} bytes, expected a multiple of 1024"));
        }
        let (units, replacements) = rest.split_at(size);
        let replacements = std::str::from_utf8(replacements)
            .map_err(|error| format!("its replacements are not UTF-8: {error}"))?;
        let (units, _) = units.as_chunks::<4>();
        let units: Vec<u32> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        for value in units.iter().filter(|unit| is_value(**unit)).map(|unit| value_of(*unit)) {
            let Some(rest) = replacements.get(value..) else {
                return Err(format!(
                    "a value points to byte {value} of {} bytes of replacements",
                    replacements.len()
                ));
            };
            if !rest.bytes().take(MAX_REPLACEMENT_BYTES + 1).any(|byte| byte == 0) {
                return Err(format!(
                    "the replacement at byte {value} does not end after {MAX_REPLACEMENT_BYTES} bytes"
                ));
            }
        }
        Ok(Self { units, replacements: replacements.to_owned() })
    }

    /// The replacement of the longest matching prefix of `text`, and that prefix's length in bytes.
    pub(crate) fn replace(&self, text: &str) -> Option<(&str, usize)> {
        let mut longest = None;
        let mut position = offset_of(*self.units.first()?);
        for (index, byte) in text.bytes().enumerate() {
            position ^= usize::from(byte);
            let Some(unit) = self.units.get(position) else { break };
            // A value's unit has its highest bit set, so it equals no byte.
            if unit & 0x8000_00FF != u32::from(byte) {
                break;
            }
            position ^= offset_of(*unit);
            if unit >> 8 & 1 == 1
                && let Some(value) = self.units.get(position)
                && text.is_char_boundary(index + 1)
            {
                longest = Some((value_of(*value), index + 1));
            }
        }
        let (start, length) = longest?;
        let replacement = self.replacements.get(start..)?;
        Some((&replacement[..replacement.find('\0')?], length))
    }
}

fn is_value(unit: u32) -> bool {
    unit >> 31 == 1
}

fn value_of(unit: u32) -> usize {
    (unit & 0x7FFF_FFFF) as usize
}

/// The offset of a unit's children, combined by exclusive or.
fn offset_of(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}
