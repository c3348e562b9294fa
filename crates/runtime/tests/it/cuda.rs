//! The placement of nodes.

use crate::example::{Exported, inputs, no_past, ort, program, relative_error};
use cognate_runtime::{Device, Options, Ort, Reference, Runtime, Source, Value};
use std::collections::BTreeMap;

fn placement(ort: &Ort, device: Device) -> BTreeMap<String, usize> {
    let exported = Exported::new();
    let options = Options { device, ..Options::default() };
    ort.placement(&exported.path("example.onnx"), &options).expect("a legal file")
}

#[test]
fn on_the_processor_every_node_runs_there() {
    let Some(ort) = ort() else { return };
    let placement = placement(&ort, Device::Cpu);
    assert_eq!(placement.keys().collect::<Vec<_>>(), ["CPUExecutionProvider"], "{placement:?}");
}

#[test]
fn cuda_computes_most_nodes_and_agrees_with_the_reference() {
    if !cognate_testing::cuda() {
        return;
    }
    let ort = ort().expect("a library");
    let placement = placement(&ort, Device::CUDA);
    let on = |provider: &str| placement.get(provider).copied().unwrap_or(0);
    assert!(on("CUDAExecutionProvider") > on("CPUExecutionProvider"), "{placement:?}");

    let exported = Exported::new();
    let options = Options { device: Device::CUDA, ..Options::default() };
    let mut session = ort.load(&exported.source(), &options).expect("CUDA");
    assert!(session.engine().ends_with("CUDAExecutionProvider"), "{}", session.engine());
    let mut reference =
        Reference::F64.load(&Source::Graph(program()), &Options::default()).expect("a legal graph");
    let (mut past, mut wanted_past) =
        (Value::from(no_past()), Value::from(no_past().mapv(f64::from)));
    for ids in [[&[1i64][..], &[2]], [&[3, 4], &[5, 6]]] {
        let found = session.run(&inputs(ids, past)).expect("a run");
        let wanted = reference.run(&inputs(ids, wanted_past)).expect("a run");
        let [y, wanted_y] = [&found, &wanted]
            .map(|values| values.get("y").expect("an output").to_f64().expect("floats"));
        assert!(relative_error(&y, &wanted_y) <= 1e-5);
        (past, wanted_past) = (
            found.get("present").expect("an output").clone(),
            wanted.get("present").expect("an output").clone(),
        );
    }
}
