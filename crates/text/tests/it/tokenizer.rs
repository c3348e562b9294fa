//! The bundled model's tokenizer (`testdata/multi30k-en-de/README.md`) against Hugging Face's.

use std::fs;

use cognate_text::{ErrorKind, Tokenizer, read_lines};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::json;
use cognate_testing::testdata;

fn bundled() -> Tokenizer {
    Tokenizer::from_folder(testdata("multi30k-en-de")).unwrap()
}

/// Expected ids and texts: transformers 4.57.6, `tokenizer(text).input_ids` and
/// `tokenizer.decode(ids, skip_special_tokens=True)`.
#[rustfmt::skip]
const CASES: &[(&str, &[i64], &str)] = &[
    ("A man in an orange hat starring at something.", &[8, 20, 5, 30, 168, 93, 997, 33, 22, 43, 263, 3, 0], "A man in an orange hat starring at something."),
    ("", &[0], ""),
    ("   ", &[0], ""),
    ("a  b   c", &[4, 511, 501, 0], "a b c"),
    (" leading and trailing ", &[1807, 22, 21, 994, 22, 0], "leading and trailing"),
    ("Ein Fluß — „Größe“", &[10, 464, 1270, 1559, 27, 1, 703, 2066, 6703, 521, 0], "Ein Fluß  „Größe“"),
    ("ﬁne Ａ ²", &[1032, 996, 8, 698, 0], "fine A 2"),
    ("日本語 😀", &[27, 1, 27, 1, 0], " "),
    ("a</s>b <unk>", &[4, 0, 511, 1, 0], "a b"),
    ("▁a", &[4, 0], "a"),
    ("tab\tand\0nul\u{200b}zw", &[2934, 195, 21, 1, 16, 760, 568, 196, 0], "tab andnul zw"),
    ("line\nbreak", &[423, 1327, 0], "line break"),
    ("Don't stop, 3.14 and 1,000!", &[2010, 16, 1768, 44, 1172, 11, 1053, 3, 4346, 3818, 21, 2583, 11, 2399, 5328, 2077, 0], "Don't stop, 3.14 and 1,000!"),
];

