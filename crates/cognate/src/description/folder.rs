//! The description of an exported folder: its manifest and its graphs.

use super::{languages, listing_json};
use crate::amounts::{bytes, thousands};
use cognate_export::Listing;
use cognate_folder::{
    Manifest, ModelSource, Origin, Stamp, WeightHashes, graph_files, require_layout,
};
use cognate_pipeline::Result;
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::{Path, PathBuf};

/// An exported folder in words and numbers. It is displayed as text.
#[derive(Clone, Debug)]
pub struct FolderDescription {
    /// The folder.
    pub folder: PathBuf,
    /// `cognate.json`; other programs do not write one.
    pub manifest: Option<Manifest>,
    /// The languages of the tokenizer.
    pub languages: Vec<String>,
    /// The graphs by file.
    pub graphs: Vec<(&'static str, Listing)>,
}

impl FolderDescription {
    /// Reads a folder.
    ///
    /// # Errors
    /// If it has no graphs, or a graph or the manifest cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let layout = require_layout(folder)?;
        let graphs = graph_files(folder, layout)
            .into_iter()
            .map(|file| Ok((file, Listing::read(&folder.join(file))?)));
        Ok(Self {
            folder: folder.to_owned(),
            manifest: Manifest::read(folder)?,
            languages: languages(&ModelSource::Exported(folder.to_owned())),
            graphs: graphs.collect::<Result<_>>()?,
        })
    }

    /// The description for programs.
    pub fn to_json(&self) -> Value {
        let graph = |(file, listing): &(&str, Listing)| ((*file).to_owned(), listing_json(listing));
        json!({
            "source": self.folder.display().to_string(),
            "manifest": self.manifest,
            "languages": self.languages,
            "graphs": self.graphs.iter().map(graph).collect::<Map<_, _>>(),
        })
    }

    /// The kind of the source, and its name and weights.
    fn origin(&self, manifest: &Manifest) -> (&'static str, String) {
        match &manifest.source {
            Origin::Checkpoint { name, weights_blake3: WeightHashes::Single(hash) } => {
                ("checkpoint", format!("{name}, model.safetensors with the BLAKE3 hash {hash}"))
            }
            Origin::Checkpoint { name, weights_blake3: WeightHashes::Shards(hashes) } => {
                let file = |(file, hash)| format!("\n    {file} with the BLAKE3 hash {hash}");
                ("checkpoint", format!("{name}{}", hashes.iter().map(file).collect::<String>()))
            }
            Origin::CheckpointInPlace { name, files } => {
                let file = |(file, stamp): (&String, &Stamp)| {
                    let now = Stamp::of(&self.folder.join(file));
                    let is_unchanged = now.is_ok_and(|now| stamp.is_unchanged(&now));
                    let state = if is_unchanged { "" } else { ", changed since the export" };
                    format!("\n    {file}, {}{state}", bytes(stamp.bytes))
                };
                let files = files.iter().map(file).collect::<String>();
                ("checkpoint", format!("{name}, in place{files}"))
            }
            Origin::Preset { name, seed } => {
                ("preset", format!("{name}, initial weights with seed {seed}"))
            }
        }
    }

    fn write_manifest(&self, f: &mut fmt::Formatter<'_>, manifest: &Manifest) -> fmt::Result {
        let (name, origin) = self.origin(manifest);
        writeln!(f, "  {name:<12} {origin}")?;
        writeln!(f, "  written by   {}", manifest.producer)?;
        let Manifest { layout, precision, opset, .. } = manifest;
        let blocks =
            manifest.block_size.map_or(String::new(), |size| format!(" in blocks of {size}"));
        writeln!(f, "  form         {layout} layout, {precision}{blocks}, opset {opset}")?;
        if let Some(calibration) = &manifest.calibration {
            writeln!(f, "  calibration  {calibration}")?;
        }
        if !manifest.kept_in_f32.is_empty() {
            writeln!(f, "  kept in f32")?;
        }
        for kept in &manifest.kept_in_f32 {
            writeln!(f, "    {kept}")?;
        }
        writeln!(f, "  parameters   {}", thousands(manifest.parameters))?;
        if !self.languages.is_empty() {
            let languages = &self.languages;
            writeln!(f, "  languages    {}: {}", languages.len(), languages.join(", "))?;
        }
        match &manifest.verification {
            None => {
                let folder = self.folder.display();
                writeln!(f, "  verification none; run `cognate verify {folder}`")?;
            }
            Some(report) => {
                let result = if report.passed() { "passed" } else { "FAILED" };
                writeln!(f, "  verification {result}")?;
                for line in report.to_string().lines() {
                    writeln!(f, "    {line}")?;
                }
            }
        }
        if let Some(quality) = &manifest.quality {
            let quality = quality.to_string();
            writeln!(f, "  quality      {}", quality.trim_end().replace('\n', "\n    "))?;
        }
        Ok(())
    }
}

impl fmt::Display for FolderDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.folder.display())?;
        match &self.manifest {
            None => writeln!(f, "  no cognate.json: the source is unknown")?,
            Some(manifest) => self.write_manifest(f, manifest)?,
        }
        for (file, listing) in &self.graphs {
            write!(f, "\n{file}\n{listing}")?;
        }
        Ok(())
    }
}
