//! A graph of sequences of ids as one of texts, by the SentencePiece operators of the package
//! `onnxruntime-extensions`.
//!
//! The graph has the inputs `input_ids` and `attention_mask` i64 [batch, src] and the output
//! `sequences` i64 [batch, n, length]; instead of the inputs it gets `text` string [batch], and
//! besides the output `texts` string [batch, n].

use crate::destination::Destination;
use crate::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::{Error, Folder, read_model};
use prost::Message;

/// The set of the package's operators.
const EXTENSIONS: &str = "ai.onnx.contrib";

const INPUTS: [&str; 2] = ["input_ids", "attention_mask"];

/// A tokenizer as SentencePiece models and tables.
#[derive(Clone, Debug)]
pub struct TextOperators {
    /// The file of the model that splits texts.
    pub source: Vec<u8>,
    /// The ids of its pieces.
    pub source_ids: Vec<i64>,
    /// The ids before a text.
    pub prefix: Vec<i64>,
    /// The ids after a text; with `prefix` at least one.
    pub suffix: Vec<i64>,
    /// The id after the shorter texts of a batch.
    pub pad: i64,
    /// The file of the model that joins pieces.
    pub target: Vec<u8>,
    /// Its piece for each id of the output; `None` for ids that are not shown in texts.
    pub target_pieces: Vec<Option<u32>>,
}

