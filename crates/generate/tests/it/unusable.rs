//! Scores that no token can be chosen by: an error that names the sentence and the step, never a
//! token.

use cognate_generate::{
    Decoder, ErrorKind, Logits, Result, Sampling, SentenceBatch, Settings, Sources, decode,
    greedy_choices, score,
};
use cognate_model::Preset;
use insta::assert_snapshot;
use ndarray::{Array2, Array3};
use std::ops::ControlFlow;

/// A decoder that prefers token 5, until at one step one sentence's scores are those given.
struct Broken {
    at: (usize, usize),
    scores: Vec<f32>,
    step: usize,
    logits: Array3<f32>,
}

const VOCAB: usize = 100;

/// A name, and what it sets.
type Way = (&'static str, fn(&mut Settings));

impl Decoder for Broken {
    fn engine(&self) -> &str {
        "made up"
    }

    fn start(&mut self, _: Sources<'_>, _: usize) -> Result<()> {
        self.step = 0;
        Ok(())
    }

    fn advance(&mut self, _: Option<&Array2<usize>>, tokens: &Array2<i64>) -> Result<Logits<'_>> {
        let (batch, beams) = tokens.dim();
        self.logits = Array3::from_shape_fn((batch, beams, VOCAB), |(.., token)| {
            if token == 5 { 2.0 } else { 0.01 * token as f32 }
        });
        if self.step == self.at.1 {
            for beam in 0..beams {
                for (token, &score) in self.scores.iter().enumerate() {
                    self.logits[[self.at.0, beam, token]] = score;
                }
            }
        }
        self.step += 1;
        Ok(Logits::new(self.logits.view_mut()))
    }

    fn retain(&mut self, _: &[usize]) -> Result<()> {
        Ok(())
    }
}

fn broken(scores: Vec<f32>) -> Broken {
    Broken { at: (1, 2), scores, step: 0, logits: Array3::zeros((0, 0, 0)) }
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::from_json("{}", None, &Preset::Tiny.config()).unwrap();
    (settings.eos_tokens, settings.max_new_tokens) = (vec![0], 6);
    change(&mut settings);
    settings
}

const SOURCES: [[i64; 2]; 2] = [[7, 0], [8, 0]];

fn sources() -> Vec<Vec<i64>> {
    SOURCES.map(|source| source.to_vec()).to_vec()
}

#[test]
fn no_way_of_decoding_takes_a_token_by_them() {
    let mut one = vec![0.0; VOCAB];
    one[70] = f32::NAN;
    let mut above = vec![0.0; VOCAB];
    above[99] = f32::INFINITY;
    let kinds = [
        vec![f32::NAN; VOCAB],
        one,
        above,
        vec![f32::NEG_INFINITY; VOCAB],
        vec![f32::INFINITY; VOCAB],
    ];
    let ways: [Way; 7] = [
        ("greedy", |_| {}),
        ("greedy with scores", |settings| settings.scores = true),
        ("drawing", |settings| settings.sampling = Some(Sampling::default())),
        ("beams", |settings| settings.num_beams = 3),
        ("beams with a penalty", |settings| {
            (settings.num_beams, settings.repetition_penalty) = (3, 1.5)
        }),
        ("beams that draw", |settings| {
            (settings.num_beams, settings.sampling) = (2, Some(Sampling::default()))
        }),
        ("beams, renormalised", |settings| (settings.num_beams, settings.renormalize) = (2, true)),
    ];
    let mut failures = Vec::new();
    for (way, change) in ways {
        for (kind, scores) in kinds.iter().enumerate() {
            let sources = sources();
            let batch =
                SentenceBatch { sources: (&sources).into(), prefixes: &[], numbers: &[11, 12] };
            let found = decode(&mut broken(scores.clone()), &batch, &settings(change), &mut |_| {
                ControlFlow::Continue(())
            });
            match found {
                Err(error)
                    if error.kind() == ErrorKind::Scores
                        && error.to_string().starts_with("sentence 12, step 3: ") => {}
                found => failures.push(format!("{way}, kind {kind}: {found:?}")),
            }
        }
    }
    let targets = vec![vec![5, 5, 5]; 2];
    let scored = score(
        &mut broken(kinds[1].clone()),
        &SentenceBatch::new(&sources()),
        &targets,
        &settings(|_| {}),
    )
    .unwrap_err();
    assert_snapshot!(scored, @"sentence 2, step 3: a logit is NaN or infinite; weights or activations may exceed the range of their type");
    let chosen = decode(
        &mut broken(vec![]),
        &SentenceBatch::new(&sources()),
        &settings(|_| {}),
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
    let hypotheses: Vec<_> = chosen.into_iter().map(|mut found| found.remove(0)).collect();
    assert_eq!(hypotheses[1].tokens, [5; 6]);
    let chosen =
        greedy_choices(&mut broken(kinds[0].clone()), &sources(), &hypotheses, &settings(|_| {}))
            .unwrap_err();
    assert_eq!(chosen.kind(), ErrorKind::Scores);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Settings can forbid everything, too.
#[test]
fn a_step_at_which_nothing_is_allowed_is_an_error() {
    for beams in [1, 2] {
        let settings = settings(|settings| {
            settings.num_beams = beams;
            settings.suppressed_tokens = (0..VOCAB as i64).collect();
        });
        let error =
            decode(&mut broken(vec![]), &SentenceBatch::new(&sources()), &settings, &mut |_| {
                ControlFlow::Continue(())
            })
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "sentence 0, step 1: every token is forbidden: all scores are minus infinity"
        );
    }
}
