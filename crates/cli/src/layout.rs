//! What the folders of an export hold: the files of both layouts, and who writes them.

use crate::account;
use anyhow::{Context, Result, bail};
use cognate_export::{Additions, Export, Folder, LooseAxis, Metadata, Target};
use cognate_graph::Program;
use cognate_model::{Attentions, Config, Layout, Model, read_text};
use cognate_passes::fuse::fuse;
use cognate_runtime::Device;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The weights file that both graphs of the Cognate layout share.
pub(crate) const WEIGHTS: &str = "weights.onnx_data";
/// Weights that a formula gives, beside a checkpoint that holds the others.
pub(crate) const GENERATED: &str = "generated.onnx_data";
pub(crate) const CONFIG: &str = "config.json";
pub(crate) const GENERATION: &str = "generation_config.json";

/// The layout of the export in `folder`, if there is one.
pub(crate) fn of(folder: &Path) -> Option<Layout> {
    let with = |which: usize| Layout::ALL.into_iter().find(|layout| folder.join(layout.files()[which]).exists());
    // Decoders have names of their own; where one is missing, the encoder says what there is.
    with(1).or_else(|| with(0))
}

/// The layout of the export in `folder`, which must be one of Cognate's.
///
/// # Errors
/// If it is not; what else has an export is Optimum's.
pub(crate) fn of_own(folder: &Path) -> Result<Layout> {
    of(folder).with_context(|| {
        let place = folder.display();
        format!("{place}: is an export of Optimum, which `cognate translate` and `cognate score` run; expected one of `cognate export`")
    })
}

/// The graphs of an export in `folder` for an engine, the encoder first, and their layout: Cognate's, or Optimum's, which may lie
/// in the folder itself. Of Optimum's decoders the merged one has an `If`, which only ONNX Runtime runs.
///
/// # Errors
/// If the engine can run none of them.
pub(crate) fn graphs(folder: &Path, engine: &str, device: Device) -> Result<(Layout, Vec<PathBuf>)> {
    let Some(place) = optimum(folder) else {
        let layout = of(folder).unwrap_or_default();
        // On a GPU the same operator wants keys in another order, and would be silently wrong.
        if layout == Layout::SharedCache && (engine, device) != ("ort", Device::Cpu) {
            let place = folder.display();
            let found = if device == Device::Cuda { "--device cuda" } else { engine };
            bail!(
                "{place}: was exported with --target ort, for ONNX Runtime on the processor alone, found {found}; \
                 export it without --target ort, or choose --engine ort (`cargo xtask onnxruntime` brings the library)"
            );
        }
        return Ok((layout, layout.files().map(|file| folder.join(file)).to_vec()));
    };
    let (encoder, merged, divided) = (place.join(ENCODER), place.join(MERGED), DIVIDED.map(|file| place.join(file)));
    let files = if engine == "ort" && merged.exists() {
        vec![encoder, merged]
    } else if divided.iter().all(|file| file.exists()) {
        [vec![encoder], divided.to_vec()].concat()
    } else {
        let (found, advice) = match merged.exists() {
            true => (MERGED, ", whose `If` only ONNX Runtime runs; choose --engine ort, or add these files"),
            false => ("not both", ""),
        };
        bail!("{}: expected {} and {} for {engine}, found {found}{advice}", place.display(), DIVIDED[0], DIVIDED[1])
    };
    Ok((Layout::HuggingFace, files))
}

/// The folder with Optimum's graphs, if there are some.
pub(crate) fn optimum(folder: &Path) -> Option<PathBuf> {
    let is_own = folder.join(account::FILE).exists();
    let places = [folder.join("onnx"), folder.to_path_buf()];
    places.into_iter().find(|place| !is_own && place.join(ENCODER).exists())
}

const ENCODER: &str = "encoder_model.onnx";
const MERGED: &str = "decoder_model_merged.onnx";
const DIVIDED: [&str; 2] = ["decoder_model.onnx", "decoder_with_past_model.onnx"];

/// Writes the graphs of `model` and their weights; `name` says in the files where they come from.
pub(crate) fn write_graphs(model: &Model, layout: Layout, attentions: Attentions, name: &str, folder: &mut Folder) -> Result<()> {
    let [encoder, decoder] = programs(model, layout, attentions)?;
    write_programs([&encoder, &decoder], layout, model.config(), name, folder)
}

