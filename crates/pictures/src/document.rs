//! Sentences with their tokens and attention weights.

use crate::error::{Error, ErrorKind, Result};
use crate::{Explained, SourcePicture, Token, Weights};
use serde::{Deserialize, Serialize};

/// Sentences of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document<W = Weights> {
    /// The name of the model.
    pub model: String,
    /// The engine.
    pub engine: String,
    /// The sentences; several are shown side by side.
    pub examples: Vec<Example<W>>,
}

/// A sentence, its translation, and the attention weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example<W = Weights> {
    /// The sentence.
    pub source: SourceText,
    /// Its translation.
    pub target: TargetText,
    /// Rows and columns are source tokens; of no layers if they are not known.
    pub encoder_attentions: W,
    /// Rows are output tokens, columns input tokens of the decoder.
    pub decoder_attentions: W,
    /// Rows are output tokens of the decoder, columns source tokens.
    pub cross_attentions: W,
    /// The translation step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
}

/// The input of the encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The sentence.
    pub text: String,
    /// Its tokens, the end token included.
    pub tokens: Vec<Token>,
    /// The picture that the encoder reads instead, whose name is `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<SourcePicture>,
}

/// The input and output of the decoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetText {
    /// The translation.
    pub text: String,
    /// The input at each position: the start token, then the output.
    pub read: Vec<Token>,
    /// The output at each position, the end token last.
    pub written: Vec<Token>,
}

/// One of the three attentions of a Transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Self-attention of the encoder.
    Encoder,
    /// Self-attention of the decoder.
    Decoder,
    /// Cross-attention.
    Cross,
}

impl Attention {
    /// All attentions.
    pub const ALL: [Self; 3] = [Self::Encoder, Self::Decoder, Self::Cross];

    /// The title of a figure.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Encoder => "Encoder self-attention",
            Self::Decoder => "Decoder self-attention",
            Self::Cross => "Cross-attention",
        }
    }
}

impl<W> Example<W> {
    /// The tokens of rows and of columns.
    pub fn words(&self, attention: Attention) -> [&[Token]; 2] {
        match attention {
            Attention::Encoder => [&self.source.tokens, &self.source.tokens],
            Attention::Decoder => [&self.target.written, &self.target.read],
            Attention::Cross => [&self.target.written, &self.source.tokens],
        }
    }

    /// The weights.
    pub fn weights(&self, attention: Attention) -> &W {
        match attention {
            Attention::Encoder => &self.encoder_attentions,
            Attention::Decoder => &self.decoder_attentions,
            Attention::Cross => &self.cross_attentions,
        }
    }

    /// The same sentence with other weights.
    pub(crate) fn map<V>(&self, mut to: impl FnMut(&W) -> Result<V>) -> Result<Example<V>> {
        let (source, target) = (self.source.clone(), self.target.clone());
        let [encoder_attentions, decoder_attentions, cross_attentions] =
            Attention::ALL.map(|attention| to(self.weights(attention)));
        Ok(Example {
            source,
            target,
            encoder_attentions: encoder_attentions?,
            decoder_attentions: decoder_attentions?,
            cross_attentions: cross_attentions?,
            explained: self.explained.clone(),
        })
    }
}

impl Document {
    /// Checks that weights and tokens agree.
    ///
    /// # Errors
    /// If there is no example, or sizes differ.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Sizes, message));
        let Some(first) = self.examples.first() else {
            return refuse("expected an example, found none".into());
        };
        for (number, example) in self.examples.iter().enumerate() {
            for attention in Attention::ALL {
                let [layers, heads, ..] = first.weights(attention).shape();
                let [rows, columns] = example.words(attention).map(<[Token]>::len);
                let (expected, found) =
                    ([layers, heads, rows, columns], example.weights(attention).shape());
                if found != expected && found[0] + layers > 0 {
                    let place = attention.title().to_lowercase();
                    return refuse(format!(
                        "example {}: {place}: expected weights {expected:?}, found {found:?}",
                        number + 1
                    ));
                }
            }
            if let Some(picture) = &example.source.picture
                && picture.n_tokens() != Some(example.source.tokens.len())
            {
                let SourcePicture { cells: [rows, columns], leading, trailing, .. } = picture;
                let found = example.source.tokens.len();
                return refuse(format!(
                    "example {}: expected source tokens for {rows} x {columns} cells, {leading} before and {trailing} after them, found {found}",
                    number + 1
                ));
            }
            let Example { source, target, .. } = example;
            let counts = [&source.tokens, &target.read, &target.written].map(Vec::len);
            if let Some(misfit) =
                example.explained.as_ref().and_then(|explained| explained.misfit(counts))
            {
                return refuse(format!("example {}: step by step: {misfit}", number + 1));
            }
        }
        Ok(())
    }
}
