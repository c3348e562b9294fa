//! `cognate.json`: what an exported folder is, where it comes from, and what its verification found.

use crate::layout;
use crate::quality::Quality;
use crate::show::without_layer;
use anyhow::{Context, Result, bail};
use cognate_export::{Hashed, PartialFile};
use cognate_model::{Layout, open_file};
use cognate_passes::half::{Kept, Why};
use cognate_verify::{Calibration, Report};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The name of the file.
pub(crate) const FILE: &str = "cognate.json";

/// The version of this file's form; grows when older programs would read it wrongly.
const FORMAT: u32 = 1;

/// The contents of `cognate.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) format_version: u32,
    /// Name and version of the program that wrote the folder.
    pub(crate) producer: String,
    pub(crate) source: Origin,
    /// Learned values.
    pub(crate) parameters: usize,
    /// How the graphs divide the work: `cognate` or `hf`.
    pub(crate) layout: String,
    /// The type in which weights are stored and sums are made.
    pub(crate) precision: String,
    /// Weights that share a scale, in a precision that rounds in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block_size: Option<usize>,
    /// What stays f32 in an export of less precision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept_in_f32: Vec<KeptAccount>,
    /// How an export in f16 was tuned, and what it is worth on other sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Calibration>,
    pub(crate) opset: i64,
    pub(crate) graphs: Vec<GraphAccount>,
    /// The graphs and the weights that were written, by file; none in exports of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, FileAccount>,
    pub(crate) verification: Option<Report>,
    /// What an export of less precision loses, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quality: Option<Quality>,
}

/// Where the weights come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A checkpoint.
    Checkpoint {
        /// The folder's name.
        name: String,
        weights_blake3: Hashes,
    },
    /// A checkpoint in the same folder, to whose weights the graphs point.
    CheckpointInPlace {
        /// The folder's name.
        name: String,
        /// The files of the weights, by name.
        files: BTreeMap<String, Stamp>,
    },
    /// Initial weights.
    Preset { name: String, seed: u64 },
}

/// BLAKE3 hashes of a checkpoint's weights, as `b3sum` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Hashes {
    /// That of `model.safetensors`.
    Single(String),
    /// Those of several files, by name.
    Shards(BTreeMap<String, String>),
}

/// What a safetensors file is known by without reading its weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// The file's size.
    pub(crate) bytes: u64,
    /// When it was last written: seconds since 1970.
    pub(crate) modified: u64,
    /// The BLAKE3 hash of the header: names, types, shapes and places of all tensors.
    pub(crate) header_blake3: String,
    /// The BLAKE3 hash of the whole file, since the first verification: an export in place reads no weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blake3: Option<String>,
}

impl Stamp {
    /// The stamp of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let read = || -> std::io::Result<Self> {
            let (mut file, mut length) = (open_file(path)?, [0; 8]);
            let metadata = file.metadata()?;
            file.read_exact(&mut length)?;
            let mut header = Vec::new();
            // A length that lies reads no more than the file.
            file.take(u64::from_le_bytes(length)).read_to_end(&mut header)?;
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            Ok(Self { bytes: metadata.len(), modified, header_blake3: blake3::hash(&header).to_string(), blake3: None })
        };
        read().with_context(|| format!("{}: cannot be read", path.display()))
    }

    /// Whether nobody has written to the file since the graphs were made for it.
    pub(crate) fn is_unchanged(&self, now: &Self) -> bool {
        self.fits(now) && self.modified == now.modified
    }

    /// Whether graphs that were made for one file fit the other: all tensors are at the same places.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        (self.bytes, &self.header_blake3) == (other.bytes, &other.header_blake3)
    }
}

/// One graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GraphAccount {
    pub(crate) file: String,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) nodes: usize,
}

/// What a file of the export is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileAccount {
    pub(crate) bytes: u64,
    /// As `b3sum` prints it.
    pub(crate) blake3: String,
}

impl FileAccount {
    /// What was written, by name.
    pub(crate) fn of(hashes: &BTreeMap<String, Hashed>) -> BTreeMap<String, Self> {
        let account = |(name, hashed): (&String, &Hashed)| (name.clone(), Self { bytes: hashed.bytes, blake3: hashed.blake3.clone() });
        hashes.iter().map(account).collect()
    }
}

/// Something that stays f32 in an export of less precision; the layers of a kind together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptAccount {
    /// `encoder` or `decoder`.
    pub(crate) graph: String,
    /// The operation, parameter, input or output, with `{l}` for the layer.
    pub(crate) node: String,
    /// How many there are.
    pub(crate) places: usize,
    pub(crate) why: String,
    /// The largest magnitude that was seen there; nothing if none was, or if it was no number.
    pub(crate) largest: Option<f32>,
}

impl KeptAccount {
    /// What a pass kept, by reason.
    pub(crate) fn of(kept: &[Kept]) -> Vec<Self> {
        let mut kept: Vec<_> = kept.iter().collect();
        kept.sort_by_key(|kept| kept.why);
        let mut accounts: Vec<Self> = Vec::new();
        for Kept { program, node, why, largest } in kept {
            let (graph, node, why) = (if *program == 0 { "encoder" } else { "decoder" }, without_layer(node), reason(*why));
            match accounts.iter_mut().find(|known| known.graph == graph && known.node == node && known.why == why) {
                Some(known) => {
                    known.places += 1;
                    // Nothing is less than any number.
                    known.largest = if *largest > known.largest { *largest } else { known.largest };
                }
                None => accounts.push(Self { graph: graph.into(), node, places: 1, why: why.into(), largest: *largest }),
            }
        }
        accounts
    }
}

