//! Queries and keys rotated by their positions.

use super::embedding::{PositionsOfRows, Table};
use super::{Call, Result, View};

/// `x · cosines + exchanged(x) · sines` of each head, where `exchanged` swaps the halves, in rows
/// `[n, heads · d_k]`.
pub(super) struct Rotation {
    pub(super) x: View,
    /// Cosines and sines of each position, `[positions, d_k]`.
    pub(super) tables: [Table; 2],
    pub(super) positions: PositionsOfRows,
    pub(super) out: usize,
}

impl Rotation {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let n_rows = call.rows(self.x.buffer)?;
        let [cosines, sines] = &self.tables;
        let end = cosines.rows().min(sines.rows());
        let positions = self.positions.of((n_rows, None), end, call.tensors)?;
        let (d_k, stride) = (cosines.width, call.program.buffers[self.x.buffer].width);
        let mut out = call.take_floats(self.out, n_rows)?;
        let x = &call.floats(self.x.buffer)[self.x.offset..];
        let [mut cosine, mut sine] = [vec![0.0; d_k], vec![0.0; d_k]];
        for (row, (out, &position)) in
            out.floats_mut().chunks_exact_mut(self.x.width).zip(&positions).enumerate()
        {
            cosines.read(position, &mut cosine, |to, number| *to = number);
            sines.read(position, &mut sine, |to, number| *to = number);
            let x = &x[row * stride..][..self.x.width];
            for (x, out) in x.chunks_exact(d_k).zip(out.chunks_exact_mut(d_k)) {
                let (first, second) = x.split_at(d_k / 2);
                for (index, (out, other)) in
                    out.iter_mut().zip(second.iter().chain(first)).enumerate()
                {
                    *out = x[index] * cosine[index] + other * sine[index];
                }
            }
        }
        call.put(self.out, out);
        Ok(())
    }
}
