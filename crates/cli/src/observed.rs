//! A loaded model whose attention is looked at: from a sentence to its words and weights.

mod explained;

use crate::account::Account;
use crate::amounts::at_most;
use crate::export::Precision;
use crate::layout;
use crate::messages;
use crate::model_files::{Graphs, ModelFiles};
use crate::model_options::ModelOptions;
use crate::source::ModelSource;
use crate::unused::Unused;
use anyhow::{Context, Result, bail};
use cognate_export::{Listing, Staged};
use cognate_generate::{Attended, Attending, BeamTree, Hypothesis, Settings, attend, beam_tree, decoder as decoder_of, generate};
use cognate_model::{Attentions, Config, Layout, Model, Names};
use cognate_pictures::{Example, Source, Target, Token, Weights};
use cognate_runtime::{Loaded, Options as Load, Session};
use cognate_verify::open_exported;
use explained::Likelihoods;
use ndarray::Array4;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// The sentence, and whose translation is looked along.
#[derive(clap::Args)]
pub(crate) struct Given {
    /// The sentence [default: the line on standard input]
    #[arg(value_name = "SENTENCE")]
    sentence: Option<String>,
    /// Look along this translation instead of the model's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) target: Option<String>,
}

impl Given {
    /// The sentence, read if it is not on the command line.
    pub(crate) fn sentence(&self) -> Result<String> {
        self.sentence.clone().map_or_else(line, Ok)
    }
}

/// How the model translates what is looked at.
#[derive(clap::Args)]
pub(crate) struct Observing {
    /// Hypotheses kept in beam search for a translation; 1 is greedy [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(256))]
    pub(crate) beams: Option<NonZeroUsize>,
    /// The most tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    pub(crate) max_new_tokens: Option<NonZeroUsize>,
    /// Threads that ONNX Runtime uses [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// A model whose graphs give their attention weights.
pub(crate) struct Observed {
    source: ModelSource,
    files: ModelFiles,
    layout: Layout,
    /// The encoder and the decoder.
    graphs: Vec<Arc<dyn Loaded>>,
    engine: String,
    /// The export of a checkpoint, while an engine may read it.
    _exported: Option<Staged>,
}

/// A sentence and what its translation was made of.
struct Seen {
    /// The source's ids, with its end.
    source: Vec<i64>,
    /// What the decoder reads, from the start token on.
    read: Vec<i64>,
    /// What it writes at each of these places.
    written: Vec<i64>,
    text: String,
    /// Whether somebody else translated.
    is_given: bool,
}

/// What is told of a sentence beside its attention.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Telling {
    /// Nothing.
    Omit,
    /// Everything, with so many likely next words at each step.
    Likeliest(usize),
}

impl Observed {
    /// Loads the model as the options say.
    ///
    /// # Errors
    /// If its graphs give no attention weights, or it cannot be loaded.
    pub(crate) fn load(model: &ModelOptions, unused: Unused, observing: &Observing) -> Result<Self> {
        let source = with_attentions(model.source()?)?;
        let files = model.files(&source, |settings, config| adjusted(settings, observing, config))?;
        let runtime = model.engine.open(model.device)?;
        let Graphs { layout, graphs, exported } = model.graphs(&source, &*runtime, unused, Attentions::All)?;
        let load = Load { device: model.device, threads: observing.threads, ..Load::default() };
        let graphs = graphs.iter().map(|graph| runtime.read(graph, &load)).collect::<Result<Vec<_>, _>>()?;
        let mut observed = Self { source, files, layout, graphs, engine: String::new(), _exported: exported };
        observed.engine = observed.sessions()[1].engine().to_owned();
        Ok(observed)
    }

    /// Where the model comes from.
    pub(crate) fn source(&self) -> &ModelSource {
        &self.source
    }

