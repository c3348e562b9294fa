//! A matrix in memory, row after row or column after column.

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) sizes: [usize; 2],
    /// Whether the numbers are column after column.
    pub(crate) is_transposed: bool,
    /// Whether products with it as their left operand may be in bfloat16.
    #[cfg_attr(
        not(all(target_arch = "x86_64", not(miri))),
        expect(dead_code, reason = "only x86-64 has instructions for it")
    )]
    pub(crate) in_bf16: bool,
}

impl<'a> Matrix<'a> {
    /// The matrix `[rows, columns]` with these numbers, row after row.
    ///
    /// # Panics
    /// If there are more or fewer numbers.
    pub fn new(numbers: &'a [f32], sizes: [usize; 2]) -> Self {
        assert_eq!(numbers.len(), sizes[0] * sizes[1], "[rows, columns]");
        Self { numbers, sizes, is_transposed: false, in_bf16: false }
    }

    /// The transpose, which has the same numbers in memory.
    #[must_use]
    pub fn transposed(self) -> Self {
        let [rows, columns] = self.sizes;
        Self { sizes: [columns, rows], is_transposed: !self.is_transposed, ..self }
    }

    /// The matrix, whose products with a right operand round both to bfloat16 if that is `wanted` and
    /// the processor multiplies such numbers faster; sums are in f32. Small products are not rounded.
    #[must_use]
    pub fn in_bf16(self, wanted: bool) -> Self {
        Self { in_bf16: wanted, ..self }
    }

    /// Numbers of rows and columns.
    pub fn sizes(&self) -> [usize; 2] {
        self.sizes
    }
}
