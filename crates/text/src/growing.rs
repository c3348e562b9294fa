//! The text of ids that come one by one.
//!
//! What an id spells may depend on those before it and after it: bytes make a character together, and a space goes when
//! English punctuation follows. So all ids are decoded each time, and of their text the part is told that none to come can
//! change: all before its last word.

use crate::{Result, Tokenizer};

/// Text that grows id by id, as [`Tokenizer::decode`] spells it.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de");
/// use cognate_text::{GrowingText, Tokenizer};
///
/// let tokenizer = Tokenizer::from_folder(folder)?;
/// let mut text = GrowingText::new(&tokenizer);
/// let ids = tokenizer.encode_target("Zwei Hunde.")?;
/// let words: Vec<String> = ids.into_iter().map(|id| text.push(id)).collect::<Result<_, _>>()?;
/// assert_eq!(words, ["", "Zwei", ""]);
/// assert_eq!(text.finish()?, " Hunde.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GrowingText<'t> {
    tokenizer: &'t Tokenizer,
    ids: Vec<i64>,
    told: String,
}

impl<'t> GrowingText<'t> {
    /// No text yet.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), told: String::new() }
    }

    /// What is certain of the text with one more id, and was not told before; often nothing.
    ///
    /// Fails where [`Tokenizer::decode`] does.
    pub fn push(&mut self, id: i64) -> Result<String> {
        self.ids.push(id);
        // Bytes after bytes may make others of what they are: they wait for the next piece.
        let spells_byte =
            |id: &i64| self.tokenizer.piece(*id).is_some_and(|piece| piece.starts_with("<0x") && piece.len() == "<0x00>".len());
        let n_certain = self.ids.iter().rposition(|id| !spells_byte(id)).map_or(0, |last| last + 1);
        let text = self.tokenizer.decode(&self.ids[..n_certain])?;
        Ok(self.tell(&text).to_owned())
    }

    /// What is left of the text, when no id comes any more.
    ///
    /// Fails where [`Tokenizer::decode`] does.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.ids)?;
        Ok(rest(&text, &self.told).to_owned())
    }

    /// What of `text` is certain and not told.
    fn tell<'a>(&mut self, text: &'a str) -> &'a str {
        // A text that is shorter for a while has lost what it will have again.
        let next = text[..certain(text)].strip_prefix(self.told.as_str()).unwrap_or_default();
        self.told.push_str(next);
        next
    }
}

/// What follows in `text` after what it has in common with `told`.
fn rest<'a>(text: &'a str, told: &str) -> &'a str {
    let common = text.chars().zip(told.chars()).take_while(|(one, other)| one == other);
    &text[common.map(|(one, _)| one.len_utf8()).sum()..]
}

/// The bytes of a text that stay whatever comes next: all before its last word, whose space may go with it, as in `do n't`.
/// Ideographs and kana are words each. What is no character yet looks like U+FFFD.
fn certain(text: &str) -> usize {
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

    /// A text as it grows, and what is told each time; the whole one at last.
    #[test]
    fn only_what_stays_is_told() {
        let cases: &[&[(&str, &str)]] = &[
            &[("Ein", ""), ("Ein Ma", "Ein"), ("Ein Mann", ""), ("Ein Mann geht", " Mann"), ("Ein Mann geht.", " geht.")],
            // Spaces before English punctuation go when it comes.
            &[("I do", "I"), ("I do n", " do"), ("I do n'", ""), ("I don't", ""), ("I don't know", "n't"), ("I don't know", " know")],
            // Bytes of a character come one by one.
            &[("a \u{fffd}", "a"), ("a \u{fffd}\u{fffd}", ""), ("a €", ""), ("a € b", " €"), ("a € b", " b")],
            &[("\u{fffd}", ""), ("漢", "漢"), ("漢\u{fffd}", ""), ("漢字", "字"), ("漢字。", "。"), ("漢字。", "")],
            // A character is none for a while.
            &[("漢", "漢"), ("\u{fffd}\u{fffd}\u{fffd}\u{fffd}", ""), ("漢字", "字"), ("漢字", "")],
            &[("", ""), ("", "")],
        ];
        let tokenizer = Tokenizer::from_folder(cognate_testing::bundled_checkpoint()).unwrap();
        for steps in cases {
            let mut growing = GrowingText::new(&tokenizer);
            let (last, before) = steps.split_last().unwrap();
            let mut found: Vec<&str> = before.iter().map(|(text, _)| growing.tell(text)).collect();
            found.push(rest(last.0, &growing.told));
            let expected: Vec<&str> = steps.iter().map(|(_, expected)| *expected).collect();
            assert_eq!(found, expected, "{steps:?}");
        }
    }
}
