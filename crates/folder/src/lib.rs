//! The folder of a model: a checkpoint, an export of Cognate or an export of Optimum.
//!
//! This crate finds the files of such a folder and the graphs that an engine can run, and reads and
//! writes `cognate.json` (the [`Manifest`]). It neither decodes nor prints.

mod configuration;
mod error;
mod exported;
mod graphs;
mod hash;
mod manifest;
mod precision;
mod processor;
mod sentence_settings;
mod source;
mod tokenizer;
mod triton;
mod write;

pub use configuration::{CONFIG, Configuration, GENERATION_CONFIG, read_if_there};
pub use error::{Error, ErrorKind, Result};
pub use exported::open_exported;
pub use graphs::{
    ExportedGraphs, find_graphs, find_layout, graph_files, optimum, require_layout, search_graph,
};
pub use hash::hash_file;
pub use manifest::{
    BleuComparison, Calibration, Caution, DecodingReport, FileReport, GraphSummary, HashedFile,
    KeptInF32, Manifest, Origin, OutputReport, Quality, RuntimeReport, Stamp, StepsComparison,
    StepsReport, VectorComparison, VectorsReport, Verification, WeightHashes,
};
pub use precision::Precision;
pub use processor::{PROCESSOR, ProcessorSettings};
pub use sentence_settings::{Pooling, SentenceSettings};
pub use source::{ModelSource, folder_name};
pub use tokenizer::{copy_tokenizer, has_tokenizer, tokenizer_bytes};
pub use triton::{TRITON_FILES, write_repository};
pub use write::{
    GENERATE_BESIDE, GENERATE_TEXT, GENERATED, WEIGHTS, config_json, f32_programs, write_beside,
    write_graphs_in_place, write_programs,
};
