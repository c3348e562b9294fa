//! Graphs of exports with and without programs.

use super::*;
use crate::in_memory::SHARED_CACHE;
use crate::program::{ROWS_AT_ONCE, Step};
use crate::{BEST, Options, Ort, Runtime, SHORTLIST, Session, Source, Value, Values};
use cognate_export::{Existing, Export, Metadata, Target, read_model, write_folder};
use cognate_graph::{Program, Steps, f16};
use cognate_kernels::{multiplies_integers, reads_halves};
use cognate_model::interface::is_cross;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::{bfloat16::in_bfloat16, fuse::fuse, quantize};
use cognate_testing::{
    SPEECH_MODELS, bundled_checkpoint, decoder_models, golden, golden_models, testdata,
};
use ndarray::{Array2, ArrayD, Axis, Slice};
use std::num::NonZeroUsize;
use std::thread;
use tempfile::TempDir;

/// The weights of a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    Floats,
    Bf16,
    Integers,
}
use Stored::{Bf16, Floats, Integers};

impl Stored {
    /// The forms of weights that programs multiply on this processor.
    fn fast() -> Vec<Self> {
        if multiplies_integers() { vec![Floats, Bf16, Integers] } else { vec![Floats, Bf16] }
    }
}

/// A folder with the encoder and decoder of a model, for ONNX Runtime only.
fn exported(model: &Model, stored: Stored) -> TempDir {
    exported_with(model, stored, Attentions::Omit)
}

fn exported_with(model: &Model, stored: Stored, attentions: Attentions) -> TempDir {
    exported_as(Layout::SharedCache, model, stored, attentions)
}

