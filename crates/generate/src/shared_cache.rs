//! The decoder of the shared-cache layout: sessions and the state of a batch.
//!
//! A step writes into the caches in place. A beam that continues another gets its history as a list
//! of positions, and nothing is copied. When a sentence is finished, another moves to its place.
//! Others join behind them if the session supports sentences whose pasts have different lengths.
//!
//! The sources of a decoder-only model are prompts, whose tokens except the last are read before
//! the first step: in one pass if the session supports it, otherwise token by token, and padded on
//! the left if the session does not support pasts of different lengths.

use crate::causal::{no_cross_attention, prompts_of};
use crate::decoder::{
    Attentions, BestTokens, Decoder, SOURCE_MULTIPLE, cross_sizes, encoded, missing, no_join,
    no_prefill, pasts, select,
};
use crate::logits::{LastLogits, Logits};
use crate::{Result, Sources};
use cognate_model::interface::{
    ATTENTION_MASK, CACHE_BEAMS, INPUT_IDS, LOGITS, LOGITS_SCALE, is_cross, is_past,
};
use cognate_model::{Config, Stack};
use cognate_runtime::{BEST, SHORTLIST, Session, Value, Values};
use ndarray::{Array1, Array2, Array3, Array4, ArrayD, Axis, s};
use std::mem;

/// The initial capacity of caches.
const CAPACITY: usize = 32;

/// The holder of positions behind a sentence's past, and of padding.
const NONE: i64 = -1;

/// Maximum number of tokens of a prompt read in one pass; each reads the holders of all places
/// before it.
const TOGETHER: usize = 256;

/// The decoder of a folder in the shared-cache layout.
pub struct SharedCacheDecoder {
    before: Before,
    decoder: Box<dyn Session>,
    pad_token: i64,
    /// Maximum number of positions of a source.
    max_positions: usize,
    /// The input and the output of each cache.
    caches: Vec<(String, String)>,
    /// The inputs of the next step without tokens and holders.
    state: Values,
    /// `[batch, beams, capacity]`: the beam of the sentence that holds each position of its past,
    /// [`NONE`] behind it.
    holders: Array3<i64>,
    /// The number of positions in each sentence's past, and in its source.
    lengths: Vec<[usize; 2]>,
    /// The sentences of the batch, among those in a device's memory, where others that have left
    /// stay for a while; `None` on the host.
    slots: Option<Vec<usize>>,
    /// The logits of the last step.
    logits: LastLogits,
    attentions: Attentions,
}

/// The state before the first step.
enum Before {
    Encoder(Box<dyn Session>),
    /// Of a decoder-only model: prompts, until they are read.
    Prompts {
        stack: Stack,
        unread: Option<Vec<Vec<i64>>>,
    },
}

impl SharedCacheDecoder {
    /// Joins the two sessions.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the layout.
    pub fn new(
        encoder: Box<dyn Session>,
        decoder: Box<dyn Session>,
        pad_token: i64,
    ) -> Result<Self> {
        let caches = pasts(Some(encoder.as_ref()), decoder.as_ref(), &[CACHE_BEAMS])?;
        Ok(Self::with(Before::Encoder(encoder), decoder, caches, pad_token))
    }

    /// Takes the session of a decoder-only model of the given configuration.
    ///
    /// # Errors
    /// If its inputs and outputs are not those of the layout.
    pub fn alone(session: Box<dyn Session>, config: &Config, pad_token: i64) -> Result<Self> {
        let caches = pasts(None, session.as_ref(), &[CACHE_BEAMS])?;
        Ok(Self::with(
            Before::Prompts { stack: config.decoder, unread: None },
            session,
            caches,
            pad_token,
        ))
    }

    /// The same for a model whose sources have at most this number of tokens.
    #[must_use]
    pub fn with_max_positions(self, max_positions: Option<usize>) -> Self {
        Self { max_positions: max_positions.unwrap_or(usize::MAX), ..self }
    }

