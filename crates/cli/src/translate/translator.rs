//! A loaded model with its tokenizer: from a line to its translation.

use super::input::Line;
use super::{Crew, Options};
use crate::decoding::Decoding;
use crate::messages;
use crate::model_files::{Graphs, ModelFiles, configuration};
use crate::source::ModelSource;
use anyhow::{Context, Result, bail};
use cognate_export::Staged;
use cognate_generate::{Batch, Decoder, Event, Hypothesis, Settings, decode, decoder as decoder_of};
use cognate_model::{Config, Layout};
use cognate_pipeline::{EncodedSource, SourceEncoder, TargetNaming, decode_into, open_tokenizer};
use cognate_runtime::{Loaded, Options as Load, Runtime, Session, Source};
use cognate_text::{GrowingText, Tokenizer};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// A model that translates.
pub(crate) struct Translator {
    tokenizer: Tokenizer,
    sources: SourceEncoder,
    target_naming: TargetNaming,
    /// The encoder and the decoder, with the weights that all workers have in common.
    graphs: Vec<Arc<dyn Loaded>>,
    layout: Layout,
    engine: String,
    settings: Settings,
    decoding: Decoding,
    /// What a translation begins with that has nothing of its own to begin with.
    prefix: Vec<i64>,
    config: Config,
    /// The export of a checkpoint, while an engine may read it.
    _exported: Option<Staged>,
}

/// A translated line.
#[derive(Debug)]
pub(crate) struct Translation {
    /// Its line, or its lines where several translations are asked for.
    pub(crate) text: String,
    /// The tokens that were generated.
    pub(crate) n_tokens: usize,
    /// Whether the end was reached.
    pub(crate) complete: bool,
}

impl Translator {
    /// Loads the model as the options say, for `crew`. What is wrong with small files is found before large ones are touched.
    pub(crate) fn load(source: &ModelSource, options: &Options, crew: Crew) -> Result<Self> {
        let ModelFiles { config, settings, tokenizer, target_naming } =
            options.model.files(source, |settings, config| adjusted(settings, options, config))?;
        let text = options.decoding.target_prefix().unwrap_or_default();
        let prefix = prefix(text, &tokenizer, &settings).context("--target-prefix")?;
        let sources = SourceEncoder::new(&tokenizer, &config, &settings);
        let runtime = options.model.engine.open(options.model.device)?;
        let Graphs { layout, graphs, exported } = options.model.graphs(source, &*runtime, options.unused, options.decoding.attentions())?;
        if runtime.name() != "ort" && options.threads.is_some_and(|threads| threads.get() > 1) {
            messages::warning(format_args!("--threads: {} runs on one thread; only ort uses more", runtime.name()));
        }
        let (threads, workers) = (crew.threads, Some(crew.workers));
        let load = Load { device: options.model.device, threads, workers, plain: false, huge_pages: true };
        let graphs = graphs.iter().map(|graph| runtime.read(graph, &load)).collect::<Result<Vec<_>, _>>()?;
        let engine = decoder_of(layout, sessions(&graphs), &config, settings.pad_token)?.engine().into();
        // Sessions have read or mapped the files by now. Where a file may be removed while it is mapped, it is: an interrupted
        // program leaves nothing behind.
        let exported = exported.filter(|_| cfg!(not(unix)));
        let decoding = options.decoding.clone();
        Ok(Self { tokenizer, sources, target_naming, graphs, layout, engine, settings, decoding, prefix, config, _exported: exported })
    }

    /// Loads an export of this program, to be compared with another one: each worker has one thread where there are several, and
    /// its files say how it translates, but for drawing, which compares nothing.
    pub(crate) fn of_export(folder: &Path, layout: Layout, runtime: &dyn Runtime, workers: NonZeroUsize) -> Result<Self> {
        let (_, config, mut settings) = configuration(folder)?;
        (settings.sampling, settings.num_return_sequences) = (None, 1);
        let tokenizer = open_tokenizer(folder, &config)?;
        decode_into(&tokenizer, &mut settings);
        let sources = SourceEncoder::new(&tokenizer, &config, &settings);
        let one = NonZeroUsize::MIN;
        let threads = (workers > one).then_some(one);
        let load = Load { threads, workers: Some(workers), huge_pages: true, ..Load::default() };
        let graphs = layout.files().map(|file| runtime.read(&Source::Onnx(folder.join(file)), &load));
        let graphs = graphs.into_iter().collect::<Result<Vec<_>, _>>()?;
        let engine = decoder_of(layout, sessions(&graphs), &config, settings.pad_token)?.engine().into();
        let (target_naming, decoding, prefix) = (TargetNaming::Settled, Decoding::default(), Vec::new());
        Ok(Self { tokenizer, sources, target_naming, graphs, layout, engine, settings, decoding, prefix, config, _exported: None })
    }

    /// What executes.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// A decoder for one worker; it has its own state and no weights.
    pub(crate) fn decoder(&self) -> Result<Box<dyn Decoder>> {
        Ok(decoder_of(self.layout, sessions(&self.graphs), &self.config, self.settings.pad_token)?)
    }

    /// How it decodes.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The most tokens of a source.
    pub(crate) fn max_positions(&self) -> usize {
        self.sources.max_tokens()
    }

    /// The tokens of a line, as many as the model can take.
    pub(crate) fn encode(&self, line: &str) -> Result<EncodedSource> {
        Ok(self.sources.encode(line)?)
    }

