//! Writes a normalizer's map of byte sequences to replacements, which `charsmap` reads.
//!
//! The double array (Aoe 1989) has a unit of 32 bits for each state: bits 0 to 7 contain the byte
//! that leads to it, bit 8 whether a sequence ends there, bits 10 to 30 the distance (exclusive or)
//! to its children. The unit of a sequence's end has bit 31 set and contains the position of its
//! replacement.

use std::collections::{BTreeMap, HashMap, HashSet};

const VALUE: u32 = 1 << 31;
const ENDS: u32 = 1 << 8;
/// The distance has 21 bits.
const MAX_UNITS: usize = 1 << 21;
/// Units are added in blocks.
const BLOCK: usize = 256;
/// The maximum number of positions that are tried before earlier units are left empty.
const MAX_TRIES: usize = 1024;

/// The bytes of a map of `rules`, whose sequences are not empty and contain no NUL; the error is
/// the reason.
pub(crate) fn compile(rules: &BTreeMap<String, String>) -> Result<Vec<u8>, String> {
    let mut replacements = String::new();
    let mut places: HashMap<&str, u32> = HashMap::new();
    let mut sequences: Vec<(&[u8], u32)> = Vec::with_capacity(rules.len());
    for (sequence, replacement) in rules {
        let place = *places.entry(replacement).or_insert_with(|| {
            let place = replacements.len() as u32;
            replacements.extend([replacement, "\0"]);
            place
        });
        sequences.push((sequence.as_bytes(), place));
    }
    let mut array = DoubleArray::new();
    // A state: its unit, and the sequences that share its first `depth` bytes.
    let mut pending = vec![(0, 0..sequences.len(), 0)];
    while let Some((unit, mut range, depth)) = pending.pop() {
        let ending = sequences[range.start..range.end]
            .first()
            .filter(|(sequence, _)| sequence.len() == depth)
            .map(|(_, place)| *place);
        range.start += usize::from(ending.is_some());
        let mut children = Vec::new();
        while !range.is_empty() {
            let byte = sequences[range.start].0[depth];
            let end = range.start
                + sequences[range.clone()].partition_point(|(sequence, _)| sequence[depth] == byte);
            children.push((byte, range.start..end));
            range.start = end;
        }
        let labels: Vec<u8> =
            ending.map(|_| 0).into_iter().chain(children.iter().map(|(byte, _)| *byte)).collect();
        let base = array.place(&labels)?;
        array.units[unit] = (array.units[unit] & 0xFF)
            | (((unit ^ base) as u32) << 10)
            | if ending.is_some() { ENDS } else { 0 };
        if let Some(place) = ending {
            array.units[base] = VALUE | place;
        }
        for (byte, range) in children {
            let child = base ^ usize::from(byte);
            array.units[child] = u32::from(byte);
            pending.push((child, range, depth + 1));
        }
    }
    let mut bytes = Vec::with_capacity(4 + array.units.len() * 4 + replacements.len());
    bytes.extend(((array.units.len() * 4) as u32).to_le_bytes());
    bytes.extend(array.units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(replacements.bytes());
    Ok(bytes)
}

struct DoubleArray {
    units: Vec<u32>,
    taken: Vec<bool>,
    bases: HashSet<usize>,
    /// Units before this one are not tried again.
    first: usize,
}

impl DoubleArray {
    /// An array with the first state.
    fn new() -> Self {
        let mut array =
            Self { units: Vec::new(), taken: Vec::new(), bases: HashSet::new(), first: 1 };
        array.grow();
        (array.units[0], array.taken[0]) = (0, true);
        array
    }

    /// Adds a block of empty units. They look like values, which no byte leads to.
    fn grow(&mut self) {
        self.units.resize(self.units.len() + BLOCK, VALUE);
        self.taken.resize(self.units.len(), false);
    }

    /// Takes units for the children of a state, and returns their base.
    fn place(&mut self, labels: &[u8]) -> Result<usize, String> {
        let Some(&label) = labels.first() else { return Ok(0) };
        while self.taken[self.first] {
            self.first += 1;
            if self.first == self.taken.len() {
                self.grow();
            }
        }
        let (mut unit, mut tries) = (self.first, 0);
        loop {
            if unit == self.taken.len() {
                self.grow();
            }
            let base = unit ^ usize::from(label);
            let is_free = |label: &u8| !self.taken[base ^ usize::from(*label)];
            if !self.taken[unit] {
                if !self.bases.contains(&base) && labels.iter().all(is_free) {
                    break;
                }
                tries += 1;
                if tries == MAX_TRIES {
                    self.first = unit;
                }
            }
            unit += 1;
        }
        if self.units.len() > MAX_UNITS {
            return Err(format!("its rules need more than {MAX_UNITS} states"));
        }
        let base = unit ^ usize::from(label);
        self.bases.insert(base);
        labels.iter().for_each(|label| self.taken[base ^ usize::from(*label)] = true);
        Ok(base)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use super::super::charsmap::Charsmap;
    use super::*;

    #[test]
    fn the_longest_sequence_is_replaced() {
        let rules = [
            ("a", "x"),
            ("ab", ""),
            ("abcd", "long"),
            ("ß", "ss"),
            ("\u{10FFFF}", "end"),
            ("b", "x"),
        ];
        let rules = rules.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
        let charsmap = Charsmap::parse(&compile(&rules).unwrap()).unwrap();
        let cases = [
            ("a", Some(("x", 1))),
            ("abc", Some(("", 2))),
            ("abcde", Some(("long", 4))),
            ("ßa", Some(("ss", 2))),
            ("\u{10FFFF}", Some(("end", 4))),
            ("b", Some(("x", 1))),
            ("c", None),
            ("\0", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(charsmap.replace(text), expected, "{text:?}");
        }
    }

    #[test]
    fn every_pair_of_characters_is_found() {
        let chars: Vec<char> = (1..300).chain(0x4E00..0x4E40).filter_map(char::from_u32).collect();
        let pairs = chars
            .iter()
            .flat_map(|one| chars.iter().step_by(7).map(move |other| format!("{one}{other}")));
        let rules: BTreeMap<String, String> =
            pairs.map(|pair| (pair.clone(), pair.chars().rev().collect())).collect();
        let charsmap = Charsmap::parse(&compile(&rules).unwrap()).unwrap();
        for (sequence, replacement) in &rules {
            assert_eq!(charsmap.replace(sequence), Some((replacement.as_str(), sequence.len())));
        }
        assert_eq!(charsmap.replace("a"), None);
    }
}