    fn with(
        before: Before,
        decoder: Box<dyn Session>,
        caches: Vec<(String, String)>,
        pad_token: i64,
    ) -> Self {
        let (holders, logits, attentions) =
            (Array3::default((0, 0, 0)), LastLogits::default(), Attentions::default());
        Self {
            before,
            decoder,
            pad_token,
            max_positions: usize::MAX,
            caches,
            state: Values::new(),
            holders,
            lengths: Vec::new(),
            slots: None,
            logits,
            attentions,
        }
    }

    /// Runs the decoder on tokens `[batch, rows]`, whose earlier positions these beams hold, and
    /// writes their keys and values.
    fn run(&mut self, tokens: Array2<i64>, holders: Array3<i64>) -> Result<Values> {
        self.state.insert(INPUT_IDS, tokens.into_dyn());
        self.state.insert(CACHE_BEAMS, holders.into_dyn());
        Ok(self.decoder.run_in_place(&mut self.state, &self.caches)?)
    }

    /// Runs the decoder on the first tokens `[batch, 1]` of all beams, in caches of one row per
    /// sentence, and writes their keys and values to the caches of each first beam.
    fn append_first(&mut self, tokens: &Array2<i64>) -> Result<Values> {
        let (batch, beams, _) = self.holders.dim();
        let mut caches = Vec::new();
        for (name, _) in &self.caches {
            let cache = floats(self.state.remove(name).ok_or_else(|| missing("decoder", name))?)?;
            let shape = [batch, cache.len_of(Axis(1)), 1, cache.len_of(Axis(3))];
            self.state.insert(name, ArrayD::<f32>::zeros(shape.as_slice()));
            caches.push(cache);
        }
        let outputs = self.run(tokens.clone(), Array3::from_elem((batch, 1, 0), NONE))?;
        for ((name, _), mut cache) in self.caches.iter().zip(caches) {
            let first = floats(self.state.remove(name).ok_or_else(|| missing("decoder", name))?)?;
            for (sentence, first) in first.outer_iter().enumerate() {
                cache.slice_mut(s![sentence * beams, .., ..1, ..]).assign(&first);
            }
            self.state.insert(name, cache);
        }
        self.holders.slice_mut(s![.., .., 0]).fill(0);
        self.lengths.iter_mut().for_each(|[past, _]| *past = 1);
        Ok(outputs)
    }

    /// Appends a token `[batch, beams]` to each hypothesis of the sentences for which `is_real` is
    /// true; tokens of others are padding.
    fn append(&mut self, tokens: &Array2<i64>, is_real: impl Fn(usize) -> bool) -> Result<Values> {
        let (past, capacity) = (self.longest(PAST), self.holders.len_of(Axis(2)));
        if past == capacity {
            // A device prefers shapes that repeat.
            let more = if self.slots.is_some() { capacity } else { capacity.div_ceil(2) };
            self.fit(capacity + more)?;
        }
        let outputs =
            self.run(tokens.clone(), self.holders.slice(s![.., .., ..past]).to_owned())?;
        let has_own_lengths = self.decoder.has_own_lengths();
        let (_, beams, capacity) = self.holders.dim();
        let holders = self.holders.as_slice_mut().expect("in row-major order");
        for (sentence, [past, _]) in self.lengths.iter_mut().enumerate() {
            if is_real(sentence) {
                for beam in 0..beams {
                    holders[(sentence * beams + beam) * capacity + *past] = beam as i64;
                }
            } else if has_own_lengths {
                // The next token is written over it.
                continue;
            }
            *past += 1;
        }
        Ok(outputs)
    }