    /// Whether a line does not say which language to translate into, and nothing else does.
    pub(crate) fn lacks_language(&self, line: &str) -> bool {
        let code = || Some(line.strip_prefix(">>")?.split_once("<<")?.0);
        match &self.target_naming {
            TargetNaming::InSentences(codes) => code().is_none_or(|code| !codes.iter().any(|known| known == code)),
            TargetNaming::Settled | TargetNaming::Missing { .. } => false,
        }
    }

    /// The tokens that the translation of a line begins with.
    ///
    /// # Errors
    /// If the model has no room for them.
    pub(crate) fn prefix(&self, line: &Line) -> Result<Vec<i64>> {
        line.prefix.as_ref().map_or_else(|| Ok(self.prefix.clone()), |text| prefix(text, &self.tokenizer, &self.settings))
    }

    /// Translates a batch of sentences by a worker's decoder. They have their numbers from 1, from which follows what is drawn for
    /// them. Where `is_wanted` says no any more, it ends with the next step, and translations are as far as they are.
    pub(crate) fn translate(&self, decoder: &mut dyn Decoder, batch: &Batch<'_>, is_wanted: impl Fn() -> bool) -> Result<Vec<Translation>> {
        let mut observer = |_| if is_wanted() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let found = decode(decoder, batch, &self.settings, &mut observer)?;
        found.into_iter().zip(batch.numbers).map(|(hypotheses, &number)| self.translation(number, &hypotheses)).collect()
    }

    /// Translates a batch of one sentence, and hands on its line word by word. Tells whether the end was reached.
    ///
    /// # Errors
    /// If the engine fails, or `write` does.
    pub(crate) fn stream(
        &self,
        decoder: &mut dyn Decoder,
        sentence: &Batch<'_>,
        write: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<bool> {
        let (mut text, mut failure) = (GrowingText::new(&self.tokenizer), None);
        let mut tell = |words: String| if words.is_empty() { Ok(()) } else { write(&self.decoding.text_column(on_one_line(words))) };
        let mut observer = |event| {
            let Event::Token { token, .. } = event else { return ControlFlow::Continue(()) };
            failure = text.push(token).map_err(Into::into).and_then(&mut tell).err();
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let found = decode(decoder, sentence, &self.settings, &mut observer)?;
        if let Some(error) = failure {
            return Err(error);
        }
        tell(text.finish()?)?;
        let Some(hypothesis) = found.first().and_then(|hypotheses| hypotheses.first()) else { return Ok(true) };
        write(&self.decoding.columns(hypothesis))?;
        Ok(hypothesis.complete)
    }

    /// The text of a translation, on one line.
    pub(crate) fn text(&self, hypothesis: &Hypothesis) -> Result<String> {
        Ok(on_one_line(self.tokenizer.decode(&hypothesis.tokens)?))
    }

    fn translation(&self, number: u64, hypotheses: &[Hypothesis]) -> Result<Translation> {
        let mut lines = Vec::with_capacity(hypotheses.len());
        for hypothesis in hypotheses {
            lines.push(self.decoding.line(number, self.text(hypothesis)?, hypothesis));
        }
        let n_tokens = hypotheses.iter().map(|hypothesis| hypothesis.tokens.len() + usize::from(hypothesis.complete)).sum();
        let complete = hypotheses.first().is_none_or(|best| best.complete);
        Ok(Translation { text: lines.join("\n"), n_tokens, complete })
    }
}

/// A session of each file; none has weights of its own.
fn sessions(graphs: &[Arc<dyn Loaded>]) -> Vec<Box<dyn Session>> {
    graphs.iter().map(|graph| graph.clone().session()).collect()
}

/// The tokens that a translation begins with: the language, where it is forced to come first, and the text's.
fn prefix(text: &str, tokenizer: &Tokenizer, settings: &Settings) -> Result<Vec<i64>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let ids = tokenizer.encode_target(text)?;
    let prefix: Vec<_> = settings.forced_bos_token.into_iter().chain(ids).collect();
    let room = settings.max_length.saturating_sub(2).min(settings.max_new_tokens.saturating_sub(1));
    if prefix.len() > room {
        bail!("has {} tokens; expected at most {room}, for which the model has room", prefix.len());
    }
    Ok(prefix)
}

/// The model's settings with those of the command line in their place.
fn adjusted(mut settings: Settings, options: &Options, config: &Config) -> Result<Settings> {
    if let Some(beams) = options.beams {
        settings.num_beams = beams.get();
    }
    if let Some(limit) = options.max_new_tokens {
        settings.max_new_tokens = limit.get();
        settings.max_length = config.max_positions.map_or(usize::MAX, |positions| positions + 1);
    }
    if let Some(limit) = config.max_positions.filter(|&limit| settings.max_new_tokens > limit) {
        bail!("--max-new-tokens: expected at most {limit}, the positions of the model, found {}", settings.max_new_tokens);
    }
    options.decoding.apply(&mut settings, options.beams, config)?;
    if options.stream && settings.num_beams > 1 {
        let beams = settings.num_beams;
        bail!("--stream: a search with {beams} beams knows no word before its end; add --beams 1, or --sample, or leave --stream out");
    }
    Ok(settings)
}

/// A translation takes one line of the output, whatever its tokens spell.
fn on_one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks() {
        assert_eq!(on_one_line("a\r\nb\n".into()), "a  b ");
    }
}
