//! Verifying an exported folder, on every engine that is present, against the reference evaluator in f64.
//!
//! The reference reads the weights that the engines read, so it cannot see that they were damaged: their hashes can.

use crate::sentences::{self, Encoded};
use cognate_folder::{
    FileReport, GENERATION_CONFIG, Manifest, ModelSource, Origin, Verification, hash_file, open_exported, read_if_there, require_layout,
};
use cognate_generate::Settings;
use cognate_model::{Layout, Model};
use cognate_pipeline::{Error, ErrorKind, Languages, Notice, Result};
use cognate_runtime::{Device, Engine, Options, Runtime, available};
use cognate_verify::{EncoderSubject, Subject, Tolerance};
use std::path::Path;

/// What an export is compared with.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions<'m> {
    /// The model that the graphs must equal; by default the one that the weights in the folder make.
    pub model: Option<&'m Model>,
    /// The languages of the sentences.
    pub languages: Languages,
}

/// What a verification found.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The report, which is also stored in `cognate.json`.
    pub report: Verification,
    /// What a user should know.
    pub notices: Vec<Notice>,
    /// The files that are not those that were exported; if there are any, nothing else was compared.
    pub damaged: Vec<String>,
}

/// Compares the files in `folder` with their hashes, and the numbers and translations of every engine that is present with
/// those of the reference evaluator in f64. The report is stored in `cognate.json`. `progress` is called with what is being
/// done.
///
/// # Errors
/// If the folder is no export of Cognate, its weights say nothing about the model and none is given, or an engine fails. A
/// report of numbers out of bounds is no error: see [`Verification::passed`].
pub fn verify(folder: &Path, options: &VerifyOptions<'_>, progress: impl FnMut(&str)) -> Result<Verified> {
    match ModelSource::find(folder)? {
        ModelSource::Exported(_) => {}
        other => {
            let message = format!("{other}: expected the folder of an export; `cognate export` makes one and verifies it");
            return Err(Error::new(ErrorKind::Folder, message));
        }
    }
    Manifest::check(folder)?;
    let mut manifest = Manifest::read(folder)?;
    let verified = run(folder, manifest.as_ref(), options, progress)?;
    if let Some(manifest) = &mut manifest {
        store(manifest, &verified.report);
        manifest.write(folder)?;
    }
    Ok(verified)
}

fn run(folder: &Path, manifest: Option<&Manifest>, options: &VerifyOptions<'_>, mut progress: impl FnMut(&str)) -> Result<Verified> {
    let layout = require_layout(folder)?;
    let precision = manifest.and_then(|manifest| manifest.precision.parse().ok()).unwrap_or_default();
    let tolerance = Tolerance::of(precision);
    let files = manifest.map_or(Ok(Vec::new()), |manifest| files(folder, manifest))?;
    let damaged: Vec<_> = files.iter().filter(|file| !file.passed()).map(|file| folder.join(&file.file).display().to_string()).collect();
    if !damaged.is_empty() {
        let report = Verification::of_damage(files, tolerance.relative_l2, sentences::SEED);
        return Ok(Verified { report, notices: Vec::new(), damaged });
    }
    let read_back;
    let model = match options.model {
        Some(model) => model,
        None if layout == Layout::SharedCache || precision.is_quantised() => {
            let message = format!(
                "{}: its weights are joined or rounded, and say nothing about the model; pass --checkpoint with what it was exported from",
                folder.display()
            );
            return Err(Error::new(ErrorKind::Options, message));
        }
        None => {
            read_back = open_exported(folder, layout)?;
            &read_back
        }
    };
    if model.config().require_decoder().is_err() {
        let Encoded { verification: sentences, notices, .. } = sentences::encode_alone(folder, model.config())?;
        let subject = EncoderSubject { folder, layout, model, sentences, seed: sentences::SEED, tolerance };
        let mut report = cognate_verify::verify_encoder(&subject, &runtimes(layout)?, &mut progress)?;
        report.files = files;
        return Ok(Verified { report, notices, damaged });
    }
    let generation = read_if_there(&folder.join(GENERATION_CONFIG))?;
    let mut settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    let encoded = sentences::encode(folder, model.config(), &options.languages, &mut settings)?;
    let (sentences, seed) = (encoded.verification, sentences::SEED);
    let subject = Subject { folder, layout, model, settings, sentences, seed, tolerance };
    let runtimes = runtimes(layout)?;
    if runtimes.is_empty() {
        let message = format!(
            "{}: only ONNX Runtime runs this layout, and its library is not found; `cargo xtask onnxruntime` brings it",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Engine, message));
    }
    let mut report = cognate_verify::verify(&subject, &runtimes, &mut progress)?;
    report.files = files;
    Ok(Verified { report, notices: encoded.notices, damaged })
}

/// The engines that run a layout. That for ONNX Runtime alone runs twice: with operators of Cognate, and as other programs run it.
fn runtimes(layout: Layout) -> Result<Vec<(Box<dyn Runtime>, Options)>> {
    let with = |options: Options| -> Result<Vec<_>> {
        let engines = available(Device::Cpu)?.into_iter();
        let fit = engines.filter(|runtime| layout != Layout::SharedCache || runtime.engine() == Engine::Ort);
        Ok(fit.map(|runtime| (runtime, options)).collect())
    };
    let mut runtimes = with(Options::default())?;
    if layout == Layout::SharedCache {
        runtimes.extend(with(Options { plain: true, ..Options::default() })?);
    }
    Ok(runtimes)
}

/// The graphs and weights of an export, by their hashes. A checkpoint to which graphs in place point has one since its first
/// verification.
fn files(folder: &Path, manifest: &Manifest) -> Result<Vec<FileReport>> {
    let mut exported: Vec<_> = manifest.files.iter().map(|(file, known)| (file, known.bytes, Some(&known.blake3))).collect();
    if let Origin::CheckpointInPlace { files, .. } = &manifest.source {
        exported.extend(files.iter().map(|(file, stamp)| (file, stamp.bytes, stamp.blake3.as_ref())));
    }
    let report = |(file, bytes, exported): (&String, u64, Option<&String>)| {
        let path = folder.join(file);
        let unreadable = |error| Error::new(ErrorKind::Folder, format!("{}: cannot be read: {error}", path.display()));
        let size = path.metadata().map_err(unreadable)?.len();
        // A file that is far too long is not read to its end.
        let found = if size == bytes { hash_file(&path)? } else { format!("{size} bytes in place of {bytes}") };
        Ok(FileReport { file: file.clone(), exported: exported.cloned(), found })
    };
    exported.into_iter().map(report).collect()
}

/// Puts the report into the manifest, and the hashes of files that were read for the first time.
fn store(manifest: &mut Manifest, report: &Verification) {
    if let (true, Origin::CheckpointInPlace { files, .. }) = (report.passed(), &mut manifest.source) {
        for found in &report.files {
            if let Some(stamp) = files.get_mut(&found.file) {
                stamp.blake3 = Some(found.found.clone());
            }
        }
    }
    manifest.verification = Some(report.clone());
}
