//! Operators of our own within ONNX Runtime, beside ONNX Runtime's own operators on one and the
//! same 8-bit file.
//!
//! Both multiply the same bytes, and differ by roundings of f32 between two products: [`CLOSE`]
//! bounds them. Where an activation lies in the middle of two bytes, such a rounding decides
//! between them, and what follows differs by a whole step, a 127th of a row's range. So a file is
//! cut before its products: all of them read what ONNX Runtime's own operators gave them, in both
//! runs. What each run would have given is compared: numbers within [`CLOSE`], bytes equal, but for
//! a neighbour where the number is as near to the middle as [`CLOSE`] allows. The file as it is,
//! uncut, is compared as far as the first product that reads another byte; where products round
//! within themselves nobody sees that, and the cut file says it all.

use crate::engines::{for_our_operators, models_with_shared_caches, output};
use crate::golden::array;
use cognate_export::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, ModelProto, NodeProto,
};
use cognate_export::proto::{TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use cognate_export::read_model;
use cognate_graph::{Bits, Blocks, Program, Steps};
use cognate_model::interface::LOGITS_SCALE;
use cognate_model::{Attentions, Layout, Model, Names};
use cognate_passes::fuse::fuse;
use cognate_passes::quantize::{Options as Quantize, quantize};
use cognate_runtime::{Options, Ort, Runtime, Session, Source, Value, Values};
use cognate_testing::{Golden, golden};
use cognate_verify::{CLOSE, compare};
use ndarray::{ArrayD, IxDyn};
use prost::Message;
use std::path::Path;

/// Steps from zero to the largest magnitude of a row.
const STEPS: f64 = 127.0;

/// What a product reads, by the tensor's name.
#[derive(Clone, Debug, PartialEq)]
struct Activation {
    tensor: String,
    /// The numbers that were rounded to it, from -1 to 1, if it holds bytes.
    unrounded: Option<String>,
}

fn is_product(node: &NodeProto) -> bool {
    ["MatMulIntegerToFloat", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulNBits"]
        .contains(&node.op_type.as_str())
}

/// In the order in which the graph computes them.
fn activations(graph: &GraphProto) -> Vec<Activation> {
    let mut found: Vec<Activation> = Vec::new();
    for product in graph.node.iter().filter(|node| is_product(node)) {
        let tensor = product.input[0].clone();
        let giver = graph
            .node
            .iter()
            .find(|node| node.output.contains(&tensor) && node.op_type == "QuantizeLinear");
        let activation =
            Activation { tensor, unrounded: giver.map(|giver| giver.input[0].clone()) };
        if !found.contains(&activation) {
            found.push(activation);
        }
    }
    found
}

fn made(tensor: &str) -> String {
    format!("made.{tensor}")
}

fn given(tensor: &str) -> String {
    format!("given.{tensor}")
}

fn node(operation: &str, input: &str, output: &str, to: Option<DataType>) -> NodeProto {
    let to = to.map(|to| AttributeProto {
        name: "to".into(),
        r#type: AttributeType::Int as i32,
        i: Some(to as i64),
        ..Default::default()
    });
    NodeProto {
        input: vec![input.into()],
        output: vec![output.into()],
        name: output.into(),
        op_type: operation.into(),
        attribute: to.into_iter().collect(),
        domain: String::new(),
    }
}

/// An input or output of rows.
fn rows(name: &str, element: DataType) -> ValueInfoProto {
    let shape = TensorShapeProto { dim: vec![DimensionProto::default(); 2] };
    let tensor_type = TensorTypeProto { elem_type: element as i32, shape: Some(shape) };
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
        doc_string: String::new(),
    }
}

/// Makes an output of what each product reads, bytes as i64; with `unrounded` also of the numbers
/// that bytes were rounded from.
fn watch(graph: &mut GraphProto, activations: &[Activation], unrounded: bool) {
    for Activation { tensor, unrounded: numbers } in activations {
        let (operation, to, element) = match numbers {
            Some(_) => ("Cast", Some(DataType::Int64), DataType::Int64),
            None => ("Identity", None, DataType::Float),
        };
        graph.node.push(node(operation, tensor, &made(tensor), to));
        graph.output.push(rows(&made(tensor), element));
        if let Some(numbers) = numbers.as_ref().filter(|_| unrounded)
            && !graph.output.iter().any(|output| output.name == made(numbers))
        {
            graph.node.push(node("Identity", numbers, &made(numbers), None));
            graph.output.push(rows(&made(numbers), DataType::Float));
        }
    }
}

/// Lets products read inputs in place of what the graph makes for them.
fn cut(graph: &mut GraphProto, activations: &[Activation]) {
    let mut casts = Vec::new();
    for Activation { tensor, unrounded } in activations {
        let (input, element) =
            (given(tensor), if unrounded.is_some() { DataType::Int64 } else { DataType::Float });
        let read = if unrounded.is_some() { format!("cut.{tensor}") } else { input.clone() };
        if unrounded.is_some() {
            casts.push(node("Cast", &input, &read, Some(DataType::Uint8)));
        }
        graph.input.push(rows(&input, element));
        for product in
            graph.node.iter_mut().filter(|node| is_product(node) && node.input[0] == *tensor)
        {
            product.input[0].clone_from(&read);
        }
    }
    graph.node.splice(..0, casts);
}

/// One graph of an export: the file by ONNX Runtime's own operators, cut by ours, and uncut by
/// ours.
struct Compared {
    activations: Vec<Activation>,
    plain: Box<dyn Session>,
    own_cut: Box<dyn Session>,
    /// Where no product rounds within itself, which could not be seen.
    own: Option<Box<dyn Session>>,
}

impl Compared {
    fn open(ort: &Ort, file: &Path) -> Self {
        let model = read_model(file).unwrap();
        let activations = activations(model.graph.as_ref().unwrap());
        assert!(!activations.is_empty(), "{}: no products of integers", file.display());
        let load = |name: &str, plain: bool, change: &dyn Fn(&mut GraphProto)| {
            let mut model: ModelProto = model.clone();
            change(model.graph.as_mut().unwrap());
            let path = file.with_file_name(format!("{name}.onnx"));
            std::fs::write(&path, model.encode_to_vec()).unwrap();
            ort.load(&Source::Onnx(path), &Options { plain, ..Options::default() }).unwrap()
        };
        let plain = load("plain", true, &|graph| watch(graph, &activations, true));
        let own_cut = load("cut", false, &|graph| {
            cut(graph, &activations);
            watch(graph, &activations, false);
        });
        let is_seen = activations.iter().all(|activation| activation.unrounded.is_some());
        let own = is_seen.then(|| load("own", false, &|graph| watch(graph, &activations, false)));
        Self { activations, plain, own_cut, own }
    }
}

/// What a comparison found.
#[derive(Default)]
struct Tally {
    failures: Vec<String>,
    bytes: usize,
    /// Bytes that are another at a tie.
    ties: usize,
    /// Uncut graphs of which no byte is another, from end to end.
    whole: usize,
    graphs: usize,
    worst: f64,
    /// Whether any number of any graph is another: else nothing of ours has run.
    has_changed: bool,
}

impl Tally {
    fn numbers(&mut self, found: &ArrayD<f64>, expected: &ArrayD<f64>, what: &str) {
        let Some(measured) = compare(found, expected) else {
            return self.failures.push(format!(
                "{what}: shapes {:?} and {:?}",
                found.shape(),
                expected.shape()
            ));
        };
        self.has_changed |= measured.relative_l2 > 0.0;
        self.worst = self.worst.max(measured.relative_l2);
        if !measured.within(CLOSE) {
            self.failures.push(format!(
                "{what}: {:.1e}, at most {:.0e} is allowed",
                measured.relative_l2, CLOSE.relative_l2
            ));
        }
    }

    fn bytes(&mut self, found: &ArrayD<f64>, [expected, unrounded]: [&ArrayD<f64>; 2], what: &str) {
        assert_eq!(
            (found.shape(), expected.shape()),
            (expected.shape(), unrounded.shape()),
            "{what}"
        );
        let mut n_other = 0;
        self.bytes += found.len();
        for ((found, expected), unrounded) in found.iter().zip(expected).zip(unrounded) {
            // A row of zeros is divided by zero: whatever its bytes are, they are multiplied by its
            // magnitude, zero.
            if found == expected || !unrounded.is_finite() {
                continue;
            }
            n_other += 1;
            let from_the_middle = ((unrounded * STEPS).fract().abs() - 0.5).abs();
            if (found - expected).abs() > 1.0 || from_the_middle > STEPS * CLOSE.relative_l2 {
                let steps = unrounded * STEPS;
                self.failures.push(format!(
                    "{what}: byte {found}, expected {expected}, of {steps:.5} steps"
                ));
            }
        }
        self.ties += n_other;
    }

    /// Runs one graph in all ways; returns what the file gives by itself.
    fn compare(&mut self, graph: &mut Compared, inputs: &Values, what: &str) -> Values {
        let expected = graph.plain.run(inputs).unwrap();
        let mut cut_inputs = inputs.clone();
        for Activation { tensor, unrounded } in &graph.activations {
            let value = expected.get(&made(tensor)).unwrap();
            let value = match unrounded {
                Some(_) => Value::I64(value.to_f64().unwrap().mapv(|byte| byte as i64)),
                None => Value::F32(value.to_f32().unwrap()),
            };
            cut_inputs.insert(given(tensor), value);
        }
        let own_cut = graph.own_cut.run(&cut_inputs).unwrap();
        let cut = format!("{what}, cut");
        self.agree([&own_cut, &expected], &graph.activations, &cut);
        self.graphs += 1;
        if let Some(own) = &mut graph.own {
            let (found, whole) = (own.run(inputs).unwrap(), format!("{what}, whole"));
            let is_other = |activation: &&Activation| {
                let name = made(&activation.tensor);
                output(&found, &name) != output(&expected, &name)
            };
            // After a byte that is another, both compute something else.
            match graph.activations.iter().find(is_other) {
                Some(first) => self.agree_in([&found, &expected], first, &whole),
                None => {
                    self.whole += 1;
                    self.agree([&found, &expected], &[], &whole);
                }
            }
        }
        expected
    }

    /// Compares what products read and what the graph gives.
    fn agree(&mut self, [found, expected]: [&Values; 2], activations: &[Activation], what: &str) {
        activations
            .iter()
            .for_each(|activation| self.agree_in([found, expected], activation, what));
        for (name, value) in found.iter().filter(|(name, _)| !name.starts_with("made.")) {
            self.numbers(
                &value.to_f64().unwrap(),
                &output(expected, name),
                &format!("{what}, {name}"),
            );
        }
    }

    fn agree_in(&mut self, [found, expected]: [&Values; 2], activation: &Activation, what: &str) {
        let (name, what) = (made(&activation.tensor), format!("{what}, {}", activation.tensor));
        let (found, theirs) = (output(found, &name), output(expected, &name));
        match &activation.unrounded {
            Some(unrounded) => {
                self.bytes(&found, [&theirs, &output(expected, &made(unrounded))], &what)
            }
            None => self.numbers(&found, &theirs, &what),
        }
    }
}

fn wave(shape: &[usize], step: f32) -> ArrayD<f32> {
    crate::fast::wave(shape, step)
}

/// Beams of a sentence, and places of the caches.
const BEAMS: usize = 2;
const PLACES: [(usize, usize); 3] = [(0, 4), (5, 8), (6, 7)];

/// What the decoder reads: caches with some places filled, and what the encoder gave.
fn step_inputs(
    model: &Model,
    mask: &ArrayD<i64>,
    encoded: &Values,
    (past, capacity): (usize, usize),
) -> Values {
    let (decoder, batch) = (model.config().decoder, mask.shape()[0]);
    let id = |index: usize| (4 + 7 * index % (model.config().vocab - 4)) as i64;
    let ids = (0..batch * BEAMS).map(id).collect();
    let holders = (0..batch * BEAMS * past).map(|index| (index * 7 % 5 % BEAMS) as i64).collect();
    let mut inputs = Values::new();
    inputs.insert("input_ids", ArrayD::from_shape_vec(IxDyn(&[batch, BEAMS]), ids).unwrap());
    inputs.insert("attention_mask", mask.clone());
    inputs.insert(
        "cache_beams",
        ArrayD::from_shape_vec(IxDyn(&[batch, BEAMS, past]), holders).unwrap(),
    );
    for (name, value) in encoded.iter().filter(|(name, _)| name.starts_with("cross.")) {
        inputs.insert(name, value.clone());
    }
    for (index, name) in (0..decoder.n_layers).flat_map(Names::past).enumerate() {
        inputs.insert(
            name,
            wave(
                &[batch * BEAMS, decoder.key_heads, capacity, decoder.d_k],
                0.31 + 0.07 * index as f32,
            ),
        );
    }
    inputs
}

fn compare_model(ort: &Ort, name: &str, integers: Quantize<'_>, tally: &mut Tally) {
    let (model, layout) = (Model::open(&golden(name)).unwrap(), Layout::SharedCache);
    let programs: Vec<Program> = model
        .graphs(layout, Attentions::Omit)
        .unwrap()
        .iter()
        .map(|program| fuse(program).unwrap())
        .collect();
    let programs = quantize(&[&programs[0], &programs[1]], integers).unwrap();
    let (folder, files) = (for_our_operators(&programs), layout.files());

    let expected = Golden::open(name);
    let mask = array(expected.ids("attention_mask"));
    let mut inputs = Values::new();
    inputs.insert("input_ids", array(expected.ids("input_ids")));
    inputs.insert("attention_mask", mask.clone());
    let [mut encoder, mut decoder] =
        [0, 1].map(|which| Compared::open(ort, &folder.path().join(files[which])));
    let encoded = tally.compare(&mut encoder, &inputs, &format!("{name}, encoder"));
    for places in PLACES {
        let inputs = step_inputs(&model, &mask, &encoded, places);
        tally.compare(&mut decoder, &inputs, &format!("{name}, decoder, past {}", places.0));
    }
}

/// Every golden model, with steps for each row, for each batch, and for each block in 8 and in 4
/// bits.
#[test]
fn our_operators_give_what_onnx_runtimes_own_give() {
    let Ok(ort) = Ort::find() else {
        return eprintln!(
            "skipped: no library of ONNX Runtime; `cargo xtask onnxruntime` installs it"
        );
    };
    let columns = |steps| Quantize::Columns { steps, unscaled: Some(["logits", LOGITS_SCALE]) };
    let blocks = |bits| Quantize::Blocks { blocks: Blocks { bits, size: 32 }, output: "logits" };
    for (what, integers) in [
        ("int8", columns(Steps::Row)),
        ("int8-tensor", columns(Steps::Tensor)),
        ("int8-block", blocks(Bits::Eight)),
        ("int4", blocks(Bits::Four)),
    ] {
        let mut tally = Tally::default();
        models_with_shared_caches()
            .iter()
            .for_each(|name| compare_model(&ort, name, integers, &mut tally));
        let Tally { failures, bytes, ties, whole, graphs, worst, has_changed } = tally;
        eprintln!(
            "{what}: {ties} of {bytes} bytes are neighbours at a tie; {whole} of {graphs} graphs whole without one; numbers {worst:.1e}"
        );
        assert!(
            failures.is_empty(),
            "{what}: {} differences:\n{}",
            failures.len(),
            failures.join("\n")
        );
        assert!(
            has_changed,
            "{what}: all numbers are the same to the bit: no operator of ours has run"
        );
        assert!(what != "int8" || bytes > 100_000, "{what}: {bytes} bytes compared");
    }
}
