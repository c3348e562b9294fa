//! The form of a request with an audio file.

use crate::error::Failure;
use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use cognate::{Task, TranscriptionOptions};
use std::collections::HashSet;
use std::time::Duration;

/// The maximum number of bytes of a field that is not the file.
const FIELD: usize = 1 << 16;

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    Json,
    Text,
    Srt,
    VerboseJson,
    Vtt,
}

pub(super) struct Form {
    pub(super) file: Bytes,
    pub(super) model: String,
    pub(super) format: ResponseFormat,
    pub(super) is_streamed: bool,
    pub(super) options: TranscriptionOptions,
    /// Whether a verbose answer contains segments.
    pub(super) segments: bool,
}

impl Form {
    pub(super) async fn read(
        request: Request,
        task: Task,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
        tokio::time::timeout(limit, Self::fields(request, task)).await.map_err(late)?
    }

    async fn fields(request: Request, task: Task) -> Result<Self, Failure> {
        let form = Multipart::from_request(request, &()).await;
        let mut form = form.map_err(|error| {
            Failure::new(
                error.status(),
                format_args!("expected a multipart form: {}", error.body_text()),
            )
        })?;
        let (mut file, mut model, mut format, mut is_streamed) =
            (None, None, ResponseFormat::Json, false);
        let mut options =
            TranscriptionOptions { task: Some(task), ..TranscriptionOptions::default() };
        let (mut words, mut segments) = (false, false);
        let mut names = HashSet::new();
        while let Some(field) = form.next_field().await.map_err(unread)? {
            let name = field.name().unwrap_or_default().to_owned();
            if !name.starts_with("timestamp_granularities") && !names.insert(name.clone()) {
                return Err(Failure::bad(format_args!("{name}: given twice")));
            }
            let bytes = field.bytes().await.map_err(unread)?;
            if name == "file" {
                file = Some(bytes);
                continue;
            }
            if bytes.len() > FIELD {
                return Err(Failure::bad(format_args!(
                    "{name}: expected at most {FIELD} bytes, found {}",
                    bytes.len()
                )));
            }
            let text = std::str::from_utf8(&bytes)
                .map_err(|_| Failure::bad(format_args!("{name}: expected UTF-8")))?;
            let expected =
                |what: &str| Failure::bad(format_args!("{name}: expected {what}, found {text:?}"));
            match (name.as_str(), text) {
                ("model", text) => model = Some(text.to_owned()),
                ("language" | "prompt", "") => {}
                // A translation is always into English.
                ("language", text) => options.language = Some(text.into()),
                ("prompt", text) => options.initial_prompt = Some(text.into()),
                ("temperature", text) => {
                    match text.parse().ok().filter(|found| (0.0..=1.0).contains(found)) {
                        // 0 allows a rejected text to be retried at higher temperatures.
                        Some(0.0) => {}
                        Some(temperature) => options.temperatures = vec![temperature],
                        None => return Err(expected("a number from 0 to 1")),
                    }
                }
                ("response_format", "json") => format = ResponseFormat::Json,
                ("response_format", "text") => format = ResponseFormat::Text,
                ("response_format", "srt") => format = ResponseFormat::Srt,
                ("response_format", "verbose_json") => format = ResponseFormat::VerboseJson,
                ("response_format", "vtt") => format = ResponseFormat::Vtt,
                ("response_format", _) => {
                    return Err(expected("json, text, srt, verbose_json or vtt"));
                }
                ("timestamp_granularities[]" | "timestamp_granularities", "word") => words = true,
                ("timestamp_granularities[]" | "timestamp_granularities", "segment") => {
                    segments = true
                }
                ("timestamp_granularities[]" | "timestamp_granularities", _) => {
                    return Err(expected("word or segment"));
                }
                ("stream", text) => {
                    is_streamed =
                        text.to_lowercase().parse().map_err(|_| expected("true or false"))?
                }
                _ => return Err(Failure::bad(format_args!("there is no field {name:?}"))),
            }
        }
        let missing = |name: &str| {
            Failure::bad(format_args!("{name}: missing; expected a field of the form"))
        };
        let (file, model) =
            (file.ok_or_else(|| missing("file"))?, model.ok_or_else(|| missing("model"))?);
        if (words || segments) && format != ResponseFormat::VerboseJson {
            return Err(Failure::bad(
                "timestamp_granularities: expected with the response_format verbose_json",
            ));
        }
        if is_streamed && !matches!(format, ResponseFormat::Json | ResponseFormat::Text) {
            return Err(Failure::bad("stream: expected with the response_format json or text"));
        }
        options.word_timestamps = words;
        Ok(Self { file, model, format, is_streamed, options, segments: segments || !words })
    }
}

/// Invalid, or larger than the limit.
fn unread(error: MultipartError) -> Failure {
    Failure::new(error.status(), format_args!("the form: {}", error.body_text()))
}
