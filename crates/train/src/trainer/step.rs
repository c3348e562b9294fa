//! The sessions of a training step and its state.
//!
//! Weights, moments and averages are values of the engine: the CPU updates them in place, a GPU
//! keeps them in its memory. The host reads losses and norms, the state when a checkpoint is saved,
//! and gradients if several ranks sum theirs.

use std::time::{Duration, Instant};

use cognate_graph::{Program, Recipe, Shape, Weights};
use cognate_model::{Loss, LossNames, Model};
use cognate_passes::{feed::feed, fold::fold};
use cognate_runtime::{Loaded, Options, Runtime, Session, Value, Values};
use ndarray::{ArrayD, Dimension, IxDyn, arr0};

use crate::batches::{Arrays, TrainingBatch, shard};
use crate::error::Result;
use crate::gradients::{LOSS_SCALE, gradients, gradients_in_half};
use crate::optimiser::{Optimiser, UpdateNames};
use crate::ranks::Ranks;

use super::block::Block;
use super::scale::Scale;
use super::tuning::Learned;
use super::values::{missing, number};

/// Sums over labels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// Of the smoothed losses.
    pub(super) loss: f64,
    /// Of the losses without smoothing.
    pub(super) nll: f64,
    pub(super) tokens: u64,
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.nll += other.nll;
        self.tokens += other.tokens;
    }
}

/// The loaded graphs of training and validation, and the state.
pub(super) struct Step<'r> {
    ranks: &'r dyn Ranks,
    gradients: Box<dyn Session>,
    update: Update,
    loss: Box<dyn Session>,
    model: Model,
    learned: Learned,
    has_averages: bool,
    /// By path; also holds the other inputs while a graph runs.
    weights: Values,
    /// Moments and averages.
    rest: Values,
    sum: Sums,
    updates: u64,
    /// Time spent in the engine.
    computed: Duration,
    left: Vec<String>,
}

/// How weights are updated.
enum Update {
    /// Each by itself, from the sums of its gradients since the last update.
    Single {
        session: Box<dyn Session>,
        sums: Values,
    },
    Together(Box<Block>),
}

/// The definition of a step.
pub(super) struct Recipes<'a> {
    pub(super) model: &'a Model,
    pub(super) learned: Learned,
    pub(super) loss: Loss,
    pub(super) optimiser: Optimiser,
    /// Whether the state is in blocks of the device's memory.
    pub(super) in_blocks: bool,
    /// Whether layers compute in f16; requires `in_blocks`.
    pub(super) in_half: bool,
}

/// The result of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Updated {
    /// The norm of the gradient.
    pub(super) norm: f64,
    /// Whether nothing was changed, because gradients in half precision have overflowed.
    pub(super) is_skipped: bool,
}

impl<'r> Step<'r> {
    /// Builds, exports and loads the graphs; moments are 0.
    pub(super) fn new(
        recipes: &Recipes<'_>,
        runtime: &dyn Runtime,
        options: &Options,
        ranks: &'r dyn Ranks,
    ) -> Result<Self> {
        let Recipes { model, learned: chosen, loss, optimiser, in_blocks, in_half } = recipes;
        let learned: Vec<&str> = chosen.paths.iter().map(String::as_str).collect();
        let with_dropout = chosen.adapt(model.loss(loss)?)?;
        let recipe = |path: &str| {
            with_dropout.weights().get(path).expect("learned weights are weights").clone()
        };
        let shapes: Vec<(&str, Shape)> =
            learned.iter().map(|path| (*path, Shape::from(recipe(path).shape()))).collect();
        let gradient_program = match in_half {
            true => gradients_in_half(&with_dropout, &learned)?,
            false => gradients(&with_dropout, &learned)?,
        };
        let plain = chosen.adapt(
            model.loss(&Loss { label_smoothing: loss.label_smoothing, ..Loss::default() })?,
        )?;
        let plain = Program::new(
            feed(&fold(plain.graph())?, |path| learned.contains(&path))?,
            plain.weights().clone(),
        )?;
        let (mut weights, mut rest) = (Values::new(), Values::new());
        for (path, shape) in &shapes {
            let recipe = recipe(path);
            let array = |values| {
                ArrayD::from_shape_vec(IxDyn(recipe.shape()), values)
                    .expect("a recipe has its shape's values")
            };
            weights.insert(*path, array(recipe.values::<f32>()));
            for name in optimiser.state(path, shape) {
                let is_average = name == UpdateNames::average(path);
                let first = if is_average {
                    array(recipe.values::<f32>())
                } else {
                    ArrayD::zeros(recipe.shape())
                };
                rest.insert(name, first);
            }
        }
        let mut programs = vec![gradient_program, plain];
        if !in_blocks {
            programs.push(Program::new(optimiser.update(&shapes)?, Weights::default())?);
        }
        let graphs = runtime.read_graphs(&programs, options)?;
        let left = graphs.iter().flat_map(|graph| graph.left_to_processor()).cloned().collect();
        let mut graphs = graphs.into_iter().map(Loaded::session);
        let mut session = || graphs.next().expect("a graph for each program");
        let (gradients, loss) = (session(), session());
        let update = if *in_blocks {
            let block = Block::new(
                &*gradients,
                (runtime, options),
                (optimiser, *in_half),
                &chosen.paths,
                [&mut weights, &mut rest],
            )?;
            Update::Together(Box::new(block))
        } else {
            Update::Single { session: session(), sums: Values::new() }
        };
        if *in_half {
            Scale::first(&mut rest);
        }
        Ok(Self {
            ranks,
            gradients,
            update,
            loss,
            model: (*model).clone(),
            learned: chosen.clone(),
            has_averages: optimiser.average.is_some(),
            weights,
            rest,
            sum: Sums::default(),
            updates: 0,
            computed: Duration::ZERO,
            left,
        })
    }

