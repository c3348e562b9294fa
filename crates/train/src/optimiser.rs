//! The update graph: Adam (Kingma & Ba 2015), Lion (Chen et al. 2023) or Muon (Jordan et al. 2024),
//! with decoupled weight decay (Loshchilov & Hutter 2019): `x ← (1 - r λ) x - r u`.
//!
//! - Adam: `m ← β₁ m + (1 - β₁) g`, `v ← β₂ v + (1 - β₂) g²`, `u = m̂ / (√v̂ + ε)` with
//!   `m̂ = m / (1 - β₁ᵗ)`, `v̂ = v / (1 - β₂ᵗ)`
//! - Lion: `u = sign(β₁ m + (1 - β₁) g)`, then `m ← β₂ m + (1 - β₂) g`
//! - Muon, for the matrices of layers: `m ← μ m + (1 - μ) g`,
//!   `u = 0.2 √max(out, in) · O(μ m + (1 - μ) g)`, where `O` makes a matrix nearly orthogonal; the
//!   factor gives `u` the size of Adam's (Liu et al. 2025). Other weights are Adam's.
//!
//! `g` is the gradient times `gradient_scale`, 1 over the number of tokens of a summed loss, and
//! clipped to a norm of all gradients.

use cognate_graph::{Builder, DType, Error, Graph, Shape, Tensor, Unary};
use std::fmt;

/// The rule of the update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Adam.
    #[default]
    Adam,
    /// Lion.
    Lion,
    /// Muon for the matrices of layers, Adam for the rest.
    Muon,
}

/// The settings of the update of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimiser {
    /// The rule.
    pub rule: Rule,
    /// `β₁`, `β₂`: decay rates of the moving averages, `0 <= β < 1`.
    pub betas: [f64; 2],
    /// `ε`, above 0.
    pub epsilon: f64,
    /// `λ`: the decoupled weight decay, a factor of the rate. 0 is plain Adam.
    pub weight_decay: f64,
    /// Maximum norm of all gradients together.
    pub clip_norm: Option<f64>,
    /// Decay rate of a moving average of the weights, `0 <= a < 1`; `None` for no average.
    pub average: Option<f64>,
}

impl Default for Optimiser {
    /// Those of the paper (section 5.3): β 0.9 and 0.98, ε 1e-9.
    fn default() -> Self {
        Self {
            rule: Rule::Adam,
            betas: [0.9, 0.98],
            epsilon: 1e-9,
            weight_decay: 0.0,
            clip_norm: None,
            average: None,
        }
    }
}

/// Names of the inputs and outputs of the update graph; part of the contract of exported training
/// graphs.
///
/// The state is the weights, the moments and the averages; the value of each after the step is the
/// output [`UpdateNames::next`] of its name.
#[derive(Debug)]
pub struct UpdateNames;

impl UpdateNames {
    /// The rate `r`, f32 `[]`.
    pub const LEARNING_RATE: &str = "learning_rate";
    /// The factor of gradients, f32 `[]`: 1 over the number of tokens of all batches whose
    /// gradients were summed.
    pub const GRADIENT_SCALE: &str = "gradient_scale";
    /// The number of steps so far, i64 `[]`; state.
    pub const STEP: &str = "step";
    /// Output: the norm of all gradients, scaled and before clipping, f32 `[]`.
    pub const GRADIENT_NORM: &str = "gradient_norm";

    /// The gradient of the weight at `path`.
    pub fn gradient(path: &str) -> String {
        cognate_passes::gradient::gradient_name(path)
    }

    /// `m` of the weight at `path`; state, initially 0.
    pub fn first_moment(path: &str) -> String {
        format!("first_moment.{path}")
    }

    /// `v` of the weight at `path`; state, initially 0.
    pub fn second_moment(path: &str) -> String {
        format!("second_moment.{path}")
    }

    /// The moving average of the weight at `path`; state, initially the weight.
    pub fn average(path: &str) -> String {
        format!("average.{path}")
    }

    /// The output that replaces the state `name`.
    pub fn next(name: impl fmt::Display) -> String {
        format!("next.{name}")
    }
}

impl Optimiser {
    /// The names of the state besides the weight `path`: its moments, followed by its average if
    /// there is one.
    pub fn state(&self, path: &str, shape: &Shape) -> Vec<String> {
        let second =
            (self.rule_of(path, shape) == Rule::Adam).then(|| UpdateNames::second_moment(path));
        [UpdateNames::first_moment(path)]
            .into_iter()
            .chain(second)
            .chain(self.average.map(|_| UpdateNames::average(path)))
            .collect()
    }

