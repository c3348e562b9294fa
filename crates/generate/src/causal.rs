//! The decoder of a decoder-only model: one session, whose hypotheses continue the sources.
//!
//! Prompts of a batch are padded on the left, so that all continue at the same place. They are read
//! in one pass, once for all beams of a prompt. Each beam is a row of the batch,
//! `row = sentence · beams + beam`.

use crate::decoder::{missing, select};
use crate::error::Cause;
use crate::logits::{LastLogits, Logits};
use crate::{Decoder, Error, Result, Sources};
use cognate_model::interface::{ATTENTION_MASK, INPUT_IDS, LOGITS, POSITION_IDS, present_of};
use cognate_model::{Config, Stack};
use cognate_runtime::{Session, Value, Values};
use ndarray::{Array2, Array4, ArrayD, Axis, Slice, concatenate, s};

/// The maximum number of logits of a run: longer prompts are read in parts.
const MOST_LOGITS: usize = 1 << 26;

/// The decoder of `model.onnx` of a decoder-only model, or its graph.
pub struct CausalDecoder {
    session: Box<dyn Session>,
    pad_token: i64,
    stack: Stack,
    vocab: usize,
    /// Each past input with its present output.
    past: Vec<(String, String)>,
    /// The prompts `[batch, len]` until they are read.
    prompts: Option<Array2<i64>>,
    beams: usize,
    /// The pasts.
    state: Values,
    /// For each row 1 for tokens and 0 for padding: `[rows, past]`, with unread prompts
    /// `[batch, len]`.
    mask: Array2<i64>,
    /// The logits of the last step.
    logits: LastLogits,
}

impl CausalDecoder {
    /// Takes the session of a model of the given configuration.
    ///
    /// # Errors
    /// If its inputs and outputs are not those of the layout.
    pub fn new(session: Box<dyn Session>, config: &Config, pad_token: i64) -> Result<Self> {
        let layout = |expected: String, found: &[String]| Cause::Layout {
            graph: "model",
            expected,
            found: found.join(", "),
        };
        let present = |input: &String| Some((input.clone(), present_of(input)?));
        let past: Vec<_> = session.inputs().iter().filter_map(present).collect();
        if past.len() != 2 * config.decoder.n_layers {
            let expected = format!(
                "keys and values of {} layers in the past (in Optimum use_cache=True)",
                config.decoder.n_layers
            );
            return Err(layout(expected, session.inputs()).into());
        }
        if let Some(name) = [INPUT_IDS, ATTENTION_MASK]
            .into_iter()
            .find(|name| !session.inputs().iter().any(|known| known == name))
        {
            return Err(layout(format!("an input {name}"), session.inputs()).into());
        }
        for output in past.iter().map(|(_, present)| present.as_str()).chain([LOGITS]) {
            if !session.outputs().iter().any(|known| known == output) {
                return Err(layout(format!("an output {output}"), session.outputs()).into());
            }
        }
        let (stack, vocab) = (config.decoder, config.vocab);
        let (state, mask, logits) = (Values::new(), Array2::zeros((0, 0)), LastLogits::default());
        Ok(Self {
            session,
            pad_token,
            stack,
            vocab,
            past,
            prompts: None,
            beams: 1,
            state,
            mask,
            logits,
        })
    }

    /// Reads tokens `[rows, len]` after the past; the mask already includes these tokens. Returns
    /// all logits `[rows, len, vocab]`.
    fn read(&mut self, tokens: Array2<i64>) -> Result<Value> {
        let end = self.past_len() + tokens.ncols();
        let mask = self.mask.slice(s![.., ..end]).to_owned();
        if self.session.inputs().iter().any(|name| name == POSITION_IDS) {
            let counted = mask.map_axis(Axis(1), |row| {
                let counts = row.iter().scan(0, |count, token| {
                    *count += token;
                    Some((*count - 1).max(0))
                });
                counts.skip(end - tokens.ncols()).collect::<Vec<i64>>()
            });
            let counted = Array2::from_shape_fn(tokens.dim(), |(row, place)| counted[row][place]);
            self.state.insert(POSITION_IDS, counted.into_dyn());
        }
        self.state.insert(INPUT_IDS, tokens.into_dyn());
        self.state.insert(ATTENTION_MASK, mask.into_dyn());
        let mut outputs = self.session.run(&self.state)?;
        for (past, present) in &self.past {
            let value = outputs.remove(present).ok_or_else(|| missing("model", present))?;
            self.state.insert(past, value);
        }
        outputs.remove(LOGITS).ok_or_else(|| missing("model", LOGITS))
    }

    fn past_len(&self) -> usize {
        self.past
            .first()
            .and_then(|(name, _)| self.state.get(name))
            .and_then(|past| past.shape().get(2).copied())
            .unwrap_or(0)
    }

