//! OpenAI's API of speech: `/v1/audio/transcriptions`, `/v1/audio/translations`, `/v1/models`.
//!
//! Errors have OpenAI's form, `{"error": {"message", "type", "param", "code"}}`.

mod form;

use crate::Server;
use crate::error::{Failure, json};
use crate::models::late;
use crate::speech::{Heard, Hearing, SpeechModel};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cognate::{Task, TranscriptFormat, Transcription};
use form::{Form, ResponseFormat};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A failure in OpenAI's form.
pub(crate) struct OpenAiFailure {
    failure: Failure,
    code: Option<&'static str>,
}

type Answered = Result<Response, OpenAiFailure>;

impl From<Failure> for OpenAiFailure {
    fn from(failure: Failure) -> Self {
        let code = match failure.status {
            StatusCode::UNAUTHORIZED => Some("invalid_api_key"),
            StatusCode::NOT_FOUND => Some("model_not_found"),
            _ => None,
        };
        Self { failure, code }
    }
}

impl OpenAiFailure {
    /// The failure of a path or method that does not exist.
    pub(crate) fn of_path(failure: Failure) -> Self {
        Self { failure, code: None }
    }

    /// `{"error": {"message", "type", "param", "code"}}`
    fn object(&self) -> Value {
        let Self { failure, code } = self;
        let kind = match failure.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let error =
            json!({ "message": failure.message, "type": kind, "param": null, "code": code });
        json!({ "error": error })
    }
}

impl IntoResponse for OpenAiFailure {
    fn into_response(self) -> Response {
        let mut response = json(self.failure.status, &self.object());
        self.failure.advise(&mut response);
        response
    }
}

impl Server {
    fn speech_model(&self, name: &str) -> Result<Arc<SpeechModel>, Failure> {
        let found = self.speech.iter().find(|model| model.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<_> = self.speech.iter().map(|model| model.name.as_str()).collect();
            let expected = if names.is_empty() {
                "the server has none".into()
            } else {
                format!("expected {}", names.join(", "))
            };
            Failure::new(
                StatusCode::NOT_FOUND,
                format_args!("model: there is no speech model {name:?}; {expected}"),
            )
        })
    }
}

/// `GET /v1/models`
pub(crate) async fn models(State(server): State<Arc<Server>>, headers: HeaderMap) -> Answered {
    server.authorise(&headers, None)?;
    let models: Vec<_> = server.names().map(described).collect();
    Ok(json(StatusCode::OK, &json!({ "object": "list", "data": models })))
}

/// `GET /v1/models/{model}`
pub(crate) async fn model(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answered {
    server.authorise(&headers, None)?;
    match server.names().find(|known| *known == name) {
        Some(name) => Ok(json(StatusCode::OK, &described(name))),
        None => {
            Err(Failure::new(StatusCode::NOT_FOUND, format_args!("there is no model {name}"))
                .into())
        }
    }
}

fn described(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "cognate" })
}

/// `POST /v1/audio/transcriptions`
pub(crate) async fn transcriptions(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Answered {
    answer(server, request, Task::Transcribe).await
}

/// `POST /v1/audio/translations`
pub(crate) async fn translations(State(server): State<Arc<Server>>, request: Request) -> Answered {
    answer(server, request, Task::Translate).await
}

async fn answer(server: Arc<Server>, request: Request, task: Task) -> Answered {
    server.authorise(request.headers(), None)?;
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        let message = "Content-Encoding: a form with audio must not be compressed";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into());
    }
    let busy = |_| {
        Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many audio files are waiting; try again later",
        )
    };
    let permit = server.audio_room.clone().try_acquire_owned().map_err(busy)?;
    let Form { file, model, format, is_streamed, options, segments } =
        Form::read(request, task, 4 * server.client_timeout).await?;
    let model = server.speech_model(&model)?;
    let has_words = options.word_timestamps;
    let mut hearing = model.start(options, file);
    if is_streamed {
        // What fails before the first segment has a status of its own.
        let first = tokio::time::timeout(server.audio_timeout, hearing.next()).await;
        let first = first.map_err(|_| late(server.audio_timeout))??;
        return Ok(stream(first, hearing, server.audio_timeout, permit));
    }
    let found = tokio::time::timeout(server.audio_timeout, hearing.whole()).await;
    let found = found.map_err(|_| late(server.audio_timeout))??;
    Ok(match format {
        ResponseFormat::Json => {
            json(StatusCode::OK, &json!({ "text": found.text.trim(), "usage": usage(&found) }))
        }
        ResponseFormat::VerboseJson => {
            json(StatusCode::OK, &verbose(&found, task, segments, has_words))
        }
        ResponseFormat::Text => plain("text/plain", format!("{}\n", found.text.trim())),
        ResponseFormat::Srt => {
            plain("application/x-subrip", TranscriptFormat::Srt.document(&found))
        }
        ResponseFormat::Vtt => plain("text/vtt", TranscriptFormat::Vtt.document(&found)),
    })
}

fn plain(kind: &str, text: String) -> Response {
    ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text).into_response()
}

fn usage(found: &Transcription) -> Value {
    json!({ "type": "duration", "seconds": found.duration.ceil() })
}

/// The complete answer, with the requested parts.
fn verbose(found: &Transcription, task: Task, segments: bool, words: bool) -> Value {
    let task = if task == Task::Translate { "translate" } else { "transcribe" };
    let mut object = json!({
        "task": task,
        "language": found.language_name(),
        "duration": found.duration,
        "text": found.text.trim(),
        "usage": usage(found),
    });
    if segments {
        let mut segments = TranscriptFormat::object(found)["segments"].take();
        for segment in
            segments.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut)
        {
            segment.remove("words");
        }
        object["segments"] = segments;
    }
    if words {
        let words = found.segments.iter().flat_map(|segment| &segment.words);
        let word = |word: &cognate::Word| json!({ "word": word.word.trim(), "start": word.start, "end": word.end });
        object["words"] = words.map(word).collect();
    }
    object
}

/// Server-sent events: a text for each segment, and the whole text. The file's permit is held until
/// the end.
fn stream(
    first: Heard,
    mut hearing: Hearing,
    timeout: Duration,
    permit: tokio::sync::OwnedSemaphorePermit,
) -> Response {
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let _permit = permit;
        let write = |value: &Value| {
            sender.send(Ok::<_, std::convert::Infallible>(format!("data: {value}\n\n"))).is_ok()
        };
        let failed = |failure: Failure| write(&OpenAiFailure::from(failure).object());
        let parts = async {
            let mut next = Ok(first);
            loop {
                let is_read = match next {
                    Ok(Heard::Segment(segment)) => {
                        write(&json!({ "type": "transcript.text.delta", "delta": segment.text }))
                    }
                    Ok(Heard::Whole(found)) => {
                        write(
                            &json!({ "type": "transcript.text.done", "text": found.text.trim(), "usage": usage(&found) }),
                        );
                        return;
                    }
                    Err(failure) => {
                        failed(failure);
                        return;
                    }
                };
                if !is_read {
                    return;
                }
                next = hearing.next().await;
            }
        };
        // A client that disconnects cancels the transcription, also between segments.
        tokio::select! {
            () = parts => {}
            () = sender.closed() => {}
            () = tokio::time::sleep(timeout) => {
                failed(late(timeout));
            }
        }
    });
    let body = Body::from_stream(UnboundedReceiverStream::new(events));
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body)
        .into_response()
}
