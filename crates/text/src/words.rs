//! Tokenisation for BLEU, as in sacreBLEU 2.6.
//!
//! `13a` is that of NIST's mteval-v13a.pl: punctuation and symbols become words; periods and commas
//! only if not between two digits, hyphens only after a digit. `intl` is the international
//! tokenisation of mteval-v14.pl: Unicode punctuation if not between two numbers, and Unicode
//! symbols.

use std::sync::LazyLock;

use regex::Regex;

/// Tokenisation of a sentence into words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// That of mteval-v13a, for European languages.
    #[default]
    V13a,
    /// That of mteval-v14, for all languages with spaces between words.
    International,
    /// Each character is a word, for languages without spaces between words.
    Characters,
    /// Split at spaces only, for tokenised text.
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

/// White space of Python's `str.strip`, `str.split` and `\s`: Unicode's and the four ASCII
/// separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn tokenize_13a(sentence: &str) -> String {
    let mut line = sentence.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    if line.contains('&') {
        // In this order: `&amp;lt;` ends as `<`.
        for (entity, character) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")]
        {
            line = line.replace(entity, character);
        }
    }
    replaced(&V13A, format!(" {line} "))
}

pub(crate) type Rules<const N: usize> = LazyLock<[(Regex, &'static str); N]>;

pub(crate) fn replaced<const N: usize>(rules: &Rules<N>, line: String) -> String {
    rules.iter().fold(line, |line, (pattern, replacement)| {
        pattern.replace_all(&line, *replacement).into_owned()
    })
}

/// A replacement of all matches of a pattern.
pub(crate) fn rule(pattern: &str, replacement: &'static str) -> (Regex, &'static str) {
    (Regex::new(pattern).expect("the pattern is a constant that compiles"), replacement)
}

static V13A: Rules<4> = LazyLock::new(|| {
    [
        // ASCII except letters, digits, and ' , - .
        rule(r"([{-~\[-` -&(-+:-@/])", " ${1} "),
        // Period and comma not after a digit.
        rule(r"([^0-9])([.,])", "${1} ${2} "),
        // Period and comma not before a digit.
        rule(r"([.,])([^0-9])", " ${1} ${2}"),
        // Hyphen after a digit.
        rule(r"([0-9])(-)", "${1} ${2} "),
    ]
});

static INTERNATIONAL: Rules<3> = LazyLock::new(|| {
    [
        // Punctuation not after a number, not before a number, and symbols.
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
            let pairs: Vec<(String, String)> =
                serde_json::from_value(cases["words"][way.name()].clone()).unwrap();
            assert!(pairs.len() > 100, "{} sentences", pairs.len());
            let found = pairs.iter().map(|(sentence, expected)| {
                let found = way.divide(sentence);
                (sentence, expected, words(&found).collect::<Vec<_>>().join(" "))
            });
            let wrong = found.filter(|(_, expected, found)| *expected != found);
            let failures: Vec<String> = wrong
                .map(|(sentence, expected, found)| {
                    format!("{sentence:?}: expected {expected:?}, found {found:?}")
                })
                .collect();
            assert!(failures.is_empty(), "{}: {}", way.name(), failures.join("\n"));
        }
    }
}
