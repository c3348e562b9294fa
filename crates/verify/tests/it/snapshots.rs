//! Snapshots of the bundled checkpoint: what its ONNX files hold, and the reference's numbers at
//! four digits.

use crate::engines::output;
use cognate_export::{Export, Listing, Metadata, proto::ModelProto};
use cognate_model::{Attentions, Model, Names};
use cognate_runtime::{Options, Reference, Runtime, Source, Values};
use cognate_testing::bundled_checkpoint;
use cognate_verify::Summary;
use insta::assert_snapshot;
use ndarray::{ArrayD, IxDyn, array};
use prost::Message;

#[test]
fn listings() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let (encoder, decoder) = (model.encode().unwrap(), model.step(Attentions::Cross).unwrap());
    let graphs = [("encoder.onnx", &encoder), ("decoder.onnx", &decoder)];
    let metadata = Metadata::default();
    let export = Export::new(&graphs, "weights.onnx_data", &metadata);
    for (file, bytes) in export.graph_files().unwrap() {
        let listing = Listing::of(&ModelProto::decode(bytes.as_slice()).unwrap());
        assert_snapshot!(file, listing);
    }
}

#[test]
fn numbers() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let load = |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let mask = array![[1, 1, 1, 1], [1, 1, 0, 0]].into_dyn();
    let inputs: Values = [
        ("input_ids", array![[10, 18, 14, 0], [52, 0, 2, 2]].into_dyn()),
        ("attention_mask", mask.clone()),
    ]
    .into_iter()
    .collect();
    let encoded = load(model.encode().unwrap()).run(&inputs).unwrap();
    let mut lines = vec![format!(
        "encoder_hidden_states {}",
        Summary::of(&output(&encoded, "encoder_hidden_states"))
    )];

    let mut inputs: Values = encoded
        .iter()
        .filter(|(name, _)| name.starts_with("cross."))
        .map(|(name, value)| (name, value.clone()))
        .collect();
    inputs.insert("attention_mask", mask);
    inputs.insert("input_ids", array![[[2, 10, 18]], [[2, 52, 5]]].into_dyn());
    for name in (0..4).flat_map(Names::past) {
        inputs.insert(name, ArrayD::<f64>::zeros(IxDyn(&[2, 1, 4, 0, 32])));
    }
    let decoded = load(model.step(Attentions::Cross).unwrap()).run(&inputs).unwrap();
    lines.extend(
        ["logits", "present.3.key", "cross_attentions.3"]
            .map(|name| format!("{name} {}", Summary::of(&output(&decoded, name)))),
    );
    assert_snapshot!(lines.join("\n"), @r"
    encoder_hidden_states [2, 4, 128] norm 6.211e0 first 1.463e-1 -2.106e-1 1.182e-2 1.239e-1
    logits [2, 1, 3, 8000] norm 6.146e2 first -2.263e-1 -3.117e0 5.499e-1 9.578e-2
    present.3.key [2, 1, 4, 3, 32] norm 2.337e1 first 3.980e-1 1.667e-1 3.340e-3 -5.613e-1
    cross_attentions.3 [2, 1, 4, 3, 4] norm 3.883e0 first 3.115e-1 3.476e-1 3.387e-1 2.162e-3
    ");
}
