//! Several elementwise operations in one pass over their operands, some numbers at a time, so that
//! what stands between them stays in the first-level cache.
//!
//! Numbers are those of the operations one after another, bit for bit.

use crate::instructions::arch;
use crate::parallel::{Parallel, by_parts};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Numbers that pass through all operations before the next.
const BLOCK: usize = 512;

/// An operation on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`
    Div,
    /// 1 if `a <= b`, else 0
    LessOrEqual,
    /// `√a`
    Sqrt,
    /// The largest integer that is not above `a`.
    Floor,
    /// `a` if it is above 0, else 0; NaN stays.
    Relu,
    /// `Σ a_k b_k`, with the four numbers of a row, an input of [`Extent::RowFours`], and those of a
    /// column, one of [`Extent::ColumnFours`].
    Inner,
}

/// What an input has numbers for, beside those of the result `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Each number.
    All,
    /// Each row, `[rows, 1]`.
    Rows,
    /// Each column, `[width]`.
    Columns,
    /// Only one.
    One,
    /// Four of each row, `[rows, 4]`.
    RowFours,
    /// Four of each column, `[width, 4]`.
    ColumnFours,
}

/// An operation: the function and its operands, which are inputs or, behind these, results of
/// operations before it. Functions of one operand ignore the second.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// The function.
    pub function: Function,
    /// Its operands.
    pub operands: [usize; 2],
}

/// Operations in one pass.
#[derive(Clone, Debug)]
pub struct Elementwise {
    extents: Vec<Extent>,
    instructions: Vec<Instruction>,
    /// The register of the result of each instruction.
    registers: Vec<usize>,
    n_registers: usize,
    /// The instructions whose results are outputs.
    outputs: Vec<usize>,
}

impl Elementwise {
    /// Operations on inputs of these extents, of which some have results that are outputs.
    ///
    /// Returns `None` if an operand or an output does not exist, or [`Function::Inner`] and extents
    /// of four numbers do not meet.
    pub fn new(
        extents: Vec<Extent>,
        instructions: Vec<Instruction>,
        outputs: Vec<usize>,
    ) -> Option<Self> {
        let n_inputs = extents.len();
        let is_known = |(index, instruction): (usize, &Instruction)| {
            let extents_of = instruction.operands.map(|operand| extents.get(operand));
            let has_four = |extent: &Option<&Extent>| {
                matches!(extent, Some(Extent::RowFours | Extent::ColumnFours))
            };
            let is_fit = match instruction.function {
                Function::Inner => {
                    extents_of == [Some(&Extent::RowFours), Some(&Extent::ColumnFours)]
                }
                _ => !extents_of.iter().any(has_four),
            };
            is_fit && instruction.operands.iter().all(|&operand| operand < n_inputs + index)
        };
        let n = instructions.len();
        if !instructions.iter().enumerate().all(is_known) || outputs.iter().any(|&at| at >= n) {
            return None;
        }
        // The last instruction that reads each result; outputs are read at the end.
        let mut last: Vec<usize> = (0..n).collect();
        for (index, instruction) in instructions.iter().enumerate() {
            let results = instruction.operands.iter().filter_map(|&at| at.checked_sub(n_inputs));
            results.for_each(|result| last[result] = index);
        }
        outputs.iter().for_each(|&output| last[output] = n);
        let (mut registers, mut free, mut n_registers) = (Vec::with_capacity(n), Vec::new(), 0);
        for index in 0..n {
            registers.push(free.pop().unwrap_or_else(|| {
                n_registers += 1;
                n_registers - 1
            }));
            // A result is never written over an operand.
            let ended = (0..=index).filter(|&result| last[result] == index);
            free.extend(ended.map(|result| registers[result]));
        }
        Some(Self { extents, instructions, registers, n_registers, outputs })
    }

    /// Computes the outputs, each `[rows, width]`. An output may be the memory of an input of
    /// [all numbers](Extent::All).
    ///
    /// # Safety
    /// Each input has the numbers of its extent, each output `rows · width`; nothing else reads or
    /// writes the outputs meanwhile, and no output overlaps another, or an input but as above.
    pub unsafe fn run(
        &self,
        [rows, width]: [usize; 2],
        inputs: &[*const f32],
        outputs: &[*mut f32],
        threads: &dyn Parallel,
    ) {
        assert_eq!(
            [inputs.len(), outputs.len()],
            [self.extents.len(), self.outputs.len()],
            "inputs and outputs"
        );
        // Without numbers of rows or columns all are one row.
        let by_row = |extent: &Extent| !matches!(extent, Extent::All | Extent::One);
        let [rows, width] =
            if self.extents.iter().any(by_row) { [rows, width] } else { [1, rows * width] };
        let blocks = width.div_ceil(BLOCK);
        let inputs = Pointers { inputs, outputs };
        by_parts(threads, rows * blocks, rows * width * self.instructions.len() / 8, |parts| {
            let inputs = &inputs;
            arch().dispatch(Pass { work: self, inputs, blocks, width, parts });
        });
    }
}

/// The memory of inputs and outputs, which threads share.
struct Pointers<'a> {
    inputs: &'a [*const f32],
    outputs: &'a [*mut f32],
}

// SAFETY: threads read the inputs and write different parts of the outputs, by the contract of
// `Elementwise::run`.
unsafe impl Sync for Pointers<'_> {}