    /// Gives each beam of all sentences the past of its parent.
    fn follow(&mut self, parents: &Array2<usize>) {
        let (_, beams, capacity) = self.holders.dim();
        let holders = self.holders.as_slice_mut().expect("in row-major order");
        let mut before = Vec::with_capacity(beams * capacity);
        for ((sentence, parents), [past, _]) in holders
            .chunks_exact_mut((beams * capacity).max(1))
            .zip(parents.outer_iter())
            .zip(&self.lengths)
        {
            if parents.iter().enumerate().all(|(beam, &parent)| beam == parent) {
                continue;
            }
            before.clear();
            before.extend_from_slice(sentence);
            for (beam, &parent) in parents.iter().enumerate() {
                sentence[beam * capacity..][..*past]
                    .copy_from_slice(&before[parent * capacity..][..*past]);
            }
        }
    }

    /// Reads tokens `[batch, n]`, `n > 1`, from the first position on, in the caches of each
    /// sentence's first beam.
    fn read_together(&mut self, tokens: &Array2<i64>) -> Result<()> {
        let (batch, n) = tokens.dim();
        if n >= self.holders.len_of(Axis(2)) {
            self.fit((n + 1).next_power_of_two())?;
        }
        let mut first = 0;
        while first < n {
            // A single token would be a step.
            let end = if n - first <= TOGETHER + 1 { n } else { first + TOGETHER };
            let holders = Array3::from_shape_fn((batch, end - first, end), |(_, row, place)| {
                if place < first + row { 0 } else { NONE }
            });
            self.run(tokens.slice(s![.., first..end]).to_owned(), holders)?;
            first = end;
        }
        Ok(())
    }

    /// Reads the tokens of prompts except the last of each.
    fn read_prompts(&mut self, prompts: &[Vec<i64>]) -> Result<()> {
        let (batch, beams, _) = self.holders.dim();
        let n_read = |sentence: usize| prompts[sentence].len() - 1;
        let n = (0..batch).map(n_read).max().unwrap_or(0);
        if n > 1 && self.decoder.supports_prefill() {
            // Tokens behind the end of a shorter prompt are never read.
            let token = |(sentence, place)| {
                if place < n_read(sentence) { prompts[sentence][place] } else { self.pad_token }
            };
            self.read_together(&Array2::from_shape_fn((batch, n), token))?;
            for (sentence, [past, _]) in self.lengths.iter_mut().enumerate() {
                *past = n_read(sentence);
                self.holders.slice_mut(s![sentence, .., ..*past]).fill(0);
            }
            return Ok(());
        }
        for step in 0..n {
            let place = |sentence: usize| step.checked_sub(n - n_read(sentence));
            let token = |(sentence, _)| {
                place(sentence).map_or(self.pad_token, |place| prompts[sentence][place])
            };
            self.append(&Array2::from_shape_fn((batch, beams), token), |sentence| {
                place(sentence).is_some()
            })?;
        }
        Ok(())
    }

    /// The longest past, or the longest source.
    fn longest(&self, what: usize) -> usize {
        self.lengths.iter().map(|lengths| lengths[what]).max().unwrap_or(0)
    }

    /// Resizes caches to this number of places.
    fn fit(&mut self, capacity: usize) -> Result<()> {
        let holders = resized(mem::take(&mut self.holders).into_dyn(), 2, capacity, NONE);
        self.holders = holders.into_dimensionality().expect("three axes");
        for (name, _) in &self.caches {
            let Some(cache) = self.state.remove(name) else { continue };
            let cache = match self.decoder.widened(&cache, capacity)? {
                Some(widened) => widened,
                None => resized(floats(cache)?, 2, capacity, 0.0).into(),
            };
            self.state.insert(name, cache);
        }
        Ok(())
    }

