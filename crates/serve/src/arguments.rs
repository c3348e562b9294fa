//! The options of `cognate serve`.

use crate::error::{Error, ErrorKind};
use std::collections::HashSet;
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of bytes of a file of API keys.
const KEYS: u64 = 1 << 20;

/// Options of the server.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Model to serve, of text or of speech, an export or a checkpoint, by a name; can be given
    /// several times. A file, such as the encoder.onnx of an export, is served as tensors:
    /// opus-encoder=out/encoder.onnx
    #[arg(short, long = "model", value_name = "NAME=DIR", required = true, value_parser = named::<PathBuf>)]
    pub models: Vec<(String, PathBuf)>,
    /// Languages of a model whose tokenizer does not name them, for LibreTranslate's API:
    /// opus=en-de
    #[arg(long, value_name = "NAME=SOURCE-TARGET", value_parser = named::<Pair>)]
    pub languages: Vec<(String, Pair)>,
    /// Address to listen at; 0.0.0.0:8000 is open to the network
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Inference engine: auto, tract or ort
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parsed::<cognate::Engine>)]
    pub engine: cognate::Engine,
    /// Device of the engine: cpu, or NVIDIA GPUs such as cuda or cuda:0,cuda:1, over which workers
    /// are spread
    #[arg(long, value_name = "DEVICES", default_value = "cpu", value_parser = parsed::<cognate::Devices>)]
    pub device: cognate::Devices,
    /// Batches of each model that are translated at the same time [default: the number of cores, on
    /// GPUs one for each]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// Threads of ONNX Runtime for each worker [default: 1]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Maximum number of tokens of a batch, padding and beams included, and of an integer tensor
    /// for a graph
    #[arg(long, value_name = "N", default_value = "2048")]
    pub batch_tokens: NonZeroUsize,
    /// Maximum number of tokens that the sentences of a batch may grow to, sources and all beams or
    /// samples included: a bound of its memory
    #[arg(long, value_name = "N", default_value = "131072")]
    pub max_held_tokens: usize,
    /// Maximum number of bytes of a request
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    pub max_body: usize,
    /// Maximum number of sentences of a request
    #[arg(long, value_name = "N", default_value = "1024")]
    pub max_sentences: usize,
    /// Maximum number of bytes of a request with an audio file
    #[arg(long, value_name = "BYTES", default_value = "26214400")]
    pub max_audio: usize,
    /// Maximum number of audio files in memory; further requests are answered by 429
    #[arg(long, value_name = "N", default_value = "32", value_parser = parsed::<NonZeroUsize>)]
    pub max_audio_requests: NonZeroUsize,
    /// Maximum number of tokens of a translation; requests can ask for fewer
    #[arg(long, value_name = "N", default_value = "512")]
    pub max_new_tokens: NonZeroUsize,
    /// Maximum number of beams that a request can ask for
    #[arg(long, value_name = "N", default_value = "16")]
    pub max_beams: NonZeroUsize,
    /// Maximum number of sentences that wait for a model, and of requests that wait for a graph;
    /// further requests are answered by 429
    #[arg(long, value_name = "N", default_value = "8192")]
    pub max_waiting: usize,
    /// Maximum number of connections; further ones wait
    #[arg(long, value_name = "N", default_value = "16384")]
    pub max_connections: NonZeroUsize,
    /// Seconds that a client may take for the head of a request, for its body (for an audio file four
    /// times as long), and that it may not read its answer
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub client_timeout: Duration,
    /// Seconds after which a connection ends with the requests that have begun
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    pub max_connection_age: Duration,
    /// Seconds after which a request is answered by 504
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Seconds after which a transcription is answered by 504
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub audio_timeout: Duration,
    /// File with API keys, one per line; requests must have one of them, as
    /// `Authorization: Bearer KEY`, `X-API-Key` or, in LibreTranslate's API, `api_key`
    #[arg(long, value_name = "FILE")]
    pub api_keys: Option<PathBuf>,
    /// Origin whose pages may call the server, or * for all; can be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub cors: Vec<String>,
    /// Write the log as JSON Lines
    #[arg(long)]
    pub json_log: bool,
    /// Whether only warnings and errors are logged.
    #[arg(skip)]
    pub quiet: bool,
}

