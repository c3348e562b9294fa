//! The decoder of the shared-cache layout: sessions and the state of a batch.
//!
//! A step writes into the caches in place. A beam that continues another gets its history as a list of positions, and nothing is
//! copied. When a sentence is finished, later ones move to its place.

use crate::decoder::{Attentions, Decoder, cross_sizes, encoded, missing, pasts, select};
use crate::logits::{LastLogits, Logits};
use crate::{Result, Sources};
use cognate_model::interface::{CACHE_BEAMS, INPUT_IDS, LOGITS, LOGITS_SCALE, is_past};
use cognate_runtime::{Session, Value, Values};
use ndarray::{Array2, Array3, Array4, ArrayD, Axis, s};
use std::mem;

/// The initial capacity of caches, which doubles when needed.
const CAPACITY: usize = 32;

/// The decoder of a folder in the shared-cache layout.
pub struct SharedCacheDecoder {
    encoder: Box<dyn Session>,
    decoder: Box<dyn Session>,
    pad_token: i64,
    /// The input and the output of each cache.
    caches: Vec<(String, String)>,
    /// The inputs of the next step without tokens and holders.
    state: Values,
    /// `[batch, beams, capacity]`: the beam of the sentence that holds each position up to `past`.
    holders: Array3<i64>,
    past: usize,
    /// The logits of the last step.
    logits: LastLogits,
    attentions: Attentions,
}

impl SharedCacheDecoder {
    /// Joins the two sessions.
    ///
    /// # Errors
    /// If their inputs and outputs are not those of the layout.
    pub fn new(encoder: Box<dyn Session>, decoder: Box<dyn Session>, pad_token: i64) -> Result<Self> {
        let caches = pasts(encoder.as_ref(), decoder.as_ref(), &[CACHE_BEAMS])?;
        let (holders, logits, attentions) = (Array3::default((0, 0, 0)), LastLogits::default(), Attentions::default());
        Ok(Self { encoder, decoder, pad_token, caches, state: Values::new(), holders, past: 0, logits, attentions })
    }

    /// Makes room for one more position.
    fn reserve(&mut self) -> Result<()> {
        let (batch, beams, capacity) = self.holders.dim();
        if self.past < capacity {
            return Ok(());
        }
        let mut holders = Array3::zeros((batch, beams, 2 * capacity));
        holders.slice_mut(s![.., .., ..capacity]).assign(&self.holders);
        self.holders = holders;
        for (name, _) in &self.caches {
            let Some(cache) = self.state.remove(name) else { continue };
            let cache = cache.to_f32()?;
            let mut shape = cache.shape().to_vec();
            shape[2] = 2 * capacity;
            let mut larger = ArrayD::zeros(shape);
            larger.slice_axis_mut(Axis(2), (..capacity).into()).assign(&cache);
            self.state.insert(name, larger);
        }
        Ok(())
    }
}

impl Decoder for SharedCacheDecoder {
    fn engine(&self) -> &str {
        self.decoder.engine()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        let mut before = mem::take(&mut self.state);
        let caches: Vec<_> = self.caches.iter().map(|(name, _)| (name, before.remove(name))).collect();
        self.state = encoded([self.encoder.as_mut(), self.decoder.as_mut()], sources, self.pad_token, before)?;
        for (name, before) in caches {
            let [batch, heads, d_k] = cross_sizes(&self.state, name)?;
            self.state.insert(name, empty(vec![batch * beams, heads, CAPACITY, d_k], before));
        }
        self.holders = Array3::zeros((sources.len(), beams, CAPACITY));
        self.past = 0;
        Ok(())
    }

