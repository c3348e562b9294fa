//! The settings of a model's pictures or audio.

use crate::error::{Error, ErrorKind, Result};
use crate::read_if_there;
use serde_json::Value;
use std::path::Path;

/// The files that describe pictures, audio, and the spellings of Whisper's normaliser.
pub const PROCESSOR: [&str; 3] = [PREPROCESSOR_CONFIG, PROCESSOR_CONFIG, "normalizer.json"];

/// The settings of pictures or audio.
const PREPROCESSOR_CONFIG: &str = "preprocessor_config.json";

/// Where transformers 5 saves them if a model also has a tokenizer.
const PROCESSOR_CONFIG: &str = "processor_config.json";

/// The settings of one kind of input.
#[derive(Clone, Debug)]
pub struct ProcessorSettings {
    /// The file, as errors name it.
    pub place: String,
    /// JSON, with the fields of a `preprocessor_config.json`.
    pub text: String,
}

impl ProcessorSettings {
    /// The settings of `input` in `folder`: `"image_processor"` or `"feature_extractor"` in
    /// `processor_config.json`, else all of `preprocessor_config.json`, as transformers reads them.
    ///
    /// # Errors
    /// If neither file has them, or one is malformed or cannot be read.
    pub fn read(folder: &Path, input: &str) -> Result<Self> {
        let path = folder.join(PROCESSOR_CONFIG);
        if let Some(text) = read_if_there(&path)? {
            let settings: Value = serde_json::from_str(&text)
                .map_err(|error| Error::new(ErrorKind::Model, path.display(), error))?;
            let place = format!("{}: {input}", path.display());
            match settings.get(input) {
                None | Some(Value::Null) => {}
                Some(part @ Value::Object(_)) => return Ok(Self { place, text: part.to_string() }),
                Some(other) => {
                    let message = format!("expected an object of settings, found {other}");
                    return Err(Error::new(ErrorKind::Model, place, message));
                }
            }
        }
        let path = folder.join(PREPROCESSOR_CONFIG);
        let text = read_if_there(&path)?.ok_or_else(|| {
            let message = format!(
                "missing; copy it from the checkpoint, or {PROCESSOR_CONFIG} if it has {input}: it describes the model's input"
            );
            Error::new(ErrorKind::File, path.display(), message)
        })?;
        Ok(Self { place: path.display().to_string(), text })
    }
}
