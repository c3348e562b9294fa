//! A loaded model: its configuration, tokenizer and graphs.

use crate::copies::Copies;
use crate::error::{Cause, Error, Result};
use crate::language::{Languages, TargetNaming, decode_into};
use crate::notice::{Notice, listed};
use crate::options::LoadOptions;
use crate::shortlist::read_shortlist;
use crate::tokenizer::open_tokenizer;
use cognate_folder::{
    Configuration, ExportedGraphs, Manifest, ModelSource, f32_programs, find_graphs, search_graph,
};
use cognate_generate::{
    Decoder, FixedSizes, SearchDecoder, Settings, Shortlist, ShortlistDecoder, check_search,
    decoder,
};
use cognate_model::{Attentions, Config, Front, Layout, Model, Parts};
use cognate_runtime::{Engine, Loaded, Options, Runtime, Session};
use cognate_text::Tokenizer;
use std::num::NonZeroUsize;
use std::path::{MAIN_SEPARATOR, Path};
use std::sync::Arc;

/// A loaded model. Its sessions, and those of its clones, share the weights.
#[derive(Clone)]
pub struct LoadedModel {
    source: ModelSource,
    config: Config,
    /// Of the model's files.
    given: Settings,
    settings: Settings,
    tokenizer: Tokenizer,
    target_naming: TargetNaming,
    layout: Layout,
    /// Of a graph whose shapes are constants.
    sizes: Option<FixedSizes>,
    /// The graphs, the encoder first.
    copies: Arc<Copies>,
    engine: String,
    source_multiple: usize,
    workers: NonZeroUsize,
    shortlist: Option<Arc<Shortlist>>,
    notices: Vec<Notice>,
}

/// A model in memory with its tokenizer and settings.
pub struct InMemory<'m> {
    /// The model.
    pub model: &'m Model,
    /// Its source.
    pub source: ModelSource,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its settings of decoding.
    pub settings: Settings,
}

/// The contents of a model's small files, which are checked before the weights are read.
struct Files {
    config: Config,
    given: Settings,
    settings: Settings,
    tokenizer: Tokenizer,
    target_naming: TargetNaming,
}

/// The graphs of a layout, the encoder first.
pub(crate) type Graphs = (Layout, Vec<Arc<dyn Loaded>>);

impl LoadedModel {
    /// Loads a checkpoint or an export.
    /// `adjust` changes the settings of the model's files, given its configuration and tokenizer.
    ///
    /// # Errors
    /// If a file is missing or invalid, an option contradicts the model, or the engine cannot run
    /// it.
    pub fn open(
        source: ModelSource,
        options: &LoadOptions,
        attentions: Attentions,
        adjust: impl FnOnce(Settings, &Config, &Tokenizer) -> Result<Settings>,
    ) -> Result<Self> {
        Self::load(source, options, attentions, |source, notices| {
            files(source, options, adjust, notices)
        })
    }

    /// Loads a speech model, whose prompts are chosen later.
    pub(crate) fn open_speech(
        source: ModelSource,
        options: &LoadOptions,
        attentions: Attentions,
    ) -> Result<Self> {
        Self::load(source, options, attentions, |source, _| {
            let (folder, Configuration { config_json, config, generation_json }) =
                configuration(source)?;
            let given = settings(folder, &config_json, generation_json.as_deref(), &config)?;
            let tokenizer = open_tokenizer(folder, &config)?;
            Ok(Files {
                config,
                settings: given.clone(),
                given,
                tokenizer,
                target_naming: TargetNaming::Settled,
            })
        })
    }

