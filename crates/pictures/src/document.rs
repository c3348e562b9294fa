//! What pictures are made of: one sentence or several, with their words and weights.

use crate::error::{Error, ErrorKind, Result};
use crate::{Explained, Weights};
use serde::{Deserialize, Serialize};

/// Sentences under one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document<W = Weights> {
    /// What the model is called.
    pub model: String,
    /// What computed.
    pub engine: String,
    /// The sentences; several are shown side by side.
    pub examples: Vec<Example<W>>,
}

/// A sentence, its translation, and what was attended to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example<W = Weights> {
    /// The sentence.
    pub source: SourceText,
    /// Its translation.
    pub target: TargetText,
    /// Rows and columns are the source's tokens.
    pub encoder_attentions: W,
    /// Rows are what is written, columns what has been read.
    pub decoder_attentions: W,
    /// Rows are what is written, columns the source's tokens.
    pub cross_attentions: W,
    /// What else the model does with it, step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
}

/// What the encoder reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The sentence as it was given.
    pub text: String,
    /// Its tokens, the end token included.
    pub tokens: Vec<Token>,
}

/// What the decoder reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetText {
    /// The translation.
    pub text: String,
    /// What the decoder reads at each position: the start token, then what it wrote.
    pub read: Vec<Token>,
    /// What comes next at each position, the end token last.
    pub written: Vec<Token>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// As the vocabulary spells it.
    pub piece: String,
    /// Its number.
    pub id: i64,
}

/// One of the three places where a Transformer attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// The encoder to itself.
    Encoder,
    /// The decoder to what it has read.
    Decoder,
    /// The decoder to the source.
    Cross,
}

impl Attention {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Encoder, Self::Decoder, Self::Cross];

    /// As it stands over a figure.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Encoder => "Encoder self-attention",
            Self::Decoder => "Decoder self-attention",
            Self::Cross => "Cross-attention",
        }
    }
}

impl<W> Example<W> {
    /// The words of rows and of columns.
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
        let [encoder_attentions, decoder_attentions, cross_attentions] = Attention::ALL.map(|attention| to(self.weights(attention)));
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
    /// Whether weights and words agree.
    ///
    /// # Errors
    /// If there is no example, sizes differ, or examples are of different models.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Sizes, message));
        let Some(first) = self.examples.first() else { return refuse("expected an example, found none".into()) };
        for (number, example) in self.examples.iter().enumerate() {
            for attention in Attention::ALL {
                let [layers, heads, ..] = first.weights(attention).shape();
                let [rows, columns] = example.words(attention).map(<[Token]>::len);
                let (expected, found) = ([layers, heads, rows, columns], example.weights(attention).shape());
                if found != expected {
                    let place = attention.title().to_lowercase();
                    return refuse(format!("example {}: {place}: expected weights {expected:?}, found {found:?}", number + 1));
                }
            }
            if let Some(misfit) = example.explained.as_ref().and_then(|explained| explained.misfit(example)) {
                return refuse(format!("example {}: step by step: {misfit}", number + 1));
            }
        }
        Ok(())
    }
}
