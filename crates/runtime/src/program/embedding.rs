//! Rows of tables: tokens and their positions.

use super::constants::{Bytes, numbers};
use super::sizes::{Size, values};
use super::{Call, Result, Tensors, expected};

/// Rows of tokens times a factor, plus those of positions.
pub(super) struct Embedding {
    /// The input of token ids `i64 [..]`.
    pub(super) ids: usize,
    pub(super) table: Table,
    pub(super) factor: f32,
    /// A table of positions, and the first that is read and the end; ids are in rows of as many.
    pub(super) positions: Option<(Table, [Size; 2])>,
    pub(super) out: usize,
}

/// `[rows, width]`
pub(super) struct Table {
    pub(super) bytes: Bytes,
    /// Of numbers in 8 bits: the step of each row.
    pub(super) steps: Option<Vec<f32>>,
    pub(super) width: usize,
}

impl Table {
    fn rows(&self) -> usize {
        self.bytes.all().len() / self.row_bytes().max(1)
    }

    fn row_bytes(&self) -> usize {
        if self.steps.is_some() { self.width } else { self.width * size_of::<f32>() }
    }

    /// Calls `put` with each number of a row, and its place.
    fn read(&self, row: usize, to: &mut [f32], put: impl Fn(&mut f32, f32)) {
        let bytes = &self.bytes.all()[row * self.row_bytes()..][..self.row_bytes()];
        match &self.steps {
            Some(steps) => to.iter_mut().zip(bytes).for_each(|(to, &byte)| put(to, f32::from(byte as i8) * steps[row])),
            None => to.iter_mut().zip(numbers(bytes)).for_each(|(to, number)| put(to, number)),
        }
    }
}

impl Embedding {
    pub(super) fn run<'c, T: Tensors<'c>>(&self, call: &mut Call<'_, 'c, T>) -> Result<()> {
        let tensors = call.tensors;
        let (_, ids) = tensors.integers(self.ids)?;
        let span = match &self.positions {
            Some((table, sizes)) => {
                let sizes = values(sizes, tensors)?;
                let [first, end] = sizes[..] else { unreachable!("compiled: two sizes") };
                if end > table.rows() || first > end || (first == end && !ids.is_empty()) {
                    return Err(expected("positions", format!("below {}", table.rows()), format!("{first} to {end}")));
                }
                Some((table, first, end - first))
            }
            None => None,
        };
        let mut out = call.take_floats(self.out, ids.len())?;
        for (index, (&id, row)) in ids.iter().zip(out.floats_mut().chunks_exact_mut(self.table.width.max(1))).enumerate() {
            let rows = self.table.rows();
            let token = usize::try_from(id).ok().filter(|&id| id < rows);
            let token = token.ok_or_else(|| expected("token id", format!("below {rows}"), id))?;
            self.table.read(token, row, |to, number| *to = number * self.factor);
            if let Some((table, first, count)) = span {
                table.read(first + index % count, row, |to, number| *to += number);
            }
        }
        call.put(self.out, out);
        Ok(())
    }
}
