//! `cognate export --precision`: the graphs in the type that is asked for, and what stays f32.

use super::Options;
use crate::account::KeptAccount;
use crate::source::ModelSource;
use crate::{layout, messages, verify};
use anyhow::Result;
use clap::ValueEnum;
use cognate_generate::Settings;
use cognate_graph::Program;
use cognate_model::{Attentions, Model};
use cognate_verify::{Form, Sample, in_half};
use std::io::{self, IsTerminal, Write};

/// The type of weights and values; in the Cognate layout also of keys and values that pass from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// Single precision
    #[default]
    F32,
    /// Half precision, where values fit: measured on translations and random batches, with the rest in f32
    F16,
}

impl Precision {
    /// As the command line and `cognate.json` call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
        }
    }
}

/// The graphs of the layout that is asked for.
pub(super) struct Graphs {
    pub(super) encoder: Program,
    pub(super) decoder: Program,
    pub(super) kept_in_f32: Vec<KeptAccount>,
}

/// The graphs of `model`, which `source` named, in the precision that is asked for.
pub(super) fn graphs(options: &Options, source: &ModelSource, model: &Model, attentions: Attentions) -> Result<Graphs> {
    if options.precision == Precision::F32 {
        let [encoder, decoder] = model.graphs(options.layout, attentions)?;
        return Ok(Graphs { encoder, decoder, kept_in_f32: Vec::new() });
    }
    let folder = match source {
        ModelSource::Checkpoint(folder) => Some(folder),
        ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => None,
    };
    let generation = folder.map(|folder| layout::read_if_there(&folder.join(layout::GENERATION))).transpose()?.flatten();
    let mut settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    let sentences = match folder {
        Some(folder) => verify::sentences(folder, model.config(), &options.languages, &mut settings)?,
        None => Vec::new(),
    };
    let is_watched = io::stderr().is_terminal();
    let form = Form { layout: options.layout, attentions };
    let made = in_half(model, form, &Sample { sentences, settings, seed: verify::SEED }, |stage| {
        if is_watched {
            messages::note(format_args!("measuring: {stage}"));
        }
    })?;
    Ok(Graphs { kept_in_f32: KeptAccount::of(&made.kept), encoder: made.encoder, decoder: made.decoder })
}

/// Kinds of operations that are told at once; `cognate show` tells all.
const TOLD: usize = 6;

/// Says what stayed f32.
pub(super) fn report(kept: &[KeptAccount], out: &mut dyn Write) -> Result<()> {
    let places: usize = kept.iter().map(|kept| kept.places).sum();
    writeln!(out, "in f16, with {places} operations and weights in f32:")?;
    for kept in kept.iter().take(TOLD) {
        writeln!(out, "  {kept}")?;
    }
    if let Some(more @ 1..) = kept.len().checked_sub(TOLD) {
        writeln!(out, "  and {more} more kinds; `cognate show` lists them")?;
    }
    Ok(())
}
