//! Attention weights and explanations of a sentence, or of an image or audio and its text.

mod explained;

use crate::error::{Cause, Error, Result};
use crate::images::ImageInput;
use crate::loaded::LoadedModel;
use crate::notice::Notice;
use crate::options::{DecodingOptions, LoadOptions};
use crate::speech::{Transcriber, TranscriberOptions};
use cognate_export::Listing;
use cognate_folder::{Manifest, ModelSource, optimum, require_layout};
use cognate_generate::{
    AttentionRequest, Hypothesis, SentenceBatch, Settings, Sources, attend, decode,
};
use cognate_images::Image;
use cognate_model::{Attentions, Config, Front, Layout, Names};
use cognate_pictures::{Example, SourceText, TargetText, Token, Weights};
use cognate_text::Tokenizer;
use ndarray::{Array4, ArrayD};
use std::ops::ControlFlow;
use std::path::Path;

/// A model whose graphs output attention weights.
pub struct Observer {
    model: LoadedModel,
    input: Input,
    ignore_unused: bool,
}

debug_by_source!(Observer, |it| it.model.source());

/// What a model reads.
enum Input {
    Text,
    Images(ImageInput),
    Audio(Box<Transcriber>),
}

impl Input {
    fn name(&self) -> &'static str {
        match self {
            Self::Text => "texts",
            Self::Images(_) => "images",
            Self::Audio(_) => "audio",
        }
    }
}

/// The contents of an example besides attention weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Details {
    /// Nothing.
    Omit,
    /// An explanation, with this number of most probable next tokens at each step.
    Likeliest(usize),
}

/// How a text is searched.
struct Search {
    settings: Settings,
    /// What every text begins with, after the start token.
    prefix: Vec<i64>,
}

/// The tokens of a sentence and its translation.
struct Sentence {
    source: Source,
    search: Search,
    /// The decoder's input, from the start token.
    read: Vec<i64>,
    /// The decoder's output at each of these positions.
    written: Vec<i64>,
    text: String,
    /// Whether the translation was given.
    is_given: bool,
}

/// The input of the encoder.
enum Source {
    /// Ids with the end token.
    Tokens(Vec<i64>),
    /// Pixels or frames.
    Features(ArrayD<f32>),
}

impl Source {
    fn as_sources(&self) -> Sources<'_> {
        match self {
            Self::Tokens(tokens) => std::slice::from_ref(tokens).into(),
            Self::Features(features) => Sources::Features(features),
        }
    }
}

impl Observer {
    /// Loads a model; of `decoding`, only `beams` and `max_new_tokens` are used.
    ///
    /// # Errors
    /// If its graphs do not output attention weights, and as [`LoadedModel::open`].
    pub fn load(
        source: ModelSource,
        options: &LoadOptions,
        decoding: &DecodingOptions,
    ) -> Result<Self> {
        let (source, notice) = with_attentions(source)?;
        let adjust = |settings, config: &Config, _: &Tokenizer| {
            decoding.apply_deterministic(settings, config)
        };
        let mut model = LoadedModel::open(source, options, Attentions::All, adjust)?;
        let input = match model.config().front {
            Front::Pixels(patches) => {
                Input::Images(ImageInput::open(model.source().folder()?, patches)?)
            }
            Front::Tokens | Front::Frames { .. } => {
                model = model.translating()?;
                Input::Text
            }
        };
        notice.into_iter().for_each(|notice| model.add_notice(notice));
        Ok(Self { model, input, ignore_unused: options.ignore_unused })
    }

    /// Loads a speech model, which writes texts without timestamps and as transformers does,
    /// whatever the options of transcription.
    ///
    /// # Errors
    /// As [`Observer::load`] and [`Transcriber::load`].
    pub fn load_speech(source: ModelSource, options: TranscriberOptions) -> Result<Self> {
        let (source, notice) = with_attentions(source)?;
        let ignore_unused = options.load.ignore_unused;
        let transcriber = Transcriber::observing(source, options)?;
        let mut model = transcriber.model().clone();
        notice.into_iter().for_each(|notice| model.add_notice(notice));
        Ok(Self { model, input: Input::Audio(Box::new(transcriber)), ignore_unused })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        &self.model
    }

