//! What a command needs of a model: its small files, read and checked before large ones are touched, and its graphs.

use crate::account::Account;
use crate::export::Precision;
use crate::languages;
use crate::model_options::ModelOptions;
use crate::source::ModelSource;
use crate::unused::Unused;
use crate::{layout, messages};
use anyhow::{Context, Result, bail};
use cognate_export::{Existing, Folder, Staged};
use cognate_generate::Settings;
use cognate_model::{AttentionScore, Attentions, Config, Layout};
use cognate_pipeline::{TargetNaming, decode_into, open_tokenizer};
use cognate_runtime::{Device, Engine, Runtime, Source};
use cognate_text::Tokenizer;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

/// What a model's small files say.
pub(crate) struct ModelFiles {
    pub(crate) config: Config,
    pub(crate) settings: Settings,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) target_naming: TargetNaming,
}

impl ModelFiles {
    /// The tokens of a sentence, with its end.
    ///
    /// # Errors
    /// If it is empty, too long, or has a token that the model does not know.
    pub(crate) fn source_ids(&self, text: &str) -> Result<Vec<i64>> {
        let ids = self.tokenizer.encode(text)?;
        if text.trim().is_empty() || ids.is_empty() {
            bail!("the source is empty; expected a sentence");
        }
        self.check_length("source", ids.len())?;
        let vocab = self.config.source_vocab;
        if let Some(&id) = ids.iter().find(|&&id| usize::try_from(id).is_ok_and(|id| id >= vocab)) {
            let piece = self.tokenizer.piece(id).unwrap_or_default();
            bail!("the tokenizer gives {piece:?} the id {id}, which the model does not know; leave it out of the text");
        }
        Ok(ids)
    }

    /// The tokens of a translation, with the language that must come first, without its end.
    ///
    /// # Errors
    /// If it is too long.
    pub(crate) fn target_ids(&self, text: &str) -> Result<Vec<i64>> {
        let ids: Vec<_> = self.settings.forced_bos_token.into_iter().chain(self.tokenizer.encode_target(text)?).collect();
        // The start token takes a position, the end token none.
        self.check_length("translation", ids.len() + 1)?;
        Ok(ids)
    }

    fn check_length(&self, what: &str, n_tokens: usize) -> Result<()> {
        if let Some(limit) = self.config.max_positions.filter(|&limit| n_tokens > limit) {
            bail!("the {what} takes {n_tokens} positions; expected at most {limit}, those of the model");
        }
        Ok(())
    }
}

/// The encoder and the decoder as an engine takes them.
pub(crate) struct Graphs {
    pub(crate) layout: Layout,
    /// The encoder first.
    pub(crate) graphs: Vec<Source>,
    /// A checkpoint's export, unless the engine evaluates graphs.
    pub(crate) exported: Option<Staged>,
}

impl ModelOptions {
    /// What the small files of `source` say, with settings as `adjust` makes them.
    ///
    /// # Errors
    /// If a file is missing or wrong, or the options contradict it.
    pub(crate) fn files(&self, source: &ModelSource, adjust: impl FnOnce(Settings, &Config) -> Result<Settings>) -> Result<ModelFiles> {
        let folder = folder(source)?;
        Account::check(folder)?;
        let (config_json, config, settings) = configuration(folder)?;
        let mut settings = adjust(settings, &config)?;
        let tokenizer = self.languages.choose(open_tokenizer(folder, &config)?, &config)?;
        let target_naming = languages::target_naming(folder, &config_json, &tokenizer, &settings)?;
        decode_into(&tokenizer, &mut settings);
        Ok(ModelFiles { config, settings, tokenizer, target_naming })
    }

