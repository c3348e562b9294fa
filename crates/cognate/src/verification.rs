//! Verification of an exported folder on every available engine against the f64 reference
//! evaluator.
//!
//! The reference reads the same weights as the engines, so damage of weights is detected by their
//! hashes.

use crate::sentences::{self, Encoded};
use cognate_folder::{
    FileReport, GENERATE_BESIDE, GENERATION_CONFIG, Manifest, ModelSource, Origin, Verification,
    find_graphs, hash_file, open_exported, read_if_there, require_layout,
};
use cognate_generate::{FixedSizes, Settings};
use cognate_model::{Layout, Model};
use cognate_pipeline::{CancellationToken, Error, ErrorKind, Languages, Notice, Result};
use cognate_runtime::{Device, Engine};
use cognate_verify::{EncoderSubject, Subject, Tolerance, engines};
use std::path::{MAIN_SEPARATOR, Path};

/// Options of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions<'m> {
    /// The model to compare with; by default the one of the folder's weights.
    pub model: Option<&'m Model>,
    /// The languages of the sentences.
    pub languages: Languages,
    /// Where the engines run; on a GPU only ONNX Runtime does.
    pub device: Device,
    /// Ends the verification within a decoding step.
    pub cancellation: CancellationToken,
}

/// The result of a verification.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The report, which is also stored in `cognate.json`.
    pub report: Verification,
    /// Messages for the user.
    pub notices: Vec<Notice>,
    /// The changed files; if there are any, nothing else was compared.
    pub damaged: Vec<String>,
}

/// Compares the files in `folder` with their hashes, and the outputs and translations of every
/// available engine with those of the f64 reference evaluator. The report is stored in
/// `cognate.json`. `progress` is called with each stage.
///
/// # Errors
/// If the folder is not an export of Cognate, its weights are changed by the export and no model is
/// given, an engine fails, or the verification is cancelled. Errors that exceed their bounds are not
/// an `Err`: see [`Verification::passed`].
pub fn verify(
    folder: &Path,
    options: &VerifyOptions<'_>,
    progress: impl FnMut(&str),
) -> Result<Verified> {
    match ModelSource::find(folder)? {
        ModelSource::Exported(_) => {}
        other => {
            let message = format!(
                "{other}: expected the folder of an export; `cognate export` makes one and verifies it"
            );
            return Err(Error::new(ErrorKind::Folder, message));
        }
    }
    Manifest::check(folder)?;
    let mut manifest = Manifest::read(folder)?;
    let mut verified = run(folder, manifest.as_ref(), options, progress)?;
    options.cancellation.check()?;
    if let Some(manifest) = &mut manifest {
        store(manifest, &verified.report);
        if let Err(error) = manifest.write(folder) {
            verified.notices.push(Notice::ReportNotStored { reason: error.to_string() });
        }
    }
    Ok(verified)
}

fn run(
    folder: &Path,
    manifest: Option<&Manifest>,
    options: &VerifyOptions<'_>,
    mut progress: impl FnMut(&str),
) -> Result<Verified> {
    let layout = require_layout(folder)?;
    find_graphs(folder, Engine::Ort, options.device)?;
    let precision =
        manifest.and_then(|manifest| manifest.precision.parse().ok()).unwrap_or_default();
    let (tolerance, cancellation) = (Tolerance::of(precision), options.cancellation.clone());
    let files =
        manifest.map_or(Ok(Vec::new()), |manifest| files(folder, manifest, &cancellation))?;
    let damaged: Vec<_> = files
        .iter()
        .filter(|file| !file.passed())
        .map(|file| folder.join(&file.file).display().to_string())
        .collect();
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
        let Encoded { verification: sentences, notices, .. } =
            sentences::encode_alone(folder, model.config())?;
        let subject = EncoderSubject {
            folder,
            layout,
            model,
            sentences,
            seed: sentences::SEED,
            tolerance,
            cancellation,
        };
        let mut report = cognate_verify::verify_encoder(
            &subject,
            &engines(layout, options.device)?,
            &mut progress,
        )?;
        report.files = files;
        return Ok(Verified { report, notices, damaged });
    }
    let generation = read_if_there(&folder.join(GENERATION_CONFIG))?;
    let settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config());
    let mut settings = settings.map_err(|error| {
        Error::new(ErrorKind::Folder, format_args!("{}{MAIN_SEPARATOR}{error}", folder.display()))
    })?;
    let encoded = sentences::encode(folder, model.config(), &options.languages, &mut settings)?;
    let (sentences, seed) = (encoded.verification, sentences::SEED);
    let sizes = manifest.and_then(|manifest| {
        Some(FixedSizes { batch: manifest.max_batch?, length: manifest.max_length? })
    });
    let subject = Subject {
        folder,
        layout,
        model,
        settings,
        sentences,
        sizes,
        seed,
        tolerance,
        cancellation,
    };
    let runtimes = engines(layout, options.device)?;
    if runtimes.is_empty() {
        let message = format!(
            "{}: only ONNX Runtime runs this layout, and its library is not found; `cargo xtask onnxruntime` brings it",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Engine, message));
    }
    let mut report = cognate_verify::verify(&subject, &runtimes, &mut progress)?;
    if layout == Layout::HuggingFace && folder.join(GENERATE_BESIDE).exists() {
        let beside = folder.join("onnx");
        let subject = Subject { folder: &beside, layout: Layout::Generate, ..subject };
        let runtimes = engines(Layout::Generate, options.device)?;
        report
            .runtimes
            .extend(cognate_verify::verify(&subject, &runtimes, &mut progress)?.runtimes);
    }
    report.files = files;
    Ok(Verified { report, notices: encoded.notices, damaged })
}

/// The hashes of graphs and weights of an export. The checkpoint of an export in place has one
/// after its first verification.
fn files(
    folder: &Path,
    manifest: &Manifest,
    cancellation: &CancellationToken,
) -> Result<Vec<FileReport>> {
    let mut exported: Vec<_> = manifest
        .files
        .iter()
        .map(|(file, known)| (file, known.bytes, Some(&known.blake3)))
        .collect();
    if let Origin::CheckpointInPlace { files, .. } = &manifest.source {
        exported
            .extend(files.iter().map(|(file, stamp)| (file, stamp.bytes, stamp.blake3.as_ref())));
    }
    let report = |(file, bytes, exported): (&String, u64, Option<&String>)| {
        cancellation.check()?;
        let path = folder.join(file);
        let unreadable = |error| {
            Error::new(ErrorKind::Folder, format!("{}: cannot be read: {error}", path.display()))
        };
        let size = path.metadata().map_err(unreadable)?.len();
        // A file of another size is not read.
        let found = if size == bytes {
            hash_file(&path)?
        } else {
            format!("{size} bytes instead of {bytes}")
        };
        Ok(FileReport { file: file.clone(), exported: exported.cloned(), found })
    };
    exported.into_iter().map(report).collect()
}

/// Stores the report and the hashes of a first verification in the manifest.
fn store(manifest: &mut Manifest, report: &Verification) {
    if let (true, Origin::CheckpointInPlace { files, .. }) = (report.passed(), &mut manifest.source)
    {
        for found in &report.files {
            if let Some(stamp) = files.get_mut(&found.file) {
                stamp.blake3 = Some(found.found.clone());
            }
        }
    }
    manifest.verification = Some(report.clone());
}
