//! `testdata/golden`: tokens and scores of transformers' `generate`, for every family.

use cognate_generate::{Hypothesis, SessionDecoder, Settings, generate};
use cognate_model::{Attentions, Model};
use cognate_runtime::{Options, Reference, Runtime, Source};
use cognate_testing::{Golden, golden, golden_models};

/// The settings of a golden model.
pub(crate) fn settings(name: &str) -> Settings {
    let folder = golden(name);
    let model = Model::open(&folder).unwrap();
    let text = std::fs::read_to_string(folder.join("generation_config.json")).unwrap();
    Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap()
}

/// The decoder and the settings of a golden model, on the reference evaluator.
pub(crate) fn reference(name: &str) -> (SessionDecoder, Settings) {
    let (model, settings) = (Model::open(&golden(name)).unwrap(), settings(name));
    let load = |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let (encoder, step) = (load(model.encode().unwrap()), load(model.step(Attentions::Omit).unwrap()));
    (SessionDecoder::new(encoder, step, settings.pad_token).unwrap(), settings)
}

/// Its sources, without padding.
pub(crate) fn sources(expected: &Golden) -> Vec<Vec<i64>> {
    let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
    let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
    rows.map(|(ids, mask)| ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect()).collect()
}

fn decode(name: &str, change: impl Fn(&mut Settings)) -> (Golden, Settings, Vec<Hypothesis>) {
    let expected = Golden::open(name);
    let (mut decoder, mut settings) = reference(name);
    settings.max_new_tokens = 24;
    change(&mut settings);
    let sources = sources(&expected);
    let together = generate(&mut decoder, &sources, &settings).unwrap();
    // A sentence's tokens do not depend on its neighbours.
    for (source, hypothesis) in sources.iter().zip(&together) {
        let alone = generate(&mut decoder, std::slice::from_ref(source), &settings).unwrap();
        assert_eq!(alone[0].tokens, hypothesis.tokens);
    }
    (expected, settings, together)
}

/// A row of transformers' output without the start token, cut at the end token.
fn tokens(row: &[i64], settings: &Settings) -> Vec<i64> {
    row[1..].iter().copied().take_while(|token| !settings.eos_tokens.contains(token)).collect()
}

#[test]
fn greedy_tokens_equal_transformers() {
    for name in golden_models() {
        let (expected, settings, hypotheses) = decode(&name, |settings| settings.num_beams = 1);
        let rows = expected.ids("greedy");
        for (hypothesis, row) in hypotheses.iter().zip(rows.data.chunks(rows.shape[1])) {
            assert_eq!(hypothesis.tokens, tokens(row, &settings), "{name}: margins {:?}", hypothesis.margins);
        }
    }
}

#[test]
fn beam_search_equals_transformers() {
    for name in golden_models() {
        let (expected, settings, hypotheses) = decode(&name, |settings| settings.num_beams = 4);
        let (rows, scores) = (expected.ids("beam4"), expected.floats("beam4_scores"));
        // Four hypotheses a sentence, the best first.
        for (sentence, hypothesis) in hypotheses.iter().enumerate() {
            let row = rows.data.chunks(rows.shape[1]).nth(4 * sentence).unwrap();
            assert_eq!(hypothesis.tokens, tokens(row, &settings), "{name}");
            let difference = (hypothesis.score - scores.data[4 * sentence]).abs();
            assert!(difference < 1e-4, "{name}: {} {}", hypothesis.score, scores.data[4 * sentence]);
        }
    }
}
