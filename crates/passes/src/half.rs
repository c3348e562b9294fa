//! Half precision: f16 where values fit into it, f32 where they do not.
//!
//! An f16 has 11 bits of precision and a maximum of 65,504. Products, sums and tables become f16.
//! These remain f32:
//!
//! - normalisations and softmax, whose sums need the precision, with casts around them, unless the
//!   engine's compute in f32 anyway;
//! - values measured near or beyond the limit, and operations on them;
//! - masks: constants beyond the limit, and arithmetic on them up to the softmax;
//! - weights beyond the limit; inputs and outputs that callers keep in f32.
//!
//! The caller measures the ranges of values by running the program. A value that was not measured
//! stays f32. Each weight is read once, piece by piece.
//!
//! ```
//! use cognate_graph::{Builder, DType, Program, Weights};
//! use cognate_passes::half::{Facts, Why, half};
//!
//! let builder = Builder::new("norm");
//! let x = builder.input("x", DType::F32, ["rows", "width"]);
//! let large = builder.input("large", DType::F32, ["rows", "width"]);
//! builder.output("y", (x + x) * large);
//! let program = Program::new(builder.finish()?, Weights::default())?;
//! // A run measured values up to 3, and up to 40,000 in `large`, whose quadruple exceeds f16.
//! let seen = |_, node: &str| Some(if node == "large" || node == "Mul" { 4e4 } else { 3.0 });
//! let facts = Facts { seen: &seen, interface: &|value| Some(value.to_string()), keep: &|_, _| false, computes_in_f32: false };
//! let made = half(&[&program], facts)?;
//! let graph = made.programs[0].graph();
//! assert_eq!(graph.inputs().map(|(_, node)| node.ty.dtype).collect::<Vec<_>>(), [DType::F16, DType::F32]);
//! assert_eq!(made.kept.iter().map(|kept| (kept.node.as_str(), kept.why)).collect::<Vec<_>>(), [("large", Why::Range), ("Mul", Why::Range), ("y", Why::Range)]);
//! # Ok::<(), cognate_graph::Error>(())
//! ```

mod plan;
mod rewrite;

use cognate_graph::{Error, Program};
use plan::Plan;
use std::collections::BTreeMap;

/// The largest finite f16.
pub const LARGEST: f32 = 65_504.0;

/// The factor by which a value may exceed its measured magnitude and still fit.
pub const MARGIN: f32 = 4.0;

/// Programs in half precision.
#[derive(Clone, Debug)]
pub struct Half {
    /// One for each given program, with the same inputs and outputs.
    pub programs: Vec<Program>,
    /// The nodes that stay f32, in the order of the programs and their nodes; a shared weight is
    /// listed once.
    pub kept: Vec<Kept>,
}

/// A node that stays f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The number of the program.
    pub program: usize,
    /// The node's name, the parameter's path, or the name of an input or output.
    pub node: String,
    /// The reason.
    pub why: Why,
    /// The largest measured magnitude, if any.
    pub largest: Option<f32>,
}

/// The reason why a node stays f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Measured values are within [`MARGIN`] of f16's limit, or beyond it.
    Range,
    /// A weight has values beyond f16's limit.
    Weight,
    /// It reads values that f16 cannot represent, or belongs to a group with such values.
    Reads,
    /// In f16, the error of the results would be too large.
    Precision,
    /// Its values were not measured.
    Unseen,
    /// A constant beyond f16's limit contributes to it, as in masks.
    Mask,
    /// A softmax, whose sums need more precision than f16 has.
    Softmax,
    /// A normalisation, whose sums need more precision and range than f16 has.
    Normalisation,
}

/// The facts that the caller knows about the programs. A node is identified by the number of its
/// program and its name.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The largest measured magnitude of a node.
    pub seen: &'a dyn Fn(usize, &str) -> Option<f32>,
    /// The group of an input or output that may become f16; `None` for one that stays f32. A group
    /// is converted as a whole or not at all, for instance an output of one program and the input
    /// of another that reads it.
    pub interface: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a node must stay f32 for precision.
    pub keep: &'a dyn Fn(usize, &str) -> bool,
    /// Whether the engine's normalisations and softmax compute in f32 even if they read and write
    /// f16. Then they do, and a mask's constant is the smallest f16.
    pub computes_in_f32: bool,
}

/// Converts programs that are used together. A weight of several programs has the same type in all.
///
/// # Errors
/// If a program is not in f32.
pub fn half(programs: &[&Program], facts: Facts<'_>) -> Result<Half, Error> {
    let Facts { seen, interface, keep, computes_in_f32 } = facts;
    let mut weights = plan::WeightRanges::default();
    let mut groups: BTreeMap<String, bool> = BTreeMap::new();
    let mut ranges = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        let found = plan::ranges(program, |name| seen(number, name), &mut weights, computes_in_f32);
        for (name, fits) in plan::interface_values(program.graph(), &found) {
            if let Some(group) = interface(name) {
                *groups.entry(group).or_insert(true) &= fits;
            }
        }
        ranges.push(found);
    }
    let may = |name: &str| interface(name).is_some_and(|group| groups[&group]);
    let plans = programs.iter().zip(&ranges).enumerate().map(|(number, (program, ranges))| {
        Plan::of(program.graph(), ranges, may, |name| keep(number, name), computes_in_f32)
    });
    let plans: Vec<_> = plans.collect();
    let mut kept: Vec<Kept> = Vec::new();
    for (number, (program, (plan, ranges))) in
        programs.iter().zip(plans.iter().zip(&ranges)).enumerate()
    {
        let found = plan.kept(program.graph(), ranges, interface, may);
        for (node, why, largest) in found {
            if why != Why::Weight || !kept.iter().any(|known| known.node == node) {
                kept.push(Kept { program: number, node, why, largest });
            }
        }
    }
    let in_half = plans
        .iter()
        .zip(programs)
        .flat_map(|(plan, program)| plan.half_parameters(program.graph()))
        .collect();
    let programs = programs
        .iter()
        .zip(&plans)
        .map(|(program, plan)| rewrite::rewrite(program, plan, &in_half, may));
    Ok(Half { programs: programs.collect::<Result<_, _>>()?, kept })
}
