//! Timestamps in the text of speech (Radford et al. 2022, section 2.3): tokens that count time from
//! the start of the audio.

use crate::scores::{log_sum_exp, maximum};

/// The rules of timestamps of OpenAI's Whisper and transformers: text is between pairs of them, and
/// they never decrease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampRules {
    /// The token for text without timestamps; forbidden.
    pub no_timestamps: i64,
    /// The token of time 0, followed by those of later times up to the end of the vocabulary.
    pub first: i64,
    /// Maximum initial timestamp, as a number of steps from time 0; `None` for no limit.
    pub max_initial: Option<usize>,
}

impl TimestampRules {
    /// Forbids the tokens that cannot follow the generated `tokens`; `end` ends a text, and smaller
    /// ids are words.
    pub(crate) fn apply(&self, tokens: &[i64], end: i64, scores: &mut [f32]) {
        let place = |token: i64| usize::try_from(token).unwrap_or(0).min(scores.len());
        let (first, end) = (place(self.first), place(end));
        let forbid = |scores: &mut [f32], range: std::ops::Range<usize>| {
            scores[range].fill(f32::NEG_INFINITY)
        };
        let no_timestamps = place(self.no_timestamps);
        forbid(scores, no_timestamps..(no_timestamps + 1).min(scores.len()));
        let is_timestamp = |token: &i64| *token >= self.first;
        let ends_in_one = tokens.last().is_some_and(is_timestamp);
        let is_pair = ends_in_one && tokens.iter().rev().nth(1).is_none_or(is_timestamp);
        if is_pair {
            forbid(scores, first..scores.len());
        } else if ends_in_one {
            forbid(scores, 0..end);
        }
        if let Some(&last) = tokens.iter().rev().find(|token| is_timestamp(token)) {
            // Only the second of a pair may repeat the time.
            let next = if ends_in_one && !is_pair { last } else { last + 1 };
            forbid(scores, first..usize::try_from(next).unwrap_or(0).clamp(first, scores.len()));
        }
        if tokens.is_empty() {
            forbid(scores, 0..first);
            let latest = self.max_initial.map_or(usize::MAX, |steps| first.saturating_add(steps));
            forbid(scores, latest.saturating_add(1).min(scores.len())..scores.len());
        }
        // If timestamps together are more probable than any other token, one follows.
        let (others, times) = scores.split_at(first);
        if log_sum_exp(times) > maximum(others) {
            forbid(scores, 0..first);
        }
    }
}
