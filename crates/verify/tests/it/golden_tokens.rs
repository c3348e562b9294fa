//! `testdata/golden`: tokens and scores of transformers' `generate`, for every family on every
//! engine.

use crate::decoding::{silent, unpadded_sources};
use crate::engines::everywhere;
use crate::golden::shared_models;
use cognate_generate::{
    Decoder, Hypothesis, SentenceBatch, SessionDecoder, Settings, decode, decoder,
};
use cognate_graph::Program;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use cognate_runtime::{ErrorKind, Options, Runtime, Tract};
use cognate_testing::{Golden, golden, golden_models};
use std::collections::BTreeSet;

/// The largest difference of a score relative to PyTorch's.
pub(crate) const BOUND: f32 = 1e-4;

/// Where the reference prefers a score by less than this, rounding to f32 may prefer the other. No
/// margin of these models is near it, so that as many are below it on every processor.
const TIE: f32 = 1.1e-5;

/// What transformers answers one way: greedily, or with four beams of which all are returned.
struct Way {
    name: &'static str,
    num_beams: usize,
}

const WAYS: [Way; 2] = [Way { name: "greedy", num_beams: 1 }, Way { name: "beam4", num_beams: 4 }];

/// How some models decode on all engines.
#[derive(Default)]
struct Differences {
    engines: usize,
    /// Sources, greedily and with beams; and those of them where the reference saw a tie.
    sources: usize,
    ties: usize,
    /// What is not as transformers has it and no tie, a line each.
    failures: Vec<String>,
    /// The largest relative difference of a score.
    worst: f32,
    /// The models whose caches beams share, and that tract cannot run so.
    refused: BTreeSet<String>,
}

#[test]
fn every_family_decodes_as_transformers() {
    let names = golden_models();
    // In two halves: exporting and loading models takes longest.
    let halves = std::thread::scope(|scope| {
        let running: Vec<_> = names
            .chunks(names.len().div_ceil(2))
            .map(|half| scope.spawn(|| differences(half)))
            .collect();
        running.into_iter().map(|half| half.join().unwrap()).collect::<Vec<_>>()
    });
    let mut all = Differences::default();
    for Differences { engines, sources, ties, failures, worst, refused } in halves {
        all.failures.extend(failures);
        all.refused.extend(refused);
        all = Differences {
            engines,
            sources: all.sources + sources,
            ties: all.ties + ties,
            worst: all.worst.max(worst),
            ..all
        };
    }
    let Differences { engines, sources, ties, failures, worst, refused } = all;
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
    eprintln!(
        "{} models on {engines} engines: {sources} sources, {ties} with a tie; scores differ by at most {worst:.1e} of theirs",
        names.len()
    );
    // Three sources, of `t5-long` one, greedily and with beams.
    assert_eq!((names.len(), sources, ties), (51, 2 * (50 * 3 + 1), 6), "models, sources, ties");
    // No program computes their encoders.
    let expected = ["t5gemma", "t5gemma-source-output"].map(|name| format!("strange/{name}"));
    assert_eq!(refused, expected.into(), "refused by tract");
}

#[test]
fn shared_models_decode_as_transformers() {
    let Differences { failures, .. } = differences(&shared_models());
    assert!(failures.is_empty(), "from transformers:\n{}", failures.join("\n"));
}