/// In any layout, for the engines that it is for.
fn exported_as(layout: Layout, model: &Model, stored: Stored, attentions: Attentions) -> TempDir {
    let graphs = model.programs(layout, attentions).unwrap();
    let is_fused = layout == Layout::SharedCache || stored == Integers;
    let mut programs: Vec<Program> = graphs.to_vec();
    if is_fused {
        programs = graphs.iter().map(|program| fuse(program).unwrap()).collect();
    }
    if stored == Bf16 {
        programs = programs.iter().map(|program| in_bfloat16(program).unwrap()).collect();
    }
    if stored == Integers {
        let options = quantize::Options::Columns {
            steps: Steps::Row,
            unscaled: Some(["logits", "logits_scale"]),
        };
        programs = quantize::quantize(&programs.iter().collect::<Vec<_>>(), options).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (target, properties) = match layout {
        Layout::SharedCache => {
            (Target::Ort, [(SHARED_CACHE[0].into(), SHARED_CACHE[1].into())].into())
        }
        _ => (Target::Portable, BTreeMap::new()),
    };
    let metadata = Metadata { properties, ..Metadata::default() };
    let files: Vec<_> = files(layout, model).into_iter().zip(&programs).collect();
    let export = Export { target, ..Export::new(&files, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    folder
}

/// The names of the graphs, all in one folder.
fn files(layout: Layout, model: &Model) -> Vec<&'static str> {
    let files = layout.files_of(model.config().parts);
    files.into_iter().map(|file| file.rsplit('/').next().unwrap()).collect()
}

/// The golden models whose attention supports shared caches.
fn models() -> Vec<String> {
    let has_form = |name: &String| {
        Model::open(&golden(name)).unwrap().config().require_shared_caches().is_ok()
    };
    golden_models().into_iter().filter(has_form).collect()
}

/// The operators of encoder and decoder, with those that replace subgraphs.
fn operators(layout: Layout, model: &Model, stored: Stored) -> [Vec<String>; 2] {
    let folder = exported_as(layout, model, stored, Attentions::Omit);
    let operators = files(layout, model).into_iter().map(|file| {
        let mut graph = read_model(&folder.path().join(file)).unwrap().graph.unwrap();
        assert!(with_own(&mut graph) > 0, "places for our operators");
        graph.node.into_iter().map(|node| node.op_type).collect()
    });
    operators.collect::<Vec<_>>().try_into().unwrap()
}

/// In every family: otherwise a change of exported graphs could disable the operators, and only
/// the speed would show it.
#[test]
fn all_attention_is_found_in_every_family() {
    for name in models().iter().map(String::as_str).chain(SPEECH_MODELS) {
        let model = Model::open(&golden(name)).unwrap();
        let [encoder, decoder] = operators(Layout::SharedCache, &model, Floats);
        let count = |operators: &[String], wanted: &str| {
            operators.iter().filter(|operator| *operator == wanted).count()
        };
        let [n_encoder, n_decoder] =
            [model.config().encoder.n_layers, model.config().decoder.n_layers];
        if name.contains("t5gemma") {
            // Grouped or rotated queries, and bounded scores.
            assert_eq!(count(&decoder, "CachedAttention"), n_decoder, "{name}: {decoder:?}");
            continue;
        }
        assert_eq!(count(&encoder, "SelfAttention"), n_encoder, "{name}: {encoder:?}");
        assert_eq!(
            [count(&decoder, "CachedAttention"), count(&decoder, "MemoryAttention")],
            [n_decoder; 2],
            "{name}: {decoder:?}"
        );
        assert_eq!([count(&encoder, "Softmax"), count(&decoder, "Softmax")], [0; 2], "{name}");
    }
}

/// The same in files for any engine, of which no product is left to the engine.
#[test]
fn all_attention_is_found_in_files_for_any_engine() {
    // A single head is not split from its rows; queries share heads of keys, and scores are bounded.
    let is_other = |name: &&str| name.contains("t5-long") || name.contains("t5gemma");
    let models = models();
    let names =
        models.iter().map(String::as_str).chain(SPEECH_MODELS).filter(|name| !is_other(name));
    for (name, folder) in names
        .map(|name| (name, golden(name)))
        .chain([("rotary", testdata("research").join("rotary"))])
    {
        let model = Model::open(&folder).unwrap();
        let (n_encoder, n_decoder) =
            (model.config().encoder.n_layers, model.config().decoder.n_layers);
        for layout in Layout::PORTABLE {
            let [encoder, decoder] = operators(layout, &model, Floats);
            let count = |operators: &[String], wanted: &str| {
                operators.iter().filter(|operator| *operator == wanted).count()
            };
            assert_eq!(count(&encoder, "SelfAttention"), n_encoder, "{name} {layout}: {encoder:?}");
            assert_eq!(
                [count(&decoder, "GrownAttention"), count(&decoder, "MemoryAttention")],
                [n_decoder; 2],
                "{name} {layout}: {decoder:?}"
            );
            let folder = exported_as(layout, &model, Floats, Attentions::Omit);
            for file in files(layout, &model) {
                let read = read_model(&folder.path().join(file)).unwrap();
                let own = substitute(read, folder.path(), 1, false)
                    .unwrap_or_else(|| panic!("{name} {layout}: {file} has no programs"));
                let nodes = own.model.graph.unwrap().node;
                let left = nodes
                    .iter()
                    .filter(|node| ["Gemm", "MatMul", "Softmax"].contains(&node.op_type.as_str()));
                assert_eq!(left.count(), 0, "{name} {layout}: {file}: {nodes:?}");
            }
        }
    }
}

/// Operators that are left to ONNX Runtime have more overhead than computation.
#[test]
fn a_small_model_is_one_program() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    for stored in [Floats, Bf16, Integers] {
        let folder = exported(&model, stored);
        for file in Layout::SharedCache.files() {
            let own =
                substitute(read_model(&folder.path().join(file)).unwrap(), folder.path(), 1, false)
                    .unwrap();
            let nodes = own.model.graph.unwrap().node;
            let operators: Vec<_> = nodes.into_iter().map(|node| node.op_type).collect();
            let is_one = Stored::fast().contains(&stored);
            let n_programs = operators.iter().filter(|operator| **operator == PROGRAM).count();
            assert!(!is_one || (n_programs == 1 && operators.len() <= 5), "{file}: {operators:?}");
            let layers = own.programs.iter().map(|made| {
                let Kernel { program, .. } = Kernel::of(made.number()).unwrap();
                program.steps.iter().filter(|step| matches!(step, Step::FeedForward(_))).count()
            });
            let layers: usize = layers.sum();
            let is_encoder = *file == Layout::SharedCache.files()[0];
            let expected = if is_encoder { model.config().encoder.n_layers } else { 0 };
            assert!(!is_one || layers == expected, "{file}: {layers} layers");
        }
    }
}

/// The encoder with its convolutions, and the decoder, which reads the prompt of a window in one
/// pass.
#[test]
fn speech_models_are_programs() {
    for name in SPEECH_MODELS {
        let model = Model::open(&golden(name)).unwrap();
        let forms = Stored::fast()
            .into_iter()
            .map(|stored| (stored, Attentions::Cross))
            .chain([(Floats, Attentions::Omit)]);
        for (stored, attentions) in forms {
            let folder = exported_with(&model, stored, attentions);
            let own = Layout::SharedCache.files().iter().map(|file| {
                let own = substitute(
                    read_model(&folder.path().join(file)).unwrap(),
                    folder.path(),
                    1,
                    false,
                )
                .unwrap();
                let operators: Vec<_> =
                    own.model.graph.unwrap().node.into_iter().map(|node| node.op_type).collect();
                (own.prefill, operators)
            });
            let [(_, encoder), (prefill, decoder)] = own.collect::<Vec<_>>().try_into().unwrap();
            let count =
                |wanted: &str| encoder.iter().filter(|operator| *operator == wanted).count();
            assert_eq!(
                [PROGRAM, "Conv", "Transpose", "Gemm", "LayerNormalization"].map(count),
                [1, 0, 0, 0, 0],
                "{name}: {encoder:?}"
            );
            assert!(prefill, "{name}: {decoder:?}");
        }
    }
}

/// They read prompts of different lengths in one pass.
#[test]
fn decoders_alone_are_one_program() {
    let layout = Layout::SharedCache;
    for name in decoder_models() {
        let model = Model::open(&testdata("decoders").join(&name)).unwrap();
        for stored in Stored::fast() {
            let folder = exported(&model, stored);
            let own = substitute(
                read_model(&folder.path().join(layout.file())).unwrap(),
                folder.path(),
                1,
                false,
            )
            .unwrap();
            let operators: Vec<_> =
                own.model.graph.unwrap().node.into_iter().map(|node| node.op_type).collect();
            assert!(own.own_lengths && own.prefill, "{name}: {operators:?}");
            // Positions that are added to projected tokens, and bounded logits.
            let left = if ["opt-narrow", "gemma2"].contains(&name.as_str()) { 5 } else { 0 };
            let n_programs = operators.iter().filter(|operator| **operator == PROGRAM).count();
            assert!(n_programs == 1 && operators.len() <= 1 + left, "{name}: {operators:?}");
        }
    }
}

/// Otherwise they could not join running batches.
#[test]
fn pasts_have_lengths_of_their_own_in_every_family() {
    let mut without = BTreeSet::new();
    for name in models() {
        let model = Model::open(&golden(&name)).unwrap();
        for stored in [Floats, Bf16, Integers] {
            let folder = exported(&model, stored);
            let file = folder.path().join(Layout::SharedCache.files()[1]);
            let own = substitute(read_model(&file).unwrap(), folder.path(), 1, false);
            if own.is_none_or(|own| !own.own_lengths) {
                without.insert(name.clone());
            }
        }
    }
    // Embeddings that are normalised before positions are added, and BERT's, to which segments are
    // added before.
    let expected = [
        "bert-bert",
        "bert-tied",
        "blenderbot-small",
        "blenderbot-small-untied",
        "roberta-roberta",
    ];
    assert_eq!(without, expected.map(|name| format!("strange/{name}")).into());
}

/// Each thread has its own sentences and gets bit for bit the same results as alone, with all
/// threads in the kernels of one session.
#[test]
fn threads_run_one_session_with_our_operators() {
    const THREADS: i64 = 4;
    let Ok(ort) = Ort::find() else { return eprintln!("skipped: no library of ONNX Runtime") };
    for stored in [Floats, Bf16, Integers] {
        let folder = exported(&Model::open(&bundled_checkpoint()).unwrap(), stored);
        let source = Source::Onnx(folder.path().join(Layout::SharedCache.files()[0]));
        let inputs = |thread: i64| {
            let shape = (1 + thread as usize, 7);
            let ids = Array2::from_shape_fn(shape, |(row, place)| {
                3 + thread * 100 + 10 * row as i64 + place as i64
            })
            .into_dyn();
            [("input_ids", ids), ("attention_mask", Array2::ones(shape).into_dyn())]
                .into_iter()
                .collect::<Values>()
        };
        let run = |session: &mut dyn Session, thread| {
            let outputs = session.run(&inputs(thread)).unwrap();
            outputs.get("encoder_hidden_states").unwrap().to_f32().unwrap()
        };
        let workers = NonZeroUsize::new(THREADS as usize);
        let loaded = ort
            .read(
                &source,
                &Options { threads: NonZeroUsize::new(1), workers, ..Options::default() },
            )
            .unwrap();
        let mut alone = loaded.clone().session();
        assert!(alone.engine().ends_with("with Cognate's operators"), "{}", alone.engine());
        let expected: Vec<_> = (0..THREADS).map(|thread| run(alone.as_mut(), thread)).collect();
        let mut plain = ort.load(&source, &Options { plain: true, ..Options::default() }).unwrap();
        thread::scope(|scope| {
            for (thread, expected) in (0..THREADS).zip(&expected) {
                let loaded = loaded.clone();
                scope.spawn(move || {
                    let mut session = loaded.session();
                    (0..50).for_each(|_| {
                        assert!(run(session.as_mut(), thread) == *expected, "thread {thread}")
                    });
                });
            }
        });
        if stored == Floats {
            for (thread, expected) in (0..THREADS).zip(&expected) {
                let difference = (&run(plain.as_mut(), thread) - expected).mapv(f32::abs);
                assert!(difference.iter().all(|&difference| difference < 1e-4), "thread {thread}");
            }
        }
    }
}

/// A step of the bundled model with the output layer's inputs, on an engine.
struct Asked {
    decoder: Box<dyn Session>,
    state: Values,
    /// The factors of the last logits.
    scales: Vec<f32>,
}

impl Asked {
    const BATCH: usize = 2;
    const BEAMS: usize = 3;
    const ROWS: usize = Self::BATCH * Self::BEAMS;

    fn new(engine: &dyn Runtime, model: &Model, stored: Stored) -> Self {
        let asked = Self::with(engine, model, stored, false);
        let decoder = &asked.decoder;
        assert!(decoder.takes_shortlist(), "{}", decoder.engine());
        assert!(
            !decoder.inputs().iter().any(|input| [SHORTLIST, BEST].contains(&input.as_str())),
            "an input of the file"
        );
        asked
    }

    fn with(engine: &dyn Runtime, model: &Model, stored: Stored, half_memory: bool) -> Self {
        let (folder, stack) = (exported(model, stored), model.config().decoder);
        let load = |file: &str| {
            let options = Options { half_memory, ..Options::default() };
            engine.load(&Source::Onnx(folder.path().join(file)), &options).unwrap()
        };
        let files = Layout::SharedCache.files();
        let (mut encoder, decoder) = (load(files[0]), load(files[1]));
        assert!(!encoder.takes_shortlist(), "{}", encoder.engine());
        let ids =
            Array2::from_shape_fn((Self::BATCH, 5), |(row, place)| (3 + 7 * row + place) as i64)
                .into_dyn();
        let mask = Array2::<i64>::ones((Self::BATCH, 5)).into_dyn();
        let mut state: Values =
            [("input_ids", ids), ("attention_mask", mask)].into_iter().collect();
        let encoded = encoder.run(&state).unwrap();
        encoded
            .into_iter()
            .filter(|(name, _)| decoder.inputs().contains(name))
            .for_each(|(name, value)| state.insert(&name, value));
        let tokens = Array2::from_shape_fn((Self::BATCH, Self::BEAMS), |(row, beam)| {
            (5 + row + 3 * beam) as i64
        });
        state.insert("input_ids", tokens.into_dyn());
        state.insert("cache_beams", ArrayD::<i64>::zeros(vec![Self::BATCH, Self::BEAMS, 0]));
        for name in decoder.inputs().iter().filter(|name| name.starts_with("past.")) {
            state.insert(
                name,
                ArrayD::<f32>::zeros(vec![Self::ROWS, stack.key_heads, 4, stack.d_k]),
            );
        }
        Self { decoder, state, scales: Vec::new() }
    }

    fn logits(&mut self, input: &str, tokens: &[i64]) -> Result<ArrayD<f32>, String> {
        self.state.insert(input, ndarray::Array1::from(tokens.to_vec()).into_dyn());
        let outputs = self.decoder.run(&self.state).map_err(|error| error.to_string())?;
        self.state.remove(input);
        let scales = outputs
            .get("logits_scale")
            .map(|scales| scales.to_f32().unwrap().into_iter().collect());
        self.scales = scales.unwrap_or_else(|| vec![1.0; Self::ROWS]);
        Ok(outputs.get("logits").unwrap().to_f32().unwrap())
    }
}

/// Keys and values are rounded once, and read as the numbers that they then are.
#[test]
fn sources_are_read_in_half_precision_in_every_family() {
    let Ok(ort) = Ort::find() else { return eprintln!("skipped: no library of ONNX Runtime") };
    let models: Vec<_> =
        models().iter().map(|name| golden(name)).chain([bundled_checkpoint()]).collect();
    let mut halved = 0;
    for folder in &models {
        let (model, name) = (Model::open(folder).unwrap(), folder.display());
        for stored in [Floats, Integers] {
            let [mut floats, mut halves] =
                [false, true].map(|half| Asked::with(&ort, &model, stored, half));
            let read = |asked: &Asked| {
                let cross = asked.state.iter().filter(|(name, _)| is_cross(name));
                let host = |(name, value): (&str, &Value)| {
                    (name.to_owned(), value.clone().into_host().unwrap())
                };
                cross.map(host).collect::<Vec<_>>()
            };
            for ((input, float), (_, half)) in read(&floats).into_iter().zip(read(&halves)) {
                match half {
                    Value::F16(half) => {
                        assert_eq!(stored, Integers, "{name}: {input}");
                        assert_eq!(float.to_f32().unwrap().mapv(f16::from_f32), half, "{input}");
                        floats.state.insert(input, half.mapv(f16::to_f32));
                        halved += 1;
                    }
                    half => assert_eq!(float.to_f32().unwrap(), half.to_f32().unwrap(), "{input}"),
                }
            }
            let [expected, found] = [&mut floats, &mut halves].map(|asked| {
                let outputs = asked.decoder.run(&asked.state).unwrap();
                outputs.get("logits").unwrap().to_f32().unwrap()
            });
            assert_eq!(found, expected, "{name}");
        }
    }
    assert!(!reads_halves() || halved >= models.len(), "{halved} in half precision");
}

/// The encoder of the bundled model, by our operators or by ONNX Runtime's.
struct Encoders {
    ort: Ort,
    source: Source,
    _folder: TempDir,
}

impl Encoders {
    fn new(ort: &Ort, stored: Stored) -> Self {
        let folder = exported(&Model::open(&bundled_checkpoint()).unwrap(), stored);
        let source = Source::Onnx(folder.path().join(Layout::SharedCache.files()[0]));
        Self { ort: ort.clone(), source, _folder: folder }
    }

    /// Keys and values of sources of 9 tokens.
    fn run(&self, sources: usize, options: &Options) -> Vec<(String, ArrayD<f64>)> {
        let ids = Array2::from_shape_fn((sources, 9), |(row, place)| {
            (7 + (100 * row + place) % 7000) as i64
        });
        let mask = Array2::ones((sources, 9)).into_dyn();
        let inputs: Values =
            [("input_ids", ids.into_dyn()), ("attention_mask", mask)].into_iter().collect();
        let outputs = self.ort.load(&self.source, options).unwrap().run(&inputs).unwrap();
        let cross = outputs.iter().filter(|(name, _)| is_cross(name));
        let cross: Vec<_> =
            cross.map(|(name, value)| (name.to_owned(), value.to_f64().unwrap())).collect();
        assert_eq!(cross.len(), 8, "keys and values of 4 layers");
        cross
    }

    /// As by ONNX Runtime's operators, except for 8-bit rows that are rounded to a neighbour.
    fn compare(&self, sources: usize, bound: f64) {
        let [found, expected] =
            [false, true].map(|plain| self.run(sources, &Options { plain, ..Options::default() }));
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let norm = |array: &ArrayD<f64>| array.iter().map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&(found - expected)) / norm(expected);
            assert!(error < bound, "{name}: {error}");
        }
    }
}

