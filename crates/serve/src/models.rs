//! The models of a server, their queues, and translations by them.

use crate::arguments::{Arguments, Pair};
use crate::error::{Error, ErrorKind, Failure};
use crate::metrics::Metrics;
use axum::http::StatusCode;
use cognate::{
    DecodingOptions, Languages, Line, LoadOptions, ModelSource, Translation, Translator,
    TranslatorOptions,
};
use cognate_pipeline::{Answer, QueueOptions, Ticket, TranslationQueue};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A loaded model.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) translator: Translator,
    queue: TranslationQueue,
    /// The pair of `--languages`.
    pair: Option<Pair>,
    limits: Limits,
    metrics: Arc<Metrics>,
}

/// The limits of one request.
#[derive(Clone, Copy)]
struct Limits {
    sentences: usize,
    new_tokens: usize,
    beams: usize,
    timeout: std::time::Duration,
}

/// A request for translations.
pub(crate) struct Job {
    pub(crate) lines: Vec<Line>,
    pub(crate) languages: Languages,
    /// Options of decoding by name.
    pub(crate) options: Map<String, Value>,
}

/// Answers as they come; dropping it cancels the sentences.
pub(crate) struct Running {
    answers: UnboundedReceiver<(usize, Result<Answer, cognate::Error>)>,
    _ticket: Ticket,
}

impl Model {
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
            threads: arguments.threads.or(arguments.workers.map(|_| std::num::NonZeroUsize::MIN)),
            allow_missing_language: true,
            huge_pages: true,
            ..LoadOptions::default()
        };
        let options = TranslatorOptions {
            load,
            batch_tokens: Some(arguments.batch_tokens),
            ..TranslatorOptions::default()
        };
        let wrong =
            |error: cognate::Error| Error::new(ErrorKind::Model, format_args!("{name}: {error}"));
        let translator = Translator::load(source, &options).map_err(wrong)?;
        let (observed, model) = (metrics.clone(), name.to_owned());
        let observer = Box::new(move |event| observed.queue(&model, event));
        let queue = TranslationQueue::new(
            &translator,
            QueueOptions {
                waiting: arguments.max_waiting,
                held: arguments.max_held_tokens,
                observer,
            },
        )
        .map_err(wrong)?;
        let pair = arguments
            .languages
            .iter()
            .find(|(model, _)| model == name)
            .map(|(_, pair)| pair.clone());
        let limits = Limits {
            sentences: arguments.max_sentences,
            new_tokens: arguments.max_new_tokens.get(),
            beams: arguments.max_beams.get(),
            timeout: arguments.timeout,
        };
        Ok(Self { name: name.into(), translator, queue, pair, limits, metrics: metrics.clone() })
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.queue.n_waiting()
    }

    /// Pairs of languages by code; for a multilingual model every code with every other.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.pair.as_ref().map_or_else(
            || self.translator.model().tokenizer().languages(),
            |pair| vec![pair.source.clone()],
        )
    }

    pub(crate) fn targets(&self, source: &str) -> Vec<String> {
        match &self.pair {
            Some(pair) => vec![pair.target.clone()],
            None => self
                .translator
                .model()
                .tokenizer()
                .languages()
                .into_iter()
                .filter(|code| code != source)
                .collect(),
        }
    }

    /// The languages for the tokenizer, if the model translates this pair.
    pub(crate) fn languages(&self, source: &str, target: &str) -> Option<Languages> {
        if let Some(pair) = &self.pair {
            return (pair.source == source && pair.target == target).then(Languages::default);
        }
        let known = self.translator.model().tokenizer().languages();
        let has = |code: &str| known.iter().any(|known| known == code);
        (has(source) && has(target)).then(|| Languages {
            source_language: Some(source.into()),
            target_language: Some(target.into()),
        })
    }

    /// The translator of a request's options, which must be within the limits.
    fn translator(
        &self,
        languages: &Languages,
        options: &Map<String, Value>,
    ) -> Result<Translator, Failure> {
        let mut decoding = DecodingOptions::from_json(options)?;
        let Limits { new_tokens, beams, .. } = self.limits;
        let within = |name: &str, found: Option<std::num::NonZeroUsize>, limit: usize| match found {
            Some(found) if found.get() > limit => {
                Err(Failure::bad(format_args!("{name}: expected at most {limit}, found {found}")))
            }
            _ => Ok(()),
        };
        within("beams", decoding.beams, beams)?;
        within("n_best", decoding.n_best, beams)?;
        within("max_new_tokens", decoding.max_new_tokens, new_tokens)?;
        if decoding.max_new_tokens.is_none()
            && self.translator.settings().max_new_tokens > new_tokens
        {
            decoding.max_new_tokens = std::num::NonZeroUsize::new(new_tokens);
        }
        Ok(self.translator.with(languages, &decoding)?)
    }

    /// Queues a job.
    pub(crate) async fn start(
        self: &Arc<Self>,
        job: Job,
        streams: bool,
    ) -> Result<Running, Failure> {
        let (found, limit) = (job.lines.len(), self.limits.sentences);
        if found > limit {
            let message =
                format_args!("expected at most {limit} sentences in a request, found {found}")
                    .to_string();
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let (sender, answers) = unbounded_channel();
        let model = self.clone();
        let bytes = job.lines.iter().map(|line| line.text.len()).sum();
        let submit = move || -> Result<Ticket, Failure> {
            let translator = model.translator(&job.languages, &job.options)?;
            // The request may have ended.
            let receive = move |place, answer| drop(sender.send((place, answer)));
            Ok(model.queue.submit(&translator, &job.lines, streams, Box::new(receive))?)
        };
        Ok(Running { answers, _ticket: tokenizing(bytes, submit).await?? })
    }

    /// The translations of a job, in the order of its lines.
    pub(crate) async fn translate(self: &Arc<Self>, job: Job) -> Result<Vec<Translation>, Failure> {
        let (began, n_lines) = (Instant::now(), job.lines.len());
        let whole = async {
            let mut running = self.start(job, false).await?;
            let mut found = vec![None; n_lines];
            while found.iter().any(Option::is_none) {
                if let (place, Answer::Translation(translation)) = running.next().await? {
                    found[place] = Some(translation);
                }
            }
            Ok(found.into_iter().flatten().collect())
        };
        let timeout = self.limits.timeout;
        let done = tokio::time::timeout(timeout, whole).await;
        self.metrics.latency(&self.name, "request", began.elapsed());
        done.unwrap_or_else(|_| Err(late(timeout)))
    }

    pub(crate) fn timeout(&self) -> std::time::Duration {
        self.limits.timeout
    }
}

/// Runs work that tokenizes texts of so many bytes. Tokenizers need milliseconds for long texts,
/// which would delay other requests; for short ones less than another thread needs to wake up.
pub(crate) async fn tokenizing<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    const SHORT: usize = 1 << 10;
    if bytes <= SHORT {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}

/// The failure of a request that exceeded its time limit.
pub(crate) fn late(timeout: std::time::Duration) -> Failure {
    Failure::new(
        StatusCode::GATEWAY_TIMEOUT,
        format_args!("no answer within {} seconds", timeout.as_secs_f64()),
    )
}

impl Running {
    pub(crate) async fn next(&mut self) -> Result<(usize, Answer), Failure> {
        match self.answers.recv().await {
            Some((place, Ok(answer))) => Ok((place, answer)),
            Some((_, Err(error))) => Err(error.into()),
            None => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")),
        }
    }
}
