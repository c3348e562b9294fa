//! ONNX graphs and the files that hold their weights: Cognate's own exports, and those of Optimum.
//!
//! Field numbers are those of `onnx.proto`.

use std::path::Path;

use anyhow::{Context, Result};

use super::bytes::{NOT_FILES, edit, edit_json, link, pipe, read, spread, write};
use super::good::{Good, Models};
use super::protobuf::{self, Message, Value};
use super::{Case, Change, Expect, Reader};

const FILE: &str = "encoder.onnx";
const WEIGHTS: &str = "weights.onnx_data";
const ENGINES: &[Reader] = &[Reader::Tract, Reader::Ort];
/// `show` lists what is in a file, and judges it only as far as it has to.
const ALL: &[Reader] = &[Reader::Tract, Reader::Ort, Reader::Verify];
const LISTING: &[Reader] = &[Reader::Listing];
const REFUSED: Expect = Expect::Refused(FILE);
const EITHER: Expect = Expect::Either(FILE);

const GRAPH: u32 = 7;
const NODE: u32 = 1;
const INITIALIZER: u32 = 5;
const OUTPUT: u32 = 12;
const FLOAT: i64 = 1;
const INT64: i64 = 7;

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let bytes = read(&models.path(Good::Exported).join(FILE))?;
    let mut cases = vec![
        Case::new("graph: untouched", Good::Exported, &[Reader::Tract, Reader::Ort, Reader::Listing], Expect::Either(""), |_| Ok(())),
        Case::new("optimum: untouched", Good::Optimum, &[Reader::Ort], Expect::Either(""), |_| Ok(())),
        Case::new("in place: untouched", Good::InPlace, ENGINES, Expect::Either(""), |_| Ok(())),
    ];
    let places = protobuf::boundaries(&bytes, 3);
    for place in spread(places.len(), 24).into_iter().map(|index| places[index]).chain([bytes.len() - 1]) {
        cases.push(file_case(format!("cut at {place}"), ENGINES, REFUSED, move |path| edit(path, |bytes| bytes.truncate(place))));
    }
    for place in spread(bytes.len(), 32) {
        for bit in [0, 6] {
            let change = move |path: &Path| edit(path, |bytes| bytes[place] ^= 1 << bit);
            // An axis of another name is told where it meets the decoder.
            cases.push(file_case(format!("bit {bit} of byte {place} flipped"), ENGINES, Expect::Either("coder"), change));
        }
    }
    for place in spread(bytes.len(), 12) {
        cases.push(file_case(format!("byte {place} changed"), LISTING, EITHER, move |path| edit(path, |bytes| bytes[place] ^= 0x55)));
    }
    for readers in [ENGINES, LISTING] {
        cases.extend(NOT_FILES.map(|(name, change)| file_case(name, readers, REFUSED, change)));
        cases.push(file_case("a text", readers, REFUSED, |path| write(path, "not a model")));
        cases.push(file_case("empty", readers, REFUSED, |path| write(path, "")));
        cases.push(file_case("branches nested 100,000 deep", readers, REFUSED, |path| write(path, branches(20_000))));
        cases.push(file_case("two million empty attributes", readers, REFUSED, |path| {
            let attributes = [0x2a, 0].repeat(2_000_000);
            let node = Message::default().text(NODE, attributes);
            write(path, opset(Message::default(), 18).message(GRAPH, &node).encode())
        }));
        cases.push(file_case("two million empty nodes", readers, REFUSED, |path| {
            write(path, opset(Message::default(), 18).text(GRAPH, [0x0a, 0].repeat(2_000_000)).encode())
        }));
        cases.push(file_case("four million names of outputs", readers, REFUSED, |path| {
            let node = Message::default().text(NODE, [0x12, 0].repeat(4_000_000));
            write(path, opset(Message::default(), 18).message(GRAPH, &node).encode())
        }));
    }
    cases.push(file_case("branches nested 40 deep", ENGINES, REFUSED, |path| write(path, branches(40))));
    cases.push(Case::new("graph: the decoder in its place", Good::Exported, ENGINES, Expect::Refused("coder"), |folder| {
        Ok(std::fs::copy(folder.join("decoder.onnx"), folder.join(FILE)).map(drop)?)
    }));
    model_cases(&mut cases);
    tensor_cases(&mut cases);
    location_cases(&mut cases);
    name_cases(&mut cases);
    amount_cases(&mut cases);
    node_cases(&mut cases);
    weights_cases(&mut cases);
    optimum_cases(&mut cases);
    Ok(cases)
}