#[test]
fn ids_and_texts_are_those_of_transformers() {
    let tokenizer = bundled();
    let failures: Vec<String> = CASES
        .iter()
        .filter_map(|(text, ids, decoded)| {
            let found = (tokenizer.encode(text).unwrap(), tokenizer.decode(ids).unwrap());
            let expected = (ids.to_vec(), decoded.to_string());
            (found != expected).then(|| format!("{text:?}: expected {expected:?}, found {found:?}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_greedy_ids_decode_to_the_greedy_translations() {
    let tokenizer = bundled();
    let ids: Vec<Vec<i64>> = json("multi30k-en-de/reference/test_2016_flickr.greedy.ids.json");
    let texts =
        read_lines(testdata("multi30k-en-de/reference/test_2016_flickr.greedy.de")).unwrap();
    assert_eq!((ids.len(), texts.len()), (1000, 1000));
    let failures: Vec<String> = ids
        .iter()
        .zip(&texts)
        .enumerate()
        .map(|(index, (ids, text))| (index + 1, text, tokenizer.decode(ids).unwrap()))
        .filter(|(_, text, decoded)| *text != decoded)
        .map(|(line, text, decoded)| format!("line {line}: expected {text:?}, found {decoded:?}"))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn pieces_and_ids_meet() {
    let tokenizer = bundled();
    assert_eq!(tokenizer.vocab_size(), 8000);
    let specials = ["</s>", "<unk>", "<pad>"].map(|piece| tokenizer.id(piece));
    assert_eq!(specials, [Some(0), Some(1), Some(2)]);
    for id in 0..8000 {
        let piece = tokenizer.piece(id).unwrap();
        assert_eq!(tokenizer.id(&piece), Some(id), "{piece:?}");
    }
    assert_eq!([-1, 8000, i64::MAX, i64::MIN].map(|id| tokenizer.piece(id)), [const { None }; 4]);
    assert_eq!(tokenizer.id("no such piece"), None);
}

#[test]
fn ids_past_the_vocabulary_are_left_out_and_negative_ids_refused() {
    let tokenizer = bundled();
    assert_eq!(tokenizer.decode(&[3, 9999, 10, 1 << 40]).unwrap(), ". Ein");
    let error = tokenizer.decode(&[10, -100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let message = error.to_string();
    let (_, message) = message.split_once("multi30k-en-de/").unwrap();
    assert_snapshot!(message, @"tokenizer.json: id -100 at position 1 is negative; expected ids of at least 0");
}

/// A copy of the bundled tokenizer with changes to its JSON.
fn changed(change: impl FnOnce(&mut Value)) -> (tempfile::TempDir, Tokenizer) {
    let mut tokenizer: Value = json("multi30k-en-de/tokenizer.json");
    change(&mut tokenizer);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    (folder, tokenizer)
}

#[test]
fn padding_and_truncation_of_the_file_do_not_touch_ids() {
    let (_folder, tokenizer) = changed(|json| {
        json["padding"] = json!({
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 2, "pad_type_id": 0, "pad_token": "<pad>",
        });
        json["truncation"] =
            json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    });
    let (text, ids, _) = CASES[0];
    assert_eq!(tokenizer.encode(text).unwrap(), ids);
}

#[test]
fn a_character_without_a_piece_is_an_error_where_there_is_no_unk() {
    let (_folder, tokenizer) = changed(|json| json["model"]["unk_id"] = Value::Null);
    assert_eq!(tokenizer.encode("A man").unwrap(), [8, 20, 0]);
    let error = tokenizer.encode(&"日".repeat(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tokenizer);
    let message = error.to_string();
    let (_, message) = message.split_once("tokenizer.json").unwrap();
    assert_snapshot!(message, @r#": the tokenizers library cannot encode "日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日...": Encountered an unknown token but `unk_id` is missing"#);
}

#[test]
fn a_folders_config_decides_on_spaces_before_punctuation() {
    let (folder, plain) = changed(|_| ());
    let ids = plain.encode("a , b .").unwrap();
    assert_eq!(plain.decode(&ids).unwrap(), "a , b .");
    let texts = [(json!({}), "a , b ."), (json!({"clean_up_tokenization_spaces": true}), "a, b.")];
    for (config, text) in texts {
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{config}");
    }
}

#[test]
fn a_tokenizer_json_of_marian_says_the_target_language_first() {
    let (folder, _) = changed(|json| {
        let mut token = json["added_tokens"][0].clone();
        (token["id"], token["content"]) = (json!(8000), json!(">>deu<<"));
        json["added_tokens"].as_array_mut().unwrap().push(token);
    });
    fs::write(
        folder.path().join("tokenizer_config.json"),
        r#"{"tokenizer_class": "MarianTokenizer"}"#,
    )
    .unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.languages(), ["deu"]);
    assert_eq!(tokenizer.required_vocab(), 8001);
    assert_eq!(tokenizer.encode("A man").unwrap(), [8, 20, 0]);
    for code in ["deu", ">>deu<<"] {
        let tokenizer = tokenizer.clone().with_languages(None, Some(code)).unwrap();
        assert_eq!(tokenizer.encode("A man").unwrap(), [8000, 8, 20, 0], "{code}");
        assert_eq!(tokenizer.target_language(), None);
    }
}

/// ByT5 has no files of pieces; ids and texts of transformers 4.57.6, `ByT5Tokenizer`.
#[test]
fn bytes_are_pieces() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("tokenizer_config.json"),
        r#"{"tokenizer_class": "ByT5Tokenizer"}"#,
    )
    .unwrap();
    assert!(Tokenizer::is_in(folder.path()));
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.required_vocab()), (384, 384));
    for (text, ids, decoded) in [
        ("", &[1][..], ""),
        (
            "Café 猫🙂",
            &[70, 100, 105, 198, 172, 35, 234, 143, 174, 243, 162, 156, 133, 1],
            "Café 猫🙂",
        ),
        ("a</s>b <extra_id_0> c", &[100, 1, 101, 35, 259, 35, 102, 1], "ab  c"),
        (
            " two  spaces\t",
            &[35, 119, 122, 114, 35, 35, 118, 115, 100, 102, 104, 118, 12, 1],
            " two  spaces\t",
        ),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids).unwrap(), decoded, "{text:?}");
    }
    // Bytes that are no characters are left out.
    for (ids, decoded) in
        [(&[200, 198, 1][..], ""), (&[234, 143, 100, 259], "a"), (&[260, 70, 300], "C")]
    {
        assert_eq!(tokenizer.decode(ids).unwrap(), decoded, "{ids:?}");
    }
}

/// MADLAD's target language is the first piece of a sentence; ids of transformers 4.57.6,
/// `T5TokenizerFast`.
#[test]
fn the_target_language_of_madlad_is_a_piece() {
    let added = |id: usize, content: &str| json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": id < 3 });
    let pieces = ["<unk>", "<pad>", "</s>", "<2de>", "<2zh_Hant>", "▁", "▁a", "b", "c"];
    let spaces = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let end = json!({ "</s>": { "id": "</s>", "ids": [2], "tokens": ["</s>"] } });
    let [text, both] = ["A", "B"].map(|id| json!({ "Sequence": { "id": id, "type_id": 0 } }));
    let single = json!([text, { "SpecialToken": { "id": "</s>", "type_id": 0 } }]);
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": spaces, "decoder": spaces,
        "added_tokens": (0..5).map(|id| added(id, pieces[id])).collect::<Vec<_>>(),
        "post_processor": { "type": "TemplateProcessing", "single": single, "pair": [text, both], "special_tokens": end },
        "model": { "type": "Unigram", "unk_id": 0, "vocab": pieces.map(|piece| json!([piece, -2.0])), "byte_fallback": false }
    });
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    fs::write(folder.path().join("tokenizer_config.json"), r#"{"tokenizer_class": "T5Tokenizer"}"#)
        .unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.languages(), ["de", "zh_Hant"]);
    assert_eq!(tokenizer.encode("<2de> abc").unwrap(), [3, 6, 7, 8, 2]);
    for code in ["de", "<2de>"] {
        let chosen = tokenizer.clone().with_languages(None, Some(code)).unwrap();
        assert_eq!(chosen.encode("abc").unwrap(), [3, 6, 7, 8, 2], "{code}");
    }
}
