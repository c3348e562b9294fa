//! `--json` of `cognate translate` and `cognate generate`.

use cognate::{TranslatedText, Translation, Warning};
use cognate_text::Tokenizer;
use serde_json::{Value, json};

/// The line of JSON of sentence `number`.
pub(crate) fn line(number: usize, translation: &Translation, tokenizer: &Tokenizer) -> String {
    let hypotheses: Vec<_> =
        translation.hypotheses.iter().map(|found| hypothesis(found, tokenizer)).collect();
    let warnings: Vec<_> = translation.warnings.iter().map(|warning| name(*warning)).collect();
    json!({ "line": number, "text": translation.text, "hypotheses": hypotheses, "warnings": warnings }).to_string()
}

fn hypothesis(found: &TranslatedText, tokenizer: &Tokenizer) -> Value {
    let TranslatedText { text, hypothesis } = found;
    let tokens: Vec<_> = hypothesis
        .tokens
        .iter()
        .map(|&id| tokenizer.piece(id).unwrap_or_else(|| format!("<{id}>")))
        .collect();
    let mut line = json!({
        "text": text,
        "score": hypothesis.score,
        "complete": hypothesis.complete,
        "tokens": tokens,
        "ids": hypothesis.tokens,
    });
    let alignment = hypothesis.alignment.iter().enumerate();
    let alignment: Vec<_> = alignment.map(|(target, source)| [*source, target]).collect();
    if !alignment.is_empty() {
        line["alignment"] = json!(alignment);
    }
    line
}

fn name(warning: Warning) -> &'static str {
    match warning {
        Warning::Empty => "empty",
        Warning::TooLong { .. } => "too long",
        Warning::NoLanguage => "no language",
        Warning::Unfinished { .. } => "unfinished",
        _ => "other",
    }
}
