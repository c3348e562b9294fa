//! Attention to a past that grows with each run, as in files for any engine.

use super::attention::{MaskSource, Masks, of_sentences};
use super::{Call, Result, View, expected};
use cognate_kernels::{Attention, MANY, Memory, Results, Strides};

/// Attention of `n` new positions of each sequence to those of its past and to themselves, with an
/// optional mask that is added to the scores.
pub(super) struct GrownAttention {
    /// Query, key and value, rows `[sequences · n, heads · d_k]`.
    pub(super) news: [View; 3],
    /// Keys and values: the input `[.., heads, past, d_k]`, whose first axes are the sequences, and
    /// the output `[.., heads, past + n, d_k]`.
    pub(super) grown: [[usize; 2]; 2],
    pub(super) mask: Option<MaskSource>,
    pub(super) scale: f32,
    pub(super) out: usize,
}

impl GrownAttention {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (tensors, n_rows) = (call.tensors, call.rows(self.news[0].buffer)?);
        for view in &self.news[1..] {
            if call.rows(view.buffer)? != n_rows {
                return Err(expected("query, key and value", format!("{n_rows} rows"), "others"));
            }
        }
        let [keys, values] = self.grown.map(|[input, _]| tensors.floats(input));
        let ((shape, old_keys), (same, old_values)) = (keys?, values?);
        let &[ref axes @ .., heads, past, d_k] = shape.as_slice() else {
            return Err(expected("past", "at least 3 axes", format!("{shape:?}")));
        };
        let sequences: usize = axes.iter().product();
        if shape != same
            || self.news.iter().any(|view| view.width != heads * d_k)
            || n_rows % sequences.max(1) != 0
            || (sequences == 0) != (n_rows == 0)
        {
            let found = format!("{n_rows} rows of {}, values {same:?}", self.news[0].width);
            return Err(expected("new positions", format!("those of a past {shape:?}"), found));
        }
        let n = n_rows / sequences.max(1);
        let total = past + n;
        let full = [axes, &[heads, total, d_k]].concat();
        let [keys, values] = self.grown.map(|[_, output]| tensors.new_floats(output, &full));
        let (keys, values) = (keys?, values?);
        let [_, key, value] = self.news.map(|view| call.columns(view));
        for (all, old, new) in [(&mut *keys, old_keys, key), (&mut *values, old_values, value)] {
            for (index, all) in all.chunks_exact_mut((total * d_k).max(1)).enumerate() {
                let (sequence, head) = (index / heads, index % heads);
                let (before, after) = all.split_at_mut(past * d_k);
                before.copy_from_slice(&old[index * past * d_k..][..past * d_k]);
                for (place, to) in after.chunks_exact_mut(d_k.max(1)).enumerate() {
                    to.copy_from_slice(&new.starting_at(sequence * n + place)[head * d_k..][..d_k]);
                }
            }
        }
        let attention = Attention::new(heads, d_k, self.scale);
        let mask = self.mask.map(|mask| mask.read(tensors)).transpose()?;
        let masks =
            mask.as_ref().map(|mask| Masks::new(mask, [sequences, heads, n, total])).transpose()?;
        let mut out = call.take_floats(self.out, n_rows)?;
        let (strides, size) = (Strides { head: total * d_k, place: d_k }, heads * total * d_k);
        let query = call.columns(self.news[0]);
        let memory_of = |sequence: usize| {
            let [keys, values] = [&*keys, &*values].map(|all| &all[sequence * size..][..size]);
            let mask = masks.as_ref().map(|masks| masks.of(sequence));
            (
                (query.starting_at(sequence * n), query.stride),
                Memory { keys, values, strides, places: total, mask, packed: n >= MANY },
            )
        };
        let contexts = out.floats_mut().chunks_mut((n * attention.width()).max(1));
        let results = contexts.map(|context| Results { context, weights: None });
        of_sentences(tensors, results.collect(), attention, memory_of);
        call.put(self.out, out);
        Ok(())
    }
}