/// Each output has its own columns of the joined product.
#[test]
fn keys_and_values_are_columns_of_one_product() {
    let Ok(ort) = Ort::find() else { return eprintln!("skipped: no library of ONNX Runtime") };
    for (stored, bound) in [(Floats, 1e-5), (Integers, 1e-2)] {
        Encoders::new(&ort, stored).compare(2, bound);
    }
}

/// The hidden rows of more sources than are computed at once; a source has the same bits in any
/// number of them.
#[test]
fn hidden_rows_are_computed_in_parts() {
    let Ok(ort) = Ort::find() else { return eprintln!("skipped: no library of ONNX Runtime") };
    let few = 2 * ROWS_AT_ONCE / 9;
    for (stored, bound) in [(Floats, 1e-5), (Integers, 1e-2)] {
        let encoders = Encoders::new(&ort, stored);
        encoders.compare(few, bound);
        for threads in [1, 2] {
            let options = Options { threads: NonZeroUsize::new(threads), ..Options::default() };
            let [some, all] = [few, 2 * few].map(|sources| encoders.run(sources, &options));
            for ((name, some), (_, all)) in some.iter().zip(&all) {
                assert_eq!(*some, all.slice_axis(Axis(0), Slice::from(0..few)), "{name}");
            }
        }
    }
}

