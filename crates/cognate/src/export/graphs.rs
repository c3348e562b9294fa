//! The graphs of an export in its precision, and the nodes that stay f32.

use super::{Export, ExportEvent};
use crate::sentences::{self, Encoded};
use cognate_folder::{
    Calibration, GENERATION_CONFIG, KeptInF32, ModelSource, Precision, f32_programs, read_if_there,
};
use cognate_generate::{SearchLimits, Settings, search_program};
use cognate_graph::{Bits, Blocks, Program, Steps};
use cognate_model::Layout;
use cognate_model::interface::{LOGITS, LOGITS_SCALE};
use cognate_passes::bfloat16::in_bfloat16;
use cognate_passes::equalize::equalize;
use cognate_passes::fuse::fuse;
use cognate_passes::quantize::{self, quantize};
use cognate_pipeline::{Error, ErrorKind, Notice, Result};
use cognate_verify::{Form, Sample, encoder_in_half, in_half};

/// The number of weights that share a scale, if none is chosen.
pub(super) const BLOCK_SIZE: usize = 32;

/// The numbers of weights that can share a scale.
pub(super) const BLOCK_SIZES: [usize; 4] = [16, 32, 64, 128];

/// The graphs of a layout in a precision.
pub(super) struct Graphs {
    /// In the order of [`Layout::files_of`].
    pub(super) programs: Vec<Program>,
    pub(super) kept_in_f32: Vec<KeptInF32>,
    pub(super) calibration: Option<Calibration>,
    pub(super) notices: Vec<Notice>,
}

impl From<Vec<Program>> for Graphs {
    fn from(programs: Vec<Program>) -> Self {
        Self { programs, kept_in_f32: Vec::new(), calibration: None, notices: Vec::new() }
    }
}

/// The graphs of an export, whose `generation_config.json` is `generation`.
pub(super) fn graphs(
    export: &Export,
    layout: Layout,
    generation: Option<&str>,
    events: &mut dyn FnMut(ExportEvent<'_>),
) -> Result<Graphs> {
    let mut graphs = parts(export, layout, events)?;
    graphs.programs = joined(export, layout, graphs.programs, generation)?;
    Ok(graphs)
}

/// The programs of a layout, those of [`Layout::Generate`] joined to one.
pub(super) fn joined(
    export: &Export,
    layout: Layout,
    programs: Vec<Program>,
    generation: Option<&str>,
) -> Result<Vec<Program>> {
    let (model, sizes) = (&export.model, export.sizes(layout)?);
    let (Layout::Generate, [encoder, step]) = (layout, programs.as_slice()) else {
        return Ok(programs);
    };
    let settings = Settings::from_json(model.config_json(), generation, model.config())?;
    let limits = SearchLimits { positions: model.config().max_positions, sizes };
    Ok(vec![search_program([encoder, step], &settings, limits)?])
}

fn parts(
    export: &Export,
    layout: Layout,
    events: &mut dyn FnMut(ExportEvent<'_>),
) -> Result<Graphs> {
    let blocks = |bits| {
        let size = export.block_size.unwrap_or(BLOCK_SIZE);
        in_integers(
            export,
            layout,
            quantize::Options::Blocks { blocks: Blocks { bits, size }, output: LOGITS },
        )
    };
    let columns = |steps| {
        let unscaled = (layout == Layout::SharedCache
            && export.model.config().require_decoder().is_ok())
        .then_some([LOGITS, LOGITS_SCALE]);
        in_integers(export, layout, quantize::Options::Columns { steps, unscaled })
    };
    match export.precision {
        Precision::F32 => {
            Ok(f32_programs(&export.model, layout, export.attention_outputs(layout))?.into())
        }
        Precision::F16 => half(export, layout, events),
        Precision::Bf16 => Ok(bfloat16(export, layout)?.into()),
        Precision::Int8 => columns(Steps::Row),
        Precision::Int8Tensor => columns(Steps::Tensor),
        Precision::Int8Block => blocks(Bits::Eight),
        Precision::Int4 => blocks(Bits::Four),
    }
}

fn bfloat16(export: &Export, layout: Layout) -> Result<Vec<Program>> {
    let programs = export.model.programs(layout, export.attention_outputs(layout))?;
    let made =
        programs.iter().map(|program| in_bfloat16(&fuse(program)?)).collect::<Result<Vec<_>, _>>();
    Ok(made.map_err(cognate_model::Error::from)?)
}

fn in_integers(export: &Export, layout: Layout, options: quantize::Options<'_>) -> Result<Graphs> {
    let programs = export.model.programs(layout, export.attention_outputs(layout))?;
    let prepare = |program: &Program| match options {
        quantize::Options::Columns { .. } => equalize(&fuse(program)?),
        // In blocks a weight shares its integers with the table of tokens.
        quantize::Options::Blocks { .. } => fuse(program),
    };
    let fused = programs
        .iter()
        .map(prepare)
        .collect::<Result<Vec<_>, _>>()
        .map_err(cognate_model::Error::from)?;
    let failed = |error| Error::new(ErrorKind::Engine, error);
    Ok(quantize(&fused.iter().collect::<Vec<_>>(), options).map_err(failed)?.into())
}

fn half(
    export: &Export,
    layout: Layout,
    events: &mut dyn FnMut(ExportEvent<'_>),
) -> Result<Graphs> {
    let model = &export.model;
    if layout == Layout::SharedCache && model.config().require_both().is_err() {
        let message =
            "target ort has f16 only for encoder-decoder models on a GPU; leave out target ort";
        return Err(Error::wrong_option("precision", message));
    }
    if model.config().require_decoder().is_err() {
        let sentences = match &export.source {
            ModelSource::Checkpoint(folder) => {
                sentences::encode_alone(folder, model.config())?.tuning
            }
            ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => Vec::new(),
        };
        let form = Form { layout, attentions: export.attention_outputs(layout) };
        let (program, kept) = encoder_in_half(model, form, &sentences, sentences::SEED)?;
        return Ok(Graphs { kept_in_f32: KeptInF32::of(&kept), ..vec![program].into() });
    }
    let folder = match &export.source {
        ModelSource::Checkpoint(folder) => Some(folder),
        ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => None,
    };
    let generation =
        folder.map(|folder| read_if_there(&folder.join(GENERATION_CONFIG))).transpose()?.flatten();
    let mut settings =
        Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    let encoded = match folder {
        Some(folder) => {
            sentences::encode(folder, model.config(), &export.languages, &mut settings)?
        }
        None => Encoded { verification: Vec::new(), tuning: Vec::new(), notices: Vec::new() },
    };
    let form = Form { layout, attentions: export.attention_outputs(layout) };
    let sample = Sample {
        sentences: encoded.tuning,
        held_out: encoded.verification,
        settings,
        seed: sentences::SEED,
        cancellation: export.cancellation.clone(),
    };
    let made = in_half(model, form, &sample, |stage| events(ExportEvent::Stage(stage)))?;
    let (kept_in_f32, calibration) = (KeptInF32::of(&made.kept), Some(made.calibration));
    Ok(Graphs { kept_in_f32, calibration, notices: encoded.notices, ..made.programs.into() })
}
