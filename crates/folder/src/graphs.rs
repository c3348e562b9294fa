//! The graphs in a folder: of the layouts of Cognate, and of Optimum.

use crate::manifest::{self, Manifest};
use crate::{Error, ErrorKind, Precision, Result};
use cognate_model::Layout;
use cognate_runtime::{Device, Engine};
use std::path::{Path, PathBuf};

/// The graphs of an export that an engine runs.
#[derive(Clone, Debug)]
pub struct ExportedGraphs {
    /// The layout.
    pub layout: Layout,
    /// The encoder first.
    pub files: Vec<PathBuf>,
}

/// The layout of the export in `folder`, if there is one.
pub fn find_layout(folder: &Path) -> Option<Layout> {
    let with = |file: fn(&Layout) -> Option<&'static &'static str>| {
        Layout::ALL
            .into_iter()
            .find(|layout| file(layout).is_some_and(|file| folder.join(file).exists()))
    };
    // The names of decoders are unique; if the decoder is missing, the encoder determines the
    // layout.
    with(|layout| layout.files().last())
        .or_else(|| with(|layout| layout.files().first()))
        .or_else(|| Layout::ALL.into_iter().find(|layout| folder.join(layout.file()).exists()))
}

/// The files of a layout that are in `folder`: the pair, or that of an encoder alone.
pub fn graph_files(folder: &Path, layout: Layout) -> Vec<&'static str> {
    let is_pair = layout.files().iter().any(|file| folder.join(file).exists());
    if is_pair { layout.files().into() } else { vec![layout.file()] }
}

/// The layout of the export in `folder`, which must be one of Cognate.
///
/// # Errors
/// If it is an export of Optimum.
pub fn require_layout(folder: &Path) -> Result<Layout> {
    find_layout(folder).ok_or_else(|| {
        let message = "is an export of Optimum, which `cognate translate` and `cognate score` run; expected an export of `cognate export`";
        Error::new(ErrorKind::NoModel, folder.display(), message)
    })
}

/// The graphs in `folder` for an engine. Graphs of Optimum can be in the subfolder `onnx`; its
/// merged decoder has an `If`, which only ONNX Runtime runs.
///
/// # Errors
/// If the engine can run none of them on the device.
pub fn find_graphs(folder: &Path, engine: Engine, device: Device) -> Result<ExportedGraphs> {
    if device.is_gpu() {
        require_floats(folder, device)?;
    }
    let Some(place) = optimum(folder) else {
        let layout = find_layout(folder).unwrap_or_default();
        if layout == Layout::SharedCache {
            require_shared_caches(folder, device)?;
        }
        if layout == Layout::Generate {
            require_loops(folder, engine)?;
        }
        return Ok(ExportedGraphs {
            layout,
            files: graph_files(folder, layout).into_iter().map(|file| folder.join(file)).collect(),
        });
    };
    let (encoder, merged, divided) =
        (place.join(ENCODER), place.join(MERGED), DIVIDED.map(|file| place.join(file)));
    let files = if engine == Engine::Ort && merged.exists() {
        vec![encoder, merged]
    } else if divided.iter().all(|file| file.exists()) {
        [vec![encoder], divided.to_vec()].concat()
    } else {
        let (found, advice) = match merged.exists() {
            true => (
                MERGED,
                ", whose `If` only ONNX Runtime runs; choose --engine ort, or add these files",
            ),
            false => ("not both", ""),
        };
        let message = format!(
            "expected {} and {} for {engine}, found {found}{advice}",
            DIVIDED[0], DIVIDED[1]
        );
        return Err(Error::new(ErrorKind::Engine, place.display(), message));
    };
    Ok(ExportedGraphs { layout: Layout::HuggingFace, files })
}

/// The graph that decodes in `file` for an engine.
///
/// # Errors
/// If the engine does not run it.
pub fn search_graph(file: &Path, engine: Engine) -> Result<ExportedGraphs> {
    require_loops(file, engine)?;
    Ok(ExportedGraphs { layout: Layout::Generate, files: vec![file.into()] })
}

/// Fails if an export is in integers, whose products are slower on a GPU than those of f16.
fn require_floats(folder: &Path, device: Device) -> Result<()> {
    let precision = Manifest::precision_of(folder)?;
    if !precision.is_quantised() {
        return Ok(());
    }
    let message = format!(
        "was exported in {precision}, which is for the CPU, found --device {device}; export it in f16"
    );
    Err(Error::new(ErrorKind::Engine, folder.display(), message))
}

/// Fails if the device has no operators for an export with `--target ort`: the CPU none in half
/// precision, a GPU none for other than encoder-decoder models, in single or half precision.
fn require_shared_caches(folder: &Path, device: Device) -> Result<()> {
    let precision = Manifest::precision_of(folder)?;
    let runs_on_gpu = graph_files(folder, Layout::SharedCache).len() == 2
        && matches!(precision, Precision::F32 | Precision::F16);
    let message = match device.is_gpu() {
        false if precision == Precision::F16 => {
            "was exported with --target ort --precision f16, for a GPU only, found --device cpu; pass --device cuda, or export it in f32"
        }
        true if !runs_on_gpu => {
            "was exported with --target ort for the CPU only, found --device cuda; export it without --target ort, or an encoder-decoder model in f32 or f16"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Engine, folder.display(), message))
}

fn require_loops(place: &Path, engine: Engine) -> Result<()> {
    if engine == Engine::Ort {
        return Ok(());
    }
    let message = format!(
        "was exported with --layout generate, whose loop {engine} does not run; choose --engine ort \
         (`cargo xtask onnxruntime` installs the library), or export it without --layout generate"
    );
    Err(Error::new(ErrorKind::Engine, place.display(), message))
}

/// The folder with the graphs of Optimum, if there are any.
pub fn optimum(folder: &Path) -> Option<PathBuf> {
    let is_own = folder.join(manifest::FILE).exists();
    let places = [folder.join("onnx"), folder.to_path_buf()];
    places.into_iter().find(|place| !is_own && place.join(ENCODER).exists())
}

const ENCODER: &str = "encoder_model.onnx";
const MERGED: &str = "decoder_model_merged.onnx";
const DIVIDED: [&str; 2] = ["decoder_model.onnx", "decoder_with_past_model.onnx"];
