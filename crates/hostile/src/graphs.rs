//! ONNX graphs and the files of their weights: exports of Cognate and of Optimum.
//!
//! Field numbers are those of `onnx.proto`.

use fs_err as fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::bytes::{edit, link, pipe, read, spread, write};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};
use super::protobuf::{self, Message, Value};

const FILE: &str = "encoder.onnx";
const WEIGHTS: &str = "weights.onnx_data";
const ENGINES: &[Reader] = &[Reader::Tract, Reader::Ort];
/// `show` lists the content of a file, and validates only the necessary parts.
const ALL: &[Reader] = &[Reader::Tract, Reader::Ort, Reader::Verify];
const REFUSED: Expect = Expect::Refused(FILE);
const EITHER: Expect = Expect::Either(FILE);

const GRAPH: u32 = 7;
const NODE: u32 = 1;
const INITIALIZER: u32 = 5;
const INPUT: u32 = 11;
const OUTPUT: u32 = 12;
const FLOAT: i64 = 1;
const INT64: i64 = 7;

type Change = fn(Message) -> Message;

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let bytes = read(&models.path(Good::Exported).join(FILE))?;
    let refused = graph(REFUSED);
    let mut cases = vec![
        refused.read_by(&[Reader::Tract, Reader::Ort, Reader::Listing]).untouched(),
        Subject::new("optimum", Good::Optimum, "", &[Reader::Ort]).untouched(),
        Subject::new("in place", Good::InPlace, "", ENGINES).untouched(),
    ];
    let places = protobuf::boundaries(&bytes, 3);
    cases.extend(refused.cuts(
        spread(places.len(), 24).into_iter().map(|index| places[index]).chain([bytes.len() - 1]),
    ));
    for place in spread(bytes.len(), 32) {
        for bit in [0, 6] {
            // An error about a renamed axis names the decoder.
            let flip = move |path: &Path| edit(path, |bytes| bytes[place] ^= 1 << bit);
            cases.push(
                graph(Expect::Either("coder"))
                    .case(format_args!("bit {bit} of byte {place} flipped"), flip),
            );
        }
    }
    let listing = refused.read_by(&[Reader::Listing]);
    cases.extend(listing.either().changes(spread(bytes.len(), 12), 0x55));
    for subject in [&refused, &listing] {
        let model = |graph: Message| opset(Message::default(), 18).message(GRAPH, &graph).encode();
        let empty = |field: u32, count: usize| {
            Message::default().text(NODE, [field as u8 * 8 + 2, 0].repeat(count))
        };
        cases.extend(subject.not_files(..));
        cases.extend([
            subject.content("a text", "not a model"),
            subject.content("empty", ""),
            subject.content("branches nested 4,000 deep", branches(4_000)),
            subject.content("two million empty attributes", model(empty(5, 2_000_000))),
            subject.content(
                "two million empty nodes",
                opset(Message::default(), 18).text(GRAPH, [0x0a, 0].repeat(2_000_000)).encode(),
            ),
            subject.content("four million names of outputs", model(empty(2, 4_000_000))),
        ]);
    }
    cases.push(refused.content("branches nested 40 deep", branches(40)));
    cases.push(graph(Expect::Refused("coder")).case("the decoder in its place", |path| {
        Ok(fs::copy(path.with_file_name("decoder.onnx"), path).map(drop)?)
    }));
    for family in [
        model_cases,
        tensor_cases,
        location_cases,
        name_cases,
        amount_cases,
        node_cases,
        weights_cases,
        optimum_cases,
    ] {
        cases.extend(family());
    }
    Ok(cases)
}

fn graph(expect: Expect) -> Subject {
    Subject::new("graph", Good::Exported, FILE, ENGINES).expecting(expect)
}

/// A case that changes the graph's message.
fn graph_case(
    name: impl std::fmt::Display,
    expect: Expect,
    change: impl Fn(Message) -> Message + 'static,
) -> Case {
    graph(expect).case(name, move |path| change_graph(path, &change))
}

fn change_graph(path: &Path, change: impl Fn(Message) -> Message) -> Result<()> {
    let model = Message::parse(&read(path)?)?;
    let graph = change(Message::parse(model.get(GRAPH).context("a graph")?)?);
    write(path, model.without(GRAPH).message(GRAPH, &graph).encode())
}

fn opset(model: Message, version: i64) -> Message {
    model.number(1, 9).message(8, &Message::default().text(1, "").number(2, version))
}

