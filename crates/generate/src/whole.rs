//! The decoder of one graph that decodes: all steps are one call.

use crate::batch::SentenceBatch;
use crate::decoder::{missing, padded};
use crate::error::Cause;
use crate::search::{SCORES, SEQUENCES, scalars};
use crate::{Decoder, Hypothesis, Logits, Result, Settings, Sources};
use cognate_graph::Scalar;
use cognate_model::interface::{ATTENTION_MASK, INPUT_IDS};
use cognate_runtime::{Session, Value, Values};
use ndarray::{Array2, Array4, ArrayD, Ix2, Ix3, IxDyn};

/// The decoder of `generate.onnx`, or its graph; see [`search_program`](crate::search_program).
pub struct SearchDecoder {
    session: Box<dyn Session>,
    pad_token: i64,
}

/// Scores at most this are those of impossible hypotheses.
const IMPOSSIBLE: f32 = -1e8;

impl SearchDecoder {
    /// Takes the session of the graph.
    ///
    /// # Errors
    /// If its inputs and outputs are not those of the layout.
    pub fn new(session: Box<dyn Session>, pad_token: i64) -> Result<Self> {
        for (found, expected) in [(session.inputs(), INPUT_IDS), (session.inputs(), ATTENTION_MASK), (session.outputs(), SEQUENCES)] {
            if !found.iter().any(|name| name == expected) {
                let expected = format!("the name {expected}");
                return Err(Cause::Layout { graph: "generate", expected, found: found.join(", ") }.into());
            }
        }
        Ok(Self { session, pad_token })
    }

    fn refuse<T>(&self, what: &str) -> Result<T> {
        let expected = format!("an export without --layout generate for {what}");
        Err(Cause::Layout { graph: "generate", expected, found: "a graph that contains the search".into() }.into())
    }
}

impl Decoder for SearchDecoder {
    fn engine(&self) -> &str {
        self.session.engine()
    }

    fn start(&mut self, _: Sources<'_>, _: usize) -> Result<()> {
        self.refuse("single steps")
    }

    fn advance(&mut self, _: Option<&Array2<usize>>, _: &Array2<i64>) -> Result<Logits<'_>> {
        self.refuse("single steps")
    }

    fn cross_attention(&mut self, _: usize) -> Result<Array4<f32>> {
        self.refuse("attention weights")
    }

    fn retain(&mut self, _: &[usize]) -> Result<()> {
        self.refuse("single steps")
    }

    fn search(&mut self, batch: &SentenceBatch<'_>, settings: &Settings) -> Option<Result<Vec<Vec<Hypothesis>>>> {
        Some(self.decode(batch, settings))
    }
}

impl SearchDecoder {
    fn decode(&mut self, batch: &SentenceBatch<'_>, settings: &Settings) -> Result<Vec<Vec<Hypothesis>>> {
        if batch.prefixes.iter().any(|prefix| !prefix.is_empty()) {
            return self.refuse("a target prefix");
        }
        if settings.alignment_layer.is_some() {
            return self.refuse("alignments");
        }
        let Sources::Tokens(sources) = batch.sources else { return self.refuse("other sources than tokens") };
        let (ids, mask) = padded(sources, self.pad_token)?;
        let mut inputs: Values = [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.into_dyn())].into_iter().collect();
        for (name, value) in scalars(settings) {
            inputs.insert(name, scalar(value));
        }
        let mut outputs = self.session.run(&inputs)?;
        let mut take = |name| outputs.remove(name).ok_or_else(|| missing("generate", name));
        let (sequences, scores) = (take(SEQUENCES)?.into_host()?, take(SCORES)?.to_f32()?);
        let wrong = || Cause::Layout { graph: "generate", expected: format!("{SEQUENCES} of tokens"), found: "others".into() };
        let Value::I64(sequences) = sequences else { return Err(wrong().into()) };
        let sequences = sequences.into_dimensionality::<Ix3>().map_err(|_| wrong())?;
        let scores = scores.into_dimensionality::<Ix2>().map_err(|_| wrong())?;
        let hypothesis = |(row, &score): (ndarray::ArrayView1<'_, i64>, &f32)| {
            let tokens: Vec<i64> = row.iter().skip(1).copied().take_while(|token| !settings.eos_tokens.contains(token)).collect();
            let complete = tokens.len() + 1 < row.len();
            let margins = vec![f32::INFINITY; tokens.len() + usize::from(complete)];
            Hypothesis { tokens, complete, score, margins, alignment: Vec::new(), observed: None }
        };
        let sentences = sequences.outer_iter().zip(scores.outer_iter());
        Ok(sentences
            .map(|(rows, scores)| {
                let n_real = scores.iter().filter(|score| **score > IMPOSSIBLE).count().max(1);
                rows.outer_iter().zip(scores).take(n_real).map(hypothesis).collect()
            })
            .collect())
    }
}

fn scalar(value: Scalar) -> Value {
    match value {
        Scalar::I64(value) => ArrayD::from_elem(IxDyn(&[]), value).into(),
        Scalar::F32(value) => ArrayD::from_elem(IxDyn(&[]), value).into(),
        Scalar::F16(value) => ArrayD::from_elem(IxDyn(&[]), value.to_f32()).into(),
    }
}
