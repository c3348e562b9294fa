//! How near the nearest choice of beam search was: logits that move by less than that leave the
//! hypotheses as they are.

use crate::golden::{reference, sources};
use cognate_generate::{
    Decoder, Hypothesis, Logits, Result, SentenceBatch, SessionDecoder, Settings, Sources, decode,
};
use cognate_testing::{Golden, golden_models};
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::ControlFlow;

const NEW_TOKENS: usize = 12;

/// Times the margin: few choices decide on what is returned, and what is random averages out over
/// the steps.
const BEYOND: f32 = 16.0;

/// A decoder whose logits are moved at random, by at most `amplitude`.
struct Noisy {
    inner: SessionDecoder,
    amplitude: f32,
    random: ChaCha8Rng,
}

impl Decoder for Noisy {
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        self.inner.start(sources, beams)
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        let mut scores = self.inner.advance(parents, tokens)?.into_scores();
        let (random, amplitude) = (&mut self.random, self.amplitude);
        scores.mapv_inplace(|score| {
            score + amplitude * (random.next_u32() as f32 / u32::MAX as f32).mul_add(2.0, -1.0)
        });
        Ok(Logits::new(scores))
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        self.inner.retain(sentences)
    }
}

impl Noisy {
    /// The hypotheses of one source, with logits moved by at most `amplitude`.
    fn decode(&mut self, source: &[i64], amplitude: f32, settings: &Settings) -> Vec<Hypothesis> {
        self.amplitude = amplitude;
        let sources = [source.to_vec()];
        decode(self, &SentenceBatch::new(&sources), settings, &mut |_| ControlFlow::Continue(()))
            .unwrap()
            .remove(0)
    }
}

fn tokens(found: &[Hypothesis]) -> Vec<(&[i64], bool)> {
    found.iter().map(|hypothesis| (hypothesis.tokens.as_slice(), hypothesis.complete)).collect()
}

#[test]
fn beams_change_only_where_logits_move_by_more_than_the_margin() {
    let (mut compared, mut changed, mut wrong) = (0, 0, Vec::new());
    for name in golden_models() {
        let (inner, settings) = reference(&name);
        let mut decoder = Noisy { inner, amplitude: 0.0, random: ChaCha8Rng::seed_from_u64(1) };
        // Long hypotheses are preferred to short ones, or not, and all or only the best are
        // returned.
        for (num_return_sequences, length_penalty) in [(1, 0.0), (4, 1.0)] {
            let settings = Settings {
                num_beams: 4,
                num_return_sequences,
                length_penalty,
                max_new_tokens: NEW_TOKENS,
                ..settings.clone()
            };
            for (sentence, source) in sources(&Golden::open(&name)).iter().enumerate() {
                let expected = decoder.decode(source, 0.0, &settings);
                let margin = expected[0].margin();
                assert!(expected.iter().all(|hypothesis| hypothesis.margin() == margin), "{name}");
                // Beyond rounding. Logits that move by 1 move a log-probability by at most 2, and a
                // distance of two sums by 4 for each token.
                if margin < 1e-4 {
                    continue;
                }
                compared += 1;
                let small = 0.9 * margin / (4 * NEW_TOKENS) as f32;
                if tokens(&decoder.decode(source, small, &settings)) != tokens(&expected) {
                    wrong.push(format!("{name} sentence {sentence}: margin {margin:e}"));
                }
                changed += usize::from(
                    tokens(&decoder.decode(source, BEYOND * margin, &settings))
                        != tokens(&expected),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "of {compared} changed within the margin:\n{}", wrong.join("\n"));
    eprintln!("{changed} of {compared} changed beyond the margin");
    // Nor is the margin so small that it says nothing.
    assert!(
        compared > 200 && 4 * changed > compared,
        "{changed} of {compared} changed beyond the margin"
    );
}
