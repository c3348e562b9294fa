//! Tensors of strings: nested lists of JSON, or binary, each string after its length in 4 bytes, the lowest first.

use super::TEXT_INPUT;
use crate::error::Failure;
use serde_json::Value;

/// The strings of nested lists.
pub(super) fn flat(data: &Value) -> Result<Vec<String>, Failure> {
    match data {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => Ok(items.iter().map(flat).collect::<Result<Vec<_>, _>>()?.concat()),
        other => Err(Failure::bad(format_args!("{TEXT_INPUT}: expected strings, found {other}"))),
    }
}

/// The strings of a binary tensor.
pub(super) fn strings(mut bytes: &[u8]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    let cut = |place: usize| Failure::bad(format_args!("{TEXT_INPUT}: string {place} is cut off"));
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().ok_or_else(|| cut(texts.len()))?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(|| cut(texts.len()))?;
        texts.push(text);
        bytes = rest;
    }
    utf8(texts.into_iter())
}

/// The strings of bytes.
pub(super) fn utf8<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Result<Vec<String>, Failure> {
    let of_bytes = |(place, text): (usize, &[u8])| match std::str::from_utf8(text) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(Failure::bad(format_args!("{TEXT_INPUT}: string {place}: {error}"))),
    };
    texts.enumerate().map(of_bytes).collect()
}

/// Strings to be written as a binary tensor.
pub(super) struct Strings<I>(pub(super) I);

impl<'t, I: Iterator<Item = &'t str>> Strings<I> {
    pub(super) fn bytes(self) -> Vec<u8> {
        let of_text = |text: &'t str| {
            let length = u32::try_from(text.len()).expect("a translation is shorter than 4 GiB");
            length.to_le_bytes().into_iter().chain(text.bytes())
        };
        self.0.flat_map(of_text).collect()
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
        assert_eq!(strings(bytes).unwrap(), ["a", "é", ""]);
        assert_eq!(Strings(["a", "é", ""].into_iter()).bytes(), bytes);
        for damaged in [&bytes[..3], &bytes[..8], b"\xff\xff\xff\xffa", b"\x01\0\0\0\xff"] {
            assert!(strings(damaged).is_err(), "{damaged:?}");
        }
    }
}