/// The bundled model, and the same with a bias of its logits, as in OPUS-MT models.
fn bundled() -> [Model; 2] {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(bundled_checkpoint())
        .unwrap()
        .map(Result::unwrap)
        .filter(|file| file.path().is_file())
    {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let weights = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let values = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..values]).unwrap();
    let [start, end] = [0, 1]
        .map(|index| header["final_logits_bias"]["data_offsets"][index].as_u64().unwrap() as usize);
    for (token, place) in bytes[values + start..values + end].chunks_exact_mut(4).enumerate() {
        place.copy_from_slice(&((token as f32).sin() * 3.0).to_le_bytes());
    }
    std::fs::write(&weights, bytes).unwrap();
    [bundled_checkpoint(), folder.path().to_owned()].map(|folder| Model::open(&folder).unwrap())
}

/// The engines that run programs, with all supported forms of weights, for both models.
fn asked(models: &[Model]) -> Vec<Asked> {
    models.iter().flat_map(asked_of).collect()
}

fn asked_of(model: &Model) -> Vec<Asked> {
    let ort = Ort::find().ok().map(|ort| Box::new(ort) as Box<dyn Runtime>);
    let engines = [Some(Box::new(crate::Tract) as Box<dyn Runtime>), ort].into_iter().flatten();
    let forms = |engine: Box<dyn Runtime>| {
        let all = if engine.engine() == crate::Engine::Ort {
            vec![Floats, Bf16, Integers]
        } else {
            Stored::fast()
        };
        all.into_iter().map(|stored| Asked::new(&*engine, model, stored)).collect::<Vec<_>>()
    };
    engines.flat_map(forms).collect()
}

