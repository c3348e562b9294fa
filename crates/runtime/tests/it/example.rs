//! A small attention with a past, and the engines to run it.

use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_graph::{Builder, DType, Generator, Program, Recipe, concat};
use cognate_runtime::{Device, ErrorKind, Ort, Runtime, Source, Tract, Value, Values};
use ndarray::{ArrayD, IxDyn};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) const WIDTH: usize = 4;
const ROWS: usize = 10;

/// `y = softmax(x presentᵀ) present`, with `x` the embeddings of `ids` and `present` the past
/// followed by `x W`.
pub(crate) fn program() -> Program {
    let builder = Builder::new("example");
    let ids = builder.input("ids", DType::I64, ["batch", "tgt"]);
    let past = builder.input(
        "past",
        DType::F32,
        [cognate_graph::Dim::from("batch"), "past".into(), WIDTH.into()],
    );
    let scope = builder.root().at("example");
    let x = scope.parameter("embedding", [ROWS, WIDTH]).gather(ids);
    let present = concat(1, &[past, x.linear(scope.parameter("weight", [WIDTH, WIDTH]), None)]);
    builder.output("y", x.matmul(present.t()).softmax().matmul(present));
    builder.output("present", present);
    let graph = builder.finish().expect("a legal graph");
    let weights = [("embedding", ROWS), ("weight", WIDTH)].map(|(name, rows)| {
        let recipe = Recipe::generated(Arc::new(Waves { phase: rows as f32 }), &[rows, WIDTH]);
        (format!("example.{name}"), recipe)
    });
    Program::new(graph, weights.into_iter().collect()).expect("weights that fit")
}

/// Numbers between -1 and 1, without repetition.
#[derive(Debug)]
struct Waves {
    phase: f32,
}

impl Generator for Waves {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in values.iter_mut().enumerate() {
            *value = ((first + index) as f32 + self.phase).sin();
        }
    }
}

/// The example as exported files with weights.
pub(crate) struct Exported {
    folder: tempfile::TempDir,
}

impl Exported {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (program, metadata) = (program(), Metadata::default());
        let graphs = [("example.onnx", &program)];
        let export = Export::new(&graphs, "weights.onnx_data", &metadata);
        write_folder(&folder.path().join("out"), &export, &[], Existing::Refuse)
            .expect("an export");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    pub(crate) fn source(&self) -> Source {
        Source::Onnx(self.path("example.onnx"))
    }

    /// `text` without the temporary folder's name.
    pub(crate) fn redact(&self, text: impl ToString) -> String {
        text.to_string().replace(self.path("").to_str().expect("UTF-8"), "")
    }
}

/// The engines that execute exported files. ONNX Runtime is skipped with a message if
/// it is not found.
pub(crate) fn engines() -> Vec<Box<dyn Runtime>> {
    let mut engines: Vec<Box<dyn Runtime>> = vec![Box::new(Tract)];
    engines.extend(ort().map(|ort| Box::new(ort) as Box<dyn Runtime>));
    engines
}

/// Whether there is a GPU to test on: `COGNATE_TEST_CUDA=1`, which `cargo xtask test --cuda` sets.
pub(crate) fn tests_cuda() -> bool {
    env::var_os("COGNATE_TEST_CUDA").is_some_and(|value| value == "1")
}

/// ONNX Runtime, or a message if it is not found. All tests of a process share the library, so it
/// has CUDA if any test needs it.
pub(crate) fn ort() -> Option<Ort> {
    match Ort::find_for(if tests_cuda() { Device::CUDA } else { Device::Cpu }) {
        Ok(ort) => Some(ort),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            cognate_testing::skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Inputs for a batch of 2.
pub(crate) fn inputs(ids: [&[i64]; 2], past: impl Into<Value>) -> Values {
    let shape = IxDyn(&[2, ids[0].len()]);
    let ids = ArrayD::from_shape_vec(shape, ids.concat()).expect("rows of one length");
    [("ids", ids.into()), ("past", past.into())]
        .into_iter()
        .collect::<Vec<(&str, Value)>>()
        .into_iter()
        .collect()
}

pub(crate) fn no_past() -> ArrayD<f32> {
    ArrayD::zeros(IxDyn(&[2, 0, WIDTH]))
}

/// `|found - wanted| / |wanted|`
pub(crate) fn relative_error(found: &ArrayD<f64>, wanted: &ArrayD<f64>) -> f64 {
    assert_eq!(found.shape(), wanted.shape(), "shapes");
    let square = |array: &ArrayD<f64>| array.iter().map(|x| x * x).sum::<f64>();
    (square(&(found - wanted)) / square(wanted)).sqrt()
}
