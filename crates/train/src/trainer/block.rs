//! The state in blocks of a device's memory, so that a few operations update all weights.
//!
//! The update of each weight by itself would start some fifteen operations for each of hundreds of
//! weights, and on a GPU starting them takes longer than their arithmetic.

use cognate_graph::{Builder, DType, Graph, Program, Shape, Weights};
use cognate_runtime::{Options, Runtime, Session, Together, Value, Values};
use ndarray::{ArrayD, arr0};

use super::values::{missing, number};
use crate::error::{Cause, Result};
use crate::optimiser::{Optimiser, UpdateNames};

/// The path of all weights together.
const ALL: &str = "weights";

/// The blocks and the graphs that update them.
pub(super) struct Block {
    update: Box<dyn Session>,
    /// Adds the gradients of another batch.
    add: Box<dyn Session>,
    paths: Vec<String>,
    optimiser: Optimiser,
    /// By the names of [`ALL`].
    wholes: Values,
    /// Of the sum of batches since the last update.
    sum: Gradients,
    /// Of the last batch, if there are several.
    last: Option<Gradients>,
    n_batches: usize,
}

struct Gradients {
    whole: Value,
    /// By name.
    parts: Values,
}

impl Block {
    /// Moves the state to the device of `session`; `is_scaled` for gradients that may overflow.
    pub(super) fn new(
        session: &dyn Session,
        (runtime, options): (&dyn Runtime, &Options),
        (optimiser, is_scaled): (&Optimiser, bool),
        paths: &[String],
        [weights, rest]: [&mut Values; 2],
    ) -> Result<Self> {
        let sum = Gradients::zeros(session, paths, weights)?;
        let n = sum.whole.shape().to_vec();
        let shape = Shape::from(n.as_slice());
        let learned = [(ALL, shape.clone())];
        let update = match is_scaled {
            true => optimiser.update_if_finite(&learned)?,
            false => optimiser.update(&learned)?,
        };
        let graphs =
            [update, sum_of_two(shape)?].map(|graph| Program::new(graph, Weights::default()));
        let [update, add] = graphs;
        let mut graphs = runtime.read_graphs(&[update?, add?], options)?.into_iter();
        let mut session_of_next = || graphs.next().expect("a graph for each program").session();
        let mut block = Self {
            update: session_of_next(),
            add: session_of_next(),
            paths: paths.to_vec(),
            optimiser: *optimiser,
            wholes: Values::new(),
            sum,
            last: None,
            n_batches: 0,
        };
        block.place(session, [weights, rest])?;
        Ok(block)
    }

    /// Moves the state from the host to the device.
    pub(super) fn place(
        &mut self,
        session: &dyn Session,
        [weights, rest]: [&mut Values; 2],
    ) -> Result<()> {
        let names = |path: &str| -> Vec<String> {
            let shape = self.sum.whole.shape().into();
            std::iter::once(path.to_owned()).chain(self.optimiser.state(path, &shape)).collect()
        };
        for (kind, all) in names(ALL).into_iter().enumerate() {
            let state = if kind == 0 { &mut *weights } else { &mut *rest };
            let names: Vec<String> =
                self.paths.iter().map(|path| names(path).swap_remove(kind)).collect();
            let array =
                |name: &String| Ok(state.get(name).ok_or_else(|| missing(name))?.to_f32()?);
            let arrays = names.iter().map(array).collect::<Result<Vec<_>>>()?;
            let Together { whole, parts } = together(session, &arrays)?;
            self.wholes.insert(all, whole);
            state.extend(names.into_iter().zip(parts));
        }
        Ok(())
    }

    /// Where the gradients of the next batch are written.
    pub(super) fn next_batch(
        &mut self,
        session: &dyn Session,
        weights: &Values,
    ) -> Result<&Values> {
        if self.n_batches == 0 {
            return Ok(&self.sum.parts);
        }
        if self.last.is_none() {
            self.last = Some(Gradients::zeros(session, &self.paths, weights)?);
        }
        Ok(&self.last.as_ref().unwrap_or(&self.sum).parts)
    }

    /// Adds the gradients that were written.
    pub(super) fn added(&mut self) -> Result<()> {
        self.n_batches += 1;
        if let (2.., Some(last)) = (self.n_batches, &self.last) {
            let sum = &self.sum.whole;
            let inputs = [("sum", sum.clone()), ("more", last.whole.clone())];
            let over = [("next.sum", sum.clone())].into_iter().collect();
            self.add.run_over(&inputs.into_iter().collect(), &over)?;
        }
        Ok(())
    }

    /// Updates the state; returns the norm of the gradient.
    pub(super) fn update(&mut self, [rate, scale]: [f64; 2], n_updates: u64) -> Result<f64> {
        let mut inputs = self.wholes.clone();
        let over: Values =
            inputs.iter().map(|(name, whole)| (UpdateNames::next(name), whole.clone())).collect();
        inputs.insert(UpdateNames::gradient(ALL), self.sum.whole.clone());
        inputs.insert(UpdateNames::LEARNING_RATE, arr0(rate as f32).into_dyn());
        inputs.insert(UpdateNames::GRADIENT_SCALE, arr0(scale as f32).into_dyn());
        inputs.insert(UpdateNames::STEP, arr0(n_updates as i64).into_dyn());
        let outputs = self.update.run_over(&inputs, &over)?;
        self.n_batches = 0;
        number(&outputs, UpdateNames::GRADIENT_NORM)
    }
}

impl Gradients {
    fn zeros(session: &dyn Session, paths: &[String], weights: &Values) -> Result<Self> {
        let zeros = |path: &String| {
            let weight = weights.get(path).ok_or_else(|| missing(path))?;
            Ok(ArrayD::zeros(weight.shape()))
        };
        let arrays = paths.iter().map(zeros).collect::<Result<Vec<_>>>()?;
        let Together { whole, parts } = together(session, &arrays)?;
        let names = paths.iter().map(|path| UpdateNames::gradient(path));
        Ok(Self { whole, parts: names.zip(parts).collect() })
    }
}

fn together(session: &dyn Session, arrays: &[ArrayD<f32>]) -> Result<Together> {
    let made = session.reserve_together(arrays)?;
    Ok(made.ok_or_else(|| {
        Cause::Engine(format!("{} reserves no memory on its device", session.engine()))
    })?)
}

/// `next.sum = sum + more`
fn sum_of_two(shape: Shape) -> Result<Graph> {
    let builder = Builder::new("sum");
    let [sum, more] = ["sum", "more"].map(|name| builder.input(name, DType::F32, shape.clone()));
    builder.output("next.sum", sum + more);
    Ok(builder.finish()?)
}
