//! Unit tests of `train::report`.

use cognate_bench::driver::{Answer, Greeting};
use cognate_bench::train::SHAPES;
use cognate_bench::train::report::*;
use cognate_bench::train::{On, Way};

fn row(way: Way, seconds: [f64; 3], in_graph: Option<f64>, peak_bytes: u64) -> Row {
    let mut row = Row::new(
        way,
        &Greeting { engine: way.title().into(), base_bytes: 100_000_000, ..Greeting::default() },
        1,
    );
    for (round, seconds) in (0..).zip([100.0].into_iter().chain(seconds)) {
        let seconds_in_graph = in_graph.map(|share| share * seconds);
        row.add(
            round,
            0,
            Answer { seconds, seconds_in_graph, tokens: 1_000, peak_bytes, loss: None },
        );
    }
    row
}

fn block(ours: [f64; 3], peak_bytes: u64) -> Block {
    let rows = vec![
        row(Way::PyTorch, [1.0, 2.0, 1.0], None, 300_000_000),
        row(Way::Cognate, ours, Some(0.95), peak_bytes),
    ];
    Block { shape: &SHAPES[1], on: On::Threads(2), parameters: 7_500_000, rows }
}

#[test]
fn a_block_is_a_table() {
    let expected = "\
        ### 3+3 layers, d_model 256, d_ff 1024, 4 heads, 2 threads\n\n\
        7,500,000 parameters; four copies of them are 120 MB.\n\n\
        |             |         tokens/s | to PyTorch f32 | outside the engine | peak, MB | of it training | to PyTorch f32 |\n\
        | ----------- | ---------------: | -------------: | -----------------: | -------: | -------------: | -------------: |\n\
        | PyTorch f32 |  1000 (500-1000) |           1.00 |                  - |      300 |            200 |           1.00 |\n\
        | Cognate f32 | 1250 (1000-1250) | **1.25 < 1.3** |               5.0% |      320 |            220 | **1.10 > 0.8** |\n\n";
    assert_eq!(block([0.8, 1.0, 0.8], 320_000_000).text(), expected);
}

#[test]
fn every_missed_bound_is_named() {
    assert!(block([0.5, 1.0, 0.5], 260_000_000).missed().is_empty());
    // Rounded, both keep their bounds.
    let almost = block([0.77, 1.54, 0.77], 260_500_000);
    assert_eq!(almost.missed().len(), 2);
    assert!(
        almost.text().contains("**1.29 < 1.3**") && almost.text().contains("**0.81 > 0.8**"),
        "{}",
        almost.text()
    );
    let title = "3+3 layers, d_model 256, d_ff 1024, 4 heads, 2 threads";
    assert_eq!(
        block([1.1, 2.1, 1.0], 400_000_000).missed(),
        [
            format!("{title}: 0.95 times tokens/s of PyTorch f32, at least 1.3"),
            format!("{title}: 1.50 times memory of PyTorch f32, at most 0.8")
        ]
    );
}
