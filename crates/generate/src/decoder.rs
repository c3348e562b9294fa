//! The decoder of the Cognate layout: two sessions and the state of a batch.

use crate::error::Cause;
use crate::logits::{LastLogits, Logits};
use crate::{Error, Hypothesis, Result, SentenceBatch, Settings, Sources};
use cognate_graph::f16;
use cognate_model::Names;
use cognate_model::interface::{ATTENTION_MASK, INPUT_IDS, LOGITS, cross_of, is_past, present_of};
use cognate_runtime::{Session, Value, Values, return_free_memory};
use ndarray::{Array2, Array4, Array5, ArrayD, Axis};
use std::collections::BTreeMap;
use std::mem;

/// Logits of the next tokens of a batch of sentences with beams.
pub trait Decoder {
    /// The engine, as in [`Session::engine`].
    fn engine(&self) -> &str;

    /// Whether hypotheses continue the sources themselves, which are then prompts: the decoder of a
    /// decoder-only model.
    fn continues_sources(&self) -> bool {
        false
    }

    /// Encodes the sources and starts `beams` empty hypotheses for each.
    ///
    /// # Errors
    /// If a source is empty or the engine fails.
    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()>;

    /// Whether sentences can [join](Decoder::join) others between two steps.
    fn joins(&self) -> bool {
        false
    }

    /// Encodes more sources, which follow those of the batch, with as many empty hypotheses for
    /// each.
    ///
    /// # Errors
    /// As [`Decoder::start`], after which the batch is as before; or if this decoder does not
    /// [join](Decoder::joins).
    fn join(&mut self, _: Sources<'_>) -> Result<()> {
        Err(no_join(self.engine()))
    }

    /// Whether the first step can take one token of each sentence, `[batch, 1]`, which all its
    /// beams have: it then returns logits `[batch, 1, vocab]`.
    fn shares_first_step(&self) -> bool {
        false
    }

    /// Whether another device computes, so that the search may use all threads of the processor.
    fn leaves_processor_free(&self) -> bool {
        false
    }

    /// The width of sources, padding included, is a multiple of this number, if the model's
    /// positions allow it.
    fn source_multiple(&self) -> usize {
        1
    }

    /// Appends `tokens: [batch, beams]` to hypotheses and returns the logits
    /// `[batch, beams, vocab]` of the next tokens, which the caller can overwrite until the next
    /// call. The first tokens are the start tokens, or the last ones of prompts. Beam `b` of
    /// sentence `s` continues that sentence's beam `parents[s, b]`; `None` continues each beam.
    ///
    /// # Errors
    /// If the engine fails.
    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>>;

    /// Restricts the logits of all following steps to these tokens, in ascending order. Returns
    /// whether it does; [`ShortlistDecoder`] drops the other logits of a decoder that does not.
    ///
    /// [`ShortlistDecoder`]: crate::ShortlistDecoder
    fn restrict(&mut self, _: &[i64]) -> bool {
        false
    }

    /// Restricts the logits of the batch to those of the best tokens, until the next batch. A
    /// decoder may return more.
    fn only_best(&mut self, _: &BestTokens) {}

    /// Whether it computes several tokens of a prompt in one call: see [`Decoder::prefill`].
    fn supports_prefill(&self) -> bool {
        false
    }

    /// Appends `tokens: [batch, n]` to all hypotheses of each sentence, before the first step and
    /// without logits.
    ///
    /// # Errors
    /// If there was a step, this decoder does not [support it](Decoder::supports_prefill), or the
    /// engine fails.
    fn prefill(&mut self, _: &Array2<i64>) -> Result<()> {
        Err(no_prefill(self.engine()))
    }

    /// The cross-attention `[batch, beams, heads, src]` of the last step in one layer.
    ///
    /// # Errors
    /// If the graphs do not output it, or the layer does not exist.
    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        Attentions::default().layer(layer_index, &[])
    }

    /// The hypotheses of a batch as [`decode`](crate::decode) returns them, if the decoder searches
    /// by itself.
    fn search(
        &mut self,
        _: &SentenceBatch<'_>,
        _: &Settings,
    ) -> Option<Result<Vec<Vec<Hypothesis>>>> {
        None
    }

    /// Keeps only the given sentences of the batch, in that order.
    ///
    /// # Errors
    /// If the engine fails.
    fn retain(&mut self, sentences: &[usize]) -> Result<()>;
}

