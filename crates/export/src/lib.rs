//! Writes graphs as ONNX: standard operators, readable names, weights stored once.
//!
//! [`Export`] writes graphs that share a weights file to a [`Folder`], or graphs alone as
//! [`Additions`] to a folder that contains the weights; [`to_onnx_bytes`] returns a single
//! self-contained file. [`Listing`] describes the content of any ONNX file, and [`check_model`]
//! validates it for engines. All outputs are complete or absent, also single files
//! ([`PartialFile`]); the next process removes what a killed one left ([`Staged`]).
//!
//! This crate contains no Transformer: it lowers any graph. It computes nothing and
//! changes no weight.
//!
//! ```
//! use cognate_export::{Listing, Metadata, to_onnx_bytes};
//! use cognate_graph::{Builder, DType, Program, Weights};
//!
//! let builder = Builder::new("attention");
//! let q = builder.input("q", DType::F32, ["tgt", "d_k"]);
//! let k = builder.input("k", DType::F32, ["src", "d_k"]);
//! builder.output("weights", (q.matmul(k.t()) * 0.125).softmax());
//! let program = Program::new(builder.finish()?, Weights::default())?;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("attention.onnx");
//! std::fs::write(&path, to_onnx_bytes(&program, &Metadata::default())?)?;
//! let listing = Listing::read(&path)?;
//! assert_eq!(listing.outputs, [("weights".into(), "f32 [tgt, src]".into())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod additions;
mod check;
mod destination;
mod error;
mod flush;
mod folder;
mod listing;
mod loose;
mod lower;
mod model;
mod nested;
mod placement;
pub mod proto;
mod read;
mod staged;
mod text;
mod writer;

pub use additions::Additions;
pub use check::{Checked, LIMITS, Limits, check_model};
pub use error::{Error, ErrorKind};
pub use folder::{Existing, Folder, Hashed, Report};
pub use listing::{Initializer, Listing, tensor_type};
pub use loose::LooseAxis;
pub use lower::{OPSET, Target};
pub use model::{LAYOUT_KEY, Metadata, to_onnx_bytes};
pub use read::read_model;
pub use staged::{PartialFile, Staged, abandon, remove_leftovers};
pub use text::TextOperators;
pub use writer::{Export, write_folder};