/// A node with inputs and outputs.
fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    outputs.iter().fold(node, |node, output| node.text(2, output)).text(4, operator)
}

fn attribute(name: &str, kind: i64) -> Message {
    Message::default().text(1, name).number(20, kind)
}

/// The graph with one more node, before the others, whose result `made` is an output.
fn with_node(graph: Message, node: Message) -> Message {
    first(graph, node).message(OUTPUT, &value("made", FLOAT))
}

/// The graph with one more node, before the others.
fn first(mut graph: Message, node: Message) -> Message {
    graph.fields.insert(0, (NODE, Value::Bytes(node.encode())));
    graph
}

/// An `If` whose branch contains an `If`, and so on.
fn branches(depth: usize) -> Vec<u8> {
    let graph = (0..depth).fold(Message::default().text(2, "innermost"), |inner, _| {
        let branch = attribute("then_branch", 5).message(6, &inner);
        Message::default()
            .message(NODE, &node("If", &["c"], &["y"]).message(5, &branch))
            .text(2, "outer")
    });
    opset(Message::default(), 18).message(GRAPH, &graph).encode()
}

fn model_cases() -> Vec<Case> {
    let changes: [(&str, Expect, Change); 10] = [
        ("version 0 of the operators", REFUSED, |model| opset(model.without(8).without(1), 0)),
        ("version -1 of the operators", REFUSED, |model| opset(model.without(8).without(1), -1)),
        ("version a billion of the operators", REFUSED, |model| {
            opset(model.without(8).without(1), 1_000_000_000)
        }),
        ("version 2^63 of the operators", REFUSED, |model| {
            opset(model.without(8).without(1), i64::MIN)
        }),
        ("version 1 of the operators", EITHER, |model| opset(model.without(8).without(1), 1)),
        ("no version of the operators", REFUSED, |model| model.without(8)),
        ("two versions of the operators", REFUSED, |model| opset(model.without(1), 11)),
        ("a format of the future", EITHER, |model| model.without(1).number(1, 1_000_000)),
        ("two graphs", REFUSED, |model| {
            let graph = model.get(GRAPH).unwrap_or_default().to_vec();
            model.text(GRAPH, graph)
        }),
        ("a function that calls itself", REFUSED, |model| {
            let node = node("F", &[], &["y"]).text(7, "own");
            model.message(
                25,
                &Message::default().text(1, "F").text(5, "y").message(7, &node).text(10, "own"),
            )
        }),
    ];
    let case = |(name, expect, change): (&str, Expect, Change)| {
        graph(expect)
            .case(name, move |path| write(path, change(Message::parse(&read(path)?)?).encode()))
    };
    changes
        .into_iter()
        .chain([("no graph", REFUSED, (|model| model.without(GRAPH)) as Change)])
        .map(case)
        .collect()
}

/// A tensor's name, type and shape.
fn tensor(name: &str, dims: &[i64], data_type: i64) -> Message {
    dims.iter()
        .fold(Message::default(), |tensor, &size| tensor.number(1, size))
        .number(2, data_type)
        .text(8, name)
}

/// A tensor whose values are in another file.
fn external(dims: &[i64], data_type: i64, entries: &[(&str, &str)]) -> Message {
    let entry = |(key, value): &(&str, &str)| Message::default().text(1, key).text(2, value);
    entries
        .iter()
        .fold(tensor("evil", dims, data_type), |tensor, pair| tensor.message(13, &entry(pair)))
        .number(14, 1)
}

/// A tensor with its values inside.
fn inside(name: &str, dims: &[i64], data_type: i64, raw: &[u8]) -> Message {
    tensor(name, dims, data_type).text(9, raw)
}

/// The graph with the initializer `evil` as an output, so that it is not removed.
fn with_initializer(graph: Message, tensor: &Message) -> Message {
    graph.message(INITIALIZER, tensor).message(OUTPUT, &value("evil", FLOAT))
}

