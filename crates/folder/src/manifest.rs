//! `cognate.json`: the format, the source and the verification of an exported folder.

mod calibration;
mod kept;
mod quality;
mod stamp;
mod verification;

pub use calibration::{Calibration, Caution};
pub use kept::KeptInF32;
pub use quality::{BleuComparison, Quality, StepsComparison, VectorComparison};
pub use stamp::Stamp;
pub use verification::{
    DecodingReport, FileReport, OutputReport, RuntimeReport, StepsReport, VectorsReport,
    Verification,
};

use crate::configuration::read_if_there;
use crate::error::AtPath;
use crate::{Error, ErrorKind, Precision, Result};
use cognate_export::{Hashed, Listing, PartialFile};
use cognate_model::Layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The name of the file.
pub(crate) const FILE: &str = "cognate.json";

/// The version of the file's format; it increases when older programs cannot read it.
const FORMAT: u32 = 1;

/// The contents of `cognate.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the file's format.
    pub format_version: u32,
    /// Name and version of the program that wrote the folder.
    pub producer: String,
    /// The source of the weights.
    pub source: Origin,
    /// The number of learned values.
    pub parameters: usize,
    /// The name of the [`Layout`].
    pub layout: String,
    /// The name of the [`Precision`].
    pub precision: String,
    /// The number of weights that share a scale in block-wise precisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<usize>,
    /// The nodes that stay f32 in an export in f16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_in_f32: Vec<KeptInF32>,
    /// The calibration of an export in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The number of sentences, if all shapes are constants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<usize>,
    /// The number of positions of sources and targets, if all shapes are constants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<usize>,
    /// The opset of ONNX.
    pub opset: i64,
    /// The graphs.
    pub graphs: Vec<GraphSummary>,
    /// The hashes of graphs and weights by file; exports of earlier versions have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, HashedFile>,
    /// The last verification.
    pub verification: Option<Verification>,
    /// The comparison of a lower precision with f32, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Quality>,
}

/// The source of an export's weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A checkpoint.
    Checkpoint {
        /// The folder's name.
        name: String,
        /// The hashes of its weights.
        weights_blake3: WeightHashes,
    },
    /// A checkpoint in the same folder, to whose weights the graphs refer.
    CheckpointInPlace {
        /// The folder's name.
        name: String,
        /// The files of the weights, by name.
        files: BTreeMap<String, Stamp>,
    },
    /// Initial weights.
    Preset {
        /// The preset's name.
        name: String,
        /// The random seed.
        seed: u64,
    },
}

/// BLAKE3 hashes of a checkpoint's weights, as `b3sum` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WeightHashes {
    /// The hash of `model.safetensors`.
    Single(String),
    /// The hashes of several files, by name.
    Shards(BTreeMap<String, String>),
}

/// The size of one graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphSummary {
    /// The file's name.
    pub file: String,
    /// The number of inputs.
    pub inputs: usize,
    /// The number of outputs.
    pub outputs: usize,
    /// The number of nodes.
    pub nodes: usize,
}

/// The size and hash of a file of the export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedFile {
    /// The size.
    pub bytes: u64,
    /// The BLAKE3 hash, as `b3sum` prints it.
    pub blake3: String,
}

impl GraphSummary {
    /// The graphs in these files of `folder`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn of_folder(folder: &Path, files: &[&str]) -> Result<Vec<Self>> {
        let summary = |file: &str| {
            let listing = Listing::read(&folder.join(file))?;
            let (inputs, outputs) = (listing.inputs.len(), listing.outputs.len());
            Ok(Self { file: file.into(), inputs, outputs, nodes: listing.operators.values().sum() })
        };
        files.iter().copied().map(summary).collect()
    }
}

impl Manifest {
    /// The manifest of an export in f32 that was not verified.
    pub fn new(
        source: Origin,
        parameters: usize,
        layout: Layout,
        graphs: Vec<GraphSummary>,
        files: &BTreeMap<String, Hashed>,
    ) -> Self {
        let file = |(name, hashed): (&String, &Hashed)| {
            (name.clone(), HashedFile { bytes: hashed.bytes, blake3: hashed.blake3.clone() })
        };
        Self {
            format_version: FORMAT,
            producer: format!("cognate {}", env!("CARGO_PKG_VERSION")),
            source,
            parameters,
            layout: layout.name().into(),
            precision: Precision::F32.name().into(),
            block_size: None,
            max_batch: None,
            max_length: None,
            kept_in_f32: Vec::new(),
            calibration: None,
            opset: cognate_export::OPSET,
            graphs,
            files: files.iter().map(file).collect(),
            verification: None,
            quality: None,
        }
    }

    /// The file's name.
    pub const FILE: &str = FILE;

