//! Reads the fields of a protobuf message in place, without copies or allocations.
//!
//! Source: the protobuf encoding, <https://protobuf.dev/programming-guides/encoding>.
//!
//! Stricter than a parser: a field that is not repeated must not occur twice. Parsers use the last
//! of two numbers and merge two messages, but not all in the same way, so a validator and an engine
//! could read different values.

/// The fields of a message that are not repeated; other fields are lists, or unknown and skipped.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) once: &'static [u32],
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// A number of four or eight bytes.
    Fixed(&'a [u8]),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed(_) => {
                Err("expected a string or a message, found a number".into())
            }
        }
    }

    pub(super) fn text(self) -> Result<&'a str, String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|error| {
            format!(
                "expected a name in UTF-8, found another encoding at byte {}",
                error.valid_up_to() + 1
            )
        })
    }

    pub(super) fn number(self) -> Result<i64, String> {
        match self {
            // Negative numbers are stored as large unsigned ones.
            Value::Varint(number) => Ok(number as i64),
            Value::Fixed(_) | Value::Bytes(_) => {
                Err("expected an integer, found another type".into())
            }
        }
    }

    /// Integers, single or packed.
    pub(super) fn numbers(self) -> Result<Vec<i64>, String> {
        match self {
            Value::Varint(number) => Ok(vec![number as i64]),
            Value::Fixed(_) => Err("expected an integer, found a number of fixed size".into()),
            Value::Bytes(mut packed) => {
                let mut numbers = Vec::new();
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed)? as i64);
                }
                Ok(numbers)
            }
        }
    }

    /// The number of packed values, of `size` bytes each or varints, without decoding them.
    pub(super) fn count(self, size: Option<usize>) -> Result<u64, String> {
        match (self, size) {
            (Value::Varint(_), None) => Ok(1),
            (Value::Fixed(bytes), Some(size)) if bytes.len() == size => Ok(1),
            (Value::Bytes(packed), Some(size)) if packed.len().is_multiple_of(size) => {
                Ok((packed.len() / size) as u64)
            }
            // The last byte of a varint has its highest bit clear.
            (Value::Bytes(packed), None) => {
                Ok(packed.iter().filter(|byte| **byte < 0x80).count() as u64)
            }
            (Value::Varint(_) | Value::Fixed(_) | Value::Bytes(_), _) => {
                Err("expected numbers of the field's size, found another".into())
            }
        }
    }
}

/// The fields of a message.
pub(super) struct Fields<'a> {
    kind: &'static Kind,
    rest: &'a [u8],
    /// One bit for each field seen.
    met: u64,
}

impl<'a> Fields<'a> {
    pub(super) fn of(kind: &'static Kind, bytes: &'a [u8]) -> Self {
        Self { kind, rest: bytes, met: 0 }
    }

    fn next_field(&mut self) -> Result<(u32, Value<'a>), String> {
        let tag = varint(&mut self.rest)?;
        let field =
            u32::try_from(tag >> 3).map_err(|_| "a field number is too large".to_owned())?;
        if self.kind.once.contains(&field) {
            let bit = 1 << field;
            if self.met & bit != 0 {
                return Err(format!("duplicate field {field}"));
            }
            self.met |= bit;
        }
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.rest)?),
            1 => Value::Fixed(take(&mut self.rest, 8)?),
            2 => {
                let length = varint(&mut self.rest)?;
                Value::Bytes(take(&mut self.rest, usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => Value::Fixed(take(&mut self.rest, 4)?),
            other => return Err(format!("field {field}: unsupported wire type {other}")),
        };
        if field == 0 { Err("invalid field number 0".into()) } else { Ok((field, value)) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.next_field().map_err(|reason| format!("{}: {reason}", self.kind.name));
        if field.is_err() {
            // The rest is unreliable after an error.
            self.rest = &[];
        }
        Some(field)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or_else(|| format!("expected a field of {length} bytes, found {}", rest.len()))?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0u64;
    for (index, &byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * index as u32).unwrap_or(0);
        if byte < 0x80 {
            *rest = &rest[index + 1..];
            return Ok(number);
        }
    }
    Err("a number is incomplete".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "message", once: &[1, 2] };

    fn read(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, String> {
        Fields::of(&KIND, bytes).collect()
    }

    #[test]
    fn fields_are_read_and_broken_ones_told() {
        assert_eq!(
            read(&[8, 0x96, 1, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4]),
            Ok(vec![
                (1, Value::Varint(150)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed(&[1, 2, 3, 4]))
            ])
        );
        let cases: [(&[u8], &str); 7] = [
            (&[8], "message: a number is incomplete"),
            (
                &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "message: a number is incomplete",
            ),
            (&[8, 1, 8, 1], "message: duplicate field 1"),
            (&[0x12, 3, b'h'], "message: expected a field of 3 bytes, found 1"),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "message: expected a field of 18446744073709551615 bytes, found 0",
            ),
            (&[0x0b], "message: field 1: unsupported wire type 3"),
            (&[2, 0], "message: invalid field number 0"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(bytes), Err(expected.to_owned()), "{bytes:?}");
        }
    }

    #[test]
    fn packed_numbers_are_counted() {
        assert_eq!(Value::Bytes(&[1, 0x96, 1]).numbers(), Ok(vec![1, 150]));
        assert_eq!(Value::Bytes(&[1, 0x96, 1]).count(None), Ok(2));
        assert_eq!(Value::Bytes(&[0; 8]).count(Some(4)), Ok(2));
        assert!(Value::Bytes(&[0; 7]).count(Some(4)).is_err());
    }
}
