//! Attention: to caches that beams share, which it also writes; and to the keys and values of whole
//! sentences.

use super::operation::{Among, Scores};
use super::sizes::{Size, values as values_of};
use super::{Call, Columns, FloatsOrHalves, Result, Tensors, View, by_parts, expected};
use cognate_kernels::{
    Attended, Attention, Caches, MANY, Mask, Memory, Parallel, Results, Serial, Step, Strides,
};
use std::borrow::Cow;
use std::ops::Range;

/// Attention of one new position to caches `[rows, key_heads, capacity, d_k]`, or of several in a
/// prefill: see [`Session::supports_prefill`](crate::Session::supports_prefill). `news` and `out`
/// refer to buffers, other numbers to inputs and outputs.
pub(super) struct CachedAttention {
    /// Query, key and value.
    pub(super) news: [View; 3],
    /// Keys and values: input and output.
    pub(super) caches: [[usize; 2]; 2],
    /// The beam of each position, `i64 [batch, beams, past]`; negative at padding and behind the
    /// past of a shorter sentence.
    pub(super) beams: usize,
    /// `[1, heads, 1, past + 1]`; a shorter sentence uses the end, because the bias depends on
    /// distances.
    pub(super) bias: Option<usize>,
    pub(super) scores: Scores,
    pub(super) out: usize,
}

/// Attention from queries `[batch · n, heads · d_k]` to keys and values `[batch, heads, src, d_k]`,
/// optionally with a mask added to the scores that is broadcast to `[batch, heads, n, src]`. Keys,
/// values and mask are inputs.
pub(super) struct MemoryAttention {
    pub(super) query: View,
    pub(super) keys: usize,
    pub(super) values: usize,
    pub(super) mask: Option<MaskSource>,
    pub(super) scale: f32,
    pub(super) out: usize,
    /// The output `[batch, n, heads, 1, src]` of weights, if requested; a prefill has none.
    pub(super) weights: Option<usize>,
}

/// Attention among rows `[batch · n, heads · d_k]`, optionally with a mask as above.
pub(super) struct SelfAttention {
    /// Queries, keys and values.
    pub(super) views: [View; 3],
    pub(super) among: Among<MaskSource, Size>,
    pub(super) heads: usize,
    pub(super) scale: f32,
    pub(super) out: usize,
}

/// An additive mask of scores.
#[derive(Clone, Copy)]
pub(super) enum MaskSource {
    /// The input of this number.
    Given(usize),
    /// For an input `i64 [batch, src]` of ones and zeros: the number that is added where it is
    /// zero.
    Padding(usize, f32),
}

impl MaskSource {
    pub(super) fn read<'c>(
        self,
        tensors: &dyn Tensors<'c>,
    ) -> Result<(Vec<usize>, Cow<'c, [f32]>)> {
        match self {
            MaskSource::Given(input) => {
                tensors.floats(input).map(|(shape, numbers)| (shape, Cow::Borrowed(numbers)))
            }
            MaskSource::Padding(input, hidden) => {
                let (shape, ones) = tensors.integers(input)?;
                let &[batch, src] = shape.as_slice() else {
                    return Err(expected("mask", "2 axes", format!("{shape:?}")));
                };
                Ok((
                    vec![batch, 1, 1, src],
                    ones.iter().map(|&one| (1.0 - one as f32) * hidden).collect(),
                ))
            }
        }
    }
}

