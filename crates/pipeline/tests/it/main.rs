//! Public behaviour of the pipeline: the queue, and what needs audio.
#![allow(clippy::unwrap_used, reason = "as in the folders of tests")]

mod openai;
mod queue;
mod small;
mod whisper;