    fn advance(&mut self, parents: Option<&Array2<usize>>, tokens: &Array2<i64>) -> Result<Logits<'_>> {
        self.reserve()?;
        if let Some(parents) = parents {
            for (mut sentence, parents) in self.holders.outer_iter_mut().zip(parents.outer_iter()) {
                if parents.iter().enumerate().any(|(beam, &parent)| beam != parent) {
                    let chosen: Vec<usize> = parents.to_vec();
                    let chosen = sentence.select(Axis(0), &chosen);
                    sentence.assign(&chosen);
                }
            }
        }
        self.state.insert(INPUT_IDS, tokens.clone().into_dyn());
        self.state.insert(CACHE_BEAMS, self.holders.slice(s![.., .., ..self.past]).to_owned().into_dyn());
        let mut outputs = self.decoder.run_in_place(&mut self.state, &self.caches)?;
        for ((_, beam, _), holder) in self.holders.slice_mut(s![.., .., self.past..=self.past]).indexed_iter_mut() {
            *holder = beam as i64;
        }
        self.past += 1;
        let logits = outputs.remove(LOGITS).ok_or_else(|| missing("decoder", LOGITS))?;
        let scales = outputs.remove(LOGITS_SCALE);
        self.attentions = Attentions { outputs, rows: tokens.dim() };
        self.logits.put(logits, scales, tokens.dim())
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        self.attentions.layer(layer_index, self.decoder.outputs())
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        let beams = self.holders.len_of(Axis(1));
        self.holders = self.holders.select(Axis(0), sentences);
        let names: Vec<_> = self.state.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.into_iter().filter(|name| name != INPUT_IDS && name != CACHE_BEAMS) {
            let Some(value) = self.state.remove(&name) else { continue };
            let (rows, used) = if is_past(&name) { (beams, self.past) } else { (1, usize::MAX) };
            let value = match value.into_host()? {
                Value::F32(array) => Value::F32(kept(array, sentences, rows, used)),
                Value::F64(array) => Value::F64(kept(array, sentences, rows, used)),
                other => select(other, sentences)?,
            };
            self.state.insert(name, value);
        }
        Ok(())
    }
}

/// A cache, in the memory of an earlier one if it is large enough: positions are written before they are read.
fn empty(shape: Vec<usize>, before: Option<Value>) -> ArrayD<f32> {
    let size = shape.iter().product();
    match before {
        Some(Value::F32(before)) => {
            let (mut memory, _) = before.into_raw_vec_and_offset();
            if memory.capacity() < size {
                return ArrayD::zeros(shape);
            }
            memory.resize(size, 0.0);
            ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds")
        }
        _ => ArrayD::zeros(shape),
    }
}

/// The given sentences of `[sentences · beams, heads, positions, d_k]` with their first `used` positions, in the same memory.
fn kept<T: Copy>(array: ArrayD<T>, sentences: &[usize], beams: usize, used: usize) -> ArrayD<T> {
    let mut shape = array.shape().to_vec();
    let is_plain = array.is_standard_layout() && sentences.is_sorted_by(|a, b| a < b);
    let (&[_, heads, places, d_k], true) = (shape.as_slice(), is_plain) else {
        let rows: Vec<_> = sentences.iter().flat_map(|sentence| sentence * beams..(sentence + 1) * beams).collect();
        return array.select(Axis(0), &rows);
    };
    let (mut memory, first) = array.into_raw_vec_and_offset();
    let first = first.unwrap_or(0);
    let (blocks, block, moved) = (beams * heads, places * d_k, used.min(places) * d_k);
    for (to, &from) in sentences.iter().enumerate().filter(|(to, from)| to != *from) {
        for index in 0..blocks {
            let start = first + (from * blocks + index) * block;
            memory.copy_within(start..start + moved, first + (to * blocks + index) * block);
        }
    }
    memory.drain(..first);
    memory.truncate(sentences.len() * blocks * block);
    shape[0] = sentences.len() * beams;
    ArrayD::from_shape_vec(shape, memory).expect("as many elements as the shape holds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_leave_as_by_a_copy() {
        let array = ArrayD::from_shape_fn(vec![6, 2, 4, 3], |index| (index[0] * 1000 + index[1] * 100 + index[2] * 10 + index[3]) as f32);
        for sentences in [vec![0, 2], vec![1], vec![1, 2], vec![], vec![2, 0]] {
            let rows: Vec<_> = sentences.iter().flat_map(|sentence| [2 * sentence, 2 * sentence + 1]).collect();
            let expected = array.select(Axis(0), &rows);
            let found = kept(array.clone(), &sentences, 2, 3);
            assert_eq!(found.shape(), expected.shape());
            assert_eq!(found.slice(s![.., .., ..3, ..]), expected.slice(s![.., .., ..3, ..]), "{sentences:?}");
        }
    }
}
