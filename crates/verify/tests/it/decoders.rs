//! `testdata/decoders`: PyTorch's numbers for decoders alone, on every engine and in every layout.

use crate::decoding::silent;
use crate::engines::{everywhere, output, own_and_plain};
use crate::golden::array;
use crate::golden_tokens::difference;
use cognate_folder::f32_programs;
use cognate_generate::{Decoder, SentenceBatch, Settings, decode, decoder, greedy_choices};
use cognate_graph::Program;
use cognate_model::interface::{ATTENTION_MASK, INPUT_IDS, LOGITS, Names};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Tract, Values};
use cognate_testing::{Golden, decoder_models, shared_golden, testdata};
use cognate_verify::{CLOSE, compare};
use ndarray::{ArrayD, Axis, Slice, stack};
use std::fs;
use std::path::Path;

/// The largest relative L2 difference of the reference's f64 to PyTorch's float64. Scales such as
/// `d_k^-1/2` are f32 in our graphs, as in every export, and each of them is good to 6e-8.
const DOUBLE_BOUND: f64 = 3e-7;

const LAYOUTS: [Layout; 3] = [Layout::Cognate, Layout::HuggingFace, Layout::SharedCache];

#[test]
fn every_decoder_agrees_with_pytorch() {
    let names = decoder_models();
    let of =
        |name: &String| differences(name, &testdata("decoders").join(name), &Golden::decoder(name));
    let failures: Vec<_> = names.iter().flat_map(of).collect();
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
    assert_eq!(names.len(), 15);
}

