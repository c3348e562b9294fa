//! The configuration of a model: `config.json` and `generation_config.json`.

use crate::error::AtPath;
use crate::{Error, ErrorKind, Result};
use cognate_model::{Config, read_text};
use std::io;
use std::path::Path;

/// The file that describes the model.
pub const CONFIG: &str = "config.json";

/// The file that describes how the model decodes.
pub const GENERATION_CONFIG: &str = "generation_config.json";

/// The configuration files of a folder.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The text of `config.json`.
    pub config_json: String,
    /// The model's configuration.
    pub config: Config,
    /// The text of `generation_config.json`, if there is one.
    pub generation_json: Option<String>,
}

impl Configuration {
    /// Reads the files in `folder`.
    ///
    /// # Errors
    /// If `config.json` is missing or not supported, or a file cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let config_json = read_text(&path).at(&path, "read")?;
        let config = Config::from_json(&config_json)
            .map_err(|error| Error::within(ErrorKind::Model, folder, error))?;
        let generation_json = read_if_there(&folder.join(GENERATION_CONFIG))?;
        Ok(Self { config_json, config, generation_json })
    }
}

/// The text of an optional file.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn read_if_there(path: &Path) -> Result<Option<String>> {
    match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).at(path, "read"),
    }
}
