//! `testdata/research`: every choice of Cognate's own family against the same equations in PyTorch,
//! on every engine.

use crate::agreement;
use crate::engines::{STEPPED, everywhere, on_ort, output};
use crate::golden::{all, array, distance, unpadded};
use crate::profile;
use cognate_generate::{Settings, decoder, generate};
use cognate_graph::{Generator, Program, Recipe};
use cognate_model::{AttentionScore, Attentions, Layout, Loss, LossNames, Model, Names, Positions};
use cognate_passes::gradient::{gradient, gradient_name};
use cognate_runtime::{Options, Reference, Runtime, Source, Values};
use cognate_testing::{Golden, testdata};
use cognate_verify::CLOSE;
use insta::assert_snapshot;
use std::sync::Arc;

pub(crate) const CASES: [&str; 7] =
    ["additive", "alibi", "dot", "learned", "pre-rms-gated", "relative", "rotary"];

/// The largest absolute difference to PyTorch's float64, of f64 and of an engine's f32.
const BOUNDS: [f64; 2] = [2e-6, 1e-4];

struct Case {
    name: &'static str,
    model: Model,
    expected: Golden,
}

fn cases() -> impl Iterator<Item = Case> {
    let open = |name| Model::open(&testdata("research").join(name)).unwrap();
    CASES.into_iter().map(move |name| Case {
        name,
        model: open(name),
        expected: Golden::research(name),
    })
}

fn inputs(expected: &Golden, names: &[&str]) -> Values {
    names.iter().map(|name| (*name, array(expected.ids(name)))).collect()
}

fn none(failures: &[String]) {
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

#[test]
fn every_choice_agrees_with_pytorch() {
    let mut failures = Vec::new();
    for Case { name, model, expected } in cases() {
        let mask = array(expected.ids("attention_mask"));
        let inputs = inputs(&expected, &["input_ids", "attention_mask", "decoder_input_ids"]);
        for mut session in everywhere(&model.teacher_forced().unwrap()) {
            let outputs = session.run(&inputs).unwrap();
            let bound = if session.engine().ends_with("f64") { BOUNDS[0] } else { BOUNDS[1] };
            let attentions = (0..model.config().decoder.n_layers)
                .flat_map(|layer| all(&output(&outputs, &Names::cross_attentions(layer))));
            for (what, ours) in [
                (
                    "encoder_hidden_states",
                    unpadded(&output(&outputs, "encoder_hidden_states"), &mask),
                ),
                ("logits", all(&output(&outputs, "logits"))),
                ("cross_attentions", attentions.collect()),
            ] {
                let theirs = array(expected.doubles(what));
                let theirs = if what.starts_with("encoder") {
                    unpadded(&theirs, &mask)
                } else {
                    all(&theirs)
                };
                let worst = distance(&ours, &theirs);
                eprintln!("{name:14} {:45} {what:22} {worst:.1e}", session.engine());
                if worst.is_nan() || worst > bound {
                    failures.push(format!(
                        "{name}, {}: {what}: {worst:e}, at most {bound:e} is allowed",
                        session.engine()
                    ));
                }
            }
        }
    }
    none(&failures);
}

/// Greedy tokens, decoded with a past, in every layout that the model has; PyTorch reads the whole
/// target again for each token.
#[test]
fn every_choice_decodes_as_pytorch() {
    let mut failures = Vec::new();
    for Case { name, model, expected } in cases() {
        let mut settings = Settings::from_json(model.config_json(), None, model.config()).unwrap();
        settings.max_new_tokens = 10;
        let (ids, mask) = (array(expected.ids("input_ids")), array(expected.ids("attention_mask")));
        let tokens = ids
            .outer_iter()
            .zip(mask.outer_iter())
            .map(|(ids, mask)| ids.iter().copied().take(mask.sum() as usize).collect());
        let sources: Vec<Vec<i64>> = tokens.collect();
        let is_token = |token: &i64| *token >= 0 && *token != settings.eos_tokens[0];
        let rows = array(expected.ids("greedy"));
        let theirs: Vec<Vec<i64>> =
            rows.outer_iter().map(|row| row.iter().copied().filter(is_token).collect()).collect();
        for layout in STEPPED {
            if layout == Layout::SharedCache && model.config().score == AttentionScore::Additive {
                continue;
            }
            let load = if layout == Layout::SharedCache { on_ort } else { everywhere };
            let [encoders, steps] =
                model.graphs(layout, Attentions::Omit).unwrap().map(|program| load(&program));
            for (encoder, step) in encoders.into_iter().zip(steps) {
                let engine = format!("{name}, {}, layout {layout}", step.engine());
                let mut decoder =
                    decoder(layout, [encoder, step], model.config(), settings.pad_token).unwrap();
                let found = generate(&mut *decoder, &sources, &settings).unwrap();
                let ours: Vec<_> = found.into_iter().map(|hypothesis| hypothesis.tokens).collect();
                if ours != theirs {
                    failures.push(format!("{engine}: {ours:?}, expected {theirs:?}"));
                }
            }
        }
    }
    none(&failures);
}

/// Encoder, steps of several lengths, greedy and beam search: every engine against the f64
/// reference.
#[test]
fn every_choice_passes_when_exported() {
    for Case { name, model, .. } in cases() {
        let folder = agreement::export(&model);
        let report = agreement::report(folder.path(), &model);
        assert!(report.passed(), "{name}: {report}");
        if model.config().score == AttentionScore::Additive {
            let error = model.graphs(Layout::SharedCache, Attentions::Omit).unwrap_err();
            assert_snapshot!(error, @r#"config.json: attention_score "additive" has no form over caches that beams share (layout shared-cache), whose operator compares by products; use the layout cognate or hf"#);
        } else if let Some(report) = profile::report(&model, None, CLOSE) {
            assert!(report.passed(), "{name}, shared caches: {report}");
        }
    }
}

/// The norm of the difference to PyTorch's gradient over the gradient's own, or over a
/// ten-thousandth of that of all parameters.
const GRADIENT_BOUND: f64 = 1e-5;

/// Over which share of the norm of all gradients those are measured that are zero: what engines
/// leave is rounding of large sums.
const OF_ALL: f64 = 1e-2;

/// Whether a parameter changes nothing: a key's bias adds one number to all scores of a query,
/// unless keys are turned or go through tanh first.
fn is_idle(model: &Model, path: &str) -> bool {
    let is_turned = model.config().positions == Positions::Rotary && path.contains("self_attn");
    path.ends_with("k_proj.bias") && model.config().score != AttentionScore::Additive && !is_turned
}

#[test]
fn every_choice_has_pytorchs_gradients() {
    let mut failures = Vec::new();
    for Case { name, model, expected } in cases() {
        let program = model.loss(&Loss { label_smoothing: 0.1, ..Loss::default() }).unwrap();
        let learned: Vec<_> = model.learned().collect();
        let graph = gradient(program.graph(), LossNames::LOSS, &learned).unwrap();
        let program = Program::new(graph, program.weights().clone()).unwrap();
        let inputs =
            inputs(&expected, &["input_ids", "attention_mask", "decoder_input_ids", "labels"]);
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let theirs: Vec<Vec<f64>> = learned
            .iter()
            .map(|path| {
                expected.floats(&gradient_name(path)).data.iter().copied().map(f64::from).collect()
            })
            .collect();
        let total = norm(&theirs.concat());
        for mut session in everywhere(&program) {
            let outputs = session.run(&inputs).unwrap();
            let (loss, expected_loss) =
                (output(&outputs, LossNames::LOSS).sum(), expected.doubles("loss").data[0]);
            let mut worst = ((loss - expected_loss) / expected_loss).abs();
            for (path, theirs) in learned.iter().zip(&theirs) {
                let ours = all(&output(&outputs, &gradient_name(path)));
                let difference: Vec<_> =
                    ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs).collect();
                assert_eq!(ours.len(), theirs.len(), "{name}: {path}");
                let is_zero = norm(theirs) < 1e-9 * total;
                assert_eq!(is_zero, is_idle(&model, path), "{name}: {path}");
                let error = norm(&difference)
                    / norm(theirs).max(if is_zero { OF_ALL } else { 1e-4 } * total);
                if error.is_nan() || error > GRADIENT_BOUND {
                    failures.push(format!("{name}, {}: {path}: {error:e}", session.engine()));
                }
                worst = worst.max(error);
            }
            eprintln!("{name:14} {:45} loss and gradients {worst:.1e}", session.engine());
        }
    }
    none(&failures);
}

/// A weight with a small wave added.
#[derive(Debug)]
struct Moved(Vec<f32>);

impl Generator for Moved {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.0[first..][..values.len()]);
    }
}

