//! `testdata/golden`: tokens and scores of transformers' `generate`, for every family.

use cognate_generate::{Hypothesis, SentenceBatch, SessionDecoder, Settings, decode};
use cognate_model::{Attentions, Model};
use cognate_runtime::{Options, Reference, Runtime, Source};
use cognate_testing::{Golden, golden, golden_models};
use std::ops::ControlFlow;

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
    let (encoder, step) =
        (load(model.encode().unwrap()), load(model.step(Attentions::Omit).unwrap()));
    let pad_token = model.config().source_pad(settings.pad_token);
    (SessionDecoder::new(encoder, step, pad_token).unwrap(), settings)
}

/// Its sources, without padding.
pub(crate) fn sources(expected: &Golden) -> Vec<Vec<i64>> {
    let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
    let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
    rows.map(|(ids, mask)| {
        ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect()
    })
    .collect()
}

/// What the reference decodes for each source.
fn decoded(name: &str, change: impl Fn(&mut Settings)) -> (Golden, Settings, Vec<Vec<Hypothesis>>) {
    let expected = Golden::open(name);
    let (mut decoder, mut settings) = reference(name);
    settings.max_new_tokens = 24;
    change(&mut settings);
    let sources = sources(&expected);
    let mut decode = |sources: &[Vec<i64>]| {
        decode(&mut decoder, &SentenceBatch::new(sources), &settings, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    };
    let together = decode(&sources);
    // A sentence's tokens do not depend on its neighbours.
    for (source, found) in sources.iter().zip(&together) {
        let alone = decode(std::slice::from_ref(source)).remove(0);
        let tokens = |found: &[Hypothesis]| {
            found.iter().map(|hypothesis| hypothesis.tokens.clone()).collect::<Vec<_>>()
        };
        assert_eq!(tokens(&alone), tokens(found), "{name}");
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
        let (expected, settings, hypotheses) = decoded(&name, |settings| settings.num_beams = 1);
        let rows = expected.ids("greedy");
        assert_eq!(rows.shape[0], hypotheses.len(), "{name}");
        for (found, row) in hypotheses.iter().zip(rows.data.chunks(rows.shape[1])) {
            assert_eq!(
                found[0].tokens,
                tokens(row, &settings),
                "{name}: margin {:e}",
                found[0].margin()
            );
        }
    }
}

#[test]
fn beam_search_equals_transformers() {
    for name in golden_models() {
        let (expected, settings, hypotheses) =
            decoded(&name, |settings| (settings.num_beams, settings.num_return_sequences) = (4, 4));
        let (rows, scores) = (expected.ids("beam4"), expected.floats("beam4_scores"));
        // Four hypotheses a sentence, the best first.
        let found: Vec<_> = hypotheses.iter().flatten().collect();
        assert_eq!((rows.shape[0], scores.data.len()), (found.len(), found.len()), "{name}");
        for ((hypothesis, row), score) in
            found.iter().zip(rows.data.chunks(rows.shape[1])).zip(&scores.data)
        {
            assert_eq!(
                hypothesis.tokens,
                tokens(row, &settings),
                "{name}: margin {:e}",
                hypothesis.margin()
            );
            let difference = (hypothesis.score - score).abs();
            assert!(difference < 1e-4 * score.abs(), "{name}: {} {score}", hypothesis.score);
        }
    }
}
