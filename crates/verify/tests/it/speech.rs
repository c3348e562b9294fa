//! `testdata/golden/{speech,images}`: tokens and scores of transformers' `generate` from log-mel
//! frames and from pixels, in every layout on every engine.

use crate::decoding::silent;
use crate::engines::{STEPPED, assert_close, everywhere, for_our_operators, on_ort, output};
use crate::golden::array;
use crate::golden_tokens::{BOUND, difference};
use cognate_folder::f32_programs;
use cognate_generate::{
    Decoder, SearchDecoder, SentenceBatch, Settings, Sources, TimestampRules, decode, decoder,
    search_program,
};
use cognate_model::interface::{ENCODER_HIDDEN_STATES, INPUT_FEATURES};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::{
    Device, Options, Ort, Reference, Runtime, Session, Source, Values, available,
};
use cognate_testing::{Golden, IMAGE_MODELS, SPEECH_MODELS, golden, shared_whisper};
use ndarray::{ArrayD, Axis, Slice};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

/// A way of decoding: the names of its tokens and prompt, and its settings.
struct Way {
    name: &'static str,
    prompt: Option<&'static str>,
    num_beams: usize,
    change: fn(&mut Settings),
}

/// The rules of the small models.
const RULES: TimestampRules =
    TimestampRules { no_timestamps: 70, first: 71, max_initial: Some(10) };

const WAYS: [Way; 7] = [
    Way { name: "greedy", prompt: None, num_beams: 1, change: |_| {} },
    Way { name: "beam4", prompt: None, num_beams: 4, change: |_| {} },
    Way { name: "greedy_raw", prompt: None, num_beams: 1, change: raw },
    Way { name: "beam4_raw", prompt: None, num_beams: 4, change: raw },
    Way { name: "greedy_prompt", prompt: Some("prompt"), num_beams: 1, change: |_| {} },
    Way {
        name: "greedy_timestamps",
        prompt: Some("prompt_timestamps"),
        num_beams: 1,
        change: timed,
    },
    Way {
        name: "beam4_timestamps",
        prompt: Some("prompt_timestamps"),
        num_beams: 4,
        change: timed,
    },
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
            Layout::Cognate | Layout::HuggingFace | Layout::Triton | Layout::Generate => {
                everywhere(&programs[index])
            }
        }
    };
    let pairs = load(0).into_iter().zip(load(1));
    pairs
        .map(|(encoder, step)| {
            decoder(layout, [encoder, step], model.config(), model.config().pad_token as i64)
                .unwrap()
        })
        .collect()
}

/// The models, and the ways of which transformers' results are known.
fn models() -> impl Iterator<Item = (&'static str, &'static [Way])> {
    let images = IMAGE_MODELS.map(|name| (name, &WAYS[..2]));
    SPEECH_MODELS.map(|name| (name, &WAYS[..])).into_iter().chain(images)
}

impl Way {
    fn settings(&self, defaults: &Settings) -> Settings {
        let mut settings = Settings {
            num_beams: self.num_beams,
            num_return_sequences: self.num_beams,
            max_new_tokens: 24,
            ..defaults.clone()
        };
        (self.change)(&mut settings);
        settings
    }

    /// What differs from transformers.
    fn differences(
        &self,
        decoder: &mut dyn Decoder,
        (_, defaults, features, expected): &Subject,
    ) -> Vec<String> {
        let settings = self.settings(defaults);
        let prefix = |row: &[i64]| row[1..].to_vec();
        let prefixes: Vec<_> = self.prompt.map_or(Vec::new(), |name| {
            let prompt = expected.ids(name);
            prompt.data.chunks(prompt.shape[1]).map(prefix).collect()
        });
        let batch = SentenceBatch { sources: features.into(), prefixes: &prefixes, numbers: &[] };
        let found = decode(decoder, &batch, &settings, &mut silent).unwrap();
        let rows = expected.ids(self.name);
        let tokens = |row: &[i64]| -> Vec<_> {
            row[1..]
                .iter()
                .copied()
                .take_while(|token| !settings.eos_tokens.contains(token))
                .collect()
        };
        let score = |row: usize| {
            let name = format!("{}_scores", self.name);
            (self.num_beams > 1).then(|| expected.floats(&name).data[row])
        };
        let rows: Vec<_> = rows
            .data
            .chunks(rows.shape[1])
            .enumerate()
            .map(|(row, ids)| (tokens(ids), score(row)))
            .collect();
        let clips = found.iter().zip(rows.chunks(self.num_beams)).enumerate();
        let wrong = clips.filter_map(|(clip, (found, expected))| {
            let why = difference(found, expected).err()?;
            Some(format!("{}, {}, clip {clip}: {why}", decoder.engine(), self.name))
        });
        wrong.collect()
    }
}