    /// The manifest in `folder`; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, has a newer format, or an unknown layout or precision.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        Header::read(&path, &text)?;
        let manifest: Self = parse(&path, &text)?;
        let names = Layout::ALL.map(Layout::name);
        if !names.contains(&manifest.layout.as_str()) {
            let message =
                format_args!("layout: expected {}, found {}", names.join(", "), manifest.layout);
            return Err(Error::new(ErrorKind::Manifest, path.display(), message));
        }
        Ok(Some(manifest))
    }

    /// Whether only GPUs run the export: caches that beams share in half precision.
    pub fn needs_gpu(&self) -> bool {
        self.layout == Layout::SharedCache.name() && self.precision == Precision::F16.name()
    }

    /// The precision of the export in `folder`; f32 if there is no manifest.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn precision_of(folder: &Path) -> Result<Precision> {
        Ok(Self::read(folder)?
            .and_then(|manifest| manifest.precision.parse().ok())
            .unwrap_or_default())
    }

    /// Checks the manifest, and that graphs in place fit their checkpoint. A folder without a
    /// manifest is accepted: other programs write such folders.
    ///
    /// # Errors
    /// As [`Manifest::read`]; also if a file of the checkpoint was replaced.
    pub fn check(folder: &Path) -> Result<()> {
        Self::read(folder)?;
        for (file, stamp) in in_place(folder)?.unwrap_or_default() {
            let path = folder.join(file);
            if !Stamp::of(&path)?.fits(&stamp) {
                let advice = format!(
                    "was replaced since the export; run `cognate export {} --in-place --force`",
                    folder.display()
                );
                return Err(Error::new(ErrorKind::Manifest, path.display(), advice));
            }
        }
        Ok(())
    }

    /// Whether the graphs in `folder` are an export in place.
    ///
    /// # Errors
    /// If there is a manifest that cannot be read.
    pub fn is_in_place(folder: &Path) -> Result<bool> {
        Ok(in_place(folder)?.is_some())
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("names, numbers and texts are JSON") + "\n"
    }

    /// Writes the manifest into `folder`; an older one is replaced atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let write = || {
            let mut file = PartialFile::wait_for(&path)?;
            file.write_all(self.to_json().as_bytes())?;
            file.commit()
        };
        write().at(&path, "written")
    }
}

/// The files to which the graphs in `folder` refer, if it is an export in place.
fn in_place(folder: &Path) -> Result<Option<BTreeMap<String, Stamp>>> {
    let path = folder.join(FILE);
    let Some(text) = read_if_there(&path)? else { return Ok(None) };
    let Header { source, .. } = Header::read(&path, &text)?;
    Ok(match serde_json::from_value(source) {
        Ok(Origin::CheckpointInPlace { files, .. }) => Some(files),
        Ok(Origin::Checkpoint { .. } | Origin::Preset { .. }) | Err(_) => None,
    })
}

fn parse<'t, T: Deserialize<'t>>(path: &Path, text: &'t str) -> Result<T> {
    let problem = |error| {
        Error::new(
            ErrorKind::Manifest,
            path.display(),
            format_args!("not the manifest of an export: {error}"),
        )
    };
    serde_json::from_str(text).map_err(problem)
}

/// The fields of every version of the file.
#[derive(Deserialize)]
struct Header {
    format_version: u32,
    #[serde(default)]
    source: serde_json::Value,
    #[serde(default)]
    files: serde_json::Value,
    precision: Option<String>,
}

impl Header {
    fn read(path: &Path, text: &str) -> Result<Self> {
        let header: Header = parse(path, text)?;
        if header.format_version > FORMAT {
            let message = format!(
                "format_version {} is newer than this program, which reads {FORMAT}; update it",
                header.format_version
            );
            return Err(Error::new(ErrorKind::Manifest, path.display(), message));
        }
        if let Some(Err(problem)) = header.precision.as_deref().map(str::parse::<Precision>) {
            let message = format_args!("precision: {problem}");
            return Err(Error::new(ErrorKind::Manifest, path.display(), message));
        }
        header.check_names(path)?;
        Ok(header)
    }

    /// Checks that the manifest names only files of its folder, because they are opened.
    fn check_names(&self, path: &Path) -> Result<()> {
        let is_plain = |name: &str| Path::new(name).file_name().is_some_and(|plain| plain == name);
        let names = |value: Option<&serde_json::Value>| -> Vec<String> {
            value
                .and_then(serde_json::Value::as_object)
                .map(|files| files.keys().cloned().collect())
                .unwrap_or_default()
        };
        let foreign = |field: &str, name: &str| {
            Err(Error::new(
                ErrorKind::Manifest,
                path.display(),
                format_args!("{field}: {name:?} is not a file of this folder"),
            ))
        };
        if let Some(name) = names(self.source.pointer("/checkpoint_in_place/files"))
            .iter()
            .find(|name| !is_plain(name))
        {
            return foreign("source", name);
        }
        // Graphs can be in the subfolders of a layout.
        let graphs = Layout::ALL
            .iter()
            .flat_map(|layout| layout.files().iter().copied().chain([layout.file()]));
        let folders: Vec<_> = graphs.filter_map(|file| Some(file.rsplit_once('/')?.0)).collect();
        let is_ours = |name: &str| match name.rsplit_once('/') {
            Some((folder, plain)) => folders.contains(&folder) && is_plain(plain),
            None => is_plain(name),
        };
        match names(Some(&self.files)).iter().find(|name| !is_ours(name)) {
            Some(name) => foreign("files", name),
            None => Ok(()),
        }
    }
}
