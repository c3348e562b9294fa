//! Protobuf messages as lists of fields, which are changed and written again, for ONNX files and
//! SentencePiece models.

use anyhow::{Context, Result, bail};
use prost::encoding::{decode_varint, encode_varint};

/// A field's value, as encoded in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    Bytes(Vec<u8>),
}

/// The fields of a message, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) fields: Vec<(u32, Value)>,
}

impl Message {
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Value::Varint(varint(&mut bytes)?),
                1 => Value::Fixed64(take(&mut bytes, 8)?.try_into()?),
                2 => {
                    let length = varint(&mut bytes)?;
                    Value::Bytes(take(&mut bytes, usize::try_from(length)?)?.to_vec())
                }
                5 => Value::Fixed32(take(&mut bytes, 4)?.try_into()?),
                other => bail!("a field of wire type {other}"),
            };
            fields.push((u32::try_from(tag >> 3)?, value));
        }
        Ok(Self { fields })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (field, value) in &self.fields {
            let wire = match value {
                Value::Varint(_) => 0,
                Value::Fixed64(_) => 1,
                Value::Bytes(_) => 2,
                Value::Fixed32(_) => 5,
            };
            encode_varint(u64::from(*field) << 3 | wire, &mut bytes);
            match value {
                Value::Varint(number) => encode_varint(*number, &mut bytes),
                Value::Fixed32(number) => bytes.extend(number),
                Value::Fixed64(number) => bytes.extend(number),
                Value::Bytes(inner) => {
                    encode_varint(inner.len() as u64, &mut bytes);
                    bytes.extend(inner);
                }
            }
        }
        bytes
    }

    /// Adds a number.
    pub(super) fn number(mut self, field: u32, number: i64) -> Self {
        self.fields.push((field, Value::Varint(number as u64)));
        self
    }

    /// Adds a text.
    pub(super) fn text(mut self, field: u32, text: impl AsRef<[u8]>) -> Self {
        self.fields.push((field, Value::Bytes(text.as_ref().to_vec())));
        self
    }

    /// Adds a message.
    pub(super) fn message(self, field: u32, message: &Message) -> Self {
        let bytes = message.encode();
        self.text(field, bytes)
    }

    /// Removes all fields with this number.
    pub(super) fn without(mut self, field: u32) -> Self {
        self.fields.retain(|(number, _)| *number != field);
        self
    }

    /// The text of a field.
    pub(super) fn get(&self, field: u32) -> Option<&[u8]> {
        self.fields.iter().find_map(|(number, value)| match value {
            Value::Bytes(bytes) if *number == field => Some(bytes.as_slice()),
            _ => None,
        })
    }
}

/// The positions where fields begin, in messages nested up to `depth`: positions at which a file is
/// truncated.
pub(super) fn boundaries(bytes: &[u8], depth: usize) -> Vec<usize> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while !rest.is_empty() {
        found.push(bytes.len() - rest.len());
        let Ok(tag) = varint(&mut rest) else { break };
        let taken = match tag & 7 {
            0 => varint(&mut rest).map(|_| ()),
            1 => take(&mut rest, 8).map(|_| ()),
            2 => varint(&mut rest)
                .and_then(|length| take(&mut rest, usize::try_from(length)?))
                .map(|inner| {
                    let start = inner.as_ptr() as usize - bytes.as_ptr() as usize;
                    if depth > 0 && Message::parse(inner).is_ok() {
                        found.extend(
                            boundaries(inner, depth - 1).into_iter().map(|place| start + place),
                        );
                    }
                }),
            _ => take(&mut rest, 4).map(|_| ()),
        };
        if taken.is_err() {
            break;
        }
    }
    found
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length).context("a field that is cut off")?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    decode_varint(bytes).context("a number without end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_they_were_read() {
        let inner = Message::default().number(1, -1).text(2, "x");
        let message = Message::default().message(7, &inner).number(9, 300);
        let bytes = message.encode();
        assert_eq!(Message::parse(&bytes).unwrap(), message);
        assert_eq!(boundaries(&bytes, 1), [0, 2, 13, 16]);
        assert!(Message::parse(&bytes[..5]).is_err());
    }
}
