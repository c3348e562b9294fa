//! A tokenizer as two SentencePiece models, for programs that have SentencePiece but not the
//! tokenizers library.
//!
//! A unigram model of the library and one of SentencePiece split a text in the same way if spaces
//! are single and words are separate, except for sequences of combining characters
//! (`normal_forms`). Special tokens that are spelt out in a text remain text.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;
use serde_json::Value;
use tokenizers::NormalizedString;
use tokenizers::Normalizer as _;
use tokenizers::normalizers::NormalizerWrapper;

use crate::error::{Cause, Result};
use crate::library;
use crate::normal_forms;
use crate::sentencepiece::{self, Kind, Model, Piece, SPACE};
use crate::tokenizer::{Engine, Spaces, Tokenizer};

/// A tokenizer as SentencePiece models and tables.
#[derive(Clone, Debug)]
pub struct PieceModels {
    /// The file of the model that splits texts of the source language.
    pub source: Vec<u8>,
    /// The ids of its pieces.
    pub source_ids: Vec<i64>,
    /// The special tokens before a text.
    pub prefix: Vec<i64>,
    /// The special tokens after a text.
    pub suffix: Vec<i64>,
    /// The file of the model that joins pieces of the target language.
    pub target: Vec<u8>,
    /// Its piece for each id; `None` for ids that are not shown in texts.
    pub target_pieces: Vec<Option<u32>>,
}

/// The reason why a tokenizer has no such models.
type Refusal<T> = std::result::Result<T, String>;

impl Tokenizer {
    /// The tokenizer, with its source language, as SentencePiece models.
    ///
    /// Fails, with the reason, if these would split or join texts differently.
    pub fn piece_models(&self) -> Result<PieceModels> {
        let refused = |reason| Cause::NoPieceModels { file: self.file.clone(), reason };
        let (source, source_ids) =
            source(&read(&self.engine).map_err(refused)?).map_err(refused)?;
        let (target, target_pieces) = self.target_models().map_err(refused)?;
        if self.spaces == Spaces::CleanUp {
            Err(refused(
                "it removes spaces before punctuation (clean_up_tokenization_spaces)".to_owned(),
            ))?;
        }
        // The ids of any word; the ids of the word itself are those of a target without special
        // tokens.
        let (whole, own) = (
            self.encode("a")?,
            Tokenizer { target_engine: None, ..self.clone() }.encode_target("a")?,
        );
        let start = whole.windows(own.len().max(1)).position(|ids| ids == own);
        let start =
            start.ok_or_else(|| refused("its template does not contain the text".to_owned()))?;
        let (prefix, suffix) = (whole[..start].to_vec(), whole[start + own.len()..].to_vec());
        Ok(PieceModels { source, source_ids, prefix, suffix, target, target_pieces })
    }

    fn target_models(&self) -> Refusal<(Vec<u8>, Vec<Option<u32>>)> {
        let json = read(self.target_engine())?;
        let decoder = &json["decoder"];
        if !is_metaspace(decoder) {
            return Err(format!("its decoder is {}, expected Metaspace", name(decoder)));
        }
        let special = specials(&json)?;
        let pieces = (0..self.target_vocab())
            .map(|id| self.piece(id as i64).filter(|piece| !special.contains(piece)));
        let pieces: Vec<Option<String>> = pieces.collect();
        if let Some(piece) =
            pieces.iter().flatten().find(|piece| piece.chars().skip(1).any(|char| char == SPACE))
        {
            return Err(format!(
                "its piece {piece:?} contains {SPACE} after its first character, which decoding removes at the start"
            ));
        }
        let mut unknown = "<unk>".to_owned();
        while pieces.iter().flatten().any(|piece| *piece == unknown) {
            unknown.push('>');
        }
        let mut all = vec![Piece::new(unknown, 0.0, Kind::Unknown)];
        let table = pieces.into_iter().map(|piece| {
            all.push(Piece::new(piece?, 0.0, Kind::Normal));
            Some(all.len() as u32 - 1)
        });
        let table = table.collect();
        Ok((file(Model::unigram(all, Vec::new(), false))?, table))
    }
}

