//! The fields of a protobuf message, read where they lie: nothing is copied and nothing is allocated.
//!
//! Source: the protobuf encoding, <https://protobuf.dev/programming-guides/encoding>.
//!
//! Stricter than a parser has to be: a field that a message has once may stand once. Parsers take the last of two numbers and
//! put two messages together, not all alike, so that a file could be one thing to a check and another to an engine.

/// What a message has once; every other field is a list, or not known and passed over.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) once: &'static [u32],
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// Four or eight bytes of a number.
    Fixed(&'a [u8]),
    /// A text, a message, or numbers one after the other.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed(_) => Err("a number where a text or a message is wanted".into()),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|error| format!("a name that is not UTF-8 at its byte {}", error.valid_up_to() + 1))
    }

    pub(super) fn number(self) -> Result<i64, String> {
        match self {
            // Negative numbers are stored as if they were large ones.
            Value::Varint(number) => Ok(number as i64),
            Value::Fixed(_) | Value::Bytes(_) => Err("something else where a whole number is wanted".into()),
        }
    }

    /// Whole numbers: one, or many packed.
    pub(super) fn numbers(self) -> Result<Vec<i64>, String> {
        match self {
            Value::Varint(number) => Ok(vec![number as i64]),
            Value::Fixed(_) => Err("a number of fixed size where a whole number is wanted".into()),
            Value::Bytes(mut packed) => {
                let mut numbers = Vec::new();
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed)? as i64);
                }
                Ok(numbers)
            }
        }
    }

    /// How many numbers there are, of `size` bytes each or, without a size, in varints; without reading more than is needed.
    pub(super) fn count(self, size: Option<usize>) -> Result<u64, String> {
        match (self, size) {
            (Value::Varint(_), None) => Ok(1),
            (Value::Fixed(bytes), Some(size)) if bytes.len() == size => Ok(1),
            (Value::Bytes(packed), Some(size)) if packed.len().is_multiple_of(size) => Ok((packed.len() / size) as u64),
            // The last byte of a varint has its highest bit clear.
            (Value::Bytes(packed), None) => Ok(packed.iter().filter(|byte| **byte < 0x80).count() as u64),
            (Value::Varint(_) | Value::Fixed(_) | Value::Bytes(_), _) => Err("numbers of another size than their field has".into()),
        }
    }
}

/// The fields of a message.
pub(super) struct Fields<'a> {
    kind: &'static Kind,
    rest: &'a [u8],
    /// Bits of the fields met so far.
    met: u64,
}

impl<'a> Fields<'a> {
    pub(super) fn of(kind: &'static Kind, bytes: &'a [u8]) -> Self {
        Self { kind, rest: bytes, met: 0 }
    }

    fn next_field(&mut self) -> Result<(u32, Value<'a>), String> {
        let tag = varint(&mut self.rest)?;
        let field = u32::try_from(tag >> 3).map_err(|_| "a field's number is too large".to_owned())?;
        if self.kind.once.contains(&field) {
            let bit = 1 << field;
            if self.met & bit != 0 {
                return Err(format!("field {field} stands twice"));
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
            other => return Err(format!("field {field} has the wire type {other}")),
        };
        if field == 0 { Err("a field has the number 0".into()) } else { Ok((field, value)) }
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
            // Nothing after an error can be relied on.
            self.rest = &[];
        }
        Some(field)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], String> {
    let (taken, left) =
        rest.split_at_checked(length).ok_or_else(|| format!("a field of {length} bytes, of which {} are there", rest.len()))?;
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
    Err("a number does not end".into())
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
            Ok(vec![(1, Value::Varint(150)), (2, Value::Bytes(b"hi")), (3, Value::Fixed(&[1, 2, 3, 4]))])
        );
        let cases: [(&[u8], &str); 7] = [
            (&[8], "message: a number does not end"),
            (&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "message: a number does not end"),
            (&[8, 1, 8, 1], "message: field 1 stands twice"),
            (&[0x12, 3, b'h'], "message: a field of 3 bytes, of which 1 are there"),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "message: a field of 18446744073709551615 bytes, of which 0 are there",
            ),
            (&[0x0b], "message: field 1 has the wire type 3"),
            (&[2, 0], "message: a field has the number 0"),
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
