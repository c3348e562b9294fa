//! Drawing, streaming and cancelling, over a golden model.

use crate::golden::{reference, sources};
use cognate_generate::{
    Event, Hypothesis, Sampling, SentenceBatch, SessionDecoder, Settings, decode, score,
};
use cognate_testing::Golden;
use std::ops::ControlFlow;

struct Subject {
    decoder: SessionDecoder,
    sources: Vec<Vec<i64>>,
    settings: Settings,
}

fn subject(change: impl FnOnce(&mut Settings)) -> Subject {
    let (decoder, mut settings) = reference("marian");
    settings.max_new_tokens = 12;
    change(&mut settings);
    Subject { decoder, sources: sources(&Golden::open("marian")), settings }
}

impl Subject {
    fn decode(&mut self, numbers: &[u64]) -> Vec<Vec<Hypothesis>> {
        let sources: Vec<_> =
            numbers.iter().map(|&number| self.sources[number as usize].clone()).collect();
        let batch = SentenceBatch { sources: (&sources).into(), prefixes: &[], numbers };
        decode(&mut self.decoder, &batch, &self.settings, &mut |_| ControlFlow::Continue(()))
            .unwrap()
    }
}

fn tokens(found: &[Hypothesis]) -> Vec<&[i64]> {
    found.iter().map(|hypothesis| hypothesis.tokens.as_slice()).collect()
}

#[test]
fn draws_follow_from_seed_sentence_and_sample_alone() {
    let draw = |seed, n_samples| {
        subject(|settings| {
            settings.sampling = Some(Sampling { seed, temperature: 1.5, ..Sampling::default() });
            settings.num_return_sequences = n_samples;
            settings.scores = true;
        })
    };
    let together = draw(3, 4).decode(&[0, 1, 2]);
    assert_eq!(together, draw(3, 4).decode(&[0, 1, 2]));
    for (sentence, found) in together.iter().enumerate() {
        assert_eq!(found.len(), 4);
        assert!((1..4).any(|sample| found[sample].tokens != found[0].tokens), "samples differ");
        assert!(found.iter().all(|hypothesis| hypothesis.score < 0.0));
        // Alone, in another order, and with fewer samples.
        assert_eq!(tokens(&draw(3, 4).decode(&[sentence as u64])[0]), tokens(found));
        assert_eq!(tokens(&draw(3, 2).decode(&[sentence as u64])[0]), tokens(&found[..2]));
    }
    assert_eq!(tokens(&draw(3, 4).decode(&[2, 0])[0]), tokens(&together[2]));
    assert_ne!(tokens(&draw(4, 4).decode(&[0])[0]), tokens(&together[0]));
}

#[test]
fn the_likeliest_of_one_is_greedy() {
    let greedy = subject(|settings| settings.num_beams = 1).decode(&[0, 1, 2]);
    let draw = |sampling| subject(|settings| settings.sampling = Some(sampling)).decode(&[0, 1, 2]);
    let same = [
        Sampling { top_k: 1, ..Sampling::default() },
        Sampling { temperature: 1e-6, ..Sampling::default() },
    ];
    for found in same.map(draw) {
        for (found, greedy) in found.iter().zip(&greedy) {
            assert_eq!(tokens(found), tokens(greedy));
        }
    }
}

