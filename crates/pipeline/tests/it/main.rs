//! Public behaviour of the pipeline that needs audio.
#![allow(clippy::unwrap_used, reason = "as in the folders of tests")]

mod small;
mod whisper;
