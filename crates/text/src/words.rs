//! The words that BLEU counts, as sacreBLEU 2.6 finds them.
//!
//! `13a` is mteval-v13a.pl of the NIST: punctuation and symbols become words of their own; periods and commas only where no digit
//! stands on both sides, hyphens only after a digit. `intl` is mteval-v14.pl's international way: Unicode's punctuation, unless
//! a number stands on both sides, and Unicode's symbols.

use std::sync::LazyLock;

use regex::Regex;

/// How a sentence is cut into words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// mteval-v13a's, for European languages.
    #[default]
    V13a,
    /// mteval-v14's, for all languages that divide words by spaces.
    International,
    /// Each character is a word, for languages that do not divide words.
    Characters,
    /// What stands between spaces, for text that is cut already.
    Given,
}

impl Words {
    /// sacreBLEU's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::V13a => "13a",
            Self::International => "intl",
            Self::Characters => "char",
            Self::Given => "none",
        }
    }

    /// The sentence with spaces between its words.
    pub(crate) fn divide(self, sentence: &str) -> String {
        let sentence = sentence.trim_end_matches(is_space);
        match self {
            Self::V13a => tokenize_13a(sentence),
            Self::International => replaced(&INTERNATIONAL, sentence.to_owned()),
            Self::Characters => sentence.chars().flat_map(|character| [character, ' ']).collect(),
            Self::Given => sentence.to_owned(),
        }
    }
}

/// The words of a divided sentence.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|word| !word.is_empty())
}

/// White space of Python's `str.split`: Unicode's and the four ASCII separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn tokenize_13a(sentence: &str) -> String {
    let mut line = sentence.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    if line.contains('&') {
        // In this order: `&amp;lt;` ends as `<`.
        for (entity, character) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
            line = line.replace(entity, character);
        }
    }
    replaced(&V13A, format!(" {line} "))
}

type Rules<const N: usize> = LazyLock<[(Regex, &'static str); N]>;

fn replaced<const N: usize>(rules: &Rules<N>, line: String) -> String {
    rules.iter().fold(line, |line, (pattern, replacement)| pattern.replace_all(&line, *replacement).into_owned())
}

fn rule(pattern: &str, replacement: &'static str) -> (Regex, &'static str) {
    (Regex::new(pattern).expect("the pattern is a constant that compiles"), replacement)
}

static V13A: Rules<4> = LazyLock::new(|| {
    [
        // ASCII but letters, digits, and ' , - .
        rule(r"([{-~\[-` -&(-+:-@/])", " ${1} "),
        // Period and comma, unless a digit stands before.
        rule(r"([^0-9])([.,])", "${1} ${2} "),
        // Period and comma, unless a digit follows.
        rule(r"([.,])([^0-9])", " ${1} ${2}"),
        // Hyphen after a digit.
        rule(r"([0-9])(-)", "${1} ${2} "),
    ]
});

static INTERNATIONAL: Rules<3> = LazyLock::new(|| {
    [
        // Punctuation after what is no number, before what is none, and symbols.
        rule(r"(\P{N})(\p{P})", "${1} ${2} "),
        rule(r"(\p{P})(\P{N})", " ${1} ${2}"),
        rule(r"(\p{S})", " ${1} "),
    ]
});

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Expected words: sacreBLEU 2.6.0 (`testdata/bleu/README.md`).
    #[test]
    fn words_are_those_of_sacrebleu() {
        let cases = std::fs::read_to_string(cognate_testing::testdata("bleu/cases.json")).unwrap();
        let cases: serde_json::Value = serde_json::from_str(&cases).unwrap();
        for way in [Words::V13a, Words::International, Words::Characters] {
            let pairs: Vec<(String, String)> = serde_json::from_value(cases["words"][way.name()].clone()).unwrap();
            assert!(pairs.len() > 100, "{} sentences", pairs.len());
            let found = pairs.iter().map(|(sentence, expected)| {
                let found = way.divide(sentence);
                (sentence, expected, words(&found).collect::<Vec<_>>().join(" "))
            });
            let wrong = found.filter(|(_, expected, found)| *expected != found);
            let failures: Vec<String> =
                wrong.map(|(sentence, expected, found)| format!("{sentence:?}: expected {expected:?}, found {found:?}")).collect();
            assert!(failures.is_empty(), "{}: {}", way.name(), failures.join("\n"));
        }
    }
}