    fn load(
        source: ModelSource,
        options: &LoadOptions,
        attentions: Attentions,
        files: impl FnOnce(&ModelSource, &mut Vec<Notice>) -> Result<Files>,
    ) -> Result<Self> {
        options.check()?;
        // The reference evaluator reads the checkpoint of an export in place.
        let source =
            if options.engine == Engine::Reference { source.into_checkpoint() } else { source };
        let mut notices = Vec::new();
        let files = files(&source, &mut notices)?;
        let runtime = options.engine.open(options.device.first())?;
        if runtime.engine() != Engine::Ort
            && options.threads.is_some_and(|threads| threads.get() > 1)
        {
            notices.push(Notice::OneThread { engine: runtime.name() });
        }
        let (workers, without_outputs) =
            (options.n_workers(), unread(attentions, files.config.front));
        let model = match &source {
            ModelSource::Exported(_) => None,
            ModelSource::File(_) if source.search_graph().is_some() => None,
            ModelSource::Checkpoint(_) | ModelSource::Preset(_) | ModelSource::File(_) => {
                let (model, names) = source.open(0, options.ignore_unused)?;
                if !names.is_empty() {
                    notices.push(Notice::UnusedTensors { folder: source.folder()?.into(), names });
                }
                Some(model)
            }
        };
        let (mut layout, mut left) = (Layout::Cognate, Vec::new());
        let copies = Copies::load(&options.device, |device| {
            let half_memory = true;
            let load = Options { without_outputs, half_memory, ..options.of_engine(device) };
            let graphs = match (&source, &model) {
                (ModelSource::Exported(folder), _) => {
                    exported_graphs(folder, runtime.as_ref(), &load)?
                }
                (_, Some(model)) => model_graphs(model, attentions, runtime.as_ref(), &load)?,
                (ModelSource::File(file), None) => {
                    let ExportedGraphs { layout, files } = search_graph(file, runtime.engine())?;
                    let read = files.iter().map(|file| runtime.read_file(file, &load));
                    (layout, read.collect::<Result<_, _>>()?)
                }
                (ModelSource::Checkpoint(_) | ModelSource::Preset(_), None) => {
                    unreachable!("was opened")
                }
            };
            layout = graphs.0;
            left = graphs.1.iter().flat_map(|graph| graph.left_to_processor()).cloned().collect();
            Ok::<_, Error>(graphs.1)
        })?;
        if !left.is_empty() {
            notices.push(Notice::LeftToProcessor { nodes: left });
        }
        let Files { config, given, settings, tokenizer, target_naming } = files;
        let sizes = match (&source, layout) {
            (ModelSource::Exported(folder), Layout::Generate) => fixed_sizes(folder)?,
            _ => None,
        };
        if layout == Layout::Generate {
            check_search(&given, &settings, sizes)?;
        }
        let engine = String::new();
        let shortlist = options
            .shortlist
            .as_deref()
            .map(|path| shortlist(path, &config, &tokenizer, layout))
            .transpose()?
            .map(Arc::new);
        let mut model = Self {
            source,
            config,
            given,
            settings,
            tokenizer,
            target_naming,
            layout,
            sizes,
            copies,
            engine,
            source_multiple: 1,
            workers,
            shortlist,
            notices,
        };
        let decoder = model.decoder()?;
        (model.engine, model.source_multiple) =
            (decoder.engine().into(), decoder.source_multiple());
        Ok(model)
    }

    /// Loads a model in memory.
    ///
    /// # Errors
    /// If the engine cannot run it.
    pub fn in_memory(
        parts: InMemory<'_>,
        runtime: &dyn Runtime,
        options: &Options,
    ) -> Result<Self> {
        let InMemory { model, source, tokenizer, settings } = parts;
        let (layout, graphs) = model_graphs(model, Attentions::Omit, runtime, options)?;
        let copies = Copies::load(&options.device.into(), |_| Ok::<_, Error>(graphs.clone()))?;
        let mut loaded = Self {
            source,
            config: model.config().clone(),
            given: settings.clone(),
            settings,
            tokenizer,
            target_naming: TargetNaming::Settled,
            layout,
            sizes: None,
            copies,
            engine: String::new(),
            source_multiple: 1,
            workers: options.workers.unwrap_or(NonZeroUsize::MIN),
            shortlist: None,
            notices: Vec::new(),
        };
        loaded.engine = loaded.decoder()?.engine().into();
        Ok(loaded)
    }

