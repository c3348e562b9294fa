//! The learned weights of a run: all, all except frozen ones, or low-rank adapters (LoRA, Hu et al.
//! 2022).
//!
//! `W' = W + α/r B A`, `W: [out, in]` frozen, `A: [r, in]` initially uniform in `±in^-½`,
//! `B: [out, r]` initially zero
//!
//! Checkpoints contain the merged weights `W'`.

use std::collections::HashSet;

use cognate_graph::{Builder, DType, Op, Program, Recipe, Type, Weights};
use cognate_model::Model;

use crate::batches::order::{Purpose, random};
use crate::config::{TrainingConfig, Tuning};
use crate::error::{Cause, Result};

/// The learned weights, by path in alphabetical order.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) paths: Vec<String>,
    adapters: Option<Adapters>,
}

#[derive(Clone, Debug)]
struct Adapters {
    /// The paths of the weights with adapters.
    of: HashSet<String>,
    rank: usize,
    /// `α/r`
    scale: f32,
    seed: u64,
}

impl Learned {
    /// All weights of a model.
    pub(super) fn all(model: &Model) -> Self {
        Self { paths: model.learned().map(str::to_owned).collect(), adapters: None }
    }

    /// The learned weights according to the settings.
    ///
    /// # Errors
    /// If a name matches no weight, or no weight is left.
    pub(super) fn new(config: &TrainingConfig, model: &Model) -> Result<Self> {
        let Tuning { freeze, lora_rank, lora_alpha, lora_targets } = &config.tuning;
        let Self { mut paths, .. } = Self::all(model);
        let unknown = |field: &str, name: &str| {
            let of = paths.iter().find(|path| path.contains("layers")).map_or("", String::as_str);
            Cause::Config(format!(
                "tuning.{field}: the model has no weight called {name:?}; its weights have names like {of:?}"
            ))
        };
        let begins = |path: &str, prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some(prefix) =
            freeze.iter().find(|prefix| !paths.iter().any(|path| begins(path, prefix)))
        {
            Err(unknown("freeze", prefix))?;
        }
        let is_target = |path: &str, target: &str| {
            path.strip_suffix(".weight").is_some_and(|path| path.rsplit('.').next() == Some(target))
        };
        let Some(rank) = *lora_rank else {
            paths.retain(|path| !freeze.iter().any(|prefix| begins(path, prefix)));
            if paths.is_empty() {
                Err(Cause::Config("tuning.freeze: leaves no weight to learn".into()))?;
            }
            return Ok(Self { paths, adapters: None });
        };
        if let Some(target) =
            lora_targets.iter().find(|target| !paths.iter().any(|path| is_target(path, target)))
        {
            Err(unknown("lora_targets", target))?;
        }
        let of: HashSet<String> = paths
            .into_iter()
            .filter(|path| lora_targets.iter().any(|target| is_target(path, target)))
            .collect();
        for path in &of {
            let shape = model.weights().get(path).map_or(&[][..], Recipe::shape);
            let [rows, columns] = *shape else {
                Err(Cause::Config(format!(
                    "tuning.lora_targets: {path} {shape:?} is no matrix; expected linear layers"
                )))?
            };
            if rank > rows.min(columns) {
                Err(Cause::Config(format!(
                    "tuning.lora_rank: expected at most {}, the smaller size of {path} {shape:?}, found {rank}",
                    rows.min(columns)
                )))?;
            }
        }
        let mut paths: Vec<String> = of.iter().flat_map(|path| adapters(path)).collect();
        paths.sort_unstable();
        let scale = (lora_alpha / rank as f64) as f32;
        Ok(Self { paths, adapters: Some(Adapters { of, rank, scale, seed: config.seed }) })
    }