    /// What executes.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    pub(crate) fn config(&self) -> &Config {
        &self.files.config
    }

    /// How it translates.
    fn settings(&self) -> &Settings {
        &self.files.settings
    }

    /// The weights, where there are some as they were trained.
    ///
    /// # Errors
    /// If an export rounds them.
    fn model(&self, unused: Unused) -> Result<Model> {
        let ModelSource::Exported(folder) = &self.source else { return self.source.open(0, unused) };
        let precision = Account::read(folder)?.and_then(|account| Precision::named(&account.precision)).unwrap_or_default();
        if precision.is_quantised() {
            bail!("{}: its weights are rounded to integers", folder.display());
        }
        Ok(open_exported(folder, self.layout)?)
    }

    /// The hypotheses of a beam search, and all that ran.
    ///
    /// # Errors
    /// If the engine fails.
    fn beam_tree(&self, source: &[i64]) -> Result<(Vec<Hypothesis>, BeamTree)> {
        let settings = &self.files.settings;
        let mut decoder = decoder_of(self.layout, self.sessions(), &self.files.config, settings.pad_token)?;
        Ok(beam_tree(decoder.as_mut(), source, settings)?)
    }

    /// The text of a translation.
    fn text(&self, tokens: &[i64]) -> Result<String> {
        Ok(self.files.tokenizer.decode(tokens)?)
    }

    fn sessions(&self) -> Vec<Box<dyn Session>> {
        self.graphs.iter().map(|graph| graph.clone().session()).collect()
    }

    /// The words of a sentence and of its translation: the given one, or the model's.
    ///
    /// # Errors
    /// If one of them is empty or too long, or the engine fails.
    fn seen(&self, text: &str, target: Option<&str>) -> Result<Seen> {
        let source = self.files.source_ids(text)?;
        let settings = &self.files.settings;
        let is_given = target.is_some();
        let (tokens, complete, text) = match target {
            Some(target) => (self.files.target_ids(target).context("--target")?, true, target.to_owned()),
            None => {
                let Hypothesis { tokens, complete, .. } = self.translate(&source)?;
                let text = self.files.tokenizer.decode(&tokens)?;
                (tokens, complete, text)
            }
        };
        let end = settings.eos_tokens.first().copied().filter(|_| complete);
        let written: Vec<_> = tokens.into_iter().chain(end).collect();
        if written.is_empty() {
            bail!("the translation has no tokens; there is nothing to look at");
        }
        let read = [settings.start_token].into_iter().chain(written[..written.len() - 1].iter().copied()).collect();
        Ok(Seen { source, read, written, text, is_given })
    }

    fn translate(&self, source: &[i64]) -> Result<Hypothesis> {
        let settings = &self.files.settings;
        let mut decoder = decoder_of(self.layout, self.sessions(), &self.files.config, settings.pad_token)?;
        let found = generate(decoder.as_mut(), &[source.to_vec()], settings)?;
        found.into_iter().next().context("the model gave no translation")
    }

    /// What is attended to along a translation, and what might have come next instead.
    ///
    /// # Errors
    /// If the engine fails.
    fn attended(&self, seen: &Seen, likeliest: usize) -> Result<Attended> {
        let mut sessions = self.sessions();
        let [encoder, decoder] = sessions.as_mut_slice() else {
            bail!("{}: expected an encoder and a decoder, found {} graphs", self.source, self.graphs.len())
        };
        let sentence = Attending { source: &seen.source, target: &seen.read, likeliest };
        Ok(attend(self.layout, [encoder.as_mut(), decoder.as_mut()], &self.files.config, sentence)?)
    }

    /// A sentence with everything that a picture shows, and what is to be told of it.
    ///
    /// # Errors
    /// If a text is empty or too long, or the engine fails.
    pub(crate) fn example(&self, text: &str, target: Option<&str>, telling: Telling, unused: Unused) -> Result<Example> {
        let seen = self.seen(text, target)?;
        let likeliest = match telling {
            Telling::Omit => 1,
            Telling::Likeliest(likeliest) => likeliest,
        };
        let mut attended = self.attended(&seen, likeliest)?;
        let likelihoods = Likelihoods::take(&mut attended);
        let source_piece = |id: &i64| Token { piece: self.source_piece(*id), id: *id };
        let tokens = |ids: &[i64]| ids.iter().map(|&id| Token { piece: self.piece(id), id }).collect();
        let mut example = Example {
            source: Source { text: text.to_owned(), tokens: seen.source.iter().map(source_piece).collect() },
            target: Target { text: seen.text.clone(), read: tokens(&seen.read), written: tokens(&seen.written) },
            encoder_attentions: weights(attended.encoder)?,
            decoder_attentions: weights(attended.decoder)?,
            cross_attentions: weights(attended.cross)?,
            explained: None,
        };
        if matches!(telling, Telling::Likeliest(_)) {
            example.explained = Some(self.explained(&seen, &example, likelihoods, unused)?);
        }
        Ok(example)
    }

    /// A piece of the source's vocabulary.
    fn source_piece(&self, id: i64) -> String {
        self.files.tokenizer.source_piece(id).unwrap_or_else(|| format!("<{id}>"))
    }

    /// A piece of the target's vocabulary.
    fn piece(&self, id: i64) -> String {
        self.files.tokenizer.piece(id).unwrap_or_else(|| format!("<{id}>"))
    }
}