/// A case that changes `encoder.onnx`.
fn file_case(name: impl Into<String>, readers: &'static [Reader], expect: Expect, change: impl Fn(&Path) -> Result<()> + 'static) -> Case {
    Case::new(format!("graph: {}", name.into()), Good::Exported, readers, expect, move |folder| change(&folder.join(FILE)))
}

/// A case that changes the model's message.
fn model_case(name: &str, expect: Expect, change: impl Fn(Message) -> Message + 'static) -> Case {
    file_case(name, ENGINES, expect, move |path| write(path, change(Message::parse(&read(path)?)?).encode()))
}

/// A case that changes the graph's message.
fn graph_case(name: impl Into<String>, expect: Expect, change: impl Fn(Message) -> Message + 'static) -> Case {
    file_case(name, ENGINES, expect, move |path| change_graph(path, &change))
}

fn change_graph(path: &Path, change: impl Fn(Message) -> Message) -> Result<()> {
    let model = Message::parse(&read(path)?)?;
    let graph = change(Message::parse(model.get(GRAPH).context("a graph")?)?);
    write(path, model.without(GRAPH).message(GRAPH, &graph).encode())
}

fn opset(model: Message, version: i64) -> Message {
    model.number(1, 9).message(8, &Message::default().text(1, "").number(2, version))
}

/// An `If` whose branch has an `If`, and so on.
fn branches(depth: usize) -> Vec<u8> {
    // From the inside out; lengths in full, as every level has the one inside.
    let mut graph = Message::default().text(2, "innermost");
    for _ in 0..depth.min(4_000) {
        let branch = Message::default().text(1, "then_branch").message(6, &graph).number(20, 5);
        let node = Message::default().text(1, "c").text(2, "y").text(4, "If").message(5, &branch);
        graph = Message::default().message(NODE, &node).text(2, "outer");
    }
    opset(Message::default(), 18).message(GRAPH, &graph).encode()
}

fn model_cases(cases: &mut Vec<Case>) {
    let opsets = [("0", 0), ("-1", -1), ("a billion", 1_000_000_000), ("2^63", i64::MIN)];
    for (name, version) in opsets {
        cases.push(model_case(&format!("version {name} of the operators"), REFUSED, move |model| {
            opset(model.without(8).without(1), version)
        }));
    }
    cases.push(model_case("version 1 of the operators", EITHER, |model| opset(model.without(8).without(1), 1)));
    cases.push(model_case("no version of the operators", REFUSED, |model| model.without(8)));
    cases.push(model_case("two versions of the operators", REFUSED, |model| opset(model.without(1), 11)));
    cases.push(model_case("a format of the future", EITHER, |model| model.without(1).number(1, 1_000_000)));
    cases.push(model_case("two graphs", REFUSED, |model| {
        let graph = model.get(GRAPH).unwrap_or_default().to_vec();
        model.text(GRAPH, graph)
    }));
    cases.push(model_case("a function that calls itself", REFUSED, |model| {
        let node = Message::default().text(2, "y").text(4, "F").text(7, "own");
        model.message(25, &Message::default().text(1, "F").text(5, "y").message(7, &node).text(10, "own"))
    }));
    cases.push(model_case("no graph", REFUSED, |model| model.without(GRAPH)));
}

