//! What is set and not supported is refused by file and field.

use cognate_generate::{EarlyStopping, Sampling, Settings};
use cognate_model::{Config, Preset};
use insta::assert_snapshot;
use serde_json::Value;

/// The settings of a model of 512 positions. A `generation_config.json` that is an object also
/// names the tokens to start and end with.
fn settings(generation: Option<&str>) -> cognate_generate::Result<Settings> {
    let tokens = r#"{"decoder_start_token_id": 2, "eos_token_id": 0, "pad_token_id": 2, "#;
    let with_tokens = generation.and_then(|text| text.strip_prefix('{')).map(|rest| {
        match rest.strip_prefix('}') {
            Some(after) => format!("{}}}{after}", tokens.trim_end_matches(", ")),
            None => format!("{tokens}{rest}"),
        }
    });
    Settings::from_json("{}", with_tokens.as_deref().or(generation), &Preset::Tiny.config())
}

fn refused(generation: &str) -> String {
    settings(Some(generation)).unwrap_err().to_string()
}

#[test]
fn messages() {
    assert_snapshot!(refused("{"), @"generation_config.json: expected a JSON object: EOF while parsing a value at line 1 column 68");
    assert_snapshot!(refused("[1]"), @"generation_config.json: expected a JSON object: invalid type: sequence, expected a map at line 1 column 0");
    assert_snapshot!(refused(r#"{"do_sample": "yes"}"#), @r#"generation_config.json: do_sample "yes" is not supported; expected true or false"#);
    assert_snapshot!(refused(r#"{"num_beam_groups": 2}"#), @"generation_config.json: num_beam_groups 2 is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"top_h": 0.4}"#), @"generation_config.json: top_h 0.4 is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"sequence_bias": [[[3], 1.5]]}"#), @"generation_config.json: sequence_bias [[[3],1.5]] is not supported; expected the default; leave it out");
    assert_snapshot!(refused(r#"{"repetition_penalty": 0}"#), @"generation_config.json: repetition_penalty 0 is not supported; expected a number from 1e-30 to 1e30");
    assert_snapshot!(refused(r#"{"repetition_penalty": 1e-40}"#), @"generation_config.json: repetition_penalty 1e-40 is not supported; expected a number from 1e-30 to 1e30");
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

/// `testdata/generation-config`: which of the two files transformers' `generate` follows, and what
/// it makes of null and absent fields.
#[test]
fn both_files_are_read_as_transformers_reads_them() {
    let path = cognate_testing::testdata("generation-config/cases.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 33);
    let mut failures = Vec::new();
    for case in &cases {
        let config = case["config"].to_string();
        let generation = Some(&case["generation"])
            .filter(|generation| !generation.is_null())
            .map(Value::to_string);
        let model = Config::from_json(&config).unwrap();
        let found = Settings::from_json(&config, generation.as_deref(), &model);
        let expected = &case["expected"];
        let differences = match (&found, expected.get("error")) {
            (Ok(found), None) => differences(found, expected),
            (Err(error), None) => vec![error.to_string()],
            (Ok(_), Some(error)) => vec![format!("accepted; transformers: {error}")],
            (Err(_), Some(_)) => Vec::new(),
        };
        failures.extend(
            differences
                .into_iter()
                .map(|difference| format!("{config} with {generation:?}: {difference}")),
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let missing =
        Settings::from_json("{}", Some("{}"), &Preset::Tiny.config()).unwrap_err().to_string();
    assert_snapshot!(missing, @"generation_config.json: decoder_start_token_id null is not supported; expected the id of the token that decoding starts from, here or as bos_token_id");
}

/// The fields in which settings differ from those that transformers goes by.
fn differences(found: &Settings, expected: &Value) -> Vec<String> {
    let tokens = |field: &str| -> Vec<i64> {
        serde_json::from_value(expected[field].clone()).unwrap_or_default()
    };
    let words: Vec<Vec<i64>> =
        serde_json::from_value(expected["bad_words_ids"].clone()).unwrap_or_default();
    let count = |field: &str| expected[field].as_u64().unwrap_or(0) as usize;
    let number = |field: &str, usual: f64| expected[field].as_f64().unwrap_or(usual) as f32;
    let stops = if expected["early_stopping"] == true {
        EarlyStopping::Full
    } else {
        EarlyStopping::Heuristic
    };
    let drawn =
        (expected["do_sample"] == true).then(|| (number("temperature", 1.0), count("top_k")));
    // `min_new_tokens` comes before `min_length` where both are set.
    let min_length = if count("min_new_tokens") > 0 { 0 } else { count("min_length") };
    let checks = [
        ("start token", Some(found.start_token) == expected["start_token"].as_i64()),
        ("pad token", expected["pad_token"].as_i64().is_none_or(|pad| pad == found.pad_token)),
        ("end tokens", found.eos_tokens == tokens("eos_token")),
        ("forced first token", found.forced_bos_token == expected["forced_bos_token_id"].as_i64()),
        ("forced last token", found.forced_eos_token == expected["forced_eos_token_id"].as_i64()),
        ("bad words", found.bad_words == words),
        ("suppressed tokens", found.suppressed_tokens == tokens("suppress_tokens")),
        (
            "suppressed first tokens",
            found.suppressed_first_tokens == tokens("begin_suppress_tokens"),
        ),
        ("beams", found.num_beams == count("num_beams").max(1)),
        ("length penalty", found.length_penalty == number("length_penalty", 1.0)),
        ("early stopping", found.early_stopping == stops),
        ("n-grams", found.no_repeat_ngram_size == count("no_repeat_ngram_size")),
        (
            "n-grams of the source",
            found.encoder_no_repeat_ngram_size == count("encoder_no_repeat_ngram_size"),
        ),
        ("repetition penalty", found.repetition_penalty == number("repetition_penalty", 1.0)),
        (
            "shortest",
            (found.min_length, found.min_new_tokens) == (min_length, count("min_new_tokens")),
        ),
        (
            "sampling",
            found.sampling.map(|sampling| (sampling.temperature, sampling.top_k)) == drawn,
        ),
        // 20 stands for no limit there.
        ("longest", count("max_length") == 20 || found.max_length == count("max_length")),
    ];
    checks
        .into_iter()
        .filter(|(_, is_equal)| !is_equal)
        .map(|(what, _)| format!("{what} of {found:?}"))
        .collect()
}

#[test]
fn lengths_in_new_tokens_come_before_lengths_in_all() {
    let lengths = |text| {
        settings(Some(text)).map(|found| {
            [found.min_length, found.min_new_tokens, found.max_length, found.max_new_tokens]
        })
    };
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
    assert_eq!(
        sampling(r#"{"do_sample": true, "temperature": 0.5, "top_k": 0, "top_p": 0.75}"#),
        Some(expected)
    );
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
    assert_snapshot!(contradiction(|settings| settings.repetition_penalty = f32::NAN), @"repetition_penalty: expected a number from 1e-30 to 1e30, found NaN");
    assert_snapshot!(contradiction(|settings| settings.sampling = Some(Sampling { temperature: 0.0, ..Sampling::default() })), @"temperature: expected a number from 1e-30 to 1e30, found 0");
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
