//! The update graph: Adam (Kingma & Ba 2015), with decay apart from the gradient (Loshchilov & Hutter 2019).
//!
//! `m ← β₁ m + (1 - β₁) g`, `v ← β₂ v + (1 - β₂) g²`
//! `x ← (1 - r λ) x - r m̂ / (√v̂ + ε)`, `m̂ = m / (1 - β₁ᵗ)`, `v̂ = v / (1 - β₂ᵗ)`
//!
//! `g` is the gradient times `gradient_scale`, as 1 over the tokens that a sum of losses is over, and shortened if the norm of all
//! gradients is above a limit.

mod schedule;

pub use schedule::{inverse_square_root, paper_rate};

use cognate_graph::{Builder, DType, Error, Graph, Shape, Tensor, Unary};
use std::fmt;

/// How weights follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// `β₁`, `β₂`: how much of the moving averages stays, `0 <= β < 1`.
    pub betas: [f64; 2],
    /// `ε`, above 0.
    pub epsilon: f64,
    /// `λ`: how much of a weight is lost in a step, times the rate. 0 is plain Adam.
    pub weight_decay: f64,
    /// The largest norm of all gradients together.
    pub clip_norm: Option<f64>,
    /// How much of a moving average of the weights stays, `0 <= a < 1`; `None` keeps no such average.
    pub average: Option<f64>,
}

impl Default for Adam {
    /// The paper's (section 5.3): β 0.9 and 0.98, ε 1e-9.
    fn default() -> Self {
        Self { betas: [0.9, 0.98], epsilon: 1e-9, weight_decay: 0.0, clip_norm: None, average: None }
    }
}

/// The names of the update graph's inputs and outputs; part of the contract of exported training graphs.
///
/// The state is all inputs of [`UpdateNames::state`]; the value of each after the step is the output [`UpdateNames::next`] of its name.
#[derive(Debug)]
pub struct UpdateNames;

impl UpdateNames {
    /// The rate `r`, f32 `[]`.
    pub const LEARNING_RATE: &str = "learning_rate";
    /// What gradients are multiplied by, f32 `[]`: 1 over the tokens of all batches whose gradients were summed.
    pub const GRADIENT_SCALE: &str = "gradient_scale";
    /// The steps taken so far, i64 `[]`; state.
    pub const STEP: &str = "step";
    /// Output: the norm of all gradients, scaled and not yet shortened, f32 `[]`.
    pub const GRADIENT_NORM: &str = "gradient_norm";

    /// The gradient of the weight at `path`.
    pub fn gradient(path: &str) -> String {
        cognate_passes::gradient::gradient_name(path)
    }

    /// `m` of the weight at `path`; state, at first 0.
    pub fn first_moment(path: &str) -> String {
        format!("first_moment.{path}")
    }

    /// `v` of the weight at `path`; state, at first 0.
    pub fn second_moment(path: &str) -> String {
        format!("second_moment.{path}")
    }

    /// The moving average of the weight at `path`; state, at first the weight.
    pub fn average(path: &str) -> String {
        format!("average.{path}")
    }

    /// What was summed before of the gradient `name`, in [`accumulate`](crate::accumulate).
    pub fn earlier(name: impl fmt::Display) -> String {
        format!("earlier.{name}")
    }

    /// The output that takes the place of the state `name`.
    pub fn next(name: impl fmt::Display) -> String {
        format!("next.{name}")
    }

    /// The names of all state of weights at `paths`, the weights themselves included.
    pub fn state<'p>(adam: &Adam, paths: impl IntoIterator<Item = &'p str>) -> Vec<String> {
        let of = |path: &'p str| {
            let moments = [path.to_string(), Self::first_moment(path), Self::second_moment(path)];
            moments.into_iter().chain(adam.average.map(|_| Self::average(path)))
        };
        let weights: Vec<_> = paths.into_iter().flat_map(of).collect();
        [Self::STEP.to_string()].into_iter().chain(weights).collect()
    }
}

impl Adam {
    /// The graph of one step for the weights `learned`, given as paths with shapes; see [`UpdateNames`] for what it reads and gives.
    ///
    /// # Errors
    /// If two weights have one path.
    pub fn update(&self, learned: &[(&str, Shape)]) -> Result<Graph, Error> {
        let builder = Builder::new("update");
        let number = |name: &str| builder.input(name, DType::F32, Shape::default());
        let (rate, scale) = (number(UpdateNames::LEARNING_RATE), number(UpdateNames::GRADIENT_SCALE));
        let step = builder.input(UpdateNames::STEP, DType::I64, Shape::default()) + builder.integer(1);
        builder.output(&UpdateNames::next(UpdateNames::STEP), step);
        let gradients: Vec<_> =
            learned.iter().map(|(path, shape)| builder.input(&UpdateNames::gradient(path), DType::F32, shape.clone())).collect();
        let squares: Vec<_> = gradients.iter().map(|&gradient| gradient * gradient).collect();
        let norm = norm(&builder, &squares) * scale;
        builder.output(UpdateNames::GRADIENT_NORM, norm);
        let factor = self.clip_norm.map_or(scale, |limit| scale * shortening(norm, limit));
        let step = Step::of(self, &builder, step, rate, factor);
        for (((path, shape), gradient), square) in learned.iter().zip(gradients).zip(squares) {
            let _scope = builder.root().at(path).enter();
            let input = |name: &str| builder.input(name, DType::F32, shape.clone());
            let next = |name: &str, value| builder.output(&UpdateNames::next(name), value);
            let (first, second) = (UpdateNames::first_moment(path), UpdateNames::second_moment(path));
            let (weight, moments) = step.apply(input(path), [input(&first), input(&second)], gradient, square);
            next(path, weight);
            [&first, &second].into_iter().zip(moments).for_each(|(name, moment)| next(name, moment));
            if let Some(stays) = self.average {
                let name = UpdateNames::average(path);
                next(&name, input(&name) * stays as f32 + weight * (1.0 - stays) as f32);
            }
        }
        builder.finish()
    }
}