    /// Keeps the sentences of the slots in a device's memory, and removes others, if these are at
    /// least as many. The number halves, so that shapes repeat.
    fn retain_on_device(&mut self, slots: Vec<usize>) -> Result<()> {
        let (n_sentences, beams, _) = self.holders.dim();
        if slots.len() * 2 > n_sentences {
            self.slots = Some(slots);
            return Ok(());
        }
        let mut n_kept = n_sentences;
        while n_kept > 1 && n_kept.div_ceil(2) >= slots.len() {
            n_kept = n_kept.div_ceil(2);
        }
        let others = (0..n_sentences).filter(|slot| !slots.contains(slot));
        let kept: Vec<_> = slots.iter().copied().chain(others).take(n_kept).collect();
        let rows: Vec<_> = kept.iter().flat_map(|slot| slot * beams..(slot + 1) * beams).collect();
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names
            .into_iter()
            .filter(|name| is_past(name) || is_cross(name) || name == ATTENTION_MASK)
        {
            let Some(value) = self.state.remove(&name) else { continue };
            let rows = if is_past(&name) { &rows } else { &kept };
            let chosen = self.decoder.select(&value, &[rows.len()], rows)?;
            self.state.insert(name, chosen.map_or_else(|| select(value, &kept), Ok)?);
        }
        self.holders = self.holders.select(Axis(0), &kept);
        self.lengths = kept.iter().map(|&slot| self.lengths[slot]).collect();
        self.slots = Some((0..slots.len()).collect());
        Ok(())
    }

    /// Tokens or parents of all sentences in a device's memory, from those of the batch.
    fn in_slots<T: Copy>(
        &self,
        batch: &Array2<T>,
        other: impl Fn(usize) -> T,
    ) -> Option<Array2<T>> {
        let slots = self.slots.as_ref()?;
        let (n_sentences, _, _) = self.holders.dim();
        let mut all = Array2::from_shape_fn((n_sentences, batch.ncols()), |(_, beam)| other(beam));
        for (row, &slot) in batch.outer_iter().zip(slots) {
            all.row_mut(slot).assign(&row);
        }
        Some(all)
    }

    /// The rows of the batch, from those of all sentences in a device's memory.
    fn of_batch(&self, rows: Value, beams: usize) -> Result<Value> {
        let (n_sentences, _, _) = self.holders.dim();
        match &self.slots {
            Some(slots) if slots.len() < n_sentences => {
                let rows_of = |slot: &usize| slot * beams..(slot + 1) * beams;
                select(rows, &slots.iter().flat_map(rows_of).collect::<Vec<_>>())
            }
            _ => Ok(rows),
        }
    }
}

const PAST: usize = 0;
const SOURCE: usize = 1;

