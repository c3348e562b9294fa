//! Metrics in Prometheus' text form.

use cognate_pipeline::QueueEvent;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRequest {
    path: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfModel {
    model: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    model: String,
    phase: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<OfRequest, Counter>,
    latency: Histograms<OfPhase>,
    fill: Histograms<OfModel>,
    tokens: Family<OfModel, Counter>,
    sentences: Family<OfModel, Counter>,
    audio: Family<OfModel, Counter<f64, AtomicU64>>,
    waiting_sentences: Family<OfModel, Gauge>,
    waiting_requests: Family<OfModel, Gauge>,
}

/// 1 ms to 65 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 11))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("cognate");
        let (latency, fill): (Histograms<_>, Histograms<_>) =
            (Family::new_with_constructor(seconds), Family::new_with_constructor(sizes));
        let (requests, audio) = (Family::default(), Family::default());
        let (tokens, sentences) = (Family::default(), Family::default());
        let (waiting_sentences, waiting_requests): (Family<_, Gauge>, Family<_, Gauge>) =
            (Family::default(), Family::default());
        registry.register("requests", "Answered requests", requests.clone());
        let help = "Latency: waiting (queue) and decoding (decode) of a sentence, an audio file or tensors; a whole request (request)";
        registry.register_with_unit("latency", help, Unit::Seconds, latency.clone());
        registry.register(
            "batch_sentences",
            "Sentences of a batch in a decoding step",
            fill.clone(),
        );
        registry.register(
            "generated_tokens",
            "Generated tokens, end tokens included",
            tokens.clone(),
        );
        registry.register("sentences", "Translated sentences", sentences.clone());
        registry.register_with_unit(
            "transcribed_audio",
            "Transcribed audio",
            Unit::Seconds,
            Family::clone(&audio),
        );
        let help = "Sentences that have not begun";
        registry.register("waiting_sentences", help, waiting_sentences.clone());
        let help = "Requests of audio files and of graphs that wait for a worker";
        registry.register("waiting_requests", help, waiting_requests.clone());
        Self {
            registry,
            requests,
            latency,
            fill,
            tokens,
            sentences,
            audio,
            waiting_sentences,
            waiting_requests,
        }
    }

    /// `path` is a route, so that there are as many series as routes.
    pub(crate) fn request(&self, path: &str, status: u16) {
        self.requests.get_or_create(&OfRequest { path: path.into(), status }).inc();
    }

    pub(crate) fn latency(&self, model: &str, phase: &'static str, took: Duration) {
        self.latency
            .get_or_create(&OfPhase { model: model.into(), phase })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn audio(&self, model: &str, seconds: f64) {
        self.audio.get_or_create(&OfModel { model: model.into() }).inc_by(seconds);
    }

    pub(crate) fn queue(&self, model: &str, event: QueueEvent) {
        let of = OfModel { model: model.into() };
        match event {
            QueueEvent::Began { waited } => self.latency(model, "queue", waited),
            QueueEvent::Advanced { sentences } => {
                self.fill.get_or_create(&of).observe(sentences as f64)
            }
            QueueEvent::Finished { tokens, took } => {
                self.latency(model, "decode", took);
                self.tokens.get_or_create(&of).inc_by(tokens as u64);
                self.sentences.get_or_create(&of).inc();
            }
            _ => {}
        }
    }

    /// The text, with the numbers of waiting sentences and requests of each model.
    pub(crate) fn text<'m>(
        &self,
        sentences: impl Iterator<Item = (&'m str, usize)>,
        requests: impl Iterator<Item = (&'m str, usize)>,
    ) -> String {
        let set = |gauges: &Family<OfModel, Gauge>, model: &str, count| {
            gauges
                .get_or_create(&OfModel { model: model.into() })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        sentences.for_each(|(model, count)| set(&self.waiting_sentences, model, count));
        requests.for_each(|(model, count)| set(&self.waiting_requests, model, count));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all text");
        text
    }
}
