//! Attention, explanations, training curves and graphs as HTML, SVG, PNG and JSON. Independent of
//! models, engines and files.
//!
//! [`Document`] has the tokens and the attention weights of sentences; [`html()`] writes a
//! self-contained page to explore them, and [`read_html`] reads the weights of a page. [`Figure`]
//! draws one head, or the mean of a layer's heads, as a [`Drawing`] for SVG or PNG. [`Explained`]
//! is a translation step by step, which [`explain`] writes as text.
//!
//! [`Chart`] draws the curves of training runs, and [`Diagram`] draws graphs as nested boxes: a
//! page, or text for Graphviz and Mermaid.
//!
//! ```
//! use cognate_pictures::{Attention, Document, Example, Figure, Head, Picture, Token, Weights, html, read_html};
//!
//! let words = |pieces: [&str; 2]| pieces.map(|piece| Token { piece: piece.into(), id: 7 }).to_vec();
//! let weights = |values: [f32; 4]| Weights::new([1, 1, 2, 2], values.to_vec());
//! let example = Example {
//!     source: cognate_pictures::SourceText { text: "a b".into(), tokens: words(["▁a", "▁b"]), picture: None },
//!     target: cognate_pictures::TargetText { text: "c".into(), read: words(["<s>", "▁c"]), written: words(["▁c", "</s>"]) },
//!     encoder_attentions: weights([0.5, 0.5, 0.25, 0.75])?,
//!     decoder_attentions: weights([1.0, 0.0, 0.5, 0.5])?,
//!     cross_attentions: weights([0.9, 0.1, 0.2, 0.8])?,
//!     explained: None,
//! };
//! let document = Document { model: "a model".into(), engine: "an engine".into(), examples: vec![example] };
//!
//! let page = html(&document);
//! let found = read_html(&page)?;
//! assert!((found.examples[0].cross_attentions.at([0, 0, 1, 1]) - 0.8).abs() < 1e-5);
//!
//! let figure = Figure { attention: Attention::Cross, layer: 0, head: Head::Mean, picture: Picture::Lines };
//! assert!(figure.draw(&document)?.to_svg().contains("▁c"));
//! # Ok::<(), cognate_pictures::Error>(())
//! ```

mod chart;
mod diagram;
mod document;
mod drawing;
mod error;
mod explained;
mod figure;
mod glyphs;
mod html;
mod markup;
mod pack;
mod ramp;
mod raster;
mod source_picture;
mod text;
mod token;
mod weights;

pub use chart::{Chart, Curve, Panel};
pub use diagram::{Arrow, Block, Diagram, Kind};
pub use document::{Attention, Document, Example, SourceText, TargetText};
pub use drawing::{Anchor, Drawing, Shape};
pub use error::{Error, ErrorKind, Result};
pub use explained::{Beams, Embeddings, Explained, Finished, Likely, Node, Norms, Step, Summary};
pub use figure::{Figure, Head, Picture};
pub use html::{html, read_html};
pub use source_picture::SourcePicture;
pub use text::explain;
pub use token::Token;
pub use weights::Weights;
