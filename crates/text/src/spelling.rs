//! The forms in which transcripts are compared: the normalisers of Whisper (Radford et al. 2022,
//! appendix C).

mod english;
mod numbers;

use regex::{Regex, Replacer};
use std::sync::LazyLock;
use tokenizers::normalizers::unicode::NFKC;
use tokenizers::{NormalizedString, Normalizer as _};

/// The form in which texts are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// Unchanged.
    #[default]
    Given,
    /// By the basic normaliser of Whisper: lower case, without words in brackets, marks, symbols
    /// and punctuation.
    Basic,
    /// By the English normaliser of Whisper: also numbers in digits, contractions written out, and
    /// American spelling.
    English,
}

impl Spelling {
    /// The text in this form.
    ///
    /// ```
    /// use cognate_text::Spelling;
    /// assert_eq!(Spelling::Basic.apply("[noise] Don't (um) stop -- CAFÉ!"), " don t stop café ");
    /// assert_eq!(Spelling::English.apply("Um, Mr. Grey paid twenty-one dollars."), "mister gray paid $21");
    /// ```
    pub fn apply(self, text: &str) -> String {
        match self {
            Self::Given => text.to_owned(),
            Self::Basic => basic(text),
            Self::English => english::normalize(text),
        }
    }

    /// The name in a signature.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Given => "none",
            Self::Basic => "basic",
            Self::English => "english",
        }
    }
}

/// A pattern and its replacement.
struct Rule(Regex, &'static str);

impl Rule {
    fn new(pattern: &str, replacement: &'static str) -> Self {
        Self(Regex::new(pattern).expect("a valid pattern"), replacement)
    }

    fn apply(&self, text: &mut String) {
        replace(&self.0, text, self.1);
    }
}

/// Replaces all matches in place; a text without a match is not copied.
fn replace(pattern: &Regex, text: &mut String, replacement: impl Replacer) {
    if let std::borrow::Cow::Owned(changed) = pattern.replace_all(text, replacement) {
        *text = changed;
    }
}

/// Lower case, without words in brackets.
fn without_asides(text: &str) -> String {
    static ASIDES: LazyLock<[Rule; 2]> =
        LazyLock::new(|| [Rule::new(r"[<\[][^>\]]*[>\]]", ""), Rule::new(r"\(([^)]+?)\)", "")]);
    let mut text = text.to_lowercase();
    ASIDES.iter().for_each(|rule| rule.apply(&mut text));
    text
}

/// One space for each run of white space.
fn collapse(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_whitespace() {
            spaced.push(c);
        } else if !spaced.ends_with(' ') {
            spaced.push(' ');
        }
    }
    spaced
}

fn basic(text: &str) -> String {
    static MARKS: LazyLock<Rule> = LazyLock::new(|| Rule::new(r"[\p{M}\p{S}\p{P}]", " "));
    let mut normalized = NormalizedString::from(without_asides(text));
    NFKC.normalize(&mut normalized).expect("normal forms never fail");
    let mut text = normalized.get().to_owned();
    MARKS.apply(&mut text);
    collapse(&text.to_lowercase())
}
