//! Texts as the sentences that a model translates: models are trained on single sentences, and leave
//! out some of several.

use cognate::Line;
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
    pub(crate) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        for line in text.split_inclusive('\n') {
            let words = line.trim();
            let before = &line[..line.len() - line.trim_start().len()];
            let after = &line[before.len() + words.len()..];
            parts.push(Part::Kept(before.into()));
            for sentence in sentences(words) {
                let end = sentence.trim_end().len();
                parts.push(Part::Translated(sentence[..end].into()));
                parts.push(Part::Kept(sentence[end..].into()));
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

/// The sentences of a line, with the spaces behind them. A period does not end a sentence after an
/// abbreviation such as `Mr.` or `U.S.`.
fn sentences(line: &str) -> Vec<&str> {
    let (mut found, mut start, mut end) = (Vec::new(), 0, 0);
    for part in line.split_sentence_bounds() {
        end += part.len();
        if !ends_in_abbreviation(&line[start..end]) {
            found.push(&line[start..end]);
            start = end;
        }
    }
    if start < end {
        found.push(&line[start..end]);
    }
    found
}

/// Whether the last word has a period within, or is an upper-case letter and up to two others.
fn ends_in_abbreviation(text: &str) -> bool {
    let word = text.split_whitespace().next_back().and_then(|word| word.strip_suffix('.'));
    word.is_some_and(|word| {
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        let is_short = word.chars().count() <= 3 && word.chars().all(char::is_alphabetic);
        word.contains('.') || is_short && word.starts_with(char::is_uppercase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_divided_into_sentences() {
        let text = "  Mr. Smith came from the U.S. Army. He (i.e. Bob) left! Why?\n\nTwo dogs.  ";
        let passage = Passage::new(text);
        let lines: Vec<_> = passage.lines().map(|line| line.text).collect();
        let expected =
            ["Mr. Smith came from the U.S. Army.", "He (i.e. Bob) left!", "Why?", "Two dogs."];
        assert_eq!(lines, expected);
        assert_eq!(passage.with(lines.iter().map(String::as_str)), text);
    }
}
