//! Unit tests of `decode::gpu`.

use cognate_bench::decode::gpu::{GPU_WAYS, GpuBlock, OURS, PEER};
use cognate_bench::decode::shape::{Column, SHAPES};
use cognate_bench::driver::{Answer, Greeting};
use cognate_bench::rows::Row;

/// CTranslate2 at 100 and 200 tokens per second, Cognate at `ours`, a quarter of its time outside.
fn block(ours: [f64; 2]) -> GpuBlock {
    let row = |name: &str, speeds: [f64; 2], in_graph: Option<f64>| {
        let way = GPU_WAYS.iter().find(|way| way.name == name).unwrap();
        let mut row = Row::new(way, &Greeting::default(), 2);
        for (column, speed) in speeds.into_iter().enumerate() {
            let seconds = 32.0 / speed;
            let seconds_in_graph = in_graph.map(|share| share * seconds);
            row.add(
                1,
                column,
                Answer { seconds, seconds_in_graph, tokens: 32, ..Answer::default() },
            );
        }
        row
    };
    GpuBlock {
        shape: &SHAPES[0],
        columns: vec![Column { batch: 1, beams: 1 }, Column { batch: 512, beams: 4 }],
        rows: vec![
            row(PEER, [100.0, 200.0], None),
            Row { peak_bytes: 2_048_000_000, ..row(OURS, ours, Some(0.75)) },
        ],
    }
}

#[test]
fn a_block_is_three_tables() {
    let expected = "\
        ### Marian-base\n\n\
        | tokens/s            | greedy, batch 1 | 4 beams, batch 512 |\n\
        | ------------------- | --------------: | -----------------: |\n\
        | CTranslate2 float16 |   100 (100-100) |      200 (200-200) |\n\
        | Cognate f16         |   150 (150-150) |      150 (150-150) |\n\n\
        | to CTranslate2 float16 | greedy, batch 1 | 4 beams, batch 512 |\n\
        | ---------------------- | --------------: | -----------------: |\n\
        | Cognate f16            |            1.50 |       **0.75 < 1** |\n\n\
        | outside the graph | greedy, batch 1 | 4 beams, batch 512 |\n\
        | ----------------- | --------------: | -----------------: |\n\
        | Cognate f16       |           25.0% |              25.0% |\n\n\
        Memory of the GPU at the end, MB: CTranslate2 float16 0, Cognate f16 2048.\n\n";
    assert_eq!(block([150.0, 150.0]).text(), expected);
}

#[test]
fn calls_slower_than_ctranslate2_are_named() {
    assert_eq!(block([100.0, 200.0]).missed(), Vec::<String>::new());
    let expected =
        "Marian-base, Cognate f16: 4 beams, batch 512: 0.75 times CTranslate2, at least 1";
    assert_eq!(block([150.0, 150.0]).missed(), [expected]);
}
