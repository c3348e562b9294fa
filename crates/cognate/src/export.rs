//! Export of a checkpoint to a folder of ONNX graphs.
//!
//! Weights are copied from the mapped checkpoint piece by piece, while other threads hash the
//! checkpoint and the output: time and memory are those of copying a file. In place they are not
//! copied.

mod comparison;
mod graphs;
mod in_place;
mod tokenizer;

pub use comparison::ComparisonText;

use self::graphs::Graphs;
use self::tokenizer::ChosenTokenizer;
use cognate_export::{Existing, Folder, Report, Target, TextOperators};
use cognate_folder::{
    CONFIG, Configuration, GENERATE_BESIDE, GENERATE_TEXT, GENERATION_CONFIG, GraphSummary,
    Manifest, ModelSource, Origin, PROCESSOR, Precision, SentenceSettings, TRITON_FILES,
    WeightHashes, config_json, hash_file, read_if_there, write_beside, write_programs,
    write_repository,
};
use cognate_generate::FixedSizes;
use cognate_graph::Program;
use cognate_model::{Attentions, Front, Head, Layout, Model, Parts};
use cognate_pipeline::{CancellationToken, Error, ErrorKind, Languages, Notice, Result, listed};
use cognate_text::{PieceModels, Tokenizer};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;

/// A checkpoint or preset to export.
///
/// ```no_run
/// use cognate::{Export, Precision};
/// # fn main() -> cognate::Result<()> {
/// Export::open("testdata/multi30k-en-de")?.precision(Precision::Int8).write("out")?;
/// # Ok(())
/// # }
/// ```
pub struct Export {
    source: ModelSource,
    model: Model,
    seed: u64,
    notices: Vec<Notice>,
    layout: Layout,
    target: Target,
    precision: Precision,
    block_size: Option<usize>,
    attentions: bool,
    with_generate: bool,
    with_tokenizer: bool,
    max_batch: Option<usize>,
    max_length: Option<usize>,
    languages: Languages,
    force: bool,
    allow_non_finite: bool,
    cancellation: CancellationToken,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = format_args!("{}", self.source);
        f.debug_struct("Export").field("model", &model).finish_non_exhaustive()
    }
}

/// An export that was written.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Names and sizes of the files.
    pub files: Report,
    /// The contents of `cognate.json`.
    pub manifest: Manifest,
    /// Messages for the user.
    pub notices: Vec<Notice>,
}

/// An event of a long operation.
#[derive(Clone, Copy, Debug)]
pub enum ExportEvent<'a> {
    /// A stage begins.
    Stage(&'a str),
    /// The translation of a text in one of the compared precisions begins.
    Translating {
        /// The precision.
        precision: &'a str,
        /// The engine.
        engine: &'a str,
        /// The size of the text in bytes.
        bytes: usize,
    },
    /// Sentences were translated.
    Translated {
        /// Number of sentences.
        sentences: usize,
        /// Number of tokens of their translations.
        tokens: usize,
        /// Number of bytes of the sentences.
        bytes: usize,
    },
    /// The text was translated.
    Finished,
}

/// Methods that set the field of their name.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])* #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        })*
    };
}

impl Export {
    /// Opens a checkpoint's folder, or `preset:NAME` with the random seed 1.
    ///
    /// # Errors
    /// If it is neither, or cannot be read.
    pub fn open(source: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(&ModelSource::find(source.as_ref())?.into_checkpoint(), None, false)
    }

    /// Opens a checkpoint, of which unused tensors may be ignored, or a preset with a random seed.
    ///
    /// # Errors
    /// If it cannot be read, or a checkpoint comes with a seed.
    pub fn open_with(source: &ModelSource, seed: Option<u64>, ignore_unused: bool) -> Result<Self> {
        let (model, notices) = open_model(source, seed, ignore_unused)?;
        Ok(Self::of_model(source, model, notices, seed.unwrap_or(DEFAULT_SEED)))
    }

    fn of_model(source: &ModelSource, model: Model, notices: Vec<Notice>, seed: u64) -> Self {
        Self {
            source: source.clone(),
            model,
            seed,
            notices,
            layout: Layout::Cognate,
            target: Target::Portable,
            precision: Precision::F32,
            block_size: None,
            attentions: false,
            with_generate: false,
            with_tokenizer: false,
            max_batch: None,
            max_length: None,
            languages: Languages::default(),
            force: false,
            allow_non_finite: false,
            cancellation: CancellationToken::default(),
        }
    }