/// The name and type of an input or output.
fn value(name: &str, element: i64) -> Message {
    let tensor = Message::default().number(1, element);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A sparse tensor of 2^40 values, one of which is given.
fn sparse(name: &str) -> Message {
    let (values, indices) = (inside(name, &[1], FLOAT, &[0; 4]), inside("", &[1], INT64, &[0; 8]));
    Message::default().message(1, &values).message(2, &indices).number(3, 1 << 40)
}

fn tensor_cases() -> Vec<Case> {
    let mut cases = Vec::new();
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
        let outside =
            external(dims, FLOAT, &[("location", WEIGHTS), ("offset", "0"), ("length", "16")]);
        cases.push(graph_case(format_args!("weights with {name}"), REFUSED, move |graph| {
            with_initializer(graph, &outside)
        }));
        let inside = inside("evil", dims, FLOAT, &[0; 16]);
        cases.push(graph_case(format_args!("a constant with {name}"), REFUSED, move |graph| {
            with_initializer(graph, &inside)
        }));
    }
    let one = || inside("evil", &[1], FLOAT, &[0; 4]);
    let mut few = tensor("evil", &[1000], FLOAT);
    few.fields.push((4, Value::Fixed32([0; 4])));
    let constant = |value: f32| inside("evil", &[1], FLOAT, &value.to_le_bytes());
    let segment = Message::default().number(1, 0).number(2, 1 << 40);
    let tensors = [
        ("without values that claims 10 GB", REFUSED, tensor("evil", &[2_500_000_000], FLOAT)),
        ("of 100,000 axes", REFUSED, inside("evil", &vec![1; 100_000], FLOAT, &[0; 4])),
        ("with values of two kinds", REFUSED, one().text(4, [0; 4])),
        ("with fewer values than its shape", REFUSED, few),
        ("in segments", REFUSED, one().message(3, &segment)),
        ("of NaN", EITHER, constant(f32::NAN)),
        ("of infinity", EITHER, constant(f32::INFINITY)),
    ];
    for (name, expect, tensor) in tensors {
        cases.push(graph_case(format_args!("a constant {name}"), expect, move |graph| {
            with_initializer(graph, &tensor)
        }));
    }
    for data_type in [0, 8, 99, -1, i64::MAX] {
        let tensor = inside("evil", &[1], data_type, &[0; 4]);
        cases.push(graph_case(
            format_args!("a constant of the type {data_type}"),
            REFUSED,
            move |graph| with_initializer(graph, &tensor),
        ));
    }
    let shape = Message::default().message(1, &Message::default().number(1, -7));
    let negative =
        Message::default().message(1, &Message::default().number(1, INT64).message(2, &shape));
    let sequence = Message::default().message(4, &Message::default());
    for (name, ty) in
        [("an input with a negative size", negative), ("an input that is not a tensor", sequence)]
    {
        let input = Message::default().text(1, "evil").message(2, &ty);
        cases.push(graph_case(name, REFUSED, move |graph| graph.message(INPUT, &input)));
    }
    cases.push(graph_case("a sparse initializer", REFUSED, |graph| {
        graph.message(15, &sparse("evil"))
    }));
    cases
}

