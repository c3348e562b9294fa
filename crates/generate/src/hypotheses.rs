//! The hypotheses of a sentence, which the running batch lets grow.

use crate::batch::{Event, Prompt};
use crate::scores::Row;
use crate::{Hypothesis, Result, Settings};
use ndarray::ArrayView3;
use std::ops::ControlFlow;

/// The observer's answer ends a hypothesis, or a sentence of beam search.
pub(crate) type Observer<'o> = &'o mut dyn FnMut(Event<'_>) -> ControlFlow<()>;

/// The hypotheses of a sentence.
pub(crate) trait Search: Send {
    /// The start token, the prefix and the generated tokens of a hypothesis.
    fn tokens(&self, hypothesis: usize) -> &[i64];

    /// The hypothesis that each hypothesis continued with its last token; `None` if each continued
    /// itself.
    fn parents(&self) -> Option<&[usize]>;

    /// Appends tokens of the prompt, of which the decoder has computed the first `n`; the next one
    /// is the last appended.
    fn follow_prompt(&mut self, sentence: usize, n: usize, observer: Observer<'_>);

    /// Chooses among the logits of each hypothesis's next token. In the first step all hypotheses
    /// can share one row.
    fn read(
        &mut self,
        sentence: usize,
        logits: &mut dyn Iterator<Item = Row<'_>>,
        settings: &Settings,
        observer: Observer<'_>,
    ) -> Result<()>;

    /// Appends the chosen tokens. `attention: [hypotheses, heads, src]` is that of this step.
    fn advance(
        &mut self,
        sentence: usize,
        attention: Option<ArrayView3<'_, f32>>,
        settings: &Settings,
        observer: Observer<'_>,
    );

    fn is_done(&self, settings: &Settings) -> bool;

    fn prompt(&self) -> &Prompt;

    fn into_hypotheses(self: Box<Self>, settings: &Settings) -> Vec<Hypothesis>;
}