    /// Opens the encoder of a checkpoint, without a decoder and without what reads its states.
    ///
    /// # Errors
    /// If the source is no checkpoint, or cannot be read.
    pub fn open_encoder(source: &ModelSource) -> Result<Self> {
        let ModelSource::Checkpoint(folder) = source else {
            return Err(Error::wrong_option(
                "part",
                format!("expected a checkpoint, found {source}"),
            ));
        };
        Ok(Self::of_model(source, Model::open_encoder(folder)?, Vec::new(), DEFAULT_SEED))
    }

    /// Opens the checkpoint that the export in `folder` was made of, to compare them: its encoder,
    /// if only that was exported.
    ///
    /// # Errors
    /// If either cannot be read.
    pub fn open_for(folder: &Path, checkpoint: &Path, ignore_unused: bool) -> Result<Self> {
        let source = ModelSource::find(checkpoint)?.into_checkpoint();
        match Configuration::read(folder)?.config.parts {
            Parts::Encoder(Head::None | Head::Pooler) => Self::open_encoder(&source),
            Parts::Encoder(_) | Parts::Both | Parts::Decoder => {
                Self::open_with(&source, None, ignore_unused)
            }
        }
    }

    setters! {
        /// How the graphs divide the work: one of [`Layout::CHOICES`].
        layout: Layout;
        /// The engines that the export is for.
        target: Target;
        /// The type of weights and values.
        precision: Precision;
        /// The number of weights that share a scale in [`Precision::Int8Block`] and
        /// [`Precision::Int4`]: 16, 32, 64 or 128; by default 32.
        block_size: Option<usize>;
        /// Whether the graphs output attention weights.
        attentions: bool;
        /// Whether [`Layout::HuggingFace`] gets the graph of [`Layout::Generate`], too.
        with_generate: bool;
        /// Whether [`Layout::Generate`] gets a second graph, whose input and output are texts, for
        /// `onnxruntime-extensions`.
        with_tokenizer: bool;
        /// The number of sentences, if all shapes of [`Layout::Generate`] are to be constants; with
        /// [`Export::max_length`].
        max_batch: Option<usize>;
        /// The number of positions of sources and targets; with [`Export::max_batch`].
        max_length: Option<usize>;
        /// The source and target languages of the export.
        languages: Languages;
        /// Whether an earlier export is replaced.
        force: bool;
        /// Whether weights that are infinite or not numbers are exported.
        allow_non_finite: bool;
        /// Ends an export, of which nothing is left: within a decoding step of the calibration of
        /// f16, else before the next stage. Ends a comparison after a batch.
        cancellation: CancellationToken;
    }

