//! What is set and not supported is refused by file and field.

use cognate_generate::Settings;
use cognate_model::Preset;
use insta::assert_snapshot;

/// The settings of a model of 512 positions.
fn settings(generation: Option<&str>) -> cognate_generate::Result<Settings> {
    Settings::from_json("{}", generation, &Preset::Tiny.config())
}

fn refused(generation: &str) -> String {
    settings(Some(generation)).unwrap_err().to_string()
}

#[test]
fn messages() {
    assert_snapshot!(refused("{"), @"generation_config.json: no JSON object: EOF while parsing an object at line 1 column 1");
    assert_snapshot!(refused("[1]"), @"generation_config.json: no JSON object: invalid type: sequence, expected a map at line 1 column 0");
    assert_snapshot!(refused(r#"{"do_sample": true}"#), @"generation_config.json: do_sample true is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"no_repeat_ngram_size": 3}"#), @"generation_config.json: no_repeat_ngram_size 3 is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"num_beams": 0}"#), @"generation_config.json: num_beams 0 is not supported; expected a positive number");
    assert_snapshot!(refused(r#"{"bad_words_ids": [[3, 4]]}"#), @"generation_config.json: bad_words_ids [[3,4]] is not supported; expected a list of one-token lists");
    assert_snapshot!(refused(r#"{"early_stopping": 3}"#), @r#"generation_config.json: early_stopping 3 is not supported; expected false, true or "never""#);
}

#[test]
fn limits() {
    let limit = |generation: Option<&str>| settings(generation).unwrap().max_new_tokens;
    assert_eq!(limit(None), 512);
    assert_eq!(limit(Some("{}")), 512);
    assert_eq!(limit(Some(r#"{"max_length": 20}"#)), 19);
    assert_eq!(limit(Some(r#"{"max_length": 20, "max_new_tokens": 30}"#)), 30);
    assert_eq!(limit(Some(r#"{"max_new_tokens": 3000}"#)), 512);
    assert_eq!(limit(Some(r#"{"max_length": 1}"#)), 1);
}

#[test]
fn tokens_come_from_the_model_where_the_files_are_silent() {
    let found = settings(Some(r#"{"eos_token_id": [7, 8], "min_length": 5}"#)).unwrap();
    assert_eq!((found.start_token, found.eos_tokens.as_slice(), found.pad_token, found.min_new_tokens), (2, [7, 8].as_slice(), 2, 4));
}