/// Values of `location`, `offset` and `length`, and the files at such locations.
fn location_cases() -> Vec<Case> {
    type Prepare = fn(&Path) -> Result<()>;
    let nothing: Prepare = |_| Ok(());
    let outside: Prepare = |folder| write(&folder.join("../secret"), [0; 64]);
    let locations: [(&str, &str, Prepare); 19] = [
        ("that leaves the folder", "../secret", outside),
        ("that leaves it by a detour", "onnx/../../secret", |folder| {
            fs::create_dir(folder.join("onnx"))?;
            write(&folder.join("../secret"), [0; 64])
        }),
        ("that leaves it in Windows' way", "..\\secret", outside),
        ("that is absolute", "/etc/passwd", nothing),
        ("of a device", "/dev/zero", nothing),
        ("of a process", "/proc/self/mem", nothing),
        ("that is empty", "", nothing),
        ("of the folder", ".", nothing),
        ("of a folder", "inner", |folder| Ok(fs::create_dir(folder.join("inner"))?)),
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
            Ok(fs::hard_link(folder.join("../secret"), folder.join("linked"))?)
        }),
        ("of a pipe", "pipe", |folder| pipe(&folder.join("pipe"))),
        ("that means memory in ONNX Runtime", "*/_ORT_MEM_ADDR_/*", nothing),
        ("that means memory, and exists", "*/_ORT_MEM_ADDR_/*", |folder| {
            fs::create_dir_all(folder.join("*/_ORT_MEM_ADDR_"))?;
            write(&folder.join("*/_ORT_MEM_ADDR_/*"), [0; 64])
        }),
    ];
    let folder = Subject::new("graph", Good::Exported, "", ALL).expecting(REFUSED);
    let mut cases = Vec::new();
    for (name, location, prepare) in locations {
        cases.push(folder.case(format_args!("a location {name}"), move |folder| {
            prepare(folder)?;
            let tensor =
                external(&[4], FLOAT, &[("location", location), ("offset", "0"), ("length", "16")]);
            change_graph(&folder.join(FILE), |graph| with_initializer(graph, &tensor))
        }));
    }
    let entries: [(&str, &[(&str, &str)]); 12] = [
        ("behind the file", &[("location", WEIGHTS), ("offset", "100000000"), ("length", "16")]),
        (
            "half behind the file",
            &[("location", WEIGHTS), ("offset", "251000"), ("length", "1000000")],
        ),
        (
            "whose end overflows",
            &[("location", WEIGHTS), ("offset", "18446744073709551612"), ("length", "16")],
        ),
        (
            "beyond 64 bits",
            &[("location", WEIGHTS), ("offset", "99999999999999999999999"), ("length", "16")],
        ),
        ("that is negative", &[("location", WEIGHTS), ("offset", "-16"), ("length", "16")]),
        ("that is not a number", &[("location", WEIGHTS), ("offset", "0x10"), ("length", "16")]),
        ("of a negative length", &[("location", WEIGHTS), ("offset", "0"), ("length", "-16")]),
        (
            "of a length of 10 GB",
            &[("location", WEIGHTS), ("offset", "0"), ("length", "10000000000")],
        ),
        ("of no length", &[("location", WEIGHTS), ("offset", "0"), ("length", "")]),
        ("in two files", &[("location", WEIGHTS), ("location", "config.json"), ("length", "16")]),
        ("twice", &[("location", WEIGHTS), ("offset", "0"), ("offset", "16"), ("length", "16")]),
        ("nowhere", &[]),
    ];
    for (name, entries) in entries {
        let tensor = external(&[4], FLOAT, entries);
        cases.push(graph_case(format_args!("a place {name}"), REFUSED, move |graph| {
            with_initializer(graph, &tensor)
        }));
    }
    cases.push(graph_case("a place that is not declared", REFUSED, |graph| {
        with_initializer(graph, &external(&[4], FLOAT, &[("location", "../secret")]).without(14))
    }));
    cases.push(graph_case("a place in an attribute", REFUSED, |graph| {
        let tensor = external(&[4], FLOAT, &[("location", "../secret"), ("length", "16")]);
        with_node(
            graph,
            node("Constant", &[], &["made"]).message(5, &attribute("value", 4).message(5, &tensor)),
        )
    }));
    cases
}

fn name_cases() -> Vec<Case> {
    let changes: [(&str, Expect, Change); 17] = [
        ("two initializers of one name", REFUSED, |graph| {
            graph
                .message(INITIALIZER, &inside("evil", &[1], FLOAT, &[0; 4]))
                .message(INITIALIZER, &inside("evil", &[1], FLOAT, &[1; 4]))
        }),
        ("two inputs of one name", REFUSED, |graph| {
            graph.message(INPUT, &value("input_ids", INT64))
        }),
        ("two nodes with one output", REFUSED, |graph| {
            graph
                .message(NODE, &node("Identity", &["input_ids"], &["a"]))
                .message(NODE, &node("Identity", &["input_ids"], &["a"]))
        }),
        ("a node whose output is an input", REFUSED, |graph| {
            graph.message(NODE, &node("Identity", &["attention_mask"], &["input_ids"]))
        }),
        ("a node that reads itself", REFUSED, |graph| {
            graph.message(NODE, &node("Identity", &["a"], &["a"]))
        }),
        ("two nodes that read each other", REFUSED, |graph| {
            graph
                .message(NODE, &node("Identity", &["b"], &["a"]))
                .message(NODE, &node("Identity", &["a"], &["b"]))
        }),
        ("a node that reads a missing value", REFUSED, |graph| {
            graph.message(NODE, &node("Identity", &["nothing"], &["a"]))
        }),
        ("a missing output", REFUSED, |graph| graph.message(OUTPUT, &value("nothing", FLOAT))),
        ("no nodes", REFUSED, |graph| graph.without(NODE)),
        ("no inputs", REFUSED, |graph| graph.without(INPUT)),
        ("no outputs", Expect::Refused("coder"), |graph| graph.without(OUTPUT)),
        ("no constants", REFUSED, |graph| graph.without(INITIALIZER)),
        ("a name that is not UTF-8", REFUSED, |graph| {
            graph.message(
                NODE,
                &Message::default().text(1, "input_ids").text(2, b"\xff\xfe").text(4, "Identity"),
            )
        }),
        ("a name with a zero in it", EITHER, |graph| {
            graph
                .message(NODE, &node("Identity", &["input_ids"], &["a\0b"]))
                .message(OUTPUT, &value("a\0b", INT64))
        }),
        ("a name of 1 MB", EITHER, |graph| {
            graph.message(NODE, &node("Identity", &["input_ids"], &[&"a".repeat(1 << 20)]))
        }),
        ("a constant without a name", REFUSED, |graph| {
            graph.message(INITIALIZER, &inside("", &[1], FLOAT, &[0; 4]))
        }),
        ("a duplicate attribute", REFUSED, |graph| {
            let axis = attribute("axis", 2).number(3, 0);
            with_node(
                graph,
                node("Softmax", &["input_ids"], &["made"]).message(5, &axis).message(5, &axis),
            )
        }),
    ];
    changes.into_iter().map(|(name, expect, change)| graph_case(name, expect, change)).collect()
}