/// The tokens of each hypothesis whose logits are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestTokens {
    /// Number of tokens with the largest logits.
    pub count: usize,
    /// Whether the softmax of all logits is needed.
    pub softmax: bool,
    /// Tokens that are included regardless of their logits.
    pub always: Vec<i64>,
}

/// The decoder of an exported folder: `encoder.onnx` and `decoder.onnx`, or their graphs.
pub struct SessionDecoder {
    encoder: Box<dyn Session>,
    decoder: Box<dyn Session>,
    pad_token: i64,
    /// Each past input with its present output.
    past: Vec<(String, String)>,
    /// The inputs of the next step without the tokens.
    state: Values,
    /// The logits of the last step.
    logits: LastLogits,
    attentions: Attentions,
}

impl SessionDecoder {
    /// Joins the two sessions.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the Cognate layout.
    pub fn new(
        encoder: Box<dyn Session>,
        decoder: Box<dyn Session>,
        pad_token: i64,
    ) -> Result<Self> {
        let past = pasts(Some(encoder.as_ref()), decoder.as_ref(), &[])?;
        Ok(Self {
            encoder,
            decoder,
            pad_token,
            past,
            state: Values::new(),
            logits: LastLogits::default(),
            attentions: Attentions::default(),
        })
    }

    /// Gives each beam the past of its parent.
    fn move_past(&mut self, parents: &Array2<usize>) -> Result<()> {
        if parents.indexed_iter().all(|((_, beam), &parent)| beam == parent) {
            return Ok(());
        }
        let (batch, beams) = parents.dim();
        let rows: Vec<_> =
            parents.indexed_iter().map(|((row, _), parent)| row * beams + parent).collect();
        for (name, _) in &self.past {
            let Some(value) = self.state.remove(name) else { continue };
            let moved = match self.decoder.select(&value, &[batch, beams], &rows)? {
                Some(moved) => moved,
                None => match value.into_host()? {
                    Value::F32(past) => moved(past, parents).into(),
                    Value::F16(past) => moved(past, parents).into(),
                    Value::F64(past) => moved(past, parents).into(),
                    Value::I64(past) => moved(past, parents).into(),
                    held @ Value::Engine(_) => held,
                },
            };
            self.state.insert(name, moved);
        }
        Ok(())
    }
}

impl Decoder for SessionDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        let before = mem::take(&mut self.state);
        self.state = encoded(
            [self.encoder.as_mut(), self.decoder.as_mut()],
            sources,
            self.pad_token,
            before,
            None,
        )?;
        for (name, _) in &self.past {
            let [batch, heads, d_k] = cross_sizes(&self.state, name)?;
            self.state.insert(name, Array5::<f32>::zeros((batch, beams, heads, 0, d_k)).into_dyn());
        }
        Ok(())
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        if let Some(parents) = parents {
            self.move_past(parents)?;
        }
        self.state.insert(INPUT_IDS, tokens.clone().insert_axis(Axis(2)).into_dyn());
        let mut outputs = self.decoder.run(&self.state)?;
        for (past, present) in &self.past {
            let value = outputs.remove(present).ok_or_else(|| missing("decoder", present))?;
            self.state.insert(past, value);
        }
        let logits = outputs.remove(LOGITS).ok_or_else(|| missing("decoder", LOGITS))?;
        self.attentions = Attentions { outputs, rows: tokens.dim() };
        self.logits.put(logits, None, tokens.dim())
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        self.attentions.layer(layer_index, self.decoder.outputs())
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.into_iter().filter(|name| name != INPUT_IDS) {
            let Some(value) = self.state.remove(&name) else { continue };
            let kept = self.decoder.select(&value, &[sentences.len()], sentences)?;
            self.state.insert(name, kept.map_or_else(|| select(value, sentences), Ok)?);
        }
        Ok(())
    }
}

/// The cross-attentions among a step's outputs.
#[derive(Default)]
pub(crate) struct Attentions {
    pub(crate) outputs: Values,
    /// Sentences and beams.
    pub(crate) rows: (usize, usize),
}

