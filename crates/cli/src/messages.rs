//! Messages on standard error. A closed standard error is not an error.

use cognate::{Error, LoadedEncoder, Notice};
use std::any::Any;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};

/// The context of an error of standard output.
pub(crate) const UNWRITTEN: &str = "standard output: cannot be written";

/// Prints the notices about a model.
pub(crate) fn notices<'n>(notices: impl IntoIterator<Item = &'n Notice>) {
    for notice in notices {
        if notice.is_warning() { warning(notice) } else { note(notice) }
    }
}

/// The amount of messages besides warnings and errors.
static VOLUME: AtomicU8 = AtomicU8::new(NORMAL);
const QUIET: u8 = 0;
const NORMAL: u8 = 1;
const VERBOSE: u8 = 2;

/// Sets the amount of messages.
pub(crate) fn set_volume(quiet: bool, verbose: bool) {
    let volume = match (quiet, verbose) {
        (true, _) => QUIET,
        (false, true) => VERBOSE,
        (false, false) => NORMAL,
    };
    VOLUME.store(volume, Ordering::Relaxed);
}

/// Whether only warnings and errors are printed.
pub(crate) fn is_quiet() -> bool {
    VOLUME.load(Ordering::Relaxed) == QUIET
}

/// Whether bars and other progress are shown.
pub(crate) fn shows_progress() -> bool {
    !is_quiet() && io::stderr().is_terminal()
}

/// Prints additional information.
pub(crate) fn note(message: impl Display) {
    if !is_quiet() {
        say(format_args!("cognate: {message}"));
    }
}

/// Prints the model and the engine, on a terminal or with --verbose.
pub(crate) fn status(model: impl Display, engine: impl Display) {
    if io::stderr().is_terminal() || VOLUME.load(Ordering::Relaxed) == VERBOSE {
        note(format_args!("model {model} on {engine}"));
    }
}

/// Prints a warning.
pub(crate) fn warning(message: impl Display) {
    say(format_args!("cognate: warning: {message}"));
}

/// Warns of sentences that the model has not read to their ends.
pub(crate) fn truncated(model: &LoadedEncoder) {
    let limit = model.max_tokens();
    match model.n_truncated() {
        0 => {}
        1 => warning(format_args!("1 sentence was truncated to {limit} tokens")),
        n => warning(format_args!("{n} sentences were truncated to {limit} tokens")),
    }
}

/// Prints an error with the causes that its message does not contain.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain() {
        // Options of the library have the names of the command's.
        let option = cause.downcast_ref::<Error>().and_then(Error::option);
        let cause = option.map_or_else(
            || cause.to_string(),
            |(name, message)| format!("--{}: {message}", name.replace('_', "-")),
        );
        // A cause can begin with the place that its context names.
        if cause.starts_with(&text) {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    say(format_args!("cognate: error: {text}"));
}

/// Prints a panic.
pub(crate) fn bug(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text =
        text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    say(format_args!(
        "cognate: error: internal error (a bug in cognate), please report it: {text} (RUST_BACKTRACE=1 shows where)"
    ));
}

fn say(message: impl Display) {
    // One write, so that lines of several programs do not mix.
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}
