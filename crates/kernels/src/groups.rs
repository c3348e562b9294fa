//! Products of rows of bytes with weights in panels, with those of a column side by side that are
//! multiplied by four bytes of a row: as many as an instruction multiplies in each lane of a vector.

use crate::panels::{Lines, Tiles, panels_of, tiles};
use crate::parallel::{Parallel, Shared, by_columns};
use crate::prefetch::ask;
use std::ops::Range;

/// Vectors of a panel.
pub(crate) const WIDE: usize = 2;
/// Bytes of a row that one instruction multiplies.
pub(crate) const GROUP: usize = 4;

/// Weights of a layer. Panels are as in [`Weights`](crate::Weights).
#[derive(Debug)]
pub(crate) struct Groups {
    /// `[panels, groups, columns of a panel, bytes of a group]`
    pub(crate) panels: Lines<i8>,
    /// The initial sums of every column.
    pub(crate) starts: Vec<i32>,
    /// The factor of the sums of every column, or the bias that is added to them.
    pub(crate) ends: Vec<f32>,
    /// Number of bytes of a row.
    pub(crate) bytes: usize,
    pub(crate) outputs: usize,
    /// Number of columns of a panel.
    pub(crate) columns: usize,
    /// Bytes of the weights of a group.
    of_group: usize,
}

impl Groups {
    /// Zeros, for vectors of `lanes` lanes, and groups of `of_group` bytes.
    pub(crate) fn zeros(bytes: usize, outputs: usize, lanes: usize, of_group: usize) -> Self {
        let columns = WIDE * lanes;
        let n = outputs.div_ceil(columns) * columns;
        let panels = Lines::zeros(n * bytes.div_ceil(GROUP) * of_group);
        Self { panels, starts: vec![0; n], ends: vec![0.0; n], bytes, outputs, columns, of_group }
    }

    /// Number of groups of a column.
    pub(crate) fn groups(&self) -> usize {
        self.bytes.div_ceil(GROUP)
    }

    /// The index of a byte of the weights of a column in the panels.
    pub(crate) fn place(&self, column: usize, byte: usize) -> usize {
        let (panel, group) = (column / self.columns, byte / self.of_group);
        ((panel * self.groups() + group) * self.columns + column % self.columns) * self.of_group
            + byte % self.of_group
    }

    /// The weights of some outputs, in the given order.
    ///
    /// # Panics
    /// If an output does not exist.
    pub(crate) fn select(&self, outputs: &[usize]) -> Self {
        let of_group = self.of_group;
        let mut made = Self::zeros(self.bytes, outputs.len(), self.columns / WIDE, of_group);
        for (place, &output) in outputs.iter().enumerate() {
            assert!(output < self.outputs, "output {output} of {}", self.outputs);
            for byte in (0..self.groups() * of_group).step_by(of_group) {
                let (from, to) = (self.place(output, byte), made.place(place, byte));
                made.panels.all_mut()[to..to + of_group]
                    .copy_from_slice(&self.panels.all()[from..from + of_group]);
            }
            (made.starts[place], made.ends[place]) = (self.starts[output], self.ends[output]);
        }
        made
    }
}

impl Groups {
    /// Computes some columns of a product: `x: [n, bytes]`, `out: [n, columns]`. `work` computes
    /// some panels of it.
    ///
    /// # Panics
    /// If a length does not match its dimensions, or the columns begin or end within a panel.
    pub(crate) fn multiply(
        &self,
        x: &[u8],
        columns: &Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
        work: impl Fn(&Multiply<'_>) + Sync,
    ) {
        let (n, panels) =
            (out.len() / columns.len().max(1), panels_of(columns, self.outputs, self.columns));
        assert_eq!(
            [x.len(), out.len()],
            [n * self.bytes, n * columns.len()],
            "[n, inputs] and [n, columns]"
        );
        let out = &Shared::new(out);
        by_columns(threads, [n, self.bytes, panels.len()], |part| {
            let panels = panels.start + part.start..panels.start + part.end;
            work(&Multiply { weights: self, x, out, n, columns: columns.clone(), panels });
        });
    }
}

/// Some panels of a product.
pub(crate) struct Multiply<'a> {
    pub(crate) weights: &'a Groups,
    /// `[n, bytes]`
    pub(crate) x: &'a [u8],
    /// `[n, columns]`
    pub(crate) out: &'a Shared<'a, f32>,
    pub(crate) n: usize,
    pub(crate) columns: Range<usize>,
    /// The panels among those of all columns.
    pub(crate) panels: Range<usize>,
}

impl Multiply<'_> {
    #[inline(always)]
    pub(crate) fn run<D: Dots>(&self, dots: D) {
        assert_eq!(self.weights.of_group, D::OF_GROUP, "packed for these instructions");
        tiles(self.n, self.weights.bytes, self.panels.clone(), Block { work: self, dots });
    }
}

