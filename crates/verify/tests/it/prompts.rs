//! Prompts that are read at once, compared with prompts that are read token by token; and the
//! weights of cross-attention.

use crate::decoding::silent;
use crate::engines::for_our_operators;
use crate::golden::array;
use cognate_generate::{
    Decoder, Hypothesis, Logits, Result, SentenceBatch, Settings, SharedCacheDecoder, Sources,
    decode,
};
use cognate_graph::{Program, Steps};
use cognate_model::interface::LOGITS_SCALE;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::{fuse::fuse, quantize};
use cognate_runtime::{Engine, Options, Ort, Reference, Runtime, Source, Tract};
use cognate_testing::{Golden, SPEECH_MODELS, golden};
use cognate_verify::{CLOSE, compare};
use ndarray::{Array2, ArrayD};

/// The places of new tokens after prompts.
const NEW: usize = 8;

/// Counts the tokens that its decoder reads at once, or lets it read none.
struct Counting {
    inner: SharedCacheDecoder,
    is_allowed: bool,
    n_read: usize,
}

impl Decoder for Counting {
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
        self.inner.advance(parents, tokens)
    }

    fn supports_prefill(&self) -> bool {
        self.is_allowed && self.inner.supports_prefill()
    }

    fn prefill(&mut self, tokens: &Array2<i64>) -> Result<()> {
        self.n_read += tokens.len();
        self.inner.prefill(tokens)
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        self.inner.retain(sentences)
    }
}

struct Subject {
    decoder: Counting,
    n_layers: usize,
    settings: Settings,
    features: ArrayD<f32>,
}

fn subject(runtime: &dyn Runtime, name: &str, integers: bool, options: &Options) -> Subject {
    let (model, layout) = (Model::open(&golden(name)).unwrap(), Layout::SharedCache);
    let mut programs: Vec<Program> = model
        .graphs(layout, Attentions::Cross)
        .unwrap()
        .iter()
        .map(|program| fuse(program).unwrap())
        .collect();
    if integers {
        let options = quantize::Options::Columns {
            steps: Steps::Row,
            unscaled: Some(["logits", LOGITS_SCALE]),
        };
        programs = quantize::quantize(&[&programs[0], &programs[1]], options).unwrap();
    }
    let folder = for_our_operators(&programs);
    let load = |index: usize| match runtime.engine() {
        Engine::Reference => {
            runtime.load(&Source::Graph(programs[index].clone()), options).unwrap()
        }
        _ => {
            runtime.load(&Source::Onnx(folder.path().join(layout.files()[index])), options).unwrap()
        }
    };
    let [encoder, decoder] = [0, 1].map(load);
    let text = std::fs::read_to_string(golden(name).join("generation_config.json")).unwrap();
    let settings = Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
    let inner = SharedCacheDecoder::new(encoder, decoder, settings.pad_token).unwrap();
    let features = array(Golden::open(name).floats(model.config().front.features().unwrap().0));
    Subject {
        decoder: Counting { inner, is_allowed: true, n_read: 0 },
        n_layers: model.config().decoder.n_layers,
        settings,
        features,
    }
}

/// Prompts of `n` tokens that differ from clip to clip; they end in the same one.
fn prompts(clips: usize, n: usize) -> Vec<Vec<i64>> {
    let token = |clip: usize, place: usize| {
        if place + 1 == n { 9 } else { 4 + (clip * 31 + place * 17) as i64 % 60 }
    };
    (0..clips).map(|clip| (0..n).map(|place| token(clip, place)).collect()).collect()
}

