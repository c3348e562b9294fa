//! `cognate tokenize` and `cognate detokenize`.

use crate::model_options::ModelFolder;
use crate::translate::Input;
use anyhow::{Context, Result, bail};
use cognate_text::Tokenizer;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Split sentences into the pieces of a model's tokenizer
///
/// Prints one line for each sentence: its pieces, or with --ids their ids, separated by spaces.
/// Special tokens around a sentence, such as </s>, are included.
#[derive(clap::Args)]
#[command(after_help = TOKENIZE_EXAMPLES)]
pub(crate) struct TokenizeOptions {
    /// Sentences to tokenize [default: the lines of --input]
    #[arg(value_name = "TEXT", conflicts_with = "input")]
    text: Vec<String>,
    #[command(flatten)]
    common: CommonOptions,
    /// Write ids instead of pieces
    #[arg(long)]
    ids: bool,
    /// Tokenize translations: with the target vocabulary, without special tokens
    #[arg(long)]
    target: bool,
    /// Write JSON Lines: {"text": ..., "tokens": [...], "ids": [...]}
    #[arg(long, conflicts_with = "ids")]
    json: bool,
}

/// Join pieces or ids of a model's tokenizer to sentences
///
/// Each line has pieces or ids, separated by spaces, and becomes one sentence. Special tokens such
/// as </s> are removed.
#[derive(clap::Args)]
#[command(after_help = DETOKENIZE_EXAMPLES)]
pub(crate) struct DetokenizeOptions {
    /// Lines of pieces to join [default: the lines of --input]
    #[arg(value_name = "PIECES", conflicts_with = "input")]
    text: Vec<String>,
    #[command(flatten)]
    common: CommonOptions,
    /// Read ids instead of pieces
    #[arg(long)]
    ids: bool,
}

/// The options of both commands.
#[derive(clap::Args)]
struct CommonOptions {
    /// Read lines from FILE; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    #[command(flatten)]
    model: ModelFolder,
}

const TOKENIZE_EXAMPLES: &str = "\
Examples:
  cognate tokenize \"A man is riding a bicycle.\"
  cognate tokenize --ids --input text.en > text.ids
  cognate tokenize --target \"Ein Mann fährt Fahrrad.\"";

const DETOKENIZE_EXAMPLES: &str = "\
Examples:
  cognate tokenize \"Two dogs.\" | cognate detokenize
  cognate detokenize --ids --input text.ids";

/// Runs `cognate tokenize`.
pub(crate) fn tokenize(options: &TokenizeOptions, out: &mut dyn Write) -> Result<ExitCode> {
    let tokenizer = options.common.model.tokenizer()?;
    let (input, unit) = options.common.open(&options.text)?;
    for (line, number) in input.zip(1_u64..) {
        let text = line?.text;
        let encoded =
            if options.target { tokenizer.encode_target(&text) } else { tokenizer.encode(&text) };
        let ids = encoded.with_context(|| format!("{unit} {number}"))?;
        let piece = |&id: &i64| {
            let piece =
                if options.target { tokenizer.piece(id) } else { tokenizer.source_piece(id) };
            piece.unwrap_or_else(|| format!("<{id}>"))
        };
        if options.json {
            let tokens: Vec<_> = ids.iter().map(piece).collect();
            writeln!(out, "{}", json!({ "text": text, "tokens": tokens, "ids": ids }))?;
        } else {
            let words: Vec<_> = ids
                .iter()
                .map(|id| if options.ids { id.to_string() } else { shown(piece(id)) })
                .collect();
            writeln!(out, "{}", words.join(" "))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `cognate detokenize`.
pub(crate) fn detokenize(options: &DetokenizeOptions, out: &mut dyn Write) -> Result<ExitCode> {
    let tokenizer = options.common.model.tokenizer()?;
    let (input, unit) = options.common.open(&options.text)?;
    for (line, number) in input.zip(1_u64..) {
        let text = line?.text;
        let decoded =
            ids(&text, options.ids, &tokenizer).and_then(|ids| Ok(tokenizer.decode(&ids)?));
        writeln!(
            out,
            "{}",
            decoded.with_context(|| format!("{unit} {number}"))?.replace(['\n', '\r'], " ")
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A piece as a word of a line: white space, as of ByT5, is written as SentencePiece writes bytes.
fn shown(piece: String) -> String {
    match piece.as_bytes() {
        [byte] if byte.is_ascii_whitespace() => format!("<0x{byte:02X}>"),
        _ => piece,
    }
}

/// The white space that a word such as `<0x20>` stands for.
fn white_space(word: &str) -> Option<char> {
    let byte = u8::from_str_radix(word.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()?;
    byte.is_ascii_whitespace().then_some(char::from(byte))
}

/// The ids of a line.
fn ids(line: &str, are_ids: bool, tokenizer: &Tokenizer) -> Result<Vec<i64>> {
    let id = |word: &str| match are_ids {
        true => {
            let id = word
                .parse::<i64>()
                .with_context(|| format!("expected ids separated by spaces, found {word:?}"))?;
            match tokenizer.piece(id) {
                Some(_) => Ok(id),
                None => bail!("the tokenizer has no id {id}"),
            }
        }
        false => tokenizer
            .id(word)
            .or_else(|| tokenizer.id(white_space(word)?.encode_utf8(&mut [0; 4])))
            .with_context(|| format!("the tokenizer has no piece {word:?}")),
    };
    line.split_ascii_whitespace().map(id).collect()
}

impl CommonOptions {
    /// The lines, and the name of a line in messages.
    fn open(&self, text: &[String]) -> Result<(Input, String)> {
        let input = Input::open(text.to_vec(), self.input.as_deref(), None)?;
        let unit = input.unit.clone();
        Ok((input, unit))
    }
}
