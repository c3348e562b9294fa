//! A server that translates and transcribes: NVIDIA's and KServe's Open Inference Protocol,
//! LibreTranslate's API, OpenAI's API of speech, metrics for Prometheus.
//!
//! Sentences of all requests wait in one queue for each model and share batches
//! (`cognate_pipeline::TranslationQueue`); a request whose client has left is cancelled within a
//! decoding step. Audio files wait for a worker of their model.

mod arguments;
mod compression;
mod connection;
mod detection;
mod error;
mod graphs;
mod libretranslate;
mod listening;
mod metrics;
mod models;
mod oip;
mod openai;
mod passages;
mod requests;
mod room;
mod routes;
mod speech;

pub use arguments::{Arguments, Pair};
pub use error::{Error, ErrorKind, Result};

use crate::graphs::Graph;
use crate::listening::Address;
use crate::metrics::Metrics;
use crate::models::Model;
use crate::speech::SpeechModel;
use cognate::{ModelSource, Transcriber};
use std::net::SocketAddr;
use std::path::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tracing::Level;

/// The state that all requests share.
struct Server {
    /// In the order of the command line.
    models: Vec<Arc<Model>>,
    speech: Vec<Arc<SpeechModel>>,
    graphs: Vec<Arc<Graph>>,
    keys: Vec<String>,
    max_body: usize,
    client_timeout: Duration,
    /// One permit for each audio file in memory.
    audio_room: Arc<Semaphore>,
    audio_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Server {
    /// The names of the models of texts and of speech.
    fn names(&self) -> impl Iterator<Item = &str> {
        let (texts, speech) = (
            self.models.iter().map(|model| &model.name),
            self.speech.iter().map(|model| &model.name),
        );
        texts.chain(speech).map(String::as_str)
    }
}

/// Loads the models and serves until the process receives SIGINT or SIGTERM; running requests are
/// completed first, unless it receives another. `started` is called with the address when the server
/// listens.
///
/// # Errors
/// If an option is invalid, a model cannot be loaded, the address cannot be used, or a second signal
/// ended running requests.
pub fn run(arguments: &Arguments, started: impl FnOnce(SocketAddr)) -> Result<()> {
    let level = if arguments.quiet { Level::WARN } else { Level::INFO };
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level);
    // Another subscriber of the process is kept.
    let _ = if arguments.json_log { log.json().try_init() } else { log.try_init() };
    let keys = arguments.keys()?;
    let cors = routes::cors(&arguments.cors)?;
    arguments.check_names()?;
    let sources = arguments.models.iter().map(|(name, folder)| {
        let source = ModelSource::find(folder).map_err(|error| unloadable(name, error.into()))?;
        Ok((name.as_str(), folder.display(), source))
    });
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let address = Address::take(arguments.listen)?;
    let server = Arc::new(Server::load(sources, arguments, keys)?);
    address.serve(arguments, routes::routes(&server, arguments, cors), started)
}

fn unloadable(name: &str, error: cognate::Error) -> Error {
    Error::new(ErrorKind::Model, format_args!("{name}: {error}"))
}

impl Server {
    fn load(
        sources: Vec<(&str, Display<'_>, ModelSource)>,
        arguments: &Arguments,
        keys: Vec<String>,
    ) -> Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let (mut models, mut speech, mut graphs) = (Vec::new(), Vec::new(), Vec::new());
        for (name, folder, source) in sources {
            let (engine, notices) = if let (ModelSource::File(file), None) =
                (&source, source.search_graph())
            {
                let graph = Graph::load(name, file, arguments, &metrics)?;
                let engine = graph.engine.clone();
                graphs.push(Arc::new(graph));
                (engine, Vec::new())
            } else if Transcriber::can_load(&source).map_err(|error| unloadable(name, error))? {
                let model = SpeechModel::load(name, source, arguments, &metrics)?;
                let about =
                    (model.transcriber.engine().to_owned(), model.transcriber.notices().to_vec());
                speech.push(Arc::new(model));
                about
            } else {
                let model = Model::load(name, source, arguments, &metrics)?;
                let about =
                    (model.translator.engine().to_owned(), model.translator.notices().to_vec());
                models.push(Arc::new(model));
                about
            };
            tracing::info!(model = %name, %folder, engine, "loaded");
            notices.iter().for_each(|notice| tracing::warn!(model = %name, "{notice}"));
        }
        let is_text = |name: &String| models.iter().any(|model| model.name == *name);
        match arguments.languages.iter().find(|(name, _)| !is_text(name)) {
            Some((name, _)) => Err(Error::new(
                ErrorKind::Options,
                format_args!("--languages: expected a model of text, found {name}"),
            )),
            None => Ok(Self {
                models,
                speech,
                graphs,
                keys,
                max_body: arguments.max_body,
                client_timeout: arguments.client_timeout,
                audio_room: Arc::new(Semaphore::new(listening::permits(
                    arguments.max_audio_requests,
                ))),
                audio_timeout: arguments.audio_timeout,
                metrics,
            }),
        }
    }
}
