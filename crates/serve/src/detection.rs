//! The language of a text, among those of the models.

use isolang::Language;
use whatlang::{Detector, Lang};

/// The language of a code such as `en`, `en_XX` or `eng_Latn`.
pub(crate) fn language(code: &str) -> Option<Language> {
    let short = code.split(['_', '-']).next().unwrap_or(code);
    Language::from_639_1(short).or_else(|| Language::from_639_3(short))
}

/// The English name of a code's language; the code itself if it is unknown.
pub(crate) fn name(code: &str) -> String {
    language(code).map_or_else(|| code.to_owned(), |language| language.to_name().to_owned())
}

/// The most likely of these codes, and a confidence from 0 to 100. `None` if none of the languages
/// can be recognised.
pub(crate) fn detect<'c>(text: &str, codes: &'c [String]) -> Option<(&'c str, f64)> {
    let known =
        |code: &'c String| Some((code.as_str(), Lang::from_code(language(code)?.to_639_3())?));
    let known: Vec<_> = codes.iter().filter_map(known).collect();
    let (first, _) = *known.first()?;
    let detector = Detector::with_allowlist(known.iter().map(|(_, lang)| *lang).collect());
    let Some(info) = detector.detect(text) else { return Some((first, 0.0)) };
    let found = known.iter().find(|(_, lang)| *lang == info.lang()).map_or(first, |(code, _)| code);
    Some((found, info.confidence() * 100.0))
}