/// Columns of the output layer, selected in turn, are bit for bit those of all.
#[test]
fn a_shortlist_chooses_columns_of_logits() {
    let models = bundled();
    let last = models[0].config().vocab as i64 - 1;
    for mut asked in asked(&models) {
        let engine = asked.decoder.engine().to_owned();
        let all = asked.logits(SHORTLIST, &[]).unwrap();
        assert_eq!(all.shape(), [Asked::ROWS, models[0].config().vocab]);
        for chosen in
            [&[1, 17, 18, last][..], &[], &[0], &[1, 17, 18, last], &Vec::from_iter(0..=last)]
        {
            let places: Vec<usize> = chosen.iter().map(|&token| token as usize).collect();
            let expected =
                if chosen.is_empty() { all.clone() } else { all.select(ndarray::Axis(1), &places) };
            assert_eq!(asked.logits(SHORTLIST, chosen).unwrap(), expected, "{engine}");
        }
        for wrong in [last + 1, -1] {
            let refused = asked.logits(SHORTLIST, &[3, wrong]).expect_err("no such token");
            assert!(
                refused.contains(&format!(
                    "shortlist: expected tokens below {}, found {wrong}",
                    last + 1
                )),
                "{refused}"
            );
        }
    }
}

/// The best tokens are those of all logits, bit for bit.
#[test]
fn the_best_tokens_are_found_without_all_logits() {
    let models = bundled();
    let vocab = models[0].config().vocab;
    for mut asked in asked(&models) {
        let engine = asked.decoder.engine().to_owned();
        assert!(asked.decoder.finds_best(), "{engine}");
        let all = asked.logits(BEST, &[]).unwrap();
        for (count, always) in [(2, &[][..]), (5, &[7, 3, vocab as i64 - 1]), (1, &[0])] {
            let found = asked.logits(BEST, &[&[count as i64, 0], always].concat()).unwrap();
            let &[Asked::ROWS, columns] = found.shape() else {
                panic!("{engine}: {:?}", found.shape())
            };
            assert!(columns < 200, "{engine}: {columns} of {vocab}");
            for (row, all) in found.outer_iter().zip(all.outer_iter()) {
                let row: Vec<f32> = row.iter().copied().collect();
                let (tokens, logits) = row.split_at(columns / 2);
                assert!(tokens.is_sorted());
                let tokens: Vec<usize> = tokens.iter().map(|&token| token as usize).collect();
                for (&token, &logit) in tokens.iter().zip(logits) {
                    assert_eq!(
                        logit,
                        if token == vocab { f32::NEG_INFINITY } else { all[token] },
                        "{engine}: {token}"
                    );
                }
                let mut order: Vec<usize> = (0..vocab).collect();
                order.sort_by(|&a, &b| all[b].total_cmp(&all[a]));
                let always = always.iter().map(|&token| token as usize);
                assert!(
                    order[..count]
                        .iter()
                        .copied()
                        .chain(always)
                        .all(|token| tokens.contains(&token)),
                    "{engine}: {tokens:?}"
                );
            }
        }
        // The best of a shortlist are found as if there were no other tokens.
        let some: Vec<i64> = (0..vocab as i64).step_by(3).collect();
        asked.state.insert(SHORTLIST, ndarray::Array1::from(some.clone()).into_dyn());
        let found = asked.logits(BEST, &[2, 0, 6]).unwrap();
        asked.state.remove(SHORTLIST);
        for (row, all) in found.outer_iter().zip(all.outer_iter()) {
            let (tokens, logits) = row.as_slice().unwrap().split_at(found.shape()[1] / 2);
            let tokens: Vec<i64> = tokens
                .iter()
                .map(|&token| token as i64)
                .filter(|&token| token < vocab as i64)
                .collect();
            assert!(
                tokens.is_sorted()
                    && tokens.len() < 100
                    && tokens.iter().all(|token| token % 3 == 0),
                "{engine}: {tokens:?}"
            );
            assert!(
                tokens.iter().zip(logits).all(|(&token, &logit)| all[token as usize] == logit),
                "{engine}"
            );
            let mut order = some.clone();
            order.sort_by(|&a, &b| all[b as usize].total_cmp(&all[a as usize]));
            assert!(
                order[..2].iter().chain(&[6]).all(|token| tokens.contains(token)),
                "{engine}: {tokens:?}"
            );
        }
        for wrong in [[-1, 0, 0], [2, 0, vocab as i64]] {
            let refused = asked.logits(BEST, &wrong).expect_err("no such number");
            assert!(refused.contains("best: expected "), "{refused}");
        }
    }
}

