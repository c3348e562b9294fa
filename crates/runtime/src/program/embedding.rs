//! Rows of tables for tokens and their positions.

use super::attention::past_of;
use super::constants::{Bytes, Precision};
use super::operation::{Counted, PositionsFrom};
use super::sizes::values;
use super::{Call, Result, Tensors, expected};

/// Rows of tokens times a factor, plus those of positions.
pub(super) struct Embedding {
    /// The input of token ids `i64 [..]`.
    pub(super) ids: usize,
    pub(super) table: Table,
    pub(super) factor: f32,
    pub(super) positions: Option<Positions>,
    pub(super) out: usize,
}

/// A table, and the row of it for each id.
pub(super) struct Positions {
    pub(super) table: Table,
    pub(super) rows: PositionsOfRows,
}

/// Token ids in their shape.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'t> {
    shape: &'t [usize],
    ids: &'t [i64],
}

/// The position of each row of tokens.
pub(super) struct PositionsOfRows {
    /// For sizes, their difference is the number of rows of a sequence.
    pub(super) from: PositionsFrom,
    /// The beam of each earlier position, `i64 [.., past]`, if sizes depend on their number:
    /// positions of a row with a shorter past are smaller by the difference.
    pub(super) beams: Option<usize>,
}

/// `[rows, width]`
pub(super) struct Table {
    pub(super) bytes: Bytes,
    pub(super) numbers: Numbers,
    pub(super) width: usize,
}

/// How a table stores its numbers.
pub(super) enum Numbers {
    Floats(Precision),
    /// In 8 bits, with the step size of each row.
    Integers(Vec<f32>),
}

impl Table {
    pub(super) fn rows(&self) -> usize {
        self.bytes.all().len() / self.row_bytes().max(1)
    }

    fn row_bytes(&self) -> usize {
        self.width
            * match self.numbers {
                Numbers::Floats(precision) => precision.size(),
                Numbers::Integers(_) => 1,
            }
    }

    /// Calls `put` with each number of a row and its place.
    pub(super) fn read(&self, row: usize, to: &mut [f32], put: impl Fn(&mut f32, f32)) {
        let bytes = &self.bytes.all()[row * self.row_bytes()..][..self.row_bytes()];
        match &self.numbers {
            Numbers::Floats(precision) => precision.read(bytes, to, put),
            Numbers::Integers(steps) => to
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, &byte)| put(to, f32::from(byte as i8) * steps[row])),
        }
    }
}

impl Embedding {
    /// Whether positions depend on other ids of a row.
    pub(super) fn counts_tokens(&self) -> bool {
        let from = self.positions.as_ref().map(|positions| &positions.rows.from);
        matches!(from, Some(PositionsFrom::Sizes { counted: Some(_), .. }))
    }

    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (shape, ids) = call.tensors.integers(self.ids)?;
        let places = self.positions.as_ref().map(|positions| {
            let rows = positions.rows.of(
                (ids.len(), Some(Tokens { shape: &shape, ids })),
                positions.table.rows(),
                call.tensors,
            )?;
            Ok::<_, String>((positions, rows))
        });
        let places = places.transpose()?;
        let mut out = call.take_floats(self.out, ids.len())?;
        for (index, (&id, row)) in
            ids.iter().zip(out.floats_mut().chunks_exact_mut(self.table.width.max(1))).enumerate()
        {
            let rows = self.table.rows();
            let token = usize::try_from(id).ok().filter(|&id| id < rows);
            let token = token.ok_or_else(|| expected("token id", format!("below {rows}"), id))?;
            self.table.read(token, row, |to, number| *to = number * self.factor);
            if let Some((positions, rows)) = &places {
                positions.table.read(rows[index], row, |to, number| *to += number);
            }
        }
        call.put(self.out, out);
        Ok(())
    }
}

/// The number of positions that a beam holds before each row, of the input
/// `i64 [batch, beams, past]`.
pub(super) fn held<'c>(
    beams: usize,
    n_rows: usize,
    tensors: &dyn Tensors<'c>,
) -> Result<Vec<usize>> {
    let (shape, holders) = tensors.integers(beams)?;
    let longest = shape.last().copied().unwrap_or(0);
    if holders.len() != n_rows * longest {
        return Err(expected(
            "beams of positions",
            format!("those of {n_rows} rows"),
            format!("{shape:?}"),
        ));
    }
    Ok((0..n_rows)
        .map(|row| holders[row * longest..][..longest].iter().filter(|&&beam| beam >= 0).count())
        .collect())
}

impl PositionsOfRows {
    /// The positions of `n_rows` rows, all below `end`. Tokens are needed where they are counted.
    pub(super) fn of<'c>(
        &self,
        (n_rows, tokens): (usize, Option<Tokens<'_>>),
        end: usize,
        tensors: &dyn Tensors<'c>,
    ) -> Result<Vec<usize>> {
        let wrong = |found: String| expected("positions", format!("below {end}"), found);
        let rows = match &self.from {
            PositionsFrom::Sizes { sizes, counted } => {
                let sizes = values(sizes, tensors)?;
                let [first, last] = sizes[..] else { unreachable!("compiled: two sizes") };
                if first > last || (first == last && n_rows > 0) {
                    return Err(wrong(format!("{first} to {last}")));
                }
                let counted = counted.zip(tokens);
                let rows = self.of_sizes([first, last], n_rows, counted, tensors)?;
                rows.ok_or_else(|| wrong("a number below 0".into()))?
            }
            PositionsFrom::Held { beams, offset } => {
                held(*beams, n_rows, tensors)?.into_iter().map(|held| offset + held).collect()
            }
        };
        match rows.iter().max().filter(|&&row| row >= end) {
            Some(row) => Err(wrong(row.to_string())),
            None => Ok(rows),
        }
    }

    /// `None` if a position is below 0.
    fn of_sizes<'c>(
        &self,
        [first, last]: [usize; 2],
        n_rows: usize,
        counted: Option<(Counted, Tokens<'_>)>,
        tensors: &dyn Tensors<'c>,
    ) -> Result<Option<Vec<usize>>> {
        let (_, holders) =
            self.beams.map(|beams| tensors.integers(beams)).transpose()?.unwrap_or_default();
        let n = (last - first).max(1);
        let longest = holders.len() / (n_rows / n).max(1);
        let width = match counted {
            Some((Counted { is_single: false, .. }, tokens)) => {
                tokens.shape.last().copied().unwrap_or(0)
            }
            Some((Counted { is_single: true, .. }, _)) => 1,
            None => n,
        };
        let lacks = |index: usize| match longest {
            0 => Some(0),
            _ => Some(longest - past_of(holders.get(index / n * longest..)?.get(..longest)?)),
        };
        let mut count = 0;
        let position = |index: usize| {
            let place = index % width.max(1);
            count = if place == 0 { 0 } else { count };
            let Some((Counted { pad, .. }, Tokens { ids, .. })) = counted else {
                return (first + place).checked_sub(lacks(index)?);
            };
            let start = usize::try_from(pad).ok()?;
            if ids[index] == pad {
                return Some(start);
            }
            count += 1;
            Some(start + (first + count).checked_sub(lacks(index)?)?)
        };
        Ok((0..n_rows).map(position).collect())
    }
}