    /// The same model with other languages, if they are set, and with other settings: those of its
    /// files, changed by `adjust`.
    ///
    /// # Errors
    /// If an option contradicts the model.
    pub fn with(
        &self,
        languages: &Languages,
        adjust: impl FnOnce(Settings, &Config, &Tokenizer) -> Result<Settings>,
    ) -> Result<Self> {
        let tokenizer = languages.choose(self.tokenizer.clone(), &self.config)?;
        let mut settings = adjust(self.given.clone(), &self.config, &tokenizer)?;
        decode_into(&tokenizer, &mut settings);
        if self.layout == Layout::Generate {
            check_search(&self.given, &settings, self.sizes)?;
        }
        let target_naming = if tokenizer.has_target_language() {
            TargetNaming::Settled
        } else {
            self.target_naming.clone()
        };
        Ok(Self { settings, tokenizer, target_naming, ..self.clone() })
    }

    /// The source of the model.
    pub fn source(&self) -> &ModelSource {
        &self.source
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings of decoding.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The model's tokenizer, with the chosen languages.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Where the target language is set.
    pub fn target_naming(&self) -> &TargetNaming {
        &self.target_naming
    }

    /// How the graphs divide the work.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The engine with its version and provider.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The width of a batch's sources is a multiple of this number.
    pub(crate) fn source_multiple(&self) -> usize {
        self.source_multiple
    }

    /// The number of sessions that the engine was prepared for.
    pub fn workers(&self) -> NonZeroUsize {
        self.workers
    }

    /// Messages for the user.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    pub(crate) fn add_notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// The model, if it translates text.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn translating(self) -> Result<Self> {
        let message = match (self.config.parts, self.config.front) {
            (Parts::Decoder, _) => {
                "a decoder alone, which does not translate; `cognate generate` continues texts by it"
            }
            (_, Front::Tokens) => return Ok(self),
            _ => "the model reads images, as `cognate read` does; expected a model of text",
        };
        Err(Cause::InFolder(format!("{}: {message}", self.source)).into())
    }

    /// The model, if it continues text.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn continuing(self) -> Result<Self> {
        if self.config.parts == Parts::Decoder {
            return Ok(self);
        }
        let advice = "`cognate translate` and `cognate read` run it";
        let message = format!(
            "{}: an encoder and a decoder, which do not continue texts; {advice}",
            self.source
        );
        Err(Cause::InFolder(message).into())
    }

    /// A session of each graph, the encoder first, on the next device. Those of a device share the
    /// weights.
    pub fn sessions(&self) -> Vec<Box<dyn Session>> {
        self.copies.next().iter().map(|graph| graph.clone().session()).collect()
    }

    /// Whether the graphs give the weights of cross-attention.
    pub(crate) fn gives_attentions(&self) -> bool {
        let is_one = |name: &String| name.starts_with("cross_attentions");
        self.sessions().iter().any(|session| session.outputs().iter().any(is_one))
    }

    /// A decoder for one worker, with separate state and shared weights.
    ///
    /// # Errors
    /// If the graphs are not those of the layout.
    pub fn decoder(&self) -> Result<Box<dyn Decoder>> {
        let decoder = match (self.sizes, self.sessions()) {
            (Some(_), mut sessions) if sessions.len() == 1 => {
                let pad_token = self.config.source_pad(self.settings.pad_token);
                return Ok(Box::new(
                    SearchDecoder::new(sessions.remove(0), pad_token)?.with_sizes(self.sizes),
                ));
            }
            (_, sessions) => decoder(self.layout, sessions, &self.config, self.settings.pad_token)?,
        };
        Ok(match &self.shortlist {
            Some(shortlist) => {
                Box::new(ShortlistDecoder::new(decoder, shortlist.clone(), &self.settings))
            }
            None => decoder,
        })
    }

    /// The tokens of a sentence, with its end token.
    ///
    /// # Errors
    /// If it is empty, too long, or has a token outside the model's vocabulary.
    pub fn source_ids(&self, text: &str) -> Result<Vec<i64>> {
        let ids = self.tokenizer.encode(text)?;
        if text.trim().is_empty() || ids.is_empty() {
            return Err(Error::input("the source is empty; expected a sentence"));
        }
        self.check_length("source", ids.len())?;
        let vocab = self.config.source_vocab;
        if let Some(&id) = ids.iter().find(|&&id| usize::try_from(id).is_ok_and(|id| id >= vocab)) {
            return Err(Cause::Unknown {
                piece: self.tokenizer.piece(id).unwrap_or_default(),
                id,
                vocab,
            }
            .into());
        }
        Ok(ids)
    }

    /// The tokens of a translation with a forced first token, without its end token.
    ///
    /// # Errors
    /// If it is too long.
    pub fn target_ids(&self, text: &str) -> Result<Vec<i64>> {
        self.target_ids_after(self.settings.forced_bos_token.as_slice(), text)
    }

    /// The tokens of a translation after a prefix, without its end token.
    pub(crate) fn target_ids_after(&self, prefix: &[i64], text: &str) -> Result<Vec<i64>> {
        let ids: Vec<_> =
            prefix.iter().copied().chain(self.tokenizer.encode_target(text)?).collect();
        // The start token has a position, the end token does not.
        self.check_length("translation", ids.len() + 1)?;
        Ok(ids)
    }

    fn check_length(&self, what: &str, n_tokens: usize) -> Result<()> {
        match self.config.max_positions {
            Some(limit) if n_tokens > limit => Err(Error::input(format_args!(
                "the {what} has {n_tokens} tokens; expected at most {limit}, the positions of the model"
            ))),
            _ => Ok(()),
        }
    }
}

