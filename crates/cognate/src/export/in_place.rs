//! Export in place: graphs in the checkpoint's folder, which refer to its weights.
//!
//! Only the headers of weights files are read, so time and memory do not depend on their size.

use super::graphs::joined;
use super::tokenizer::ChosenTokenizer;
use super::{Export, Exported, file_name, weights_files};
use cognate_export::Additions;
use cognate_folder::{
    Configuration, GENERATED, GraphSummary, Manifest, ModelSource, Origin, Precision, Stamp,
    tokenizer_bytes, write_graphs_in_place,
};
use cognate_model::{Layout, Model, Parts};
use cognate_pipeline::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

/// All files of such an export.
const FILES: [&str; 6] =
    ["encoder.onnx", "decoder.onnx", "generate.onnx", "model.onnx", GENERATED, Manifest::FILE];

/// The maximum size of tokenizers that are checked: reading one of 250,000 pieces takes longer than
/// the export, and a verification reads it too.
const QUICKLY_READ: u64 = 2_000_000;

impl Export {
    /// Writes the graphs into the checkpoint's folder, in the layout [`Layout::Cognate`] or
    /// [`Layout::Generate`] and f32; they refer to its weights, which are neither copied nor read.
    ///
    /// # Errors
    /// If the source is not a checkpoint with weights in f32, an option contradicts this form, or a
    /// file cannot be written.
    pub fn write_in_place(&self) -> Result<Exported> {
        let wrong = |message: String| Err(Error::wrong_option("in_place", message));
        if self.precision != Precision::F32 {
            let message = format!(
                "expected f32, the type in which graphs in place read the weights, found {}; write a folder instead",
                self.precision
            );
            return Err(Error::wrong_option("precision", message));
        }
        let ModelSource::Checkpoint(checkpoint) = &self.source else {
            return wrong(format!(
                "{} has no weights file for graphs to point into; leave it out and name a folder to write",
                self.source
            ));
        };
        let parts = Configuration::read(checkpoint)?.config.parts;
        if matches!(self.model.config().parts, Parts::Encoder(_))
            && !matches!(parts, Parts::Encoder(_))
        {
            return wrong(
                "the checkpoint also has a decoder, which config.json would still describe; write the encoder to a folder of its own".into(),
            );
        }
        let layout = self.written_layout()?;
        if self.sizes(layout)?.is_some() {
            return wrong("has no constant sizes; write a folder instead".into());
        }
        if !matches!(layout, Layout::Cognate | Layout::Generate) {
            return wrong(
                "writes the layouts cognate and generate only, because graphs and weights have to lie in one folder; write another layout or target to a folder of its own".into(),
            );
        }
        if self.with_generate {
            return wrong(
                "writes one layout; write a folder instead, or the layout generate".into(),
            );
        }
        self.check_precision()?;
        if self.with_tokenizer {
            return wrong("writes no graph of texts; write a folder instead".into());
        }
        if self.languages.is_chosen() {
            return wrong(
                "the checkpoint's files stay as they are; give languages to `cognate translate`"
                    .into(),
            );
        }
        if self.force {
            refuse_foreign(checkpoint)?;
        }
        let mut folder = Additions::create(checkpoint, self.existing())?;
        folder.replaces(&FILES);
        let name = self.source.name();
        let notice = thread::scope(|scope| {
            let is_quick = tokenizer_bytes(checkpoint) <= QUICKLY_READ;
            let check = is_quick.then(|| {
                scope.spawn(|| ChosenTokenizer::of(&self.source, &self.model, &self.languages))
            });
            let programs = self.model.programs(layout, self.attention_outputs(layout))?;
            let generation = self.generation_text(&ChosenTokenizer::default())?;
            let programs = joined(self, layout, programs, generation.as_deref())?;
            write_graphs_in_place(&programs, layout, self.model.config(), &name, &mut folder)?;
            match check.map(thread::ScopedJoinHandle::join) {
                Some(Ok(checked)) => checked.map(|(_, notice)| notice),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Ok(None),
            }
        })?;
        let origin = Origin::CheckpointInPlace { name, files: stamps(&self.model)? };
        let summaries =
            GraphSummary::of_folder(folder.path(), &layout.files_of(self.model.config().parts))?;
        let manifest =
            Manifest::new(origin, self.model.parameters(), layout, summaries, folder.hashes());
        folder.write(Manifest::FILE, manifest.to_json().as_bytes())?;
        let notices = self.notices.iter().cloned().chain(notice).collect();
        Ok(Exported { files: folder.commit()?, manifest, notices })
    }
}

/// Fails if a file to replace was not written by an export in place, which always writes a
/// manifest.
fn refuse_foreign(checkpoint: &Path) -> Result<()> {
    let Some(taken) =
        FILES.iter().map(|file| checkpoint.join(file)).find(|path| path.symlink_metadata().is_ok())
    else {
        return Ok(());
    };
    if Manifest::is_in_place(checkpoint)? {
        return Ok(());
    }
    let message = format!(
        "{}: not written by an export in place; move it away, or export to a folder of its own",
        taken.display()
    );
    Err(Error::new(ErrorKind::Folder, message))
}

/// The stamps of the files of the weights, by name.
fn stamps(model: &Model) -> Result<BTreeMap<String, Stamp>> {
    weights_files(model).into_iter().map(|path| Ok((file_name(&path), Stamp::of(&path)?))).collect()
}
