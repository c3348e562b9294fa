//! `testdata/golden/{speech,images}`: tokens and scores of transformers' `generate` from log-mel frames and from pixels, in every
//! layout on every engine.

use crate::decoding::silent;
use crate::engines::{STEPPED, everywhere, on_ort};
use crate::golden::array;
use crate::golden_tokens::difference;
use cognate_folder::f32_programs;
use cognate_generate::{Decoder, SentenceBatch, Settings, Sources, TimestampRules, decode, decoder};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::Session;
use cognate_testing::{Golden, IMAGE_MODELS, SPEECH_MODELS, golden};
use ndarray::ArrayD;

/// A way of decoding: the names of its tokens and prompt, and its settings.
struct Way {
    name: &'static str,
    prompt: Option<&'static str>,
    num_beams: usize,
    change: fn(&mut Settings),
}

/// The rules of the small models.
const RULES: TimestampRules = TimestampRules { no_timestamps: 70, first: 71, max_initial: Some(10) };

const WAYS: [Way; 7] = [
    Way { name: "greedy", prompt: None, num_beams: 1, change: |_| {} },
    Way { name: "beam4", prompt: None, num_beams: 4, change: |_| {} },
    Way { name: "greedy_raw", prompt: None, num_beams: 1, change: raw },
    Way { name: "beam4_raw", prompt: None, num_beams: 4, change: raw },
    Way { name: "greedy_prompt", prompt: Some("prompt"), num_beams: 1, change: |_| {} },
    Way { name: "greedy_timestamps", prompt: Some("prompt_timestamps"), num_beams: 1, change: timed },
    Way { name: "beam4_timestamps", prompt: Some("prompt_timestamps"), num_beams: 4, change: timed },
];

fn raw(settings: &mut Settings) {
    settings.suppressed_tokens.clear();
    settings.suppressed_first_tokens.clear();
}

fn timed(settings: &mut Settings) {
    settings.timestamps = Some(RULES);
}

type Subject = (Model, Settings, ArrayD<f32>, Golden);

fn subject(name: &str) -> Subject {
    let (model, expected) = (Model::open(&golden(name)).unwrap(), Golden::open(name));
    let text = std::fs::read_to_string(golden(name).join("generation_config.json")).unwrap();
    let settings = Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
    let features = array(expected.floats(model.config().front.features().unwrap().0));
    (model, settings, features, expected)
}

/// A decoder of each engine that runs the layout.
fn decoders(model: &Model, layout: Layout) -> Vec<Box<dyn Decoder>> {
    let programs = f32_programs(model, layout, Attentions::Cross).unwrap();
    let load = |index: usize| -> Vec<Box<dyn Session>> {
        match layout {
            Layout::SharedCache => on_ort(&programs[index]),
            Layout::Cognate | Layout::HuggingFace | Layout::Generate => everywhere(&programs[index]),
        }
    };
    let pairs = load(0).into_iter().zip(load(1));
    pairs.map(|(encoder, step)| decoder(layout, [encoder, step], model.config(), model.config().pad_token as i64).unwrap()).collect()
}

#[test]
fn features_decode_as_transformers_in_every_layout() {
    let mut failures = Vec::new();
    let images = IMAGE_MODELS.map(|name| (name, &WAYS[..2]));
    for (name, ways) in SPEECH_MODELS.map(|name| (name, &WAYS[..])).into_iter().chain(images) {
        let (model, defaults, features, expected) = subject(name);
        for layout in STEPPED {
            for mut decoder in decoders(&model, layout) {
                for &Way { name: way, prompt, num_beams, change } in ways {
                    let mut settings = Settings { num_beams, num_return_sequences: num_beams, max_new_tokens: 24, ..defaults.clone() };
                    change(&mut settings);
                    let prefix = |row: &[i64]| row[1..].to_vec();
                    let prefixes: Vec<_> = prompt.map_or(Vec::new(), |name| {
                        let prompt = expected.ids(name);
                        prompt.data.chunks(prompt.shape[1]).map(prefix).collect()
                    });
                    let batch = SentenceBatch { sources: (&features).into(), prefixes: &prefixes, numbers: &[] };
                    let found = decode(decoder.as_mut(), &batch, &settings, &mut silent).unwrap();
                    let rows = expected.ids(way);
                    let tokens = |row: &[i64]| -> Vec<_> {
                        row[1..].iter().copied().take_while(|token| !settings.eos_tokens.contains(token)).collect()
                    };
                    let score = |row: usize| (num_beams > 1).then(|| expected.floats(&format!("{way}_scores")).data[row]);
                    let rows: Vec<_> = rows.data.chunks(rows.shape[1]).enumerate().map(|(row, ids)| (tokens(ids), score(row))).collect();
                    for (clip, (found, expected)) in found.iter().zip(rows.chunks(num_beams)).enumerate() {
                        if let Err(why) = difference(found, expected) {
                            failures.push(format!("{name}, {layout}, {}, {way}, clip {clip}: {why}", decoder.engine()));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
}

/// One clip is encoded once, and decoded greedily and with beams.
#[test]
fn a_source_is_decoded_again_without_its_encoder() {
    let (model, defaults, features, _) = subject(SPEECH_MODELS[0]);
    let clip = features.select(ndarray::Axis(0), &[1]);
    for layout in STEPPED {
        for mut decoder in decoders(&model, layout) {
            let mut run = |sources: Sources<'_>, num_beams| {
                let settings = Settings { num_beams, max_new_tokens: 9, ..defaults.clone() };
                decode(decoder.as_mut(), &SentenceBatch::new(sources), &settings, &mut silent)
            };
            let expected = [1, 3, 2].map(|beams| run((&clip).into(), beams).unwrap());
            assert_eq!([1, 3, 2].map(|beams| run(Sources::Again(1), beams).unwrap()), expected, "{layout}");
            let refused = run(Sources::Again(2), 1).unwrap_err().to_string();
            assert_eq!(refused, "expected the sources of the last batch, 2, found 1");
        }
    }
}