/// A source and a target language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The source language.
    pub source: String,
    /// The target language.
    pub target: String,
}

impl std::str::FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = |(index, _): (usize, &str)| [&text[..index], &text[index + 1..]];
        let mut pairs: Vec<_> = text.match_indices('-').map(parts).collect();
        if pairs.len() > 1 {
            // Of pt-BR-en, BR-en is no language.
            pairs.retain(|pair| pair.iter().all(|tag| is_language(tag)));
        }
        match *pairs {
            [[source, target]] if !source.is_empty() && !target.is_empty() => {
                Ok(Self { source: source.into(), target: target.into() })
            }
            _ => Err(format!(
                "expected SOURCE-TARGET, with regions in capitals as in pt-BR-en; found {text:?}"
            )),
        }
    }
}

/// Whether a tag of BCP 47 begins with a language: two or three small letters.
fn is_language(tag: &str) -> bool {
    let language = tag.split(['-', '_']).next().unwrap_or_default();
    matches!(language.len(), 2 | 3) && language.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn named<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<(String, T), String> {
    let (name, rest) =
        text.split_once('=').ok_or_else(|| format!("expected NAME=..., found {text}"))?;
    if name.is_empty()
        || !name
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character))
    {
        return Err(format!("expected a name of letters, digits, -, _ and ., found {name:?}"));
    }
    Ok((name.into(), parsed(rest)?))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e6);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected a number of seconds above 0, found {text}"))
}

/// The text of a regular file of at most [`KEYS`] bytes.
fn regular(file: &Path) -> std::io::Result<String> {
    let metadata = std::fs::metadata(file)?;
    // A pipe would be waited for.
    if !metadata.is_file() || metadata.len() > KEYS {
        let message = format!("expected a regular file of at most {KEYS} bytes");
        return Err(std::io::Error::other(message));
    }
    let mut text = String::new();
    std::fs::File::open(file)?.take(KEYS).read_to_string(&mut text)?;
    Ok(text)
}

/// An error if one of these names is given twice.
fn check_given_once<T>(option: &str, named: &[(String, T)]) -> Result<(), Error> {
    let mut known = HashSet::new();
    match named.iter().find(|(name, _)| !known.insert(name)) {
        Some((name, _)) => Err(Error::new(
            ErrorKind::Options,
            format_args!("{option}: the name {name} is given twice"),
        )),
        None => Ok(()),
    }
}

impl Arguments {
    /// Checks the names of `--model` and `--languages`.
    pub(crate) fn check_names(&self) -> Result<(), Error> {
        check_given_once("--model", &self.models)?;
        check_given_once("--languages", &self.languages)?;
        let is_model = |name: &String| self.models.iter().any(|(model, _)| model == name);
        match self.languages.iter().find(|(name, _)| !is_model(name)) {
            Some((name, _)) => Err(Error::new(
                ErrorKind::Options,
                format_args!("--languages: expected the name of a --model, found {name}"),
            )),
            None => Ok(()),
        }
    }

    /// The API keys; none if all requests are allowed.
    pub(crate) fn keys(&self) -> Result<Vec<String>, Error> {
        let Some(file) = &self.api_keys else { return Ok(Vec::new()) };
        let wrong = |message: String| {
            Error::new(ErrorKind::Options, format_args!("{}: {message}", file.display()))
        };
        let text = regular(file).map_err(|error| wrong(error.to_string()))?;
        let keys: Vec<String> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        if keys.is_empty() {
            Err(wrong("has no keys; expected one per line".into()))
        } else {
            Ok(keys)
        }
    }
}