    /// The attention weights of a sentence and its translation, `target` or the model's.
    ///
    /// # Errors
    /// If a text is empty or too long, or the engine fails.
    pub fn example(&self, text: &str, target: Option<&str>, details: Details) -> Result<Example> {
        let Input::Text = self.input else { return Err(self.other_input("texts")) };
        let ids = self.model.source_ids(text)?;
        let tokens = ids.iter().map(|&id| Token { piece: self.source_piece(id), id }).collect();
        let text = SourceText { text: text.to_owned(), tokens, picture: None };
        let sentence = self.sentence(Source::Tokens(ids), self.search(), target)?;
        self.observed(&sentence, text, Ok, details)
    }

    /// The attention weights of a PNG or JPEG file and its text, `target` or the model's. The
    /// source's tokens are the patches of the picture, whose pieces are row and column.
    ///
    /// # Errors
    /// If the file is no picture, the model reads texts, the text is too long, or the engine fails.
    pub fn example_of_image(
        &self,
        path: &Path,
        target: Option<&str>,
        details: Details,
    ) -> Result<Example> {
        let Input::Images(images) = &self.input else { return Err(self.other_input("images")) };
        let (pixels, picture) = images.observed(&Image::open(path)?)?;
        let [rows, columns] = picture.cells;
        let leading = (0..picture.leading).map(|index| format!("token {}", index + 1));
        let cells = (0..rows * columns)
            .map(|cell| format!("{},{}", cell / columns + 1, cell % columns + 1));
        let tokens = leading.chain(cells).zip(0..).map(|(piece, id)| Token { piece, id }).collect();
        let sentence = self.sentence(Source::Features(pixels), self.search(), target)?;
        self.observed(
            &sentence,
            SourceText { text: name_of(path), tokens, picture: Some(picture) },
            Ok,
            details,
        )
    }

    /// The attention weights of an audio file of at most 30 s and its text, `target` or the
    /// model's. The source's tokens are the positions of the encoder, whose pieces are their times;
    /// the picture is the spectrogram. There are no weights of the encoder.
    ///
    /// # Errors
    /// If the file is no audio or is longer, the model reads something else, the text is too long,
    /// or the engine fails.
    pub fn example_of_audio(
        &self,
        path: &Path,
        target: Option<&str>,
        details: Details,
    ) -> Result<Example> {
        let Input::Audio(transcriber) = &self.input else { return Err(self.other_input("audio")) };
        let window = transcriber.window_of(path)?;
        let source = SourceText {
            text: name_of(path),
            tokens: window.tokens(),
            picture: Some(window.picture()?),
        };
        let search =
            Search { settings: window.settings.clone(), prefix: window.prompt[1..].to_vec() };
        let sentence = self.sentence(Source::Features(window.features.clone()), search, target)?;
        self.observed(&sentence, source, |cross| Ok(window.of_tokens(cross)), details)
    }

    fn other_input(&self, given: &str) -> Error {
        Error::input(format_args!("the model reads {}, not {given}", self.input.name()))
    }

    fn search(&self) -> Search {
        Search { settings: self.model.settings().clone(), prefix: Vec::new() }
    }

    /// `columns` makes the columns of cross-attention those of the source's tokens.
    fn observed(
        &self,
        sentence: &Sentence,
        text: SourceText,
        columns: impl FnOnce(Array4<f32>) -> Result<Array4<f32>>,
        details: Details,
    ) -> Result<Example> {
        let likeliest = match details {
            Details::Omit => 1,
            Details::Likeliest(likeliest) => likeliest,
        };
        let mut sessions = self.model.sessions();
        let [encoder, decoder] = sessions.as_mut_slice() else {
            let message = format!(
                "{}: expected an encoder and a decoder, found {} graphs",
                self.model.source(),
                sessions.len()
            );
            return Err(Cause::InFolder(message).into());
        };
        let of_encoder = !matches!(self.input, Input::Audio(_));
        let attending = AttentionRequest {
            source: sentence.source.as_sources(),
            target: &sentence.read,
            likeliest,
            of_encoder,
        };
        let attended = attend(
            self.model.layout(),
            [encoder.as_mut(), decoder.as_mut()],
            self.model.config(),
            attending,
        )?;
        let tokens = |ids: &[i64]| ids.iter().map(|&id| self.token(id)).collect();
        let mut example = Example {
            source: text,
            target: TargetText {
                text: sentence.text.clone(),
                read: tokens(&sentence.read),
                written: tokens(&sentence.written),
            },
            encoder_attentions: weights(attended.encoder)?,
            decoder_attentions: weights(attended.decoder)?,
            cross_attentions: weights(columns(attended.cross)?)?,
            explained: None,
        };
        if details != Details::Omit {
            example.explained =
                Some(self.explained(sentence, &example, &attended.next, &attended.followed)?);
        }
        Ok(example)
    }

