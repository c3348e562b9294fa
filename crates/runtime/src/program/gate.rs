//! Feed-forward layers with a gate.

use super::{Call, Result, View, by_parts, expected};
use cognate_kernels::{Activation, Place, Rows};

/// `activation(x) ⊙ gate` of rows (Shazeer 2020).
pub(super) struct Gate {
    pub(super) x: View,
    pub(super) gate: View,
    pub(super) activation: Activation,
    pub(super) out: usize,
}

impl Gate {
    /// Number of rows per task.
    const TOGETHER: usize = 8;

    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let [n_rows, n_gates] = [call.rows(self.x.buffer)?, call.rows(self.gate.buffer)?];
        if n_rows != n_gates {
            return Err(expected("gates", n_rows, n_gates));
        }
        let mut out = call.take_floats(self.out, n_rows)?;
        let rows = |view: View| {
            let (floats, stride) =
                (call.floats(view.buffer), call.program.buffers[view.buffer].width);
            move |row: usize| &floats[row * stride + view.offset..][..view.width]
        };
        let (x, gate, width) = (rows(self.x), rows(self.gate), self.x.width);
        let work = Rows { activation: self.activation, ..Rows::default() };
        by_parts(
            call.tensors,
            out.floats_mut().chunks_mut((Self::TOGETHER * width).max(1)),
            |part, out| {
                for (index, out) in out.chunks_exact_mut(width).enumerate() {
                    let row = part * Self::TOGETHER + index;
                    work.apply(0, Place::To(x(row), out), width, None);
                    out.iter_mut().zip(gate(row)).for_each(|(out, gate)| *out *= gate);
                }
            },
        );
        call.put(self.out, out);
        Ok(())
    }
}