fn differences(names: &[String]) -> Differences {
    let mut differences = Differences::default();
    for name in names {
        let expected = Golden::open(name);
        let sources = unpadded_sources(&expected);
        let model = Model::open(&golden(name)).unwrap();
        let text = std::fs::read_to_string(golden(name).join("generation_config.json")).unwrap();
        let defaults =
            Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
        let pad_token = model.config().source_pad(defaults.pad_token);
        let sessions = everywhere(&model.encode().unwrap())
            .into_iter()
            .zip(everywhere(&model.step(Attentions::Omit).unwrap()));
        let decoders =
            sessions.map(|(encoder, step)| SessionDecoder::new(encoder, step, pad_token).unwrap());
        let mut decoders: Vec<_> =
            decoders.map(|decoder| Box::new(decoder) as Box<dyn Decoder>).collect();
        differences.engines = decoders.len();
        match on_tract(&model, &defaults) {
            Some(decoder) => decoders.extend(decoder),
            None => drop(differences.refused.insert(name.clone())),
        }
        for way in WAYS {
            let Way { num_beams, .. } = way;
            let settings = Settings {
                num_beams,
                num_return_sequences: num_beams,
                max_new_tokens: 24,
                ..defaults.clone()
            };
            let answers = way.answers(&expected, &settings);
            assert_eq!(answers.len(), sources.len(), "{name}");
            let mut margins = Vec::new();
            for decoder in &mut decoders {
                let found =
                    decode(decoder.as_mut(), &SentenceBatch::new(&sources), &settings, &mut silent)
                        .unwrap();
                if margins.is_empty() {
                    // The first engine is the reference, in f64.
                    margins = found.iter().map(|found| found[0].margin()).collect();
                    differences.sources += sources.len();
                    differences.ties += margins.iter().filter(|margin| **margin < TIE).count();
                }
                for ((found, answer), margin) in found.iter().zip(&answers).zip(&margins) {
                    match difference(found, answer) {
                        Ok(worst) => differences.worst = differences.worst.max(worst),
                        Err(why) => {
                            let line = format!(
                                "{name}, {}, {}, margin {margin:e}: {why}",
                                decoder.engine(),
                                way.name
                            );
                            if *margin < TIE {
                                eprintln!("a tie: {line}")
                            } else {
                                differences.failures.push(line)
                            }
                        }
                    }
                }
            }
        }
    }
    differences
}

/// The decoder with caches that beams share on tract, if the model has such a form; `None` if tract
/// cannot run it.
fn on_tract(model: &Model, settings: &Settings) -> Option<Option<Box<dyn Decoder>>> {
    if model.config().require_shared_caches().is_err() {
        return Some(None);
    }
    let programs = model.programs(Layout::SharedCache, Attentions::Omit).unwrap();
    let programs: Vec<Program> = programs.iter().map(|program| fuse(program).unwrap()).collect();
    match Tract.read_graphs(&programs, &Options::default()) {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        loaded => {
            let sessions: Vec<_> =
                loaded.unwrap().into_iter().map(|loaded| loaded.session()).collect();
            Some(Some(
                decoder(Layout::SharedCache, sessions, model.config(), settings.pad_token).unwrap(),
            ))
        }
    }
}

impl Way {
    /// The tokens of each source's hypotheses, without start and end token, and the scores of
    /// beams.
    fn answers(&self, expected: &Golden, settings: &Settings) -> Vec<Vec<(Vec<i64>, Option<f32>)>> {
        let rows = expected.ids(self.name);
        let tokens = |row: &[i64]| {
            row[1..]
                .iter()
                .copied()
                .take_while(|token| !settings.eos_tokens.contains(token))
                .collect()
        };
        let score =
            |index| (self.num_beams > 1).then(|| expected.floats("beam4_scores").data[index]);
        let rows = rows
            .data
            .chunks(rows.shape[1])
            .enumerate()
            .map(|(index, row)| (tokens(row), score(index)));
        rows.collect::<Vec<_>>().chunks(self.num_beams).map(<[_]>::to_vec).collect()
    }
}

/// The largest difference of a score relative to transformers', or what is not as transformers has
/// it.
pub(crate) fn difference(
    found: &[Hypothesis],
    expected: &[(Vec<i64>, Option<f32>)],
) -> Result<f32, String> {
    if found.len() != expected.len() {
        return Err(format!("{} hypotheses, expected {}", found.len(), expected.len()));
    }
    let mut worst = 0.0_f32;
    for (rank, (found, (tokens, score))) in found.iter().zip(expected).enumerate() {
        if found.tokens != *tokens {
            return Err(format!("hypothesis {rank}: {:?}, expected {tokens:?}", found.tokens));
        }
        let Some(score) = score else { continue };
        let difference = (found.score - score).abs() / score.abs();
        if difference.is_nan() || difference > BOUND {
            return Err(format!("hypothesis {rank}: score {}, expected {score}", found.score));
        }
        worst = worst.max(difference);
    }
    Ok(worst)
}
