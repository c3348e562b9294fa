//! Independent hypotheses: greedy search and sampling.

use crate::batch::{Event, Prompt};
use crate::constraints::Context;
use crate::hypotheses::{Observer, Search};
use crate::sampling::Generator;
use crate::scores::{Row, Unusable, largest, log_softmax};
use crate::{Hypothesis, Result, Settings, alignment};
use ndarray::ArrayView3;

/// The samples of a sentence, or its greedy hypothesis.
pub(crate) struct Samples {
    prompt: Prompt,
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

impl Samples {
    pub(crate) fn new(prompt: Prompt, n_sequences: usize, settings: &Settings) -> Self {
        let sequences = (0..n_sequences).map(|sequence| Sequence {
            tokens: prompt.start(),
            state: State::Running,
            log_probability: 0.0,
            margins: Vec::new(),
            alignment: Vec::new(),
            generator: settings
                .sampling
                .map(|sampling| sampling.generator(prompt.number, sequence)),
            observed: None,
        });
        Self { sequences: sequences.collect(), prompt }
    }
}

impl Search for Samples {
    fn tokens(&self, hypothesis: usize) -> &[i64] {
        &self.sequences[hypothesis].tokens
    }

    fn follow_prompt(&mut self, sentence: usize, n: usize, observer: Observer<'_>) {
        for (index, sequence) in self.sequences.iter_mut().enumerate() {
            for &token in &self.prompt.tokens[self.prompt.n_start..=n] {
                sequence.tokens.push(token);
                sequence.margins.push(f32::INFINITY);
                if observer(Event::Token { sentence, sequence: index, token }).is_break() {
                    sequence.state = State::Cut;
                    break;
                }
            }
        }
    }

    fn read(
        &mut self,
        sentence: usize,
        logits: &mut dyn Iterator<Item = Row<'_>>,
        settings: &Settings,
        observer: Observer<'_>,
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
            let answer = observer(Event::Token { sentence, sequence: index, token });
            if is_at_limit || answer.is_break() {
                sequence.state = State::Cut;
            }
        }
        Ok(())
    }

    fn advance(
        &mut self,
        _: usize,
        attention: Option<ArrayView3<'_, f32>>,
        _: &Settings,
        _: Observer<'_>,
    ) {
        let Some(attention) = attention else { return };
        for (sequence, attention) in self.sequences.iter_mut().zip(attention.outer_iter()) {
            // The start token has no alignment; a finished sequence has no new token.
            if sequence.alignment.len() + self.prompt.n_start < sequence.tokens.len() {
                sequence.alignment.push(alignment(attention, &self.prompt.source));
            }
        }
    }

    fn is_done(&self, _: &Settings) -> bool {
        self.sequences.iter().all(|sequence| sequence.state != State::Running)
    }

    fn parents(&self) -> Option<&[usize]> {
        None
    }

    fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    fn into_hypotheses(self: Box<Self>, settings: &Settings) -> Vec<Hypothesis> {
        let (n_start, n_prompt) = (self.prompt.n_start, self.prompt.tokens.len());
        let hypothesis = |sequence: Sequence| {
            let complete = sequence.state == State::Ended;
            let length = (sequence.tokens.len() - n_prompt.min(sequence.tokens.len())
                + usize::from(complete))
            .max(1);
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
    /// The next token; `None` at the end.
    fn next(
        &mut self,
        prompt: &Prompt,
        logits: Row<'_>,
        settings: &Settings,
    ) -> Result<Option<i64>, Unusable> {
        self.observed =
            self.observed.or_else(|| prompt.observe(settings.observe, &self.tokens, &logits));
        if let Some(given) = prompt.next(&self.tokens) {
            self.margins.push(f32::INFINITY);
            return Ok(Some(given));
        }
        let columns = logits.columns;
        let context = Context { prompt, tokens: &self.tokens, columns };
        if !settings.scores && settings.sampling.is_none() && settings.timestamps.is_none() {
            // Scaling keeps the order of logits, and constraints depend only on their signs.
            settings.constrain(&context, logits.scores);
            let (place, margin) = largest(logits.scores)?;
            self.margins.push(margin * logits.scale);
            let token = columns.token(place);
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
        let place = match (settings.sampling, &mut self.generator) {
            (Some(sampling), Some(generator)) => {
                largest(logits)?;
                sampling.warp(logits, 1);
                settings.renormalize_if_set(logits);
                self.margins.push(f32::INFINITY);
                generator.draw(logits)
            }
            _ => {
                let (place, margin) = largest(logits)?;
                self.margins.push(margin);
                place
            }
        };
        if let Some(scores) = log_probabilities {
            self.log_probability += scores[place];
        }
        let token = columns.token(place);
        Ok((!settings.eos_tokens.contains(&token)).then_some(token))
    }
}