/// Exactly as many tokens as requested, of all and of a shortlist, with the softmax of all logits
/// times their factors.
#[test]
fn the_best_tokens_come_with_the_softmax_of_all() {
    let models = bundled();
    let vocab = models[0].config().vocab as i64;
    for mut asked in asked(&models) {
        let engine = asked.decoder.engine().to_owned();
        for shortlist in [(0..vocab).collect::<Vec<_>>(), (0..vocab).step_by(3).collect()] {
            let all = asked.logits(SHORTLIST, &shortlist).unwrap();
            asked.state.insert(SHORTLIST, ndarray::Array1::from(shortlist.clone()).into_dyn());
            let found = asked.logits(BEST, &[9, 1, 6]).unwrap();
            asked.state.remove(SHORTLIST);
            for ((row, all), &scale) in found.outer_iter().zip(all.outer_iter()).zip(&asked.scales)
            {
                let all = all.as_slice().unwrap();
                let mut order: Vec<usize> = (0..all.len()).collect();
                order.sort_by(|&a, &b| all[b].total_cmp(&all[a]).then(a.cmp(&b)));
                let always = shortlist.iter().position(|&token| token == 6);
                let mut expected: Vec<usize> = order[..9].iter().copied().chain(always).collect();
                expected.sort_unstable();
                expected.dedup();
                let row = row.as_slice().unwrap();
                let (tokens, rest) = row.split_at((row.len() - 2) / 2);
                let tokens: Vec<i64> = tokens
                    .iter()
                    .map(|&token| token as i64)
                    .filter(|&token| token < vocab)
                    .collect();
                assert_eq!(
                    tokens,
                    expected.iter().map(|&place| shortlist[place]).collect::<Vec<_>>(),
                    "{engine}"
                );
                assert!(
                    expected.iter().zip(rest).all(|(&place, &logit)| all[place] == logit),
                    "{engine}"
                );
                let scaled = all.iter().map(|&logit| f64::from(logit) * f64::from(scale));
                let largest = f64::from(all[order[0]]) * f64::from(scale);
                let log_sum = scaled.map(|logit| (logit - largest).exp()).sum::<f64>().ln();
                let sums = [largest, log_sum].into_iter().zip(&row[row.len() - 2..]);
                assert!(
                    sums.into_iter().all(|(exact, &found)| (exact - f64::from(found)).abs()
                        < 2e-6 * exact.abs().max(1.0)),
                    "{engine}: {row:?}"
                );
            }
        }
    }
}

#[test]
fn rows_are_rounded_in_one_pass_in_every_family() {
    for name in models().iter().map(String::as_str).chain(SPEECH_MODELS) {
        let [encoder, decoder] =
            operators(Layout::SharedCache, &Model::open(&golden(name)).unwrap(), Integers);
        let left = |operators: &[String]| {
            operators
                .iter()
                .filter(|operator| ["QuantizeLinear", "Abs"].contains(&operator.as_str()))
                .count()
        };
        assert_eq!([left(&encoder), left(&decoder)], [0, 0], "{name}: {decoder:?}");
    }
}