/// Each parameter moved a little there and back along a wave: the loss changes as its gradient
/// says, in f64.
#[test]
fn gradients_are_what_differences_say() {
    const STEP: f32 = 1e-5;
    let mut failures = Vec::new();
    for Case { name, model, expected } in cases() {
        let inputs =
            inputs(&expected, &["input_ids", "attention_mask", "decoder_input_ids", "labels"]);
        let run = |program: Program| {
            Reference::F64
                .load(&Source::Graph(program), &Options::default())
                .unwrap()
                .run(&inputs)
                .unwrap()
        };
        let learned: Vec<_> = model.learned().collect();
        let program = model.loss(&Loss::default()).unwrap();
        let graph = gradient(program.graph(), LossNames::LOSS, &learned).unwrap();
        let gradients = run(Program::new(graph, model.weights().clone()).unwrap());
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let total = norm(
            &learned
                .iter()
                .flat_map(|path| all(&output(&gradients, &gradient_name(path))))
                .collect::<Vec<_>>(),
        );
        for path in &learned {
            let original = model.weights().get(path).unwrap();
            let moved = |step: f32| -> Vec<f32> {
                original
                    .values::<f32>()
                    .iter()
                    .zip(1..)
                    .map(|(value, place)| value + step * (place as f32 * 0.7).sin())
                    .collect()
            };
            let loss = |values: &[f32]| {
                let recipe = Recipe::generated(Arc::new(Moved(values.to_vec())), original.shape());
                let weights = model.weights().iter().map(|(name, known)| {
                    (name.to_string(), if name == *path { &recipe } else { known }.clone())
                });
                let moved = Program::new(program.graph().clone(), weights.collect()).unwrap();
                output(&run(moved), LossNames::LOSS).sum()
            };
            let (ahead, behind) = (moved(STEP), moved(-STEP));
            // As far as rounding to f32 has really moved it.
            let way: Vec<_> = ahead
                .iter()
                .zip(&behind)
                .map(|(ahead, behind)| f64::from(*ahead) - f64::from(*behind))
                .collect();
            let gradient = all(&output(&gradients, &gradient_name(path)));
            let told: f64 = gradient.iter().zip(&way).map(|(gradient, way)| gradient * way).sum();
            let error = (loss(&ahead) - loss(&behind) - told).abs()
                / (norm(&way) * norm(&gradient).max(1e-4 * total));
            if error.is_nan() || error > GRADIENT_BOUND {
                failures.push(format!("{name}: {path}: {error:e}"));
            }
        }
    }
    assert!(failures.is_empty(), "from differences:\n{}", failures.join("\n"));
}
