//! `cognate serve`: a server that translates.

use crate::{messages, signals};
use cognate_serve::ErrorKind;
use std::process::ExitCode;

/// Serve models: LibreTranslate's API, and the Open Inference Protocol of Triton and KServe
///
/// Sentences of all requests share batches. POST /translate and GET /languages are
/// LibreTranslate's; /v2 is the Open Inference Protocol, with generate and generate_stream;
/// /metrics is for Prometheus, /openapi.json lists all paths. SIGTERM and Ctrl-C end the server
/// after the requests that have begun, the second time at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    arguments: cognate_serve::Arguments,
}

const EXAMPLES: &str = "\
Examples:
  cognate serve --model opus=out --languages opus=en-de
  curl -d q=Hello. -d source=en -d target=de localhost:8000/translate
  cognate serve --model nllb=nllb-200 --listen 0.0.0.0:80 --api-keys keys.txt --json-log";

/// Runs the command.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let arguments =
        cognate_serve::Arguments { quiet: messages::is_quiet(), ..options.arguments.clone() };
    match cognate_serve::run(&arguments, |_| {}) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            messages::warning(error);
            signals::end()
        }
        served => Ok(served.map(|()| ExitCode::SUCCESS)?),
    }
}