impl CachedAttention {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let tensors = call.tensors;
        let rows = call.rows(self.news[0].buffer)?;
        for view in &self.news[1..] {
            if call.rows(view.buffer)? != rows {
                return Err(expected("query, key and value", format!("{rows} rows"), "others"));
            }
        }
        let (shape, holders) = tensors.integers(self.beams)?;
        let &[_, beams, longest] = shape.as_slice() else {
            return Err(expected("beams of positions", "3 axes", format!("{shape:?}")));
        };
        let bias = self.bias.map(|bias| tensors.floats(bias)).transpose()?.map(|(_, bias)| bias);
        let [keys, values] = self.caches.map(|[input, output]| tensors.written(input, output));
        let ((shape, keys), (_, values)) = (keys?, values?);
        let &[n_caches, key_heads, capacity, d_k] = shape.as_slice() else {
            return Err(expected("cache", "4 axes", format!("{shape:?}")));
        };
        let (heads, Scores { scale, cap, .. }) = (self.news[0].width / d_k.max(1), self.scores);
        let attention = Attention { heads, key_heads, d_k, scale, cap };
        let widths = [attention.width(), attention.key_width(), attention.key_width()];
        if self.news.map(|view| view.width) != widths || key_heads == 0 || heads % key_heads != 0 {
            let found = format!("{:?}", self.news.map(|view| view.width));
            return Err(expected(
                "query, key and value",
                format!("widths that match caches {shape:?}"),
                found,
            ));
        }
        let past = |row: usize| past_of(&holders[row * longest..][..longest]);
        if call.own_lengths && beams > 1 && holders.len() == rows * longest && past(0) != past(1) {
            let prefill =
                Prefill { attention, n: beams, past: past(0), shape: [n_caches, capacity] };
            return self.prefill(call, &prefill, holders, [keys, values]);
        }
        if n_caches != rows || keys.len() != values.len() {
            return Err(expected(
                "caches",
                format!("[{rows}, key_heads, capacity, d_k]"),
                format!("{shape:?}"),
            ));
        }
        if longest >= capacity || holders.len() != rows * longest || beams == 0 || rows % beams != 0
        {
            let found = format!(
                "position {longest} of {capacity}, beams of {} positions, {beams} beams",
                holders.len()
            );
            return Err(expected(
                "positions",
                format!("less than {capacity}, with a beam for each position of {rows} rows"),
                found,
            ));
        }
        if bias.is_some_and(|bias| bias.len() != heads * (longest + 1)) {
            return Err(expected("bias", format!("[1, {heads}, 1, {}]", longest + 1), "another"));
        }
        if let Some(beam) = holders
            .iter()
            .max()
            .filter(|&&beam| usize::try_from(beam).is_ok_and(|beam| beam >= beams))
        {
            return Err(expected("beams of positions", format!("less than {beams}"), beam));
        }
        let of_sentence =
            |sentence: usize| &holders[sentence * beams * longest..][..beams * longest];
        let own_lengths = call.own_lengths;
        let held = |holders: &[i64]| held(holders, own_lengths);
        let has_gap = |holders: &[i64]| holders[held(holders)].iter().any(|&beam| beam < 0);
        let differ = |holders: &[i64]| {
            holders
                .chunks(longest.max(1))
                .any(|row| held(row) != held(&holders[..longest]) || has_gap(row))
        };
        if let Some(sentence) = (0..rows / beams).find(|&sentence| differ(of_sentence(sentence))) {
            return Err(expected(
                "beams of positions",
                "the same positions in all beams of a sentence",
                format!("others in {sentence}"),
            ));
        }
        let mut out = call.take_floats(self.out, rows)?;
        let strides = self.news.map(|view| call.program.buffers[view.buffer].width);
        let news = self.news.map(|view| &call.floats(view.buffer)[view.offset..]);
        let (width, block) = (beams * attention.width(), beams * attention.key_width() * capacity);
        let sentences = out
            .floats_mut()
            .chunks_mut(width.max(1))
            .zip(keys.chunks_mut(block.max(1)).zip(values.chunks_mut(block.max(1))));
        by_parts(tensors, sentences, |sentence, (out, (keys, values))| {
            let holders = of_sentence(sentence);
            let Range { start: padding, end: past } = held(&holders[..longest]);
            let first = self.first_within(past).max(padding);
            let [query, key, value] =
                [0, 1, 2].map(|new| &news[new][sentence * beams * strides[new]..]);
            attention.step(
                &Step { query, key, value, strides, past, first, longest, holders, bias },
                Caches { keys, values, capacity },
                out,
            );
        });
        call.put(self.out, out);
        Ok(())
    }
}

