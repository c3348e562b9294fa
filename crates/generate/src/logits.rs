//! The logits of a step.

use crate::Result;
use crate::error::Cause;
use crate::scores::{Columns, Normalisation, Row};
use cognate_runtime::Value;
use ndarray::{Array3, ArrayViewMut3};

/// The logits `[batch, beams, vocab]` of the next tokens in row-major order. The caller can
/// overwrite them until the decoder's next call.
#[derive(Debug)]
pub struct Logits<'d> {
    scores: ArrayViewMut3<'d, f32>,
    /// The factor of each row; `None` for 1.
    scales: Option<&'d [f32]>,
    columns: LogitsColumns<'d>,
    /// The two numbers of each row's softmax, if the softmax is over more columns.
    softmax: Option<&'d [[f32; 2]]>,
}

/// The tokens of columns.
#[derive(Clone, Copy, Debug)]
enum LogitsColumns<'d> {
    All,
    /// The same in every row.
    Chosen(&'d [i64]),
    /// `[batch · beams, columns]`
    OfRows(&'d [i64]),
}

impl<'d> Logits<'d> {
    /// Logits without factors.
    ///
    /// # Panics
    /// If they are not in row-major order.
    pub fn new(scores: ArrayViewMut3<'d, f32>) -> Self {
        assert!(scores.is_standard_layout(), "logits are in row-major order");
        Self { scores, scales: None, columns: LogitsColumns::All, softmax: None }
    }

    /// Multiplies the logits by positive factors of their rows, `scales: [batch · beams]`, if there
    /// are any, when they are read.
    fn with_scales(self, scales: Option<&'d [f32]>) -> Result<Self> {
        let (batch, beams, _) = self.scores.dim();
        if let Some(scales) = scales.filter(|scales| scales.len() != batch * beams) {
            let (expected, found) = (
                format!("a scale for each of {batch} x {beams} logits"),
                format!("{}", scales.len()),
            );
            return Err(Cause::Layout { graph: "decoder", expected, found }.into());
        }
        Ok(Self { scales, ..self })
    }

    /// Declares that the columns are those of these tokens, in ascending order, instead of all.
    ///
    /// # Panics
    /// If the numbers differ.
    pub fn with_tokens(self, tokens: &'d [i64]) -> Self {
        assert_eq!(self.scores.dim().2, tokens.len(), "a column for each token");
        Self { columns: LogitsColumns::Chosen(tokens), ..self }
    }

    /// Whether each row has its own tokens.
    pub(crate) fn are_of_best(&self) -> bool {
        matches!(self.columns, LogitsColumns::OfRows(_))
    }

    /// Keeps only the columns of these tokens, in ascending order.
    ///
    /// # Errors
    /// If a column does not exist.
    pub(crate) fn keep(self, tokens: &'d [i64]) -> Result<Self> {
        let (batch, beams, vocab) = self.scores.dim();
        let place = |&token: &i64| usize::try_from(token).ok().filter(|&place| place < vocab);
        let places: Option<Vec<usize>> = tokens.iter().map(place).collect();
        let wrong = || {
            Cause::Contradiction(format!(
                "shortlist: expected tokens from 0 to {}, found {tokens:?}",
                vocab.saturating_sub(1)
            ))
        };
        let places = places.ok_or_else(wrong)?;
        let all = self.scores.into_slice().expect("in row-major order");
        // No score is overwritten before it has moved.
        for row in 0..batch * beams {
            for (to, from) in places.iter().enumerate() {
                all[row * places.len() + to] = all[row * vocab + from];
            }
        }
        let kept = &mut all[..batch * beams * places.len()];
        let scores =
            ArrayViewMut3::from_shape((batch, beams, places.len()), kept).expect("as many scores");
        Ok(Self {
            scores,
            scales: self.scales,
            columns: LogitsColumns::Chosen(tokens),
            softmax: None,
        })
    }

    /// The logits of all rows.
    pub fn into_scores(self) -> ArrayViewMut3<'d, f32> {
        let mut scores = self.scores;
        for (mut row, &scale) in scores.rows_mut().into_iter().zip(self.scales.unwrap_or_default())
        {
            row.mapv_inplace(|score| score * scale);
        }
        scores
    }

    /// The rows of a sentence of the batch, one for each beam.
    pub(crate) fn rows(&mut self, sentence: usize) -> impl Iterator<Item = Row<'_>> {
        let (_, beams, vocab) = self.scores.dim();
        let of_rows = self.of_rows();
        let scores = self.scores.as_slice_mut().expect("in row-major order");
        of_rows.of(sentence, &mut scores[sentence * beams * vocab..][..beams * vocab])
    }

    /// The rows of each sentence.
    pub(crate) fn sentences(&mut self) -> Vec<impl Iterator<Item = Row<'_>>> {
        let (_, beams, vocab) = self.scores.dim();
        let of_rows = self.of_rows();
        let scores = self.scores.as_slice_mut().expect("in row-major order");
        let sentences = scores.chunks_exact_mut((beams * vocab).max(1)).enumerate();
        sentences.map(|(sentence, scores)| of_rows.of(sentence, scores)).collect()
    }

    fn of_rows(&self) -> OfRows<'d> {
        let (_, beams, vocab) = self.scores.dim();
        let Self { scales, columns, softmax, .. } = *self;
        OfRows { beams, vocab, scales, columns, softmax }
    }
}

