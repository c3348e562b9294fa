//! The decoder of the Hugging Face layout, of Cognate or Optimum: sessions and the state of a
//! batch.
//!
//! The layout has no axis of beams: each beam is a row of the batch,
//! `row = sentence · beams + beam`, with a copy of the encoder's states and of the cross keys and
//! values.
//!
//! The first step, without a past, differs from later ones in one of three ways:
//!
//! | decoder | first step |
//! |---|---|
//! | Cognate's `decoder_model_merged.onnx` | pasts of length 0 |
//! | Optimum's `decoder_model_merged.onnx`, with an `If` | `use_cache_branch` is false, pasts are ignored |
//! | Optimum's `decoder_model.onnx` and `decoder_with_past_model.onnx` | the former, which has no pasts |
//!
//! Cross keys and values are those of the first step.

use crate::decoder::{Attentions, Decoder, encode, missing, not_again, select};
use crate::error::Cause;
use crate::logits::{LastLogits, Logits};
use crate::{Result, Sources};
use cognate_model::interface::{
    ENCODER_ATTENTION_MASK, ENCODER_HIDDEN_STATES, INPUT_IDS, LAST_HIDDEN_STATE, LOGITS,
};
use cognate_model::{Config, HuggingFaceNames};
use cognate_runtime::{Session, Values};
use ndarray::{Array1, Array2, Array4};

/// The input that selects a subgraph of Optimum's merged decoder.
const BRANCH: &str = "use_cache_branch";

/// The decoder of a folder in the Hugging Face layout.
pub struct HuggingFaceDecoder {
    encoder: Box<dyn Session>,
    /// The decoder of the first step, if there is a separate one.
    first: Option<Box<dyn Session>>,
    decoder: Box<dyn Session>,
    pad_token: i64,
    /// `key_heads` and `d_k` of the decoder.
    head_shape: [usize; 2],
    /// Each past input with its present output.
    past: Vec<(String, String)>,
    beams: usize,
    is_first_step: bool,
    /// The inputs that are kept between steps: pasts, the encoder's states, the mask.
    state: Values,
    /// The logits of the last step.
    logits: LastLogits,
    attentions: Attentions,
}

impl HuggingFaceDecoder {
    /// Joins the encoder and the decoder of a model of the given configuration.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the layout.
    pub fn new(
        encoder: Box<dyn Session>,
        decoder: Box<dyn Session>,
        config: &Config,
        pad_token: i64,
    ) -> Result<Self> {
        Self::join(encoder, None, decoder, config, pad_token)
    }

    /// Joins three sessions: Optimum's `encoder_model.onnx`, `decoder_model.onnx` and
    /// `decoder_with_past_model.onnx`.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the layout.
    pub fn with_first_step(
        encoder: Box<dyn Session>,
        first: Box<dyn Session>,
        decoder: Box<dyn Session>,
        config: &Config,
        pad_token: i64,
    ) -> Result<Self> {
        Self::join(encoder, Some(first), decoder, config, pad_token)
    }

    fn join(
        encoder: Box<dyn Session>,
        first: Option<Box<dyn Session>>,
        decoder: Box<dyn Session>,
        config: &Config,
        pad_token: i64,
    ) -> Result<Self> {
        let names = |layer_index| {
            HuggingFaceNames::past(layer_index)
                .into_iter()
                .zip(HuggingFaceNames::present(layer_index))
        };
        let past: Vec<_> = (0..config.decoder.n_layers).flat_map(names).collect();
        let expect = |graph, what: &str, known: &[String], name: &str| match known
            .iter()
            .any(|known| known == name)
        {
            true => Ok(()),
            false => Err(Cause::Layout {
                graph,
                expected: format!("an {what} {name}"),
                found: known.join(", "),
            }),
        };
        expect("encoder", "output", encoder.outputs(), LAST_HIDDEN_STATE)?;
        let on_first_step = first.as_ref().unwrap_or(&decoder);
        for (input, output) in &past {
            expect("decoder", "input", decoder.inputs(), input)?;
            expect("decoder of the first step", "output", on_first_step.outputs(), output)?;
            if is_own(input) {
                expect("decoder", "output", decoder.outputs(), output)?;
            }
        }
        let head_shape = [config.decoder.key_heads, config.decoder.d_k];
        let (state, logits) = (Values::new(), LastLogits::default());
        let attentions = Attentions::default();
        Ok(Self {
            encoder,
            first,
            decoder,
            pad_token,
            head_shape,
            past,
            beams: 1,
            is_first_step: true,
            state,
            logits,
            attentions,
        })
    }

