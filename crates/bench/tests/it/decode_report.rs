//! Unit tests of `decode::report`.

use cognate_bench::decode::limits::Limits;
use cognate_bench::decode::report::*;
use cognate_bench::decode::shape::Column;
use cognate_bench::decode::shape::SHAPES;
use cognate_bench::decode::ways::WAYS;
use cognate_bench::driver::{Answer, Greeting};
use cognate_bench::machine::Machine;

/// Marian-base on one thread: CTranslate2 int8 at 100 and 200 tokens per second, Cognate at `ours`,
/// a quarter of its time outside.
pub(crate) fn block(ours: [f64; 2]) -> Block {
    let columns = vec![Column { batch: 1, beams: 1 }, Column { batch: 8, beams: 4 }];
    let row = |name: &str, speeds: [f64; 2], in_graph: Option<f64>| {
        let way = WAYS.iter().find(|way| way.name == name).unwrap();
        let mut row =
            Row::new(way, &Greeting { engine: format!("{name} 1"), ..Greeting::default() }, 2);
        for (column, speed) in speeds.into_iter().enumerate() {
            for factor in [1.0, 0.5, 2.0] {
                let seconds = 32.0 / (speed * factor);
                let seconds_in_graph = in_graph.map(|share| share * seconds);
                row.add(
                    1,
                    column,
                    Answer { seconds, seconds_in_graph, tokens: 32, ..Answer::default() },
                );
            }
        }
        row
    };
    let rows = vec![row("ct2-int8", [100.0, 200.0], None), row("cognate-int8", ours, Some(0.75))];
    // Limits of 32 tokens in 2.2 + 32 * 3.84 ms, 256 a second, and of 256 in 4.2 + 32 * 3.84 ms,
    // 2,014 a second: memory, but for the encoder of 8 sentences.
    Block {
        shape: &SHAPES[0],
        threads: 1,
        limits: Limits { bytes: [1e10; 4], f32: 1e12, int8: Some(2e12) },
        columns,
        rows,
    }
}

#[test]
fn a_block_is_four_tables() {
    let text = block([175.0, 336.0]).text();
    let expected = "\
        ### Marian-base, 1 thread\n\n\
        The machine reads 10.0 GB of f32 weights a second, 10.0 of bf16, 10.0 of 8-bit and 10.0 of 4-bit ones, and computes 1000 billion\n\
        operations a second in f32, 2000 in 8-bit integers.\n\n\
        | tokens/s         | greedy, batch 1 | 4 beams, batch 8 |\n\
        | ---------------- | --------------: | ---------------: |\n\
        | CTranslate2 int8 |    100 (50-200) |    200 (100-400) |\n\
        | Cognate int8     |    175 (88-350) |    336 (168-672) |\n\n\
        | to CTranslate2 | greedy, batch 1 | 4 beams, batch 8 |\n\
        | -------------- | --------------: | ---------------: |\n\
        | Cognate int8   |            1.75 |   **1.68 < 1.7** |\n\n\
        | of the limit     | greedy, batch 1 | 4 beams, batch 8 |\n\
        | ---------------- | --------------: | ---------------: |\n\
        | CTranslate2 int8 |             39% |              10% |\n\
        | Cognate int8     |             68% |              17% |\n\n\
        | outside the graph | greedy, batch 1 | 4 beams, batch 8 |\n\
        | ----------------- | --------------: | ---------------: |\n\
        | Cognate int8      |           25.0% |            25.0% |\n\n\
        | GB/s of 8, 32, 64 workers | greedy, batch 1 | 4 beams, batch 8 |\n\
        | ------------------------- | --------------: | ---------------: |\n\
        | Cognate int8              |    54, 215, 430 |      13, 52, 103 |\n\n";
    assert_eq!(text, expected);
}

#[test]
fn every_missed_floor_is_named_and_marked() {
    let missed = |ours| block(ours).missed();
    assert_eq!(missed([170.0, 340.0]), Vec::<String>::new());
    assert_eq!(
        missed([169.0, 320.0]),
        [
            "Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.69 times CTranslate2, at least 1.7",
            "Marian-base, 1 thread, Cognate int8: 4 beams, batch 8: 1.60 times CTranslate2, at least 1.7"
        ]
    );
    // Rounded, the first would keep its floor.
    let almost = block([169.9, 340.0]);
    assert_eq!(
        almost.missed(),
        [
            "Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.69 times CTranslate2, at least 1.7"
        ]
    );
    assert!(
        almost.text().contains("| Cognate int8   |  **1.69 < 1.7** |             1.70 |\n"),
        "{}",
        almost.text()
    );
    let on_two_threads = Block { threads: 2, ..block([1.0, 1.0]) };
    assert!(on_two_threads.missed().is_empty());
    assert!(!on_two_threads.text().contains("**"));
    let long = Block { shape: &SHAPES[2], ..block([140.0, 300.0]) };
    assert!(
        long.shape.is_long()
            && long.missed()[0].contains("greedy, batch 1: 1.40 times CTranslate2, at least 1.5"),
        "{:?}",
        long.missed()
    );
}

#[test]
fn nothing_passes_the_limit_unseen() {
    // The limit is 256 tokens a second.
    let over = Block { threads: 2, ..block([257.0, 260.0]) };
    assert_eq!(
        over.missed(),
        [
            "Marian-base, 2 threads, Cognate int8: greedy, batch 1: 101% of the limit, which is measured too low"
        ]
    );
    assert!(over.text().contains("**101%**"), "{}", over.text());
}

#[test]
fn the_page_tells_the_processor_and_what_is_missed() {
    let report = Report { rounds: 6, blocks: vec![block([169.0, 340.0])], ..Report::default() };
    let section = report.record(Machine::here(), "chart.svg");
    assert_eq!((section.title, section.processor), ("Speed of decoding", Machine::here().title));
    let text = section.text;
    assert!(
        text.contains("6 rounds (programs without a floor: 2)") && text.contains("(chart.svg)"),
        "{text}"
    );
    assert!(
        text.contains(
            "Missed:\n\n- Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.69 times"
        ),
        "{text}"
    );
    assert!(text.contains("\n### Marian-base, 1 thread\n") && !text.contains("\n## "), "{text}");
}
