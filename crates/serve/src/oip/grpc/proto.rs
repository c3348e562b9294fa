//! The messages of KServe's `grpc_predict_v2.proto` that the server reads and writes, by their
//! field numbers.

use prost::{Message, Oneof};
use serde_json::{Value, json};
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

/// `ServerLiveResponse`, `ServerReadyResponse`, `ModelReadyResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct State {
    #[prost(bool, tag = "1")]
    pub(super) is_so: bool,
}

/// `ModelReadyRequest`, `ModelMetadataRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

/// `ServerMetadataResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) extensions: Vec<String>,
}

/// `ModelMetadataResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) platform: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
}

/// `RepositoryIndexResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct RepositoryIndex {
    #[prost(message, repeated, tag = "1")]
    pub(super) models: Vec<IndexedModel>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IndexedModel {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, tag = "3")]
    pub(super) state: String,
    #[prost(string, tag = "4")]
    pub(super) reason: String,
}

/// `ModelInferRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct InferRequest {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, Parameter>,
    #[prost(message, repeated, tag = "5")]
    pub(super) inputs: Vec<InferInput>,
    #[prost(message, repeated, tag = "6")]
    pub(super) outputs: Vec<RequestedOutput>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub(super) raw_input_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Parameter {
    #[prost(oneof = "Choice", tags = "1, 2, 3, 4, 5")]
    choice: Option<Choice>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Choice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

impl Parameter {
    /// The value, unless it is missing or JSON has no such number.
    pub(super) fn json(self) -> Option<Value> {
        Some(match self.choice? {
            Choice::Bool(value) => json!(value),
            Choice::Int64(value) => json!(value),
            Choice::String(value) => json!(value),
            Choice::Double(value) if !value.is_finite() => return None,
            Choice::Double(value) => json!(value),
            Choice::Uint64(value) => json!(value),
        })
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferInput {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    pub(super) contents: Option<InferContents>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestedOutput {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferContents {
    #[prost(int64, repeated, tag = "3")]
    pub(super) int64_contents: Vec<i64>,
    #[prost(float, repeated, tag = "6")]
    pub(super) fp32_contents: Vec<f32>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) bytes_contents: Vec<Vec<u8>>,
}

/// `ModelInferResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct InferResponse {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<InferOutput>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub(super) raw_output_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferOutput {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    pub(super) contents: Option<InferContents>,
}