/// The graphs of a layout in f32; for ONNX Runtime alone, with layers joined.
pub(crate) fn programs(model: &Model, layout: Layout, attentions: Attentions) -> Result<[Program; 2]> {
    let graphs = model.graphs(layout, attentions)?;
    Ok(match layout {
        Layout::Cognate | Layout::HuggingFace => graphs,
        Layout::SharedCache => [fuse(&graphs[0])?, fuse(&graphs[1])?],
    })
}

/// Writes the graphs of a layout, as a model or a pass has made them, and their weights.
pub(crate) fn write_programs(
    [encoder, decoder]: [&Program; 2],
    layout: Layout,
    config: &Config,
    name: &str,
    folder: &mut Folder,
) -> Result<()> {
    let [encoder_file, decoder_file] = layout.files();
    let metadata = metadata(layout, name);
    match layout {
        Layout::Cognate | Layout::SharedCache => {
            let graphs = [(encoder_file, encoder), (decoder_file, decoder)];
            let target = if layout == Layout::SharedCache { Target::Ort } else { Target::Portable };
            Export { target, ..Export::new(&graphs, WEIGHTS, &metadata) }.write(folder)?;
        }
        Layout::HuggingFace => {
            for (file, program, loose) in [(encoder_file, encoder, None), (decoder_file, decoder, loose_pasts(config))] {
                // In a browser transformers.js fetches this file and no other.
                let weights_file = format!("{file}_data");
                Export { loose, ..Export::new(&[(file, program)], &weights_file, &metadata) }.write(folder)?;
            }
        }
    }
    Ok(())
}

/// Writes the graphs of `model` beside its checkpoint, whose weights they read.
pub(crate) fn write_graphs_in_place(model: &Model, attentions: Attentions, name: &str, folder: &mut Additions) -> Result<()> {
    let [encoder, decoder] = model.graphs(Layout::Cognate, attentions)?;
    let [encoder_file, decoder_file] = Layout::Cognate.files();
    let metadata = metadata(Layout::Cognate, name);
    let graphs = [(encoder_file, &encoder), (decoder_file, &decoder)];
    Ok(Export::new(&graphs, GENERATED, &metadata).write_in_place(folder)?)
}

fn metadata(layout: Layout, name: &str) -> Metadata {
    let [encoder, decoder] = layout.files().map(|file| file.rsplit('/').next().unwrap_or(file));
    let doc = format!(
        "An encoder-decoder Transformer, exported from {name}: {encoder} runs once, {decoder} once for each new token, \
         from a past of length 0 on."
    );
    Metadata { doc, properties: BTreeMap::from([("cognate.layout".into(), layout.name().into())]) }
}

/// The pasts whose heads Optimum sizes wrongly before there are any: it takes `d_model / heads` for their width.
fn loose_pasts(config: &Config) -> Option<LooseAxis<'static>> {
    let is_as_optimum_thinks = config.decoder.heads * config.decoder.d_k == config.d_model;
    (!is_as_optimum_thinks).then_some(LooseAxis { inputs: "past_key_values.", name: "head_size" })
}

/// `config.json` as a folder of this layout wants it.
pub(crate) fn config_json(model: &Model, layout: Layout) -> String {
    let text = model.config_json();
    match (layout, text.trim_end().strip_suffix('}')) {
        // Without it a browser looks for quantised graphs, and for weights inside of them. Its dtype is a file name's ending: none,
        // in f16 too, because Optimum wants these names.
        (Layout::HuggingFace, Some(open)) if !text.contains("\"transformers.js_config\"") => {
            format!(
                "{},\n  \"transformers.js_config\": {{ \"dtype\": \"fp32\", \"use_external_data_format\": true }}\n}}\n",
                open.trim_end()
            )
        }
        _ => text.to_owned(),
    }
}

/// The text of a file that must be there.
pub(crate) fn read(path: &Path) -> Result<String> {
    read_text(path).with_context(|| format!("{}: cannot be read", path.display()))
}

/// The text of a file that may be missing.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match read_text(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| format!("{}: cannot be read", path.display())),
    }
}

/// The name of a folder, however it is written: of `.` too.
pub(crate) fn folder_name(folder: &Path) -> String {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