    /// The nodes that a GPU leaves to the processor.
    pub(super) fn left_to_processor(&self) -> &[String] {
        &self.left
    }

    /// The engine.
    pub(super) fn engine(&self) -> &str {
        self.gradients.engine()
    }

    /// Number of updates so far.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// Time spent in the engine since the last call.
    pub(super) fn take_computed(&mut self) -> Duration {
        std::mem::take(&mut self.computed)
    }

    /// Adds the gradients of this rank's share of a batch; returns the losses of the whole batch.
    pub(super) fn accumulate(&mut self, batch: &TrainingBatch, dropout_seed: i64) -> Result<Sums> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let share = batch.shard(rank, size);
        let own = if share.n_sentences() > 0 {
            self.add_gradients(&share.arrays(), dropout_seed)?
        } else {
            Sums::default()
        };
        let sums = self.of_all_ranks(own);
        self.sum += sums;
        Ok(sums)
    }

    fn add_gradients(&mut self, arrays: &Arrays, dropout_seed: i64) -> Result<Sums> {
        let begin = Instant::now();
        let scale = Scale::in_state(&self.rest).map(|scale| scale.factor);
        let given = given(&*self.gradients, arrays, dropout_seed, scale);
        let Self { gradients, weights, update, .. } = self;
        let outputs = match update {
            Update::Single { .. } => run(weights, given, |inputs| gradients.run(inputs))?,
            Update::Together(block) => {
                let over = block.next_batch(&**gradients, weights)?;
                let outputs = run(weights, given, |inputs| gradients.run_over(inputs, over))?;
                block.added()?;
                outputs
            }
        };
        self.computed += begin.elapsed();
        let found = sums(&outputs)?;
        if let Update::Single { sums, .. } = &mut self.update {
            add(sums, outputs, &self.learned.paths)?;
        }
        Ok(found)
    }

    /// Updates the weights.
    pub(super) fn update(&mut self, rate: f64) -> Result<Updated> {
        let scale = Scale::in_state(&self.rest);
        let n_tokens = self.sum.tokens.max(1) as f64;
        let factor = 1.0 / (n_tokens * scale.map_or(1.0, |scale| f64::from(scale.factor)));
        let norm = match &mut self.update {
            Update::Single { .. } => self.update_single([rate, factor])?,
            Update::Together(block) => {
                let begin = Instant::now();
                let norm = block.update([rate, factor], self.updates)?;
                self.computed += begin.elapsed();
                norm
            }
        };
        let is_skipped = !norm.is_finite() && scale.is_some_and(|scale| scale.tolerates_overflow());
        if let Some(scale) = scale {
            scale.after(norm.is_finite()).put(&mut self.rest);
        }
        self.updates += 1;
        self.sum = Sums::default();
        Ok(Updated { norm, is_skipped })
    }

    fn update_single(&mut self, [rate, scale]: [f64; 2]) -> Result<f64> {
        self.sum_gradients()?;
        let Update::Single { session, sums } = &mut self.update else {
            return Err(missing("update").into());
        };
        let mut state = std::mem::take(sums);
        state.insert(UpdateNames::LEARNING_RATE, arr0(rate as f32).into_dyn());
        state.insert(UpdateNames::GRADIENT_SCALE, arr0(scale as f32).into_dyn());
        // Set here, because engines may return it as f32.
        state.insert(UpdateNames::STEP, arr0(self.updates as i64).into_dyn());
        let mut pairs = Vec::new();
        let (weights, rest) = (std::mem::take(&mut self.weights), std::mem::take(&mut self.rest));
        for (name, value) in weights.into_iter().chain(rest) {
            pairs.push((name.clone(), UpdateNames::next(&name)));
            state.insert(name, value);
        }
        let begin = Instant::now();
        let outputs = session.run_in_place(&mut state, &pairs)?;
        self.computed += begin.elapsed();
        let norm = number(&outputs, UpdateNames::GRADIENT_NORM)?;
        for (name, _) in pairs {
            let value = state.remove(&name).ok_or_else(|| missing(&name))?;
            let is_weight = self.learned.paths.binary_search(&name).is_ok();
            if is_weight { &mut self.weights } else { &mut self.rest }.insert(name, value);
        }
        Ok(norm)
    }

    /// Replaces the gradients by their sums over all ranks.
    fn sum_gradients(&mut self) -> Result<()> {
        let Update::Single { sums, .. } = &mut self.update else { return Ok(()) };
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let mut numbers = Vec::new();
        for path in &self.learned.paths {
            match sums.get(&UpdateNames::gradient(path)) {
                Some(gradient) => numbers.extend(gradient.to_f32()?.iter()),
                // This rank had no sentence of these batches.
                None => numbers.resize(
                    numbers.len()
                        + self
                            .weights
                            .get(path)
                            .ok_or_else(|| missing(path))?
                            .shape()
                            .iter()
                            .product::<usize>(),
                    0.0,
                ),
            }
        }
        self.ranks.sum(&mut numbers);
        let mut rest = numbers.as_slice();
        for path in &self.learned.paths {
            let shape = IxDyn(self.weights.get(path).ok_or_else(|| missing(path))?.shape());
            let (own, after) = rest.split_at(shape.size());
            let gradient =
                ArrayD::from_shape_vec(shape, own.to_vec()).expect("as many as the weight has");
            sums.insert(UpdateNames::gradient(path), gradient);
            rest = after;
        }
        Ok(())
    }

    fn of_all_ranks(&self, own: Sums) -> Sums {
        let mut numbers = [own.loss, own.nll, own.tokens as f64];
        self.ranks.sum_f64(&mut numbers);
        Sums { loss: numbers[0], nll: numbers[1], tokens: numbers[2] as u64 }
    }

    /// The losses of batches with the averaged weights, if there are averages, or the current ones;
    /// ranks share the work.
    pub(super) fn evaluate(&mut self, batches: &[Arrays]) -> Result<Sums> {
        self.exchange_averages();
        let evaluate = |step: &mut Self| -> Result<Sums> {
            let mut total = Sums::default();
            for batch in shard(batches.len(), step.ranks.rank(), step.ranks.size()) {
                let given = given(&*step.loss, &batches[batch], 0, None);
                let outputs = run(&mut step.weights, given, |inputs| step.loss.run(inputs))?;
                total += sums(&outputs)?;
            }
            Ok(total)
        };
        let evaluated = evaluate(self);
        self.exchange_averages();
        evaluated.map(|total| self.of_all_ranks(total))
    }

    /// The model with the averaged weights, if there are averages, or the current ones.
    pub(super) fn snapshot(&mut self) -> Result<Model> {
        self.exchange_averages();
        let weights = self.recipes();
        self.exchange_averages();
        let present =
            self.model.weights().iter().map(|(path, recipe)| (path.to_owned(), recipe.clone()));
        let present: Weights = present
            .chain(self.learned.merge(&self.model, &weights?.into_iter().collect())?)
            .collect();
        Ok(Model::with_weights(self.model.config_json().to_owned(), present)?)
    }

    /// The state except the number of updates, by name.
    pub(super) fn state(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.weights.iter().chain(self.rest.iter())
    }

    /// A hash of the state.
    pub(super) fn hash(&self) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in self.state() {
            hasher.update(name.as_bytes());
            let bytes: Vec<u8> =
                value.to_f32()?.iter().flat_map(|number| number.to_le_bytes()).collect();
            hasher.update(&bytes);
        }
        Ok(hasher.finalize())
    }

    /// Restores a saved state; `value` returns a tensor by name and shape.
    pub(super) fn restore(
        &mut self,
        updates: u64,
        value: impl Fn(&str, &[usize]) -> Result<ArrayD<f32>>,
    ) -> Result<()> {
        self.updates = updates;
        for values in [&mut self.weights, &mut self.rest] {
            let names: Vec<(String, Vec<usize>)> = values
                .iter()
                .map(|(name, value)| (name.to_owned(), value.shape().to_vec()))
                .collect();
            for (name, shape) in names {
                let array = value(&name, &shape)?;
                values.insert(name, array);
            }
        }
        if let Update::Together(block) = &mut self.update {
            block.place(&*self.gradients, [&mut self.weights, &mut self.rest])?;
        }
        Ok(())
    }

    fn recipes(&self) -> Result<Vec<(String, Recipe)>> {
        let recipe = |path: &String| {
            let value = self.weights.get(path).ok_or_else(|| missing(path))?;
            Ok((
                path.clone(),
                Recipe::held(
                    value.to_f32()?.as_standard_layout().as_slice().unwrap_or_default(),
                    value.shape(),
                )?,
            ))
        };
        self.learned.paths.iter().map(recipe).collect()
    }

    /// Swaps weights and averages.
    fn exchange_averages(&mut self) {
        if !self.has_averages {
            return;
        }
        for path in &self.learned.paths {
            let name = UpdateNames::average(path);
            if let (Some(weight), Some(average)) =
                (self.weights.remove(path), self.rest.remove(&name))
            {
                self.weights.insert(path, average);
                self.rest.insert(name, weight);
            }
        }
    }
}

