//! Text on both sides of a model: tokenizers, lines of corpora, and the score of a translation.
//!
//! Knows no models, no graphs, no engines: text goes in and ids come out, ids go in and text comes out.
//!
//! - [`Tokenizer`]: text to ids and back, as transformers' `AutoTokenizer` does it. Reads `tokenizer.json`, and the own
//!   files of every encoder-decoder family: SentencePiece models (Marian, M2M100, mBART, NLLB, PLBart, T5, Pegasus) and
//!   byte pair vocabularies (BART, Blenderbot).
//! - [`TokenizerTrainer`]: a tokenizer made of a text, unigram or byte pair merges, the same for the same text.
//! - [`TargetLanguage`]: what the decoder must know where a tokenizer has several languages.
//! - [`GrowingText`]: the words of ids that come one by one.
//! - [`Lines`], [`read_lines`]: UTF-8 text, one sentence a line, with errors that name the line.
//! - [`corpus_bleu`], [`Metric`], [`paired_bootstrap`]: BLEU, chrF and chrF++, and what they are worth, as sacreBLEU 2.6 computes them.
//!
//! ```
//! use cognate_text::{Tokenizer, corpus_bleu};
//!
//! # fn main() -> cognate_text::Result<()> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de");
//! let tokenizer = Tokenizer::from_folder(folder)?;
//! let ids = tokenizer.encode("A man in an orange hat.")?;
//! assert_eq!(ids, [8, 20, 5, 30, 168, 93, 3, 0]);
//! assert_eq!(tokenizer.decode(&ids)?, "A man in an orange hat.");
//!
//! let bleu = corpus_bleu(&["Ein Mann mit einem orangen Hut."], &["Ein Mann mit einem Hut."])?;
//! assert_eq!(format!("{:.2}", bleu.score), "48.89");
//! # Ok(())
//! # }
//! ```
//!
//! How a tokenizer comes about: `folder` finds the family and reads its settings; `converted` builds the families that
//! transformers runs on the `tokenizers` library; `classic` runs the others, on `sentencepiece`.

mod arithmetic;
mod bleu;
mod bootstrap;
mod chrf;
mod classic;
mod codes;
mod converted;
mod error;
mod folder;
mod growing;
mod language;
mod lines;
mod metric;
mod pcg;
mod sentencepiece;
mod tokenizer;
mod tokenizer_file;
mod training;
mod words;

pub use bleu::{Bleu, BleuSettings, Smoothing};
pub use bootstrap::{Resampled, paired_bootstrap};
pub use chrf::ChrfSettings;
pub use error::{Error, ErrorKind, Result};
pub use growing::GrowingText;
pub use language::TargetLanguage;
pub use lines::{Lines, read_lines};
pub use metric::{Metric, Resampling, Score, Statistics, corpus_bleu};
pub use tokenizer::Tokenizer;
pub use training::{Algorithm, TokenizerTrainer, TrainedTokenizer, TrainingSettings};
pub use words::Words;
