//! The English normaliser of Whisper. The order of rules matters.

use super::{Rule, collapse, numbers, without_asides};
use std::collections::HashMap;
use std::sync::LazyLock;
use tokenizers::normalizers::unicode::NFKD;
use tokenizers::{NormalizedString, Normalizer as _};

/// British words with their American spellings, the table of OpenAI's `whisper` (MIT, see
/// `spellings.LICENSE`).
static SPELLINGS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("spellings.json"))
        .expect("the table is a JSON object of strings")
});

/// Hesitations, contractions and titles; endings come after whole words.
const CONTRACTIONS: [(&str, &str); 51] = [
    (r"\b(hmm|mm|mhm|mmm|uh|um)\b", ""),
    (r"\s+'", "'"),
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\blet's\b", "let us"),
    (r"\bain't\b", "aint"),
    (r"\by'all\b", "you all"),
    (r"\bwanna\b", "want to"),
    (r"\bgotta\b", "got to"),
    (r"\bgonna\b", "going to"),
    (r"\bi'ma\b", "i am going to"),
    (r"\bimma\b", "i am going to"),
    (r"\bwoulda\b", "would have"),
    (r"\bcoulda\b", "could have"),
    (r"\bshoulda\b", "should have"),
    (r"\bma'am\b", "madam"),
    (r"\bmr\b", "mister "),
    (r"\bmrs\b", "missus "),
    (r"\bst\b", "saint "),
    (r"\bdr\b", "doctor "),
    (r"\bprof\b", "professor "),
    (r"\bcapt\b", "captain "),
    (r"\bgov\b", "governor "),
    (r"\bald\b", "alderman "),
    (r"\bgen\b", "general "),
    (r"\bsen\b", "senator "),
    (r"\brep\b", "representative "),
    (r"\bpres\b", "president "),
    (r"\brev\b", "reverend "),
    (r"\bhon\b", "honorable "),
    (r"\basst\b", "assistant "),
    (r"\bassoc\b", "associate "),
    (r"\blt\b", "lieutenant "),
    (r"\bcol\b", "colonel "),
    (r"\bjr\b", "junior "),
    (r"\bsr\b", "senior "),
    (r"\besq\b", "esquire "),
    (r"'d been\b", " had been"),
    (r"'s been\b", " has been"),
    (r"'d gone\b", " had gone"),
    (r"'s gone\b", " has gone"),
    (r"'d done\b", " had done"),
    (r"'s got\b", " has got"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'s\b", " is"),
    (r"'d\b", " would"),
    (r"'ll\b", " will"),
    (r"'t\b", " not"),
    (r"'ve\b", " have"),
    (r"'m\b", " am"),
];

/// Letters that normal form D does not decompose.
const LETTERS: [(char, &str); 16] = [
    ('œ', "oe"),
    ('Œ', "OE"),
    ('ø', "o"),
    ('Ø', "O"),
    ('æ', "ae"),
    ('Æ', "AE"),
    ('ß', "ss"),
    ('ẞ', "SS"),
    ('đ', "d"),
    ('Đ', "D"),
    ('ð', "d"),
    ('Ð', "D"),
    ('þ', "th"),
    ('Þ', "th"),
    ('ł', "l"),
    ('Ł', "L"),
];

pub(super) fn normalize(text: &str) -> String {
    static FIRST: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        let points = [(r"([0-9]),([0-9])", "$1$2"), (r"\.([^0-9]|$)", " $1")];
        CONTRACTIONS
            .into_iter()
            .chain(points)
            .map(|(pattern, replacement)| Rule::new(pattern, replacement))
            .collect()
    });
    static LAST: LazyLock<[Rule; 2]> =
        LazyLock::new(|| [Rule::new(r"[.$¢€£]([^0-9])", " $1"), Rule::new(r"([^0-9])%", "$1 ")]);
    let mut text = without_asides(text);
    FIRST.iter().for_each(|rule| rule.apply(&mut text));
    let words = numbers::in_digits(&without_symbols(&text));
    let words: Vec<&str> =
        words.split_whitespace().map(|word| SPELLINGS.get(word).copied().unwrap_or(word)).collect();
    let mut text = words.join(" ");
    LAST.iter().for_each(|rule| rule.apply(&mut text));
    collapse(&text)
}

/// Replaces marks, symbols and punctuation that are not part of numbers by spaces, and letters by
/// those without diacritics.
fn without_symbols(text: &str) -> String {
    static MARKS: LazyLock<[Rule; 2]> = LazyLock::new(|| {
        [Rule::new(r"\p{Mn}", ""), Rule::new(r"[[\p{M}\p{S}\p{P}]--[.%$¢€£]]", " ")]
    });
    let mut normalized = NormalizedString::from(text);
    NFKD.normalize(&mut normalized).expect("normal forms never fail");
    let mut text = String::with_capacity(text.len());
    for c in normalized.get().chars() {
        match LETTERS.iter().find(|(letter, _)| *letter == c) {
            Some((_, letters)) => text.push_str(letters),
            None => text.push(c),
        }
    }
    MARKS.iter().for_each(|rule| rule.apply(&mut text));
    text
}
