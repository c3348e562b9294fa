//! Graphs in memory for engines that execute files.

use crate::{Engine, Error, ErrorKind, Loaded, Options, Result, Runtime};
use cognate_export::proto::ModelProto;
use cognate_export::{Existing, Export, LAYOUT_KEY, Metadata, Staged, Target, write_folder};
use cognate_graph::{Op, Program};
use std::sync::Arc;

/// The metadata of files with caches that beams share: the key and value for ONNX Runtime and
/// programs.
pub(crate) const SHARED_CACHE: [&str; 2] = [LAYOUT_KEY, "shared-cache"];

/// Whether a file has caches that beams share.
pub(crate) fn has_shared_caches(model: &ModelProto) -> bool {
    model.metadata_props.iter().any(|entry| [&entry.key, &entry.value] == SHARED_CACHE)
}

/// Exports the graphs to a temporary folder with a shared weights file, and reads them.
pub(crate) fn read_graphs(
    runtime: &dyn Runtime,
    programs: &[Program],
    options: &Options,
) -> Result<Vec<Arc<dyn Loaded>>> {
    let wrong = |error| Error::new(ErrorKind::Load, "a temporary folder for the export", error);
    let folder = Staged::temporary().map_err(wrong)?;
    let names: Vec<_> = (0..programs.len()).map(|index| format!("{index}.onnx")).collect();
    let graphs: Vec<_> = names.iter().map(String::as_str).zip(programs).collect();
    let path = folder.path().join("graphs");
    let is_shared = programs.iter().any(|program| {
        program.graph().nodes().iter().any(|node| matches!(node.op, Op::CachedAttention(_)))
    });
    let target =
        if is_shared || runtime.engine() == Engine::Ort { Target::Ort } else { Target::Portable };
    let [key, value] = SHARED_CACHE.map(str::to_owned);
    let metadata = Metadata {
        properties: is_shared.then_some((key, value)).into_iter().collect(),
        ..Metadata::default()
    };
    let export = Export { target, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(&path, &export, &[], Existing::Refuse).map_err(Error::from_export)?;
    let loaded = names
        .iter()
        .map(|name| runtime.read_file(&path.join(name), options))
        .collect::<Result<Vec<_>>>()?;
    if cfg!(unix) {
        // Mapped files may be removed already, so that an interrupted program leaves nothing
        // behind.
        return Ok(loaded);
    }
    let folder = Arc::new(folder);
    Ok(loaded
        .into_iter()
        .map(|graph| Arc::new(WithFolder { graph, _folder: folder.clone() }) as Arc<dyn Loaded>)
        .collect())
}

/// A graph whose files must exist while it is used.
struct WithFolder {
    graph: Arc<dyn Loaded>,
    _folder: Arc<Staged>,
}

impl Loaded for WithFolder {
    fn session(self: Arc<Self>) -> Box<dyn crate::Session> {
        self.graph.clone().session()
    }
}