impl Attentions {
    /// The weights of a layer: `[batch, beams, heads, src]`.
    pub(crate) fn layer(&mut self, layer_index: usize, known: &[String]) -> Result<Array4<f32>> {
        let name = Names::cross_attentions(layer_index);
        let Some(attention) = self.outputs.remove(&name) else {
            let mut found: Vec<_> = known
                .iter()
                .filter(|name| name.starts_with("cross_attentions."))
                .cloned()
                .collect();
            if found.is_empty() {
                found.push("none; export with --attentions".into());
            }
            return Err(Cause::Layout {
                graph: "decoder",
                expected: format!("an output {name}"),
                found: found.join(", "),
            }
            .into());
        };
        let shape = attention.shape().to_vec();
        let wrong = || Cause::Layout {
            graph: "decoder",
            expected: format!("{name} of one new token a hypothesis"),
            found: format!("{shape:?}"),
        };
        // `[batch, beams, heads, 1, src]`, or `[rows, heads, 1, src]`.
        let [.., heads, 1, src] = *shape else { return Err(wrong().into()) };
        let (batch, beams) = self.rows;
        attention
            .to_f32()?
            .into_shape_with_order((batch, beams, heads, src))
            .map_err(|_| wrong().into())
    }
}

/// Each past input of a decoder of Cognate with its present output. Its other inputs are tokens,
/// the mask, the outputs of its encoder, if it has one, and `others`.
pub(crate) fn pasts(
    encoder: Option<&dyn Session>,
    decoder: &dyn Session,
    others: &[&str],
) -> Result<Vec<(String, String)>> {
    let layout = |graph, expected, found: &[String]| Cause::Layout {
        graph,
        expected,
        found: found.join(", "),
    };
    let present = |input: &String| Some((input.clone(), present_of(input)?));
    let pasts: Vec<_> = decoder.inputs().iter().filter_map(present).collect();
    if pasts.is_empty() {
        return Err(layout(
            "decoder",
            "inputs past.{layer}.key and past.{layer}.value".into(),
            decoder.inputs(),
        )
        .into());
    }
    for input in others {
        if !decoder.inputs().iter().any(|known| known == input) {
            return Err(layout("decoder", format!("an input {input}"), decoder.inputs()).into());
        }
    }
    for output in pasts.iter().map(|(_, present)| present.as_str()).chain([LOGITS]) {
        if !decoder.outputs().iter().any(|known| known == output) {
            return Err(layout("decoder", format!("an output {output}"), decoder.outputs()).into());
        }
    }
    for input in decoder.inputs() {
        let is_own = input == INPUT_IDS
            || input == ATTENTION_MASK
            || is_past(input)
            || others.contains(&input.as_str());
        let given = encoder.map_or(&[][..], Session::outputs);
        if !is_own && !given.contains(input) {
            return Err(layout(
                "encoder",
                format!("an output {input}, which the decoder reads"),
                given,
            )
            .into());
        }
    }
    Ok(pasts)
}

/// Encodes the sources; the result is the constant input of the decoder, or that in the state of
/// the last batch.
pub(crate) fn encoded(
    [encoder, decoder]: [&mut dyn Session; 2],
    sources: Sources<'_>,
    pad_token: i64,
    before: Values,
    on_device: Option<usize>,
) -> Result<Values> {
    let given = decoder.inputs().iter().filter(|name| encoder.outputs().contains(name));
    let given: Vec<_> = given.cloned().collect();
    if let Sources::Again(count) = sources {
        let is_kept =
            |name: &str| name == ATTENTION_MASK || given.iter().any(|given| given == name);
        let kept: Values = before.into_iter().filter(|(name, _)| is_kept(name)).collect();
        return match given.first().and_then(|name| kept.get(name)).map(|value| value.shape()[0]) {
            Some(found) if found == count => Ok(kept),
            found => Err(not_again(count, found.unwrap_or(0))),
        };
    }
    // The previous batch's outputs are freed before new ones are computed.
    drop(before);
    if let (Some(_), Sources::Features(features)) = (on_device, sources)
        && is_audio(features)
    {
        return encoded_windows([encoder, decoder], features, &given);
    }
    let (mut outputs, mask) = encode(encoder, sources, pad_token, on_device)?;
    let mut state: Values = mask.into_iter().map(|mask| (ATTENTION_MASK, mask)).collect();
    for name in &given {
        let value = outputs.remove(name).ok_or_else(|| missing("encoder", name))?;
        state.insert(name, value);
    }
    Ok(state)
}

