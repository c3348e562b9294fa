//! The buffers that share memory.

use super::rows::BetweenProducts;
use super::{Place, Program, Step};

impl Program {
    /// Gives buffers the memory of others that are not read again: of the one whose width fits best,
    /// so that not all become as large as the largest.
    pub(super) fn share(&mut self) {
        let mut last = vec![0; self.buffers.len()];
        for (at, step) in self.steps.iter().enumerate() {
            let (reads, floats, bytes) = step.buffers();
            reads.into_iter().chain(floats).chain(bytes).for_each(|buffer| last[buffer] = at);
        }
        let mut assigned = vec![false; self.buffers.len()];
        let (mut free, mut widths) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (at, step) in self.steps.iter().enumerate() {
            let (_, floats, bytes) = step.buffers();
            let kinds = floats
                .into_iter()
                .map(|buffer| (buffer, 0))
                .chain(bytes.into_iter().map(|buffer| (buffer, 1)));
            let mut here = Vec::new();
            for (buffer, kind) in kinds {
                if matches!(self.buffers[buffer].place, Place::Own(_))
                    && !std::mem::replace(&mut assigned[buffer], true)
                {
                    let (width, widths) = (self.buffers[buffer].width, &mut widths[kind]);
                    let fit = |&(_, &number): &(usize, &usize)| {
                        let has: usize = widths[number];
                        (has < width, has.abs_diff(width))
                    };
                    let number = match free[kind].iter().enumerate().min_by_key(fit) {
                        Some((place, _)) => free[kind].swap_remove(place),
                        None => {
                            widths.push(0);
                            widths.len() - 1
                        }
                    };
                    widths[number] = widths[number].max(width);
                    self.buffers[buffer].place = Place::Own(number);
                    self.is_bytes[buffer] = kind == 1;
                }
            }
            for (buffer, &last) in last.iter().enumerate() {
                if let (true, true, Place::Own(number)) =
                    (last == at, assigned[buffer], self.buffers[buffer].place)
                {
                    free[usize::from(self.is_bytes[buffer])].push(number);
                    here.push(buffer);
                }
            }
            self.released.push(here);
        }
    }
}

impl Step {
    /// The buffers that it reads, and those of floats and of bytes that it writes.
    pub(super) fn buffers(&self) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        match self {
            Step::Product { x, out, .. } => (vec![*x], vec![*out], vec![]),
            Step::Rows(rows) => rows.buffers(),
            Step::FeedForward(layer) => {
                let (mut reads, mut floats, bytes) = layer.between.buffers();
                reads.push(layer.x);
                floats.push(layer.out);
                (reads, floats, bytes)
            }
            Step::Cached(cached) => {
                (cached.news.iter().map(|view| view.buffer).collect(), vec![cached.out], vec![])
            }
            Step::Memory(memory) => (vec![memory.query.buffer], vec![memory.out], vec![]),
            Step::SelfAttention(attention) => {
                (attention.views.map(|view| view.buffer).to_vec(), vec![attention.out], vec![])
            }
            Step::Grown(grown) => {
                (grown.news.map(|view| view.buffer).to_vec(), vec![grown.out], vec![])
            }
            Step::Rotation(rotation) => (vec![rotation.x.buffer], vec![rotation.out], vec![]),
            Step::Gate(gate) => (vec![gate.x.buffer, gate.gate.buffer], vec![gate.out], vec![]),
            Step::Heads(heads) => (vec![heads.x.buffer], vec![], vec![]),
            Step::Divided(divided) => (divided.reads(), vec![], vec![]),
            Step::Largest(largest) => (vec![largest.x], vec![], vec![]),
            Step::Output(layer) => {
                let factors = layer.scale.iter().map(|(scale, _)| *scale).chain(layer.steps);
                (factors.chain([layer.x]).collect(), vec![layer.out], vec![])
            }
            Step::Convolutions(layers) => (vec![], vec![layers.out], vec![]),
            Step::Embedding(embedding) => (vec![], vec![embedding.out], vec![]),
        }
    }
}

impl BetweenProducts {
    fn buffers(&self) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let reads = [Some(self.x), self.scale, self.residual].into_iter().flatten().collect();
        let [bytes, largest] = self.quantised.map_or([None; 2], |made| made.map(Some));
        (reads, self.out.into_iter().chain(largest).collect(), bytes.into_iter().collect())
    }
}