impl Decoder for SharedCacheDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn continues_sources(&self) -> bool {
        matches!(self.before, Before::Prompts { .. })
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        let mut last = mem::take(&mut self.state);
        // An encoder of frames uses more memory than it costs to allocate the caches again. A
        // device's are reserved again where they were.
        let is_kept = !matches!(sources, Sources::Features(_)) && !self.decoder.has_own_memory();
        let caches: Vec<_> = self
            .caches
            .iter()
            .map(|(name, _)| (name, last.remove(name).filter(|_| is_kept)))
            .collect();
        let on_device = self.decoder.has_own_memory().then_some(self.max_positions);
        match &mut self.before {
            Before::Encoder(encoder) => {
                self.state = encoded(
                    [encoder.as_mut(), self.decoder.as_mut()],
                    sources,
                    self.pad_token,
                    last,
                    on_device,
                )?
            }
            Before::Prompts { unread, .. } => *unread = Some(prompts_of(sources)?.to_vec()),
        }
        for (name, last) in caches {
            let [batch, heads, d_k] = match self.before {
                Before::Encoder(_) => cross_sizes(&self.state, name)?,
                Before::Prompts { stack, .. } => [sources.len(), stack.key_heads, stack.d_k],
            };
            let shape = vec![batch * beams, heads, CAPACITY, d_k];
            let cache = match self.decoder.reserve(name, &shape)? {
                Some(reserved) => reserved,
                None => empty(shape, last).into(),
            };
            self.state.insert(name, cache);
        }
        self.slots = self.decoder.has_own_memory().then(|| (0..sources.len()).collect());
        self.holders = Array3::from_elem((sources.len(), beams, CAPACITY), NONE);
        self.lengths = source_lengths(sources, &self.state);
        Ok(())
    }

    fn shares_first_step(&self) -> bool {
        // On a device the first step of all beams takes as long as that of one.
        matches!(self.before, Before::Encoder(_)) && !self.decoder.has_own_memory()
    }

    fn leaves_processor_free(&self) -> bool {
        self.decoder.has_own_memory()
    }

    fn source_multiple(&self) -> usize {
        if self.decoder.has_own_memory() { SOURCE_MULTIPLE } else { 1 }
    }

    fn joins(&self) -> bool {
        matches!(self.before, Before::Encoder(_)) && self.decoder.has_own_lengths()
    }

    fn join(&mut self, sources: Sources<'_>) -> Result<()> {
        let engine = self.engine().to_owned();
        let Before::Encoder(encoder) = &mut self.before else { return Err(no_join(&engine)) };
        if !self.decoder.has_own_lengths() {
            return Err(no_join(&engine));
        }
        let mut new = encoded(
            [encoder.as_mut(), self.decoder.as_mut()],
            sources,
            self.pad_token,
            Values::new(),
            None,
        )?;
        let beams = self.holders.len_of(Axis(1));
        self.lengths.extend(source_lengths(sources, &new));
        let (longest, width) = (
            self.longest(SOURCE),
            self.state
                .iter()
                .find(|(name, _)| is_cross(name))
                .map_or(0, |(_, value)| value.shape()[2]),
        );
        // The width follows the sources without copying all of them for each new one.
        let width = if (longest..=2 * longest).contains(&width) {
            width
        } else {
            longest.next_multiple_of(16)
        };
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.iter().filter(|name| *name == ATTENTION_MASK || is_cross(name)) {
            let (Some(old), Some(new)) = (self.state.remove(name), new.remove(name)) else {
                return Err(missing("encoder", name));
            };
            let value: Value = match (old.into_host()?, new.into_host()?) {
                (Value::F32(old), Value::F32(new)) => stacked(old, new, 2, width).into(),
                (Value::F16(old), Value::F16(new)) => stacked(old, new, 2, width).into(),
                (Value::I64(old), Value::I64(new)) => stacked(old, new, 1, width).into(),
                _ => return Err(missing("encoder", name)),
            };
            self.state.insert(name, value);
        }
        let capacity = self.holders.len_of(Axis(2));
        let needed = (self.longest(PAST) + 1).next_power_of_two().max(CAPACITY);
        if 4 * needed <= capacity {
            self.fit(needed)?;
        }
        let capacity = self.holders.len_of(Axis(2));
        let entered = Array3::from_elem((sources.len(), beams, capacity), NONE);
        self.holders.append(Axis(0), entered.view()).expect("rows of one size");
        for (name, _) in &self.caches {
            let Some(cache) = self.state.remove(name) else { continue };
            self.state.insert(name, with_rows(floats(cache)?, sources.len() * beams));
        }
        Ok(())
    }

    fn restrict(&mut self, tokens: &[i64]) -> bool {
        let restricts = self.decoder.takes_shortlist();
        if restricts {
            self.state.insert(SHORTLIST, Array1::from(tokens.to_vec()).into_dyn());
        }
        restricts
    }

    fn only_best(&mut self, best: &BestTokens) {
        if self.decoder.finds_best() {
            let count = i64::try_from(best.count).unwrap_or(i64::MAX);
            let wanted: Vec<i64> = [count, i64::from(best.softmax)]
                .into_iter()
                .chain(best.always.iter().copied())
                .collect();
            self.state.insert(BEST, Array1::from(wanted).into_dyn());
        }
    }

    // A decoder-only model reads its prompts itself.
    fn supports_prefill(&self) -> bool {
        matches!(self.before, Before::Encoder(_)) && self.decoder.supports_prefill()
    }

    fn prefill(&mut self, tokens: &Array2<i64>) -> Result<()> {
        let (batch, n) = tokens.dim();
        if !self.supports_prefill() || self.longest(PAST) > 0 || batch != self.lengths.len() {
            return Err(no_prefill(self.engine()));
        }
        self.read_together(tokens)?;
        self.holders.slice_mut(s![.., .., ..n]).fill(0);
        self.lengths.iter_mut().for_each(|[past, _]| *past = n);
        Ok(())
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        if let Before::Prompts { unread, .. } = &mut self.before
            && let Some(prompts) = unread.take()
        {
            self.read_prompts(&prompts)?;
        }
        let parents_in_slots = parents.and_then(|parents| self.in_slots(parents, |beam| beam));
        let tokens_in_slots = self.in_slots(tokens, |_| self.pad_token);
        let (batch, beams) = tokens.dim();
        let (parents, tokens) =
            (parents_in_slots.as_ref().or(parents), tokens_in_slots.as_ref().unwrap_or(tokens));
        if let Some(parents) = parents {
            self.follow(parents);
        }
        let is_shared = tokens.ncols() < self.holders.len_of(Axis(1)) && self.longest(PAST) == 0;
        let mut outputs =
            if is_shared { self.append_first(tokens)? } else { self.append(tokens, |_| true)? };
        let logits = outputs.remove(LOGITS).ok_or_else(|| missing("decoder", LOGITS))?;
        let logits = self.of_batch(logits, beams)?;
        let scales = outputs.remove(LOGITS_SCALE);
        let scales = scales.map(|scales| self.of_batch(scales, beams)).transpose()?;
        self.attentions = Attentions { outputs, rows: tokens.dim() };
        match self.state.get(BEST) {
            Some(Value::I64(wanted)) => self.logits.put_best(
                &logits,
                scales,
                wanted.iter().nth(1) == Some(&1),
                (batch, beams),
            ),
            _ => self.logits.put(logits, scales, (batch, beams)),
        }
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        match self.before {
            Before::Encoder(_) => {
                let all = self.attentions.layer(layer_index, self.decoder.outputs())?;
                Ok(match &self.slots {
                    Some(slots) => all.select(Axis(0), slots),
                    None => all,
                })
            }
            Before::Prompts { .. } => Err(no_cross_attention()),
        }
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        if let Before::Prompts { unread: Some(prompts), .. } = &mut self.before {
            *prompts = sentences.iter().map(|&sentence| prompts[sentence].clone()).collect();
        }
        if let Some(slots) = &self.slots {
            let slots = sentences.iter().map(|&sentence| slots[sentence]).collect();
            return self.retain_on_device(slots);
        }
        let (beams, past) = (self.holders.len_of(Axis(1)), self.longest(PAST));
        self.holders = self.holders.select(Axis(0), sentences);
        self.lengths = sentences.iter().map(|&sentence| self.lengths[sentence]).collect();
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names
            .into_iter()
            .filter(|name| ![INPUT_IDS, CACHE_BEAMS, SHORTLIST, BEST].contains(&name.as_str()))
        {
            let Some(mut value) = self.state.remove(&name) else { continue };
            let (rows, used) = if is_past(&name) { (beams, past) } else { (1, usize::MAX) };
            let of_sentence = |sentence: &usize| sentence * rows..(sentence + 1) * rows;
            if value.keep_rows(&sentences.iter().flat_map(of_sentence).collect::<Vec<_>>()) {
                self.state.insert(name, value);
                continue;
            }
            let value = match value.into_host()? {
                Value::F32(array) => Value::F32(kept(array, sentences, rows, used)),
                Value::F16(array) => Value::F16(kept(array, sentences, rows, used)),
                Value::F64(array) => Value::F64(kept(array, sentences, rows, used)),
                other => select(other, sentences)?,
            };
            self.state.insert(name, value);
        }
        Ok(())
    }
}