impl TextOperators {
    /// Writes the file `graph` of a folder as the file `name`, with the operators added. Both share
    /// their weights. An empty text has an empty result.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn write(&self, graph: &str, name: &str, folder: &mut Folder) -> Result<(), Error> {
        let mut model = read_model(&folder.path().join(graph))?;
        self.add_to(&mut model);
        let bytes = model.encode_to_vec();
        folder.write(name, &bytes)?;
        folder.hashed(blake3::hash(&bytes));
        Ok(())
    }

    fn add_to(&self, model: &mut ModelProto) {
        let graph = model.graph.get_or_insert_default();
        let mut nodes = Nodes(GraphProto::default());
        self.encode(&mut nodes);
        nodes.0.node.append(&mut graph.node);
        self.decode(&mut nodes);
        graph.node = nodes.0.node;
        graph.initializer.append(&mut nodes.0.initializer);
        graph.input.retain(|input| !INPUTS.contains(&input.name.as_str()));
        graph.input.insert(0, value_info("text", DataType::String, &["batch"]));
        graph.output.push(value_info(
            "texts",
            DataType::String,
            &["batch", "num_return_sequences"],
        ));
        model.opset_import.push(OperatorSetIdProto { domain: EXTENSIONS.into(), version: 1 });
    }

    /// `input_ids` and `attention_mask` of `text`.
    fn encode(&self, nodes: &mut Nodes) {
        let (n_prefix, n_suffix) = (self.prefix.len() as i64, self.suffix.len() as i64);
        let around: Vec<i64> =
            self.prefix.iter().chain(&self.suffix).copied().chain([self.pad]).collect();
        let options = ["text.nbest", "text.alpha", "text.no", "text.no", "text.no"];
        nodes.constant("text.nbest", DataType::Int64, &[1], 0_i64.to_le_bytes().into());
        nodes.constant("text.alpha", DataType::Float, &[1], 0_f32.to_le_bytes().into());
        nodes.constant("text.no", DataType::Bool, &[1], vec![0]);
        nodes.extension(
            "SentencepieceTokenizer",
            &[&["text"], &options[..]].concat(),
            &["text.pieces", "text.bounds"],
            &self.source,
        );
        nodes.add(
            "Cast",
            &["text.pieces"],
            "text.pieces.i64",
            &[int("to", DataType::Int64 as i64)],
        );
        nodes.integers("text.ids_of_pieces", &self.source_ids);
        nodes.add("Gather", &["text.ids_of_pieces", "text.pieces.i64"], "text.ids", &[]);
        // The ids of all texts, prefix, suffix and padding, from which each row takes its own.
        nodes.integers("text.around", &around);
        nodes.add("Concat", &["text.ids", "text.around"], "text.all", &[int("axis", 0)]);
        nodes.add("Shape", &["text.ids"], "text.total", &[]);
        for (name, value) in
            [("text.minus_one", -1), ("text.zero", 0), ("text.one", 1), ("text.end", i64::MAX)]
        {
            nodes.integers(name, &[value]);
        }
        nodes.add("Slice", &["text.bounds", "text.zero", "text.minus_one"], "text.starts", &[]);
        nodes.add("Slice", &["text.bounds", "text.one", "text.end"], "text.ends", &[]);
        nodes.add("Sub", &["text.ends", "text.starts"], "text.counts", &[]);
        nodes.add("Unsqueeze", &["text.starts", "text.one"], "text.row_starts", &[]);
        nodes.add("Unsqueeze", &["text.counts", "text.one"], "text.row_counts", &[]);
        nodes.integers("text.n_around", &[n_prefix + n_suffix]);
        nodes.add("Add", &["text.row_counts", "text.n_around"], "text.lengths", &[]);
        nodes.add("ReduceMax", &["text.lengths"], "text.src", &[int("keepdims", 0)]);
        nodes.constant("text.first", DataType::Int64, &[], 0_i64.to_le_bytes().into());
        nodes.constant("text.step", DataType::Int64, &[], 1_i64.to_le_bytes().into());
        nodes.add("Range", &["text.first", "text.src", "text.step"], "text.positions", &[]);
        nodes.add("Less", &["text.positions", "text.lengths"], "text.is_token", &[]);
        nodes.add("Cast", &["text.is_token"], INPUTS[1], &[int("to", DataType::Int64 as i64)]);
        // Positions in the text; after it those in the suffix, which follows the prefix.
        nodes.integers("text.n_prefix", &[n_prefix]);
        nodes.add("Sub", &["text.positions", "text.n_prefix"], "text.inner", &[]);
        nodes.add("Add", &["text.row_starts", "text.inner"], "text.place_in_text", &[]);
        nodes.add("Sub", &["text.inner", "text.row_counts"], "text.after", &[]);
        nodes.add("Add", &["text.total", "text.n_prefix"], "text.suffix", &[]);
        nodes.add("Add", &["text.suffix", "text.after"], "text.place_in_suffix", &[]);
        nodes.add("Add", &["text.total", "text.n_around"], "text.place_of_pad", &[]);
        nodes.add("Add", &["text.total", "text.positions"], "text.place_in_prefix", &[]);
        nodes.add("Less", &["text.inner", "text.row_counts"], "text.is_before_suffix", &[]);
        nodes.add("Less", &["text.positions", "text.n_prefix"], "text.is_prefix", &[]);
        nodes.add(
            "Where",
            &["text.is_before_suffix", "text.place_in_text", "text.place_in_suffix"],
            "text.place_inside",
            &[],
        );
        nodes.add(
            "Where",
            &["text.is_token", "text.place_inside", "text.place_of_pad"],
            "text.place_after_prefix",
            &[],
        );
        nodes.add(
            "Where",
            &["text.is_prefix", "text.place_in_prefix", "text.place_after_prefix"],
            "text.places",
            &[],
        );
        nodes.add("Gather", &["text.all", "text.places"], INPUTS[0], &[]);
    }

    /// `texts` of `sequences`: the operator joins one at a time.
    fn decode(&self, nodes: &mut Nodes) {
        let shown: Vec<u8> =
            self.target_pieces.iter().map(|piece| u8::from(piece.is_some())).collect();
        let pieces: Vec<i64> =
            self.target_pieces.iter().map(|piece| piece.unwrap_or(0).into()).collect();
        nodes.constant("texts.shown", DataType::Bool, &[shown.len() as i64], shown);
        nodes.integers("texts.pieces_of_ids", &pieces);
        nodes.constant("texts.none", DataType::String, &[0], Vec::new());
        nodes.constant("texts.yes", DataType::Bool, &[], vec![1]);
        nodes.add("Shape", &["sequences"], "texts.shape", &[int("end", 2)]);
        nodes.add("Shape", &["sequences"], "texts.length", &[int("start", 2)]);
        nodes.add(
            "Concat",
            &["text.minus_one", "texts.length"],
            "texts.rows_shape",
            &[int("axis", 0)],
        );
        nodes.add("Reshape", &["sequences", "texts.rows_shape"], "texts.rows", &[]);
        nodes.add("ReduceProd", &["texts.shape"], "texts.n_rows", &[int("keepdims", 0)]);
        let mut body = Nodes(GraphProto { name: "joins_pieces".into(), ..GraphProto::default() });
        body.add("Gather", &["texts.rows", "texts.index"], "texts.row", &[]);
        body.add("Gather", &["texts.shown", "texts.row"], "texts.row_shown", &[]);
        body.add("Compress", &["texts.row", "texts.row_shown"], "texts.row_ids", &[]);
        body.add("Gather", &["texts.pieces_of_ids", "texts.row_ids"], "texts.row_pieces", &[]);
        body.extension(
            "SentencepieceDecoder",
            &["texts.row_pieces"],
            &["texts.row_text"],
            &self.target,
        );
        body.add("Concat", &["texts.before", "texts.row_text"], "texts.so_far", &[int("axis", 0)]);
        body.add("Identity", &["texts.go_on"], "texts.goes_on", &[]);
        body.0.input = vec![
            value_info("texts.index", DataType::Int64, &[]),
            value_info("texts.go_on", DataType::Bool, &[]),
            value_info("texts.before", DataType::String, &["texts"]),
        ];
        body.0.output = vec![
            value_info("texts.goes_on", DataType::Bool, &[]),
            value_info("texts.so_far", DataType::String, &["next_texts"]),
        ];
        let body = AttributeProto { g: Some(body.0), ..attribute("body", AttributeType::Graph) };
        nodes.add("Loop", &["texts.n_rows", "texts.yes", "texts.none"], "texts.joined", &[body]);
        nodes.add("Reshape", &["texts.joined", "texts.shape"], "texts.of_rows", &[]);
        let empty = AttributeProto {
            s: Some(Default::default()),
            ..attribute("value_string", AttributeType::String)
        };
        nodes.add("Constant", &[], "texts.empty", &[empty]);
        nodes.add("Equal", &["text.row_counts", "text.zero"], "text.is_empty", &[]);
        nodes.add("Where", &["text.is_empty", "texts.empty", "texts.of_rows"], "texts", &[]);
    }
}