impl std::fmt::Display for KeptAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { graph, node, places, why, largest } = self;
        write!(f, "{graph}: {node}")?;
        if *places > 1 {
            write!(f, " x {places}")?;
        }
        write!(f, ": {why}")?;
        largest.map_or(Ok(()), |largest| write!(f, ", up to {largest:.1e}"))
    }
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Range => "near or beyond the limit of f16",
        Why::Weight => "weights beyond the limit of f16",
        Why::Reads => "reads what f16 cannot hold",
        Why::Precision => "greedy tokens would change",
        Why::Unseen => "values that no run has shown",
        Why::Mask => "mask",
        Why::Softmax => "softmax",
        Why::Normalisation => "normalisation",
    }
}

impl Account {
    /// An account of what this program writes, not yet verified.
    pub(crate) fn new(source: Origin, parameters: usize, layout: Layout, graphs: Vec<GraphAccount>) -> Self {
        Self {
            format_version: FORMAT,
            producer: format!("cognate {}", env!("CARGO_PKG_VERSION")),
            source,
            parameters,
            layout: layout.name().into(),
            precision: "f32".into(),
            block_size: None,
            kept_in_f32: Vec::new(),
            calibration: None,
            opset: cognate_export::OPSET,
            graphs,
            files: BTreeMap::new(),
            verification: None,
            quality: None,
        }
    }

    /// The account in `folder`; `None` where there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is of a newer form.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let Some(text) = layout::read_if_there(&path)? else { return Ok(None) };
        check(&path, &text)?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("{}: not the account of an export", path.display()))
    }

    /// Whether this program knows the form of the export in `folder`, and whether graphs in place still fit their checkpoint; a
    /// folder without an account may be anybody's.
    ///
    /// # Errors
    /// If the form is newer than this program, or a file of the checkpoint is another now.
    pub(crate) fn check(folder: &Path) -> Result<()> {
        for (file, stamp) in in_place(folder)?.unwrap_or_default() {
            let path = folder.join(file);
            if !Stamp::of(&path)?.fits(&stamp) {
                let (path, folder) = (path.display(), folder.display());
                bail!("{path}: is not the file any more for which the graphs were made; run `cognate export {folder} --in-place --force`");
            }
        }
        Ok(())
    }

    /// Whether the graphs in `folder` are an export in place.
    ///
    /// # Errors
    /// If there is an account that this program cannot read.
    pub(crate) fn is_in_place(folder: &Path) -> Result<bool> {
        Ok(in_place(folder)?.is_some())
    }

    /// The file's text.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes the account into `folder`, in one step over an older one.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let write = || -> Result<()> {
            let mut file = PartialFile::wait_for(&path)?;
            file.write_all(self.to_json()?.as_bytes())?;
            Ok(file.commit()?)
        };
        write().with_context(|| format!("{}: cannot be written", path.display()))
    }
}

/// The BLAKE3 hash of a file, as `b3sum` prints it.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn hash(path: &Path) -> Result<String> {
    let read = || -> std::io::Result<String> {
        let (mut file, mut hasher) = (open_file(path)?, blake3::Hasher::new());
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finalize().to_string()),
                bytes => hasher.update(&buffer[..bytes]),
            };
        }
    };
    read().with_context(|| format!("{}: cannot be read", path.display()))
}

/// The files to which the graphs in `folder` point, if it is an export in place.
fn in_place(folder: &Path) -> Result<Option<BTreeMap<String, Stamp>>> {
    let path = folder.join(FILE);
    let Some(text) = layout::read_if_there(&path)? else { return Ok(None) };
    let Version { source, .. } = check(&path, &text)?;
    Ok(match serde_json::from_value(source) {
        Ok(Origin::CheckpointInPlace { files, .. }) => Some(files),
        Ok(Origin::Checkpoint { .. } | Origin::Preset { .. }) | Err(_) => None,
    })
}

/// Files that the account names are looked at: it may name those of its folder only.
fn check_names(path: &Path, version: &Version) -> Result<()> {
    let is_plain = |name: &str| Path::new(name).file_name().is_some_and(|plain| plain == name);
    let names =
        |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_object).map(|files| files.keys().cloned().collect());
    let in_place: Vec<String> = names(version.source.pointer("/checkpoint_in_place/files")).unwrap_or_default();
    if let Some(name) = in_place.iter().find(|name| !is_plain(name)) {
        bail!("{}: source: {name:?} is no file of this folder", path.display());
    }
    // Graphs may lie in the subfolder where browsers look for them.
    let hashed: Vec<String> = names(Some(&version.files)).unwrap_or_default();
    match hashed.iter().find(|name| !is_plain(name.strip_prefix("onnx/").unwrap_or(name))) {
        Some(name) => bail!("{}: files: {name:?} is no file of this folder", path.display()),
        None => Ok(()),
    }
}

fn check(path: &Path, text: &str) -> Result<Version> {
    let place = path.display();
    let version: Version = serde_json::from_str(text).with_context(|| format!("{place}: not the account of an export"))?;
    if version.format_version > FORMAT {
        bail!("{place}: format_version {} is newer than this program, which reads {FORMAT}; update it", version.format_version);
    }
    check_names(path, &version)?;
    Ok(version)
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
    #[serde(default)]
    source: serde_json::Value,
    #[serde(default)]
    files: serde_json::Value,
}
