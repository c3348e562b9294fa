//! Products of two matrices that both change from call to call, as those of gradients are:
//! `out = A B + bias`.
//!
//! `A: [n, inputs]`, `B: [inputs, outputs]`, `out: [n, outputs]`; `A` and `B` are in memory row
//! after row or column after column. Every number is the sum of its products in their order, or by
//! tiles, as in [`Weights::multiply`](crate::Weights::multiply).

use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_columns, by_parts};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::product::tiles::blocks;
use crate::product::{Multiply, Packed, columns_of_panels};
use crate::screen::dots;
use crate::stored::Stored;
use std::cell::Cell;

/// Rows and columns that are transposed at once.
const SQUARE: usize = 16;

impl Matrix<'_> {
    /// `A B + bias`; without a bias, which has a number for each column, 0 is added.
    ///
    /// # Panics
    /// If a size does not match.
    pub fn multiply(
        self,
        right: Matrix<'_>,
        bias: Option<&[f32]>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let ([n, inputs], [height, outputs]) = (self.sizes, right.sizes);
        assert_eq!(inputs, height, "columns of A and rows of B");
        assert_eq!(out.len(), n * outputs, "[n, outputs]");
        assert!(bias.is_none_or(|bias| bias.len() == outputs), "a number for each column");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if blocks::fit([n, inputs, outputs]) {
            return blocks::multiply([self, right], bias, out, threads);
        }
        let mut room = ROOM.take();
        let x = self.rows(&mut room.rows, threads);
        if outputs == 1 && bias.is_none() {
            // A column is in memory like a row.
            dots(right.numbers, x, out);
        } else {
            let weights = right.packed(bias, &mut room.panels, &mut room.bias, threads);
            let (out, n_panels) = (&Shared::new(out), weights.bias.len() / columns_of_panels());
            by_columns(threads, [n, inputs, n_panels], |panels| {
                let strides = [inputs, outputs];
                f32::dispatch(Multiply { weights, x, strides, out, start: 0, n, panels });
            });
        }
        ROOM.set(room.trimmed());
    }

    /// The numbers row after row.
    fn rows<'r>(&'r self, room: &'r mut Lines<f32>, threads: &dyn Parallel) -> &'r [f32] {
        if !self.is_transposed {
            return self.numbers;
        }
        let [n, width] = self.sizes;
        let to = room.first(n * width);
        let shared = Shared::new(&mut *to);
        by_parts(threads, n.div_ceil(SQUARE), n * width, |parts| {
            for first in parts.map(|part| part * SQUARE) {
                let rows = SQUARE.min(n - first);
                // SAFETY: each thread has its own rows.
                let to = unsafe { shared.part(first * width, rows * width) };
                transpose([width, rows], (&self.numbers[first..], n), (to, width));
            }
        });
        to
    }

    /// The numbers in panels.
    fn packed<'r>(
        &self,
        given: Option<&[f32]>,
        panels: &'r mut Lines<f32>,
        bias: &'r mut Vec<f32>,
        threads: &dyn Parallel,
    ) -> Packed<'r> {
        let ([inputs, outputs], columns) = (self.sizes, columns_of_panels());
        let n_panels = outputs.div_ceil(columns);
        bias.clear();
        bias.extend_from_slice(given.unwrap_or_default());
        bias.resize(n_panels * columns, 0.0);
        let to = panels.first(n_panels * inputs * columns);
        let shared = Shared::new(&mut *to);
        by_parts(threads, n_panels, inputs * outputs, |panels| {
            for panel in panels {
                // SAFETY: each thread has its own panels.
                let to = unsafe { shared.part(panel * inputs * columns, inputs * columns) };
                let first = panel * columns;
                let n = columns.min(outputs - first);
                if n < columns {
                    to.fill(0.0);
                }
                if self.is_transposed {
                    transpose(
                        [n, inputs],
                        (&self.numbers[first * inputs..], inputs),
                        (to, columns),
                    );
                } else {
                    let rows = self.numbers.chunks_exact(outputs);
                    for (to, row) in to.chunks_exact_mut(columns).zip(rows) {
                        to[..n].copy_from_slice(&row[first..][..n]);
                    }
                }
            }
        });
        Packed { panels: to, bias, inputs, outputs }
    }
}

