//! Texts to vectors: the states of an encoder, pooled.

use crate::batches::BatchLimit;
use crate::encoder::{BATCH_TOKENS, LoadedEncoder, Part};
use crate::error::{Cause, Error, Result};
use crate::options::LoadOptions;
use cognate_folder::{ModelSource, Pooling, SentenceSettings};
use cognate_model::interface::{LAST_HIDDEN_STATE, POOLER_OUTPUT};
use cognate_runtime::Values;
use ndarray::{Array2, ArrayView1};
use std::path::Path;

/// How texts become vectors. What is not set is as sentence-transformers' files in the folder say.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// How states become one vector; [`Pooling::Mean`] where no file says it.
    pub pooling: Option<Pooling>,
    /// Whether vectors are divided by their length; not where no file says it.
    pub normalize: Option<bool>,
    /// The most tokens of a text; longer texts are cut.
    pub max_tokens: Option<usize>,
    /// The text to put before each text.
    pub prompt: Option<String>,
    /// The name of a prompt of the folder to put before each text.
    pub prompt_name: Option<String>,
    /// The engine.
    pub load: LoadOptions,
}

/// A model that turns texts into vectors.
///
/// ```no_run
/// # fn main() -> cognate_pipeline::Result<()> {
/// let embedder = cognate_pipeline::Embedder::open("all-MiniLM-L6-v2")?;
/// let vectors = embedder.embed(&["A dog.", "Ein Hund."])?;
/// assert_eq!(vectors[0].len(), embedder.width());
/// # Ok(())
/// # }
/// ```
pub struct Embedder {
    model: LoadedEncoder,
    pooling: Pooling,
    normalize: bool,
    /// What stands before each text.
    prompt: String,
    lower_case: bool,
}

debug_by_source!(Embedder, |it| it.model.source());

/// The least length by which a vector is divided, as in PyTorch.
const LEAST_LENGTH: f64 = 1e-12;

impl Embedder {
    /// Loads the encoder of a checkpoint, or an exported encoder.
    ///
    /// # Errors
    /// As [`Embedder::load`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load(ModelSource::find(folder.as_ref())?, &EmbedOptions::default())
    }

    /// Loads the encoder of a checkpoint, or an exported encoder.
    ///
    /// # Errors
    /// If a file is missing or wrong, the model has no such states or prompt, or the engine cannot
    /// run it.
    pub fn load(source: ModelSource, options: &EmbedOptions) -> Result<Self> {
        let settings = SentenceSettings::read(source.folder()?)?.unwrap_or_default();
        let prompt = prompt(&settings, options)?.to_owned();
        let pooling = options.pooling.unwrap_or(settings.pooling);
        if !prompt.is_empty() && !settings.include_prompt && pooling == Pooling::Mean {
            let place = source.folder()?.join(SentenceSettings::POOLING_FILE);
            let message = "include_prompt: expected true with a prompt, found false";
            return Err(Cause::InFolder(format!("{}: {message}", place.display())).into());
        }
        let mut model = LoadedEncoder::open(source, &options.load, Part::Encoder)?;
        let SentenceSettings { normalize, max_tokens, lower_case, .. } = settings;
        let normalize = options.normalize.unwrap_or(normalize);
        if let Some(max_tokens) = options.max_tokens.or(max_tokens) {
            let n_around = model.cut_to(max_tokens);
            if max_tokens <= n_around {
                let message = format!(
                    "{max_tokens} is not more than the {n_around} tokens that stand around every text"
                );
                return Err(Error::wrong_option("max_tokens", message));
            }
        }
        match pooling {
            Pooling::Pooler if !model.gives(POOLER_OUTPUT) => {
                return Err(Error::wrong_option(
                    "pooling",
                    "the model has no pooler; expected mean or first",
                ));
            }
            Pooling::Mean | Pooling::First if !model.gives(LAST_HIDDEN_STATE) => {
                let place = model.source().to_string();
                return Err(Cause::InFolder(format!(
                    "{place}: gives no states to embed by; export it with --part encoder"
                ))
                .into());
            }
            Pooling::Mean | Pooling::First | Pooling::Pooler => {}
        }
        Ok(Self { model, pooling, normalize, prompt, lower_case })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedEncoder {
        &self.model
    }

    /// The numbers of a vector.
    pub fn width(&self) -> usize {
        self.model.config().d_model
    }

    /// A vector for each text.
    ///
    /// # Errors
    /// If a text has a token that the model does not know, or the engine fails.
    pub fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>> {
        self.embed_in(texts, BATCH_TOKENS)
    }

    /// As [`Embedder::embed`]; ends after a batch when `is_wanted` returns false.
    ///
    /// # Errors
    /// As [`Embedder::embed`], or with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn embed_while(
        &self,
        texts: &[impl AsRef<str>],
        is_wanted: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Vec<f32>>> {
        self.run(texts, BATCH_TOKENS, is_wanted)
    }

    /// As [`Embedder::embed`], with as many texts together as fill `batch_tokens`, padding included.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub fn embed_in(
        &self,
        texts: &[impl AsRef<str>],
        batch_tokens: usize,
    ) -> Result<Vec<Vec<f32>>> {
        self.run(texts, batch_tokens, || true)
    }

    fn run(
        &self,
        texts: &[impl AsRef<str>],
        batch_tokens: usize,
        is_wanted: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Vec<f32>>> {
        let read = |text: &str| {
            let text = format!("{}{text}", self.prompt);
            if self.lower_case { text.to_lowercase() } else { text }
        };
        let texts: Vec<_> = texts.iter().map(|text| read(text.as_ref())).collect();
        self.model.run(&texts, BatchLimit::tokens(batch_tokens), is_wanted, |outputs, mask| {
            let pooled = self.pool(outputs, mask)?;
            Ok(pooled.outer_iter().map(|vector| self.finish(vector)).collect())
        })
    }

    /// `[batch, d_model]`
    fn pool(&self, outputs: &Values, mask: &Array2<i64>) -> Result<Array2<f64>> {
        match self.pooling {
            Pooling::Mean => self.model.mean(outputs, LAST_HIDDEN_STATE, mask),
            Pooling::Pooler => self.model.mean(outputs, POOLER_OUTPUT, mask),
            Pooling::First => {
                let first =
                    Array2::from_shape_fn(mask.dim(), |(_, position)| i64::from(position == 0));
                self.model.mean(outputs, LAST_HIDDEN_STATE, &first)
            }
        }
    }

    fn finish(&self, vector: ArrayView1<'_, f64>) -> Vec<f32> {
        let length =
            if self.normalize { vector.dot(&vector).sqrt().max(LEAST_LENGTH) } else { 1.0 };
        vector.iter().map(|number| (number / length) as f32).collect()
    }
}

/// The chosen or default prompt.
fn prompt<'p>(settings: &'p SentenceSettings, options: &'p EmbedOptions) -> Result<&'p str> {
    match (&options.prompt, &options.prompt_name) {
        (Some(_), Some(_)) => {
            Err(Error::wrong_option("prompt", "expected no prompt_name beside it"))
        }
        (Some(prompt), None) => Ok(prompt),
        (None, name) => settings.prompt(name.as_deref()).map_err(|known| {
            let message = match known.as_slice() {
                [] => "the model has no prompts".to_owned(),
                known => format!("expected one of {}", known.join(", ")),
            };
            let name = name.as_deref().unwrap_or_default();
            Error::wrong_option("prompt_name", format!("{message}, found {name:?}"))
        }),
    }
}
