//! Writing the graphs of a layout and their weights.

use crate::Result;
use cognate_export::{Additions, Export, Folder, LAYOUT_KEY, LooseAxis, Metadata, Target};
use cognate_graph::Program;
use cognate_model::{Attentions, Config, HuggingFaceNames, Layout, Model, Parts};
use cognate_passes::fuse::fuse;
use std::collections::BTreeMap;

/// The weights file that the graphs of the Cognate layout share.
pub const WEIGHTS: &str = "weights.onnx_data";

/// The graph that decodes beside the graphs of [`Layout::HuggingFace`]; its weights are in
/// `FILE_data`.
pub const GENERATE_BESIDE: &str = "onnx/generate.onnx";

/// The graph of texts beside that of [`Layout::Generate`], with whose weights it runs.
pub const GENERATE_TEXT: &str = "generate_text.onnx";

/// The computed weights of an export in place.
pub const GENERATED: &str = "generated.onnx_data";

/// The graphs of a layout in f32, with joined linear layers for ONNX Runtime's layout; of
/// [`Layout::Generate`] its two parts.
///
/// # Errors
/// If a graph cannot be built.
pub fn f32_programs(model: &Model, layout: Layout, attentions: Attentions) -> Result<Vec<Program>> {
    let graphs = model.programs(layout, attentions)?;
    match layout {
        Layout::Cognate | Layout::HuggingFace | Layout::Generate | Layout::Triton => Ok(graphs),
        Layout::SharedCache => Ok(graphs.iter().map(fuse).collect::<Result<_, _>>()?),
    }
}

/// Writes the graphs of a layout and their weights.
///
/// # Errors
/// If a file cannot be written.
pub fn write_programs(
    programs: &[Program],
    layout: Layout,
    config: &Config,
    name: &str,
    folder: &mut Folder,
) -> Result<()> {
    let files = layout.files_of(config.parts);
    let metadata = metadata(layout, config.parts, name);
    match layout {
        Layout::Cognate | Layout::SharedCache | Layout::Generate => {
            let graphs: Vec<_> = files.into_iter().zip(programs).collect();
            let target = if layout == Layout::SharedCache { Target::Ort } else { Target::Portable };
            Export { target, ..Export::new(&graphs, WEIGHTS, &metadata) }.write(folder)?;
        }
        Layout::HuggingFace | Layout::Triton => {
            // The decoder is the last.
            let last = files.len() - 1;
            for (index, (file, program)) in files.into_iter().zip(programs).enumerate() {
                let loose = loose_pasts(config).filter(|_| index == last);
                // In a browser transformers.js fetches only this file.
                let weights_file = format!("{file}_data");
                Export { loose, ..Export::new(&[(file, program)], &weights_file, &metadata) }
                    .write(folder)?;
            }
        }
    }
    Ok(())
}

/// Writes the program of [`Layout::Generate`] beside the graphs of [`Layout::HuggingFace`].
///
/// # Errors
/// If a file cannot be written.
pub fn write_beside(
    program: &Program,
    config: &Config,
    name: &str,
    folder: &mut Folder,
) -> Result<()> {
    let metadata = metadata(Layout::Generate, config.parts, name);
    Ok(Export::new(&[(GENERATE_BESIDE, program)], &format!("{GENERATE_BESIDE}_data"), &metadata)
        .write(folder)?)
}

/// Writes the graphs of a layout into the folder of a checkpoint, to whose weights they refer.
///
/// # Errors
/// If a graph cannot be built, or a file cannot be written.
pub fn write_graphs_in_place(
    programs: &[Program],
    layout: Layout,
    config: &Config,
    name: &str,
    folder: &mut Additions,
) -> Result<()> {
    let metadata = metadata(layout, config.parts, name);
    let graphs: Vec<_> = layout.files_of(config.parts).into_iter().zip(programs).collect();
    Ok(Export::new(&graphs, GENERATED, &metadata).write_in_place(folder)?)
}

/// `config.json` for a folder of this layout.
pub fn config_json(model: &Model, layout: Layout) -> String {
    let text = model.config_json();
    match (layout, text.trim_end().strip_suffix('}')) {
        // Without it a browser looks for quantised graphs with embedded weights. The dtype selects
        // the ending of the file name, which is empty, also in f16, because Optimum expects these
        // names.
        (Layout::HuggingFace, Some(open)) if !text.contains("\"transformers.js_config\"") => {
            format!(
                "{},\n  \"transformers.js_config\": {{ \"dtype\": \"fp32\", \"use_external_data_format\": true }}\n}}\n",
                open.trim_end()
            )
        }
        _ => text.to_owned(),
    }
}

fn metadata(layout: Layout, parts: Parts, name: &str) -> Metadata {
    let names: Vec<_> =
        layout.files().iter().map(|file| file.strip_prefix("onnx/").unwrap_or(file)).collect();
    let doc = match (parts, names.as_slice()) {
        (Parts::Both, [encoder, decoder]) => format!(
            "An encoder-decoder Transformer, exported from {name}: {encoder} runs once, {decoder} once for each new token, \
             from a past of length 0 on."
        ),
        (Parts::Both, _) => format!(
            "An encoder-decoder Transformer with its search, exported from {name}: one call decodes a batch."
        ),
        (Parts::Encoder(_), _) => format!("The encoder of a Transformer, exported from {name}."),
        (Parts::Decoder, _) if layout == Layout::SharedCache => {
            format!(
                "A decoder-only Transformer, exported from {name}: run once for each token, with caches that are written in place."
            )
        }
        (Parts::Decoder, _) => {
            format!(
                "A decoder-only Transformer, exported from {name}: run once for a prompt, then for each new token, from a past of length 0 on."
            )
        }
    };
    Metadata { doc, properties: BTreeMap::from([(LAYOUT_KEY.into(), layout.name().into())]) }
}

/// The pasts whose initial size is wrong in Optimum, which assumes heads of `d_model / heads`.
fn loose_pasts(config: &Config) -> Option<LooseAxis<'static>> {
    let is_as_optimum_expects = config.decoder.heads * config.decoder.d_k == config.d_model;
    (!is_as_optimum_expects && config.require_decoder().is_ok())
        .then_some(LooseAxis { inputs: HuggingFaceNames::PAST, name: "head_size" })
}