/// A graph under construction; nodes have the names of their outputs.
struct Nodes(GraphProto);

impl Nodes {
    fn add(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[AttributeProto],
    ) {
        self.node(operator, "", inputs, &[output], attributes.to_vec());
    }

    /// An operator of the package, with a SentencePiece model.
    fn extension(&mut self, operator: &str, inputs: &[&str], outputs: &[&str], model: &[u8]) {
        let model = AttributeProto {
            s: Some(model.to_vec().into()),
            ..attribute("model", AttributeType::String)
        };
        self.node(operator, EXTENSIONS, inputs, outputs, vec![model]);
    }

    fn node(
        &mut self,
        operator: &str,
        domain: &str,
        inputs: &[&str],
        outputs: &[&str],
        attribute: Vec<AttributeProto>,
    ) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let name = outputs.first().copied().unwrap_or_default().to_owned();
        let (op_type, domain) = (operator.to_owned(), domain.to_owned());
        self.0.node.push(NodeProto {
            input: owned(inputs),
            output: owned(outputs),
            name,
            op_type,
            attribute,
            domain,
        });
    }

    fn integers(&mut self, name: &str, values: &[i64]) {
        self.constant(
            name,
            DataType::Int64,
            &[values.len() as i64],
            values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        );
    }

    fn constant(&mut self, name: &str, data_type: DataType, dims: &[i64], bytes: Vec<u8>) {
        // Strings have no raw form.
        let raw_data = (data_type != DataType::String).then(|| bytes.into());
        let tensor = TensorProto {
            dims: dims.to_vec(),
            data_type: data_type.into(),
            name: name.into(),
            raw_data,
            ..TensorProto::default()
        };
        self.0.initializer.push(tensor);
    }
}

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: r#type.into(), ..AttributeProto::default() }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

fn value_info(name: &str, elem_type: DataType, dims: &[&str]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .map(|dim| DimensionProto { dim_value: None, dim_param: Some((*dim).to_owned()) })
        .collect();
    let tensor_type = Some(TensorTypeProto {
        elem_type: elem_type.into(),
        shape: Some(TensorShapeProto { dim }),
    });
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { tensor_type }),
        doc_string: String::new(),
    }
}