    fn rule_of(&self, path: &str, shape: &Shape) -> Rule {
        let is_matrix = || {
            path.contains("layers.")
                && path.ends_with(".weight")
                && !["relative", "score."].iter().any(|part| path.contains(part))
        };
        if self.rule == Rule::Muon && !(shape.rank() == 2 && is_matrix()) {
            Rule::Adam
        } else {
            self.rule
        }
    }

    /// The graph of one step for the weights `learned`, given as paths with shapes; [`UpdateNames`]
    /// describes its inputs and outputs.
    ///
    /// # Errors
    /// If two weights have the same path.
    pub fn update(&self, learned: &[(&str, Shape)]) -> Result<Graph, Error> {
        self.graph(learned, false)
    }

    /// As [`Optimiser::update`], but nothing changes if the norm of the gradients is not finite.
    ///
    /// # Errors
    /// As of [`Optimiser::update`].
    pub fn update_if_finite(&self, learned: &[(&str, Shape)]) -> Result<Graph, Error> {
        self.graph(learned, true)
    }

    fn graph(&self, learned: &[(&str, Shape)], if_finite: bool) -> Result<Graph, Error> {
        let builder = Builder::new("update");
        let number = |name: &str| builder.input(name, DType::F32, Shape::default());
        let (rate, scale) =
            (number(UpdateNames::LEARNING_RATE), number(UpdateNames::GRADIENT_SCALE));
        let step =
            builder.input(UpdateNames::STEP, DType::I64, Shape::default()) + builder.integer(1);
        builder.output(&UpdateNames::next(UpdateNames::STEP), step);
        let gradients: Vec<_> = learned
            .iter()
            .map(|(path, shape)| {
                builder.input(&UpdateNames::gradient(path), DType::F32, shape.clone())
            })
            .collect();
        let squares: Vec<_> = gradients.iter().map(|&gradient| gradient * gradient).collect();
        let norm = norm(&builder, &squares) * scale;
        builder.output(UpdateNames::GRADIENT_NORM, norm);
        // Also false if the norm is NaN.
        let is_finite = if_finite.then(|| norm.less_or_equal(builder.scalar(f32::MAX)));
        let factor = self.clip_norm.map_or(scale, |limit| scale * shortening(norm, limit));
        let step = Step::of(self, &builder, step, rate, factor);
        for (((path, shape), gradient), square) in learned.iter().zip(gradients).zip(squares) {
            let _scope = builder.root().at(path).enter();
            let input = |name: &str| builder.input(name, DType::F32, shape.clone());
            let next = |name: &str, before: Tensor<'_>, value: Tensor<'_>| {
                let value = is_finite.map_or(value, |is_finite| is_finite.select(value, before));
                builder.output(&UpdateNames::next(name), value);
            };
            let names = self.state(path, shape);
            let moments: Vec<_> =
                names.iter().filter(|name| **name != UpdateNames::average(path)).collect();
            let before: Vec<_> = moments.iter().map(|name| input(name)).collect();
            let current = input(path);
            let (weight, after) =
                step.apply(self.rule_of(path, shape), current, &before, [gradient, square]);
            next(path, current, weight);
            for ((name, before), moment) in moments.into_iter().zip(before).zip(after) {
                next(name, before, moment);
            }
            if let Some(stays) = self.average {
                let name = UpdateNames::average(path);
                let average = input(&name);
                next(&name, average, average * stays as f32 + weight * (1.0 - stays) as f32);
            }
        }
        builder.finish()
    }
}

/// The norm of all gradients, from their squares.
fn norm<'g>(builder: &'g Builder, squares: &[Tensor<'g>]) -> Tensor<'g> {
    let _scope = builder.root().at("gradient_norm").enter();
    let sum = |square: &Tensor<'g>| {
        square.sum(&(0..square.ty().shape.rank()).collect::<Vec<_>>()).reshape([1])
    };
    let sums: Vec<_> = squares.iter().map(sum).collect();
    let total = if sums.is_empty() {
        builder.scalar(0.0)
    } else {
        cognate_graph::concat(0, &sums).sum(&[0]).reshape(Shape::default())
    };
    total.map(Unary::Sqrt)
}

