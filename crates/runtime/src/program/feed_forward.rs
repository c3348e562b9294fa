//! Feed-forward layers of encoders, whose hidden rows are computed a part at a time.

use super::linear::Linear;
use super::rows::BetweenProducts;
use super::{Buffer, Call, Place, Result, Step, parts_of_rows};
use cognate_kernels as kernels;

/// Two products and the operations between them. The hidden rows, which for a window of speech take
/// 12 MB in Whisper's base shape, exist only for some rows at a time.
pub(super) struct FeedForward {
    pub(super) x: usize,
    first: Linear,
    pub(super) between: BetweenProducts,
    second: Linear,
    pub(super) out: usize,
}

impl FeedForward {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (n, between) = (self.first.rows(call, self.x)?, &self.between);
        let [hidden_width, width] = [self.first.outputs(), self.second.outputs()];
        between.load(call, n, hidden_width)?;
        let at_once = parts_of_rows(n).map(|rows| rows.len()).max().unwrap_or(0);
        let mut hidden = call.take_floats(between.x, at_once)?;
        let mut quantised = between.take_quantised(call, at_once, n)?;
        let mut out = call.take_floats(self.out, n)?;
        let work = between.work(call, hidden_width);
        for rows in parts_of_rows(n) {
            let all = 0..rows.len();
            let part = &mut hidden.floats_mut()[..rows.len() * hidden_width];
            let x = (&call.elements[self.x], rows.clone());
            self.first.multiply(x, 0..hidden_width, part, call.tensors);
            let bytes = quantised.as_mut().map(|[bytes, largest]| kernels::Quantised {
                bytes: &mut bytes.bytes_mut()[..rows.len() * hidden_width],
                largest: &mut largest.floats_mut()[rows.clone()],
            });
            work.apply(rows.start, kernels::Place::Over(part), bytes);
            let x = quantised.as_ref().map_or(&hidden, |[bytes, _]| bytes);
            let out = &mut out.floats_mut()[rows.start * width..rows.end * width];
            self.second.multiply((x, all), 0..width, out, call.tensors);
        }
        call.put(between.x, hidden);
        between.put_quantised(call, quantised);
        call.put(self.out, out);
        Ok(())
    }
}

/// Joins the steps of feed-forward layers whose hidden rows nothing else reads. The steps of a
/// decoder, which have few rows, stay apart.
pub(super) fn join(mut steps: Vec<Step>, buffers: &[Buffer]) -> Vec<Step> {
    let is_decoder =
        |step: &Step| matches!(step, Step::Cached(_) | Step::Grown(_) | Step::Output(_));
    if steps.iter().any(is_decoder) {
        return steps;
    }
    let is_own = |buffer: usize| matches!(buffers[buffer].place, Place::Own(_));
    for first in (0..steps.len()).rev() {
        let [
            Step::Product { out: hidden, .. },
            Step::Rows(rows),
            Step::Product { x: read, out, .. },
            others @ ..,
        ] = &steps[first..]
        else {
            continue;
        };
        let made = rows.quantised.map_or(*hidden, |[bytes, _]| bytes);
        let is_read = |step: &Step| {
            let reads = step.buffers().0;
            reads.contains(hidden) || reads.contains(&made)
        };
        let is_apart = (rows.x, rows.out) == (*hidden, Some(*hidden))
            && rows.residual.is_none()
            && made == *read
            && [*hidden, made, *out].into_iter().all(is_own)
            && !others.iter().any(is_read);
        if !is_apart {
            continue;
        }
        let mut layer = steps.drain(first..first + 3);
        let (
            Some(Step::Product { x, weights: first_weights, .. }),
            Some(Step::Rows(between)),
            Some(Step::Product { weights: second, out, .. }),
        ) = (layer.next(), layer.next(), layer.next())
        else {
            unreachable!("matched above");
        };
        drop(layer);
        let joined = FeedForward { x, first: first_weights, between, second, out };
        steps.insert(first, Step::FeedForward(joined));
    }
    steps
}
