//! Times of words, from the cross-attention of some heads to the audio.
//!
//! The text is read once more without timestamps. The attention of the alignment heads is
//! standardised over the tokens, smoothed over time by a median, and averaged; dynamic time warping
//! then assigns frames to tokens. This is the method of OpenAI's `timing.py`, with its corrections
//! of long words.

use super::options::TranscriptionOptions;
use super::segments::{Segment, Word};
use super::tokens::SpeechTokens;
use crate::error::Result;
use cognate_generate::{Decoder, Sources, read_along};
use cognate_text::Tokenizer;
use ndarray::{Array2, Array3, ArrayView1, Axis, s};
use std::collections::VecDeque;

/// The width of the median over time.
const MEDIAN: usize = 7;
/// The longest median duration of words, in seconds.
const LONGEST_MEDIAN: f64 = 0.7;
const SENTENCE_ENDS: &str = ".。!！?？";
/// ASCII punctuation in order, of which a word may be any part.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Languages that are written without spaces.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// Words with their times in a window, and how many tokens each has.
pub(super) type Alignment = Vec<(Word, usize)>;

/// Aligns the text of a window.
pub(super) struct Aligner<'a> {
    pub(super) tokens: &'a SpeechTokens,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) options: &'a TranscriptionOptions,
    /// Seconds of one position of the encoder.
    pub(super) step: f64,
}

