//! Graphs that decode by themselves against the search outside of graphs, on the reference
//! evaluator and ONNX Runtime.

use crate::engines::on_ort;
use cognate_generate::{
    AttentionRequest, EarlyStopping, FixedSizes, Hypothesis, MOST_BEAMS, Sampling, SearchDecoder,
    SearchLimits, SentenceBatch, SessionDecoder, Settings, attend, check_search, decode, score,
    search_program,
};
use cognate_graph::{Builder, DType, Dim, Generator, Program, Recipe, Weights, concat};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::{Options, Reference, Runtime, Source, Values};
use cognate_testing::{Golden, golden, golden_models};
use ndarray::s;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

type Change = fn(&mut Settings);

/// Options of decoding that a graph takes as inputs.
const ROWS: [(&str, Change); 14] = [
    ("greedy", |_| {}),
    ("beams", |settings| (settings.num_beams, settings.num_return_sequences) = (4, 4)),
    ("one of three beams", |settings| settings.num_beams = 3),
    ("early", |settings| (settings.num_beams, settings.early_stopping) = (4, EarlyStopping::Full)),
    ("never", |settings| {
        (settings.num_beams, settings.early_stopping, settings.length_penalty) =
            (4, EarlyStopping::Never, 1.5)
    }),
    ("short", |settings| (settings.num_beams, settings.length_penalty) = (4, -1.0)),
    ("no penalty", |settings| {
        (settings.num_beams, settings.length_penalty, settings.num_return_sequences) = (2, 0.0, 2)
    }),
    ("two tokens", |settings| (settings.num_beams, settings.max_new_tokens) = (4, 2)),
    ("repetition, greedy", |settings| settings.repetition_penalty = 1.7),
    ("repetition, less", |settings| (settings.num_beams, settings.repetition_penalty) = (3, 0.6)),
    ("two-grams", |settings| (settings.num_beams, settings.no_repeat_ngram_size) = (3, 2)),
    ("one-grams, greedy", |settings| settings.no_repeat_ngram_size = 1),
    ("three-grams and repetition", |settings| {
        (settings.num_beams, settings.no_repeat_ngram_size, settings.repetition_penalty) =
            (4, 3, 1.3);
    }),
    ("at least six", |settings| (settings.num_beams, settings.min_length) = (3, 6)),
];

fn open(folder: &Path) -> (Model, Settings) {
    let model = Model::open(folder).unwrap();
    let text = std::fs::read_to_string(folder.join("generation_config.json")).unwrap();
    let settings = Settings::from_json(model.config_json(), Some(&text), model.config()).unwrap();
    (model, settings)
}

/// Where the reference prefers a score by less, another engine may choose otherwise.
const TIE: f32 = 1e-5;

