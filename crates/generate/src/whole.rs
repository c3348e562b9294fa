//! The decoder of one graph that decodes: all steps are one call of the engine.

use crate::batch::SentenceBatch;
use crate::decoder::{missing, padded};
use crate::error::Cause;
use crate::search::{CROSS_ATTENTIONS, PREFIX_IDS, SCORES, SEQUENCES, max_length, scalars};
use crate::{Decoder, FixedSizes, Hypothesis, Logits, Result, Settings, Sources, alignment};
use cognate_graph::Scalar;
use cognate_model::interface::{ATTENTION_MASK, INPUT_FEATURES, INPUT_IDS};
use cognate_runtime::{Session, Value, Values};
use ndarray::{Array2, Array4, ArrayD, ArrayView1, Ix2, Ix3, IxDyn, s};

/// The decoder of `generate.onnx`, or its graph; see [`search_program`](crate::search_program).
pub struct SearchDecoder {
    session: Box<dyn Session>,
    pad_token: i64,
    sizes: Option<FixedSizes>,
    /// Whether the sources are log-mel frames.
    reads_frames: bool,
}

/// Scores up to this are those of impossible hypotheses.
const IMPOSSIBLE: f32 = -1e8;

impl SearchDecoder {
    /// Takes the session of the graph.
    ///
    /// # Errors
    /// If its inputs and outputs are not those of the layout.
    pub fn new(session: Box<dyn Session>, pad_token: i64) -> Result<Self> {
        let reads_frames = session.inputs().iter().any(|input| input == INPUT_FEATURES);
        let expected = match reads_frames {
            true => [(session.inputs(), PREFIX_IDS)].to_vec(),
            false => [INPUT_IDS, ATTENTION_MASK].map(|name| (session.inputs(), name)).to_vec(),
        };
        for (found, expected) in expected.into_iter().chain([(session.outputs(), SEQUENCES)]) {
            if !found.iter().any(|name| name == expected) {
                let expected = format!("the name {expected}");
                return Err(
                    Cause::Layout { graph: "generate", expected, found: found.join(", ") }.into()
                );
            }
        }
        Ok(Self { session, pad_token, sizes: None, reads_frames })
    }

    /// The same for a graph of constant sizes: larger batches are divided, smaller ones filled.
    #[must_use]
    pub fn with_sizes(self, sizes: Option<FixedSizes>) -> Self {
        Self { sizes, ..self }
    }

    fn refuse<T>(&self, what: &str) -> Result<T> {
        let expected = format!("an export without --layout generate for {what}");
        Err(Cause::Layout {
            graph: "generate",
            expected,
            found: "a graph that contains the search".into(),
        }
        .into())
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

    fn search(
        &mut self,
        batch: &SentenceBatch<'_>,
        settings: &Settings,
    ) -> Option<Result<Vec<Vec<Hypothesis>>>> {
        Some(self.decode(batch, settings))
    }
}

impl SearchDecoder {
    fn decode(
        &mut self,
        batch: &SentenceBatch<'_>,
        settings: &Settings,
    ) -> Result<Vec<Vec<Hypothesis>>> {
        if settings.timestamps.is_some() || settings.observe.is_some() {
            return self.refuse("timestamps, or the probability of silence");
        }
        let n_prefix = batch.prefixes.first().map_or(0, Vec::len);
        if batch.prefixes.iter().any(|prefix| prefix.len() != n_prefix) {
            return self.refuse("target prefixes of different lengths");
        }
        if !self.reads_frames && n_prefix > 0 {
            return self.refuse("a target prefix");
        }
        if settings.alignment_layer.is_some()
            && !self.session.outputs().iter().any(|name| name == CROSS_ATTENTIONS)
        {
            return self.refuse("alignments, or one with attentions");
        }
        let tokens = |(ids, mask): (Array2<i64>, Array2<i64>)| -> Values {
            [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.into_dyn())].into_iter().collect()
        };
        match (batch.sources, self.reads_frames) {
            (Sources::Features(frames), true) => {
                let mut inputs: Values = [(INPUT_FEATURES, frames.clone())].into_iter().collect();
                let prefix = |(sentence, place): (usize, usize)| batch.prefixes[sentence][place];
                let prefixes = Array2::from_shape_fn((batch.sources.len(), n_prefix), prefix);
                inputs.insert(PREFIX_IDS, prefixes.into_dyn());
                // The graph counts the prefix.
                let counted = |count: usize| count.saturating_add(n_prefix);
                let min_new_tokens = match settings.min_new_tokens {
                    0 => 0,
                    count => counted(count),
                };
                let max_new_tokens = counted(settings.max_new_tokens);
                let settings = Settings { min_new_tokens, max_new_tokens, ..settings.clone() };
                self.run(batch.sources, inputs, &settings)
            }
            (Sources::Tokens(sources), false) => {
                let Some(sizes) = self.sizes else {
                    let inputs = tokens(padded(sources, self.pad_token, |longest| longest)?);
                    return self.run(batch.sources, inputs, settings);
                };
                let mut found = Vec::new();
                for sources in sources.chunks(sizes.batch) {
                    let inputs = tokens(filled(sources, self.pad_token, sizes)?);
                    found.extend(self.run(sources.into(), inputs, settings)?);
                }
                Ok(found)
            }
            (_, true) => self.refuse("other sources than frames"),
            (_, false) => self.refuse("other sources than tokens"),
        }
    }

