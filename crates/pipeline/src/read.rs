//! Images to text, by an encoder of images and a decoder.

use crate::batches::on_workers;
use crate::error::{Cause, Result};
use crate::images::ImageInput;
use crate::loaded::LoadedModel;
use crate::options::{DecodingOptions, LoadOptions};
use crate::translation::TranslatedText;
use crate::translator::on_one_line;
use cognate_folder::ModelSource;
use cognate_generate::{Decoder, SentenceBatch, decode};
use cognate_images::Image;
use cognate_model::Front;
use std::ops::ControlFlow;
use std::path::Path;

/// A model that reads the text of images, or describes them: transformers'
/// `VisionEncoderDecoderModel`, such as TrOCR (Li et al. 2023).
///
/// ```no_run
/// # fn main() -> cognate_pipeline::Result<()> {
/// let reader = cognate_pipeline::ImageReader::open("trocr-base-handwritten")?;
/// for texts in reader.read_files(&["line.png"])? {
///     println!("{}", texts[0].text);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ImageReader {
    model: LoadedModel,
    input: ImageInput,
}

debug_by_source!(ImageReader, |it| it.model.source());

impl ImageReader {
    /// Loads a checkpoint or an export, with the settings of its files.
    ///
    /// # Errors
    /// As [`ImageReader::load`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load(
            ModelSource::find(folder.as_ref())?,
            &LoadOptions::default(),
            &DecodingOptions::default(),
        )
    }

    /// Loads a checkpoint or an export.
    ///
    /// # Errors
    /// If a file is missing or wrong, the model does not read images, an option contradicts it, or
    /// the engine cannot run it.
    pub fn load(
        source: ModelSource,
        options: &LoadOptions,
        decoding: &DecodingOptions,
    ) -> Result<Self> {
        let adjust =
            |settings, config: &_, tokenizer: &_| decoding.apply(settings, config, tokenizer);
        let model = LoadedModel::open(source, options, decoding.attentions(), adjust)?;
        let Front::Pixels(patches) = model.config().front else {
            let message =
                format!("{}: does not read images; expected a model such as TrOCR", model.source());
            return Err(Cause::InFolder(message).into());
        };
        let input = ImageInput::open(model.source().folder()?, patches)?;
        Ok(Self { model, input })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        &self.model
    }

    /// The texts of PNG and JPEG files, for each the best first.
    ///
    /// # Errors
    /// If a file is no picture, or the engine fails.
    pub fn read_files(
        &self,
        paths: &[impl AsRef<Path> + Sync],
    ) -> Result<Vec<Vec<TranslatedText>>> {
        self.read(paths.len(), |index| Ok(Box::new(Image::open(paths[index].as_ref())?)))
    }

    /// The texts of images, for each the best first.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn read_images(&self, images: &[Image]) -> Result<Vec<Vec<TranslatedText>>> {
        self.read(images.len(), |index| Ok(&images[index]))
    }

    fn read<I: AsRef<Image>>(
        &self,
        n_images: usize,
        load: impl Fn(usize) -> Result<I> + Sync,
    ) -> Result<Vec<Vec<TranslatedText>>> {
        let text = |hypothesis: cognate_generate::Hypothesis| {
            Ok(TranslatedText {
                text: on_one_line(self.model.tokenizer().decode(&hypothesis.tokens)?),
                hypothesis,
            })
        };
        let work = |decoder: &mut Box<dyn Decoder>, chosen: &[usize]| {
            let pixels = self.input.pixel_values(chosen, &load)?;
            let numbers: Vec<_> = chosen.iter().map(|&index| index as u64 + 1).collect();
            let batch =
                SentenceBatch { sources: (&pixels).into(), prefixes: &[], numbers: &numbers };
            let found = decode(decoder.as_mut(), &batch, self.model.settings(), &mut |_| {
                ControlFlow::Continue(())
            })?;
            found.into_iter().map(|hypotheses| hypotheses.into_iter().map(text).collect()).collect()
        };
        let batches = self.input.batches(n_images, self.model.workers().get());
        on_workers((self.model.workers(), || self.model.decoder()), batches, work, |_, _| {})
    }
}