/// The `tokenizer.json` of a tokenizer.
fn read(engine: &Engine) -> Refusal<Value> {
    let Engine::Library(library) = engine else {
        return Err(
            "transformers runs this family piece by piece, without a tokenizer.json".to_owned()
        );
    };
    let text = library.to_string(false).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The model that splits texts, and the ids of its pieces.
fn source(json: &Value) -> Refusal<(Vec<u8>, Vec<i64>)> {
    let model = &json["model"];
    let unknown = model["unk_id"].as_u64();
    let (Some("Unigram"), Some(vocabulary), Some(unknown)) =
        (model["type"].as_str(), model["vocab"].as_array(), unknown)
    else {
        return Err(format!(
            "its model is {}, expected Unigram with an unknown piece",
            name(model)
        ));
    };
    if model["byte_fallback"] == true {
        return Err("its model falls back to bytes".to_owned());
    }
    let charsmap = charsmap(json)?;
    let special = specials(json)?;
    let mut pieces = Vec::with_capacity(vocabulary.len() + 1);
    for (id, entry) in (0..).zip(vocabulary) {
        let (text, score) =
            (entry[0].as_str().unwrap_or_default(), entry[1].as_f64().unwrap_or_default());
        let kind = match text {
            _ if id == unknown => Kind::Unknown,
            _ if special.contains(text) => Kind::Control,
            // Words are split before.
            _ if text.chars().skip(1).any(|char| char == SPACE) => Kind::Unused,
            _ => Kind::Normal,
        };
        pieces.push(Piece::new(text.to_owned(), score as f32, kind));
    }
    let mut ids: Vec<i64> = (0..pieces.len() as i64).collect();
    // The unknown piece's score is derived from the lowest score of all pieces in the library, and
    // from that of normal pieces in SentencePiece.
    let least = |pieces: &mut dyn Iterator<Item = &Piece>| {
        pieces.map(|piece| piece.score).fold(f32::INFINITY, f32::min)
    };
    let of_all = least(&mut pieces.iter());
    if of_all < least(&mut pieces.iter().filter(|piece| piece.is(Kind::Normal))) {
        // No text contains it.
        pieces.push(Piece::new('\u{10FFFF}'.to_string(), of_all, Kind::Normal));
        ids.push(unknown as i64);
    }
    Ok((file(Model::unigram(pieces, charsmap, true))?, ids))
}

/// The character map of a normalizer, if it and the splitting of words leave only single spaces.
fn charsmap(json: &Value) -> Refusal<Vec<u8>> {
    let before = steps(&json["pre_tokenizer"], "pretokenizers");
    let splits = match before[..] {
        [metaspace] if is_metaspace(metaspace) => false,
        [first, metaspace] if name(first) == "WhitespaceSplit" && is_metaspace(metaspace) => true,
        _ => {
            return Err(
                "its pre-tokenizer is not Metaspace that adds a space before each text".to_owned()
            );
        }
    };
    let (mut strips, mut collapses) = (splits, splits);
    let mut characters = Vec::new();
    for step in steps(&json["normalizer"], "normalizers") {
        match name(step) {
            "Precompiled" | "Nmt" | "NFKC" if !strips && !collapses || splits => {
                characters.push(step)
            }
            "Strip" if step["strip_right"] == true => strips = true,
            "Replace"
                if step["pattern"]["Regex"] == " {2,}"
                    && (step["content"] == " " || strips && step["content"] == "▁") =>
            {
                collapses = true;
            }
            other => {
                return Err(format!("its normalizer {other} has no counterpart in SentencePiece"));
            }
        }
    }
    if !strips || !collapses {
        return Err("it keeps repeated spaces, or those at the end".to_owned());
    }
    match characters[..] {
        [] => Ok(Vec::new()),
        [step] if name(step) == "Precompiled" => {
            let text = step["precompiled_charsmap"].as_str().unwrap_or_default();
            BASE64_STANDARD
                .decode(text)
                .map_err(|error| format!("its precompiled_charsmap: {error}"))
        }
        _ if characters.iter().any(|step| name(step) == "Precompiled") => {
            Err("it has several normalizers of characters".to_owned())
        }
        _ => {
            let normalizers: Vec<NormalizerWrapper> = characters
                .into_iter()
                .map(|step| library::normalizer(step).map_err(|error| error.to_string()))
                .collect::<Refusal<_>>()?;
            sentencepiece::compile(&normal_forms::rules(&|text| {
                let mut text = NormalizedString::from(text);
                for normalizer in &normalizers {
                    normalizer.normalize(&mut text).expect("normal forms never fail");
                }
                text.get().to_owned()
            }))
        }
    }
}

/// The special tokens; added tokens that are not special are rejected.
fn specials(json: &Value) -> Refusal<HashSet<String>> {
    let tokens = json["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |token: &Value| token["content"].as_str().unwrap_or_default().to_owned();
    if let Some(token) = tokens.iter().find(|token| token["special"] != true) {
        return Err(format!("its added token {:?} is not special", text(token)));
    }
    Ok(tokens.iter().map(text).collect())
}

/// A file, checked as when a model is read.
fn file(model: Model) -> Refusal<Vec<u8>> {
    let bytes = model.encode_to_vec();
    Model::parse("the model", &bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn is_metaspace(step: &Value) -> bool {
    let splits = step["split"] == true || step["split"].is_null();
    name(step) == "Metaspace"
        && step["replacement"] == "▁"
        && step["prepend_scheme"] != "never"
        && splits
}

/// A step, or the steps of a sequence.
fn steps<'a>(step: &'a Value, field: &str) -> Vec<&'a Value> {
    match step[field].as_array() {
        Some(steps) => steps.iter().collect(),
        None if step.is_null() => Vec::new(),
        None => vec![step],
    }
}

fn name(step: &Value) -> &str {
    step["type"].as_str().unwrap_or("missing")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::fs;

    use cognate_testing::{shared_multi30k, testdata};
    use insta::assert_snapshot;

    use super::*;
    use crate::sentencepiece::SentencePiece;

    /// A family of `testdata/tokenizers`, or the bundled tokenizer.
    fn tokenizer(name: &str) -> Tokenizer {
        if name == "multi30k" {
            return Tokenizer::from_folder(testdata("multi30k-en-de")).unwrap();
        }
        let cases: Value =
            serde_json::from_slice(&fs::read(testdata("tokenizers/cases.json")).unwrap()).unwrap();
        let case =
            cases["cases"].as_array().unwrap().iter().find(|case| case["name"] == name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (file, parts) in case["files"].as_object().unwrap() {
            let parts = parts
                .as_array()
                .unwrap()
                .iter()
                .map(|part| testdata("tokenizers/models").join(part.as_str().unwrap()));
            fs::write(
                folder.path().join(file),
                parts.flat_map(|part| fs::read(part).unwrap()).collect::<Vec<_>>(),
            )
            .unwrap();
        }
        for (file, json) in case["json"].as_object().unwrap() {
            fs::write(folder.path().join(file), json.to_string()).unwrap();
        }
        Tokenizer::from_folder(folder.path()).unwrap()
    }

    #[test]
    fn models_split_and_join_as_the_tokenizer() {
        let texts = [
            "",
            " ",
            "A man in an orange hat.",
            "  Two   spaces,\ta tab and a line\nbreak  ",
            "\u{FF26}\u{FF35}\u{FF2C}\u{FF2C} \u{FB01}ne \u{2026} \u{AB}x\u{BB}",
            "e\u{301}te\u{301} a\u{302}\u{301} a\u{323}\u{302}",
            "\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF} \u{D55C}",
            "\u{5B57}\u{597D} x\u{5B57}y \u{1F600}",
            "<b> & </b> >>de<<",
        ];
        let mut texts = texts.map(str::to_owned).to_vec();
        if let Some(folder) = shared_multi30k() {
            let lines = |name: &str| {
                fs::read_to_string(folder.join(name))
                    .unwrap()
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            texts
                .extend(["test_2016_flickr.en", "test_2016_flickr.de"].into_iter().flat_map(lines));
        }
        let mut wrong = Vec::new();
        for name in ["multi30k", "t5", "t5-not-legacy", "pegasus"] {
            let tokenizer = tokenizer(name);
            let models = tokenizer.piece_models().unwrap();
            let (source, target) = (
                SentencePiece::from_bytes("", &models.source).unwrap(),
                SentencePiece::from_bytes("", &models.target).unwrap(),
            );
            for text in &texts {
                let own = source
                    .encode(text)
                    .into_iter()
                    .map(|piece| models.source_ids[source.id(&piece).unwrap() as usize]);
                let found: Vec<i64> = models
                    .prefix
                    .iter()
                    .copied()
                    .chain(own)
                    .chain(models.suffix.iter().copied())
                    .collect();
                let expected = tokenizer.encode(text).unwrap();
                let pieces = expected
                    .iter()
                    .filter_map(|id| target.piece(models.target_pieces[*id as usize]?));
                let answers = (target.decode(pieces), tokenizer.decode(&expected).unwrap());
                if found != expected || answers.0 != answers.1 {
                    wrong.push(format!(
                        "{name}: {text:?}: expected {expected:?}, found {found:?}; {answers:?}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn other_tokenizers_are_refused() {
        let refused = ["marian", "nllb-json", "bart", "t5-added", "t5-unprefixed"].map(|name| {
            let error = tokenizer(name).piece_models().unwrap_err().to_string();
            format!("{name}: {}", error.split_once(": ").unwrap().1)
        });
        assert_snapshot!(refused.join("\n"), @r#"
        marian: cannot be written as SentencePiece models: transformers runs this family piece by piece, without a tokenizer.json
        nllb-json: cannot be written as SentencePiece models: its model is BPE, expected Unigram with an unknown piece
        bart: cannot be written as SentencePiece models: its model is BPE, expected Unigram with an unknown piece
        t5-added: cannot be written as SentencePiece models: its added token "<new>" is not special
        t5-unprefixed: cannot be written as SentencePiece models: its pre-tokenizer is not Metaspace that adds a space before each text
        "#);
    }
}