fn floats(value: Value) -> Result<ArrayD<f32>> {
    Ok(match value {
        Value::F32(array) => array,
        other => other.to_f32()?,
    })
}

/// For each source a past of length 0, and the number of its positions in `encoded`.
fn source_lengths(sources: Sources<'_>, encoded: &Values) -> Vec<[usize; 2]> {
    let width =
        encoded.iter().find(|(name, _)| is_cross(name)).map_or(0, |(_, value)| value.shape()[2]);
    match sources {
        Sources::Tokens(tokens) => tokens.iter().map(|source| [0, source.len()]).collect(),
        Sources::Features(_) | Sources::Again(_) => vec![[0, width]; sources.len()],
    }
}

/// The array with `size` places along an axis, new ones filled with `fill`; in the same memory if
/// it is large enough.
fn resized<T: Copy>(array: ArrayD<T>, axis: usize, size: usize, fill: T) -> ArrayD<T> {
    let mut shape = array.shape().to_vec();
    let place = shape[axis + 1..].iter().product::<usize>();
    let [old, new] = [shape[axis], size].map(|places| places * place);
    shape[axis] = size;
    let (blocks, n) = (shape[..axis].iter().product::<usize>(), shape.iter().product::<usize>());
    let mut memory = memory(array);
    if old < new {
        memory.reserve_exact(n - memory.len());
        memory.resize(n, fill);
        // From the last block on: no block is overwritten before it has moved.
        for block in (0..blocks).rev() {
            memory.copy_within(block * old..(block + 1) * old, block * new);
            memory[block * new + old..(block + 1) * new].fill(fill);
        }
    } else {
        (0..blocks)
            .for_each(|block| memory.copy_within(block * old..block * old + new, block * new));
        memory.truncate(n);
    }
    ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds")
}