/// What belongs to the rows of all sentences besides their scores.
#[derive(Clone, Copy)]
struct OfRows<'d> {
    beams: usize,
    vocab: usize,
    scales: Option<&'d [f32]>,
    columns: LogitsColumns<'d>,
    softmax: Option<&'d [[f32; 2]]>,
}

impl<'d> OfRows<'d> {
    /// The rows of a sentence with these scores.
    fn of<'l>(self, sentence: usize, scores: &'l mut [f32]) -> impl Iterator<Item = Row<'l>>
    where
        'd: 'l,
    {
        let Self { beams, vocab, scales, columns, softmax } = self;
        let first = sentence * beams;
        scores.chunks_exact_mut(vocab.max(1)).enumerate().map(move |(beam, scores)| {
            let scale = scales.map_or(1.0, |scales| scales[first + beam]);
            let columns = match columns {
                LogitsColumns::All => Columns::All,
                LogitsColumns::Chosen(tokens) => Columns::Chosen(tokens),
                LogitsColumns::OfRows(tokens) => {
                    Columns::Chosen(&tokens[(first + beam) * vocab..][..vocab])
                }
            };
            let softmax = softmax.map(|softmax| Normalisation::new(scale, softmax[first + beam]));
            Row { scores, scale, columns, softmax }
        })
    }
}

/// The logits of the last step, as the engine returned them.
#[derive(Default)]
pub(crate) struct LastLogits {
    value: Option<Value>,
    scales: Option<Vec<f32>>,
    best: Option<BestLogits>,
}

/// The logits of the best tokens.
struct BestLogits {
    scores: Array3<f32>,
    tokens: Vec<i64>,
    softmax: Option<Vec<[f32; 2]>>,
}

impl LastLogits {
    /// Stores the tokens and their logits of each row, and perhaps its softmax, as of
    /// [`Session::finds_best`](cognate_runtime::Session::finds_best), and borrows them.
    pub(crate) fn put_best(
        &mut self,
        found: &Value,
        scales: Option<Value>,
        softmax: bool,
        (batch, beams): (usize, usize),
    ) -> Result<Logits<'_>> {
        let wrong = || Cause::Layout {
            graph: "decoder",
            expected: format!("tokens and logits of {batch} x {beams} hypotheses"),
            found: format!("{:?}", found.shape()),
        };
        let &[rows, columns] = found.shape() else { return Err(wrong().into()) };
        let found = found.to_f32()?;
        let n_sums = if softmax { 2 } else { 0 };
        let is_right = rows == batch * beams && columns.is_multiple_of(2) && columns >= n_sums;
        let all = found.as_slice().filter(|_| is_right).ok_or_else(wrong)?;
        let n = (columns - n_sums) / 2;
        let (mut tokens, mut scores) = (Vec::with_capacity(rows * n), Vec::with_capacity(rows * n));
        let mut sums = softmax.then(|| Vec::with_capacity(rows));
        for row in all.chunks_exact(columns.max(1)) {
            tokens.extend(row[..n].iter().map(|&token| token as i64));
            scores.extend_from_slice(&row[n..2 * n]);
            if let Some(sums) = &mut sums {
                sums.push([row[2 * n], row[2 * n + 1]]);
            }
        }
        let scores = Array3::from_shape_vec((batch, beams, n), scores).map_err(|_| wrong())?;
        self.put_scales(scales)?;
        let BestLogits { scores, tokens, softmax } =
            self.best.insert(BestLogits { scores, tokens, softmax: sums });
        let logits = Logits {
            columns: LogitsColumns::OfRows(tokens),
            softmax: softmax.as_deref(),
            ..Logits::new(scores.view_mut())
        };
        logits.with_scales(self.scales.as_deref())
    }

    /// Stores the logits of one new token per hypothesis, with any axes, and `scales` of their
    /// rows, and borrows them.
    pub(crate) fn put(
        &mut self,
        logits: Value,
        scales: Option<Value>,
        (batch, beams): (usize, usize),
    ) -> Result<Logits<'_>> {
        let shape = logits.shape().to_vec();
        let wrong = |found| Cause::Layout {
            graph: "decoder",
            expected: format!("logits of {batch} x {beams} new tokens"),
            found,
        };
        self.put_scales(scales)?;
        let value = self.value.insert(logits);
        if value.as_f32_mut().is_none_or(|logits| !logits.is_standard_layout()) {
            *value = Value::F32(value.to_f32()?.as_standard_layout().into_owned());
        }
        let vocab = shape.last().copied().unwrap_or(0);
        let scores = value
            .as_f32_mut()
            .and_then(|scores| scores.into_shape_with_order((batch, beams, vocab)).ok());
        let scores = scores.ok_or_else(|| wrong(format!("logits {shape:?}")))?;
        Logits::new(scores).with_scales(self.scales.as_deref())
    }

    fn put_scales(&mut self, scales: Option<Value>) -> Result<()> {
        self.scales = scales
            .map(|scales| Ok::<_, crate::Error>(scales.to_f32()?.iter().copied().collect()))
            .transpose()?;
        Ok(())
    }
}
