//! Tokenizers, lines of corpora and translation metrics. Independent of models, graphs and engines.
//!
//! - [`Tokenizer`]: text to ids and back, as transformers' `AutoTokenizer`. Reads `tokenizer.json`
//!   and the files of every encoder-decoder family: SentencePiece models (Marian, M2M100, mBART,
//!   NLLB, PLBart, T5, Pegasus) and byte pair vocabularies (BART, Blenderbot).
//! - [`TokenizerTrainer`]: trains unigram and BPE tokenizers deterministically.
//! - [`SegmentationSampler`]: subword regularisation.
//! - [`TargetLanguage`]: conditioning of the decoder of a multilingual model.
//! - [`StreamingText`]: streaming detokenisation.
//! - [`PieceModels`]: a tokenizer as SentencePiece models, for other programs.
//! - [`Lines`], [`read_lines`]: UTF-8 text, one sentence a line, with errors that name the line.
//! - [`Lexicon`]: translations of tokens, by IBM Model 1.
//! - [`corpus_bleu`], [`Metric`], [`paired_bootstrap`]: BLEU, chrF, chrF++ and significance tests,
//!   equal to sacreBLEU 2.6.
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
//! `folder` finds a tokenizer's family and reads its settings; `converted` builds the families that
//! transformers runs on the `tokenizers` library; `classic` runs the others on `sentencepiece`.

mod arithmetic;
mod bleu;
mod bootstrap;
mod chrf;
mod classic;
mod codes;
mod converted;
mod error;
mod error_rate;
mod folder;
mod language;
mod lexicon;
mod library;
mod lines;
mod metric;
mod normal_forms;
mod pcg;
mod piece_models;
mod segmentation;
mod sentencepiece;
mod spelling;
mod streaming;
mod tokenizer;
mod tokenizer_file;
mod training;
mod words;

pub use bleu::{Bleu, BleuSettings, Smoothing};
pub use bootstrap::{Resampled, paired_bootstrap};
pub use chrf::ChrfSettings;
pub use error::{Error, ErrorKind, Result};
pub use error_rate::{ErrorRateSettings, ErrorUnit};
pub use language::TargetLanguage;
pub use lexicon::{Lexicon, ParallelTokens};
pub use lines::{Lines, read_lines};
pub use metric::{Metric, Resampling, Score, Statistics, corpus_bleu};
pub use piece_models::PieceModels;
pub use segmentation::SegmentationSampler;
pub use spelling::Spelling;
pub use streaming::StreamingText;
pub use tokenizer::Tokenizer;
pub use training::{Algorithm, TokenizerTrainer, TrainedTokenizer, TrainingSettings};
pub use words::Words;
