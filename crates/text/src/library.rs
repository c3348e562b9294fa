//! Calls to the `tokenizers` library.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the library and returns its errors and its panics as text. The library shares only a cache between calls, whose entries
/// are written whole, so a panic leaves nothing inconsistent.
pub(crate) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => Err(panic_message(payload.as_ref())),
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_message() {
        let failure = guarded(|| -> tokenizers::Result<()> { panic!("at {}", 3) });
        assert_eq!(failure, Err("it panicked: at 3".to_owned()));
    }
}
