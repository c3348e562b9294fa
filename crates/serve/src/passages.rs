//! Texts of several lines as the sentences that a model translates: the lines, and the sentences of
//! lines that are too long for it.

use cognate::{Line, Translator};
use unicode_segmentation::UnicodeSegmentation;

/// A text in parts: each translated, or kept unchanged.
pub(crate) struct Passage {
    parts: Vec<Part>,
}

enum Part {
    /// Line breaks and spaces around lines.
    Kept(String),
    Translated(String),
}

impl Passage {
    pub(crate) fn new(text: &str, translator: &Translator) -> Self {
        let limit = translator.max_source_tokens();
        // An error is reported when the sentence is translated.
        let fits = |text: &str| {
            translator.model().tokenizer().encode(text).map_or(true, |ids| ids.len() <= limit)
        };
        let mut parts = Vec::new();
        for line in text.split_inclusive('\n') {
            let words = line.trim();
            let before = &line[..line.len() - line.trim_start().len()];
            let after = &line[before.len() + words.len()..];
            parts.push(Part::Kept(before.into()));
            if fits(words) {
                parts.push(Part::Translated(words.into()));
            } else {
                for sentence in words.split_sentence_bounds() {
                    let end = sentence.trim_end().len();
                    parts.push(Part::Translated(sentence[..end].into()));
                    parts.push(Part::Kept(sentence[end..].into()));
                }
            }
            parts.push(Part::Kept(after.into()));
        }
        let is_empty = |part: &Part| matches!(part, Part::Kept(text) | Part::Translated(text) if text.is_empty());
        parts.retain(|part| !is_empty(part));
        Self { parts }
    }

    /// The sentences to translate.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Kept(_) => None,
            Part::Translated(text) => Some(Line { text: text.clone(), prefix: None }),
        })
    }

    /// The text with a translation of each sentence.
    pub(crate) fn with<'t>(&self, mut translations: impl Iterator<Item = &'t str>) -> String {
        let part = |part: &Part| match part {
            Part::Kept(text) => text.clone(),
            Part::Translated(_) => translations.next().unwrap_or_default().to_owned(),
        };
        self.parts.iter().map(part).collect()
    }
}
