//! `cognate export --precision`: the graphs in the type that is asked for, and what stays f32.

use super::Options;
use crate::account::{Account, KeptAccount};
use crate::source::ModelSource;
use crate::{messages, verify};
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_generate::{SCALE, Settings};
use cognate_graph::{Bits, Blocks, Program, Steps};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use cognate_passes::quantize::{self, quantize};
use cognate_verify::{CLOSE, Calibration, Form, HALF, QUANTISED, QUANTISED_4, Sample, StepsReport, Tolerance, in_half};
use std::io::{self, IsTerminal, Write};

/// Weights that share a scale, unless another size is asked for.
pub(super) const BLOCK_SIZE: usize = 32;
/// The output whose layer has 8 bits in any case.
const LOGITS: &str = "logits";

/// The type of weights and values; in the Cognate layout also of keys and values that pass from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// Single precision
    #[default]
    F32,
    /// Half precision, where values fit: measured on translations and random batches, with the rest in f32
    F16,
    /// Layers in 8-bit integers, activations rounded row by row: a translation does not depend on others in its batch
    Int8,
    /// Layers in 8-bit integers, activations rounded batch by batch: faster, and a translation depends on others in its batch
    Int8Tensor,
    /// Layers in 8-bit integers, weights and activations rounded block by block, for --target ort: nearer to f32 than int8, and slower
    /// on batches
    Int8Block,
    /// As int8-block, with weights of 4 bits but for the output's: the smallest, and the fastest on single sentences; slow on batches
    Int4,
}

impl Precision {
    /// All of them.
    const ALL: [Precision; 6] =
        [Precision::F32, Precision::F16, Precision::Int8, Precision::Int8Tensor, Precision::Int8Block, Precision::Int4];

    /// The precision of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }

    /// Whether weights are integers.
    pub(crate) fn is_quantised(self) -> bool {
        match self {
            Precision::F32 | Precision::F16 => false,
            Precision::Int8 | Precision::Int8Tensor | Precision::Int8Block | Precision::Int4 => true,
        }
    }

    /// The bits of layers whose weights are rounded block by block.
    pub(crate) fn block_bits(self) -> Option<Bits> {
        match self {
            Precision::Int8Block => Some(Bits::Eight),
            Precision::Int4 => Some(Bits::Four),
            Precision::F32 | Precision::F16 | Precision::Int8 | Precision::Int8Tensor => None,
        }
    }

    /// The bound on errors in this precision.
    pub(crate) fn tolerance(self) -> Tolerance {
        match self {
            Precision::F32 => CLOSE,
            Precision::F16 => HALF,
            Precision::Int8 | Precision::Int8Tensor | Precision::Int8Block => QUANTISED,
            Precision::Int4 => QUANTISED_4,
        }
    }

    /// As the command line and `cognate.json` call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Int8 => "int8",
            Precision::Int8Tensor => "int8-tensor",
            Precision::Int8Block => "int8-block",
            Precision::Int4 => "int4",
        }
    }
}

/// The graphs of the layout that is asked for.
pub(super) struct Graphs {
    pub(super) encoder: Program,
    pub(super) decoder: Program,
    pub(super) kept_in_f32: Vec<KeptAccount>,
    pub(super) calibration: Option<Calibration>,
}

/// The graphs of `model`, which `source` named, in the precision that is asked for.
pub(super) fn graphs(options: &Options, source: &ModelSource, model: &Model, layout: Layout, attentions: Attentions) -> Result<Graphs> {
    match options.precision {
        Precision::F32 => {
            let [encoder, decoder] = crate::layout::programs(model, layout, attentions)?;
            Ok(Graphs { encoder, decoder, kept_in_f32: Vec::new(), calibration: None })
        }
        Precision::F16 if layout == Layout::SharedCache => {
            bail!("--precision f16: ONNX Runtime's attention to shared caches computes in f32; leave out --target ort")
        }
        Precision::F16 => half(options, source, model, layout, attentions),
        Precision::Int8 => in_integers(model, layout, attentions, columns(layout, Steps::Row)),
        Precision::Int8Tensor => in_integers(model, layout, attentions, columns(layout, Steps::Tensor)),
        Precision::Int8Block => in_integers(model, layout, attentions, blocks(options, Bits::Eight)),
        Precision::Int4 => in_integers(model, layout, attentions, blocks(options, Bits::Four)),
    }
}

fn columns(layout: Layout, steps: Steps) -> quantize::Options<'static> {
    quantize::Options::Columns { steps, unscaled: (layout == Layout::SharedCache).then_some([LOGITS, SCALE]) }
}

/// Weights that share a scale, in a precision that rounds in blocks.
pub(super) fn block_size(options: &Options) -> Option<usize> {
    options.precision.block_bits().map(|_| options.block_size.unwrap_or(BLOCK_SIZE))
}

