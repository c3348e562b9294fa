//! Snapshots of the graphs' canonical text.

use cognate_model::{Attentions, Model};
use cognate_testing::golden;
use insta::assert_snapshot;

#[test]
fn entry_graphs() {
    let model = Model::open(&golden("marian")).unwrap();
    assert_snapshot!("encode", model.encode().unwrap().graph());
    assert_snapshot!("step", model.step(Attentions::Cross).unwrap().graph());
}