    /// Keeps only the given rows, in that order, of the states whose names are `wanted`.
    fn keep(&mut self, rows: &[usize], wanted: impl Fn(&str) -> bool) -> Result<()> {
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.iter().filter(|name| wanted(name)) {
            if let Some(value) = self.state.remove(name) {
                self.state.insert(name, select(value, rows)?);
            }
        }
        Ok(())
    }

    /// Runs a step of `n_rows` rows.
    fn run(&mut self, n_rows: usize) -> Result<Values> {
        let session =
            self.first.as_mut().filter(|_| self.is_first_step).unwrap_or(&mut self.decoder);
        if session.inputs().iter().any(|input| input == BRANCH) {
            self.state
                .insert(BRANCH, Array1::from_elem(1, i64::from(!self.is_first_step)).into_dyn());
        }
        let src = self.state.get(ENCODER_HIDDEN_STATES).map_or(0, |states| states.shape()[1]);
        let has_branch = self.state.get(BRANCH).is_some();
        let inputs = session.inputs().to_vec();
        let [heads, d_k] = self.head_shape;
        let mut given = Values::new();
        for name in &inputs {
            if let Some(value) = self.state.remove(name) {
                given.insert(name, value);
            } else if self.past.iter().any(|(past, _)| past == name) {
                // Optimum names the length of past cross keys like that of the source, and engines
                // can check it.
                let length = if has_branch && !is_own(name) { src } else { 0 };
                given.insert(name, Array4::<f32>::zeros((n_rows, heads, length, d_k)).into_dyn());
            }
        }
        let outputs = session.run(&given)?;
        for name in inputs.iter().filter(|name| is_state(name)) {
            if let Some(value) = given.remove(name) {
                self.state.insert(name, value);
            }
        }
        Ok(outputs)
    }
}

impl Decoder for HuggingFaceDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        // One row of each source is expanded to its beams.
        let mut stride = 1;
        if let Sources::Again(count) = sources {
            stride = self.beams;
            let found = self
                .state
                .get(ENCODER_HIDDEN_STATES)
                .map_or(0, |states| states.shape()[0] / stride);
            if found != count {
                return Err(not_again(count, found));
            }
            self.past.iter().for_each(|(past, _)| drop(self.state.remove(past)));
        } else {
            let (mut encoded, mask) = encode(self.encoder.as_mut(), sources, self.pad_token, None)?;
            let states = encoded
                .remove(LAST_HIDDEN_STATE)
                .ok_or_else(|| missing("encoder", LAST_HIDDEN_STATE))?;
            self.state = mask.into_iter().map(|mask| (ENCODER_ATTENTION_MASK, mask)).collect();
            self.state.insert(ENCODER_HIDDEN_STATES, states);
        }
        self.beams = beams;
        let rows: Vec<usize> = (0..sources.len() * beams).map(|row| row / beams * stride).collect();
        if beams != stride {
            self.keep(&rows, is_state)?;
        }
        self.is_first_step = true;
        Ok(())
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        let is_moved = |((_, beam), parent): ((usize, usize), &usize)| beam != *parent;
        if let Some(parents) = parents.filter(|parents| parents.indexed_iter().any(is_moved)) {
            let rows: Vec<usize> = parents
                .indexed_iter()
                .map(|((sentence, _), parent)| sentence * self.beams + parent)
                .collect();
            // The encoder's outputs are equal in all beams of a sentence.
            self.keep(&rows, is_own)?;
        }
        let (batch, beams) = tokens.dim();
        let rows =
            tokens.clone().into_shape_with_order((batch * beams, 1)).expect("as many elements");
        self.state.insert(INPUT_IDS, rows.into_dyn());
        let mut outputs = self.run(batch * beams)?;
        for (past, present) in &self.past {
            if self.is_first_step || is_own(past) {
                let value = outputs.remove(present).ok_or_else(|| missing("decoder", present))?;
                self.state.insert(past, value);
            }
        }
        self.is_first_step = false;
        let logits = outputs.remove(LOGITS).ok_or_else(|| missing("decoder", LOGITS))?;
        self.attentions = Attentions { outputs, rows: (batch, beams) };
        self.logits.put(logits, None, (batch, beams))
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        self.attentions.layer(layer_index, self.decoder.outputs())
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        let beams = self.beams;
        let rows: Vec<usize> = sentences
            .iter()
            .flat_map(|sentence| sentence * beams..(sentence + 1) * beams)
            .collect();
        self.keep(&rows, is_state)
    }
}

/// Whether an input is kept between steps.
fn is_state(name: &str) -> bool {
    name != INPUT_IDS && name != BRANCH
}

/// Whether a past is one of self-attention.
fn is_own(name: &str) -> bool {
    name.contains(".decoder.")
}