    /// The program with adapters added to the weights.
    pub(super) fn adapt(&self, program: Program) -> Result<Program> {
        let Some(Adapters { of, rank, scale, seed }) = &self.adapters else { return Ok(program) };
        let builder = Builder::new(program.graph().name());
        let mut values = Vec::new();
        let mut weights: Vec<(String, Recipe)> = program
            .weights()
            .iter()
            .map(|(path, recipe)| (path.to_owned(), recipe.clone()))
            .collect();
        for (_, node) in program.graph().iter() {
            let value = match &node.op {
                Op::Input => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
                Op::Parameter => builder.parameter(&node.name, node.ty.clone()),
                op => builder.node(
                    &node.name,
                    op.clone(),
                    &node.inputs.iter().map(|input| values[input.index()]).collect::<Vec<_>>(),
                ),
            };
            let adapted = matches!(node.op, Op::Parameter) && of.contains(&node.name);
            values.push(if adapted {
                let _scope = builder.root().at(&node.name).enter();
                let shape =
                    program.weights().get(&node.name).expect("a parameter is a weight").shape();
                let [(a, a_recipe), (b, b_recipe)] =
                    initial(&node.name, [shape[0], shape[1]], *rank, *seed)?;
                let [left, right] = [(&b, &b_recipe), (&a, &a_recipe)].map(|(path, recipe)| {
                    builder
                        .parameter(path, Type { dtype: DType::F32, shape: recipe.shape().into() })
                });
                weights.extend([(a, a_recipe), (b, b_recipe)]);
                value + left.gemm(right, [false, false]) * *scale
            } else {
                value
            });
        }
        for output in program.graph().outputs() {
            builder.output(&output.name, values[output.node.index()]);
        }
        drop(values);
        Ok(Program::new(builder.finish()?, weights.into_iter().collect())?)
    }

    /// The changed weights of a model.
    pub(super) fn merge(&self, model: &Model, learned: &Weights) -> Result<Vec<(String, Recipe)>> {
        let Some(Adapters { of, rank, scale, .. }) = &self.adapters else {
            return Ok(learned
                .iter()
                .map(|(path, recipe)| (path.to_owned(), recipe.clone()))
                .collect());
        };
        let merged = |path: &String| {
            let weight = model.weights().get(path).expect("it was found before");
            let [a, b] = adapters(path)
                .map(|name| learned.get(&name).map(Recipe::values::<f32>).unwrap_or_default());
            let [_, width] = weight.shape() else {
                unreachable!("a linear layer's weight is a matrix")
            };
            let mut values = weight.values::<f32>();
            for (row, b) in values.chunks_exact_mut(*width).zip(b.chunks_exact(*rank)) {
                for (a, b) in a.chunks_exact(*width).zip(b) {
                    row.iter_mut().zip(a).for_each(|(value, a)| *value += scale * b * a);
                }
            }
            Ok((path.clone(), Recipe::held(&values, weight.shape())?))
        };
        of.iter().map(merged).collect()
    }
}

/// The paths of `A` and `B` of a weight.
fn adapters(path: &str) -> [String; 2] {
    ["lora_A", "lora_B"].map(|name| format!("{}.{name}.weight", path.trim_end_matches(".weight")))
}

/// The initial `A` and `B` with their paths.
fn initial(
    path: &str,
    [out, width]: [usize; 2],
    rank: usize,
    seed: u64,
) -> Result<[(String, Recipe); 2]> {
    let hash = blake3::hash(path.as_bytes());
    let stream = u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"));
    let mut random = random(Purpose::Adapters, seed, stream, 0);
    let bound = (width as f64).powf(-0.5);
    let a: Vec<f32> = (0..rank * width)
        .map(|_| (((random() >> 11) as f64 / (1u64 << 52) as f64 - 1.0) * bound) as f32)
        .collect();
    let [a_path, b_path] = adapters(path);
    Ok([
        (a_path, Recipe::held(&a, &[rank, width])?),
        (b_path, Recipe::held(&vec![0.0; out * rank], &[out, rank])?),
    ])
}