impl Aligner<'_> {
    /// The words of `text` after `prompt`, which says that there are no timestamps, in the first
    /// `n_positions` of the window of `sources`.
    pub(super) fn align(
        &self,
        (decoder, sources): (&mut dyn Decoder, Sources<'_>),
        prompt: &[i64],
        (text, language): (&[i64], &str),
        n_positions: usize,
    ) -> Result<Alignment> {
        if text.is_empty() || n_positions == 0 {
            return Ok(Vec::new());
        }
        let all: Vec<i64> = prompt.iter().chain(text).copied().chain([self.tokens.end]).collect();
        let read =
            read_along(decoder, sources, &all, &self.tokens.alignment_heads, self.tokens.end)?;
        let costs = costs(read.attention.slice(s![.., .., ..n_positions]).to_owned());
        // From the last token of the prompt, which precedes the text, to the last of the text,
        // which precedes the end.
        let rows = costs.slice(s![prompt.len() - 1..all.len() - 1, ..]).to_owned();
        let starts = starts(&warp(&rows));
        let probabilities = &read.probabilities[prompt.len() - 1..];
        let words = self.words(text, language)?;
        let mut first = 0;
        Ok(words
            .into_iter()
            .map(|(word, n_tokens)| {
                let end = first + n_tokens;
                let [from, to] = [first, end].map(|token| starts[token] as f64 * self.step);
                let probability = probabilities[first..end].iter().sum::<f32>() / n_tokens as f32;
                first = end;
                (Word { word, start: from, end: to, probability }, n_tokens)
            })
            .collect())
    }

    /// The words of a text with their numbers of tokens.
    fn words(&self, text: &[i64], language: &str) -> Result<Vec<(String, usize)>> {
        let mut words: Vec<(String, usize)> = Vec::new();
        for (piece, n_tokens) in self.characters(text)? {
            let is_punctuation = PUNCTUATION.contains(piece.trim());
            match words.last_mut() {
                Some((word, n))
                    if !(UNSPACED.contains(&language)
                        || piece.starts_with(' ')
                        || is_punctuation) =>
                {
                    word.push_str(&piece);
                    *n += n_tokens;
                }
                _ => words.push((piece, n_tokens)),
            }
        }
        Ok(words)
    }

    /// The text in pieces of whole characters, with their numbers of tokens.
    fn characters(&self, text: &[i64]) -> Result<Vec<(String, usize)>> {
        const REPLACEMENT: char = '\u{fffd}';
        let whole: Vec<char> = self.tokenizer.decode_verbatim(text)?.chars().collect();
        let (mut pieces, mut first, mut offset) = (Vec::new(), 0, 0);
        for end in 1..=text.len() {
            let piece = self.tokenizer.decode_verbatim(&text[first..end])?;
            let is_whole = match piece.chars().position(|c| c == REPLACEMENT) {
                // An unfinished character, unless the text has this one.
                Some(place) => whole.get(offset + place) == Some(&REPLACEMENT),
                None => true,
            };
            if is_whole || end == text.len() {
                offset += piece.chars().count();
                pieces.push((piece, end - first));
                first = end;
            }
        }
        Ok(pieces)
    }

    /// Gives the segments of a window their words, after speech that ended at `last_speech`.
    pub(super) fn put(
        &self,
        mut alignment: Alignment,
        segments: &mut [Segment],
        offset: f64,
        mut last_speech: f64,
    ) {
        let mut durations: Vec<f64> = alignment
            .iter()
            .map(|(word, _)| word.end - word.start)
            .filter(|duration| *duration != 0.0)
            .collect();
        durations.sort_by(f64::total_cmp);
        let middle = durations.len() / 2;
        let median = match durations.len() {
            0 => 0.0,
            n if n.is_multiple_of(2) => (durations[middle - 1] + durations[middle]) / 2.0,
            _ => durations[middle],
        };
        let median = median.min(LONGEST_MEDIAN);
        let longest = 2.0 * median;
        for index in 1..alignment.len() {
            let after_end = SENTENCE_ENDS.contains(alignment[index - 1].0.word.as_str());
            let word = &mut alignment[index].0;
            if !durations.is_empty() && word.end - word.start > longest {
                if SENTENCE_ENDS.contains(word.word.as_str()) {
                    word.end = word.start + longest;
                } else if after_end {
                    word.start = word.end - longest;
                }
            }
        }
        self.merge_punctuation(&mut alignment);
        let mut alignment: VecDeque<_> = alignment.into();
        let hundredths = |seconds: f64| (seconds * 100.0).round() / 100.0;
        for segment in segments {
            let n_tokens = segment.tokens.iter().filter(|token| **token < self.tokens.end).count();
            let (mut taken, mut words) = (0, Vec::new());
            while taken < n_tokens
                && let Some((word, n)) = alignment.pop_front()
            {
                taken += n;
                if !word.word.is_empty() {
                    words.push(Word {
                        start: hundredths(offset + word.start),
                        end: hundredths(offset + word.end),
                        ..word
                    });
                }
            }
            if !words.is_empty() {
                fit(&mut words, segment, [median, longest], last_speech);
                last_speech = segment.end;
            }
            segment.words = words;
        }
    }

    /// Joins punctuation to the words before and after it.
    fn merge_punctuation(&self, alignment: &mut Alignment) {
        let take = |alignment: &mut Alignment, at: usize| {
            (std::mem::take(&mut alignment[at].0.word), std::mem::take(&mut alignment[at].1))
        };
        let mut following = alignment.len().saturating_sub(1);
        for previous in (0..following).rev() {
            let word = &alignment[previous].0.word;
            if word.starts_with(' ') && self.options.prepend_punctuations.contains(word.trim()) {
                let (word, n) = take(alignment, previous);
                alignment[following].0.word.insert_str(0, &word);
                alignment[following].1 += n;
            } else {
                following = previous;
            }
        }
        let mut previous = 0;
        for following in 1..alignment.len() {
            let is_appended =
                self.options.append_punctuations.contains(alignment[following].0.word.as_str());
            if is_appended && !alignment[previous].0.word.ends_with(' ') {
                let (word, n) = take(alignment, following);
                alignment[previous].0.word.push_str(&word);
                alignment[previous].1 += n;
            } else {
                previous = following;
            }
        }
    }
}