/// A prefill: each sentence has `n` rows, the positions from `past` on; `shape` is the number of
/// rows and of positions of the caches.
struct Prefill {
    attention: Attention,
    n: usize,
    past: usize,
    shape: [usize; 2],
}

impl CachedAttention {
    /// The first position in the window of a query after `past` positions.
    fn first_within(&self, past: usize) -> usize {
        self.scores.window.map_or(0, |window| (past + 1).saturating_sub(window))
    }

    /// Attention of each row of a prompt to the rows before it and to itself, in the first row of
    /// the sentence's caches.
    fn prefill<'c>(
        &self,
        call: &mut Call<'_, 'c>,
        prefill: &Prefill,
        holders: &[i64],
        [keys, values]: [&mut [f32]; 2],
    ) -> Result<()> {
        let (tensors, rows) = (call.tensors, call.rows(self.news[0].buffer)?);
        let &Prefill { attention, n, past, shape: [n_caches, capacity] } = prefill;
        let (longest, width, key_width, batch) =
            (holders.len() / rows, attention.width(), attention.key_width(), rows / n);
        let is_right = |(row, holders): (usize, &[i64])| {
            let before = past + row % n;
            past_of(holders) == before && holders[..before].iter().all(|&beam| beam == 0)
        };
        if past + n > capacity
            || self.bias.is_some()
            || !holders.chunks(longest).enumerate().all(is_right)
        {
            let wanted = format!(
                "at most {capacity}, each row of a sentence with one more than the row before it, in beam 0"
            );
            return Err(expected(
                "beams of positions",
                wanted,
                format!("{past} to {} or other pasts", past + n),
            ));
        }
        if batch == 0 || n_caches % batch != 0 || keys.len() != values.len() {
            return Err(expected("caches", format!("rows for {batch} sentences"), n_caches));
        }
        call.is_prefill = true;
        let mut out = call.take_floats(self.out, rows)?;
        let [stride, key_stride, value_stride] =
            self.news.map(|view| call.program.buffers[view.buffer].width);
        let [query, key, value] = self.news.map(|view| &call.floats(view.buffer)[view.offset..]);
        let (place, size) = (attention.d_k, n_caches / batch * key_width * capacity);
        for (cache, new, stride) in
            [(&mut *keys, key, key_stride), (&mut *values, value, value_stride)]
        {
            for row in 0..rows {
                let start = row / n * size + (past + row % n) * place;
                for (head, new) in new[row * stride..][..key_width].chunks_exact(place).enumerate()
                {
                    cache[start + head * capacity * place..][..place].copy_from_slice(new);
                }
            }
        }
        let strides = Strides { head: capacity * place, place };
        by_parts(tensors, out.floats_mut().chunks_mut(width.max(1)), |row, context| {
            let (end, first) = (past + row % n + 1, self.first_within(past + row % n));
            let [keys, values] = [&*keys, &*values]
                .map(|cache| &cache[row / n * size..][first * place..key_width * capacity]);
            let memory =
                Memory { keys, values, strides, places: end - first, mask: None, packed: false };
            attention.read(
                (&query[row * stride..], stride),
                &memory,
                Results { context, weights: None },
                &Serial,
            );
        });
        call.put(self.out, out);
        Ok(())
    }
}

/// The number of positions up to the last that a beam holds.
pub(super) fn past_of(holders: &[i64]) -> usize {
    holders.iter().rposition(|&beam| beam >= 0).map_or(0, |last| last + 1)
}

/// The positions of the past without the padding before them.
fn held(holders: &[i64], own_lengths: bool) -> Range<usize> {
    let past = if own_lengths { past_of(holders) } else { holders.len() };
    holders[..past].iter().position(|&beam| beam >= 0).unwrap_or(past)..past
}