/// The inputs of a graph besides weights.
fn given(
    session: &dyn Session,
    arrays: &Arrays,
    dropout_seed: i64,
    scale: Option<f32>,
) -> Vec<(&'static str, Value)> {
    let wanted = |name: &str| session.inputs().iter().any(|input| input == name);
    let mut given: Vec<(&str, Value)> = vec![
        (LossNames::SOURCE, arrays.input_ids.clone().into_dyn().into()),
        (LossNames::SOURCE_MASK, arrays.attention_mask.clone().into_dyn().into()),
        (LossNames::TARGET, arrays.decoder_input_ids.clone().into_dyn().into()),
        (LossNames::LABELS, arrays.labels.clone().into_dyn().into()),
    ];
    if wanted(LossNames::DROPOUT_SEED) {
        given.push((LossNames::DROPOUT_SEED, arr0(dropout_seed).into_dyn().into()));
    }
    given.extend(scale.map(|scale| (LOSS_SCALE, arr0(scale).into_dyn().into())));
    given
}

/// Calls with the weights and what is given besides them.
fn run(
    weights: &mut Values,
    given: Vec<(&'static str, Value)>,
    call: impl FnOnce(&Values) -> cognate_runtime::Result<Values>,
) -> Result<Values> {
    let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
    weights.extend(given);
    let outputs = call(weights);
    names.into_iter().for_each(|name| {
        weights.remove(name);
    });
    Ok(outputs?)
}

/// Adds the gradients of a batch to those of earlier ones.
fn add(sums: &mut Values, mut outputs: Values, paths: &[String]) -> Result<()> {
    for path in paths {
        let name = UpdateNames::gradient(path);
        let gradient = outputs.remove(&name).ok_or_else(|| missing(&name))?;
        let Some(mut sum) = sums.remove(&name) else {
            sums.insert(name, gradient);
            continue;
        };
        let gradient = gradient.to_f32()?;
        if sum.as_f32_mut().is_none() {
            sum = Value::F32(sum.to_f32()?);
        }
        let mut array = sum.as_f32_mut().expect("an array of the host");
        array += &gradient;
        drop(array);
        sums.insert(name, sum);
    }
    Ok(())
}

fn sums(outputs: &Values) -> Result<Sums> {
    Ok(Sums {
        loss: number(outputs, LossNames::LOSS)?,
        nll: number(outputs, LossNames::NEGATIVE_LOG_LIKELIHOOD)?,
        tokens: number(outputs, LossNames::TOKENS)? as u64,
    })
}

#[cfg(test)]
mod tests;
