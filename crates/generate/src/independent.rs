//! Independent hypotheses: greedy search and sampling.

use crate::batch::{Event, Prompt, SentenceBatch};
use crate::constraints::Context;
use crate::sampling::Generator;
use crate::scores::{Row, Unusable, largest, log_softmax};
use crate::{Decoder, Hypothesis, Result, Settings, alignment};
use ndarray::Array2;
use std::ops::ControlFlow;

/// A sentence of the batch.
struct Sentence<'a> {
    index: usize,
    prompt: Prompt<'a>,
    sequences: Vec<Sequence>,
}

struct Sequence {
    /// With the start token and the prefix.
    tokens: Vec<i64>,
    state: State,
    log_probability: f32,
    margins: Vec<f32>,
    alignment: Vec<usize>,
    generator: Option<Generator>,
    observed: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// By the end token.
    Ended,
    /// By the limit or by the observer.
    Cut,
}

/// Decodes a batch; finished sentences leave it.
pub(crate) fn decode_independently(
    decoder: &mut dyn Decoder,
    batch: &SentenceBatch<'_>,
    settings: &Settings,
    observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let n_sequences = if settings.sampling.is_some() { settings.num_return_sequences.max(1) } else { 1 };
    let prompt = |index| batch.prompt(index, settings, decoder.continues_sources());
    let sentences = (0..batch.sources.len()).map(|index| Ok(Sentence::new(index, prompt(index)?, n_sequences, settings)));
    let mut rows = sentences.collect::<Result<Vec<_>>>()?;
    decoder.start(batch.sources, n_sequences)?;
    let mut hypotheses = vec![Vec::new(); rows.len()];
    loop {
        let tokens = Array2::from_shape_fn((rows.len(), n_sequences), |(row, sequence)| rows[row].sequences[sequence].last());
        let mut logits = decoder.advance(None, &tokens)?;
        for (row, sentence) in rows.iter_mut().enumerate() {
            sentence.advance(logits.rows(row), settings, observer)?;
        }
        if let Some(layer_index) = settings.alignment_layer {
            let attention = decoder.cross_attention(layer_index)?;
            for (sentence, attention) in rows.iter_mut().zip(attention.outer_iter()) {
                for (sequence, attention) in sentence.sequences.iter_mut().zip(attention.outer_iter()) {
                    // The start token has no alignment; a finished sequence has no new token.
                    if sequence.alignment.len() + sentence.prompt.n_start < sequence.tokens.len() {
                        sequence.alignment.push(alignment(attention, sentence.prompt.source));
                    }
                }
            }
        }
        let running: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].is_running()).collect();
        let some_left = running.len() < rows.len();
        for sentence in rows.extract_if(.., |sentence| !sentence.is_running()) {
            let index = sentence.index;
            hypotheses[index] = sentence.into_hypotheses(settings);
            let _ = observer(Event::Finished { sentence: index, hypotheses: &hypotheses[index] });
        }
        if rows.is_empty() {
            return Ok(hypotheses);
        }
        if some_left {
            decoder.retain(&running)?;
        }
    }
}

impl<'a> Sentence<'a> {
    fn new(index: usize, prompt: Prompt<'a>, n_sequences: usize, settings: &Settings) -> Self {
        let sequences = (0..n_sequences).map(|sequence| Sequence {
            tokens: prompt.start(),
            state: State::Running,
            log_probability: 0.0,
            margins: Vec::new(),
            alignment: Vec::new(),
            generator: settings.sampling.map(|sampling| sampling.generator(prompt.number, sequence)),
            observed: None,
        });
        Self { index, sequences: sequences.collect(), prompt }
    }

    fn is_running(&self) -> bool {
        self.sequences.iter().any(|sequence| sequence.state == State::Running)
    }

    /// Takes the logits of the next token of each sequence.
    fn advance<'l>(
        &mut self,
        logits: impl Iterator<Item = Row<'l>>,
        settings: &Settings,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        for (index, (sequence, logits)) in self.sequences.iter_mut().zip(logits).enumerate() {
            if sequence.state != State::Running {
                continue;
            }
            let next = sequence.next(&self.prompt, logits, settings);
            let Some(token) = next.map_err(|why| self.prompt.refuse(&sequence.tokens, why))? else {
                sequence.state = State::Ended;
                continue;
            };
            sequence.tokens.push(token);
            let is_at_limit = sequence.tokens.len() == self.prompt.tokens.len() + self.prompt.limit;
            let answer = observer(Event::Token { sentence: self.index, sequence: index, token });
            if is_at_limit || answer.is_break() {
                sequence.state = State::Cut;
            }
        }
        Ok(())
    }

    fn into_hypotheses(self, settings: &Settings) -> Vec<Hypothesis> {
        let (n_start, n_prompt) = (self.prompt.n_start, self.prompt.tokens.len());
        let hypothesis = |sequence: Sequence| {
            let complete = sequence.state == State::Ended;
            let length = (sequence.tokens.len() - n_prompt.min(sequence.tokens.len()) + usize::from(complete)).max(1);
            Hypothesis {
                tokens: sequence.tokens[n_start..].to_vec(),
                complete,
                score: sequence.log_probability / (length as f32).powf(settings.length_penalty),
                margins: sequence.margins,
                alignment: sequence.alignment,
                observed: sequence.observed,
            }
        };
        self.sequences.into_iter().map(hypothesis).collect()
    }
}

impl Sequence {
    fn last(&self) -> i64 {
        self.tokens.last().copied().expect("a sequence begins with the start token")
    }

    /// The next token; `None` at the end.
    fn next(&mut self, prompt: &Prompt<'_>, logits: Row<'_>, settings: &Settings) -> Result<Option<i64>, Unusable> {
        self.observed = self.observed.or_else(|| prompt.observe(settings.observe, &self.tokens, &logits));
        if let Some(given) = prompt.next(&self.tokens) {
            self.margins.push(f32::INFINITY);
            return Ok(Some(given));
        }
        let context = Context { prompt, tokens: &self.tokens };
        if !settings.scores && settings.sampling.is_none() && settings.timestamps.is_none() {
            // Scaling keeps the order of logits, and constraints depend only on their signs.
            settings.constrain(&context, logits.scores);
            let (token, margin) = largest(logits.scores)?;
            self.margins.push(margin * logits.scale);
            return Ok((!settings.eos_tokens.contains(&token)).then_some(token));
        }
        logits.check()?;
        let logits = logits.into_logits();
        // Log-probabilities under the same constraints, as in beam search.
        let log_probabilities = settings.scores.then(|| {
            let mut scores = logits.to_vec();
            log_softmax(&mut scores);
            settings.constrain_fully(&context, &mut scores);
            scores
        });
        settings.constrain(&context, logits);
        let token = match (settings.sampling, &mut self.generator) {
            (Some(sampling), Some(generator)) => {
                largest(logits)?;
                sampling.warp(logits, 1);
                settings.renormalize_if_set(logits);
                self.margins.push(f32::INFINITY);
                generator.draw(logits)
            }
            _ => {
                let (token, margin) = largest(logits)?;
                self.margins.push(margin);
                token
            }
        };
        if let Some(scores) = log_probabilities {
            self.log_probability += scores[usize::try_from(token).expect("a position in the scores")];
        }
        Ok((!settings.eos_tokens.contains(&token)).then_some(token))
    }
}
