//! A batch of a queue: it is decoded, and each sentence is answered when it ends.

use super::{Answer, Sentence};
use crate::error::{Cause, Error, Result};
use crate::translator::{Translator, on_one_line};
use cognate_generate::{Decoder, Event, Hypothesis, SentenceBatch, decode};
use cognate_text::StreamingText;
use std::cell::Cell;
use std::ops::ControlFlow;

/// Sentences with the same settings.
pub(super) struct Batch {
    pub(super) translator: Translator,
    pub(super) sentences: Vec<Sentence>,
}

impl Batch {
    /// Answers each sentence once, and returns the number of generated tokens.
    pub(super) fn translate(&self, decoder: &mut dyn Decoder) -> usize {
        let (answered, n_tokens) = (vec![Cell::new(false); self.sentences.len()], Cell::new(0));
        let mut chosen: Vec<_> = (0..self.sentences.len()).collect();
        if let Err(error) = self.run(decoder, &chosen, (&answered, &n_tokens)) {
            chosen.retain(|&index| !answered[index].get());
            // One sentence is the reason; what was streamed cannot be taken back.
            let is_alone = chosen.len() == 1;
            for index in chosen {
                let sentence = &self.sentences[index];
                let mut alone = || match is_alone || sentence.caller.streams {
                    true => Err(Error::new(error.kind(), &error)),
                    false => self.run(decoder, &[index], (&answered, &n_tokens)),
                };
                if let Err(error) = alone() {
                    (sentence.caller.receive)(sentence.place, Err(error));
                }
            }
        }
        n_tokens.get()
    }

    /// Answers all with an error; returns that no token was generated.
    pub(super) fn fail(&self, error: &Error) -> usize {
        let of_each = |sentence: &Sentence| (sentence.caller.receive)(sentence.place, Err(Error::new(error.kind(), error)));
        self.sentences.iter().for_each(of_each);
        0
    }

    /// Decodes the chosen sentences.
    fn run(&self, decoder: &mut dyn Decoder, chosen: &[usize], (answered, n_tokens): (&[Cell<bool>], &Cell<usize>)) -> Result<()> {
        let sentence = |index: usize| &self.sentences[chosen[index]];
        let of = |part: fn(&Sentence) -> Vec<i64>| chosen.iter().map(|&index| part(&self.sentences[index])).collect::<Vec<_>>();
        let (sources, prefixes) = (of(|sentence| sentence.ids.clone()), of(|sentence| sentence.prefix.clone()));
        let numbers: Vec<_> = chosen.iter().map(|&index| self.sentences[index].place as u64 + 1).collect();
        let batch = SentenceBatch { sources: (&sources).into(), prefixes: &prefixes, numbers: &numbers };
        let tokenizer = self.translator.model().tokenizer();
        let mut streams: Vec<_> = chosen.iter().map(|_| Some(StreamingText::new(tokenizer))).collect();
        let mut observer = |event: Event<'_>| {
            let (index, handled) = match event {
                Event::Token { sentence: index, token, .. } if sentence(index).caller.streams => {
                    let part = streams[index].as_mut().map_or(Ok(String::new()), |stream| stream.push(token));
                    (index, part.map(|part| self.send(sentence(index), part)).map_err(Error::from))
                }
                Event::Token { sentence: index, .. } | Event::Step { sentence: index } => (index, Ok(())),
                Event::Finished { sentence: index, hypotheses } => {
                    answered[chosen[index]].set(true);
                    (
                        index,
                        self.finish(sentence(index), streams[index].take(), hypotheses).map(|found| n_tokens.set(n_tokens.get() + found)),
                    )
                }
            };
            let Sentence { caller, place, .. } = sentence(index);
            if let Err(error) = handled {
                answered[chosen[index]].set(true);
                (caller.receive)(*place, Err(error));
                return ControlFlow::Break(());
            }
            if caller.has_left() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        decode(decoder, &batch, self.translator.settings(), &mut observer)?;
        Ok(())
    }

    /// Answers a sentence that ended; returns the number of its tokens.
    fn finish(&self, sentence: &Sentence, stream: Option<StreamingText<'_>>, hypotheses: &[Hypothesis]) -> Result<usize> {
        let Sentence { caller, place, text, prepared, .. } = sentence;
        if caller.has_left() {
            (caller.receive)(*place, Err(Cause::Cancelled.into()));
            return Ok(0);
        }
        if let Some(stream) = stream.filter(|_| caller.streams) {
            self.send(sentence, stream.finish()?);
        }
        let mut translation = self.translator.translation(hypotheses.to_vec(), &sentence.ids)?;
        translation.begin_with(&mut prepared.clone());
        self.translator.replace_unknowns(&mut translation, text)?;
        let n_tokens = translation.n_tokens();
        (caller.receive)(*place, Ok(Answer::Translation(translation)));
        Ok(n_tokens)
    }

    fn send(&self, Sentence { caller, place, .. }: &Sentence, part: String) {
        if !part.is_empty() {
            (caller.receive)(*place, Ok(Answer::Part(on_one_line(part))));
        }
    }
}