/// Small files that request large amounts.
fn amount_cases() -> Vec<Case> {
    let numbers =
        |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    // An operator and its constant inputs.
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
    let mut cases = Vec::new();
    for (name, operator, inputs) in operators {
        cases.push(graph_case(name, REFUSED, move |mut graph| {
            let names: Vec<_> = (0..inputs.len()).map(|index| format!("evil.{index}")).collect();
            for (index, (name, values)) in names.iter().zip(inputs).enumerate() {
                // The numbers of `Range` and `OneHot` have no axes.
                let is_number = operator == "Range" || (operator == "OneHot" && index == 1);
                let dims = if is_number { vec![] } else { vec![values.len() as i64] };
                graph = graph.message(INITIALIZER, &inside(name, &dims, INT64, &numbers(values)));
            }
            with_node(
                graph,
                node(operator, &names.iter().map(String::as_str).collect::<Vec<_>>(), &["made"]),
            )
        }));
    }
    cases.push(graph_case(
        "a tensor of 2^40 zeros whose shape is computed",
        REFUSED,
        move |graph| {
            let graph =
                graph.message(INITIALIZER, &inside("evil", &[1], INT64, &numbers(&[1 << 20])));
            let graph = with_node(graph, node("ConstantOfShape", &["square"], &["made"]));
            first(graph, node("Mul", &["evil", "evil"], &["square"]))
        },
    ));
    cases.push(graph(REFUSED).case(
        "a tensor of 2^40 zeros whose shape is in the weights",
        move |path| {
            write(&path.with_file_name("shape.data"), numbers(&[1 << 20, 1 << 20]))?;
            let tensor = external(&[2], INT64, &[("location", "shape.data"), ("length", "16")]);
            change_graph(path, |graph| {
                with_node(
                    graph.message(INITIALIZER, &tensor),
                    node("ConstantOfShape", &["evil"], &["made"]),
                )
            })
        },
    ));
    cases.push(graph_case("2^40 random numbers", REFUSED, |graph| {
        let shape = attribute("shape", 7).number(8, 1 << 20).number(8, 1 << 20);
        with_node(graph, node("RandomNormal", &[], &["made"]).message(5, &shape))
    }));
    cases.push(graph_case("a loop without end", REFUSED, |graph| {
        let body = Message::default()
            .message(NODE, &node("Identity", &["on"], &["still"]))
            .text(2, "body");
        let body = body
            .message(INPUT, &value("round", INT64))
            .message(INPUT, &value("on", 9))
            .message(OUTPUT, &value("still", 9));
        let endless = node("Loop", &["", "true"], &["made"])
            .message(5, &attribute("body", 5).message(6, &body));
        with_node(graph.message(INITIALIZER, &inside("true", &[], 9, &[1])), endless)
    }));
    cases.push(graph_case("a sparse constant", REFUSED, |graph| {
        with_node(
            graph,
            node("Constant", &[], &["made"])
                .message(5, &attribute("sparse_value", 11).message(22, &sparse(""))),
        )
    }));
    cases
}

