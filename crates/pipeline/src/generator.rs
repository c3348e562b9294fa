//! Continuing texts, by a decoder alone.

use crate::error::Result;
use crate::loaded::LoadedModel;
use crate::translation::{Line, TranslatedText};
use crate::translator::{Translator, TranslatorOptions};
use crate::{Error, Notice};
use cognate_folder::ModelSource;
use std::path::Path;

/// A model that continues texts: a decoder alone, such as GPT-2 (Radford et al. 2019). It can be
/// shared between threads; clones share the model.
///
/// ```no_run
/// # fn main() -> cognate_pipeline::Result<()> {
/// let generator = cognate_pipeline::Generator::open("gpt2")?;
/// for texts in generator.generate(&["Once upon a time"])? {
///     println!("Once upon a time{}", texts[0].text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Generator {
    lines: Translator,
}

debug_by_source!(Generator, |it| it.lines.model().source());

impl Generator {
    /// Loads the model in `folder`, a checkpoint or an export, with the settings of its files.
    ///
    /// # Errors
    /// As [`Generator::load`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load(ModelSource::find(folder.as_ref())?, &TranslatorOptions::default())
    }

    /// Loads a model from its source.
    ///
    /// # Errors
    /// If the model has an encoder, an option contradicts it, or no engine can run it.
    pub fn load(source: ModelSource, options: &TranslatorOptions) -> Result<Self> {
        let TranslatorOptions { load, decoding, batch_tokens, batch_size } = options;
        let adjust =
            |settings, config: &_, tokenizer: &_| decoding.apply(settings, config, tokenizer);
        let model = LoadedModel::open(source, load, decoding.attentions(), adjust)?.continuing()?;
        Ok(Self { lines: Translator::new(model, decoding, [*batch_tokens, *batch_size])? })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        self.lines.model()
    }

    /// Messages about the loaded model.
    pub fn notices(&self) -> &[Notice] {
        self.lines.notices()
    }

    /// Continues prompts in batches of similar length on several workers; for each the best text
    /// first, or samples as they are drawn, without the prompt. An empty prompt is the beginning of
    /// a text. The texts do not
    /// depend on the number of workers.
    ///
    /// # Errors
    /// If a prompt cannot be encoded or is too long, or the engine fails; the error names the first
    /// such prompt, counted from 1.
    pub fn generate(&self, prompts: &[impl AsRef<str>]) -> Result<Vec<Vec<TranslatedText>>> {
        Ok(self.lines.translate(prompts)?.into_iter().map(|found| found.hypotheses).collect())
    }

    /// Continues one prompt and calls `write` with each part of the text as soon as it is final.
    /// `number` counts prompts from 1 and is part of the random seed. Returns the text.
    ///
    /// # Errors
    /// With beam search, if the prompt cannot be encoded or is too long, the engine fails, or
    /// `write` does.
    pub fn stream<E: From<Error>>(
        &self,
        prompt: &str,
        number: u64,
        write: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<Option<TranslatedText>, E> {
        let found =
            self.lines.stream(&Line { text: prompt.into(), prefix: None }, number, write)?;
        Ok(found.hypotheses.into_iter().next())
    }
}

/// Lines of prompts, batched and decoded as sentences are: a prompt stands for a sentence, the text
/// after it for its translation.
impl AsRef<Translator> for Generator {
    fn as_ref(&self) -> &Translator {
        &self.lines
    }
}
