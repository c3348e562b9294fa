//! The running batch: sentences at different places of their translations.

use crate::batch::{Event, SentenceBatch};
use crate::beam::Beams;
use crate::hypotheses::{Observer, Search};
use crate::independent::Samples;
use crate::logits::Logits;
use crate::{Decoder, Hypothesis, Result, Settings};
use ndarray::{Array2, Axis};
use rayon::prelude::*;
use std::mem;
use std::ops::{ControlFlow, Range};

/// Sentences that one decoder decodes together. Others enter between steps if the decoder lets them
/// [join](Decoder::joins), and each sentence leaves at its end. Its hypotheses do not depend on the
/// others.
pub struct RunningBatch<'s> {
    settings: &'s Settings,
    sentences: Vec<Sentence>,
    /// Of a decoder that searches by itself.
    found: Vec<(usize, Vec<Hypothesis>)>,
    n_admitted: usize,
    /// Whether all sentences are at their start.
    is_new: bool,
}

/// The number of a prompt's tokens from which a prefill is faster than steps.
const PREFILL: usize = 8;

struct Sentence {
    index: usize,
    search: Box<dyn Search>,
}

impl<'s> RunningBatch<'s> {
    /// A batch without sentences.
    ///
    /// # Errors
    /// If the settings contradict each other.
    pub fn new(settings: &'s Settings) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            settings,
            sentences: Vec::new(),
            found: Vec::new(),
            n_admitted: 0,
            is_new: false,
        })
    }

    /// The number of sentences.
    pub fn len(&self) -> usize {
        self.sentences.len() + self.found.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of tokens in the longest source or target.
    pub fn longest(&self) -> usize {
        let longest =
            |search: &dyn Search| search.prompt().source.len().max(search.tokens(0).len());
        self.sentences.iter().map(|sentence| longest(sentence.search.as_ref())).max().unwrap_or(0)
    }

    /// Adds sentences. Returns their numbers in events, which continue those of earlier sentences.
    ///
    /// # Errors
    /// If a source is empty, a prefix is too long, the engine fails, or others are running and the
    /// decoder does not let sentences [join](Decoder::joins). The other sentences are unchanged.
    pub fn admit(
        &mut self,
        decoder: &mut dyn Decoder,
        batch: &SentenceBatch<'_>,
    ) -> Result<Range<usize>> {
        batch.check()?;
        let (first, count, settings) = (self.n_admitted, batch.sources.len(), self.settings);
        let numbers = first..first + count;
        if count == 0 {
            return Ok(numbers);
        }
        if self.is_empty()
            && let Some(found) = decoder.search(batch, settings)
        {
            self.found = numbers.clone().zip(found?).collect();
            self.n_admitted += count;
            return Ok(numbers);
        }
        let continues = decoder.continues_sources();
        let sentence = |sentence: usize| {
            let prompt = batch.prompt(sentence, settings, continues)?;
            let search: Box<dyn Search> = match settings.num_beams {
                0 | 1 => Box::new(Samples::new(prompt, self.settings.n_hypotheses(), settings)),
                _ => Box::new(Beams::new(prompt, settings)),
            };
            Ok(Sentence { index: first + sentence, search })
        };
        let entering = (0..count).map(sentence).collect::<Result<Vec<_>>>()?;
        match self.sentences.is_empty() {
            true => {
                decoder.start(batch.sources, self.settings.n_hypotheses())?;
                settings.best_tokens().iter().for_each(|best| decoder.only_best(best));
            }
            false => decoder.join(batch.sources)?,
        }
        self.is_new = self.sentences.is_empty();
        self.sentences.extend(entering);
        self.n_admitted += count;
        Ok(numbers)
    }

    /// Advances all sentences by one token; those that end leave. The observer is called as by
    /// [`decode`](crate::decode).
    ///
    /// # Errors
    /// If the engine fails, a logit is NaN or infinite, or every token is forbidden. The batch
    /// cannot be used afterwards.
    pub fn step(
        &mut self,
        decoder: &mut dyn Decoder,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let settings = self.settings;
        for (sentence, hypotheses) in self.found.drain(..) {
            // In beam search no token is final before the end.
            let streamed = if settings.num_beams <= 1 { &hypotheses[..] } else { &[] };
            for (sequence, Hypothesis { tokens, .. }) in streamed.iter().enumerate() {
                let _ = tokens
                    .iter()
                    .try_for_each(|&token| observer(Event::Token { sentence, sequence, token }));
            }
            let _ = observer(Event::Finished { sentence, hypotheses: &hypotheses });
        }
        if self.sentences.is_empty() {
            return Ok(());
        }
        let mut shape = (self.sentences.len(), self.settings.n_hypotheses());
        if mem::take(&mut self.is_new) && !self.prefill(decoder, observer)? {
            // Beams are equal until their first choice. Sampling would need different random
            // numbers.
            let is_shared = settings.num_beams > 1
                && settings.sampling.is_none()
                && settings.alignment_layer.is_none();
            shape.1 = if is_shared && decoder.shares_first_step() { 1 } else { shape.1 };
        }
        let last = |(row, hypothesis): (usize, usize)| {
            let tokens = self.sentences[row].search.tokens(hypothesis);
            tokens.last().copied().expect("a hypothesis begins with the start token")
        };
        let parent = |(row, hypothesis): (usize, usize)| {
            self.sentences[row].search.parents().map_or(hypothesis, |parents| parents[hypothesis])
        };
        let parents = Array2::from_shape_fn(shape, parent);
        let is_moved =
            parents.indexed_iter().any(|((_, hypothesis), parent)| hypothesis != *parent);
        let is_free = decoder.leaves_processor_free();
        let mut logits =
            decoder.advance(is_moved.then_some(&parents), &Array2::from_shape_fn(shape, last))?;
        if is_free && settings.num_beams > 1 && self.sentences.len() >= MANY {
            read_at_once(&mut self.sentences, logits, settings)?;
        } else {
            for (row, Sentence { index, search }) in self.sentences.iter_mut().enumerate() {
                search.read(*index, &mut logits.rows(row), settings, observer)?;
            }
        }
        let attention = settings
            .alignment_layer
            .map(|layer_index| decoder.cross_attention(layer_index))
            .transpose()?;
        for (row, Sentence { index, search }) in self.sentences.iter_mut().enumerate() {
            search.advance(
                *index,
                attention.as_ref().map(|attention| attention.index_axis(Axis(0), row)),
                settings,
                observer,
            );
        }
        let (mut kept, mut done): (Vec<usize>, Vec<Sentence>) =
            ((0..shape.0).collect(), Vec::new());
        for row in (0..shape.0)
            .rev()
            .filter(|&row| self.sentences[row].search.is_done(settings))
            .collect::<Vec<_>>()
        {
            // The last takes the place of the one that leaves.
            done.push(self.sentences.swap_remove(row));
            kept.swap_remove(row);
        }
        done.sort_by_key(|sentence| sentence.index);
        for Sentence { index, search } in done {
            let hypotheses = search.into_hypotheses(settings);
            let _ = observer(Event::Finished { sentence: index, hypotheses: &hypotheses });
        }
        if !kept.is_empty() && kept.len() < shape.0 {
            decoder.retain(&kept)?;
        }
        Ok(())
    }

    /// Lets the decoder compute long prompts in one call, up to the first token whose logits are
    /// read. Returns whether it did.
    fn prefill(&mut self, decoder: &mut dyn Decoder, observer: Observer<'_>) -> Result<bool> {
        let Settings { observe, alignment_layer, .. } = *self.settings;
        let n = self
            .sentences
            .iter()
            .map(|sentence| sentence.search.prompt().n_prefill(observe))
            .min()
            .unwrap_or(0);
        if n < PREFILL || alignment_layer.is_some() || !decoder.supports_prefill() {
            return Ok(false);
        }
        decoder.prefill(&Array2::from_shape_fn((self.sentences.len(), n), |(row, place)| {
            self.sentences[row].search.prompt().tokens[place]
        }))?;
        self.sentences
            .iter_mut()
            .for_each(|Sentence { index, search }| search.follow_prompt(*index, n, observer));
        Ok(true)
    }
}

/// The number of sentences from which threads, which sleep, are worth waking.
const MANY: usize = 128;

/// The number of sentences that a thread takes from others at least.
const SHARE: usize = 16;

/// Lets all beam searches read on the threads of the processor: they call no observer before they
/// advance.
fn read_at_once(
    sentences: &mut [Sentence],
    mut logits: Logits<'_>,
    settings: &Settings,
) -> Result<()> {
    let rows = logits.sentences();
    let read = sentences.par_iter_mut().zip(rows).with_min_len(SHARE).map(
        |(Sentence { index, search }, mut rows)| {
            search.read(*index, &mut rows, settings, &mut |_| ControlFlow::Continue(()))
        },
    );
    // The error of the first sentence, not of the fastest thread.
    read.collect::<Vec<_>>().into_iter().collect()
}