    /// Finds the graphs of `source`, or makes them of a checkpoint, for a runtime.
    ///
    /// # Errors
    /// If the runtime cannot run what is there.
    pub(crate) fn graphs(&self, source: &ModelSource, runtime: &dyn Runtime, unused: Unused, attentions: Attentions) -> Result<Graphs> {
        let device = self.device;
        let name = runtime.name();
        let read = |folder: &Path, exported| -> Result<Graphs> {
            let (layout, files) = layout::graphs(folder, name, device)?;
            warn_of_saturation(folder, name)?;
            Ok(Graphs { layout, graphs: files.into_iter().map(Source::Onnx).collect(), exported })
        };
        match (source, self.engine) {
            (ModelSource::Exported(folder), Engine::Reference) => bail!(
                "{}: --engine reference evaluates the graphs of a checkpoint, and this is an export; \
                 give the checkpoint that it was made from, or choose tract or ort",
                folder.display()
            ),
            (ModelSource::Checkpoint(folder), Engine::Reference) => {
                let model = unused.open(folder)?;
                let graphs = model.graphs(Layout::Cognate, attentions)?.map(Source::Graph).to_vec();
                Ok(Graphs { layout: Layout::Cognate, graphs, exported: None })
            }
            (ModelSource::Checkpoint(folder), Engine::Auto | Engine::Tract | Engine::Ort) => {
                let model = unused.open(folder)?;
                let temporary = Staged::temporary().context("a temporary folder for the export")?;
                let exported: PathBuf = temporary.path().join("model");
                let mut writing = Folder::create(&exported, Existing::Refuse)?;
                // The form that only ONNX Runtime's operators for the processor run is the fastest there; they give no weights, and
                // know no additive scores.
                let has_form = attentions != Attentions::All && model.config().score != AttentionScore::Additive;
                let is_fused = name == "ort" && device == Device::Cpu && has_form;
                let layout = if is_fused { Layout::SharedCache } else { Layout::Cognate };
                layout::write_graphs(&model, layout, attentions, &layout::folder_name(folder), &mut writing)?;
                writing.commit()?;
                read(&exported, Some(temporary))
            }
            (ModelSource::Exported(folder), Engine::Auto | Engine::Tract | Engine::Ort) => read(folder, None),
            (ModelSource::File(_) | ModelSource::Preset(_), _) => bail!("{source}: has no tokenizer"),
        }
    }
}

/// What the small files in `folder` say: the text of `config.json`, what it means, and how to decode.
pub(crate) fn configuration(folder: &Path) -> Result<(String, Config, Settings)> {
    let config_json = layout::read(&folder.join(layout::CONFIG))?;
    let config = Config::from_json(&config_json).map_err(within(folder))?;
    let generation = layout::read_if_there(&folder.join(layout::GENERATION))?;
    let settings = Settings::from_json(&config_json, generation.as_deref(), &config).map_err(within(folder))?;
    Ok((config_json, config, settings))
}

/// The folder with the configuration and the tokenizer.
fn folder(source: &ModelSource) -> Result<&Path> {
    match source {
        ModelSource::Checkpoint(folder) | ModelSource::Exported(folder) => Ok(folder),
        ModelSource::File(path) => bail!("{}: is a file; expected the folder of a checkpoint or of an export", path.display()),
        ModelSource::Preset(_) => bail!("{source}: has random weights and no tokenizer; translating needs a checkpoint or an export"),
    }
}

/// Library errors that begin with a file's name, with the folder before it.
fn within<E: std::fmt::Display>(folder: &Path) -> impl Fn(E) -> anyhow::Error {
    move |error| anyhow::anyhow!("{}{MAIN_SEPARATOR}{error}", folder.display())
}

/// Warns where ONNX Runtime would add up products of 8 bits in 16: its kernels for older x86 processors do, and their sums saturate.
fn warn_of_saturation(folder: &Path, runtime: &str) -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    if runtime == "ort" && !(std::is_x86_feature_detected!("avx512vnni") || std::is_x86_feature_detected!("avxvnni")) {
        let precision = Account::read(folder)?.and_then(|account| Precision::named(&account.precision));
        if precision.is_some_and(Precision::is_quantised) {
            messages::warning(
                "this processor has no instructions for 8-bit products (VNNI), without which ONNX Runtime's sums saturate; \
                 expect worse translations, or choose an export in f32",
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (folder, runtime);
    Ok(())
}