/// The shortlist in a file.
fn shortlist(
    path: &Path,
    config: &Config,
    tokenizer: &Tokenizer,
    layout: Layout,
) -> Result<Shortlist> {
    if (config.parts, config.front) != (Parts::Both, Front::Tokens) {
        return Err(Error::wrong_option(
            "shortlist",
            "expected a model that translates text, with an encoder and a decoder",
        ));
    }
    if layout == Layout::Generate {
        let message = "expected an export whose decoder returns logits, found generate.onnx, which searches by itself";
        return Err(Error::wrong_option("shortlist", message));
    }
    read_shortlist(path, tokenizer, config)
}

/// The folder of a model and its configuration.
fn configuration(source: &ModelSource) -> Result<(&Path, Configuration)> {
    let folder = source.folder()?;
    Manifest::check(folder)?;
    Ok((folder, Configuration::read(folder)?))
}

/// The settings of decoding in a folder's files.
fn settings(
    folder: &Path,
    config_json: &str,
    generation: Option<&str>,
    config: &Config,
) -> Result<Settings> {
    let settings = Settings::from_json(config_json, generation, config);
    Ok(settings
        .map_err(|error| Cause::InFolder(format!("{}{MAIN_SEPARATOR}{error}", folder.display())))?)
}

fn files(
    source: &ModelSource,
    options: &LoadOptions,
    adjust: impl FnOnce(Settings, &Config, &Tokenizer) -> Result<Settings>,
    notices: &mut Vec<Notice>,
) -> Result<Files> {
    let (folder, Configuration { config_json, config, generation_json }) = configuration(source)?;
    if let Front::Frames { .. } = config.front {
        return Err(Cause::InFolder(format!(
            "{}: a model of audio; `cognate transcribe` reads it",
            folder.display()
        ))
        .into());
    }
    if config.require_decoder().is_err() {
        let message = format!(
            "{}: an encoder alone, which does not translate; `cognate embed` and `cognate classify` read it",
            folder.display()
        );
        return Err(Cause::InFolder(message).into());
    }
    let settings = settings(folder, &config_json, generation_json.as_deref(), &config)?;
    let tokenizer = options.languages.choose(open_tokenizer(folder, &config)?, &config)?;
    let given = settings.clone();
    let mut settings = adjust(settings, &config, &tokenizer)?;
    let target_naming = TargetNaming::of(&config_json, &tokenizer, &settings)?;
    if !options.allow_missing_language {
        notices.extend(target_naming.check(folder)?);
    }
    decode_into(&tokenizer, &mut settings);
    Ok(Files { config, given, settings, tokenizer, target_naming })
}

