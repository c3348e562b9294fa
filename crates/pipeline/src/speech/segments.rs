//! Segments: the text of a window, cut at its timestamps.

use super::window::WindowText;

/// A word with its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    /// The word, often with a space before it, and with punctuation.
    pub word: String,
    /// The start in seconds.
    pub start: f64,
    /// The end in seconds.
    pub end: f64,
    /// The mean probability of its tokens.
    pub probability: f32,
}

/// A piece of text with its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// The number, from 0.
    pub id: usize,
    /// The first frame of its window.
    pub seek: usize,
    /// The start in seconds.
    pub start: f64,
    /// The end in seconds.
    pub end: f64,
    /// The text, often with a space before it.
    pub text: String,
    /// The tokens, with timestamps.
    pub tokens: Vec<i64>,
    /// The temperature at which the window was decoded.
    pub temperature: f32,
    /// The mean log-probability of the window's tokens.
    pub mean_log_probability: f32,
    /// The ratio of the window's text to its compressed size.
    pub compression_ratio: f32,
    /// The probability that the window has no speech.
    pub no_speech_probability: f32,
    /// Words with their times, if requested.
    pub words: Vec<Word>,
}

/// Where the words of a window end, or else its segments.
pub(super) fn end_of_speech(segments: &[Segment]) -> Option<f64> {
    let word = segments.iter().rev().find_map(|segment| segment.words.last()).map(|word| word.end);
    word.or_else(|| segments.last().map(|segment| segment.end))
}

/// A cut of a window's tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// Start and end in timestamp steps from the window's start; `None` for the window's end.
    pub(super) times: [Option<i64>; 2],
    pub(super) tokens: Vec<i64>,
}

/// The cuts of a window, and how it is followed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cuts {
    pub(super) cuts: Vec<Cut>,
    /// The timestamp at which the next window starts, in steps; `None` for the window's end.
    pub(super) next: Option<i64>,
    /// Whether the text ends in a single timestamp: nothing is said after it.
    pub(super) ends_in_silence: bool,
}

/// Cuts tokens between adjacent timestamps, as OpenAI's `transcribe`; `first` is the token of time
/// 0.
pub(super) fn cut(tokens: &[i64], first: i64) -> Cuts {
    let is_timestamp = |token: &i64| *token >= first;
    let ends_in_silence =
        matches!(tokens, [.., before, last] if !is_timestamp(before) && is_timestamp(last));
    let mut bounds: Vec<usize> = (1..tokens.len())
        .filter(|&at| is_timestamp(&tokens[at - 1]) && is_timestamp(&tokens[at]))
        .collect();
    if bounds.is_empty() {
        let last = tokens
            .iter()
            .rev()
            .find(|token| is_timestamp(token))
            .map(|token| token - first)
            .filter(|step| *step > 0);
        return Cuts {
            cuts: vec![Cut { times: [Some(0), last], tokens: tokens.to_vec() }],
            next: None,
            ends_in_silence,
        };
    }
    if ends_in_silence {
        bounds.push(tokens.len());
    }
    let mut begin = 0;
    let cuts = bounds.iter().map(|&end| {
        let tokens = tokens[begin..end].to_vec();
        begin = end;
        Cut {
            times: [tokens.first(), tokens.last()].map(|token| token.map(|token| token - first)),
            tokens,
        }
    });
    let cuts = cuts.collect();
    Cuts { cuts, next: (!ends_in_silence).then(|| tokens[begin - 1] - first), ends_in_silence }
}

impl Segment {
    pub(super) fn of(
        found: &WindowText,
        seek: usize,
        [start, end]: [f64; 2],
        tokens: Vec<i64>,
        text: String,
    ) -> Self {
        Self {
            id: 0,
            seek,
            start,
            end,
            text,
            tokens,
            temperature: found.temperature,
            mean_log_probability: found.mean_log_probability,
            compression_ratio: found.compression_ratio,
            no_speech_probability: found.no_speech_probability,
            words: Vec::new(),
        }
    }

    /// Empties a segment without duration or words.
    pub(super) fn clear_if_blank(&mut self) {
        if self.start == self.end || self.text.trim().is_empty() {
            self.text.clear();
            self.tokens.clear();
            self.words.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens; the times and the number of tokens of each segment; where the next window begins.
    type Case = (&'static [i64], &'static [(Option<i64>, Option<i64>, usize)], Option<i64>);

    /// Times from 100 on.
    #[test]
    fn windows_are_cut_between_adjacent_timestamps() {
        let cases: [Case; 6] = [
            // One segment that goes to the end of the window, or to its last timestamp.
            (&[100, 5, 6], &[(Some(0), None, 3)], None),
            (&[100, 5, 6, 150], &[(Some(0), Some(50), 4)], None),
            (&[5, 6], &[(Some(0), None, 2)], None),
            // What follows the last pair is read again.
            (&[100, 5, 120, 120, 6], &[(Some(0), Some(20), 3)], Some(20)),
            (
                &[100, 5, 120, 130, 6, 140, 140],
                &[(Some(0), Some(20), 3), (Some(30), Some(40), 3)],
                Some(40),
            ),
            // A single timestamp at the end: nothing follows.
            (&[100, 5, 120, 130, 6, 140], &[(Some(0), Some(20), 3), (Some(30), Some(40), 3)], None),
        ];
        for (tokens, expected, next) in cases {
            let found = cut(tokens, 100);
            let cuts: Vec<_> = found
                .cuts
                .iter()
                .map(|cut| (cut.times[0], cut.times[1], cut.tokens.len()))
                .collect();
            assert_eq!((cuts.as_slice(), found.next), (expected, next), "{tokens:?}");
        }
    }
}
