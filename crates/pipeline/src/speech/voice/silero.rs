//! Voice activity by Silero's detector (<https://github.com/snakers4/silero-vad>, MIT): a recurrent
//! network over blocks of 512 samples.
//!
//! Both forms of the package `silero-vad` are read: `silero_vad_16k_sequence.onnx`, which takes
//! many blocks at once, and those that take one, such as `silero_vad_op18_ifless.onnx`.

use super::{Activity, VoiceDetector};
use crate::error::{Cause, Result};
use crate::options::LoadOptions;
use cognate_audio::SAMPLE_RATE;
use cognate_runtime::{Device, Engine, Loaded, Options, Session, Value, Values};
use ndarray::{Array2, Array3, arr0, s};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The samples of a block.
const BLOCK: usize = 512;
/// The samples before a block that the network sees too.
const CONTEXT: usize = 64;
/// The size of the recurrent state.
const STATE: usize = 128;
/// The largest number of blocks of one call.
const BLOCKS: usize = 256;
/// The probabilities at which speech begins and ends: the package's own.
const THRESHOLDS: [f32; 2] = [0.5, 0.35];
/// Samples of a frame.
const HOP: usize = 160;

/// The network.
pub(crate) struct SileroModel {
    file: PathBuf,
    graph: Arc<dyn Loaded>,
    form: Form,
}

/// Which state a file carries from block to block, and what it calls the probabilities.
#[derive(Clone, Copy)]
struct Form {
    /// Inputs with the outputs that follow them, and the layers of each state.
    states: &'static [(&'static str, &'static str, usize)],
    output: &'static str,
    n_blocks: usize,
    /// Whether the sample rate is an input.
    takes_rate: bool,
}

const SEQUENCE: Form = Form {
    states: &[("h", "hn", 1), ("c", "cn", 1)],
    output: "speech_probs",
    n_blocks: BLOCKS,
    takes_rate: false,
};
const STREAM: Form =
    Form { states: &[("state", "stateN", 2)], output: "output", n_blocks: 1, takes_rate: true };

impl SileroModel {
    /// Loads the network from `path` by the engine of `options`; the reference evaluator, which
    /// reads no files, leaves it to another.
    pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Self> {
        let engine =
            if options.engine == Engine::Reference { Engine::Auto } else { options.engine };
        let runtime = engine.open(Device::Cpu)?;
        let load = Options {
            threads: Some(NonZeroUsize::MIN),
            workers: Some(NonZeroUsize::MIN),
            ..Options::default()
        };
        let graph = runtime.read_file(path, &load)?;
        let session = graph.clone().session();
        let has = |form: &Form| {
            let is_state = |(input, output, _): &(&str, &str, usize)| {
                session.inputs().iter().any(|name| name == input)
                    && session.outputs().iter().any(|name| name == output)
            };
            form.states.iter().all(is_state)
                && session.outputs().iter().any(|name| name == form.output)
        };
        let Some(form) = [SEQUENCE, STREAM].into_iter().find(has) else {
            let (inputs, outputs) = (session.inputs().join(", "), session.outputs().join(", "));
            let message = format!(
                "{}: expected a file of the package silero-vad, with the inputs input, h, c or input, sr, state; found {inputs} -> {outputs}",
                path.display()
            );
            return Err(Cause::InFolder(message).into());
        };
        Ok(Self { file: path.to_owned(), graph, form })
    }

    /// The file that was loaded.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// A detector for one stream of audio.
    pub(crate) fn detector(&self) -> Silero {
        let form = self.form;
        let mut values = Values::new();
        for &(input, _, layers) in form.states {
            values.insert(input, Array3::<f32>::zeros((layers, 1, STATE)).into_dyn());
        }
        if form.takes_rate {
            values.insert("sr", arr0(i64::from(SAMPLE_RATE)).into_dyn());
        }
        Silero {
            session: self.graph.clone().session(),
            form,
            values,
            pending: vec![0.0; CONTEXT],
            probabilities: Vec::new(),
        }
    }
}

/// The probability of speech of each block.
pub(crate) struct Silero {
    session: Box<dyn Session>,
    form: Form,
    /// The state, and what the network takes beside samples.
    values: Values,
    /// The context, and samples that do not fill a call yet.
    pending: Vec<f32>,
    probabilities: Vec<f32>,
}

impl Silero {
    /// Runs the network on the first blocks that are pending.
    fn run(&mut self, n_blocks: usize) -> Result<()> {
        let mut input = Array2::zeros((n_blocks, CONTEXT + BLOCK));
        for (index, mut row) in input.outer_iter_mut().enumerate() {
            let samples = &self.pending[index * BLOCK..][..CONTEXT + BLOCK];
            row.slice_mut(s![..]).iter_mut().zip(samples).for_each(|(to, from)| *to = *from);
        }
        self.values.insert("input", input.into_dyn());
        let mut outputs = self.session.run(&self.values)?;
        let mut take = |name: &str| -> Result<Value> {
            let missing = || {
                Cause::InFolder(format!(
                    "{}: the output {name} of the voice detector is missing",
                    self.session.engine()
                ))
            };
            Ok(outputs.remove(name).ok_or_else(missing)?)
        };
        self.probabilities.extend(take(self.form.output)?.to_f32()?.iter().take(n_blocks));
        for &(input, output, _) in self.form.states {
            self.values.insert(input, take(output)?);
        }
        self.pending.drain(..n_blocks * BLOCK);
        Ok(())
    }
}

impl VoiceDetector for Silero {
    fn samples(&mut self, samples: &[f32]) -> Result<()> {
        self.pending.extend_from_slice(samples);
        while self.pending.len() >= CONTEXT + self.form.n_blocks * BLOCK {
            self.run(self.form.n_blocks)?;
        }
        Ok(())
    }

    fn frame(&mut self, _: &[f32]) {}

    fn finish(mut self: Box<Self>, n_frames: usize) -> Result<Activity> {
        // Zeros complete the last block.
        let n_blocks = (self.pending.len() - CONTEXT).div_ceil(BLOCK);
        self.pending.resize(CONTEXT + n_blocks * BLOCK, 0.0);
        for begin in (0..n_blocks).step_by(self.form.n_blocks) {
            self.run(self.form.n_blocks.min(n_blocks - begin))?;
        }
        let at = |frame: usize| self.probabilities.get(frame * HOP / BLOCK).copied().unwrap_or(0.0);
        Ok(Activity { frames: (0..n_frames).map(at).collect(), thresholds: THRESHOLDS })
    }
}