/// Both arrays along the first axis, with `size` places along another; zero is padding.
fn stacked<T: Copy + Default>(
    old: ArrayD<T>,
    new: ArrayD<T>,
    axis: usize,
    size: usize,
) -> ArrayD<T> {
    let fit = |array: ArrayD<T>| {
        if array.len_of(Axis(axis)) == size {
            array
        } else {
            resized(array, axis, size, T::default())
        }
    };
    let (old, new) = (fit(old), fit(new));
    let mut shape = old.shape().to_vec();
    shape[0] += new.len_of(Axis(0));
    let mut rows = memory(old);
    rows.extend(memory(new));
    ArrayD::from_shape_vec(shape, rows).expect("rows of one size")
}

/// A cache with more rows, if possible in the memory of those that left: positions are written
/// before they are read.
fn with_rows(cache: ArrayD<f32>, count: usize) -> ArrayD<f32> {
    let mut shape = cache.shape().to_vec();
    shape[0] += count;
    let mut memory = all_memory(cache);
    memory.resize(shape.iter().product(), 0.0);
    ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds")
}

/// The elements in row-major order, usually in the memory where they are.
fn memory<T: Copy>(array: ArrayD<T>) -> Vec<T> {
    let n = array.len();
    let mut memory = all_memory(array);
    memory.truncate(n);
    memory
}

/// The elements in row-major order, and those of rows that left behind them.
fn all_memory<T: Copy>(array: ArrayD<T>) -> Vec<T> {
    let array =
        if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() };
    let (mut memory, first) = array.into_raw_vec_and_offset();
    memory.drain(..first.unwrap_or(0));
    memory
}

/// A cache, in the memory of an earlier one if it is large enough: positions are written before
/// they are read. Otherwise it has twice the memory, of which the system provides the written part:
/// later batches of shorter sentences have more rows.
fn empty(shape: Vec<usize>, before: Option<Value>) -> ArrayD<f32> {
    let size = shape.iter().product::<usize>();
    let mut memory = match before {
        Some(Value::F32(before)) => before.into_raw_vec_and_offset().0,
        _ => Vec::new(),
    };
    if memory.capacity() < size {
        drop(memory);
        memory = vec![0.0; 2 * size];
    }
    memory.resize(size, 0.0);
    ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds")
}

