//! Lexical shortlists: the tokens that translations of a source may contain (Jean et al. 2015,
//! section 3.2). The output layer, most of a step in a small model, is computed only for these.

use crate::error::Cause;
use crate::{BestTokens, Decoder, Logits, Result, Settings, Sources};
use ndarray::{Array2, Array4};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

/// Target tokens by the source tokens that they translate.
#[derive(Clone, Debug, Default)]
pub struct Shortlist {
    /// For all sources.
    always: Vec<i64>,
    /// By one or several source tokens.
    by_source: HashMap<Vec<i64>, Vec<i64>>,
    /// Length of the longest of these sequences.
    longest: usize,
}

impl Shortlist {
    /// Tokens for any source, and those for sequences of source tokens, in their order in a
    /// sentence.
    pub fn new(always: Vec<i64>, by_source: HashMap<Vec<i64>, Vec<i64>>) -> Self {
        let longest = by_source.keys().map(Vec::len).max().unwrap_or(0);
        Self { always, by_source, longest }
    }

    /// The tokens that translations of these sources may contain, in any order and possibly
    /// repeated.
    fn tokens(&self, sources: &[Vec<i64>]) -> impl Iterator<Item = i64> {
        let spans = sources
            .iter()
            .flat_map(|source| (1..=self.longest).flat_map(|length| source.windows(length)));
        self.always
            .iter()
            .chain(spans.filter_map(|span| self.by_source.get(span)).flatten())
            .copied()
    }
}

/// A decoder whose hypotheses contain only the tokens that a shortlist allows for the sources of
/// their batch. Probabilities are those among these tokens, so the other sentences of a batch can
/// change a translation.
pub struct ShortlistDecoder {
    decoder: Box<dyn Decoder>,
    shortlist: Arc<Shortlist>,
    /// The end tokens and the forced ones.
    needed: Vec<i64>,
    /// The sources in the batch.
    sources: Vec<Vec<i64>>,
    /// What these allow, and those that have left since the last ones joined.
    tokens: Vec<i64>,
    /// Whether the decoder computes only these.
    restricts: bool,
}

impl ShortlistDecoder {
    /// Restricts a decoder. The end tokens and forced tokens of settings are always allowed.
    pub fn new(decoder: Box<dyn Decoder>, shortlist: Arc<Shortlist>, settings: &Settings) -> Self {
        let forced = settings.forced_bos_token.into_iter().chain(settings.forced_eos_token);
        let needed = settings.eos_tokens.iter().copied().chain(forced).collect();
        let (sources, tokens) = (Vec::new(), Vec::new());
        Self { decoder, shortlist, needed, sources, tokens, restricts: false }
    }

    /// Restricts following steps to the tokens of the sources in the batch.
    fn restrict(&mut self) -> Result<()> {
        let mut tokens: Vec<i64> = self.shortlist.tokens(&self.sources).collect();
        tokens.extend(&self.needed);
        tokens.sort_unstable();
        tokens.dedup();
        if tokens.len() <= self.needed.len() {
            return Err(Cause::Contradiction(
                "shortlist: expected tokens for a source, found none".into(),
            )
            .into());
        }
        self.restricts = self.decoder.restrict(&tokens);
        self.tokens = tokens;
        Ok(())
    }
}

impl Decoder for ShortlistDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn continues_sources(&self) -> bool {
        self.decoder.continues_sources()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        self.decoder.start(sources, beams)?;
        match sources {
            Sources::Tokens(tokens) => self.sources = tokens.to_vec(),
            Sources::Again(_) => {}
            Sources::Features(_) => {
                return Err(Cause::Contradiction(
                    "shortlist: expected sources of text, found features".into(),
                )
                .into());
            }
        }
        self.restrict()
    }

    fn shares_first_step(&self) -> bool {
        self.decoder.shares_first_step()
    }

    fn leaves_processor_free(&self) -> bool {
        self.decoder.leaves_processor_free()
    }

    fn only_best(&mut self, best: &BestTokens) {
        // The best of all tokens may not be allowed.
        if self.restricts {
            self.decoder.only_best(best);
        }
    }

    fn joins(&self) -> bool {
        self.decoder.joins()
    }

    fn join(&mut self, sources: Sources<'_>) -> Result<()> {
        self.decoder.join(sources)?;
        self.sources.extend_from_slice(sources.tokens());
        self.restrict()
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        let logits = self.decoder.advance(parents, tokens)?;
        match self.restricts {
            _ if logits.are_of_best() => Ok(logits),
            true => Ok(logits.with_tokens(&self.tokens)),
            false => logits.keep(&self.tokens),
        }
    }

    fn supports_prefill(&self) -> bool {
        self.decoder.supports_prefill()
    }

    fn prefill(&mut self, tokens: &Array2<i64>) -> Result<()> {
        self.decoder.prefill(tokens)
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        self.decoder.cross_attention(layer_index)
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        self.decoder.retain(sentences)?;
        self.sources =
            sentences.iter().map(|&sentence| mem::take(&mut self.sources[sentence])).collect();
        Ok(())
    }
}
