//! `--ignore-unused`: checkpoints with tensors that their model has no use for.

use crate::messages;
use anyhow::{Result, bail};
use cognate_model::Model;
use std::path::Path;

/// What becomes of such tensors.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Unused {
    /// Leave tensors of a checkpoint alone that its model has no use for, with a warning; else they are refused
    #[arg(long)]
    ignore_unused: bool,
}

impl Unused {
    /// Maps a checkpoint.
    ///
    /// # Errors
    /// As [`Model::open`] or [`Model::open_ignoring_unused`]; says so where the option would help.
    pub(crate) fn open(self, folder: &Path) -> Result<Model> {
        if self.ignore_unused {
            let (model, unused) = Model::open_ignoring_unused(folder)?;
            if !unused.is_empty() {
                let (count, names) = (unused.len(), messages::listed(&unused));
                let tensors = if count == 1 { "tensor is" } else { "tensors are" };
                messages::warning(format_args!(
                    "{}: {count} {tensors} left alone, of no use to the model of config.json: {names}",
                    folder.display()
                ));
            }
            return Ok(model);
        }
        match Model::open(folder) {
            Ok(model) => Ok(model),
            Err(error) if Model::open_ignoring_unused(folder).is_ok() => bail!("{error}\n--ignore-unused leaves them alone"),
            Err(error) => Err(error.into()),
        }
    }
}