/// The number of windows of audio that a device encodes together. The keys and values of all
/// layers, which are computed together, may have fewer than 2³¹ elements: those of at most 17
/// windows of Whisper's largest model.
const WINDOWS_TOGETHER: usize = 8;

/// As [`encoded`], of windows of audio on a device.
fn encoded_windows(
    [encoder, decoder]: [&mut dyn Session; 2],
    features: &ArrayD<f32>,
    given: &[String],
) -> Result<Values> {
    let input = encoder.inputs().first().cloned().unwrap_or_default();
    let count = features.len_of(Axis(0));
    let mut state = Values::new();
    for (index, part) in features.axis_chunks_iter(Axis(0), WINDOWS_TOGETHER).enumerate() {
        let inputs = [(input.clone(), part.to_owned())].into_iter().collect();
        let mut outputs = encoder.run(&inputs)?;
        for name in given {
            let rows = outputs.remove(name).ok_or_else(|| missing("encoder", name))?;
            let whole = match state.remove(name) {
                Some(whole) => whole,
                None => {
                    let rest = rows.shape().get(1..).unwrap_or_default();
                    let whole = decoder.reserve(name, &[&[count], rest].concat())?;
                    whole.expect("a decoder with memory of its own")
                }
            };
            state.insert(name, decoder.with_rows(whole, index * WINDOWS_TOGETHER, &rows)?);
        }
    }
    Ok(state)
}

/// Frames of audio, unlike pixels, have no channels.
fn is_audio(features: &ArrayD<f32>) -> bool {
    features.ndim() == 3
}

/// The width of sources on a device is a multiple of this number, so that shapes repeat.
pub(crate) const SOURCE_MULTIPLE: usize = 8;

/// Runs the encoder; returns its outputs and the mask of tokens. `on_device` has the maximum number
/// of tokens of a source, if a device other than the processor computes: sources are then padded to
/// multiples of [`SOURCE_MULTIPLE`].
pub(crate) fn encode(
    encoder: &mut dyn Session,
    sources: Sources<'_>,
    pad_token: i64,
    on_device: Option<usize>,
) -> Result<(Values, Option<ArrayD<i64>>)> {
    match sources {
        Sources::Tokens(tokens) => {
            let (ids, mask) = padded(tokens, pad_token, |longest| match on_device {
                Some(most) => longest.next_multiple_of(SOURCE_MULTIPLE).min(most).max(longest),
                None => longest,
            })?;
            let mask = mask.into_dyn();
            let inputs =
                [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.clone())].into_iter().collect();
            Ok((encoder.run(&inputs)?, Some(mask)))
        }
        Sources::Features(features) => {
            let name = encoder.inputs().first().cloned().unwrap_or_default();
            let mut run =
                |part: ArrayD<f32>| encoder.run(&[(name.clone(), part)].into_iter().collect());
            // A window has so many positions that an encoder on a processor gains nothing from
            // several at once, and their attention weights would take most of the memory.
            if !is_audio(features) || features.len_of(Axis(0)) <= 1 {
                return Ok((run(features.clone())?, None));
            }
            let mut outputs = BTreeMap::new();
            for (index, window) in features.axis_chunks_iter(Axis(0), 1).enumerate() {
                put_window(
                    &mut outputs,
                    run(window.to_owned())?,
                    [index, features.len_of(Axis(0))],
                )?;
            }
            return_free_memory();
            Ok((outputs.into_iter().collect(), None))
        }
        Sources::Again(count) => Err(not_again(count, 0)),
    }
}

