//! Calls to the `tokenizers` library.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use tokenizers::normalizers::NormalizerWrapper;

/// Runs the library and returns its errors and its panics as text. The library shares only a cache
/// between calls, whose entries are written completely, so a panic leaves nothing inconsistent.
pub(crate) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => Err(panic_message(payload.as_ref())),
    }
}

/// The library's normalizer of these rules. They are read as part of a file, as the library has
/// compiled it.
pub(crate) fn normalizer(rules: &Value) -> tokenizers::Result<NormalizerWrapper> {
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": rules, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "vocab": {}, "unk_token": ""},
    });
    let tokenizer: tokenizers::Tokenizer = file.to_string().parse()?;
    Ok(tokenizer.get_normalizer().cloned().ok_or("expected a normalizer, found null")?)
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
