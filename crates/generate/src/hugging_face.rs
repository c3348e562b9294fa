//! The state of a batch that is being decoded, over two sessions of the Hugging Face layout.
//!
//! The layout knows no beams: each is a row of the batch, `row = sentence · beams + beam`, with a copy of the encoder's
//! states and of the cross keys and values.

use crate::Result;
use crate::decoder::{Attentions, Decoder, last_logits, missing, padded, select};
use crate::error::Cause;
use cognate_model::{Config, HuggingFaceNames};
use cognate_runtime::{Session, Values};
use ndarray::{Array2, Array3, Array4, ArrayViewMut3};

/// The decoder of a folder in the Hugging Face layout: `encoder_model.onnx` and `decoder_model_merged.onnx` without an `If`.
pub struct HuggingFaceDecoder {
    encoder: Box<dyn Session>,
    decoder: Box<dyn Session>,
    pad_token: i64,
    /// `heads` and `d_k` of the decoder.
    head_shape: [usize; 2],
    /// Each past input with the present output that feeds it.
    past: Vec<(String, String)>,
    beams: usize,
    /// The inputs of the next step but for the tokens.
    state: Values,
    /// Those of the last step.
    logits: Array3<f32>,
    attentions: Attentions,
}

impl HuggingFaceDecoder {
    /// Joins the two sessions of a model of the given configuration.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the layout.
    pub fn new(encoder: Box<dyn Session>, decoder: Box<dyn Session>, config: &Config, pad_token: i64) -> Result<Self> {
        let names = |layer_index| HuggingFaceNames::past(layer_index).into_iter().zip(HuggingFaceNames::present(layer_index));
        let past: Vec<_> = (0..config.decoder.n_layers).flat_map(names).collect();
        let expect = |graph, what: &str, known: &[String], name: &str| match known.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(Cause::Layout { graph, expected: format!("an {what} {name}"), found: known.join(", ") }),
        };
        expect("encoder", "output", encoder.outputs(), "last_hidden_state")?;
        for (input, output) in &past {
            expect("decoder", "input", decoder.inputs(), input)?;
            expect("decoder", "output", decoder.outputs(), output)?;
        }
        let head_shape = [config.decoder.heads, config.decoder.d_k];
        Ok(Self {
            encoder,
            decoder,
            pad_token,
            head_shape,
            past,
            beams: 1,
            state: Values::new(),
            logits: Array3::default((0, 0, 0)),
            attentions: Attentions::default(),
        })
    }

    /// Keeps only the given rows of the states whose names are `wanted`, in that order.
    fn keep(&mut self, rows: &[usize], wanted: impl Fn(&str) -> bool) -> Result<()> {
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.iter().filter(|name| wanted(name)) {
            if let Some(value) = self.state.remove(name) {
                self.state.insert(name, select(value, rows)?);
            }
        }
        Ok(())
    }
}

impl Decoder for HuggingFaceDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn start(&mut self, sources: &[Vec<i64>], beams: usize) -> Result<()> {
        let (ids, mask) = padded(sources, self.pad_token)?;
        let inputs = [("input_ids", ids.into_dyn()), ("attention_mask", mask.clone().into_dyn())].into_iter().collect();
        let mut encoded = self.encoder.run(&inputs)?;
        let states = encoded.remove("last_hidden_state").ok_or_else(|| missing("encoder", "last_hidden_state"))?;
        self.beams = beams;
        self.state = Values::new();
        self.state.insert("encoder_hidden_states", states);
        self.state.insert("encoder_attention_mask", mask.into_dyn());
        let rows: Vec<usize> = (0..sources.len() * beams).map(|row| row / beams).collect();
        if beams > 1 {
            self.keep(&rows, is_state)?;
        }
        let [heads, d_k] = self.head_shape;
        for (input, _) in &self.past {
            self.state.insert(input, Array4::<f32>::zeros((rows.len(), heads, 0, d_k)).into_dyn());
        }
        Ok(())
    }

    fn advance(&mut self, parents: Option<&Array2<usize>>, tokens: &Array2<i64>) -> Result<ArrayViewMut3<'_, f32>> {
        let is_moved = |((_, beam), parent): ((usize, usize), &usize)| beam != *parent;
        if let Some(parents) = parents.filter(|parents| parents.indexed_iter().any(is_moved)) {
            let rows: Vec<usize> = parents.indexed_iter().map(|((sentence, _), parent)| sentence * self.beams + parent).collect();
            // What comes from the encoder is equal in all beams of a sentence.
            self.keep(&rows, |name| name.contains(".decoder."))?;
        }
        let (batch, beams) = tokens.dim();
        let rows = tokens.clone().into_shape_with_order((batch * beams, 1)).expect("as many elements");
        self.state.insert("input_ids", rows.into_dyn());
        let mut outputs = self.decoder.run(&self.state)?;
        for (past, present) in &self.past {
            let value = outputs.remove(present).ok_or_else(|| missing("decoder", present))?;
            self.state.insert(past, value);
        }
        let logits = outputs.remove("logits").ok_or_else(|| missing("decoder", "logits"))?;
        self.logits = last_logits(logits, (batch, beams))?;
        self.attentions = Attentions { outputs, rows: (batch, beams) };
        Ok(self.logits.view_mut())
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array3<f32>> {
        self.attentions.layer(layer_index, self.decoder.outputs())
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        let beams = self.beams;
        let rows: Vec<usize> = sentences.iter().flat_map(|sentence| sentence * beams..(sentence + 1) * beams).collect();
        self.keep(&rows, is_state)
    }
}

/// Whether an input lasts beyond its step.
fn is_state(name: &str) -> bool {
    name != "input_ids"
}
