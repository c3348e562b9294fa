//! The messages of an ONNX file, written out by hand: the parts of [onnx.proto] that we write or show.
//!
//! Field numbers are those of `onnx.proto`; fields that are not listed here are skipped when a file is read. Where the
//! format asks whether a field is present (an attribute's value, raw data), the field is an `Option`.
//!
//! [onnx.proto]: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto

use prost::Message;
use prost::bytes::Bytes;

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Versions of the operator sets that the nodes use.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// For people.
    #[prost(string, tag = "6")]
    pub doc_string: String,
    /// The graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Facts about the model, each key once.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A version of an operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Empty for ONNX's own operators.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Nodes in the order of evaluation, with the tensors that they read and give.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants: weights and small numbers.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// For people.
    #[prost(string, tag = "10")]
    pub doc_string: String,
    /// What every run is given.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// What every run gives.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of the tensors between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the tensors that it reads; empty for an optional input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the tensors that it gives.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's own name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator, as `Gemm`.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Constants of the operation.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's set; empty for ONNX's own.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A named constant of a node.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The name, as `axis`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Which field holds the value: one of [`AttributeType`].
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
    /// A number.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph, as a branch of `If`.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Numbers.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
}

/// The kinds of [`AttributeProto`] that we write or show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Not said.
    Undefined = 0,
    /// `f`
    Float = 1,
    /// `i`
    Int = 2,
    /// `s`
    String = 3,
    /// `t`
    Tensor = 4,
    /// `g`
    Graph = 5,
    /// `floats`
    Floats = 6,
    /// `ints`
    Ints = 7,
}

/// A constant: its values are inside the file, or in another one beside it.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The sizes.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// The element type: one of [`DataType`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// The name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// The elements, little-endian and row-major.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Where the elements lie: keys `location` (a file name), `offset` and `length` (bytes).
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// Whether `external_data` holds: one of [`DataLocation`].
    #[prost(enumeration = "DataLocation", tag = "14")]
    pub data_location: i32,
}

/// Where a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum DataLocation {
    /// In the message.
    Default = 0,
    /// In another file.
    External = 1,
}

/// ONNX's element types, as [`TensorProto::data_type`] and [`TensorTypeProto::elem_type`] number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are the types'")]
pub enum DataType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8e4m3fn = 17,
    Float8e4m3fnuz = 18,
    Float8e5m2 = 19,
    Float8e5m2fnuz = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4e2m1 = 23,
}

/// A tensor's name and type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The tensor's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// For people.
    #[prost(string, tag = "3")]
    pub doc_string: String,
}

/// A type; sequences, maps and optional values are not read.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A dense tensor's type.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// Element type and shape (`TypeProto.Tensor`).
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// The element type: one of [`DataType`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// The shape; absent if even the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The sizes.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One axis (`TensorShapeProto.Dimension`): a size, a name, or neither.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// The size.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The name of a size that is known only at run time.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
