//! Counts of operations, and broadcasting.

use cognate_graph::{Bindings, Builder, DType, Shape};

#[test]
fn attention_is_counted_by_hand() {
    let builder = Builder::new("attention");
    let q = builder.input("q", DType::F32, ["tgt", "d_k"]);
    let k = builder.input("k", DType::F32, ["src", "d_k"]);
    builder.output("weights", (q.matmul(k.t()) * 0.125).softmax());
    let graph = builder.finish().expect("a graph");
    let mut sizes = Bindings::default();
    for (symbol, size) in [("tgt", 3), ("d_k", 8), ("src", 5)] {
        sizes.bind(&symbol.into(), size).expect("a new symbol");
    }
    let total = |sizes: &Bindings| {
        graph.iter().map(|(id, _)| graph.operations(id, sizes)).sum::<Option<u64>>()
    };
    // 15 scores of 8 multiplications and additions, 15 scalings, 5 steps of softmax for each.
    assert_eq!(total(&sizes), Some(15 * 16 + 15 + 15 * 5));
    assert_eq!(total(&Bindings::default()), None);
}

#[test]
fn broadcasting_follows_numpy() {
    let scores = Shape::from(["batch", "heads", "tgt", "src"]);
    let mask = Shape::from(vec!["batch".into(), 1.into(), 1.into(), "src".into()]);
    assert_eq!(mask.broadcast(&scores), Some(scores.clone()));
    assert_eq!(Shape::default().broadcast(&scores), Some(scores.clone()));
    assert_eq!(Shape::from(["tgt", "tgt"]).broadcast(&scores), None);
}
