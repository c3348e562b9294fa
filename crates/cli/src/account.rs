//! `cognate.json`: what an exported folder is, where it comes from, and what its verification found.

use crate::layout;
use anyhow::{Context, Result, bail};
use cognate_verify::Report;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

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
    /// How the graphs divide the work: `cognate`.
    pub(crate) layout: String,
    /// The type in which weights are stored and sums are made.
    pub(crate) precision: String,
    pub(crate) opset: i64,
    pub(crate) graphs: Vec<GraphAccount>,
    pub(crate) verification: Option<Report>,
}

/// Where the weights come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A checkpoint.
    Checkpoint {
        /// The folder's name.
        name: String,
        /// The BLAKE3 hash of `model.safetensors`, as `b3sum` prints it.
        weights_blake3: String,
    },
    /// Initial weights.
    Preset { name: String, seed: u64 },
}

/// One graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GraphAccount {
    pub(crate) file: String,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) nodes: usize,
}

impl Account {
    /// An account of what this program writes, not yet verified.
    pub(crate) fn new(source: Origin, parameters: usize, graphs: Vec<GraphAccount>) -> Self {
        Self {
            format_version: FORMAT,
            producer: format!("cognate {}", env!("CARGO_PKG_VERSION")),
            source,
            parameters,
            layout: "cognate".into(),
            precision: "f32".into(),
            opset: cognate_export::OPSET,
            graphs,
            verification: None,
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

    /// Whether this program knows the form of the export in `folder`; a folder without an account may be anybody's.
    ///
    /// # Errors
    /// If the form is newer than this program.
    pub(crate) fn check(folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        layout::read_if_there(&path)?.map_or(Ok(()), |text| check(&path, &text))
    }

    /// The file's text.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes the account into `folder`, in one step over an older one.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let write = || -> Result<()> {
            let mut file = new_file_in(folder)?;
            file.write_all(self.to_json()?.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("{}: cannot be written", path.display()))
    }
}

/// A file in `folder` that takes its name when it is whole; readable to whom the system lets new files be.
pub(crate) fn new_file_in(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cognate.").suffix(".partial");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

fn check(path: &Path, text: &str) -> Result<()> {
    let place = path.display();
    let version: Version = serde_json::from_str(text).with_context(|| format!("{place}: not the account of an export"))?;
    if version.format_version > FORMAT {
        bail!("{place}: format_version {} is newer than this program, which reads {FORMAT}; update it", version.format_version);
    }
    Ok(())
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}