/// A tensor with its values in `location`.
fn external(dims: &[i64], data_type: i64, entries: &[(&str, &str)]) -> Message {
    let tensor = dims.iter().fold(Message::default(), |tensor, &size| tensor.number(1, size)).number(2, data_type).text(8, "evil");
    let entry = |(key, value): &(&str, &str)| Message::default().text(1, key).text(2, value);
    entries.iter().fold(tensor, |tensor, pair| tensor.message(13, &entry(pair))).number(14, 1)
}

/// A tensor with its values inside.
fn inside(name: &str, dims: &[i64], data_type: i64, raw: &[u8]) -> Message {
    dims.iter().fold(Message::default(), |tensor, &size| tensor.number(1, size)).number(2, data_type).text(8, name).text(9, raw)
}

/// The graph with one more initializer, which it gives as an output so that nobody leaves it out.
fn with_initializer(graph: Message, tensor: &Message, name: &str) -> Message {
    graph.message(INITIALIZER, tensor).message(OUTPUT, &value(name, FLOAT))
}

/// A tensor's name and type.
fn value(name: &str, element: i64) -> Message {
    let tensor = Message::default().number(1, element);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

fn tensor_cases(cases: &mut Vec<Case>) {
    let shapes: [(&str, &[i64]); 8] = [
        ("a negative size", &[-1]),
        ("a size of -2^63", &[i64::MIN]),
        ("sizes that overflow", &[1 << 32, 1 << 32, 4]),
        ("sizes that overflow to a small number", &[i64::MAX, 2, 2]),
        ("a size of zero and others that overflow", &[0, i64::MAX, i64::MAX]),
        ("10 GB", &[2_500_000_000]),
        ("2^62 elements", &[1 << 62]),
        ("another shape than its bytes", &[3]),
    ];
    for (name, dims) in shapes {
        cases.push(graph_case(format!("weights with {name}"), REFUSED, move |graph| {
            let tensor = external(dims, FLOAT, &[("location", WEIGHTS), ("offset", "0"), ("length", "16")]);
            with_initializer(graph, &tensor, "evil")
        }));
        cases.push(graph_case(format!("a constant with {name}"), REFUSED, move |graph| {
            with_initializer(graph, &inside("evil", dims, FLOAT, &[0; 16]), "evil")
        }));
    }
    cases.push(graph_case("a constant without values that claims 10 GB", REFUSED, |graph| {
        with_initializer(graph, &Message::default().number(1, 2_500_000_000).number(2, FLOAT).text(8, "evil"), "evil")
    }));
    cases.push(graph_case("a constant of 100,000 axes", REFUSED, |graph| {
        with_initializer(graph, &inside("evil", &vec![1; 100_000], FLOAT, &[0; 4]), "evil")
    }));
    for data_type in [0, 8, 99, -1, i64::MAX] {
        cases.push(graph_case(format!("a constant of the type {data_type}"), REFUSED, move |graph| {
            with_initializer(graph, &inside("evil", &[1], data_type, &[0; 4]), "evil")
        }));
    }
    cases.push(graph_case("a constant with values of two kinds", REFUSED, |graph| {
        with_initializer(graph, &inside("evil", &[1], FLOAT, &[0; 4]).text(4, [0; 4]), "evil")
    }));
    cases.push(graph_case("a constant with fewer values than it says", REFUSED, |graph| {
        let mut tensor = Message::default().number(1, 1000).number(2, FLOAT).text(8, "evil");
        tensor.fields.push((4, Value::Fixed32([0; 4])));
        with_initializer(graph, &tensor, "evil")
    }));
    cases.push(graph_case("a constant in segments", REFUSED, |graph| {
        let segment = Message::default().number(1, 0).number(2, 1 << 40);
        with_initializer(graph, &inside("evil", &[1], FLOAT, &[0; 4]).message(3, &segment), "evil")
    }));
    for (name, value) in [("NaN", f32::NAN), ("infinity", f32::INFINITY)] {
        cases.push(graph_case(format!("a constant of {name}"), EITHER, move |graph| {
            with_initializer(graph, &inside("evil", &[1], FLOAT, &value.to_le_bytes()), "evil")
        }));
    }
    cases.push(graph_case("an input with a negative size", REFUSED, |graph| {
        let shape = Message::default().message(1, &Message::default().number(1, -7));
        let ty = Message::default().message(1, &Message::default().number(1, INT64).message(2, &shape));
        graph.message(11, &Message::default().text(1, "evil").message(2, &ty))
    }));
    cases.push(graph_case("an input that is no tensor", REFUSED, |graph| {
        let ty = Message::default().message(4, &Message::default());
        graph.message(11, &Message::default().text(1, "evil").message(2, &ty))
    }));
    cases.push(graph_case("a sparse initializer", REFUSED, |graph| {
        let sparse = Message::default()
            .message(1, &inside("evil", &[1], FLOAT, &[0; 4]))
            .message(2, &inside("", &[1], INT64, &[0; 8]))
            .number(3, 1 << 40);
        graph.message(15, &sparse)
    }));
}

/// What `location`, `offset` and `length` may say, and what may lie there.
fn location_cases(cases: &mut Vec<Case>) {
    type Prepare = fn(&Path) -> Result<()>;
    let nothing: Prepare = |_| Ok(());
    let outside: Prepare = |folder| write(&folder.join("../secret"), [0; 64]);
    let locations: [(&str, &str, Prepare); 19] = [
        ("that leaves the folder", "../secret", outside),
        ("that leaves it on a detour", "onnx/../../secret", |folder| {
            std::fs::create_dir(folder.join("onnx"))?;
            write(&folder.join("../secret"), [0; 64])
        }),
        ("that leaves it in Windows' way", "..\\secret", outside),
        ("that is absolute", "/etc/passwd", nothing),
        ("of a device", "/dev/zero", nothing),
        ("of a process", "/proc/self/mem", nothing),
        ("that is empty", "", nothing),
        ("of the folder", ".", nothing),
        ("of a folder", "inner", |folder| Ok(std::fs::create_dir(folder.join("inner"))?)),
        ("of a file that is missing", "none.onnx_data", nothing),
        ("with a zero in it", "weights.onnx_data\0x", nothing),
        ("that is a drive", "C:weights", nothing),
        ("of a link", "linked", |folder| link(&folder.join("linked"), WEIGHTS)),
        ("of a link to outside", "linked", |folder| {
            write(&folder.join("../secret"), [0; 64])?;
            link(&folder.join("linked"), "../secret")
        }),
        ("behind a link of a folder", "linked/secret", |folder| {
            write(&folder.join("../secret"), [0; 64])?;
            link(&folder.join("linked"), "..")
        }),
        ("of a hard link", "linked", |folder| {
            write(&folder.join("../secret"), [0; 64])?;
            Ok(std::fs::hard_link(folder.join("../secret"), folder.join("linked"))?)
        }),
        ("of a pipe", "pipe", |folder| pipe(&folder.join("pipe"))),
        ("that stands for memory in ONNX Runtime", "*/_ORT_MEM_ADDR_/*", nothing),
        ("that stands for memory, and is there", "*/_ORT_MEM_ADDR_/*", |folder| {
            std::fs::create_dir_all(folder.join("*/_ORT_MEM_ADDR_"))?;
            write(&folder.join("*/_ORT_MEM_ADDR_/*"), [0; 64])
        }),
    ];
    for (name, location, prepare) in locations {
        cases.push(Case::new(format!("graph: a location {name}"), Good::Exported, ALL, REFUSED, move |folder| {
            prepare(folder)?;
            let tensor = external(&[4], FLOAT, &[("location", location), ("offset", "0"), ("length", "16")]);
            change_graph(&folder.join(FILE), |graph| with_initializer(graph, &tensor, "evil"))
        }));
    }
    let entries: [(&str, &[(&str, &str)]); 12] = [
        ("behind the file", &[("location", WEIGHTS), ("offset", "100000000"), ("length", "16")]),
        ("half behind the file", &[("location", WEIGHTS), ("offset", "251000"), ("length", "1000000")]),
        ("whose end overflows", &[("location", WEIGHTS), ("offset", "18446744073709551612"), ("length", "16")]),
        ("beyond 64 bits", &[("location", WEIGHTS), ("offset", "99999999999999999999999"), ("length", "16")]),
        ("that is negative", &[("location", WEIGHTS), ("offset", "-16"), ("length", "16")]),
        ("that is no number", &[("location", WEIGHTS), ("offset", "0x10"), ("length", "16")]),
        ("of a negative length", &[("location", WEIGHTS), ("offset", "0"), ("length", "-16")]),
        ("of a length of 10 GB", &[("location", WEIGHTS), ("offset", "0"), ("length", "10000000000")]),
        ("of no length", &[("location", WEIGHTS), ("offset", "0"), ("length", "")]),
        ("in two files", &[("location", WEIGHTS), ("location", "config.json"), ("length", "16")]),
        ("twice", &[("location", WEIGHTS), ("offset", "0"), ("offset", "16"), ("length", "16")]),
        ("nowhere", &[]),
    ];
    for (name, entries) in entries {
        cases.push(graph_case(format!("a place {name}"), REFUSED, move |graph| {
            with_initializer(graph, &external(&[4], FLOAT, entries), "evil")
        }));
    }
    cases.push(graph_case("a place that is not said to hold", REFUSED, |graph| {
        let tensor = external(&[4], FLOAT, &[("location", "../secret")]).without(14);
        with_initializer(graph, &tensor, "evil")
    }));
    cases.push(graph_case("a place in an attribute", REFUSED, |graph| {
        let tensor = external(&[4], FLOAT, &[("location", "../secret"), ("length", "16")]);
        with_node(graph, Message::default().text(2, "made").text(4, "Constant").message(5, &attribute("value", 4).message(5, &tensor)))
    }));
}

fn name_cases(cases: &mut Vec<Case>) {
    let identity = |input: &str, output: &str| Message::default().text(1, input).text(2, output).text(4, "Identity");
    cases.push(graph_case("two initializers of one name", REFUSED, move |graph| {
        graph.message(INITIALIZER, &inside("evil", &[1], FLOAT, &[0; 4])).message(INITIALIZER, &inside("evil", &[1], FLOAT, &[1; 4]))
    }));
    cases.push(graph_case("two inputs of one name", REFUSED, |graph| graph.message(11, &value("input_ids", INT64))));
    cases.push(graph_case("two nodes that give one name", REFUSED, move |graph| {
        graph.message(NODE, &identity("input_ids", "a")).message(NODE, &identity("input_ids", "a"))
    }));
    cases.push(graph_case("a node that gives an input", REFUSED, move |graph| {
        graph.message(NODE, &identity("attention_mask", "input_ids"))
    }));
    cases.push(graph_case("a node that reads itself", REFUSED, move |graph| graph.message(NODE, &identity("a", "a"))));
    cases.push(graph_case("two nodes that read each other", REFUSED, move |graph| {
        graph.message(NODE, &identity("b", "a")).message(NODE, &identity("a", "b"))
    }));
    cases.push(graph_case("a node that reads what nothing gives", REFUSED, move |graph| graph.message(NODE, &identity("nothing", "a"))));
    cases.push(graph_case("an output that nothing gives", REFUSED, |graph| graph.message(OUTPUT, &value("nothing", FLOAT))));
    cases.push(graph_case("no nodes", REFUSED, |graph| graph.without(NODE)));
    cases.push(graph_case("no inputs", REFUSED, |graph| graph.without(11)));
    cases.push(graph_case("no outputs", Expect::Refused("coder"), |graph| graph.without(OUTPUT)));
    cases.push(graph_case("no constants", REFUSED, |graph| graph.without(INITIALIZER)));
    cases.push(graph_case("a name that is not UTF-8", REFUSED, |graph| {
        graph.message(NODE, &Message::default().text(1, "input_ids").text(2, b"\xff\xfe").text(4, "Identity"))
    }));
    cases.push(graph_case("a name with a zero in it", EITHER, move |graph| {
        graph.message(NODE, &identity("input_ids", "a\0b")).message(OUTPUT, &value("a\0b", INT64))
    }));
    cases.push(graph_case("a name of 1 MB", EITHER, move |graph| graph.message(NODE, &identity("input_ids", &"a".repeat(1 << 20)))));
    cases.push(graph_case("a constant without a name", REFUSED, |graph| graph.message(INITIALIZER, &inside("", &[1], FLOAT, &[0; 4]))));
    cases.push(graph_case("an attribute that stands twice", REFUSED, |graph| {
        let axis = attribute("axis", 2).number(3, 0);
        with_node(graph, Message::default().text(1, "input_ids").text(2, "made").text(4, "Softmax").message(5, &axis).message(5, &axis))
    }));
}

fn attribute(name: &str, kind: i64) -> Message {
    Message::default().text(1, name).number(20, kind)
}

/// The graph with one more node, before the others, whose result `made` is an output.
fn with_node(mut graph: Message, node: Message) -> Message {
    graph.fields.insert(0, (NODE, Value::Bytes(node.encode())));
    graph.message(OUTPUT, &value("made", FLOAT))
}

/// Small files that ask for much.
fn amount_cases(cases: &mut Vec<Case>) {
    let numbers = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    // An operator, and its constant inputs.
    let operators: [(&str, &str, &[&[i64]]); 8] = [
        ("a tensor of 2^40 zeros", "ConstantOfShape", &[&[1 << 20, 1 << 20]]),
        ("a tensor of 2^80 zeros", "ConstantOfShape", &[&[1 << 40, 1 << 40]]),
        ("a tensor of a negative size", "ConstantOfShape", &[&[-5]]),
        ("an expansion to 2^40", "Expand", &[&[1], &[1 << 40]]),
        ("a repetition of 2^40", "Tile", &[&[1], &[1 << 40]]),
        ("a count to 2^40", "Range", &[&[0], &[1 << 40], &[1]]),
        ("a count in steps of zero", "Range", &[&[0], &[5], &[0]]),
        ("a depth of 2^40", "OneHot", &[&[1], &[1 << 40], &[0, 1]]),
    ];
    for (name, operator, inputs) in operators {
        cases.push(graph_case(name, REFUSED, move |mut graph| {
            let mut node = Message::default().text(2, "made").text(4, operator);
            for (index, values) in inputs.iter().enumerate() {
                let name = format!("evil.{index}");
                // The numbers of `Range` and `OneHot` have no axes.
                let dims: Vec<i64> =
                    if operator == "Range" || (operator == "OneHot" && index == 1) { vec![] } else { vec![values.len() as i64] };
                graph = graph.message(INITIALIZER, &inside(&name, &dims, INT64, &numbers(values)));
                node = node.text(1, name);
            }
            with_node(graph, node)
        }));
    }
    cases.push(graph_case("a tensor of 2^40 zeros whose shape is computed", REFUSED, move |graph| {
        let square = Message::default().text(1, "evil").text(1, "evil").text(2, "square").text(4, "Mul");
        let zeros = Message::default().text(1, "square").text(2, "made").text(4, "ConstantOfShape");
        let mut graph = with_node(graph.message(INITIALIZER, &inside("evil", &[1], INT64, &numbers(&[1 << 20]))), zeros);
        graph.fields.insert(0, (NODE, Value::Bytes(square.encode())));
        graph
    }));
    cases.push(Case::new("graph: a tensor of 2^40 zeros whose shape is in the weights", Good::Exported, ENGINES, REFUSED, move |folder| {
        write(&folder.join("shape.data"), numbers(&[1 << 20, 1 << 20]))?;
        let tensor = external(&[2], INT64, &[("location", "shape.data"), ("length", "16")]);
        let node = Message::default().text(1, "evil").text(2, "made").text(4, "ConstantOfShape");
        change_graph(&folder.join(FILE), |graph| with_node(graph.message(INITIALIZER, &tensor), node.clone()))
    }));
    cases.push(graph_case("2^40 random numbers", REFUSED, |graph| {
        let shape = attribute("shape", 7).number(8, 1 << 20).number(8, 1 << 20);
        with_node(graph, Message::default().text(2, "made").text(4, "RandomNormal").message(5, &shape))
    }));
    cases.push(graph_case("a loop without end", REFUSED, |graph| {
        let condition = Message::default().text(1, "on").text(2, "still").text(4, "Identity");
        let body = Message::default()
            .message(NODE, &condition)
            .text(2, "body")
            .message(11, &value("round", INT64))
            .message(11, &value("on", 9))
            .message(OUTPUT, &value("still", 9));
        let node = Message::default()
            .text(1, "")
            .text(1, "true")
            .text(2, "made")
            .text(4, "Loop")
            .message(5, &attribute("body", 5).message(6, &body));
        with_node(graph.message(INITIALIZER, &inside("true", &[], 9, &[1])), node)
    }));
    cases.push(graph_case("a sparse constant", REFUSED, |graph| {
        let sparse = Message::default()
            .message(1, &inside("", &[1], FLOAT, &[0; 4]))
            .message(2, &inside("", &[1], INT64, &[0; 8]))
            .number(3, 1 << 40);
        with_node(
            graph,
            Message::default().text(2, "made").text(4, "Constant").message(5, &attribute("sparse_value", 11).message(22, &sparse)),
        )
    }));
}

/// Nodes whose parts do not fit together.
fn node_cases(cases: &mut Vec<Case>) {
    let node = |operator: &str, inputs: &[&str]| {
        inputs.iter().fold(Message::default(), |node, input| node.text(1, input)).text(2, "made").text(4, operator)
    };
    let integers = |name: &str, values: &[i64]| values.iter().fold(attribute(name, 7), |attribute, value| attribute.number(8, *value));
    let cases_of = [
        ("an operator that is none", node("NoSuchOperator", &["input_ids"])),
        ("an operator without a name", node("", &["input_ids"])),
        ("an operator of an unknown set", node("Gelu", &["input_ids"]).text(7, "org.example")),
        ("a node without inputs", node("MatMul", &[])),
        ("a node with too many inputs", node("Identity", &["input_ids"; 100])),
        ("an axis of 99", node("Softmax", &["input_ids"]).message(5, &attribute("axis", 2).number(3, 99))),
        ("an axis of -2^63", node("Concat", &["input_ids"]).message(5, &attribute("axis", 2).number(3, i64::MIN))),
        ("an order of axes that is none", node("Transpose", &["input_ids"]).message(5, &integers("perm", &[7, 7]))),
        ("an order of axes that is negative", node("Transpose", &["input_ids"]).message(5, &integers("perm", &[-1, 0]))),
        ("a type that is none", node("Cast", &["input_ids"]).message(5, &attribute("to", 2).number(3, 99))),
        ("an attribute of another kind", node("Concat", &["input_ids"]).message(5, &attribute("axis", 3).text(4, "zero"))),
        ("a reshape to what does not fit", node("Reshape", &["input_ids", "evil"])),
        ("a slice in steps of zero", node("Slice", &["input_ids", "zero", "evil", "zero", "zero"])),
        ("an axis that is added at 7", node("Unsqueeze", &["input_ids", "evil"])),
        ("a product of what does not fit", node("MatMul", &["input_ids", "evil"])),
        ("rows out of range", node("Gather", &["evil", "evil"])),
        ("a constant without a value", node("Constant", &[])),
    ];
    for (name, node) in cases_of {
        cases.push(graph_case(name, EITHER, move |graph| {
            let graph = graph
                .message(INITIALIZER, &inside("evil", &[1], INT64, &7_i64.to_le_bytes()))
                .message(INITIALIZER, &inside("zero", &[1], INT64, &[0; 8]));
            with_node(graph, node.clone())
        }));
    }
}

fn weights_cases(cases: &mut Vec<Case>) {
    let case = |name: &str, expect, change: fn(&Path) -> Result<()>| {
        Case::new(format!("weights file: {name}"), Good::Exported, ALL, expect, move |folder| change(&folder.join(WEIGHTS)))
    };
    let refused = Expect::Refused(WEIGHTS);
    cases.push(case("empty", refused, |path| write(path, "")));
    cases.push(case("missing", refused, |path| Ok(std::fs::remove_file(path)?)));
    cases.push(case("cut in the middle", refused, |path| edit(path, |bytes| bytes.truncate(bytes.len() / 2))));
    cases.push(case("cut by a byte", refused, |path| edit(path, |bytes| bytes.truncate(bytes.len() - 1))));
    cases.push(case("a link", refused, |path| {
        std::fs::rename(path, path.with_file_name("there"))?;
        link(path, "there")
    }));
    cases.push(case("a hard link", refused, |path| Ok(std::fs::hard_link(path, path.with_file_name("there"))?)));
    cases.extend(NOT_FILES[1..].iter().map(|(name, change)| case(name, refused, *change)));
    cases.push(Case::new("weights file: a hole of 10 GB behind it", Good::Exported, ENGINES, Expect::Either(FILE), |folder| {
        Ok(std::fs::File::options().write(true).open(folder.join(WEIGHTS))?.set_len(10_000_000_000)?)
    }));
    cases.push(Case::new("weights file: NaN everywhere", Good::Exported, ENGINES, Expect::Either(""), |folder| {
        edit(&folder.join(WEIGHTS), |bytes| bytes.fill(0xff))
    }));
    for (field, value) in [("vocab_size", 700), ("vocab_size", 60), ("d_model", 64), ("decoder_layers", 3), ("decoder_attention_heads", 2)]
    {
        cases.push(Case::new(
            format!("graph: config.json says {field} {value}"),
            Good::Exported,
            // Whether numbers agree is what `verify` tells, in its report.
            ENGINES,
            Expect::Either("coder"),
            move |folder| edit_json(&folder.join("config.json"), |fields| drop(fields.insert(field.into(), value.into()))),
        ));
    }
}

fn optimum_cases(cases: &mut Vec<Case>) {
    const READERS: &[Reader] = &[Reader::Ort];
    const ENCODER: &str = "onnx/encoder_model.onnx";
    const DECODER: &str = "onnx/decoder_model_merged.onnx";
    for (file, name) in [(ENCODER, "encoder_model.onnx"), (DECODER, "decoder_model_merged.onnx")] {
        let case = |what: &str, change: Change| {
            Case::new(format!("optimum, {name}: {what}"), Good::Optimum, READERS, Expect::Refused(name), move |folder| {
                change(&folder.join(file))
            })
        };
        cases.push(case("cut", Box::new(|path| edit(path, |bytes| bytes.truncate(bytes.len() / 2)))));
        cases.push(case("missing weights", Box::new(|path| Ok(std::fs::remove_file(format!("{}_data", path.display()))?))));
        cases.push(case("a pipe", Box::new(pipe)));
        cases.push(case(
            "a location that leaves the folder",
            Box::new(|path| {
                let tensor = external(&[4], FLOAT, &[("location", "../config.json"), ("length", "16")]);
                change_graph(path, |graph| with_initializer(graph, &tensor, "evil"))
            }),
        ));
        cases.push(case(
            "a cycle",
            Box::new(|path| {
                change_graph(path, |graph| graph.message(NODE, &Message::default().text(1, "a").text(2, "a").text(4, "Identity")))
            }),
        ));
    }
}