/// What differs between two searches; scores are rounded differently.
fn differences(found: &[Vec<Hypothesis>], expected: &[Vec<Hypothesis>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (sentence, (found, expected)) in found.iter().zip(expected).enumerate() {
        let tokens = |of: &[Hypothesis]| {
            of.iter().map(|one| (one.tokens.clone(), one.complete)).collect::<Vec<_>>()
        };
        let near = |(found, expected): (&Hypothesis, &Hypothesis)| {
            (found.score - expected.score).abs() <= 1e-4 * expected.score.abs()
        };
        if expected.iter().any(|one| one.margin() < TIE) {
            continue;
        }
        if tokens(found) != tokens(expected) || !found.iter().zip(expected).all(near) {
            wrong.push(format!("sentence {sentence}: expected {expected:?}, found {found:?}"));
        }
    }
    if found.len() != expected.len() { vec![format!("{} sentences", found.len())] } else { wrong }
}

fn agree(folder: &Path, name: &str, sources: &[Vec<i64>], fixed: Change, rows: &[(&str, Change)]) {
    let (model, mut settings) = open(folder);
    settings.scores = true;
    fixed(&mut settings);
    settings.max_new_tokens = settings.max_new_tokens.min(24);
    let [encoder, step] = model.graphs(Layout::Generate, Attentions::Omit).unwrap();
    let program =
        search_program([&encoder, &step], &settings, model.config().max_positions).unwrap();
    let pad_token = model.config().source_pad(settings.pad_token);
    let mut searches =
        Searches::new(&program, encoder, model.step(Attentions::Omit).unwrap(), pad_token);
    let mut wrong = Vec::new();
    for (row, change) in rows {
        let mut settings = settings.clone();
        settings.num_beams = 1;
        change(&mut settings);
        wrong.extend(
            searches
                .differences(sources, &settings)
                .unwrap()
                .into_iter()
                .map(|line| format!("{name}, {row}, {line}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The search outside of graphs on the reference evaluator, and the one inside on every engine.
struct Searches {
    outside: SessionDecoder,
    inside: Vec<SearchDecoder>,
}

impl Searches {
    fn new(program: &Program, encoder: Program, step: Program, pad_token: i64) -> Self {
        let load =
            |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
        let outside = SessionDecoder::new(load(encoder), load(step), pad_token).unwrap();
        let inside = on_ort(program)
            .into_iter()
            .map(|session| SearchDecoder::new(session, pad_token).unwrap());
        Self { outside, inside: inside.collect() }
    }

    /// What differs; `None` where the search outside cannot choose a token.
    fn differences(&mut self, sources: &[Vec<i64>], settings: &Settings) -> Option<Vec<String>> {
        let batch = SentenceBatch::new(sources);
        let expected =
            decode(&mut self.outside, &batch, settings, &mut |_| ControlFlow::Continue(())).ok()?;
        let mut wrong = Vec::new();
        for decoder in &mut self.inside {
            let engine = cognate_generate::Decoder::engine(decoder).to_owned();
            let found =
                decode(decoder, &batch, settings, &mut |_| ControlFlow::Continue(())).unwrap();
            wrong.extend(
                differences(&found, &expected).into_iter().map(|line| format!("{engine}: {line}")),
            );
        }
        Some(wrong)
    }
}

/// Recorded logits.
#[derive(Debug)]
struct Recorded(Vec<f32>);

impl Generator for Recorded {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.0[first..first + values.len()]);
    }
}

/// Draws of one token against the probabilities of transformers' warpers.
#[test]
fn draws_have_the_probabilities_of_transformers() {
    const SAMPLES: usize = 500;
    let text =
        std::fs::read_to_string(cognate_testing::testdata("golden/decoding/warpers.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let numbers = |value: &serde_json::Value| {
        value.as_array().unwrap().iter().map(serde_json::Value::as_f64).collect::<Vec<_>>()
    };
    let logits: Vec<f32> = numbers(&file["logits"])
        .into_iter()
        .map(|logit| logit.map_or(f32::NEG_INFINITY, |logit| logit as f32))
        .collect();
    let encoder = Builder::new("encoder");
    let step = Builder::new("decoder");
    {
        let ids = encoder.input("input_ids", DType::I64, ["batch", "src"]);
        encoder.input("attention_mask", DType::I64, ["batch", "src"]);
        encoder.output(
            "cross.0.key",
            ids.cast(DType::F32).reshape([ids.dim(0), 1.into(), ids.dim(1), 1.into()]),
        );
        let [batch, beams] = ["batch", "beams"].map(Dim::from);
        step.input("input_ids", DType::I64, [batch.clone(), beams.clone(), 1.into()]);
        step.input("attention_mask", DType::I64, ["batch", "src"]);
        step.input("cross.0.key", DType::F32, [batch.clone(), 1.into(), "src".into(), 1.into()]);
        let past = step.input(
            "past.0.key",
            DType::F32,
            [batch.clone(), beams.clone(), 1.into(), "past".into(), 1.into()],
        );
        let row = step.root().parameter("logits", [logits.len()]);
        step.output(
            "logits",
            row.expand([batch.clone(), beams.clone(), 1.into(), logits.len().into()]),
        );
        let one = step.scalar(0.0).expand([batch, beams, 1.into(), 1.into(), 1.into()]);
        step.output("present.0.key", concat(3, &[past, one]));
    }
    let weights: Weights = [(
        "logits".to_owned(),
        Recipe::generated(Arc::new(Recorded(logits.clone())), &[logits.len()]),
    )]
    .into_iter()
    .collect();
    let encoder = Program::new(encoder.finish().unwrap(), Weights::default()).unwrap();
    let step = Program::new(step.finish().unwrap(), weights).unwrap();
    let mut settings = open(&golden("marian")).1;
    (settings.start_token, settings.pad_token, settings.forced_bos_token) = (1, 0, None);
    (settings.eos_tokens, settings.bad_words, settings.forced_eos_token) =
        (Vec::new(), Vec::new(), None);
    (settings.max_new_tokens, settings.num_beams, settings.num_return_sequences) = (1, 1, SAMPLES);
    let program = search_program([&encoder, &step], &settings, Some(8)).unwrap();
    let mut decoders: Vec<_> = on_ort(&program)
        .into_iter()
        .map(|session| SearchDecoder::new(session, settings.pad_token).unwrap())
        .collect();
    let sources = vec![vec![1, 2]; 20];
    let mut wrong = Vec::new();
    let mut n_rows = 0;
    for row in file["warped"].as_array().unwrap() {
        let options = row["options"].as_object().unwrap();
        if row["fewest"] != 1
            || options
                .keys()
                .any(|name| !["temperature", "top_k", "top_p"].contains(&name.as_str()))
        {
            continue;
        }
        n_rows += 1;
        let option = |name: &str, default: f32| {
            options.get(name).map_or(default, |value| value.as_f64().unwrap() as f32)
        };
        let sampling = |seed| Sampling {
            temperature: option("temperature", 1.0),
            top_k: option("top_k", 50.0) as usize,
            top_p: option("top_p", 1.0),
            seed,
            ..Sampling::default()
        };
        let probabilities: Vec<f64> =
            numbers(&row["probabilities"]).into_iter().flatten().collect();
        for decoder in &mut decoders {
            let mut draw = |seed| -> Vec<i64> {
                let settings = Settings { sampling: Some(sampling(seed)), ..settings.clone() };
                let found = decode(decoder, &SentenceBatch::new(&sources), &settings, &mut |_| {
                    ControlFlow::Continue(())
                })
                .unwrap();
                found.iter().flatten().map(|sample| sample.tokens[0]).collect()
            };
            let drawn = draw(11);
            assert_eq!(drawn.len(), SAMPLES * sources.len());
            assert!(
                drawn == draw(11)
                    && (drawn != draw(12) || probabilities.iter().any(|share| *share > 0.999)),
                "{options:?}"
            );
            let mut counts = vec![0.0; logits.len()];
            drawn.iter().for_each(|&token| counts[token as usize] += 1.0);
            let impossible = counts
                .iter()
                .zip(&probabilities)
                .any(|(count, share)| *count > 0.0 && *share == 0.0);
            let expected = probabilities.iter().map(|share| share * drawn.len() as f64);
            let cells: Vec<_> =
                counts.iter().zip(expected).filter(|(_, expected)| *expected >= 5.0).collect();
            let statistic: f64 =
                cells.iter().map(|(count, expected)| (**count - expected).powi(2) / expected).sum();
            // Wilson and Hilferty's quantile of 1 in 10,000.
            let freedom = (cells.len().max(2) - 1) as f64;
            let bound = freedom
                * (1.0 - 2.0 / (9.0 * freedom) + 3.719 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            if impossible || statistic > bound {
                wrong
                    .push(format!("{options:?}: {statistic} over {} cells, at most {bound}; impossible tokens: {impossible}", cells.len()));
            }
        }
    }
    assert!(n_rows > 5, "{n_rows}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Numbers from -2 to 2.
#[derive(Debug)]
struct Noise(u64);

impl Generator for Noise {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in (first..).zip(values) {
            let mut random = ChaCha8Rng::seed_from_u64(self.0);
            random.set_stream(index as u64);
            *value = (random.next_u32() >> 8) as f32 / (1 << 22) as f32 - 2.0;
        }
    }
}

const VOCAB: usize = 24;

/// A decoder whose logits are random functions of the source, the last token, its position and all
/// tokens before.
fn noise(seed: u64, tgt: Dim) -> [Program; 2] {
    let program = |builder: Builder| {
        let graph = builder.finish().unwrap();
        let recipe = |(stream, (_, node)): (u64, (_, &cognate_graph::Node))| {
            let shape = node.ty.shape.as_constant().unwrap();
            (node.name.clone(), Recipe::generated(Arc::new(Noise(seed * 8 + stream)), &shape))
        };
        let weights: Weights = (0..).zip(graph.parameters()).map(recipe).collect();
        Program::new(graph.clone(), weights).unwrap()
    };
    let encoder = Builder::new("encoder");
    {
        let ids = encoder.input("input_ids", DType::I64, ["batch", "src"]);
        let mask = encoder.input("attention_mask", DType::I64, ["batch", "src"]);
        let read = encoder.root().parameter("source", [VOCAB, 1]).gather(ids)
            * mask.cast(DType::F32).reshape([ids.dim(0), ids.dim(1), 1.into()]);
        encoder.output("cross.0.key", read.reshape([ids.dim(0), 1.into(), ids.dim(1), 1.into()]));
    }
    let step = Builder::new("decoder");
    {
        let ids =
            step.input("input_ids", DType::I64, ["batch".into(), "beams".into(), tgt.clone()]);
        step.input("attention_mask", DType::I64, ["batch", "src"]);
        let source = step.input(
            "cross.0.key",
            DType::F32,
            ["batch".into(), Dim::from(1), "src".into(), 1.into()],
        );
        let past = step.input(
            "past.0.key",
            DType::F32,
            ["batch".into(), "beams".into(), 1.into(), "past".into(), Dim::from(1)],
        );
        let [batch, beams] = [ids.dim(0), ids.dim(1)];
        let weight = |name: &str, shape: [usize; 2]| step.root().parameter(name, shape);
        let new = weight("token", [VOCAB, 1]).gather(ids).reshape([
            &batch,
            &beams,
            &1.into(),
            &tgt,
            &1.into(),
        ]);
        let present = concat(3, &[past, new]);
        // Their sum up to each, as the past of a decoder is.
        let sums = present.transpose(&[0, 1, 2, 4, 3]).cumulative_sum().transpose(&[0, 1, 2, 4, 3]);
        let sums = sums.slice(3, "past", Dim::from("past") + &tgt).reshape([
            &batch,
            &beams,
            &tgt,
            &1.into(),
        ]);
        let of_source = source.sum(&[2]).reshape([&batch, &1.into(), &1.into(), &1.into()]);
        let places =
            weight("position", [64, VOCAB]).gather(step.range("past", Dim::from("past") + &tgt));
        let own = weight("logits", [VOCAB, VOCAB]).gather(ids);
        let logits = own
            + places
            + (sums * 0.7).matmul(weight("past", [1, VOCAB]))
            + of_source.matmul(weight("memory", [1, VOCAB]));
        step.output("logits", logits);
        step.output("present.0.key", present);
    }
    [program(encoder), program(step)]
}

#[test]
fn random_logits_and_options_are_searched_alike() {
    let mut random = ChaCha8Rng::seed_from_u64(23);
    let mut wrong = Vec::new();
    let mut compared = 0;
    for draw in 0..60 {
        let mut up_to = |most: usize| random.next_u32() as usize % (most + 1);
        let mut settings = open(&golden("marian")).1;
        let choice = |options: &[f32], index: usize| options[index % options.len()];
        settings.scores = true;
        (settings.start_token, settings.pad_token) = (1, up_to(1) as i64);
        settings.eos_tokens =
            (0..=up_to(2)).map(|token| if token == 0 { 0 } else { 4 + 2 * token as i64 }).collect();
        settings.num_beams = 1 + up_to(3);
        settings.num_return_sequences = 1 + up_to(settings.num_beams - 1);
        settings.length_penalty = choice(&[1.0, 0.0, -1.0, 0.5, 2.0], up_to(4));
        settings.early_stopping =
            [EarlyStopping::Heuristic, EarlyStopping::Full, EarlyStopping::Never][up_to(2)];
        settings.max_new_tokens = 1 + up_to(11);
        settings.min_length = up_to(5);
        settings.repetition_penalty = choice(&[1.0, 1.0, 1.3, 0.8], up_to(3));
        settings.no_repeat_ngram_size = up_to(5).saturating_sub(2);
        settings.encoder_no_repeat_ngram_size = up_to(6).saturating_sub(4);
        settings.encoder_repetition_penalty = choice(&[1.0, 1.0, 1.0, 1.2], up_to(3));
        settings.renormalize = up_to(3) == 0;
        settings.bad_words =
            (0..up_to(3)).map(|_| (0..=up_to(2)).map(|_| 5 + up_to(18) as i64).collect()).collect();
        settings.suppressed_tokens = (0..up_to(2)).map(|_| 5 + up_to(18) as i64).collect();
        settings.suppressed_first_tokens = (0..up_to(2)).map(|_| 5 + up_to(18) as i64).collect();
        settings.forced_bos_token = (up_to(3) == 0).then_some(3);
        settings.forced_eos_token = (up_to(3) == 0).then_some(0);
        let sources: Vec<Vec<i64>> = (0..=up_to(2))
            .map(|_| (0..=up_to(5)).map(|_| 2 + up_to(21) as i64).collect())
            .collect();
        let [encoder, one] = noise(draw, 1.into());
        let step = noise(draw, "tgt".into())[1].clone();
        let program = search_program([&encoder, &one], &settings, Some(32)).unwrap();
        let found = Searches::new(&program, encoder, step, settings.pad_token)
            .differences(&sources, &settings);
        compared += usize::from(found.is_some());
        wrong.extend(
            found.into_iter().flatten().map(|line| format!("draw {draw}, {settings:?}: {line}")),
        );
    }
    assert!(compared > 50, "{compared}");
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// Scalars beyond their ranges count as the nearest possible ones; the loop ends, and memory is
/// bounded.
#[test]
fn scalars_out_of_range_are_clamped() {
    const POSITIONS: usize = 6;
    let mut settings = open(&golden("marian")).1;
    (settings.start_token, settings.pad_token, settings.eos_tokens) = (1, 1, vec![0]);
    let [encoder, step] = noise(3, 1.into());
    let program = search_program([&encoder, &step], &settings, Some(POSITIONS)).unwrap();
    let counts = ["max_length", "num_beams", "num_return_sequences"];
    for mut session in on_ort(&program) {
        let engine = session.engine().to_owned();
        let mut shape = |value: i64, others: &[(&str, i64)]| {
            let row = |values: [i64; 3]| ndarray::arr2(&[values]).into_dyn();
            let mut inputs: Values =
                [("input_ids", row([4, 5, 6])), ("attention_mask", row([1, 1, 1]))]
                    .into_iter()
                    .collect();
            let scalars = counts.iter().map(|name| (*name, value)).chain(others.iter().copied());
            scalars.for_each(|(name, value)| inputs.insert(name, ndarray::arr0(value).into_dyn()));
            // The runtime wants all.
            for name in ["length_penalty", "repetition_penalty", "temperature", "top_p"] {
                inputs.insert(name, ndarray::arr0(1.0f32).into_dyn());
            }
            let defaults = [
                ("min_length", 0),
                ("early_stopping", 0),
                ("forced_bos_token_id", -1),
                ("no_repeat_ngram_size", 0),
            ];
            for (name, value) in
                defaults.into_iter().chain([("do_sample", 0), ("top_k", 50), ("seed", 0)])
            {
                if inputs.get(name).is_none() {
                    inputs.insert(name, ndarray::arr0(value).into_dyn());
                }
            }
            session.run(&inputs).unwrap().get("sequences").unwrap().shape().to_vec()
        };
        // A start token and one more.
        assert_eq!(
            shape(i64::MIN, &[("min_length", i64::MIN), ("no_repeat_ngram_size", i64::MIN)]),
            [1, 1, 2],
            "{engine}"
        );
        assert_eq!(
            shape(0, &[("top_k", i64::MIN), ("seed", i64::MIN), ("do_sample", 1)]),
            [1, 1, 2],
            "{engine}"
        );
        let many = shape(
            i64::MAX,
            &[("min_length", i64::MAX), ("early_stopping", i64::MAX), ("no_repeat_ngram_size", 0)],
        );
        assert_eq!(many, [1, MOST_BEAMS, POSITIONS + 1], "{engine}");
    }
    let wanted = Settings { num_beams: MOST_BEAMS + 1, ..settings.clone() };
    let refused = check_search(&settings, &wanted, None).unwrap_err().to_string();
    assert!(
        refused.contains("num_beams: expected at most 1024 in generate.onnx, found 1025"),
        "{refused}"
    );
}

fn golden_sources(name: &str) -> Vec<Vec<i64>> {
    let expected = Golden::open(name);
    let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
    let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
    rows.map(|(ids, mask)| {
        ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect()
    })
    .collect()
}

#[test]
fn every_family_searches_alike() {
    for name in golden_models() {
        // Of the smallest variants some rows.
        let rows = if name.contains('/') { &ROWS[..4] } else { &ROWS[..] };
        agree(&golden(&name), &name, &golden_sources(&name), |_| {}, rows);
    }
}

/// Graphs of constant sizes, whose caches have a fixed capacity. A batch is divided, and its last
/// part filled.
#[test]
fn constant_sizes_search_alike() {
    let sizes = FixedSizes { batch: 2, length: 25 };
    for name in golden_models().into_iter().filter(|name| !name.contains('/')) {
        let mut sources = golden_sources(&name);
        sources.iter_mut().for_each(|source| {
            source.drain(..source.len().saturating_sub(sizes.length)).for_each(drop)
        });
        let (model, mut settings) = open(&golden(&name));
        settings.scores = true;
        settings.max_new_tokens = settings.max_new_tokens.min(sizes.length - 1);
        let [encoder, step] = model.graphs(Layout::Generate, Attentions::Omit).unwrap();
        let limits = SearchLimits { positions: model.config().max_positions, sizes: Some(sizes) };
        let mut wrong = Vec::new();
        for (beams, rows) in
            [(1, ["greedy", "repetition, greedy"]), (3, ["one of three beams", "two-grams"])]
        {
            settings.num_beams = beams;
            let program = search_program([&encoder, &step], &settings, limits).unwrap();
            let symbols =
                program.graph().nodes().iter().filter(|node| node.ty.shape.as_constant().is_none());
            assert_eq!(
                symbols.map(|node| node.name.as_str()).collect::<Vec<_>>(),
                [""; 0],
                "{name}"
            );
            let mut searches = Searches::new(
                &program,
                encoder.clone(),
                model.step(Attentions::Omit).unwrap(),
                settings.pad_token,
            );
            searches.inside = searches
                .inside
                .into_iter()
                .map(|decoder| decoder.with_sizes(Some(sizes)))
                .collect();
            for (row, change) in ROWS.iter().filter(|(row, _)| rows.contains(row)) {
                let mut settings = settings.clone();
                change(&mut settings);
                let lines = searches.differences(&sources, &settings).unwrap();
                wrong.extend(lines.into_iter().map(|line| format!("{name}, {row}, {line}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// All inputs of a graph that decodes.
fn inputs(
    names: &[String],
    sources: &[Vec<i64>],
    settings: &Settings,
    sizes: Option<FixedSizes>,
) -> Values {
    let length = sizes.map_or(sources.iter().map(Vec::len).max().unwrap(), |sizes| sizes.length);
    let value = |pad: i64, of: fn(i64) -> i64| {
        let at =
            |(row, place): (usize, usize)| sources[row].get(place).map_or(pad, |token| of(*token));
        ndarray::Array2::from_shape_fn((sources.len(), length), at).into_dyn()
    };
    let mut values: Values = [
        ("input_ids", value(settings.pad_token, |token| token)),
        ("attention_mask", value(0, |_| 1)),
    ]
    .into_iter()
    .collect();
    let integers = [
        ("max_length", settings.max_new_tokens as i64 + 1),
        ("num_beams", settings.num_beams as i64),
        ("num_return_sequences", settings.num_return_sequences as i64),
        ("forced_bos_token_id", settings.forced_bos_token.unwrap_or(-1)),
    ];
    let zeros =
        ["min_length", "no_repeat_ngram_size", "early_stopping", "do_sample", "top_k", "seed"]
            .map(|name| (name, 0));
    for (name, value) in integers
        .into_iter()
        .chain(zeros)
        .filter(|(name, _)| names.iter().any(|known| known == name))
    {
        values.insert(name, ndarray::arr0(value).into_dyn());
    }
    for name in ["length_penalty", "repetition_penalty", "temperature", "top_p"] {
        values.insert(name, ndarray::arr0(1.0f32).into_dyn());
    }
    values
}

/// Log-probabilities along the sequences, and the attention of the steps that chose their tokens.
#[test]
fn tokens_have_their_scores_and_attentions() {
    let (model, mut settings) = open(&golden("bart"));
    // A forced token is certain.
    (settings.forced_bos_token, settings.forced_eos_token) = (None, None);
    (settings.max_new_tokens, settings.length_penalty, settings.early_stopping) =
        (12, 1.0, EarlyStopping::Heuristic);
    let sources: Vec<Vec<i64>> = golden_sources("bart").into_iter().cycle().take(3).collect();
    let load = |program: Program| {
        Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap()
    };
    let mut along = SessionDecoder::new(
        load(model.graphs(Layout::Cognate, Attentions::Omit).unwrap()[0].clone()),
        load(model.step(Attentions::Omit).unwrap()),
        settings.pad_token,
    )
    .unwrap();
    let [mut encoder, mut decoder] =
        model.graphs(Layout::Cognate, Attentions::All).unwrap().map(load);
    let [encode, step] = model.graphs(Layout::Generate, Attentions::Cross).unwrap();
    let sizes = [None, Some(FixedSizes { batch: 3, length: 40 })];
    let mut wrong = Vec::new();
    for ((beams, returned), sizes) in
        [(1, 1), (4, 3)].into_iter().flat_map(|counts| sizes.map(|sizes| (counts, sizes)))
    {
        (settings.num_beams, settings.num_return_sequences) = (beams, returned);
        let limits = SearchLimits { positions: model.config().max_positions, sizes };
        let program = search_program([&encode, &step], &settings, limits).unwrap();
        for (mut session, decoding) in on_ort(&program).into_iter().zip(on_ort(&program)) {
            let place = format!("{} with {beams} beams, {sizes:?}", session.engine());
            let mut outputs =
                session.run(&inputs(session.inputs(), &sources, &settings, sizes)).unwrap();
            let [scores, attentions] = ["token_scores", "cross_attentions"]
                .map(|name| outputs.remove(name).unwrap().to_f32().unwrap());
            let mut decoder_inside =
                SearchDecoder::new(decoding, settings.pad_token).unwrap().with_sizes(sizes);
            let batch = SentenceBatch::new(&sources);
            let found =
                decode(&mut decoder_inside, &batch, &settings, &mut |_| ControlFlow::Continue(()))
                    .unwrap();
            for (sentence, hypotheses) in found.into_iter().enumerate() {
                for (rank, hypothesis) in hypotheses.iter().enumerate() {
                    let one = std::slice::from_ref(&sources[sentence]);
                    let scored = score(
                        &mut along,
                        &SentenceBatch::new(one),
                        std::slice::from_ref(&hypothesis.tokens),
                        &settings,
                    )
                    .unwrap();
                    let n_new = hypothesis.tokens.len() + usize::from(hypothesis.complete);
                    let row = scores.slice(s![sentence, rank, ..]).to_vec();
                    let expected = [&[0.0], &scored[0].log_probabilities[..n_new]].concat();
                    let is_near = row
                        .iter()
                        .zip(expected.iter().chain(std::iter::repeat(&0.0)))
                        .all(|(a, b)| (a - b).abs() < 1e-4);
                    let target: Vec<i64> =
                        [&[settings.start_token][..], &hypothesis.tokens].concat();
                    let request = AttentionRequest {
                        source: one.into(),
                        target: &target,
                        likeliest: 1,
                        of_encoder: true,
                    };
                    let expected = attend(
                        Layout::Cognate,
                        [encoder.as_mut(), decoder.as_mut()],
                        model.config(),
                        request,
                    )
                    .unwrap()
                    .cross;
                    // The step that reads a token chooses the next one.
                    let mut furthest = 0.0_f32;
                    for ((layer, head, place, src), weight) in
                        expected.indexed_iter().filter(|((_, _, place, _), _)| *place < n_new)
                    {
                        furthest = furthest.max(
                            (attentions[[sentence, rank, place + 1, layer, head, src]] - weight)
                                .abs(),
                        );
                    }
                    if !is_near || furthest > 1e-4 || row.len() < n_new + 1 {
                        wrong.push(format!("{place}, sentence {sentence}, rank {rank}: {row:?}, {scored:?}, attention {furthest}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn impossible_sizes_are_refused() {
    let (model, settings) = open(&golden("bart"));
    let [encoder, step] = model.graphs(Layout::Generate, Attentions::Omit).unwrap();
    let program = |sizes| {
        search_program(
            [&encoder, &step],
            &settings,
            SearchLimits { positions: Some(12), sizes: Some(sizes) },
        )
    };
    for (batch, length) in [(0, 8), (1, 2), (1, 13)] {
        let refused = program(FixedSizes { batch, length }).unwrap_err().to_string();
        let expected = format!(
            "max_batch {batch}, max_length {length}: expected at least one sentence, and from 3 to 12 positions"
        );
        assert!(refused.contains(&expected), "{refused}");
    }
    let program = program(FixedSizes { batch: 2, length: 8 }).unwrap();
    let mut decoder = SearchDecoder::new(on_ort(&program).remove(0), settings.pad_token).unwrap();
    decoder = decoder.with_sizes(Some(FixedSizes { batch: 2, length: 8 }));
    let sources = [vec![5; 9]];
    let refused = decode(&mut decoder, &SentenceBatch::new(&sources), &settings, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(
        refused.to_string().contains(
            "expected at most 8 tokens of a source, a constant of generate.onnx, found 9"
        ),
        "{refused}"
    );
    let wanted = Settings { num_beams: settings.num_beams + 1, ..settings.clone() };
    let refused = check_search(&settings, &wanted, Some(FixedSizes { batch: 2, length: 8 }))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("a constant of generate.onnx"), "{refused}");
    check_search(&settings, &wanted, None).unwrap();
}

/// What a configuration can set beside the inputs.
#[test]
fn constants_of_the_configuration_are_kept() {
    let expected = golden_sources("marian");
    let words: Change = |settings| {
        settings.bad_words =
            vec![vec![5], vec![7, 8], vec![9, 10, 11], vec![settings.eos_tokens[0]]];
        settings.suppressed_tokens = vec![3, 4];
        settings.suppressed_first_tokens = vec![6, 12];
    };
    let source: Change = |settings| {
        (settings.encoder_repetition_penalty, settings.encoder_no_repeat_ngram_size) = (1.5, 2);
        settings.renormalize = true;
    };
    let ends: Change = |settings| {
        settings.eos_tokens.extend([20, 21]);
        settings.forced_eos_token = Some(settings.eos_tokens[0]);
        settings.forced_bos_token = Some(17);
    };
    for (name, fixed) in [("words", words), ("source", source), ("ends", ends)] {
        agree(&golden("marian"), name, &expected, fixed, &ROWS);
    }
}
