//! The options of a command's model.

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate::{Devices, Engine, Languages, LoadOptions, ModelSource};
use cognate_folder::{CONFIG, Configuration};
use cognate_pipeline::open_tokenizer;
use cognate_text::Tokenizer;
use std::env;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The environment variable with the default of `--model`.
const VARIABLE: &str = "COGNATE_MODEL";

/// The bundled checkpoint.
const BUNDLED: &str = "testdata/multi30k-en-de";

/// The model, its languages and its engine.
#[derive(Clone, clap::Args)]
pub(crate) struct ModelOptions {
    #[command(flatten)]
    folder: ModelFolder,
    #[command(flatten)]
    engine: EngineOptions,
}

/// The model and its engine, for audio and images: the languages of text do not apply.
#[derive(Clone, clap::Args)]
pub(crate) struct MediaModelOptions {
    /// Folder of an export or a checkpoint, which is exported to a temporary folder [default:
    /// $COGNATE_MODEL]
    #[arg(short, long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineOptions,
}

/// The engine.
#[derive(Clone, clap::Args)]
struct EngineOptions {
    /// Inference engine
    #[arg(long, default_value = "auto", value_parser = engine())]
    engine: Engine,
    /// Device of the engine: cpu, or NVIDIA GPUs by ONNX Runtime, such as cuda or cuda:0,cuda:1,
    /// over which workers are spread; an error if there is none
    #[arg(long, value_name = "DEVICES", default_value_t)]
    device: Devices,
    #[command(flatten)]
    unused: UnusedOption,
}

/// The folder of a model.
#[derive(Clone, clap::Args)]
struct ModelPath {
    /// Folder of an export or a checkpoint, which is exported to a temporary folder [default:
    /// $COGNATE_MODEL, else the bundled checkpoint]
    #[arg(short, long, value_name = "DIR")]
    model: Option<PathBuf>,
}

/// The folder of a model, and the languages of its tokenizer.
#[derive(Clone, clap::Args)]
pub(crate) struct ModelFolder {
    #[command(flatten)]
    path: ModelPath,
    #[command(flatten)]
    languages: LanguageOptions,
}

impl ModelPath {
    /// The source of the model.
    fn source(&self) -> Result<ModelSource> {
        match &self.model {
            Some(path) => Ok(ModelSource::find(path)?),
            None => default_source(),
        }
    }
}

impl ModelFolder {
    /// The model's tokenizer.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let source = self.path.source()?;
        let folder = source.folder()?;
        let config = Configuration::read(folder)?.config;
        Ok(self.languages.languages().choose(open_tokenizer(folder, &config)?, &config)?)
    }
}

/// The languages of a multilingual model.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LanguageOptions {
    /// Language of the sentences, for a multilingual model: en_XX (mBART), eng_Latn (NLLB), en
    /// (M2M100) [default: the tokenizer's]
    #[arg(long, value_name = "CODE")]
    source_language: Option<String>,
    /// Language to translate into, for a multilingual model: de_DE (mBART), deu_Latn (NLLB), de
    /// (M2M100), deu (Marian) [default: the one in generation_config.json]
    #[arg(long, value_name = "CODE")]
    target_language: Option<String>,
}

impl LanguageOptions {
    pub(crate) fn languages(&self) -> Languages {
        Languages {
            source_language: self.source_language.clone(),
            target_language: self.target_language.clone(),
        }
    }
}

/// The treatment of unused tensors.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct UnusedOption {
    /// Ignore tensors of a checkpoint that its model does not use, with a warning; by default such
    /// a checkpoint is rejected
    #[arg(long)]
    pub(crate) ignore_unused: bool,
}

impl ModelOptions {
    /// Whether the command line names a model.
    pub(crate) fn is_named(&self) -> bool {
        self.folder.path.model.is_some()
    }

    /// Whether the model runs on GPUs.
    pub(crate) fn is_on_gpus(&self) -> bool {
        self.engine.device.are_gpus()
    }

    /// The source of the model.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        self.folder.path.source()
    }

    /// The options that load the model.
    pub(crate) fn load(
        &self,
        workers: Option<NonZeroUsize>,
        threads: Option<NonZeroUsize>,
    ) -> LoadOptions {
        LoadOptions {
            languages: self.folder.languages.languages(),
            ..self.engine.load(workers, threads)
        }
    }
}

impl MediaModelOptions {
    /// The source of the model.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        match &self.model {
            Some(path) => Ok(ModelSource::find(path)?),
            None => match named_by_variable()? {
                Some(source) => Ok(source),
                None => bail!(
                    "no model: pass --model DIR, or set {VARIABLE} to the folder of a checkpoint or an export"
                ),
            },
        }
    }

    /// The options that load the model.
    pub(crate) fn load(
        &self,
        workers: Option<NonZeroUsize>,
        threads: Option<NonZeroUsize>,
    ) -> LoadOptions {
        self.engine.load(workers, threads)
    }
}

impl EngineOptions {
    fn load(&self, workers: Option<NonZeroUsize>, threads: Option<NonZeroUsize>) -> LoadOptions {
        LoadOptions {
            engine: self.engine,
            device: self.device.clone(),
            languages: Languages::default(),
            workers,
            threads,
            ignore_unused: self.unused.ignore_unused,
            huge_pages: true,
            allow_missing_language: false,
            shortlist: None,
        }
    }
}

/// The model of `COGNATE_MODEL`, if it is set.
fn named_by_variable() -> Result<Option<ModelSource>> {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    path.map(|path| ModelSource::find(Path::new(&path)).context(VARIABLE)).transpose()
}

/// The model of `COGNATE_MODEL`, else the bundled checkpoint.
fn default_source() -> Result<ModelSource> {
    if let Some(source) = named_by_variable()? {
        return Ok(source);
    }
    match bundled() {
        Some(path) => Ok(ModelSource::find(&path)?),
        None => bail!(
            "no model: pass --model DIR, or set {VARIABLE} to the folder of a checkpoint or an export"
        ),
    }
}

/// The folder of the bundled checkpoint, if the program runs in a clone of the repository or was
/// built in one.
fn bundled() -> Option<PathBuf> {
    let is_there = |path: &PathBuf| path.join(CONFIG).is_file();
    let above =
        |place: PathBuf| place.ancestors().map(|folder| folder.join(BUNDLED)).find(is_there);
    let places = [env::current_dir(), env::current_exe()];
    Some(PathBuf::from(BUNDLED))
        .filter(is_there)
        .or_else(|| places.into_iter().flatten().find_map(above))
}

fn engine() -> impl TypedValueParser<Value = Engine> {
    let values = [
        PossibleValue::new("auto").help("ONNX Runtime if its library is found, else tract"),
        PossibleValue::new("reference").help("reference evaluator, slow; needs a checkpoint"),
        PossibleValue::new("tract").help("tract, in pure Rust, always available"),
        PossibleValue::new("ort")
            .help("ONNX Runtime; `cargo xtask onnxruntime` installs its library"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_can_be_chosen() {
        let engines: Vec<_> = engine()
            .possible_values()
            .into_iter()
            .flatten()
            .map(|value| value.get_name().to_owned())
            .collect();
        assert_eq!(engines, Engine::ALL.map(|engine| engine.to_string()));
    }
}