fn blocks(options: &Options, bits: Bits) -> quantize::Options<'static> {
    quantize::Options::Blocks { blocks: Blocks { bits, size: block_size(options).unwrap_or(BLOCK_SIZE) }, output: LOGITS }
}

fn in_integers(model: &Model, layout: Layout, attentions: Attentions, options: quantize::Options<'_>) -> Result<Graphs> {
    let [encoder, decoder] = model.graphs(layout, attentions)?;
    let programs = quantize(&[&fuse(&encoder)?, &fuse(&decoder)?], options)?;
    let [encoder, decoder] = <[Program; 2]>::try_from(programs).expect("as many programs as were given");
    Ok(Graphs { encoder, decoder, kept_in_f32: Vec::new(), calibration: None })
}

fn half(options: &Options, source: &ModelSource, model: &Model, layout: Layout, attentions: Attentions) -> Result<Graphs> {
    let folder = match source {
        ModelSource::Checkpoint(folder) => Some(folder),
        ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => None,
    };
    let generation = folder.map(|folder| crate::layout::read_if_there(&folder.join(crate::layout::GENERATION))).transpose()?.flatten();
    let mut settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    let [held_out, sentences] = match folder {
        Some(folder) => verify::sentences(folder, model.config(), &options.languages, &mut settings)?,
        None => [Vec::new(), Vec::new()],
    };
    let is_watched = io::stderr().is_terminal();
    let form = Form { layout, attentions };
    let made = in_half(model, form, &Sample { sentences, held_out, settings, seed: verify::SEED }, |stage| {
        if is_watched {
            messages::note(format_args!("measuring: {stage}"));
        }
    })?;
    let (kept_in_f32, calibration) = (KeptAccount::of(&made.kept), Some(made.calibration));
    Ok(Graphs { encoder: made.encoder, decoder: made.decoder, kept_in_f32, calibration })
}

/// Kinds of operations that are told at once; `cognate show` tells all.
const TOLD: usize = 6;

/// Says what stayed f32, and what that is worth.
pub(super) fn report(account: &Account, out: &mut dyn Write) -> Result<()> {
    let kept = &account.kept_in_f32;
    let places: usize = kept.iter().map(|kept| kept.places).sum();
    writeln!(out, "in f16, with {places} operations and weights in f32:")?;
    for kept in kept.iter().take(TOLD) {
        writeln!(out, "  {kept}")?;
    }
    if let Some(more @ 1..) = kept.len().checked_sub(TOLD) {
        writeln!(out, "  and {more} more kinds; `cognate show` lists them")?;
    }
    let Some(calibration) = &account.calibration else { return Ok(()) };
    writeln!(out, "  {calibration}")?;
    if let Some(warning) = warning(calibration) {
        messages::warning(format_args!("{warning}"));
    }
    Ok(())
}

/// What f16 does not reach, if so.
fn warning(calibration: &Calibration) -> Option<String> {
    let steps = |what: &str, StepsReport { steps, equal, wanted }: StepsReport| {
        format!("{equal} of {steps} greedy steps of {what} choose the token that f32 chooses, fewer than {wanted}")
    };
    if calibration.gave_up() {
        let found = steps("the sentences it was tuned on", calibration.tuned);
        return Some(format!("f16 is not precise enough for this model: with both stacks in f32, {found}; f32 loses nothing"));
    }
    let found = Some(calibration.held_out).filter(|held_out| !held_out.passed());
    found.map(|held_out| format!("f16: {}; measure it with --data on a text of your own", steps("sentences it was not tuned on", held_out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_verify::Caution;

    #[test]
    fn what_f16_does_not_reach_is_told() {
        let steps = |equal| StepsReport { steps: 100, equal, wanted: 99 };
        let told = |tuned, held_out| {
            let calibration = Calibration { caution: Caution::Stacks, tuned: steps(tuned), held_out: steps(held_out) };
            (calibration.to_string(), warning(&calibration).unwrap_or_default())
        };
        let stacks = "both stacks and the output in f32 for precision";
        for (tuned, held_out, shown, warned) in [
            (99, 99, "99 of 100 greedy steps equal in the sentences it was tuned on, 99 of 100 in others", ""),
            (
                99,
                98,
                "99 of 100 greedy steps equal in the sentences it was tuned on, 98 of 100 in others  LOW",
                "f16: 98 of 100 greedy steps of sentences it was not tuned on choose the token that f32 chooses, fewer than 99; measure it with \
                 --data on a text of your own",
            ),
            (
                90,
                98,
                "GAVE UP: 90 of 100 greedy steps equal in the sentences it was tuned on, 98 of 100 in others  LOW",
                "f16 is not precise enough for this model: with both stacks in f32, 90 of 100 greedy steps of the sentences it was tuned on \
                 choose the token that f32 chooses, fewer than 99; f32 loses nothing",
            ),
        ] {
            assert_eq!(told(tuned, held_out), (format!("{stacks}: {shown}"), warned.to_owned()));
        }
    }
}
