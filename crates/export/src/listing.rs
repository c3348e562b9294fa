//! A readable, stable listing of an ONNX model, printed by `cognate show` and used in snapshots.
//!
//! ```text
//! graph mlp by cognate 0.1.0, ai.onnx 18, format 9
//! inputs
//!   x: f32 [batch, tgt, 8]
//! outputs
//!   y: f32 [batch, tgt, 4]
//! operators: 6
//!   1 Concat
//!   1 Gemm
//!   2 Reshape
//!   2 Shape
//! initializers: 3
//!   fc1.weight: f32 [4, 8] in weights.onnx_data at 0
//!   integers.-1.8: i64 [2]
//!   integers.4: i64 [1]
//! bytes in this file: 24
//! bytes in weights.onnx_data: 128
//! ```

use crate::proto::{
    AttributeProto, DataLocation, DataType, GraphProto, ModelProto, NodeProto, TensorProto,
    ValueInfoProto, element_bits,
};
use crate::{Error, read_model};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The content of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The graph's name.
    pub graph: String,
    /// Name and version of the program that wrote it.
    pub producer: String,
    /// The version of the file format.
    pub ir_version: i64,
    /// Versions of operator sets; the standard set is called `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// The model's description.
    pub doc: String,
    /// The model's metadata.
    pub metadata: BTreeMap<String, String>,
    /// Names and types.
    pub inputs: Vec<(String, String)>,
    /// Names and types.
    pub outputs: Vec<(String, String)>,
    /// The number of uses of each operator, including those in branches and loops.
    pub operators: BTreeMap<String, usize>,
    /// Constants, in the file's order.
    pub initializers: Vec<Initializer>,
}

/// A constant of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initializer {
    /// The name.
    pub name: String,
    /// Element type and shape, such as `f32 [16, 8]`.
    pub ty: String,
    /// The size of its elements in bytes.
    pub bytes: u64,
    /// File and offset of its elements, if they are in another file.
    pub external: Option<(String, u64)>,
}

impl Listing {
    /// The listing of `model`.
    pub fn of(model: &ModelProto) -> Self {
        let empty = GraphProto::default();
        let graph = model.graph.as_ref().unwrap_or(&empty);
        let opsets = model
            .opset_import
            .iter()
            .map(|opset| (domain(&opset.domain).to_owned(), opset.version));
        let metadata =
            model.metadata_props.iter().map(|entry| (entry.key.clone(), entry.value.clone()));
        let mut listing = Self {
            graph: graph.name.clone(),
            producer: [model.producer_name.as_str(), &model.producer_version]
                .join(" ")
                .trim()
                .to_owned(),
            ir_version: model.ir_version,
            opsets: opsets.collect(),
            doc: model.doc_string.clone(),
            metadata: metadata.collect(),
            inputs: graph.input.iter().map(value).collect(),
            outputs: graph.output.iter().map(value).collect(),
            operators: BTreeMap::new(),
            initializers: Vec::new(),
        };
        listing.visit(graph);
        listing
    }

    /// The listing of the file at `path`.
    ///
    /// # Errors
    /// As [`read_model`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self::of(&read_model(path)?))
    }

    /// The bytes of initializers in each file; the empty name is the model itself.
    pub fn bytes_by_file(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for initializer in &self.initializers {
            let file = initializer.external.as_ref().map_or("", |(file, _)| file);
            let bytes: &mut u64 = files.entry(file).or_default();
            *bytes = bytes.saturating_add(initializer.bytes);
        }
        files
    }

    fn visit(&mut self, graph: &GraphProto) {
        self.initializers.extend(graph.initializer.iter().map(initializer));
        for NodeProto { op_type, domain, attribute, .. } in &graph.node {
            let operator =
                if domain.is_empty() { op_type.clone() } else { format!("{domain}.{op_type}") };
            *self.operators.entry(operator).or_default() += 1;
            for AttributeProto { g, .. } in attribute {
                // The decoder limits the nesting of graphs.
                g.iter().for_each(|branch| self.visit(branch));
            }
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph {}", plain(&self.graph))?;
        if !self.producer.is_empty() {
            write!(f, " by {}", plain(&self.producer))?;
        }
        for (name, version) in &self.opsets {
            write!(f, ", {} {version}", plain(name))?;
        }
        writeln!(f, ", format {}", self.ir_version)?;
        if !self.doc.is_empty() {
            writeln!(f, "{}", plain(&self.doc))?;
        }
        for (key, value) in &self.metadata {
            writeln!(f, "{} = {}", plain(key), plain(value))?;
        }
        for (title, values) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            writeln!(f, "{title}")?;
            for (name, ty) in values {
                writeln!(f, "  {}: {}", plain(name), plain(ty))?;
            }
        }
        writeln!(f, "operators: {}", self.operators.values().sum::<usize>())?;
        for (operator, count) in &self.operators {
            writeln!(f, "  {count} {}", plain(operator))?;
        }
        writeln!(f, "initializers: {}", self.initializers.len())?;
        for Initializer { name, ty, external, .. } in &self.initializers {
            write!(f, "  {}: {}", plain(name), plain(ty))?;
            match external {
                Some((file, offset)) => writeln!(f, " in {} at {offset}", plain(file))?,
                None => writeln!(f)?,
            }
        }
        for (file, bytes) in self.bytes_by_file() {
            writeln!(
                f,
                "bytes in {}: {bytes}",
                if file.is_empty() { "this file".into() } else { plain(file) }
            )?;
        }
        Ok(())
    }
}

