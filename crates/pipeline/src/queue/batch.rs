//! A batch of a queue: its sentences are decoded together, and each is answered when it ends.

use super::{Answer, QueueEvent, Sentence};
use crate::error::{Cause, Error, Result};
use crate::translator::{Translator, on_one_line};
use cognate_generate::{Decoder, Event, Hypothesis, RunningBatch, SentenceBatch};
use cognate_text::StreamingText;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

/// The state of a running batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Running {
    pub(super) sentences: usize,
    /// Number of tokens in the longest source or target.
    pub(super) longest: usize,
    /// Number of steps since sentences entered.
    pub(super) steps: usize,
}

/// Sentences with the same settings.
pub(super) struct Batch<'t> {
    translator: &'t Translator,
    observer: &'t dyn Fn(QueueEvent),
    /// Groups that have not entered.
    entering: VecDeque<Vec<Sentence>>,
    /// Those that are decoded, by their numbers.
    entered: BTreeMap<usize, Entered<'t>>,
}

struct Entered<'t> {
    sentence: Sentence,
    stream: StreamingText<'t>,
    began: Instant,
}

impl<'t> Batch<'t> {
    pub(super) fn new(
        translator: &'t Translator,
        sentences: Vec<Sentence>,
        observer: &'t dyn Fn(QueueEvent),
    ) -> Self {
        Self { translator, observer, entering: [sentences].into(), entered: BTreeMap::new() }
    }

    /// Answers each sentence once, also those that `joining` gives between steps.
    pub(super) fn translate(
        &mut self,
        decoder: &mut dyn Decoder,
        joining: &dyn Fn(Running) -> Vec<Sentence>,
    ) {
        let Err(error) = self.run(decoder, joining) else { return };
        // One sentence is the reason; what was streamed cannot be taken back.
        let left = mem::take(&mut self.entered).into_values().map(|entered| entered.sentence);
        let left: Vec<_> =
            left.chain(mem::take(&mut self.entering).into_iter().flatten()).collect();
        let is_alone = left.len() == 1;
        for sentence in left {
            let streams = sentence.caller.streams;
            self.entering.push_back(vec![sentence]);
            match is_alone || streams {
                true => self.fail(&error),
                false => {
                    self.run(decoder, &|_| Vec::new()).unwrap_or_else(|error| self.fail(&error))
                }
            }
        }
    }

    /// Answers all with an error.
    pub(super) fn fail(&mut self, error: &Error) {
        let entered = mem::take(&mut self.entered).into_values().map(|entered| entered.sentence);
        for sentence in entered.chain(mem::take(&mut self.entering).into_iter().flatten()) {
            sentence.answer(Err(Error::new(error.kind(), error)));
        }
    }

    fn run(
        &mut self,
        decoder: &mut dyn Decoder,
        joining: &dyn Fn(Running) -> Vec<Sentence>,
    ) -> Result<()> {
        let mut running = RunningBatch::new(self.translator.settings())?;
        let mut steps = 0;
        loop {
            while (running.is_empty() || decoder.joins())
                && let Some(group) = self.entering.pop_front()
            {
                steps = 0;
                self.enter(&mut running, decoder, group);
            }
            if running.is_empty() {
                return Ok(());
            }
            (self.observer)(QueueEvent::Advanced { sentences: running.len() });
            running.step(decoder, &mut |event| self.observe(event))?;
            steps += 1;
            if decoder.joins() {
                let joining = joining(Running {
                    sentences: running.len(),
                    longest: running.longest(),
                    steps,
                });
                self.entering.extend(Some(joining).filter(|joining| !joining.is_empty()));
            }
        }
    }

    fn enter(
        &mut self,
        running: &mut RunningBatch<'_>,
        decoder: &mut dyn Decoder,
        group: Vec<Sentence>,
    ) {
        match admit(running, decoder, &group) {
            Ok(numbers) => {
                let tokenizer = self.translator.model().tokenizer();
                let entered = |sentence| Entered {
                    sentence,
                    stream: StreamingText::new(tokenizer),
                    began: Instant::now(),
                };
                self.entered.extend(numbers.zip(group.into_iter().map(entered)));
            }
            Err(error) if group.len() == 1 => group
                .into_iter()
                .for_each(|sentence| sentence.answer(Err(Error::new(error.kind(), &error)))),
            // One of them is the reason.
            Err(_) => self.entering.extend(group.into_iter().map(|sentence| vec![sentence])),
        }
    }

    fn observe(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let (Event::Token { sentence: number, .. }
        | Event::Step { sentence: number }
        | Event::Finished { sentence: number, .. }) = event;
        // Otherwise it was answered with an error.
        let Some(Entered { sentence, stream, .. }) = self.entered.get_mut(&number) else {
            return ControlFlow::Break(());
        };
        match event {
            Event::Token { sequence: 0, token, .. } if sentence.caller.streams => {
                match stream.push(token) {
                    Ok(part) => sentence.send(part),
                    Err(error) => {
                        sentence.answer(Err(error.into()));
                        self.entered.remove(&number);
                        return ControlFlow::Break(());
                    }
                }
            }
            Event::Token { .. } | Event::Step { .. } => {}
            Event::Finished { hypotheses, .. } => {
                if let Some(entered) = self.entered.remove(&number) {
                    self.finish(entered, hypotheses);
                }
                return ControlFlow::Continue(());
            }
        }
        if sentence.caller.has_left() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Answers a sentence that ended.
    fn finish(&self, Entered { sentence, stream, began }: Entered<'_>, hypotheses: &[Hypothesis]) {
        let translated = sentence.translated(stream, hypotheses);
        if let Ok(translation) = &translated {
            let (tokens, took) = (translation.n_tokens(), began.elapsed());
            (self.observer)(QueueEvent::Finished { tokens, took });
        }
        sentence.answer(translated.map(Answer::Translation));
    }
}

/// Lets sentences enter; returns their numbers.
fn admit(
    running: &mut RunningBatch<'_>,
    decoder: &mut dyn Decoder,
    group: &[Sentence],
) -> Result<Range<usize>> {
    let of = |part: fn(&Sentence) -> &Vec<i64>| {
        group.iter().map(|sentence| part(sentence).clone()).collect::<Vec<_>>()
    };
    let (sources, prefixes) = (of(|sentence| &sentence.ids), of(|sentence| &sentence.prefix));
    let numbers: Vec<_> = group.iter().map(|sentence| sentence.place as u64 + 1).collect();
    Ok(running.admit(
        decoder,
        &SentenceBatch { sources: (&sources).into(), prefixes: &prefixes, numbers: &numbers },
    )?)
}

impl Sentence {
    fn translated(
        &self,
        stream: StreamingText<'_>,
        hypotheses: &[Hypothesis],
    ) -> Result<crate::Translation> {
        if self.caller.has_left() {
            return Err(Cause::Cancelled.into());
        }
        if self.caller.streams {
            self.send(stream.finish()?);
        }
        let mut translation = self.translator.translation(hypotheses.to_vec(), &self.ids)?;
        translation.begin_with(&mut self.prepared.clone());
        self.translator.replace_unknowns(&mut translation, &self.text)?;
        Ok(translation)
    }

    fn send(&self, part: String) {
        if !part.is_empty() {
            self.answer(Ok(Answer::Part(on_one_line(part))));
        }
    }

    fn answer(&self, answer: Result<Answer>) {
        (self.caller.receive)(self.place, answer);
    }
}