    fn sentence(&self, source: Source, search: Search, target: Option<&str>) -> Result<Sentence> {
        let Search { settings, prefix } = &search;
        let (tokens, complete, text) = match target {
            Some(target) if target.trim().is_empty() => {
                return Err(Error::wrong_option("target", "expected a text, found none"));
            }
            Some(target) => {
                let ids = match &self.input {
                    // As all texts of speech models begin.
                    Input::Audio(_) => {
                        self.model.target_ids_after(prefix, &format!(" {}", target.trim()))
                    }
                    Input::Text | Input::Images(_) => self.model.target_ids(target),
                };
                (
                    ids.map_err(|error| Error::wrong_option("target", error))?,
                    true,
                    target.to_owned(),
                )
            }
            None => {
                let batch = SentenceBatch {
                    prefixes: std::slice::from_ref(prefix),
                    ..SentenceBatch::new(source.as_sources())
                };
                let found = decode(self.model.decoder()?.as_mut(), &batch, settings, &mut |_| {
                    ControlFlow::Continue(())
                })?;
                let found = found
                    .into_iter()
                    .flatten()
                    .next()
                    .ok_or_else(|| Error::input("the model has no translation"))?;
                let Hypothesis { tokens, complete, .. } = found;
                let text = self.model.tokenizer().decode(&tokens)?.trim().to_owned();
                (tokens, complete, text)
            }
        };
        let end = settings.eos_tokens.first().copied().filter(|_| complete);
        let written: Vec<_> = tokens.into_iter().chain(end).collect();
        if written.is_empty() {
            return Err(Error::input("the translation has no tokens; there is nothing to observe"));
        }
        let read = [settings.start_token]
            .into_iter()
            .chain(written[..written.len() - 1].iter().copied())
            .collect();
        Ok(Sentence { source, search, read, written, text, is_given: target.is_some() })
    }

    fn source_piece(&self, id: i64) -> String {
        self.model.tokenizer().source_piece(id).unwrap_or_else(|| format!("<{id}>"))
    }

    fn token(&self, id: i64) -> Token {
        Token { piece: self.model.tokenizer().piece(id).unwrap_or_else(|| format!("<{id}>")), id }
    }
}

/// The name of a file.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn weights(found: Array4<f32>) -> Result<Weights> {
    let (layers, heads, rows, columns) = found.dim();
    Weights::new([layers, heads, rows, columns], found.into_iter().collect()).map_err(Error::input)
}

/// A source whose graphs output attention weights: the checkpoint of an export in place if its
/// graphs do not.
fn with_attentions(source: ModelSource) -> Result<(ModelSource, Option<Notice>)> {
    let ModelSource::Exported(folder) = &source else { return Ok((source, None)) };
    let Some(lack) = lack(folder)? else { return Ok((source, None)) };
    match source.clone().into_checkpoint() {
        ModelSource::Exported(_) => Err(Cause::InFolder(format!(
            "{}: {lack}, or pass the checkpoint that it was exported from",
            folder.display()
        ))
        .into()),
        checkpoint => Ok((checkpoint, Some(Notice::ExportedAgain { folder: folder.clone() }))),
    }
}

/// Why the graphs in a folder do not output all attention weights, and the remedy.
fn lack(folder: &Path) -> Result<Option<&'static str>> {
    if optimum(folder).is_some() {
        return Ok(Some(
            "is an export of Optimum, without attention weights; export the checkpoint by `cognate export CHECKPOINT OUT --attentions`",
        ));
    }
    Manifest::check(folder)?;
    let layout = require_layout(folder)?;
    if layout == Layout::SharedCache {
        return Ok(Some(
            "was exported with --target ort, without attention weights; export it again with --attentions and without --target ort",
        ));
    }
    if layout == Layout::Generate {
        return Ok(Some(
            "was exported with --layout generate, without the attention weights of the encoder and of the decoder to itself; export it again with --attentions and without --layout generate",
        ));
    }
    for (file, name) in
        layout.files().iter().zip([Names::encoder_attentions(0), Names::decoder_attentions(0)])
    {
        let listing = Listing::read(&folder.join(file))?;
        if !listing.outputs.iter().any(|(output, _)| *output == name) {
            return Ok(Some(
                "was exported without attention weights; export it again with --attentions",
            ));
        }
    }
    Ok(None)
}
