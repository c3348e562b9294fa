//! Sentences that enter a running batch between steps: each gets what it gets alone.
//!
//! In f32 products of many rows sum in another order than those of few: tokens are the same but
//! where two choices are nearer to each other than [`TIE`]. In 8-bit integers with a step for each
//! row everything is the same to the bit.

use crate::decoding::silent;
use crate::engines::for_our_operators;
use cognate_generate::{
    Decoder, Event, Hypothesis, RunningBatch, SentenceBatch, Settings, SharedCacheDecoder, decode,
};
use cognate_graph::{Program, Steps};
use cognate_model::interface::LOGITS_SCALE;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::{fuse::fuse, quantize};
use cognate_runtime::{Options, Ort, Runtime, Source, Tract};
use cognate_testing::golden;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};

/// Added, learned, counted, relative and rotated positions.
const MODELS: [&str; 5] = ["marian", "bart", "m2m100", "t5", "strange/t5gemma-untied"];

/// Margins below which a sum in another order may choose another token.
const TIE: f32 = 1e-5;

/// The mixes of each precision, shared by models and settings.
const MIXES: usize = 1000;

/// Sentences that mixes draw from.
const SENTENCES: usize = 24;

struct Subject {
    decoder: SharedCacheDecoder,
    sources: Vec<Vec<i64>>,
    settings: [Settings; 3],
}

impl Subject {
    fn open(runtime: &dyn Runtime, name: &str, integers: bool, random: &mut ChaCha8Rng) -> Self {
        let (model, layout) = (Model::open(&golden(name)).unwrap(), Layout::SharedCache);
        let graphs = model.graphs(layout, Attentions::Omit).unwrap();
        let mut programs: Vec<Program> =
            graphs.iter().map(|program| fuse(program).unwrap()).collect();
        if integers {
            let options = quantize::Options::Columns {
                steps: Steps::Row,
                unscaled: Some(["logits", LOGITS_SCALE]),
            };
            programs = quantize::quantize(&[&programs[0], &programs[1]], options).unwrap();
        }
        let folder = for_our_operators(&programs);
        let load = |file: &&str| {
            runtime
                .load(
                    &Source::Onnx(folder.path().join(file)),
                    &Options { threads: NonZeroUsize::new(1), ..Options::default() },
                )
                .unwrap()
        };
        let [encoder, decoder] = [&layout.files()[0], &layout.files()[1]].map(load);
        let generation =
            std::fs::read_to_string(golden(name).join("generation_config.json")).unwrap();
        let read =
            Settings::from_json(model.config_json(), Some(&generation), model.config()).unwrap();
        let of = |num_beams: usize, no_repeat_ngram_size: usize| Settings {
            num_beams,
            num_return_sequences: num_beams,
            no_repeat_ngram_size,
            max_new_tokens: 14,
            scores: true,
            sampling: None,
            ..read.clone()
        };
        let vocab = model.config().source_vocab;
        let mut source = || {
            let count = within(random, 1..13);
            let tokens = (0..count).map(|_| within(random, 4..vocab) as i64);
            tokens.chain(read.eos_tokens.first().copied()).collect()
        };
        let sources = (0..SENTENCES).map(|_| source()).collect();
        let decoder = SharedCacheDecoder::new(encoder, decoder, read.pad_token).unwrap();
        assert!(decoder.joins(), "{name}: {}", decoder.engine());
        Self { decoder, sources, settings: [of(1, 0), of(1, 1), of(3, 2)] }
    }

    /// Each sentence by itself.
    fn alone(&mut self, settings: &Settings) -> Vec<Vec<Hypothesis>> {
        let sources = self.sources.chunks(1);
        sources
            .map(|source| {
                decode(&mut self.decoder, &SentenceBatch::new(source), settings, &mut silent)
                    .unwrap()
                    .remove(0)
            })
            .collect()
    }