    /// Messages about the model.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The checkpoint or the preset.
    pub fn source(&self) -> &ModelSource {
        &self.source
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Writes the folder `out`, which appears complete or not at all.
    ///
    /// # Errors
    /// If the options contradict each other or the model, `out` exists and `force` is not set, a
    /// file cannot be written, or the export is cancelled.
    pub fn write(&self, out: impl AsRef<Path>) -> Result<Exported> {
        self.write_with(out.as_ref(), &mut |_| {})
    }

    /// As [`Export::write`]; `events` is called during long operations.
    ///
    /// # Errors
    /// As [`Export::write`].
    pub fn write_with(
        &self,
        out: &Path,
        events: &mut dyn FnMut(ExportEvent<'_>),
    ) -> Result<Exported> {
        self.check_precision()?;
        let layout = self.written_layout()?;
        let sizes = self.sizes(layout)?;
        let (tokenizer, notice) = ChosenTokenizer::of(&self.source, &self.model, &self.languages)?;
        let mut folder = Folder::create(out, self.existing())?;
        folder.replaces(&Tokenizer::FILES);
        folder.replaces(&PROCESSOR);
        folder.replaces(&SentenceSettings::FILES);
        folder.replaces(&[GENERATE_BESIDE, &format!("{GENERATE_BESIDE}_data")]);
        folder.replaces(&[GENERATE_TEXT]);
        folder.replaces(&TRITON_FILES);
        let text = self.text_operators(layout, &tokenizer)?;
        let generation = self.generation_text(&tokenizer)?;
        let graphs = graphs::graphs(self, layout, generation.as_deref(), events)?;
        let beside = self.beside(generation.as_deref(), events)?;
        self.cancellation.check()?;
        let name = self.source.name();
        let origin = thread::scope(|scope| {
            let hashes = matches!(self.source, ModelSource::Checkpoint(_))
                .then(|| scope.spawn(|| hashes(&self.model)));
            let finite = (!self.allow_non_finite).then(|| scope.spawn(|| self.check_finite()));
            write_programs(&graphs.programs, layout, self.model.config(), &name, &mut folder)?;
            if layout == Layout::Triton {
                write_repository(self.model.config(), &mut folder)?;
            }
            if let Some(program) = &beside {
                write_beside(program, self.model.config(), &name, &mut folder)?;
            }
            if let Some(text) = &text {
                layout
                    .files()
                    .iter()
                    .try_for_each(|graph| text.write(graph, GENERATE_TEXT, &mut folder))?;
            }
            if let Some(finite) = finite {
                finite.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, Error>(match hashes {
                Some(hashes) => {
                    let weights_blake3 =
                        hashes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                    Origin::Checkpoint { name, weights_blake3 }
                }
                None => Origin::Preset { name, seed: self.seed },
            })
        })?;
        self.cancellation.check()?;
        self.write_configuration(layout, &tokenizer, generation, &mut folder)?;
        if let Some((_, changed)) =
            self.model.weights().iter().find(|(_, recipe)| recipe.has_changed())
        {
            let file = changed
                .place()
                .map_or_else(|| self.source.to_string(), |place| place.file.display().to_string());
            let message = format!("{file}: changed during the export; export again");
            return Err(Error::new(ErrorKind::Folder, message));
        }
        let mut written = layout.files_of(self.model.config().parts);
        written.extend(beside.map(|_| GENERATE_BESIDE));
        written.extend(text.map(|_| GENERATE_TEXT));
        let summaries = GraphSummary::of_folder(folder.path(), &written)?;
        let mut manifest =
            Manifest::new(origin, self.model.parameters(), layout, summaries, folder.hashes());
        let Graphs { kept_in_f32, calibration, notices: tuning_notices, .. } = graphs;
        manifest.precision = self.precision.name().into();
        manifest.block_size = self.blocks();
        (manifest.max_batch, manifest.max_length) =
            (sizes.map(|sizes| sizes.batch), sizes.map(|sizes| sizes.length));
        (manifest.kept_in_f32, manifest.calibration) = (kept_in_f32, calibration);
        folder.write(Manifest::FILE, manifest.to_json().as_bytes())?;
        let notices = self.notices.iter().cloned().chain(notice).chain(tuning_notices).collect();
        self.cancellation.check()?;
        Ok(Exported { files: folder.commit()?, manifest, notices })
    }

    /// The graph that decodes, if it is written beside others.
    fn beside(
        &self,
        generation: Option<&str>,
        events: &mut dyn FnMut(ExportEvent<'_>),
    ) -> Result<Option<Program>> {
        if !self.with_generate {
            return Ok(None);
        }
        if (self.layout, self.target) != (Layout::HuggingFace, Target::Portable) {
            let message = format!(
                "expected layout hf with it, found {}; leave it out, or choose layout generate",
                self.layout
            );
            return Err(Error::wrong_option("with_generate", message));
        }
        self.check_generates()?;
        Ok(graphs::graphs(self, Layout::Generate, generation, events)?.programs.pop())
    }

    /// The operators of the graph of texts, if it is written.
    fn text_operators(
        &self,
        layout: Layout,
        tokenizer: &ChosenTokenizer,
    ) -> Result<Option<TextOperators>> {
        if !self.with_tokenizer {
            return Ok(None);
        }
        let refuse = |message: String| Err(Error::wrong_option("with_tokenizer", message));
        if layout != Layout::Generate || self.max_batch.is_some() {
            let found = if self.max_batch.is_some() {
                "constant shapes".to_owned()
            } else {
                layout.to_string()
            };
            return refuse(format!(
                "expected layout generate without constant shapes with it, found {found}"
            ));
        }
        if self.model.config().front != Front::Tokens {
            return refuse("expected a model that reads text with it, found frames".into());
        }
        let Some(tokenizer) = &tokenizer.tokenizer else {
            return refuse(format!("{}: has no tokenizer", self.source));
        };
        let models = tokenizer
            .piece_models()
            .map_err(|error| Error::wrong_option("with_tokenizer", error))?;
        if models.prefix.len() + models.suffix.len() == 0 {
            return refuse(
                "expected a tokenizer that puts a special token around each text, found none"
                    .into(),
            );
        }
        let config = self.model.config();
        let mut target_pieces = models.target_pieces;
        // The table of a model may have more rows than there are pieces.
        target_pieces.resize(target_pieces.len().max(config.vocab), None);
        let PieceModels { source, source_ids, prefix, suffix, target, .. } = models;
        Ok(Some(TextOperators {
            source,
            source_ids,
            prefix,
            suffix,
            pad: config.source_pad(config.pad_token as i64),
            target,
            target_pieces,
        }))
    }

    /// The constant sizes of a layout.
    fn sizes(&self, layout: Layout) -> Result<Option<FixedSizes>> {
        let refuse = |message: String| Err(Error::wrong_option("max_batch", message));
        match (self.max_batch, self.max_length) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) if layout != Layout::Generate => {
                refuse(format!("expected layout generate with it, found {layout}"))
            }
            (Some(_), Some(_)) if self.model.config().front != Front::Tokens => {
                refuse("expected a model that reads text with it, found frames".into())
            }
            (Some(_), Some(_)) if self.precision != Precision::F32 => {
                refuse(format!("expected f32 with it, found {}", self.precision))
            }
            (Some(batch), Some(length)) => Ok(Some(FixedSizes { batch, length })),
            _ => refuse("expected max_batch and max_length together".into()),
        }
    }

    /// Refuses models and outputs for which there is no graph that decodes.
    fn check_generates(&self) -> Result<()> {
        let refuse = |option: &'static str, message: &str| {
            Err(Error::wrong_option(option, format!("{message}; leave out layout generate")))
        };
        if self.model.config().require_decoder().is_err() {
            refuse("layout", "an encoder alone does not generate")
        } else if self.model.config().parts == Parts::Decoder {
            refuse("layout", "a decoder alone reads prompts of several tokens")
        } else if matches!(self.model.config().front, Front::Pixels(_)) {
            refuse("layout", "the graph that decodes reads text or frames, not pixels")
        } else {
            Ok(())
        }
    }

    /// The number of weights that share a scale, in block-wise precisions.
    fn blocks(&self) -> Option<usize> {
        self.precision.block_bits().map(|_| self.block_size.unwrap_or(graphs::BLOCK_SIZE))
    }

    /// Only ONNX Runtime has an operator for weights in blocks, and tract does not know bfloat16.
    /// In standard operators both would become f32 again, at load or at each step: slower than
    /// int8, and no smaller than f32 in memory.
    fn check_precision(&self) -> Result<()> {
        let name = self.precision.name();
        if self.block_size.is_some() && self.precision.block_bits().is_none() {
            let message = format!(
                "expected the precision int8-block or int4 with it, found {name}, which has no blocks"
            );
            return Err(Error::wrong_option("block_size", message));
        }
        if let Some(size) = self.block_size.filter(|size| !graphs::BLOCK_SIZES.contains(size)) {
            let message = format!("expected 16, 32, 64 or 128, found {size}");
            return Err(Error::wrong_option("block_size", message));
        }
        let (why, other) = match self.precision {
            Precision::Int8Block | Precision::Int4 => {
                ("only ONNX Runtime multiplies weights in blocks", Precision::Int8)
            }
            Precision::Bf16 => ("tract's own operators do not read bfloat16", Precision::F16),
            Precision::F32 | Precision::F16 | Precision::Int8 | Precision::Int8Tensor => {
                return Ok(());
            }
        };
        match (self.target, self.layout) {
            (Target::Ort, _) => Ok(()),
            (Target::Portable, layout) => {
                let instead = match layout {
                    Layout::Cognate => "choose".into(),
                    layout => format!("instead of layout {layout} choose"),
                };
                let message =
                    format!("{why}, found {name}; {instead} target ort, or precision {other}");
                Err(Error::wrong_option("precision", message))
            }
        }
    }

    /// How the graphs divide the work, for the engines that the export is for.
    fn written_layout(&self) -> Result<Layout> {
        match (self.target, self.layout) {
            (Target::Portable, Layout::Generate) => {
                self.check_generates().map(|()| Layout::Generate)
            }
            (Target::Portable, layout) => Ok(layout),
            (Target::Ort, Layout::Cognate) => Ok(Layout::SharedCache),
            (Target::Ort, layout) => Err(Error::wrong_option(
                "target",
                format!("ort has a layout of its own; leave out layout {layout}"),
            )),
        }
    }

    fn existing(&self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Refuse }
    }