/// The factor that clips gradients of this norm, as in `clip_grad_norm_` of PyTorch.
fn shortening(norm: Tensor<'_>, limit: f64) -> Tensor<'_> {
    let builder = norm.builder();
    let factor = builder.scalar(limit as f32) / (norm + 1e-6);
    let one = builder.scalar(1.0);
    // A norm that is NaN makes a factor that is NaN, which shows in the weights.
    one.less_or_equal(factor).select(one, factor)
}

/// Values that are common to all weights in one step, of shape `[]`.
struct Step<'g> {
    betas: [f64; 2],
    rate: Tensor<'g>,
    /// The factor of `g`.
    factor: Tensor<'g>,
    /// `r √(1 - β₂ᵗ) / (1 - β₁ᵗ)`
    length: Tensor<'g>,
    /// `ε √(1 - β₂ᵗ)`
    epsilon: Tensor<'g>,
    /// `1 - r λ`
    keeps: Option<Tensor<'g>>,
}

impl<'g> Step<'g> {
    fn of(
        optimiser: &Optimiser,
        builder: &'g Builder,
        step: Tensor<'g>,
        rate: Tensor<'g>,
        factor: Tensor<'g>,
    ) -> Self {
        let _scope = builder.root().at("step").enter();
        let count = step.cast(DType::F32);
        // `1 - βᵗ` without loss of precision where βᵗ is near 1:
        // `1 - e⁻²ˣ = 2 tanh x / (1 + tanh x)`.
        let weight = |beta: f64| {
            let tanh = (count * (-beta.ln() / 2.0) as f32).map(Unary::Tanh);
            (tanh + tanh) / (tanh + 1.0)
        };
        let [first, second] = optimiser.betas.map(weight);
        let root = second.map(Unary::Sqrt);
        Self {
            betas: optimiser.betas,
            rate,
            factor,
            length: rate * root / first,
            epsilon: root * optimiser.epsilon as f32,
            keeps: (optimiser.weight_decay != 0.0)
                .then(|| builder.scalar(1.0) - rate * optimiser.weight_decay as f32),
        }
    }

    /// The new weight and its new moments, from a gradient and its square.
    fn apply(
        &self,
        rule: Rule,
        weight: Tensor<'g>,
        moments: &[Tensor<'g>],
        [g, square]: [Tensor<'g>; 2],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let ([m, rest @ ..], [beta1, beta2]) = (moments, self.betas) else {
            unreachable!("every rule has a moment")
        };
        let gradient = |beta: f64| g * (self.factor * (1.0 - beta) as f32);
        let mean = |beta: f64| *m * beta as f32 + gradient(beta);
        let (change, moments) = match (rule, rest) {
            (Rule::Lion, _) => (sign(mean(beta1)) * self.rate, vec![mean(beta2)]),
            (Rule::Muon, _) => {
                let m = mean(MOMENTUM);
                let ahead = m * MOMENTUM as f32 + gradient(MOMENTUM);
                let larger = [0, 1]
                    .map(|axis| m.dim(axis).as_constant().unwrap_or(1))
                    .into_iter()
                    .max()
                    .unwrap_or(1);
                (orthogonal(ahead) * (self.rate * (0.2 * (larger as f32).sqrt())), vec![m])
            }
            (Rule::Adam, rest) => {
                let first = mean(beta1);
                let second = rest[0] * beta2 as f32
                    + square * (self.factor * self.factor * (1.0 - beta2) as f32);
                (
                    first * self.length / (second.map(Unary::Sqrt) + self.epsilon),
                    vec![first, second],
                )
            }
        };
        (self.keeps.map_or(weight, |keeps| weight * keeps) - change, moments)
    }
}

/// Muon's `μ`.
const MOMENTUM: f64 = 0.95;

/// -1, 0 or 1.
fn sign<'g>(x: Tensor<'g>) -> Tensor<'g> {
    let number = |value| x.builder().scalar(value);
    let is = |condition: Tensor<'g>| condition.select(number(1.0), number(0.0));
    is(number(0.0).less_or_equal(x)) - is(x.less_or_equal(number(0.0)))
}

/// A matrix with the singular vectors of `x` and singular values between about 0.7 and 1.2: five
/// Newton-Schulz iterations, `X ← a X + (b X Xᵀ + c (X Xᵀ)²) X` from `X = x / ‖x‖`.
fn orthogonal(x: Tensor<'_>) -> Tensor<'_> {
    let [a, b, c] = [3.4445, -4.775, 2.0315];
    let is_wide = x.dim(0).as_constant() <= x.dim(1).as_constant();
    let mut x = x / ((x * x).sum(&[0, 1]).map(Unary::Sqrt) + 1e-7);
    for _ in 0..5 {
        let gram = x.gemm(x, [!is_wide, is_wide]);
        let sum = gram * b + gram.gemm(gram, [false, false]) * c;
        x = x * a + if is_wide { sum.gemm(x, [false, false]) } else { x.gemm(sum, [false, false]) };
    }
    x
}
