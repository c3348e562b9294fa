//! The speech models of a server, and transcriptions by them.

use crate::arguments::Arguments;
use crate::error::{Error, ErrorKind, Failure};
use crate::metrics::Metrics;
use crate::room::Room;
use axum::body::Bytes;
use axum::http::StatusCode;
use cognate::{
    AudioReader, LoadOptions, ModelSource, Segment, Transcriber, TranscriberOptions, Transcription,
};
use cognate::{TranscriptionEvent, TranscriptionOptions};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A loaded speech model.
pub(crate) struct SpeechModel {
    pub(crate) name: String,
    pub(crate) transcriber: Transcriber,
    room: Room,
    metrics: Arc<Metrics>,
}

/// A message of a transcription.
pub(crate) enum Heard {
    Segment(Segment),
    Whole(Box<Transcription>),
}

/// A transcription in progress; dropping it cancels it.
pub(crate) struct Hearing {
    parts: UnboundedReceiver<Result<Heard, Failure>>,
    is_wanted: Arc<AtomicBool>,
}

impl SpeechModel {
    pub(crate) fn load(
        name: &str,
        source: ModelSource,
        arguments: &Arguments,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, Error> {
        let load = LoadOptions {
            engine: arguments.engine,
            device: arguments.device.clone(),
            workers: arguments.workers,
            threads: Some(arguments.threads.unwrap_or(NonZeroUsize::MIN)),
            ..LoadOptions::default()
        };
        let workers = load.n_workers();
        let transcriber = Transcriber::load(
            source,
            &TranscriberOptions { load, ..TranscriberOptions::default() },
        );
        let transcriber = transcriber
            .map_err(|error| Error::new(ErrorKind::Model, format_args!("{name}: {error}")))?;
        Ok(Self {
            name: name.into(),
            transcriber,
            room: Room::new(workers.get(), arguments.max_audio_requests.get()),
            metrics: metrics.clone(),
        })
    }

    /// Transcribes a file as soon as a worker is free.
    pub(crate) fn start(self: &Arc<Self>, options: TranscriptionOptions, audio: Bytes) -> Hearing {
        let (sender, parts) = unbounded_channel();
        let is_wanted = Arc::new(AtomicBool::new(true));
        let (model, flag) = (self.clone(), is_wanted.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            // The file of a client that has left is freed.
            let worker = tokio::select! {
                worker = model.room.worker() => worker,
                () = sender.closed() => return,
            };
            let _worker = match worker {
                Ok(worker) => worker,
                Err(failure) => return drop(sender.send(Err(failure))),
            };
            model.metrics.latency(&model.name, "queue", began.elapsed());
            let decoding = Instant::now();
            let transcribing = model.clone();
            let run = move || {
                let found = transcribing
                    .transcribe(options, audio, &sender, &|| flag.load(Ordering::Relaxed));
                // The client may have disconnected.
                let _ = sender
                    .send(found.map(|whole| Heard::Whole(Box::new(whole))).map_err(Failure::from));
            };
            // After a panic the client finds the channel closed.
            let _ = tokio::task::spawn_blocking(run).await;
            model.metrics.latency(&model.name, "decode", decoding.elapsed());
            model.metrics.latency(&model.name, "request", began.elapsed());
        });
        Hearing { parts, is_wanted }
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.room.n_waiting()
    }

    fn transcribe(
        &self,
        options: TranscriptionOptions,
        audio: Bytes,
        sender: &UnboundedSender<Result<Heard, Failure>>,
        is_wanted: &dyn Fn() -> bool,
    ) -> cognate::Result<Transcription> {
        let transcriber = self.transcriber.with(options)?;
        let mut events = |event: TranscriptionEvent<'_>| {
            if let TranscriptionEvent::Segment(segment) = event {
                let _ = sender.send(Ok(Heard::Segment(segment.clone())));
            }
        };
        let found = transcriber.transcribe_while(
            AudioReader::from_bytes("file", audio)?,
            &mut events,
            is_wanted,
        )?;
        self.metrics.audio(&self.name, found.duration);
        Ok(found)
    }
}

impl Hearing {
    /// The next part; the last one is the whole transcription.
    pub(crate) async fn next(&mut self) -> Result<Heard, Failure> {
        let closed = || {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the engine panicked, or the server is stopping",
            )
        };
        self.parts.recv().await.unwrap_or_else(|| Err(closed()))
    }

    /// The whole transcription.
    pub(crate) async fn whole(&mut self) -> Result<Transcription, Failure> {
        loop {
            if let Heard::Whole(whole) = self.next().await? {
                return Ok(*whole);
            }
        }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}