/// The graph that sums gradients over batches: the input `gradient.PATH` and what was summed before, `earlier.gradient.PATH`, give
/// `next.gradient.PATH`.
///
/// # Errors
/// If two weights have one path.
pub fn accumulate(learned: &[(&str, Shape)]) -> Result<Graph, Error> {
    let builder = Builder::new("accumulate");
    for (path, shape) in learned {
        let name = UpdateNames::gradient(path);
        let input = |name: &str| builder.input(name, DType::F32, shape.clone());
        builder.output(&UpdateNames::next(&name), input(&UpdateNames::earlier(&name)) + input(&name));
    }
    builder.finish()
}

/// The norm of all gradients, from their squares.
fn norm<'g>(builder: &'g Builder, squares: &[Tensor<'g>]) -> Tensor<'g> {
    let _scope = builder.root().at("gradient_norm").enter();
    let sum = |square: &Tensor<'g>| square.sum(&(0..square.ty().shape.rank()).collect::<Vec<_>>()).reshape([1]);
    let sums: Vec<_> = squares.iter().map(sum).collect();
    let total = if sums.is_empty() { builder.scalar(0.0) } else { cognate_graph::concat(0, &sums).sum(&[0]).reshape(Shape::default()) };
    total.map(Unary::Sqrt)
}

/// By how much gradients of this norm are to be shortened: as `clip_grad_norm_` of PyTorch.
fn shortening(norm: Tensor<'_>, limit: f64) -> Tensor<'_> {
    let builder = norm.builder();
    let factor = builder.scalar(limit as f32) / (norm + 1e-6);
    let one = builder.scalar(1.0);
    // A norm that is no number makes a factor that is none, and shows in the weights.
    one.less_or_equal(factor).select(one, factor)
}

/// What all weights have in common in one step, numbers of shape `[]`.
struct Step<'g> {
    /// `β₁`, `β₂`
    stays: [f32; 2],
    /// What `g` and `g²` are multiplied by before they enter the averages.
    enters: [Tensor<'g>; 2],
    /// `r √(1 - β₂ᵗ) / (1 - β₁ᵗ)`
    length: Tensor<'g>,
    /// `ε √(1 - β₂ᵗ)`
    epsilon: Tensor<'g>,
    /// `1 - r λ`
    keeps: Option<Tensor<'g>>,
}

impl<'g> Step<'g> {
    fn of(adam: &Adam, builder: &'g Builder, step: Tensor<'g>, rate: Tensor<'g>, factor: Tensor<'g>) -> Self {
        let _scope = builder.root().at("step").enter();
        let count = step.cast(DType::F32);
        // `1 - βᵗ` with no digit lost where βᵗ is near 1: `1 - e⁻²ˣ = 2 tanh x / (1 + tanh x)`.
        let weight = |beta: f64| {
            let tanh = (count * (-beta.ln() / 2.0) as f32).map(Unary::Tanh);
            (tanh + tanh) / (tanh + 1.0)
        };
        let [first, second] = adam.betas.map(weight);
        let root = second.map(Unary::Sqrt);
        let enters = [factor * (1.0 - adam.betas[0]) as f32, factor * factor * (1.0 - adam.betas[1]) as f32];
        Self {
            stays: adam.betas.map(|beta| beta as f32),
            enters,
            length: rate * root / first,
            epsilon: root * adam.epsilon as f32,
            keeps: (adam.weight_decay != 0.0).then(|| builder.scalar(1.0) - rate * adam.weight_decay as f32),
        }
    }

    /// The new weight and its new moments.
    fn apply(
        &self,
        weight: Tensor<'g>,
        moments: [Tensor<'g>; 2],
        gradient: Tensor<'g>,
        square: Tensor<'g>,
    ) -> (Tensor<'g>, [Tensor<'g>; 2]) {
        let first = moments[0] * self.stays[0] + gradient * self.enters[0];
        let second = moments[1] * self.stays[1] + square * self.enters[1];
        let change = first * self.length / (second.map(Unary::Sqrt) + self.epsilon);
        (self.keeps.map_or(weight, |keeps| weight * keeps) - change, [first, second])
    }
}