    /// Reads the prompts, and gives each beam their past. Returns the logits `[rows, vocab]` of the
    /// next tokens.
    fn read_prompts(&mut self, prompts: &Array2<i64>) -> Result<Value> {
        let (batch, len) = prompts.dim();
        let Stack { key_heads, d_k, .. } = self.stack;
        for (name, _) in &self.past {
            self.state.insert(name, Array4::<f32>::zeros((batch, key_heads, 0, d_k)).into_dyn());
        }
        let part = (MOST_LOGITS / (batch * self.vocab).max(1)).max(1);
        let mut last = None;
        for first in (0..len).step_by(part) {
            last = Some(self.read(prompts.slice(s![.., first..len.min(first + part)]).to_owned())?);
        }
        let logits = last.ok_or_else(|| missing("model", LOGITS))?.to_f32()?;
        let wrong = |found| Cause::Layout {
            graph: "model",
            expected: format!("logits of {batch} prompts"),
            found,
        };
        if logits.ndim() != 3 || logits.len_of(Axis(0)) != batch || logits.len_of(Axis(1)) == 0 {
            return Err(wrong(format!("{:?}", logits.shape())).into());
        }
        let logits: ArrayD<f32> = logits.slice_axis(Axis(1), Slice::from(-1..)).to_owned();
        let rows: Vec<usize> = (0..batch * self.beams).map(|row| row / self.beams).collect();
        if self.beams == 1 {
            return Ok(logits.into());
        }
        self.keep(&rows)?;
        Ok(logits.select(Axis(0), &rows).into())
    }

    /// Keeps only the given rows, in that order.
    fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.mask = self.mask.select(Axis(0), rows);
        for (name, _) in &self.past {
            if let Some(value) = self.state.remove(name) {
                self.state.insert(name, select(value, rows)?);
            }
        }
        Ok(())
    }
}

/// The sources of a decoder alone.
pub(crate) fn prompts_of(sources: Sources<'_>) -> Result<&[Vec<i64>]> {
    let Sources::Tokens(prompts) = sources else {
        return Err(
            Cause::Contradiction("a decoder-only model reads prompts of tokens".into()).into()
        );
    };
    match prompts.iter().position(Vec::is_empty) {
        Some(index) => Err(Cause::Empty(index).into()),
        None => Ok(prompts),
    }
}

pub(crate) fn no_cross_attention() -> Error {
    let expected = "a model with an encoder for alignments".into();
    Cause::Layout { graph: "model", expected, found: "a decoder alone".into() }.into()
}

impl Decoder for CausalDecoder {
    fn engine(&self) -> &str {
        self.session.engine()
    }

    fn continues_sources(&self) -> bool {
        true
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        let prompts = prompts_of(sources)?;
        let len = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let token = |(row, place): (usize, usize)| {
            place.checked_sub(len - prompts[row].len()).map(|place| prompts[row][place])
        };
        let shape = (prompts.len(), len);
        self.prompts = Some(Array2::from_shape_fn(shape, |at| token(at).unwrap_or(self.pad_token)));
        self.mask = Array2::from_shape_fn(shape, |at| i64::from(token(at).is_some()));
        self.beams = beams;
        Ok(())
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        let (batch, beams) = tokens.dim();
        // The last tokens of the prompts are the given ones.
        let logits = if let Some(prompts) = self.prompts.take() {
            self.read_prompts(&prompts)?
        } else {
            let is_moved = |((_, beam), parent): ((usize, usize), &usize)| beam != *parent;
            if let Some(parents) = parents.filter(|parents| parents.indexed_iter().any(is_moved)) {
                let rows: Vec<usize> = parents
                    .indexed_iter()
                    .map(|((sentence, _), parent)| sentence * beams + parent)
                    .collect();
                self.keep(&rows)?;
            }
            let one = Array2::ones((batch * beams, 1));
            self.mask =
                concatenate(Axis(1), &[self.mask.view(), one.view()]).expect("as many rows");
            self.read(
                tokens.clone().into_shape_with_order((batch * beams, 1)).expect("as many elements"),
            )?
        };
        self.logits.put(logits, None, (batch, beams))
    }

    fn cross_attention(&mut self, _: usize) -> Result<Array4<f32>> {
        Err(no_cross_attention())
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        if let Some(prompts) = &mut self.prompts {
            *prompts = prompts.select(Axis(0), sentences);
            self.mask = self.mask.select(Axis(0), sentences);
            return Ok(());
        }
        let beams = self.beams;
        let rows: Vec<usize> = sentences
            .iter()
            .flat_map(|sentence| sentence * beams..(sentence + 1) * beams)
            .collect();
        self.keep(&rows)
    }
}
