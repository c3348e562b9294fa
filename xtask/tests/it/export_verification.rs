//! Tests of `export::verification`.

use serde_json::json;
use xtask::export::verification::*;

#[test]
fn a_report_becomes_tables() {
    let report: Report = serde_json::from_value(json!({
        "reference": "reference evaluator in f64", "tolerance": 1e-5, "seed": 1, "batches": 8,
        "runtimes": [{
            "engine": "tract 0.23.9",
            "outputs": [{"graph": "decoder", "output": "logits", "max_absolute_error": 3.12e-6, "relative_l2_error": null}],
            "decoding": [{"method": "greedy", "sentences": 20, "equal": 19, "ties": 1}]
        }]
    }))
    .unwrap();
    let expected = "\
Against the reference evaluator in f64; bound on the relative L2 error 1e-5.

| model |       engine |          output | max absolute error | relative L2 error |
| ----- | -----------: | --------------: | -----------------: | ----------------: |
| tiny  | tract 0.23.9 | decoder: logits |             3.1e-6 |      not a number |

| model |       engine | decoding | equal sentences | ties |
| ----- | -----------: | -------: | --------------: | ---: |
| tiny  | tract 0.23.9 |   greedy |        19 of 20 |    1 |
";
    assert_eq!(tables(&[("tiny", &report)]), expected);
}