    /// Sentences that enter at steps of their own.
    fn mixed(
        &mut self,
        settings: &Settings,
        mut arrivals: Vec<(usize, usize)>,
    ) -> Vec<(usize, Vec<Hypothesis>)> {
        arrivals.sort_unstable();
        let mut running = RunningBatch::new(settings).unwrap();
        let (mut entered, mut found) = (Vec::new(), Vec::new());
        for step in 0.. {
            let due: Vec<_> = arrivals
                .extract_if(.., |(arrival, _)| *arrival <= step)
                .map(|(_, sentence)| sentence)
                .collect();
            let sources: Vec<_> =
                due.iter().map(|&sentence| self.sources[sentence].clone()).collect();
            entered.extend(due);
            let numbers = running.admit(&mut self.decoder, &SentenceBatch::new(&sources)).unwrap();
            assert_eq!(numbers.end, entered.len());
            let mut observer = |event: Event<'_>| {
                if let Event::Finished { sentence, hypotheses } = event {
                    found.push((entered[sentence], hypotheses.to_vec()));
                }
                ControlFlow::Continue(())
            };
            running.step(&mut self.decoder, &mut observer).unwrap();
            if running.is_empty() && arrivals.is_empty() {
                break;
            }
        }
        assert_eq!(found.len(), entered.len());
        found
    }
}

fn within(random: &mut ChaCha8Rng, range: Range<usize>) -> usize {
    range.start + random.next_u32() as usize % range.len()
}

fn tokens(hypotheses: &[Hypothesis]) -> Vec<(&[i64], bool)> {
    hypotheses
        .iter()
        .map(|hypothesis| (hypothesis.tokens.as_slice(), hypothesis.complete))
        .collect()
}

#[test]
fn each_sentence_of_a_thousand_mixes_gets_what_it_gets_alone() {
    let Ok(ort) = Ort::find() else {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    };
    let engines: [(&dyn Runtime, bool); 3] = [(&Tract, false), (&ort, false), (&ort, true)];
    for (runtime, integers) in engines {
        let mut random = ChaCha8Rng::seed_from_u64(22);
        let (mut compared, mut ties, mut lengths, mut failures) =
            (0, 0, BTreeSet::new(), Vec::new());
        for name in MODELS {
            let mut subject = Subject::open(runtime, name, integers, &mut random);
            for settings in subject.settings.clone() {
                let alone = subject.alone(&settings);
                for mix in 0..MIXES.div_ceil(MODELS.len() * subject.settings.len()) {
                    let count = within(&mut random, 2..9);
                    let spread = within(&mut random, 1..24);
                    let draw =
                        |_| (within(&mut random, 0..spread), within(&mut random, 0..SENTENCES));
                    let arrivals: Vec<_> = (0..count).map(draw).collect();
                    for (sentence, found) in subject.mixed(&settings, arrivals.clone()) {
                        let expected = &alone[sentence];
                        compared += 1;
                        lengths.extend(found.first().map(|found| found.tokens.len()));
                        let is_tie = !integers
                            && expected.iter().any(|hypothesis| hypothesis.margin() <= TIE);
                        let is_same = if integers {
                            found == *expected
                        } else {
                            tokens(&found) == tokens(expected)
                        };
                        ties += usize::from(!is_same && is_tie);
                        if !is_same && !is_tie {
                            let beams = settings.num_beams;
                            failures.push(format!(
                                "{name}, {beams} beams, mix {mix}, sentence {sentence} of {arrivals:?}:\n{found:?}\n{expected:?}"
                            ));
                        }
                    }
                }
            }
        }
        let what = if integers { "int8" } else { "f32" };
        eprintln!(
            "{what}: {compared} sentences, {ties} others at a tie, targets of {lengths:?} tokens"
        );
        assert!(
            failures.is_empty(),
            "{what}: {} of {compared}, the first:\n{}",
            failures.len(),
            failures[0]
        );
        assert!(ties * 100 <= compared && lengths.len() > 3, "{what}: {ties} ties, {lengths:?}");
    }
}