/// Nodes with inconsistent parts.
fn node_cases() -> Vec<Case> {
    let made = |operator: &str, inputs: &[&str]| node(operator, inputs, &["made"]);
    let ids = |operator: &str, attribute: Message| {
        node(operator, &["input_ids"], &["made"]).message(5, &attribute)
    };
    let integers = |name: &str, values: &[i64]| {
        values.iter().fold(attribute(name, 7), |attribute, value| attribute.number(8, *value))
    };
    let nodes = [
        ("an unknown operator", made("NoSuchOperator", &["input_ids"])),
        ("an operator without a name", made("", &["input_ids"])),
        ("an operator of an unknown set", made("Gelu", &["input_ids"]).text(7, "org.example")),
        ("a node without inputs", made("MatMul", &[])),
        ("a node with too many inputs", made("Identity", &["input_ids"; 100])),
        ("an axis of 99", ids("Softmax", attribute("axis", 2).number(3, 99))),
        ("an axis of -2^63", ids("Concat", attribute("axis", 2).number(3, i64::MIN))),
        ("an invalid order of axes", ids("Transpose", integers("perm", &[7, 7]))),
        ("a negative order of axes", ids("Transpose", integers("perm", &[-1, 0]))),
        ("an unknown type", ids("Cast", attribute("to", 2).number(3, 99))),
        ("an attribute of another kind", ids("Concat", attribute("axis", 3).text(4, "zero"))),
        ("a reshape that does not fit", made("Reshape", &["input_ids", "evil"])),
        ("a slice in steps of zero", made("Slice", &["input_ids", "zero", "evil", "zero", "zero"])),
        ("an axis that is added at 7", made("Unsqueeze", &["input_ids", "evil"])),
        ("a product that does not fit", made("MatMul", &["input_ids", "evil"])),
        ("rows out of range", made("Gather", &["evil", "evil"])),
        ("a constant without a value", made("Constant", &[])),
    ];
    let case = |(name, node): (&str, Message)| {
        graph_case(name, EITHER, move |graph| {
            let graph =
                graph.message(INITIALIZER, &inside("evil", &[1], INT64, &7_i64.to_le_bytes()));
            with_node(
                graph.message(INITIALIZER, &inside("zero", &[1], INT64, &[0; 8])),
                node.clone(),
            )
        })
    };
    nodes.into_iter().map(case).collect()
}

fn weights_cases() -> Vec<Case> {
    let file = Subject::new("weights file", Good::Exported, WEIGHTS, ALL);
    let mut cases = vec![
        file.content("empty", ""),
        file.case("missing", |path| Ok(fs::remove_file(path)?)),
        file.case("cut in the middle", |path| edit(path, |bytes| bytes.truncate(bytes.len() / 2))),
        file.case("cut by a byte", |path| edit(path, |bytes| bytes.truncate(bytes.len() - 1))),
        file.case("a link", |path| {
            fs::rename(path, path.with_file_name("there"))?;
            link(path, "there")
        }),
        file.case("a hard link", |path| Ok(fs::hard_link(path, path.with_file_name("there"))?)),
    ];
    cases.extend(file.not_files(1..));
    let engines = file.read_by(ENGINES);
    cases.push(engines.expecting(EITHER).case("a hole of 10 GB behind it", |path| {
        Ok(fs::File::options().write(true).open(path)?.set_len(10_000_000_000)?)
    }));
    cases.push(
        engines
            .expecting(Expect::Either(""))
            .case("NaN everywhere", |path| edit(path, |bytes| bytes.fill(0xff))),
    );
    // `verify` reports different numbers, which is not an error.
    let config = Subject::new("graph: config.json", Good::Exported, "config.json", ENGINES)
        .expecting(Expect::Either("coder"));
    let fields = [
        ("vocab_size", 700),
        ("vocab_size", 60),
        ("d_model", 64),
        ("decoder_layers", 3),
        ("decoder_attention_heads", 2),
    ];
    cases.extend(fields.map(|(field, value)| config.field(field, value.into())));
    cases
}

fn optimum_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (path, name) in [
        ("onnx/encoder_model.onnx", "encoder_model.onnx"),
        ("onnx/decoder_model_merged.onnx", "decoder_model_merged.onnx"),
    ] {
        let file = Subject::new(format!("optimum, {name}"), Good::Optimum, path, &[Reader::Ort])
            .expecting(Expect::Refused(name));
        cases.extend([
            file.case("cut", |path| edit(path, |bytes| bytes.truncate(bytes.len() / 2))),
            file.case("missing weights", |path| {
                Ok(fs::remove_file(format!("{}_data", path.display()))?)
            }),
            file.case("a pipe", pipe),
            file.case("a location that leaves the folder", |path| {
                let tensor =
                    external(&[4], FLOAT, &[("location", "../config.json"), ("length", "16")]);
                change_graph(path, |graph| with_initializer(graph, &tensor))
            }),
            file.case("a cycle", |path| {
                change_graph(path, |graph| graph.message(NODE, &node("Identity", &["a"], &["a"])))
            }),
        ]);
    }
    cases
}