    fn attention_outputs(&self, layout: Layout) -> Attentions {
        match (self.attentions, layout) {
            (false, _) => Attentions::Omit,
            (true, Layout::Generate) => Attentions::Cross,
            (true, _) => Attentions::All,
        }
    }

    /// Rejects weights that are infinite or NaN.
    fn check_finite(&self) -> Result<()> {
        let weights = self.model.weights().iter();
        let found = weights
            .filter_map(|(path, recipe)| Some((path, recipe.shape(), recipe.first_non_finite()?)));
        let found: Vec<_> = found
            .map(|(path, shape, (place, value))| {
                format!("{path} {shape:?}: {value} at element {place}")
            })
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let message = format!(
            "{}: weights in its safetensors are not finite: {}; take an earlier checkpoint, or pass --allow-non-finite",
            self.source,
            listed(&found)
        );
        Err(Error::new(ErrorKind::Folder, message))
    }

    /// Writes configuration and tokenizer.
    fn write_configuration(
        &self,
        layout: Layout,
        tokenizer: &ChosenTokenizer,
        generation: Option<String>,
        folder: &mut Folder,
    ) -> Result<()> {
        folder.write(CONFIG, config_json(&self.model, layout).as_bytes())?;
        if let Some(text) = &generation {
            folder.write(GENERATION_CONFIG, text.as_bytes())?;
        }
        let ModelSource::Checkpoint(checkpoint) = &self.source else { return Ok(()) };
        if generation.is_none() {
            SentenceSettings::copy(checkpoint, folder)?;
        }
        tokenizer.write(checkpoint, folder)
    }

