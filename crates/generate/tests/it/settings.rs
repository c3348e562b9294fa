//! What is set and not supported is refused by file and field.

use cognate_generate::{Sampling, Settings};
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
    assert_snapshot!(refused(r#"{"do_sample": "yes"}"#), @r#"generation_config.json: do_sample "yes" is not supported; expected true or false"#);
    assert_snapshot!(refused(r#"{"num_beam_groups": 2}"#), @"generation_config.json: num_beam_groups 2 is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"sequence_bias": [[[3], 1.5]]}"#), @"generation_config.json: sequence_bias [[[3],1.5]] is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"repetition_penalty": 0}"#), @"generation_config.json: repetition_penalty 0 is not supported; expected a number above 0");
    assert_snapshot!(refused(r#"{"do_sample": true, "top_p": 1.5}"#), @"generation_config.json: top_p 1.5 is not supported; expected a number from 0 to 1");
    assert_snapshot!(refused(r#"{"num_beams": 0}"#), @"generation_config.json: num_beams 0 is not supported; expected a number from 1 to 1024");
    assert_snapshot!(refused(r#"{"num_beams": 1000000000}"#), @"generation_config.json: num_beams 1000000000 is not supported; expected a number from 1 to 1024");
    assert_snapshot!(refused(r#"{"decoder_start_token_id": 8000}"#), @"generation_config.json: decoder_start_token_id 8000 is not supported; expected the id of a token that the model has");
    assert_snapshot!(refused(r#"{"bad_words_ids": [[3, 4], []]}"#), @"generation_config.json: bad_words_ids [[3,4],[]] is not supported; expected a list of lists of token ids");
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
    let found = settings(Some(r#"{"eos_token_id": [7, 8]}"#)).unwrap();
    assert_eq!((found.start_token, found.eos_tokens.as_slice(), found.pad_token), (2, [7, 8].as_slice(), 2));
}

#[test]
fn lengths_in_new_tokens_come_before_lengths_in_all() {
    let lengths = |text| settings(Some(text)).map(|found| [found.min_length, found.min_new_tokens, found.max_length, found.max_new_tokens]);
    assert_eq!(lengths(r#"{"min_length": 5, "max_length": 20}"#).unwrap(), [5, 0, 20, 19]);
    assert_eq!(lengths(r#"{"min_length": 5, "min_new_tokens": 3}"#).unwrap(), [0, 3, 513, 512]);
    assert_eq!(lengths(r#"{"max_length": 20, "max_new_tokens": 30}"#).unwrap(), [0, 0, 513, 30]);
}

#[test]
fn drawing_has_transformers_defaults_and_means_nothing_unless_it_is_asked_for() {
    let sampling = |text| settings(Some(text)).unwrap().sampling;
    assert_eq!(sampling(r#"{"temperature": 0, "top_k": 3}"#), None);
    assert_eq!(sampling(r#"{"do_sample": true}"#), Some(Sampling::default()));
    let expected = Sampling { temperature: 0.5, top_k: 0, top_p: 0.75, ..Sampling::default() };
    assert_eq!(sampling(r#"{"do_sample": true, "temperature": 0.5, "top_k": 0, "top_p": 0.75}"#), Some(expected));
}

#[test]
fn what_contradicts_itself_is_refused() {
    let contradiction = |change: fn(&mut Settings)| {
        let mut settings = settings(None).unwrap();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    assert_snapshot!(contradiction(|settings| settings.num_return_sequences = 2), @"num_return_sequences: expected at most 1, the beams, found 2; search with more beams, or sample with one");
    assert_snapshot!(contradiction(|settings| (settings.num_beams, settings.sampling, settings.num_return_sequences) = (4, Some(Sampling::default()), 5)), @"num_return_sequences: expected at most 4, the beams, found 5; search with more beams, or sample with one");
    assert_snapshot!(contradiction(|settings| settings.repetition_penalty = f32::NAN), @"repetition_penalty: expected a number above 0, found NaN");
    assert_snapshot!(contradiction(|settings| settings.sampling = Some(Sampling { temperature: 0.0, ..Sampling::default() })), @"temperature: expected a number above 0, found 0");
    assert_snapshot!(contradiction(|settings| settings.sampling = Some(Sampling { min_p: 2.0, ..Sampling::default() })), @"min_p: expected a number from 0 to 1, found 2");
}

#[test]
fn fuzz_generation_config() {
    let seeds = [
        r#"{"num_beams": 4, "max_length": 20, "bad_words_ids": [[3, 4]], "eos_token_id": [0, 7], "early_stopping": true}"#,
        r#"{"do_sample": true, "temperature": 0.5, "top_k": 3, "num_return_sequences": 2, "forced_bos_token_id": 5}"#,
    ];
    let seeds = seeds.map(|text| text.as_bytes().to_vec());
    cognate_testing::never_panics("generation_config", &seeds, 2000, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes)
            && let Ok(settings) = settings(Some(text))
        {
            let _ = settings.check();
        }
    });
}