impl TargetNaming {
    /// Checks that the target language of a model in `folder` is set.
    ///
    /// # Errors
    /// If it is required and not set.
    pub fn check(&self, folder: &Path) -> Result<Option<Notice>> {
        let Self::Missing { codes, is_optional, .. } = self else { return Ok(None) };
        if *is_optional {
            return Ok(Some(Notice::NoTargetLanguage {
                folder: folder.into(),
                codes: codes.clone(),
            }));
        }
        let (place, n_languages, listed) = (folder.display(), codes.len(), listed(codes));
        let message = format!(
            "{place}: the model has {n_languages} languages and no target language is set: pass --target-language, one of {listed}"
        );
        Err(Error::input(message))
    }
}

/// The graphs of an export.
/// The sizes of an export whose shapes are constants.
fn fixed_sizes(folder: &Path) -> Result<Option<FixedSizes>> {
    let manifest = Manifest::read(folder)?;
    Ok(manifest.and_then(|manifest| {
        Some(FixedSizes { batch: manifest.max_batch?, length: manifest.max_length? })
    }))
}

pub(crate) fn exported_graphs(
    folder: &Path,
    runtime: &dyn Runtime,
    options: &Options,
) -> Result<Graphs> {
    if runtime.engine() == Engine::Reference {
        let message = format!(
            "{}: --engine reference evaluates the graphs of a checkpoint, and this is an export; \
             give the checkpoint that it was made from, or choose tract or ort",
            folder.display()
        );
        return Err(Cause::InFolder(message).into());
    }
    let ExportedGraphs { layout, files } = find_graphs(folder, runtime.engine(), options.device)?;
    Ok((
        layout,
        files.iter().map(|file| runtime.read_file(file, options)).collect::<Result<_, _>>()?,
    ))
}

/// The beginnings of the names of outputs that an export may have and nobody reads. Any call can
/// ask for cross-attention. The encoder's attention over audio has 1,500 x 1,500 weights a head.
fn unread(attentions: Attentions, front: Front) -> &'static [&'static str] {
    match (attentions, front) {
        (Attentions::Omit | Attentions::Cross, _) => {
            &["encoder_attentions.", "decoder_attentions."]
        }
        (Attentions::All, Front::Frames { .. }) => &["encoder_attentions."],
        (Attentions::All, _) => &[],
    }
}

/// The graphs of a model in memory.
pub(crate) fn model_graphs(
    model: &Model,
    attentions: Attentions,
    runtime: &dyn Runtime,
    options: &Options,
) -> Result<Graphs> {
    // The layout with shared caches is the fastest: programs of kernels compute it on the processor,
    // and on a GPU its caches stay there. It returns no weights of the decoder's self-attention, and
    // does not have all its choices.
    let is_gpu = options.device.is_gpu();
    let fits = match is_gpu {
        false => model.config().require_decoder().is_ok(),
        true => model.config().require_both().is_ok(),
    };
    let has_form =
        fits && attentions != Attentions::All && model.config().require_shared_caches().is_ok();
    if has_form && runtime.engine() != Engine::Reference {
        match runtime.read_graphs(&f32_programs(model, Layout::SharedCache, attentions)?, options) {
            // tract runs this layout only where programs compute it, a GPU only some sizes of heads.
            Err(_) if is_gpu || runtime.engine() == Engine::Tract => {}
            graphs => return Ok((Layout::SharedCache, graphs?)),
        }
    }
    Ok((
        Layout::Cognate,
        runtime.read_graphs(&f32_programs(model, Layout::Cognate, attentions)?, options)?,
    ))
}