    /// The text of `generation_config.json`, if the model has a decoder.
    fn generation_text(&self, tokenizer: &ChosenTokenizer) -> Result<Option<String>> {
        if self.model.config().require_decoder().is_err() {
            return Ok(None);
        }
        let ModelSource::Checkpoint(checkpoint) = &self.source else {
            return Ok(Some(self.generation_config()));
        };
        let text = read_if_there(&checkpoint.join(GENERATION_CONFIG))?
            .unwrap_or_else(|| self.generation_config());
        tokenizer.generation_config(text).map(Some)
    }

    /// A `generation_config.json` with the tokens of `config.json`.
    fn generation_config(&self) -> String {
        let config = self.model.config();
        let start =
            if config.parts == Parts::Decoder { "bos_token_id" } else { "decoder_start_token_id" };
        let generation = json!({
            start: config.start_token,
            "eos_token_id": config.eos_token,
            "pad_token_id": config.pad_token,
        });
        format!("{generation:#}\n")
    }
}

/// The random seed of a preset's initial weights, if none is chosen.
const DEFAULT_SEED: u64 = 1;

/// The model of a checkpoint, of which unused tensors may be ignored, or of a preset with a random
/// seed.
pub(crate) fn open_model(
    source: &ModelSource,
    seed: Option<u64>,
    ignore_unused: bool,
) -> Result<(Model, Vec<Notice>)> {
    if let (ModelSource::Checkpoint(_), Some(_)) = (source, seed) {
        let message = format!(
            "{source} is a checkpoint, whose weights are given; leave it out, or export preset:tiny, preset:base or preset:big"
        );
        return Err(Error::wrong_option("seed", message));
    }
    let (model, unused) = source.open(seed.unwrap_or(DEFAULT_SEED), ignore_unused)?;
    let mut notices = Vec::new();
    if !unused.is_empty() {
        notices.push(Notice::UnusedTensors { folder: source.folder()?.into(), names: unused });
    }
    Ok((model, notices))
}

/// The files in which a model's weights are stored.
fn weights_files(model: &Model) -> BTreeSet<PathBuf> {
    model
        .weights()
        .iter()
        .filter_map(|(_, recipe)| recipe.place())
        .map(|place| place.file.to_owned())
        .collect()
}

/// The hashes of the files in which a model's weights are stored.
fn hashes(model: &Model) -> Result<WeightHashes> {
    let files: Vec<_> = weights_files(model).into_iter().collect();
    if let [single] = files.as_slice() {
        return Ok(WeightHashes::Single(hash_file(single)?));
    }
    let named = files.iter().map(|path| Ok((file_name(path), hash_file(path)?)));
    named.collect::<Result<_>>().map(WeightHashes::Shards)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