/// Some blocks of all rows.
struct Pass<'a> {
    work: &'a Elementwise,
    inputs: &'a Pointers<'a>,
    /// Blocks of a row.
    blocks: usize,
    width: usize,
    parts: Range<usize>,
}

impl WithSimd for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { work, inputs: &Pointers { inputs, outputs }, blocks, width, parts } = self;
        let n_inputs = inputs.len();
        let mut registers = vec![vec![0.0; BLOCK]; work.n_registers];
        // Inputs of one number, or of one for each row, as many times as a block has numbers, and
        // fours of columns.
        let mut repeated: Vec<Vec<f32>> = inputs
            .iter()
            .zip(&work.extents)
            .map(|(input, extent)| match extent {
                // SAFETY: there is one number.
                Extent::One => vec![unsafe { input.read() }; BLOCK],
                Extent::Rows => vec![0.0; BLOCK],
                // SAFETY: there are four numbers for each column.
                Extent::ColumnFours => unsafe { fours_by_block(*input, width) },
                Extent::All | Extent::Columns | Extent::RowFours => Vec::new(),
            })
            .collect();
        let mut last_row = usize::MAX;
        for part in parts {
            let (row, start) = (part / blocks, part % blocks * BLOCK);
            let n = BLOCK.min(width - start);
            if row != last_row {
                last_row = row;
                for ((repeated, input), extent) in
                    repeated.iter_mut().zip(inputs).zip(&work.extents)
                {
                    if *extent == Extent::Rows {
                        // SAFETY: there is a number for each row.
                        repeated.fill(unsafe { input.add(row).read() });
                    }
                }
            }
            for (instruction, &register) in work.instructions.iter().zip(&work.registers) {
                let mut to = std::mem::take(&mut registers[register]);
                let numbers = |operand: usize| match operand.checked_sub(n_inputs) {
                    Some(result) => &registers[work.registers[result]][..n],
                    None => {
                        let (at, n) = match work.extents[operand] {
                            Extent::All => (row * width + start, n),
                            Extent::Columns => (start, n),
                            Extent::Rows | Extent::One => return &repeated[operand][..n],
                            Extent::RowFours => (4 * row, 4),
                            Extent::ColumnFours => return &repeated[operand][4 * start..],
                        };
                        // SAFETY: by contract; outputs are written when no slice is left.
                        unsafe { std::slice::from_raw_parts(inputs[operand].add(at), n) }
                    }
                };
                let [left, right] = instruction.operands;
                instruction.function.apply(numbers(left), numbers(right), &mut to[..n]);
                registers[register] = to;
            }
            for (&output, &to) in work.outputs.iter().zip(outputs) {
                let numbers = &registers[work.registers[output]];
                // SAFETY: by contract there are as many numbers from there on, which are of this
                // thread alone.
                unsafe { numbers.as_ptr().copy_to_nonoverlapping(to.add(row * width + start), n) };
            }
        }
    }
}

impl Function {
    #[inline(always)]
    fn apply(self, left: &[f32], right: &[f32], to: &mut [f32]) {
        match self {
            Self::Add => both(left, right, to, |a, b| a + b),
            Self::Sub => both(left, right, to, |a, b| a - b),
            Self::Mul => both(left, right, to, |a, b| a * b),
            Self::Div => both(left, right, to, |a, b| a / b),
            Self::LessOrEqual => both(left, right, to, |a, b| f32::from(u8::from(a <= b))),
            Self::Sqrt => both(left, left, to, |a, _| a.sqrt()),
            Self::Floor => both(left, left, to, |a, _| a.floor()),
            Self::Relu => both(left, left, to, |a, _| if a < 0.0 { 0.0 } else { a }),
            Self::Inner => inner(left, right, to),
        }
    }
}

/// The fours of `width` columns: for each block the first number of each column, then the second,
/// and so on.
///
/// # Safety
/// There are so many numbers.
unsafe fn fours_by_block(columns: *const f32, width: usize) -> Vec<f32> {
    let mut made = vec![0.0; 4 * width.next_multiple_of(BLOCK)];
    for column in 0..width {
        for k in 0..4 {
            let at = 4 * (column - column % BLOCK) + k * BLOCK + column % BLOCK;
            // SAFETY: by contract.
            made[at] = unsafe { columns.add(4 * column + k).read() };
        }
    }
    made
}

/// `Σ row_k columns_k`, with `columns` of [`fours_by_block`].
#[inline(always)]
fn inner(row: &[f32], columns: &[f32], to: &mut [f32]) {
    let [a, b, c, d] = *<&[f32; 4]>::try_from(row).expect("four numbers of a row");
    let [first, second, third, fourth, ..] = columns.as_chunks::<BLOCK>().0 else {
        unreachable!("four numbers of each column")
    };
    let numbers = first.iter().zip(second).zip(third).zip(fourth);
    for (to, (((p, q), r), s)) in to.iter_mut().zip(numbers) {
        *to = a * p + b * q + c * r + d * s;
    }
}

#[inline(always)]
fn both(left: &[f32], right: &[f32], to: &mut [f32], of: impl Fn(f32, f32) -> f32) {
    for ((to, &a), &b) in to.iter_mut().zip(left).zip(right) {
        *to = of(a, b);
    }
}