impl MemoryAttention {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let [keys, values] =
            [self.keys, self.values].map(|input| call.tensors.floats_or_halves(input));
        let ((shape, keys), (same, values)) = (keys?, values?);
        match (keys, values) {
            _ if shape != same => {
                Err(expected("values", format!("{shape:?}"), format!("{same:?}")))
            }
            (FloatsOrHalves::Floats(keys), FloatsOrHalves::Floats(values)) => {
                self.read(call, &shape, [keys, values])
            }
            (FloatsOrHalves::Halves(keys), FloatsOrHalves::Halves(values)) => {
                self.read(call, &shape, [keys, values])
            }
            _ => Err(expected("values", "the type of the keys", "another")),
        }
    }

    fn read<'c, N: Attended>(
        &self,
        call: &mut Call<'_, 'c>,
        shape: &[usize],
        [keys, values]: [&[N]; 2],
    ) -> Result<()> {
        let (tensors, n_rows) = (call.tensors, call.rows(self.query.buffer)?);
        let mask = self.mask.map(|mask| mask.read(tensors)).transpose()?;
        let &[batch, heads, places, d_k] = shape else {
            return Err(expected("keys", "4 axes", format!("{shape:?}")));
        };
        if self.query.width != heads * d_k || batch == 0 || n_rows % batch != 0 {
            let found = format!("{n_rows} queries of {} numbers", self.query.width);
            return Err(expected("queries", format!("those of keys {shape:?}"), found));
        }
        let (attention, n) = (Attention::new(heads, d_k, self.scale), n_rows / batch);
        let masks =
            mask.as_ref().map(|mask| Masks::new(mask, [batch, heads, n, places])).transpose()?;
        let (strides, size) = (Strides { head: places * d_k, place: d_k }, heads * d_k * places);
        let mut out = call.take_floats(self.out, n_rows)?;
        let stride = call.program.buffers[self.query.buffer].width;
        let queries = &call.floats(self.query.buffer)[self.query.offset..];
        let memory_of = |sentence: usize| {
            let (keys, values) =
                (&keys[sentence * size..][..size], &values[sentence * size..][..size]);
            let mask = masks.as_ref().map(|masks| masks.of(sentence));
            (
                (&queries[sentence * n * stride..], stride),
                Memory { keys, values, strides, places, mask, packed: n >= MANY },
            )
        };
        let n_wanted = if call.is_prefill { 0 } else { n };
        let weights = self
            .weights
            .map(|output| tensors.new_floats(output, &[batch, n_wanted, heads, 1, places]))
            .transpose()?;
        let mut weights = weights.map(|weights| weights.chunks_mut((n * heads * places).max(1)));
        let contexts = out.floats_mut().chunks_mut((n * attention.width()).max(1));
        let results = contexts
            .map(|context| Results { context, weights: weights.as_mut().and_then(Iterator::next) });
        of_sentences(tensors, results.collect(), attention, memory_of);
        call.put(self.out, out);
        Ok(())
    }
}