    /// The hypotheses of the sources; `inputs` can have additional rows.
    fn run(
        &mut self,
        sources: Sources<'_>,
        mut inputs: Values,
        settings: &Settings,
    ) -> Result<Vec<Vec<Hypothesis>>> {
        for (name, value) in scalars(settings) {
            if self.session.inputs().iter().any(|input| input == name) {
                inputs.insert(name, scalar(value));
            }
        }
        let mut outputs = self.session.run(&inputs)?;
        let mut take = |name| outputs.remove(name).ok_or_else(|| missing("generate", name));
        let (sequences, scores) = (take(SEQUENCES)?.into_host()?, take(SCORES)?.to_f32()?);
        let wrong = || Cause::Layout {
            graph: "generate",
            expected: format!("{SEQUENCES} of tokens"),
            found: "others".into(),
        };
        let Value::I64(sequences) = sequences else { return Err(wrong().into()) };
        let sequences = sequences.into_dimensionality::<Ix3>().map_err(|_| wrong())?;
        let scores = scores.into_dimensionality::<Ix2>().map_err(|_| wrong())?;
        let attentions = settings
            .alignment_layer
            .map(|layer| Ok::<_, crate::Error>((layer, take(CROSS_ATTENTIONS)?.to_f32()?)));
        let attentions = attentions.transpose()?;
        let is_missing = attentions
            .as_ref()
            .is_some_and(|(layer, values)| values.ndim() != 6 || *layer >= values.shape()[3]);
        if is_missing {
            return self.refuse("alignments of this layer");
        }
        // Tokens beyond the limit are padding.
        let limit = max_length(settings);
        let hypothesis =
            |(sentence, rank): (usize, usize), row: ArrayView1<'_, i64>, score: f32| {
                let row: Vec<i64> = row.iter().copied().take(limit).collect();
                let tokens: Vec<i64> = row
                    .iter()
                    .skip(1)
                    .copied()
                    .take_while(|token| !settings.eos_tokens.contains(token))
                    .collect();
                let complete = tokens.len() + 1 < row.len();
                let margins = vec![f32::INFINITY; tokens.len() + usize::from(complete)];
                let aligned = attentions.as_ref().map_or(0..0, |_| 1..tokens.len() + 1);
                let of_place = |place: usize| {
                    let (layer, values) =
                        attentions.as_ref().expect("places are aligned by attentions");
                    alignment(
                        values.slice(s![sentence, rank, place, *layer, .., ..]),
                        sources.tokens().get(sentence).map_or(&[], Vec::as_slice),
                    )
                };
                let alignment = aligned.map(of_place).collect();
                Hypothesis { tokens, complete, score, margins, alignment, observed: None }
            };
        let sentences =
            sequences.outer_iter().zip(scores.outer_iter()).take(sources.len()).enumerate();
        Ok(sentences
            .map(|(sentence, (rows, scores))| {
                let n_real = scores.iter().filter(|score| **score > IMPOSSIBLE).count().max(1);
                let rows = rows.outer_iter().zip(scores).take(n_real).enumerate();
                rows.map(|(rank, (row, &score))| hypothesis((sentence, rank), row, score)).collect()
            })
            .collect())
    }
}

/// Sources as a batch of constant size: its first row is repeated where there is no sentence.
fn filled(
    sources: &[Vec<i64>],
    pad_token: i64,
    FixedSizes { batch, length }: FixedSizes,
) -> Result<(Array2<i64>, Array2<i64>)> {
    let (ids, mask) = padded(sources, pad_token, |longest| longest)?;
    let (rows, longest) = ids.dim();
    if longest > length {
        let message = format!(
            "max_length: expected at most {length} tokens of a source, a constant of generate.onnx, found {longest}"
        );
        return Err(Cause::Contradiction(message).into());
    }
    let fill = |of: &Array2<i64>, other: i64| {
        let value = |(row, place): (usize, usize)| {
            of.get((if row < rows { row } else { 0 }, place)).copied().unwrap_or(other)
        };
        Array2::from_shape_fn((batch, length), value)
    };
    Ok((fill(&ids, pad_token), fill(&mask, 0)))
}

fn scalar(value: Scalar) -> Value {
    match value {
        Scalar::I64(value) => ArrayD::from_elem(IxDyn(&[]), value).into(),
        Scalar::F32(value) => ArrayD::from_elem(IxDyn(&[]), value).into(),
        Scalar::F16(value) => ArrayD::from_elem(IxDyn(&[]), value.to_f32()).into(),
    }
}