/// Transposes a matrix `[rows, columns]` whose rows have a distance in `from`, in squares, so that
/// no line of the cache is read or written twice.
fn transpose(
    [rows, columns]: [usize; 2],
    (from, from_stride): (&[f32], usize),
    (to, to_stride): (&mut [f32], usize),
) {
    for row in (0..rows).step_by(SQUARE) {
        let n_rows = SQUARE.min(rows - row);
        for column in (0..columns).step_by(SQUARE) {
            let n_columns = SQUARE.min(columns - column);
            let mut square = [[0.0; SQUARE]; SQUARE];
            for index in 0..n_rows {
                let from = &from[(row + index) * from_stride + column..][..n_columns];
                from.iter().zip(&mut square).for_each(|(number, to)| to[index] = *number);
            }
            for (index, numbers) in square.iter().enumerate().take(n_columns) {
                to[(column + index) * to_stride + row..][..n_rows]
                    .copy_from_slice(&numbers[..n_rows]);
            }
        }
    }
}

/// Memory of a product, reused by the next one.
#[derive(Default)]
struct Room {
    rows: Lines<f32>,
    panels: Lines<f32>,
    bias: Vec<f32>,
}

impl Room {
    /// Without memory that only large products need.
    fn trimmed(mut self) -> Self {
        self.rows.trim();
        self.panels.trim();
        self
    }
}

thread_local! {
    static ROOM: Cell<Room> = Cell::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::Serial;
    use crate::testing::{InTurn, numbers, rounding};

    /// Sizes that fill tiles and sizes that do not, each matrix and its transpose in memory.
    #[test]
    fn products_are_as_in_f64() {
        for sizes in [
            [1, 7, 3],
            [5, 31, 33],
            [64, 32, 16],
            [70, 33, 17],
            [141, 300, 77],
            // Threads share inputs, rows, and columns.
            [20, 600, 130],
            [300, 64, 70],
            [40, 64, 300],
            [3, 100, 1],
            [2, 1, 40],
            [0, 4, 4],
            [3, 0, 5],
        ] {
            let [n, inputs, outputs] = sizes;
            let (left, right) = (numbers(n * inputs, 1), numbers(inputs * outputs, 2));
            let bias = numbers(outputs, 3);
            for (turned, bias) in [[false; 2], [true, false], [false, true], [true; 2]]
                .into_iter()
                .flat_map(|turned| [None, Some(&*bias)].map(|bias| (turned, bias)))
            {
                let matrix = |numbers, [rows, columns]: [usize; 2], is_turned| match is_turned {
                    true => Matrix::new(numbers, [columns, rows]).transposed(),
                    false => Matrix::new(numbers, [rows, columns]),
                };
                let at = |numbers: &[f32],
                          [rows, columns]: [usize; 2],
                          is_turned,
                          [row, column]: [usize; 2]| {
                    f64::from(
                        numbers
                            [if is_turned { column * rows + row } else { row * columns + column }],
                    )
                };
                let out = [&Serial as &dyn Parallel, &InTurn].map(|threads| {
                    let mut out = vec![f32::NAN; n * outputs];
                    let left = matrix(&left, [n, inputs], turned[0]);
                    let right = matrix(&right, [inputs, outputs], turned[1]);
                    left.multiply(right, bias, &mut out, threads);
                    out
                });
                for (place, &found) in out.iter().flat_map(|out| out.iter().enumerate()) {
                    let (row, column) = (place / outputs, place % outputs);
                    let products = (0..inputs).map(|input| {
                        at(&left, [n, inputs], turned[0], [row, input])
                            * at(&right, [inputs, outputs], turned[1], [input, column])
                    });
                    let (sum, size) =
                        products.fold((0.0, 1.0), |(sum, size), x| (sum + x, size + x.abs()));
                    let expected = sum + bias.map_or(0.0, |bias| f64::from(bias[column]));
                    assert!(
                        (f64::from(found) - expected).abs() < rounding(inputs) * size,
                        "{sizes:?} {turned:?} {row} {column}: {found} {expected}"
                    );
                }
            }
        }
    }
}