impl SelfAttention {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let tensors = call.tensors;
        let [queries, keys, values] = self.views;
        let n_rows = call.rows(queries.buffer)?;
        let (n, mask) = match &self.among {
            Among::Masked(mask) => {
                mask.read(tensors).map(|mask| (mask.0.last().copied().unwrap_or(0), Some(mask)))?
            }
            Among::All(n) => (values_of(std::slice::from_ref(n), tensors)?[0], None),
        };
        let has_rows = call.rows(keys.buffer)? == n_rows && call.rows(values.buffer)? == n_rows;
        if !has_rows
            || !queries.width.is_multiple_of(self.heads)
            || (n == 0) != (n_rows == 0)
            || n_rows % n.max(1) != 0
        {
            let wanted =
                format!("queries, keys and values of {} heads in sentences of {n}", self.heads);
            return Err(expected("rows", wanted, format!("[{n_rows}, {}]", queries.width)));
        }
        let (width, batch) = (queries.width, n_rows / n.max(1));
        let attention = Attention::new(self.heads, width / self.heads, self.scale);
        let masks =
            mask.as_ref().map(|mask| Masks::new(mask, [batch, self.heads, n, n])).transpose()?;
        let mut out = call.take_floats(self.out, n_rows)?;
        let [queries, keys, values] = self.views.map(|view| call.columns(view));
        // Rotated keys are rows of their own; values may be columns of wider ones.
        let mut apart = Vec::new();
        if keys.stride != values.stride {
            apart.resize(n_rows * keys.stride, 0.0);
            for (row, to) in apart.chunks_exact_mut(keys.stride).enumerate() {
                to[..width].copy_from_slice(&values.starting_at(row)[..width]);
            }
        }
        let values = match apart.as_slice() {
            [] => values,
            floats => Columns { floats, offset: 0, stride: keys.stride },
        };
        let strides = Strides { head: attention.d_k, place: keys.stride };
        let memory_of = |sentence: usize| {
            let mask = masks.as_ref().map(|masks| masks.of(sentence));
            let [keys, values] = [keys, values].map(|columns| columns.starting_at(sentence * n));
            (
                (queries.starting_at(sentence * n), queries.stride),
                Memory { keys, values, strides, places: n, mask, packed: true },
            )
        };
        let contexts = out.floats_mut().chunks_mut((n * width).max(1));
        of_sentences(
            tensors,
            contexts.map(|context| Results { context, weights: None }).collect(),
            attention,
            memory_of,
        );
        call.put(self.out, out);
        Ok(())
    }
}

/// Attention of each sentence: its queries, whose rows are a stride apart, and its memory. Threads
/// divide the sentences, or the heads if there are fewer sentences than threads.
pub(super) fn of_sentences<'m, N: Attended + 'm>(
    threads: &dyn Parallel,
    results: Vec<Results<'_>>,
    attention: Attention,
    memory_of: impl Fn(usize) -> ((&'m [f32], usize), Memory<'m, N>) + Sync,
) {
    if results.len() < threads.threads() {
        for (sentence, into) in results.into_iter().enumerate() {
            let (queries, memory) = memory_of(sentence);
            attention.read(queries, &memory, into, threads);
        }
        return;
    }
    by_parts(threads, results.into_iter(), |sentence, into| {
        let (queries, memory) = memory_of(sentence);
        attention.read(queries, &memory, into, &Serial);
    });
}

/// The masks of a batch.
pub(super) struct Masks<'m> {
    numbers: &'m [f32],
    /// The strides of sentences, heads and queries.
    strides: [usize; 3],
}

impl<'m> Masks<'m> {
    /// Masks that are broadcast to `full`: batch, heads, queries and places.
    pub(super) fn new(
        (found, numbers): &'m (Vec<usize>, Cow<'_, [f32]>),
        full: [usize; 4],
    ) -> Result<Self> {
        let n_more = found.len().saturating_sub(full.len());
        let missing = full.len().saturating_sub(found.len());
        let is_shared = found[..n_more].iter().all(|&size| size == 1);
        let found = [&vec![1; missing], &found[n_more..]].concat();
        let fits = |(&found, full): (&usize, usize)| found == full || found == 1;
        if !is_shared || found[3] != full[3] || !found.iter().zip(full).all(fits) {
            return Err(expected(
                "mask",
                format!("{full:?}, or 1 for the same"),
                format!("{found:?}"),
            ));
        }
        let stride =
            |axis: usize| if found[axis] == 1 { 0 } else { found[axis + 1..].iter().product() };
        Ok(Self { numbers, strides: [stride(0), stride(1), stride(2)] })
    }

    pub(super) fn of(&self, sentence: usize) -> Mask<'m> {
        let [start, head, query] = self.strides;
        Mask { numbers: &self.numbers[sentence * start..], head, query }
    }
}