/// A search adds up log-probabilities as the constraints leave them, and divides the sum by the length to the power of the penalty.
/// Here the log-probabilities are those of [`score`], which knows no constraints, and each is penalised by hand.
#[test]
fn greedy_scores_are_those_of_a_search_that_keeps_one() {
    const PENALTY: f32 = 1.05;
    let mut subject = subject(|settings| {
        settings.scores = true;
        settings.repetition_penalty = PENALTY;
    });
    let (mut n_repeated, mut n_forced) = (0, 0);
    for length_penalty in [0.5, 0.0, 2.0] {
        subject.settings.length_penalty = length_penalty;
        let found: Vec<_> =
            subject.decode(&[0, 1, 2]).into_iter().map(|mut found| found.remove(0)).collect();
        let targets: Vec<_> = found.iter().map(|found| found.tokens.clone()).collect();
        let plain = score(
            &mut subject.decoder,
            &SentenceBatch::new(&subject.sources),
            &targets,
            &subject.settings,
        )
        .unwrap();
        for (found, plain) in found.iter().zip(&plain) {
            let settings = &subject.settings;
            let before = [&[settings.start_token], &found.tokens[..]].concat();
            let chosen = found
                .tokens
                .iter()
                .copied()
                .chain(settings.eos_tokens.first().copied().filter(|_| found.complete));
            let logs: Vec<_> = chosen
                .zip(&plain.log_probabilities)
                .enumerate()
                .map(|(step, (token, &log))| match token {
                    // The end that is forced at the limit is certain.
                    _ if settings.forced_eos_token.is_some()
                        && step + 1 == settings.max_new_tokens =>
                    {
                        n_forced += 1;
                        0.0
                    }
                    token if before[..=step].contains(&token) => {
                        n_repeated += 1;
                        log * PENALTY
                    }
                    _ => log,
                })
                .collect();
            let expected = logs.iter().sum::<f32>() / (logs.len() as f32).powf(length_penalty);
            assert!(
                (found.score - expected).abs() < 1e-5,
                "{found:?}, length penalty {length_penalty}: expected the score {expected}"
            );
        }
    }
    assert!(
        n_repeated > 0 && n_forced > 0,
        "{n_repeated} penalised and {n_forced} forced: the rules were meant to count"
    );
}

#[test]
fn tokens_are_told_as_they_come() {
    let mut subject = subject(|settings| {
        settings.sampling = Some(Sampling::default());
        settings.num_return_sequences = 2;
    });
    let (mut told, mut finished) = (vec![vec![Vec::new(); 2]; 3], vec![Vec::new(); 3]);
    let batch = SentenceBatch::new(&subject.sources);
    let found = decode(&mut subject.decoder, &batch, &subject.settings, &mut |event| {
        match event {
            Event::Token { sentence, sequence, token } => told[sentence][sequence].push(token),
            Event::Finished { sentence, hypotheses } => {
                finished[sentence].extend_from_slice(hypotheses)
            }
            Event::Step { .. } => {}
        }
        ControlFlow::Continue(())
    });
    let found = found.unwrap();
    assert_eq!(finished, found);
    for (told, found) in told.iter().zip(found) {
        assert_eq!(told, &tokens(&found));
    }
}

#[test]
fn one_sentence_can_be_cancelled() {
    for num_beams in [1, 4] {
        let mut subject = subject(|settings| settings.num_beams = num_beams);
        let whole = subject.decode(&[0, 1, 2]);
        let mut steps = 0;
        let batch = SentenceBatch::new(&subject.sources);
        let found = decode(&mut subject.decoder, &batch, &subject.settings, &mut |event| {
            let (Event::Token { sentence, .. } | Event::Step { sentence }) = event else {
                return ControlFlow::Continue(());
            };
            steps += usize::from(sentence == 1);
            if sentence == 1 && steps == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let found = found.unwrap();
        assert_eq!(
            (steps, found[1][0].tokens.len(), found[1][0].complete),
            (3, 3, false),
            "{num_beams} beams"
        );
        assert_eq!(
            (tokens(&found[0]), tokens(&found[2])),
            (tokens(&whole[0]), tokens(&whole[2])),
            "{num_beams} beams"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut subject = subject(|settings| settings.max_length = 5);
    let Subject { decoder, sources, settings } = &mut subject;
    let mut refused = |prefixes: &[Vec<i64>], numbers: &[u64]| {
        let batch = SentenceBatch { sources: (&*sources).into(), prefixes, numbers };
        decode(decoder, &batch, settings, &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(refused(&[vec![], vec![1, 2, 3, 4], vec![]], &[]), @"the target prefix of sentence 1 of the batch has 4 tokens; expected at most 3");
    insta::assert_snapshot!(refused(&[vec![]], &[]), @"expected as many prefixes as sources, 3, found 1");
    insta::assert_snapshot!(refused(&[], &[1]), @"expected as many numbers as sources, 3, found 1");
}
