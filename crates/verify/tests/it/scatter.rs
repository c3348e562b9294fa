//! Sums into the rows of a table at the size of a training step, where tokens occur many times:
//! ONNX Runtime's processor adds the rows of its ScatterND from several threads at a time and loses
//! some.

use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_graph::{Builder, DType, Program, Weights};
use cognate_runtime::{Device, Options, Reference, Runtime, Source, Values, available};
use ndarray::{ArrayD, IxDyn};
use std::num::NonZeroUsize;

const ROWS: usize = 8_000;
const WIDTH: usize = 128;
const TOKENS: usize = 2_048;
const RUNS: usize = 60;

/// `[32, 64]` ids of which a few are most, as words are (Zipf), and their rows.
fn inputs() -> Values {
    // Below 1, spread evenly.
    let unit = |index: usize| (index as f64 * 0.618_033_988_75).fract();
    let ids: Vec<i64> =
        (0..TOKENS).map(|index| (ROWS as f64).powf(unit(index)) as i64 - 1).collect();
    let wave = |n: usize, phase: f32| {
        (0..n).map(|index| (index as f32 * 0.7 + phase).sin()).collect::<Vec<_>>()
    };
    let mut inputs = Values::new();
    inputs.insert("ids", ArrayD::from_shape_vec(IxDyn(&[32, 64]), ids).unwrap());
    inputs.insert(
        "table",
        ArrayD::from_shape_vec(IxDyn(&[ROWS, WIDTH]), wave(ROWS * WIDTH, 0.0)).unwrap(),
    );
    inputs.insert(
        "updates",
        ArrayD::from_shape_vec(IxDyn(&[32, 64, WIDTH]), wave(TOKENS * WIDTH, 1.0)).unwrap(),
    );
    inputs
}

#[test]
fn sums_lose_nothing_on_any_number_of_threads() {
    let builder = Builder::new("sums");
    let ids = builder.input("ids", DType::I64, [32, 64]);
    let table = builder.input("table", DType::F32, [ROWS as i64, WIDTH as i64]);
    let updates = builder.input("updates", DType::F32, [32, 64, WIDTH as i64]);
    builder.output("sums", table.scatter_add(ids, updates));
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
    let inputs = inputs();
    let mut reference =
        Reference::F64.load(&Source::Graph(program.clone()), &Options::default()).unwrap();
    let exact = reference.run(&inputs).unwrap().get("sums").unwrap().to_f64().unwrap();
    let norm = exact.iter().map(|x| x * x).sum::<f64>().sqrt();

    let folder = tempfile::tempdir().unwrap();
    let (graphs, metadata) = ([("sums.onnx", &program)], Metadata::default());
    write_folder(
        folder.path(),
        &Export::new(&graphs, "weights.onnx_data", &metadata),
        &[],
        Existing::Replace,
    )
    .unwrap();
    for engine in available(Device::Cpu).unwrap() {
        // As many as the engine takes by itself, one, two.
        for threads in [None, NonZeroUsize::new(1), NonZeroUsize::new(2)] {
            let options = Options { threads, ..Options::default() };
            let mut session =
                engine.load(&Source::Onnx(folder.path().join("sums.onnx")), &options).unwrap();
            let mut run = || session.run(&inputs).unwrap().get("sums").unwrap().to_f32().unwrap();
            let first = run();
            let error = first
                .iter()
                .zip(&exact)
                .map(|(&found, exact)| (f64::from(found) - exact).powi(2))
                .sum::<f64>()
                .sqrt()
                / norm;
            assert!(error < 3e-7, "{}, {threads:?}: {error:.1e}", engine.name());
            let others = (1..RUNS).filter(|_| run() != first).count();
            assert_eq!(
                others,
                0,
                "{}, {threads:?}: runs of {RUNS} that differ from the first",
                engine.name()
            );
        }
    }
}
