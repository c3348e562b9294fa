//! The logits of a step.

use crate::Result;
use crate::error::Cause;
use crate::scores::{Columns, Row};
use cognate_runtime::Value;
use ndarray::ArrayViewMut3;

/// The logits `[batch, beams, vocab]` of the next tokens in row-major order. The caller can overwrite them until the decoder's next
/// call.
#[derive(Debug)]
pub struct Logits<'d> {
    scores: ArrayViewMut3<'d, f32>,
    /// The factor of each row; `None` for 1.
    scales: Option<&'d [f32]>,
    columns: Columns<'d>,
}

impl<'d> Logits<'d> {
    /// Logits without factors.
    ///
    /// # Panics
    /// If they are not in row-major order.
    pub fn new(scores: ArrayViewMut3<'d, f32>) -> Self {
        assert!(scores.is_standard_layout(), "logits are in row-major order");
        Self { scores, scales: None, columns: Columns::All }
    }

    /// Logits that have to be multiplied by positive factors of their rows, `scales: [batch · beams]`.
    ///
    /// # Panics
    /// If they are not in row-major order, or not as many rows.
    pub fn with_scales(scores: ArrayViewMut3<'d, f32>, scales: &'d [f32]) -> Self {
        let (batch, beams, _) = scores.dim();
        assert_eq!(scales.len(), batch * beams, "a scale for each row");
        Self { scales: Some(scales), ..Self::new(scores) }
    }

    /// Says that the columns are those of these tokens, ascending, in place of all.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn with_tokens(self, tokens: &'d [i64]) -> Self {
        assert_eq!(self.scores.dim().2, tokens.len(), "a column for each token");
        Self { columns: Columns::Chosen(tokens), ..self }
    }

    /// Keeps the columns of these tokens, ascending, of all.
    ///
    /// # Errors
    /// If there is no such column.
    pub(crate) fn keep(self, tokens: &'d [i64]) -> Result<Self> {
        let (batch, beams, vocab) = self.scores.dim();
        let place = |&token: &i64| usize::try_from(token).ok().filter(|&place| place < vocab);
        let places: Option<Vec<usize>> = tokens.iter().map(place).collect();
        let wrong = || Cause::Contradiction(format!("shortlist: expected tokens from 0 to {}, found {tokens:?}", vocab.saturating_sub(1)));
        let places = places.ok_or_else(wrong)?;
        let all = self.scores.into_slice().expect("in row-major order");
        // No score is overwritten before it has moved.
        for row in 0..batch * beams {
            for (to, from) in places.iter().enumerate() {
                all[row * places.len() + to] = all[row * vocab + from];
            }
        }
        let kept = &mut all[..batch * beams * places.len()];
        let scores = ArrayViewMut3::from_shape((batch, beams, places.len()), kept).expect("as many scores");
        Ok(Self { scores, scales: self.scales, columns: Columns::Chosen(tokens) })
    }

    /// The logits of all rows.
    pub fn into_scores(self) -> ArrayViewMut3<'d, f32> {
        let mut scores = self.scores;
        for (mut row, &scale) in scores.rows_mut().into_iter().zip(self.scales.unwrap_or_default()) {
            row.mapv_inplace(|score| score * scale);
        }
        scores
    }

    /// The rows of a sentence of the batch, one for each beam.
    pub(crate) fn rows(&mut self, sentence: usize) -> impl Iterator<Item = Row<'_>> {
        let (_, beams, vocab) = self.scores.dim();
        let scores = self.scores.as_slice_mut().expect("in row-major order");
        let scales = self.scales.map(|scales| &scales[sentence * beams..][..beams]);
        let rows = scores[sentence * beams * vocab..][..beams * vocab].chunks_exact_mut(vocab.max(1));
        let columns = self.columns;
        rows.enumerate().map(move |(beam, scores)| Row { scores, scale: scales.map_or(1.0, |scales| scales[beam]), columns })
    }
}

/// The logits of the last step, as the engine returned them.
#[derive(Default)]
pub(crate) struct LastLogits {
    value: Option<Value>,
    scales: Option<Vec<f32>>,
}

impl LastLogits {
    /// Stores the logits of one new token per hypothesis, with any axes, and `scales` of their rows, and borrows them.
    pub(crate) fn put(&mut self, logits: Value, scales: Option<Value>, (batch, beams): (usize, usize)) -> Result<Logits<'_>> {
        let shape = logits.shape().to_vec();
        let wrong = |found| Cause::Layout { graph: "decoder", expected: format!("logits of {batch} x {beams} new tokens"), found };
        self.scales = scales.map(|scales| Ok::<_, crate::Error>(scales.to_f32()?.iter().copied().collect())).transpose()?;
        let value = self.value.insert(logits);
        if value.as_f32_mut().is_none_or(|logits| !logits.is_standard_layout()) {
            *value = Value::F32(value.to_f32()?.as_standard_layout().into_owned());
        }
        let vocab = shape.last().copied().unwrap_or(0);
        let scores = value.as_f32_mut().and_then(|scores| scores.into_shape_with_order((batch, beams, vocab)).ok());
        let scores = scores.ok_or_else(|| wrong(format!("logits {shape:?}")))?;
        match self.scales.as_deref() {
            None => Ok(Logits::new(scores)),
            Some(scales) if scales.len() == batch * beams => Ok(Logits::with_scales(scores, scales)),
            Some(scales) => Err(wrong(format!("{} scales", scales.len())).into()),
        }
    }
}