fn weights(found: Array4<f32>) -> Result<Weights> {
    let (layers, heads, rows, columns) = found.dim();
    Ok(Weights::new([layers, heads, rows, columns], found.into_iter().collect())?)
}

/// The model's settings with those of the command line in their place. What is drawn would not come again.
fn adjusted(mut settings: Settings, observing: &Observing, config: &Config) -> Result<Settings> {
    (settings.sampling, settings.num_return_sequences, settings.alignment_layer) = (None, 1, None);
    if let Some(beams) = observing.beams {
        settings.num_beams = beams.get();
    }
    if let Some(limit) = observing.max_new_tokens {
        settings.max_new_tokens = limit.get();
        settings.max_length = config.max_positions.map_or(usize::MAX, |positions| positions + 1);
    }
    if let Some(limit) = config.max_positions.filter(|&limit| settings.max_new_tokens > limit) {
        bail!("--max-new-tokens: expected at most {limit}, the positions of the model, found {}", settings.max_new_tokens);
    }
    Ok(settings)
}

/// A source whose graphs give their attention weights. Where those of an export do not, and the checkpoint lies beside them, that.
fn with_attentions(source: ModelSource) -> Result<ModelSource> {
    let ModelSource::Exported(folder) = &source else { return Ok(source) };
    let place = folder.display();
    let Some(lack) = lack(folder)? else { return Ok(source) };
    match source.clone().into_checkpoint() {
        ModelSource::Exported(_) => bail!("{place}: {lack}, or give the checkpoint that it was made from"),
        checkpoint => {
            messages::note(format_args!(
                "{place}: its graphs give no attention weights; its checkpoint is exported again, to a temporary folder"
            ));
            Ok(checkpoint)
        }
    }
}

/// Why the graphs in a folder do not give all their attention weights, and what to do.
fn lack(folder: &Path) -> Result<Option<&'static str>> {
    if layout::optimum(folder).is_some() {
        return Ok(Some(
            "is an export of Optimum, without attention weights; export the checkpoint by `cognate export CHECKPOINT OUT --attentions`",
        ));
    }
    Account::check(folder)?;
    let layout = layout::of_own(folder)?;
    if layout == Layout::SharedCache {
        return Ok(Some(
            "was exported with --target ort, whose attention keeps its weights; export it again without --target ort and with --attentions",
        ));
    }
    for (file, name) in layout.files().into_iter().zip([Names::encoder_attentions(0), Names::decoder_attentions(0)]) {
        let listing = Listing::read(&folder.join(file))?;
        if !listing.outputs.iter().any(|(output, _)| *output == name) {
            return Ok(Some("was exported without attention weights; export it again with --attentions"));
        }
    }
    Ok(None)
}

/// The one line on standard input.
fn line() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("stdin: expected a sentence in UTF-8")?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match (lines.next(), lines.count()) {
        (Some(line), 0) => Ok(line.to_owned()),
        (None, _) => bail!("stdin: expected a sentence, found none; give it as the argument, or by a pipe"),
        (Some(_), more) => bail!("stdin: expected one sentence, found {} lines", more + 1),
    }
}
