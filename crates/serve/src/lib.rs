//! A server that translates: NVIDIA's and KServe's Open Inference Protocol, LibreTranslate's API, metrics for Prometheus.
//!
//! Sentences of all requests wait in one queue for each model and share batches (`cognate_pipeline::TranslationQueue`); a request
//! whose client has left is cancelled within a decoding step. Every error has the form `{"error": "..."}`.

mod arguments;
mod detection;
mod error;
mod libretranslate;
mod listening;
mod metrics;
mod models;
mod oip;
mod passages;
mod requests;
mod routes;

pub use arguments::{Arguments, Pair};
pub use error::{Error, ErrorKind, Result};

use crate::metrics::Metrics;
use crate::models::Model;
use std::net::SocketAddr;
use std::sync::Arc;

/// What all requests share.
struct Server {
    /// In the order of the command line.
    models: Vec<Arc<Model>>,
    keys: Vec<String>,
    max_body: usize,
    metrics: Arc<Metrics>,
}

/// Loads the models and serves until the process is asked to end by SIGINT or SIGTERM; requests that have begun are answered first.
/// `started` is called with the address when the server listens.
///
/// # Errors
/// If an option is wrong, a model cannot be loaded, or the address cannot be used.
pub fn run(arguments: &Arguments, started: impl FnOnce(SocketAddr)) -> Result<()> {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    // Another subscriber of the process stays.
    let _ = if arguments.json_log { log.json().try_init() } else { log.try_init() };
    let keys = arguments.keys()?;
    let metrics = Arc::new(Metrics::new());
    let mut models: Vec<Arc<Model>> = Vec::new();
    for (name, folder) in &arguments.models {
        if models.iter().any(|model| model.name == *name) {
            return Err(Error::new(ErrorKind::Options, format_args!("--model: the name {name} is given twice")));
        }
        let model = Model::load(name, folder, arguments, &metrics)?;
        tracing::info!(model = %name, folder = %folder.display(), engine = model.translator.engine(), "loaded");
        model.translator.notices().iter().for_each(|notice| tracing::warn!(model = %name, "{notice}"));
        models.push(Arc::new(model));
    }
    for (name, _) in &arguments.languages {
        if !models.iter().any(|model| model.name == *name) {
            return Err(Error::new(ErrorKind::Options, format_args!("--languages: expected the name of a --model, found {name}")));
        }
    }
    let server = Arc::new(Server { models, keys, max_body: arguments.max_body, metrics });
    listening::serve(arguments, routes::routes(&server, arguments)?, started)
}