/// A GPT-2 that is not part of the repository; its answers contain the prompts.
#[test]
fn the_shared_gpt2_agrees_with_pytorch_and_transformers() {
    let Some(folder) = shared_golden("gpt2") else { return };
    let expected = Golden::open(folder.to_str().unwrap());
    let mut failures = differences("shared gpt2", &folder, &expected);
    let ways = [("greedy", 1), ("beam4", 4)];
    failures.extend(continued(
        "shared gpt2",
        &folder,
        &expected,
        Continued { ways, skipped: 11, max_new_tokens: 16 },
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What of a model, read at once, differs by more than its bound.
fn differences(name: &str, folder: &Path, expected: &Golden) -> Vec<String> {
    let model = Model::open(folder).unwrap();
    let mut failures = Vec::new();
    for mut session in everywhere(&model.teacher_forced().unwrap()) {
        for (what, worst, bound) in errors(session.as_mut(), &model, expected) {
            eprintln!("{name:20} {:30} {what:18} {worst:.1e} of {bound:.1e}", session.engine());
            if worst.is_nan() || worst > bound {
                failures.push(format!(
                    "{name}, {}: {what}: {worst:e}, at most {bound:e} is allowed",
                    session.engine()
                ));
            }
        }
    }
    failures
}

/// The relative L2 error of the logits and of the attention weights at tokens, and its bound.
fn errors(
    session: &mut dyn Session,
    model: &Model,
    expected: &Golden,
) -> Vec<(&'static str, f64, f64)> {
    let inputs: Values = [INPUT_IDS, ATTENTION_MASK]
        .map(|name| (name, array(expected.ids(name))))
        .into_iter()
        .collect();
    let found = session.run(&inputs).unwrap();
    let mask = array(expected.ids(ATTENTION_MASK));
    let bound = if session.engine().ends_with("f64") { DOUBLE_BOUND } else { CLOSE.relative_l2 };
    let flat = |numbers: Vec<f64>| ArrayD::from_shape_vec(vec![numbers.len()], numbers).unwrap();
    let error =
        |ours: Vec<f64>, theirs: Vec<f64>| compare(&flat(ours), &flat(theirs)).unwrap().relative_l2;
    let logits = error(
        of_tokens(&output(&found, LOGITS), &mask),
        of_tokens(&array(expected.doubles(LOGITS)), &mask),
    );
    let layers: Vec<_> = (0..model.config().decoder.n_layers)
        .map(|layer| output(&found, &Names::decoder_attentions(layer)))
        .collect();
    let layers =
        stack(Axis(0), &layers.iter().map(|layer| layer.view()).collect::<Vec<_>>()).unwrap();
    let by_query =
        |numbers: ArrayD<f64>| of_tokens(&numbers.permuted_axes(vec![1, 3, 0, 2, 4]), &mask);
    let attentions = error(by_query(layers), by_query(array(expected.doubles("attentions"))));
    vec![("logits", logits, bound), ("attentions", attentions, bound)]
}

/// The numbers of `states: [batch, len, ...]` at tokens, which follow the padding.
fn of_tokens(states: &ArrayD<f64>, mask: &ArrayD<i64>) -> Vec<f64> {
    let rows = states.outer_iter().zip(mask.outer_iter());
    rows.flat_map(|(states, mask)| {
        let tokens = states.slice_axis(Axis(0), Slice::from(-(mask.sum() as isize)..));
        tokens.iter().copied().collect::<Vec<_>>()
    })
    .collect()
}

/// The prompts of a case without padding, and the tokens of transformers' hypotheses with the
/// scores of beams.
type Hypotheses = Vec<Vec<(Vec<i64>, Option<f32>)>>;

#[test]
fn every_decoder_continues_as_transformers() {
    let way = Continued { ways: [("greedy", 1), ("beams", 3)], skipped: 0, max_new_tokens: 12 };
    let of = |name: String| {
        continued(&name, &testdata("decoders").join(&name), &Golden::decoder(&name), way)
    };
    let failures: Vec<_> = decoder_models().into_iter().flat_map(of).collect();
    assert!(failures.is_empty(), "from transformers:\n{}", failures.join("\n"));
}

/// What transformers answered.
#[derive(Clone, Copy)]
struct Continued {
    /// The name of the answers, and the number of beams.
    ways: [(&'static str, usize); 2],
    /// The number of tokens before the new ones.
    skipped: usize,
    max_new_tokens: usize,
}

/// What of the tokens is not transformers', in every layout on every engine.
fn continued(
    name: &str,
    folder: &Path,
    expected: &Golden,
    Continued { ways, skipped, max_new_tokens }: Continued,
) -> Vec<String> {
    let mut failures = Vec::new();
    let (model, prompts) = (Model::open(folder).unwrap(), prompts(expected));
    let text = fs::read_to_string(folder.join("generation_config.json")).unwrap();
    let defaults = Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
    for layout in LAYOUTS {
        let [program] =
            <[Program; 1]>::try_from(f32_programs(&model, layout, Attentions::Omit).unwrap())
                .unwrap();
        let mut sessions = if layout == Layout::SharedCache {
            own_and_plain(&program)
        } else {
            everywhere(&program)
        };
        sessions.extend(on_tract(&program).filter(|_| layout == Layout::SharedCache));
        for session in sessions {
            let mut decoder =
                decoder(layout, [session], model.config(), defaults.pad_token).unwrap();
            let decoder = decoder.as_mut();
            for (way, num_beams) in ways {
                let settings = Settings {
                    num_beams,
                    num_return_sequences: num_beams,
                    max_new_tokens,
                    ..defaults.clone()
                };
                let answers = answers(expected, way, skipped, &settings);
                let found =
                    decode(decoder, &SentenceBatch::new(&prompts), &settings, &mut silent).unwrap();
                // A prompt alone, which is not padded.
                let alone =
                    decode(decoder, &SentenceBatch::new(&prompts[1..2]), &settings, &mut silent)
                        .unwrap();
                let place = format!("{name}, {layout}, {}, {way}", decoder.engine());
                for (found, answers) in
                    found.iter().chain(&alone).zip(answers.iter().chain(&answers[1..2]))
                {
                    failures.extend(
                        difference(found, answers).err().map(|why| format!("{place}: {why}")),
                    );
                }
                if num_beams == 1 {
                    let best: Vec<_> = found.iter().map(|found| found[0].clone()).collect();
                    let chosen = greedy_choices(decoder, &prompts, &best, &settings).unwrap();
                    let own = best.iter().map(|best| {
                        best.tokens.iter().copied().chain(
                            settings.eos_tokens[0..1].iter().copied().filter(|_| best.complete),
                        )
                    });
                    if !chosen.iter().zip(own).all(|(chosen, own)| own.eq(chosen.iter().copied())) {
                        failures.push(format!(
                            "{place}: other choices along its own tokens: {chosen:?}"
                        ));
                    }
                }
            }
        }
    }
    failures
}

/// The layout with shared caches on tract, if programs compute it.
fn on_tract(program: &Program) -> Option<Box<dyn Session>> {
    Tract.load(&Source::Graph(program.clone()), &Options::default()).ok()
}

#[test]
fn tract_runs_the_decoders_that_programs_compute() {
    let is_refused = |name: &String| {
        let model = Model::open(&testdata("decoders").join(name)).unwrap();
        let programs = f32_programs(&model, Layout::SharedCache, Attentions::Omit).unwrap();
        on_tract(&programs[0]).is_none()
    };
    let refused: Vec<_> = decoder_models().into_iter().filter(is_refused).collect();
    assert_eq!(refused, Vec::<String>::new());
}

/// Prompts that do not fit into one pass, beside short ones; of the same models with more
/// positions.
#[test]
fn long_prompts_are_read_in_parts() {
    for name in ["llama", "qwen2-windows"] {
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(testdata("decoders").join(name)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let config = fs::read_to_string(folder.path().join("config.json")).unwrap();
        fs::write(
            folder.path().join("config.json"),
            config.replace("_embeddings\": 32", "_embeddings\": 640"),
        )
        .unwrap();
        let model = Model::open(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("generation_config.json")).unwrap();
        let defaults =
            Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
        let token = |row: usize, place: usize| {
            3 + ((row * 31 + place * place * 7) % (model.config().vocab - 3)) as i64
        };
        let prompts: Vec<Vec<i64>> = [520, 7, 259, 1]
            .iter()
            .enumerate()
            .map(|(row, &n)| (0..n).map(|place| token(row, place)).collect())
            .collect();
        let [program] = <[Program; 1]>::try_from(
            f32_programs(&model, Layout::SharedCache, Attentions::Omit).unwrap(),
        )
        .unwrap();
        assert!(own_and_plain(&program).get(1).is_none_or(|own| own.supports_prefill()), "{name}");
        let causal = Reference::F64
            .load(&Source::Graph(model.step(Attentions::Omit).unwrap()), &Options::default())
            .unwrap();
        let mut expected =
            decoder(Layout::Cognate, [causal], model.config(), defaults.pad_token).unwrap();
        for num_beams in [1, 3] {
            let settings = Settings {
                num_beams,
                num_return_sequences: num_beams,
                max_new_tokens: 6,
                ..defaults.clone()
            };
            let tokens = |decoder: &mut dyn Decoder| -> Vec<Vec<Vec<i64>>> {
                let found =
                    decode(decoder, &SentenceBatch::new(&prompts), &settings, &mut silent).unwrap();
                found
                    .into_iter()
                    .map(|found| found.into_iter().map(|found| found.tokens).collect())
                    .collect()
            };
            let expected = tokens(expected.as_mut());
            for session in own_and_plain(&program).into_iter().take(2) {
                let mut decoder =
                    decoder(Layout::SharedCache, [session], model.config(), defaults.pad_token)
                        .unwrap();
                assert_eq!(
                    tokens(decoder.as_mut()),
                    expected,
                    "{name}, {}, {num_beams} beams",
                    decoder.engine()
                );
            }
        }
    }
}

fn prompts(expected: &Golden) -> Vec<Vec<i64>> {
    let (ids, mask) = (expected.ids(INPUT_IDS), expected.ids(ATTENTION_MASK));
    let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
    rows.map(|(ids, mask)| {
        ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect()
    })
    .collect()
}

fn answers(expected: &Golden, way: &str, skipped: usize, settings: &Settings) -> Hypotheses {
    let rows = expected.ids(way);
    let score = |index: usize| {
        (settings.num_beams > 1)
            .then(|| expected.doubles(&format!("{way}_scores")).data[index] as f32)
    };
    let tokens = |row: &[i64]| {
        row[skipped..]
            .iter()
            .copied()
            .take_while(|token| !settings.eos_tokens.contains(token))
            .collect()
    };
    let rows =
        rows.data.chunks(rows.shape[1]).enumerate().map(|(index, row)| (tokens(row), score(index)));
    rows.collect::<Vec<_>>().chunks(settings.num_beams).map(<[_]>::to_vec).collect()
}
