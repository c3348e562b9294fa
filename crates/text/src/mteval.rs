//! The `13a` word tokenization of BLEU: mteval-v13a.pl of the NIST, as sacreBLEU 2.6 has it.
//!
//! Punctuation and symbols become words of their own; periods and commas only where no digit stands on both sides,
//! hyphens only after a digit.

use std::sync::LazyLock;

use regex::Regex;

/// The words of a sentence, joined by single spaces.
pub(crate) fn tokenize_13a(sentence: &str) -> String {
    let mut line = sentence.trim_end_matches(is_space).replace("<skipped>", "");
    line = line.replace("-\n", "").replace('\n', " ");
    if line.contains('&') {
        // In this order: `&amp;lt;` ends as `<`.
        for (entity, character) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
            line = line.replace(entity, character);
        }
    }
    line = format!(" {line} ");
    for (pattern, replacement) in RULES.iter() {
        line = pattern.replace_all(&line, *replacement).into_owned();
    }
    words(&line).collect::<Vec<_>>().join(" ")
}

/// The words of a tokenized sentence.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|word| !word.is_empty())
}

static RULES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    let rule = |pattern, replacement| (Regex::new(pattern).expect("the pattern is a constant that compiles"), replacement);
    [
        // ASCII but letters, digits, and ' , - .
        (rule(r"([{-~\[-` -&(-+:-@/])", " ${1} ")),
        // Period and comma, unless a digit stands before.
        (rule(r"([^0-9])([.,])", "${1} ${2} ")),
        // Period and comma, unless a digit follows.
        (rule(r"([.,])([^0-9])", " ${1} ${2}")),
        // Hyphen after a digit.
        (rule(r"([0-9])(-)", "${1} ${2} ")),
    ]
});

/// White space of Python's `str.split`: Unicode's and the four ASCII separators.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Expected words: sacreBLEU 2.6.0 (`testdata/bleu/README.md`).
    #[test]
    fn words_are_those_of_sacrebleu() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/bleu/cases.json");
        let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(cases).unwrap()).unwrap();
        let pairs: Vec<(String, String)> = serde_json::from_value(cases["words"].clone()).unwrap();
        assert!(pairs.len() > 100, "{} sentences", pairs.len());
        let failures: Vec<String> = pairs
            .iter()
            .map(|(sentence, expected)| (sentence, expected, tokenize_13a(sentence)))
            .filter(|(_, expected, found)| *expected != found)
            .map(|(sentence, expected, found)| format!("{sentence:?}: expected {expected:?}, found {found:?}"))
            .collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