/// The given sentences of `[sentences · beams, heads, positions, d_k]` with their first `used`
/// positions, in the same memory.
fn kept<T: Copy>(array: ArrayD<T>, sentences: &[usize], beams: usize, used: usize) -> ArrayD<T> {
    let mut shape = array.shape().to_vec();
    // No row is overwritten before it has moved.
    let is_plain =
        array.is_standard_layout() && sentences.iter().enumerate().all(|(to, &from)| from >= to);
    let (&[_, heads, places, d_k], true) = (shape.as_slice(), is_plain) else {
        let rows: Vec<_> = sentences
            .iter()
            .flat_map(|sentence| sentence * beams..(sentence + 1) * beams)
            .collect();
        return array.select(Axis(0), &rows);
    };
    let mut memory = all_memory(array);
    let (blocks, block, moved) = (beams * heads, places * d_k, used.min(places) * d_k);
    for (to, &from) in sentences.iter().enumerate().filter(|(to, from)| to != *from) {
        for index in 0..blocks {
            let start = (from * blocks + index) * block;
            memory.copy_within(start..start + moved, (to * blocks + index) * block);
        }
    }
    // The others stay in memory, for sentences that join.
    shape[0] = memory.len() / (heads * block).max(1);
    memory.truncate(shape[0] * heads * block);
    let mut array =
        ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds");
    array.slice_axis_inplace(Axis(0), (..sentences.len() * beams).into());
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_grow_shrink_and_join() {
        let array = ArrayD::from_shape_fn(vec![2, 3, 2], |index| {
            (index[0] * 100 + index[1] * 10 + index[2]) as i64
        });
        assert_eq!(resized(array.clone(), 1, 2, -1), array.slice(s![.., ..2, ..]).into_dyn());
        for (axis, size) in [(1, 5), (2, 4)] {
            let expected = |index: ndarray::IxDyn| array.get(index).copied().unwrap_or(-1);
            let mut shape = array.shape().to_vec();
            shape[axis] = size;
            assert_eq!(
                resized(array.clone(), axis, size, -1),
                ArrayD::from_shape_fn(shape, expected)
            );
        }
        let other = resized(array.clone(), 1, 1, 0);
        let both = stacked(array.clone(), other.clone(), 1, 4);
        assert_eq!(both.shape(), [4, 4, 2]);
        assert_eq!(both.slice(s![..2, ..3, ..]).into_dyn(), array);
        assert_eq!(both.slice(s![2.., ..1, ..]).into_dyn(), other);
        assert!(
            both.slice(s![2.., 1.., ..])
                .iter()
                .chain(both.slice(s![.., 3.., ..]))
                .all(|&padding| padding == 0)
        );
    }

    #[test]
    fn sentences_leave_as_by_a_copy() {
        let array = ArrayD::from_shape_fn(vec![6, 2, 4, 3], |index| {
            (index[0] * 1000 + index[1] * 100 + index[2] * 10 + index[3]) as f32
        });
        for sentences in [vec![0, 2], vec![1], vec![1, 2], vec![], vec![2, 1], vec![2, 0]] {
            let rows: Vec<_> =
                sentences.iter().flat_map(|sentence| [2 * sentence, 2 * sentence + 1]).collect();
            let expected = array.select(Axis(0), &rows);
            let found = kept(array.clone(), &sentences, 2, 3);
            assert_eq!(found.shape(), expected.shape());
            let written = s![.., .., ..3, ..];
            assert_eq!(found.slice(written), expected.slice(written), "{sentences:?}");
            let joined = with_rows(found, 2);
            assert_eq!(joined.shape()[0], expected.shape()[0] + 2);
            let others = joined.slice_axis(Axis(0), (..rows.len()).into());
            assert_eq!(others.slice(written), expected.slice(written), "{sentences:?}");
            let again = kept(joined, &(0..sentences.len()).collect::<Vec<_>>(), 2, 3);
            assert_eq!(again.slice(written), expected.slice(written), "{sentences:?}");
        }
    }
}