/// Writes the outputs of the window at `index` to those of `count` windows.
fn put_window(
    outputs: &mut BTreeMap<String, Value>,
    window: Values,
    [index, count]: [usize; 2],
) -> Result<()> {
    for (name, value) in window {
        let value = match value.into_host()? {
            value @ (Value::F32(_) | Value::F16(_)) => value,
            other => other.to_f32()?.into(),
        };
        let wrong = |expected| Cause::Layout {
            graph: "encoder",
            expected,
            found: format!("{:?}", value.shape()),
        };
        let [1, rest @ ..] = value.shape() else {
            return Err(wrong(format!("{name} of one window")).into());
        };
        let shape = [&[count], rest].concat();
        let all = outputs.entry(name).or_insert_with(|| match value {
            Value::F16(_) => ArrayD::from_elem(shape, f16::ZERO).into(),
            _ => ArrayD::<f32>::zeros(shape).into(),
        });
        match (all, &value) {
            (all, _) if *rest != all.shape()[1..] => {
                return Err(wrong(format!("windows of the shape {:?}", &all.shape()[1..])).into());
            }
            (Value::F32(all), Value::F32(window)) => {
                all.index_axis_mut(Axis(0), index).assign(&window.index_axis(Axis(0), 0));
            }
            (Value::F16(all), Value::F16(window)) => {
                all.index_axis_mut(Axis(0), index).assign(&window.index_axis(Axis(0), 0));
            }
            _ => return Err(wrong("windows of one type".into()).into()),
        }
    }
    Ok(())
}

pub(crate) fn not_again(expected: usize, found: usize) -> Error {
    Cause::Contradiction(format!(
        "expected the sources of the last batch, {expected}, found {found}"
    ))
    .into()
}

/// `batch`, `heads` and `d_k` of the past `name`, from the layer's cross keys or values.
pub(crate) fn cross_sizes(state: &Values, name: &str) -> Result<[usize; 3]> {
    let cross = cross_of(name).unwrap_or_default();
    match state.get(&cross).map(Value::shape) {
        Some(&[batch, heads, _, d_k]) => Ok([batch, heads, d_k]),
        _ => Err(missing("encoder", &cross)),
    }
}

/// The sources as `[batch, src]` ids, padded with `pad_token`, and the attention mask. `width` is
/// that of sources of which the longest has this number of tokens.
pub(crate) fn padded(
    sources: &[Vec<i64>],
    pad_token: i64,
    width: impl FnOnce(usize) -> usize,
) -> Result<(Array2<i64>, Array2<i64>)> {
    if let Some(index) = sources.iter().position(Vec::is_empty) {
        return Err(Cause::Empty(index).into());
    }
    let longest = sources.iter().map(Vec::len).max().unwrap_or(0);
    let (batch, src) = (sources.len(), width(longest));
    let (mut ids, mut mask) =
        (Array2::from_elem((batch, src), pad_token), Array2::zeros((batch, src)));
    for (index, source) in sources.iter().enumerate() {
        for (position, &id) in source.iter().enumerate() {
            ids[[index, position]] = id;
            mask[[index, position]] = 1;
        }
    }
    Ok((ids, mask))
}

/// `past: [batch, beams, ...]` with each beam replaced by its parent.
fn moved<T: Copy>(mut past: ArrayD<T>, parents: &Array2<usize>) -> ArrayD<T> {
    for (mut sentence, parents) in past.outer_iter_mut().zip(parents.outer_iter()) {
        if parents.iter().enumerate().all(|(beam, &parent)| beam == parent) {
            continue;
        }
        let before = sentence.to_owned();
        for (beam, &parent) in parents.iter().enumerate().filter(|(beam, parent)| beam != *parent) {
            sentence.index_axis_mut(Axis(0), beam).assign(&before.index_axis(Axis(0), parent));
        }
    }
    past
}

/// The given rows of a value, in that order, on the host.
pub(crate) fn select(value: Value, rows: &[usize]) -> Result<Value> {
    Ok(match value.into_host()? {
        Value::F32(array) => array.select(Axis(0), rows).into(),
        Value::F16(array) => array.select(Axis(0), rows).into(),
        Value::F64(array) => array.select(Axis(0), rows).into(),
        Value::I64(array) => array.select(Axis(0), rows).into(),
        held @ Value::Engine(_) => held,
    })
}

pub(crate) fn no_join(engine: &str) -> Error {
    Cause::Contradiction(format!("{engine}: sentences cannot join a batch of this decoder; expected them before its first step")).into()
}

pub(crate) fn no_prefill(engine: &str) -> Error {
    Cause::Contradiction(format!(
        "{engine}: expected a decoder that supports prefill, before its first step"
    ))
    .into()
}

pub(crate) fn missing(graph: &'static str, output: &str) -> Error {
    Cause::Layout { graph, expected: format!("an output {output}"), found: "none".into() }.into()
}
