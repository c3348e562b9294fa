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

/// The most likely of these codes, and a confidence from 0 to 100, which is 0 for a text of another
/// language. `None` if none of the languages can be recognised.
pub(crate) fn detect<'c>(text: &str, codes: &'c [String]) -> Option<(&'c str, f64)> {
    let known =
        |code: &'c String| Some((code.as_str(), Lang::from_code(language(code)?.to_639_3())?));
    let known: Vec<_> = codes.iter().filter_map(known).collect();
    let (first, _) = *known.first()?;
    let detector = Detector::with_allowlist(known.iter().map(|(_, lang)| *lang).collect());
    let Some(info) = detector.detect(text) else { return Some((first, 0.0)) };
    let found = known.iter().find(|(_, lang)| *lang == info.lang()).map_or(first, |(code, _)| code);
    let is_other = whatlang::detect_lang(text)
        .is_some_and(|lang| known.iter().all(|(_, known)| *known != lang));
    Some((found, if is_other { 0.0 } else { info.confidence() * 100.0 }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_all_tokenizers_have_names() {
        let codes = ["en", "en_XX", "eng_Latn", "deu", "zh-CN", "tlh", "klingon", ""];
        let names =
            ["English", "English", "English", "German", "Chinese", "Klingon", "klingon", ""];
        assert_eq!(codes.map(name), names);
    }

    #[test]
    fn languages_are_detected_among_the_codes() {
        let codes =
            |codes: &[&str]| codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>();
        let european = codes(&["tlh", "fra_Latn", "en_XX", "de"]);
        for (text, expected) in [
            ("Two dogs are playing in the snow with their owner.", "en_XX"),
            ("Zwei Hunde spielen mit ihrem Besitzer im Schnee.", "de"),
            ("Deux chiens jouent dans la neige avec leur maître.", "fra_Latn"),
        ] {
            let (code, confidence) = detect(text, &european).unwrap();
            assert!(code == expected && (1.0..=100.0).contains(&confidence), "{code} {confidence}");
        }
        let english = codes(&["en"]);
        assert_eq!(detect("Zwei Hunde spielen mit ihrem Besitzer.", &english), Some(("en", 0.0)));
        assert_eq!(detect("Two dogs are playing in the snow.", &english), Some(("en", 100.0)));
        // Without letters the first known language, of which nothing speaks.
        assert_eq!(detect("12 + 3", &european), Some(("fra_Latn", 0.0)));
        assert_eq!(detect("Two dogs", &codes(&["tlh", "klingon"])), None);
        assert_eq!(detect("Two dogs", &[]), None);
    }
}
