//! The buffers that share memory.

use super::{Place, Program, Step};

impl Program {
    /// Gives buffers the memory of others that are not read again.
    pub(super) fn share(&mut self) {
        let mut last = vec![0; self.buffers.len()];
        for (at, step) in self.steps.iter().enumerate() {
            let (reads, floats, bytes) = step.buffers();
            reads.into_iter().chain(floats).chain(bytes).for_each(|buffer| last[buffer] = at);
        }
        let (mut assigned, mut free, mut counts) =
            (vec![false; self.buffers.len()], [Vec::new(), Vec::new()], [0; 2]);
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
                    let number = free[kind].pop().unwrap_or_else(|| {
                        counts[kind] += 1;
                        counts[kind] - 1
                    });
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
            Step::Product { x, out, .. } | Step::IntegerProduct { x, out, .. } => {
                (vec![*x], vec![*out], vec![])
            }
            Step::Rows(rows) => {
                let reads =
                    [Some(rows.x), rows.scale, rows.residual].into_iter().flatten().collect();
                let [bytes, largest] = rows.quantised.map_or([None; 2], |made| made.map(Some));
                (reads, rows.out.into_iter().chain(largest).collect(), bytes.into_iter().collect())
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
            Step::Embedding(embedding) => (vec![], vec![embedding.out], vec![]),
        }
    }
}
