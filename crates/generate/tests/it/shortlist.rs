//! A shortlist is the search among its tokens alone.

use crate::golden::{reference, sources};
use cognate_generate::{
    Decoder, Hypothesis, Logits, Result, Sampling, SentenceBatch, Settings, Shortlist,
    ShortlistDecoder, Sources, decode,
};
use cognate_model::Model;
use cognate_testing::{Golden, golden, golden_models};
use ndarray::Array2;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// The ways to search.
fn ways(settings: &Settings) -> Vec<Settings> {
    let settings = Settings { max_new_tokens: 8, ..settings.clone() };
    let sampling = Sampling { top_k: 5, temperature: 1.5, seed: 7, ..Sampling::default() };
    let one = Settings { num_beams: 1, num_return_sequences: 1, scores: true, ..settings.clone() };
    let several = Settings { num_beams: 3, num_return_sequences: 2, ..settings.clone() };
    vec![
        one.clone(),
        Settings {
            repetition_penalty: 1.3,
            no_repeat_ngram_size: 2,
            min_new_tokens: 4,
            ..one.clone()
        },
        Settings { sampling: Some(sampling), num_return_sequences: 2, ..one },
        several.clone(),
        Settings { sampling: Some(sampling), ..several },
    ]
}

fn found(
    decoder: &mut dyn Decoder,
    sources: &[Vec<i64>],
    settings: &Settings,
) -> Vec<Vec<Hypothesis>> {
    decode(decoder, &SentenceBatch::new(sources), settings, &mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// The size of a golden model's vocabulary.
fn vocab(name: &str) -> i64 {
    Model::open(&golden(name)).unwrap().config().vocab as i64
}

#[test]
fn it_equals_forbidding_the_other_tokens_in_every_search() {
    for name in golden_models() {
        let (inner, settings) = reference(&name);
        let (vocab, sources) = (vocab(&name), sources(&Golden::open(&name)));
        let mut plain = reference(&name).0;
        // A third of the tokens for any source, a third for one that has none of them, and a few
        // for a source's first token.
        let always: Vec<i64> = (0..vocab).filter(|token| token % 3 == 0).collect();
        let [first, last] = [sources[0][0], sources[0].len() as i64];
        let by_source = HashMap::from([
            (vec![vocab + last], (0..vocab).collect()),
            (vec![first], vec![1, 4, 7]),
        ]);
        let shortlist = Arc::new(Shortlist::new(always.clone(), by_source));
        let mut decoder = ShortlistDecoder::new(Box::new(inner), shortlist, &settings);
        // Beams that draw add scores that filters left without a sum of 1; forbidding cannot
        // express that.
        for settings in ways(&settings)
            .into_iter()
            .filter(|settings| settings.sampling.is_none() || settings.num_beams == 1)
        {
            let forced = settings
                .forced_bos_token
                .into_iter()
                .chain(settings.forced_eos_token)
                .chain(settings.eos_tokens.clone());
            let allowed: Vec<i64> = always.iter().copied().chain(forced).chain([1, 4, 7]).collect();
            let others = (0..vocab).filter(|token| !allowed.contains(token)).collect();
            let suppressed =
                Settings { suppressed_tokens: others, renormalize: true, ..settings.clone() };
            let expected = self::found(&mut plain, &sources[..1], &suppressed);
            let found = self::found(&mut decoder, &sources[..1], &settings);
            let tokens = |found: &[Vec<Hypothesis>]| {
                found[0].iter().map(|found| found.tokens.clone()).collect::<Vec<_>>()
            };
            assert_eq!(tokens(&found), tokens(&expected), "{name}: {settings:?}");
            assert!(tokens(&found).concat().iter().all(|token| allowed.contains(token)), "{name}");
            // A penalty comes between the two sums of probabilities.
            for (found, expected) in
                found[0].iter().zip(&expected[0]).filter(|_| settings.repetition_penalty == 1.0)
            {
                assert!(
                    (found.score - expected.score).abs() < 1e-4,
                    "{name}: {} {}: {settings:?}",
                    found.score,
                    expected.score
                );
            }
        }
    }
}

#[test]
fn a_list_of_all_tokens_changes_nothing() {
    for name in golden_models() {
        let (inner, settings) = reference(&name);
        let (vocab, sources) = (vocab(&name), sources(&Golden::open(&name)));
        let mut decoder = ShortlistDecoder::new(
            Box::new(inner),
            Arc::new(Shortlist::new((0..vocab).collect(), HashMap::new())),
            &settings,
        );
        for settings in ways(&settings) {
            let expected = self::found(&mut reference(&name).0, &sources, &settings);
            assert_eq!(
                self::found(&mut decoder, &sources, &settings),
                expected,
                "{name}: {settings:?}"
            );
        }
    }
}

/// A decoder that records what it is restricted to.
struct Recorder(Arc<Mutex<Vec<Vec<i64>>>>);

impl Decoder for Recorder {
    fn engine(&self) -> &str {
        "recorder"
    }

    fn start(&mut self, _: Sources<'_>, _: usize) -> Result<()> {
        Ok(())
    }

    fn joins(&self) -> bool {
        true
    }

    fn join(&mut self, _: Sources<'_>) -> Result<()> {
        Ok(())
    }

    fn advance(&mut self, _: Option<&Array2<usize>>, _: &Array2<i64>) -> Result<Logits<'_>> {
        unreachable!("no step is made")
    }

    fn restrict(&mut self, tokens: &[i64]) -> bool {
        self.0.lock().unwrap().push(tokens.to_vec());
        true
    }

    fn retain(&mut self, _: &[usize]) -> Result<()> {
        Ok(())
    }
}

/// A batch that others join without end does not come to allow all tokens.
#[test]
fn tokens_of_sources_that_left_are_not_allowed_to_those_that_join() {
    let lists = Arc::default();
    let by_source = (1..5).map(|source| (vec![source], vec![10 * source])).collect();
    let shortlist = Arc::new(Shortlist::new(vec![1], by_source));
    let settings = Settings {
        eos_tokens: vec![0],
        forced_bos_token: None,
        forced_eos_token: None,
        ..reference(&golden_models()[0]).1
    };
    let inner = Box::new(Recorder(Arc::clone(&lists)));
    let mut decoder = ShortlistDecoder::new(inner, shortlist, &settings);
    let sources: [Vec<i64>; 4] = [vec![1], vec![2], vec![3], vec![4]];
    decoder.start(Sources::from(&sources[..3]), 1).unwrap();
    decoder.retain(&[2, 0]).unwrap();
    decoder.retain(&[0]).unwrap();
    decoder.join(Sources::from(&sources[3..])).unwrap();
    assert_eq!(*lists.lock().unwrap(), [vec![0, 1, 10, 20, 30], vec![0, 1, 30, 40]]);
}

#[test]
fn tokens_that_do_not_exist_are_refused() {
    let name = golden_models().remove(0);
    let sources = sources(&Golden::open(&name));
    for (tokens, expected) in
        [(vec![3, 1 << 40], "expected tokens from 0 to"), (vec![], "expected tokens for a source")]
    {
        let (inner, settings) = reference(&name);
        let mut decoder = ShortlistDecoder::new(
            Box::new(inner),
            Arc::new(Shortlist::new(tokens, HashMap::new())),
            &settings,
        );
        let refused = decode(&mut decoder, &SentenceBatch::new(&sources), &settings, &mut |_| {
            ControlFlow::Continue(())
        });
        let refused = refused.expect_err("no such token").to_string();
        assert!(refused.starts_with("shortlist: ") && refused.contains(expected), "{refused}");
    }
}