/// Shortens the first words after a pause, and chooses between the times of a segment and of its
/// words.
fn fit(words: &mut [Word], segment: &mut Segment, [median, longest]: [f64; 2], last_speech: f64) {
    let second = words.get(1).cloned();
    let first = &words[0];
    let pair_is_long =
        second.as_ref().is_some_and(|second| second.end - first.start > 2.0 * longest);
    if first.end - last_speech > 4.0 * median && (first.end - first.start > longest || pair_is_long)
    {
        if let Some(second) = second.filter(|second| second.end - second.start > longest) {
            let boundary = (second.end / 2.0).max(second.end - longest);
            (words[0].end, words[1].start) = (boundary, boundary);
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    let first = &mut words[0];
    if segment.start < first.end && segment.start - 0.5 > first.start {
        first.start = (first.end - median).min(segment.start).max(0.0);
    } else {
        segment.start = first.start;
    }
    let last = words.last_mut().expect("there are words");
    if segment.end > last.start && segment.end + 0.5 < last.end {
        last.end = (last.start + median).max(segment.end);
    } else {
        segment.end = last.end;
    }
}

/// The negative mean over heads of attention `[heads, tokens, positions]`, standardised over tokens
/// and smoothed: `[tokens, positions]`.
fn costs(mut attention: Array3<f32>) -> Array2<f32> {
    for mut row in attention.rows_mut() {
        let sum = row.sum();
        row /= sum;
    }
    for mut head in attention.outer_iter_mut() {
        for mut column in head.columns_mut() {
            let mean = column.mean().unwrap_or(0.0);
            let deviation = (column.iter().map(|weight| (weight - mean).powi(2)).sum::<f32>()
                / column.len() as f32)
                .sqrt();
            column.mapv_inplace(|weight| (weight - mean) / deviation);
        }
        for mut row in head.rows_mut() {
            let smooth = smoothed(row.view());
            row.iter_mut().zip(smooth).for_each(|(to, from)| *to = from);
        }
    }
    -attention.mean_axis(Axis(0)).expect("a model has alignment heads")
}

/// The median of each value and its neighbours, reflected at the ends.
fn smoothed(row: ArrayView1<'_, f32>) -> Vec<f32> {
    let (len, half) = (row.len() as i64, (MEDIAN / 2) as i64);
    if len <= half {
        return row.to_vec();
    }
    let at = |place: i64| row[(len - 1 - (len - 1 - place.abs()).abs()) as usize];
    let median = |place: i64| {
        let mut near: [f32; MEDIAN] = std::array::from_fn(|index| at(place - half + index as i64));
        near.sort_by(f32::total_cmp);
        near[MEDIAN / 2]
    };
    (0..len).map(median).collect()
}

/// The cheapest monotonic path through `costs: [tokens, positions]`: pairs of token and position.
/// Ties keep the token.
fn warp(costs: &Array2<f32>) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy)]
    enum Step {
        Both,
        Token,
        Position,
    }
    let (n, m) = costs.dim();
    let mut total = Array2::from_elem((n + 1, m + 1), f32::INFINITY);
    let mut steps = Array2::from_elem((n + 1, m + 1), Step::Position);
    steps.column_mut(0).fill(Step::Token);
    steps.row_mut(0).fill(Step::Position);
    total[[0, 0]] = 0.0;
    for j in 1..=m {
        for i in 1..=n {
            let (both, token, position) =
                (total[[i - 1, j - 1]], total[[i - 1, j]], total[[i, j - 1]]);
            let (cost, step) = if both < token && both < position {
                (both, Step::Both)
            } else if token < both && token < position {
                (token, Step::Token)
            } else {
                (position, Step::Position)
            };
            total[[i, j]] = costs[[i - 1, j - 1]] + cost;
            steps[[i, j]] = step;
        }
    }
    let (mut path, mut i, mut j) = (Vec::new(), n, m);
    while i > 0 && j > 0 {
        path.push((i - 1, j - 1));
        (i, j) = match steps[[i, j]] {
            Step::Both => (i - 1, j - 1),
            Step::Token => (i - 1, j),
            Step::Position => (i, j - 1),
        };
    }
    // Tokens before the first position.
    path.extend((0..i).rev().map(|token| (token, 0)));
    path.reverse();
    path
}

/// The first position of each token.
fn starts(path: &[(usize, usize)]) -> Vec<usize> {
    let mut starts = Vec::new();
    for &(token, position) in path {
        if starts.len() <= token {
            starts.push(position);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_path_follows_the_cheapest_cells() {
        let costs = array![
            [-1.0, -1.0, 1.0, 1.0, 1.0],
            [1.0, 1.0, -1.0, 1.0, 1.0],
            [1.0, 1.0, 1.0, -1.0, -1.0]
        ];
        let path = warp(&costs);
        assert_eq!(path, [(0, 0), (0, 1), (1, 2), (2, 3), (2, 4)]);
        assert_eq!(starts(&path), [0, 2, 3]);
        // More tokens than positions.
        assert_eq!(starts(&warp(&array![[0.0], [0.0], [0.0]])), [0, 0, 0]);
    }

    #[test]
    fn medians_reflect_at_the_ends() {
        let row = array![9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        // 3 2 1 9 1 2 3; 2 1 9 1 2 3 4; ...
        assert_eq!(smoothed(row.view()), [2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0, 5.0]);
        assert_eq!(smoothed(array![5.0, 1.0].view()), [5.0, 1.0]);
    }
}
