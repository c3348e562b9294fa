//! The model that a command decodes with, and what computes it.

use crate::languages::Languages;
use crate::source::ModelSource;
use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate_runtime::{Device, Engine};
use std::path::PathBuf;

/// Which model, and where it runs.
#[derive(Clone, clap::Args)]
pub(crate) struct ModelOptions {
    /// An exported folder, or a checkpoint's folder, which is exported to a temporary one [default: $COGNATE_MODEL, else the
    /// checkpoint that comes with the repository]
    #[arg(short, long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) languages: Languages,
    /// What computes
    #[arg(long, default_value = "auto", value_parser = engine())]
    pub(crate) engine: Engine,
    /// Where it computes
    #[arg(long, default_value = "cpu", value_parser = device())]
    pub(crate) device: Device,
}

impl ModelOptions {
    /// Whether the command line names a model.
    pub(crate) fn is_named(&self) -> bool {
        self.model.is_some()
    }

    /// Where the model comes from.
    ///
    /// # Errors
    /// If there is none at the place that is named.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        let source = match &self.model {
            Some(path) => ModelSource::find(path)?,
            None => ModelSource::default()?,
        };
        // Beside graphs in place lie the weights that the reference evaluator takes.
        Ok(if self.engine == Engine::Reference { source.into_checkpoint() } else { source })
    }
}

fn engine() -> impl TypedValueParser<Value = Engine> {
    let values = [
        PossibleValue::new("auto").help("ONNX Runtime if its library is found, else tract"),
        PossibleValue::new("reference").help("the reference evaluator, slow; needs a checkpoint"),
        PossibleValue::new("tract").help("tract, in pure Rust, always there"),
        PossibleValue::new("ort").help("ONNX Runtime; `cargo xtask onnxruntime` brings its library"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

fn device() -> impl TypedValueParser<Value = Device> {
    let values = [
        PossibleValue::new("cpu").help("the processor"),
        PossibleValue::new("cuda").help("an NVIDIA GPU, by ONNX Runtime; an error where there is none"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_and_device_can_be_chosen() {
        let engines: Vec<_> = engine().possible_values().into_iter().flatten().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(engines, Engine::ALL.map(|engine| engine.to_string()));
        let devices: Vec<_> = device().possible_values().into_iter().flatten().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(devices, Device::ALL.map(|device| device.to_string()));
    }
}