/// Products of four bytes of a row in each lane of a vector.
///
/// # Safety
/// The processor has the instructions; pointers are valid for a vector.
pub(crate) trait Dots: Copy {
    type Sums: Copy;
    type Scaled: Copy;
    const LANES: usize;
    /// Bytes of the weights that are multiplied by four bytes of a row.
    const OF_GROUP: usize = GROUP;
    /// Number of rows whose sums fit into registers.
    const ROWS: usize;
    unsafe fn load(self, starts: *const i32) -> Self::Sums;
    unsafe fn dot(self, sums: Self::Sums, bytes: u32, weights: *const i8) -> Self::Sums;
    unsafe fn scaled(self, sums: Self::Sums, ends: *const f32) -> Self::Scaled;
    unsafe fn store(self, numbers: Self::Scaled, out: *mut f32);
}

struct Block<'w, 'a, D> {
    work: &'w Multiply<'a>,
    dots: D,
}

impl<D: Dots> Tiles for Block<'_, '_, D> {
    const MOST: usize = D::ROWS;

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.work.weights.groups() * WIDE * D::LANES * D::OF_GROUP
    }

    #[allow(clippy::needless_range_loop, reason = "constant places keep sums in registers")]
    #[inline(always)]
    fn tile<const ROWS: usize, const PANELS: usize>(&self, row: usize, panel: usize, ahead: usize) {
        let (dots, Multiply { weights, x, out, columns: written, .. }) = (self.dots, self.work);
        let (&Groups { bytes: width, outputs, .. }, groups, columns) =
            (*weights, weights.groups(), WIDE * D::LANES);
        let x = &x[row * width..][..ROWS * width];
        let packed = &weights.panels.all()[panel * groups * columns * D::OF_GROUP..]
            [..PANELS * groups * columns * D::OF_GROUP];
        let (starts, ends) = (
            &weights.starts[panel * columns..][..PANELS * columns],
            &weights.ends[panel * columns..][..PANELS * columns],
        );
        // SAFETY: all pointers below are within these slices: `PANELS` panels of `columns` numbers,
        // of `groups` groups each, and `ROWS` rows of `width` bytes; the caller of `run` guarantees
        // the instructions.
        unsafe {
            let mut sums = [[[dots.load(starts.as_ptr()); WIDE]; PANELS]; ROWS];
            for sums in &mut sums {
                for place in 0..PANELS {
                    for half in 0..WIDE {
                        sums[place][half] =
                            dots.load(starts.as_ptr().add(place * columns + half * D::LANES));
                    }
                }
            }
            let whole = width / GROUP;
            for group in 0..whole {
                if PANELS == 1 {
                    for half in 0..WIDE {
                        ask(packed
                            .as_ptr()
                            .wrapping_add((group * columns + half * D::LANES) * D::OF_GROUP)
                            .wrapping_add(ahead));
                    }
                }
                for row in 0..ROWS {
                    let bytes =
                        x.as_ptr().add(row * width + group * GROUP).cast::<u32>().read_unaligned();
                    for place in 0..PANELS {
                        for half in 0..WIDE {
                            let at = ((place * groups + group) * columns + half * D::LANES)
                                * D::OF_GROUP;
                            sums[row][place][half] =
                                dots.dot(sums[row][place][half], bytes, packed.as_ptr().add(at));
                        }
                    }
                }
            }
            if whole < groups {
                for row in 0..ROWS {
                    // Weights after the last byte of a row are zeros.
                    let mut bytes = [0; GROUP];
                    bytes[..width - whole * GROUP]
                        .copy_from_slice(&x[row * width + whole * GROUP..(row + 1) * width]);
                    let bytes = u32::from_ne_bytes(bytes);
                    for place in 0..PANELS {
                        for half in 0..WIDE {
                            let at = ((place * groups + whole) * columns + half * D::LANES)
                                * D::OF_GROUP;
                            sums[row][place][half] =
                                dots.dot(sums[row][place][half], bytes, packed.as_ptr().add(at));
                        }
                    }
                }
            }
            // With constant indices, so that sums stay in registers until here.
            let mut done = [[[dots.scaled(sums[0][0][0], ends.as_ptr()); WIDE]; PANELS]; ROWS];
            for row in 0..ROWS {
                for place in 0..PANELS {
                    for half in 0..WIDE {
                        let ends = ends.as_ptr().add(place * columns + half * D::LANES);
                        done[row][place][half] = dots.scaled(sums[row][place][half], ends);
                    }
                }
            }
            for (index, done) in done.iter().enumerate() {
                for (vector, &numbers) in done.as_flattened().iter().enumerate() {
                    let start = panel * columns + vector * D::LANES;
                    let n = outputs.saturating_sub(start).min(D::LANES);
                    let to = out.part(
                        (row + index) * written.len() + start.min(outputs) - written.start,
                        n,
                    );
                    if n == D::LANES {
                        dots.store(numbers, to.as_mut_ptr());
                    } else {
                        let mut all = [0.0; 16];
                        dots.store(numbers, all.as_mut_ptr());
                        to.copy_from_slice(&all[..n]);
                    }
                }
            }
        }
    }
}
