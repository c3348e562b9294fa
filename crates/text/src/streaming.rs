//! Streaming detokenisation: the text of ids that arrive one by one.
//!
//! The text of an id depends on its neighbours: several bytes make one character, and a space is
//! removed before English punctuation. So all ids are decoded each time, and the part that later
//! ids cannot change is returned: all but the last word.

use crate::{Result, Tokenizer};

/// Decodes ids one by one to the text of [`Tokenizer::decode`].
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de");
/// use cognate_text::{StreamingText, Tokenizer};
///
/// let tokenizer = Tokenizer::from_folder(folder)?;
/// let mut text = StreamingText::new(&tokenizer);
/// let ids = tokenizer.encode_target("Zwei Hunde.")?;
/// let words: Vec<String> = ids.into_iter().map(|id| text.push(id)).collect::<Result<_, _>>()?;
/// assert_eq!(words, ["", "Zwei", ""]);
/// assert_eq!(text.finish()?, " Hunde.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StreamingText<'t> {
    tokenizer: &'t Tokenizer,
    ids: Vec<i64>,
    returned: String,
}

impl<'t> StreamingText<'t> {
    /// Starts an empty text.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), returned: String::new() }
    }

    /// The continuation of a text with these ids, which is not returned.
    ///
    /// Fails like [`Tokenizer::decode`].
    pub fn after(tokenizer: &'t Tokenizer, ids: &[i64]) -> Result<Self> {
        Ok(Self { tokenizer, ids: ids.to_vec(), returned: tokenizer.decode(ids)? })
    }

    /// The rest of the text with more ids.
    ///
    /// Fails like [`Tokenizer::decode`].
    pub fn finish_with(mut self, ids: &[i64]) -> Result<String> {
        self.ids.extend(ids);
        self.finish()
    }

    /// Adds an id and returns the new text that is final; it is often empty.
    ///
    /// Fails like [`Tokenizer::decode`].
    pub fn push(&mut self, id: i64) -> Result<String> {
        self.ids.push(id);
        // A byte piece may be part of an unfinished character: it waits for the next piece.
        let is_byte = |id: &i64| {
            self.tokenizer
                .piece(*id)
                .is_some_and(|piece| piece.starts_with("<0x") && piece.len() == "<0x00>".len())
        };
        let n_certain = self.ids.iter().rposition(|id| !is_byte(id)).map_or(0, |last| last + 1);
        let text = self.tokenizer.decode(&self.ids[..n_certain])?;
        Ok(self.advance(&text).to_owned())
    }

    /// Returns the rest of the text after the last id.
    ///
    /// Fails like [`Tokenizer::decode`].
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.ids)?;
        Ok(rest(&text, &self.returned).to_owned())
    }

    /// The part of `text` that is final and was not returned yet.
    fn advance<'a>(&mut self, text: &'a str) -> &'a str {
        // The text may become shorter until the rest of a character arrives.
        let next =
            text[..final_bytes(text)].strip_prefix(self.returned.as_str()).unwrap_or_default();
        self.returned.push_str(next);
        next
    }
}

/// The part of `text` after its common prefix with `returned`.
fn rest<'a>(text: &'a str, returned: &str) -> &'a str {
    let common = text.chars().zip(returned.chars()).take_while(|(one, other)| one == other);
    &text[common.map(|(one, _)| one.len_utf8()).sum()..]
}

/// The bytes of a text that no later id changes: all before its last word, whose space may be
/// removed, as in `do n't`. Each ideograph or kana is a word. An unfinished character is U+FFFD.
fn final_bytes(text: &str) -> usize {
    let text = text.trim_end_matches('\u{fffd}');
    let is_word = |c| matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}');
    let end = |(place, c): (usize, char)| match c {
        c if c.is_whitespace() => Some(place),
        c if is_word(c) => Some(place + c.len_utf8()),
        _ => None,
    };
    let end = text.char_indices().rev().find_map(end).unwrap_or(0);
    text[..end].trim_end().len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Each step's text, and the part that it returns; the last step is the whole text.
    #[test]
    fn only_final_text_is_returned() {
        let cases: &[&[(&str, &str)]] = &[
            &[
                ("Ein", ""),
                ("Ein Ma", "Ein"),
                ("Ein Mann", ""),
                ("Ein Mann geht", " Mann"),
                ("Ein Mann geht.", " geht."),
            ],
            // Spaces are removed before English punctuation.
            &[
                ("I do", "I"),
                ("I do n", " do"),
                ("I do n'", ""),
                ("I don't", ""),
                ("I don't know", "n't"),
                ("I don't know", " know"),
            ],
            // The bytes of a character arrive one by one.
            &[
                ("a \u{fffd}", "a"),
                ("a \u{fffd}\u{fffd}", ""),
                ("a €", ""),
                ("a € b", " €"),
                ("a € b", " b"),
            ],
            &[
                ("\u{fffd}", ""),
                ("漢", "漢"),
                ("漢\u{fffd}", ""),
                ("漢字", "字"),
                ("漢字。", "。"),
                ("漢字。", ""),
            ],
            // A character is incomplete for some steps.
            &[("漢", "漢"), ("\u{fffd}\u{fffd}\u{fffd}\u{fffd}", ""), ("漢字", "字"), ("漢字", "")],
            &[("", ""), ("", "")],
        ];
        let tokenizer = Tokenizer::from_folder(cognate_testing::bundled_checkpoint()).unwrap();
        for steps in cases {
            let mut streaming = StreamingText::new(&tokenizer);
            let (last, before) = steps.split_last().unwrap();
            let mut found: Vec<&str> =
                before.iter().map(|(text, _)| streaming.advance(text)).collect();
            found.push(rest(last.0, &streaming.returned));
            let expected: Vec<&str> = steps.iter().map(|(_, expected)| *expected).collect();
            assert_eq!(found, expected, "{steps:?}");
        }
    }
}