/// Escapes text of a file, so that it stays on its line and contains no control sequences.
fn plain(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.escape_debug().to_string()
    } else {
        text.to_owned()
    }
}

fn domain(name: &str) -> &str {
    if name.is_empty() { "ai.onnx" } else { name }
}

/// Element type and sizes of a tensor's type such as `f32 [batch, 4, past, 32]`; `None` for sizes
/// that are not constant.
pub fn tensor_type(described: &str) -> Option<(&str, Vec<Option<i64>>)> {
    let (element, dims) = described.strip_suffix(']')?.split_once(" [")?;
    let sizes = dims.split(", ").filter(|dim| !dim.is_empty());
    Some((element, sizes.map(|dim| dim.parse().ok()).collect()))
}

fn value(info: &ValueInfoProto) -> (String, String) {
    let Some(tensor) = info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref()) else {
        return (info.name.clone(), "not a tensor".into());
    };
    let element = element_type(tensor.elem_type);
    let ty = match &tensor.shape {
        None => format!("{element} of unknown rank"),
        Some(shape) => {
            let dims = shape.dim.iter().map(|dim| match (&dim.dim_value, &dim.dim_param) {
                (Some(size), _) => size.to_string(),
                (None, Some(name)) if !name.is_empty() => name.clone(),
                (None, _) => "?".into(),
            });
            format!("{element} [{}]", dims.collect::<Vec<_>>().join(", "))
        }
    };
    (info.name.clone(), ty)
}

fn initializer(tensor: &TensorProto) -> Initializer {
    let external = |key: &str| {
        tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    };
    let is_external = tensor.data_location() == DataLocation::External;
    let number = |key: &str| external(key).and_then(|value| value.parse::<u64>().ok());
    let dims: Vec<_> = tensor.dims.iter().map(i64::to_string).collect();
    let elements =
        tensor.dims.iter().fold(1u64, |product, &size| product.saturating_mul(size.max(0) as u64));
    let bytes = elements.saturating_mul(element_bits(tensor.data_type)).div_ceil(8);
    Initializer {
        name: tensor.name.clone(),
        ty: format!("{} [{}]", element_type(tensor.data_type), dims.join(", ")),
        bytes: number("length").filter(|_| is_external).unwrap_or(bytes),
        external: is_external.then(|| {
            (external("location").unwrap_or("?").to_owned(), number("offset").unwrap_or(0))
        }),
    }
}

fn element_type(number: i32) -> String {
    let Ok(data_type) = DataType::try_from(number) else { return format!("type {number}") };
    match data_type {
        DataType::Float => "f32".into(),
        DataType::Double => "f64".into(),
        DataType::Float16 => "f16".into(),
        DataType::Bfloat16 => "bf16".into(),
        DataType::Int4 => "i4".into(),
        DataType::Int8 => "i8".into(),
        DataType::Int16 => "i16".into(),
        DataType::Int32 => "i32".into(),
        DataType::Int64 => "i64".into(),
        DataType::Uint4 => "u4".into(),
        DataType::Uint8 => "u8".into(),
        DataType::Uint16 => "u16".into(),
        DataType::Uint32 => "u32".into(),
        DataType::Uint64 => "u64".into(),
        DataType::Bool
        | DataType::String
        | DataType::Undefined
        | DataType::Complex64
        | DataType::Complex128
        | DataType::Float8e4m3fn
        | DataType::Float8e4m3fnuz
        | DataType::Float8e5m2
        | DataType::Float8e5m2fnuz
        | DataType::Float4e2m1 => format!("{data_type:?}").to_lowercase(),
    }
}