/// Greedily, with as many beams as a prompt has tokens, and with fewer.
///
/// Sums in another order can round one of a row's 8-bit integers to its neighbour, which moves few
/// scores, and none by much.
#[test]
fn prompts_are_read_at_once_as_token_by_token() {
    let Ok(ort) = Ort::find() else {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    };
    let engines: [(&dyn Runtime, bool); 3] = [(&Tract, false), (&ort, false), (&ort, true)];
    for (name, (runtime, integers)) in
        SPEECH_MODELS.into_iter().flat_map(|name| engines.map(|engine| (name, engine)))
    {
        let Subject { mut decoder, settings, features, .. } =
            subject(runtime, name, integers, &Options::default());
        const NEAR: f32 = 1e-5;
        let (most, mut n_scores, mut n_near) = (if integers { 0.02 } else { NEAR }, 0, 0);
        for (n, num_beams) in [(8, 1), (9, 9), (29, 1), (29, 3)] {
            let settings = Settings {
                num_beams,
                num_return_sequences: num_beams,
                max_new_tokens: NEW,
                scores: true,
                ..settings.clone()
            };
            let prefixes = prompts(features.shape()[0], n);
            let mut run = |is_allowed: bool| -> Vec<Vec<Hypothesis>> {
                decoder.is_allowed = is_allowed;
                let batch = SentenceBatch {
                    sources: (&features).into(),
                    prefixes: &prefixes,
                    numbers: &[],
                };
                decode(&mut decoder, &batch, &settings, &mut silent).unwrap()
            };
            let (found, expected) = (run(true), run(false));
            // The last token of a prompt gives the first logits. Not every processor multiplies
            // integers by our operators.
            let n_read =
                if integers && !decoder.inner.supports_prefill() { 0 } else { prefixes.len() * n };
            assert_eq!(
                std::mem::take(&mut decoder.n_read),
                n_read,
                "{name}: prompts of {n} tokens"
            );
            for (clip, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let tokens = |found: &[Hypothesis]| {
                    found.iter().map(|hypothesis| hypothesis.tokens.clone()).collect::<Vec<_>>()
                };
                let place = format!(
                    "{name}, {}, integers {integers}, {n} tokens, {num_beams} beams, clip {clip}",
                    runtime.name()
                );
                assert_eq!(tokens(found), tokens(expected), "{place}");
                for (found, expected) in found.iter().zip(expected) {
                    let [found, expected] = [found.score, expected.score];
                    let difference = (found - expected).abs();
                    assert!(difference < most, "{place}: {found} and {expected}");
                    n_scores += 1;
                    n_near += usize::from(difference < NEAR);
                }
            }
        }
        assert!(10 * n_near >= 9 * n_scores, "{name}: {n_near} scores of {n_scores} are near");
    }
}

/// Few queries and, with more beams than it pays to read keys in place for, many. Roundings of f32
/// move the sharp weights of these small models by more than [`CLOSE`], so ONNX Runtime's own
/// operators are the measure.
#[test]
fn cross_attention_is_as_near_to_f64_as_that_of_onnx_runtimes_operators() {
    let Ok(ort) = Ort::find() else {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    };
    for name in SPEECH_MODELS {
        let plain = Options { plain: true, ..Options::default() };
        let runs: [(&dyn Runtime, Options); 3] =
            [(&ort, Options::default()), (&ort, plain), (&Reference::F64, Options::default())];
        let mut subjects = runs.map(|(runtime, options)| subject(runtime, name, false, &options));
        assert_eq!(
            subjects.each_ref().map(|subject| subject.decoder.supports_prefill()),
            [true, false, false]
        );
        for beams in [1, 3, 9] {
            let shape = (subjects[0].features.shape()[0], beams);
            for subject in &mut subjects {
                subject.decoder.start((&subject.features).into(), beams).unwrap();
            }
            let mut errors = [0.0; 2];
            for step in 0..4 {
                let tokens = Array2::from_shape_fn(shape, |(clip, beam)| {
                    4 + (clip * 7 + beam * 5 + step * 11) as i64 % 60
                });
                let weights = subjects.each_mut().map(|subject| {
                    subject.decoder.advance(None, &tokens).unwrap();
                    let layers = 0..subject.n_layers;
                    layers
                        .map(|layer_index| {
                            subject
                                .decoder
                                .inner
                                .cross_attention(layer_index)
                                .unwrap()
                                .mapv(f64::from)
                                .into_dyn()
                        })
                        .collect()
                });
                let [ours, theirs, exact]: [Vec<ArrayD<f64>>; 3] = weights;
                for (error, found) in errors.iter_mut().zip([ours, theirs]) {
                    let distances = found
                        .iter()
                        .zip(&exact)
                        .map(|(found, exact)| compare(found, exact).unwrap().relative_l2);
                    *error = distances.fold(*error, f64::max);
                }
            }
            let [ours, theirs] = errors;
            assert!(
                ours < (2.0 * theirs).max(CLOSE.relative_l2),
                "{name}, {beams} beams: {ours:e}, ONNX Runtime's {theirs:e}"
            );
        }
    }
}