#[test]
fn features_decode_as_transformers_in_every_layout() {
    let mut failures = Vec::new();
    for (name, ways) in models() {
        let subject = subject(name);
        for layout in STEPPED {
            for mut decoder in decoders(&subject.0, layout) {
                for way in ways {
                    let wrong = way.differences(decoder.as_mut(), &subject);
                    failures
                        .extend(wrong.into_iter().map(|why| format!("{name}, {layout}, {why}")));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
}

/// The search as a part of the graph, which has no rules of timestamps.
#[test]
fn frames_decode_as_transformers_in_one_graph() {
    let mut failures = Vec::new();
    for name in SPEECH_MODELS {
        let subject = subject(name);
        let (model, defaults, ..) = &subject;
        let [encoder, step] = model.graphs(Layout::Generate, Attentions::Omit).unwrap();
        for way in &WAYS {
            let settings = way.settings(defaults);
            if settings.timestamps.is_some() {
                continue;
            }
            let positions = model.config().max_positions;
            let program = search_program([&encoder, &step], &settings, positions).unwrap();
            for session in on_ort(&program) {
                let mut decoder = SearchDecoder::new(session, settings.pad_token).unwrap();
                let wrong = way.differences(&mut decoder, &subject);
                failures.extend(wrong.into_iter().map(|why| format!("{name}, {why}")));
            }
        }
    }
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
}

/// OpenAI's model on real speech, where it is at hand.
#[test]
fn whisper_decodes_as_transformers_in_one_graph() {
    let Some(shared) = shared_whisper() else { return };
    let folder = shared.join("models/whisper-tiny.en");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let text = String::from_utf8(read("generation_config.json")).unwrap();
    let model = Model::open(&folder).unwrap();
    let settings = Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
    let features = read("reference/features-0880.safetensors");
    let features = SafeTensors::deserialize(&features).unwrap();
    let features = features.tensor(INPUT_FEATURES).unwrap();
    let (values, _) = features.data().as_chunks();
    let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let features = ArrayD::from_shape_vec([&[1], features.shape()].concat(), values).unwrap();
    let expected: serde_json::Value =
        serde_json::from_slice(&read("reference/transformers-short.json")).unwrap();
    let expected = &expected["0880"]["transcribe"];
    let ids = |value: &serde_json::Value| -> Vec<_> {
        value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
    };
    let prefix = ids(&expected["prompt"])[1..].to_vec();
    let programs = model.graphs(Layout::Generate, Attentions::Omit).unwrap();
    let positions = model.config().max_positions;
    let program = search_program([&programs[0], &programs[1]], &settings, positions).unwrap();
    for session in on_ort(&program).into_iter().skip(1) {
        let mut decoder = SearchDecoder::new(session, settings.pad_token).unwrap();
        for num_beams in [1, 5] {
            let settings = Settings { num_beams, ..settings.clone() };
            let batch = SentenceBatch {
                sources: (&features).into(),
                prefixes: std::slice::from_ref(&prefix),
                numbers: &[],
            };
            let found = decode(&mut decoder, &batch, &settings, &mut silent).unwrap();
            let best = &expected["beam5"][0];
            let expected = if num_beams == 1 { &expected["greedy"] } else { best };
            assert_eq!(found[0][0].tokens[prefix.len()..], ids(&expected["ids"]));
            if let Some(score) = expected["score"].as_f64() {
                let error = (f64::from(found[0][0].score) - score).abs() / score.abs();
                assert!(error < f64::from(BOUND), "{num_beams} beams: {error}");
            }
        }
    }
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
            assert_eq!(
                [1, 3, 2].map(|beams| run(Sources::Again(1), beams).unwrap()),
                expected,
                "{layout}"
            );
            let refused = run(Sources::Again(2), 1).unwrap_err().to_string();
            assert_eq!(refused, "expected the sources of the last batch, 2, found 1");
        }
    }
}

/// The model with the first rows of its encoder's positions only.
fn with_positions(name: &str, n_positions: usize) -> Model {
    const POSITIONS: &str = "model.encoder.embed_positions.weight";
    let (folder, given) = (tempfile::tempdir().unwrap(), golden(name));
    let config = std::fs::read_to_string(given.join("config.json")).unwrap();
    let changed = config.replace(
        "\"max_source_positions\": 50",
        &format!("\"max_source_positions\": {n_positions}"),
    );
    assert_ne!(changed, config);
    std::fs::write(folder.path().join("config.json"), changed).unwrap();
    let bytes = std::fs::read(given.join("model.safetensors")).unwrap();
    let mut tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let (_, table) = tensors.iter_mut().find(|(name, _)| name == POSITIONS).unwrap();
    let width = table.shape()[1];
    let rows = &table.data()[..n_positions * width * size_of::<f32>()];
    *table = TensorView::new(table.dtype(), vec![n_positions, width], rows).unwrap();
    std::fs::write(
        folder.path().join("model.safetensors"),
        safetensors::serialize(tensors, None).unwrap(),
    )
    .unwrap();
    Model::open(folder.path()).unwrap()
}

/// An encoder reads windows of any even number of frames, as one that has no more positions.
#[test]
fn short_windows_are_those_of_a_model_with_fewer_positions() {
    let frames = |features: &ArrayD<f32>, n: usize| -> Values {
        let part = features.slice_axis(Axis(2), Slice::from(..n)).to_owned();
        [(INPUT_FEATURES, part)].into_iter().collect()
    };
    for name in SPEECH_MODELS {
        let (model, _, features, _) = subject(name);
        let programs = [Layout::Cognate, Layout::SharedCache]
            .map(|layout| f32_programs(&model, layout, Attentions::Cross).unwrap());
        let mut sessions = everywhere(&programs[0][0]);
        if let Ok(ort) = Ort::find() {
            let folder = for_our_operators(&programs[1]);
            let file = Source::Onnx(folder.path().join(Layout::SharedCache.files()[0]));
            sessions.push(ort.load(&file, &Options::default()).unwrap());
        }
        for n_positions in [1, 17, 30, 49] {
            let expected =
                f32_programs(&with_positions(name, n_positions), Layout::Cognate, Attentions::Omit)
                    .unwrap();
            let mut reference = Reference::F64
                .load(&Source::Graph(expected[0].clone()), &Options::default())
                .unwrap();
            let expected = output(
                &reference.run(&frames(&features, 2 * n_positions)).unwrap(),
                ENCODER_HIDDEN_STATES,
            );
            assert_eq!(expected.shape()[1], n_positions);
            for session in &mut sessions {
                let found = output(
                    &session.run(&frames(&features, 2 * n_positions)).unwrap(),
                    ENCODER_HIDDEN_STATES,
                );
                assert_close(
                    &found,
                    &expected,
                    1e-3,
                    &format!("{name}, {n_positions} positions, {}", session.engine()),
                );
            }
        }
    }
}

#[test]
fn outputs_that_nobody_reads_are_removed() {
    let (model, _, features, _) = subject(SPEECH_MODELS[0]);
    let encoder = f32_programs(&model, Layout::Cognate, Attentions::All).unwrap().remove(0);
    for engine in available(Device::Cpu).unwrap() {
        let run = |without_outputs: &'static [&'static str]| {
            let options = Options { without_outputs, ..Options::default() };
            let mut session = engine.load(&Source::Graph(encoder.clone()), &options).unwrap();
            let found =
                session.run(&[(INPUT_FEATURES, features.clone())].into_iter().collect()).unwrap();
            (session.outputs().to_vec(), found)
        };
        let ((all, expected), (kept, found)) = (run(&[]), run(&["encoder_attentions."]));
        assert_eq!(
            all.len() - kept.len(),
            model.config().encoder.n_layers,
            "{}: {all:?}, {kept:?}",
            engine.name()
        );
        assert_eq!(found.iter().count(), kept.len());
        for name in &kept {
            assert_close(
                &output(&found, name),
                &output(&expected, name),
                1e-5,
                &format!("{}: {name}", engine.name()),
            );
        }
    }
}
