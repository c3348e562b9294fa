//! Subtitles by the times of words: lines of a limited width, and words marked as they are spoken.
//!
//! The rules are those of OpenAI's command.

use super::segments::Word;

/// A pause after which a subtitle ends, in seconds.
const LONG_PAUSE: f64 = 3.0;

/// How words are laid out in SubRip and WebVTT subtitles; without words, segments are subtitles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubtitleOptions {
    /// The maximum number of characters of a line. A longer word has a line of its own.
    pub max_line_width: Option<usize>,
    /// The maximum number of lines of a subtitle; with a width, subtitles then continue over
    /// segments.
    pub max_line_count: Option<usize>,
    /// The maximum number of words of a subtitle within a segment.
    pub max_words_per_line: Option<usize>,
    /// Whether each word is underlined while it is spoken.
    pub highlight_words: bool,
}

/// A text that is shown for a time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cue {
    /// Start and end in seconds.
    pub(super) times: [f64; 2],
    pub(super) text: String,
}

/// Lays out words, segment by segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Subtitles {
    options: SubtitleOptions,
    /// Words of the current subtitle, each with the white space before it.
    words: Vec<Word>,
    /// The number of characters of its last line.
    width: usize,
    n_line_breaks: usize,
    /// The start of the last word.
    last: Option<f64>,
}

impl Subtitles {
    pub(super) fn new(options: SubtitleOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Adds the words of a segment; returns the subtitles that are complete.
    pub(super) fn push(&mut self, words: &[Word]) -> Vec<Cue> {
        let SubtitleOptions { max_line_width, max_line_count, max_words_per_line, .. } =
            self.options;
        let ends_with_segments = max_line_width.is_none() || max_line_count.is_none();
        let mut cues = Vec::new();
        for part in words.chunks(max_words_per_line.map_or(usize::MAX, |most| most.max(1))) {
            for word in part {
                let pause = word.start - self.last.unwrap_or(word.start);
                let is_late = !ends_with_segments && pause > LONG_PAUSE;
                let width = self.width + word.word.chars().count();
                let fits = max_line_width.is_none_or(|most| width <= most);
                if self.width > 0 && fits && !is_late {
                    self.width = width;
                    self.words.push(word.clone());
                } else {
                    let is_full = max_line_count.is_some_and(|most| self.n_line_breaks + 1 >= most);
                    if is_late || is_full {
                        cues.extend(self.finish());
                    }
                    self.begin_line(word);
                }
                self.last = Some(word.start);
            }
            if ends_with_segments {
                cues.extend(self.finish());
            }
        }
        cues
    }

    fn begin_line(&mut self, word: &Word) {
        let mut text = word.word.trim().to_owned();
        let width = text.chars().count();
        if self.width > 0 {
            self.n_line_breaks += 1;
            text.insert(0, '\n');
        }
        self.width = width;
        self.words.push(Word { word: text, ..word.clone() });
    }

    /// Ends the current subtitle.
    pub(super) fn finish(&mut self) -> Vec<Cue> {
        let words = std::mem::take(&mut self.words);
        (self.width, self.n_line_breaks) = (0, 0);
        let [Some(first), Some(last)] = [words.first(), words.last()] else { return Vec::new() };
        let text: String = words.iter().map(|word| word.word.as_str()).collect();
        if !self.options.highlight_words {
            return vec![Cue { times: [first.start, last.end], text }];
        }
        let (mut cues, mut shown) = (Vec::new(), first.start);
        for (index, word) in words.iter().enumerate() {
            if milliseconds(shown) != milliseconds(word.start) {
                cues.push(Cue { times: [shown, word.start], text: text.clone() });
            }
            let marked = words.iter().enumerate().map(|(other, word)| {
                let spoken = word.word.trim_start();
                let space = &word.word[..word.word.len() - spoken.len()];
                if other == index { format!("{space}<u>{spoken}</u>") } else { word.word.clone() }
            });
            cues.push(Cue { times: [word.start, word.end], text: marked.collect() });
            shown = word.end;
        }
        cues
    }
}

/// A time in whole milliseconds.
pub(super) fn milliseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}
