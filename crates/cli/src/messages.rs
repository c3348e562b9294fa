//! What is said to people, on standard error. A closed standard error is no reason to fail.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write};

/// A fact by the way.
pub(crate) fn note(message: impl Display) {
    say(format_args!("cognate: {message}"));
}

/// Something that may not be as wished, after which the work goes on.
pub(crate) fn warning(message: impl Display) {
    say(format_args!("cognate: warning: {message}"));
}

/// Why the work ended, with the causes that the message does not tell by itself.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // A cause may begin with the place that was named before it.
        if cause.starts_with(&text) {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    say(format_args!("cognate: error: {text}"));
}

/// A panic: a mistake of this program.
pub(crate) fn bug(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    say(format_args!("cognate: error: a mistake of this program, please report it: {text} (RUST_BACKTRACE=1 shows where)"));
}

/// Names with commas between them, the first eight of many.
pub(crate) fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let told = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

fn say(message: impl Display) {
    // In one piece, so that lines of several programs do not mix.
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}
