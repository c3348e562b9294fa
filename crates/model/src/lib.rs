//! The definition of the Transformer (Vaswani et al. 2017) and its descendants.
//!
//! [`Model::open`] maps a checkpoint in Hugging Face's format, [`Model::preset`] initialises a new
//! model. Both have the entry graphs [`Model::encode`], [`Model::step`], [`Model::teacher_forced`]
//! and [`Model::loss`], built by the same functions.
//!
//! This crate contains no evaluator, engine or ONNX.
//!
//! ```
//! use cognate_model::{Model, Preset};
//!
//! let model = Model::preset(Preset::Tiny, 1)?;
//! let encode = model.encode()?;
//! let states = encode.graph().output("encoder_hidden_states").unwrap();
//! assert_eq!(states.ty.to_string(), "f32 [batch, src, 128]");
//! # Ok::<(), cognate_model::Error>(())
//! ```

mod activation;
mod alibi;
mod attention;
mod checkpoint;
mod config;
mod decoder;
mod dropout;
mod embedding;
mod encoder;
mod entry;
mod error;
mod family;
mod front;
mod head;
mod initialise;
pub mod interface;
mod layers;
mod layout;
mod model;
mod patches;
mod positions;
mod reading;
mod relative;
mod rotary;
mod span;

pub use activation::Activation;
pub use checkpoint::weights_file;
pub use config::{
    AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, EncoderModel, Front, Head,
    Norm, NormPlacement, OutputBias, OutputProjection, Parts, Patches, PositionKind, Positions,
    RelativeLayers, RotaryScaling, Sinusoids, Stack, TokenTypes,
};
pub use dropout::DropoutRates;
pub use embedding::sinusoid;
pub use entry::{Attentions, EmbeddingNames, Loss, LossNames};
pub use error::{Error, ErrorKind};
pub use initialise::Initialisation;
pub use interface::{HuggingFaceNames, Names, without_layer};
pub use layout::Layout;
pub use model::{Model, Preset, StoredTensor};
pub use reading::{open_file, read_text};
