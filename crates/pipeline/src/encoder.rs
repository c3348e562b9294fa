//! A loaded encoder: its configuration, tokenizer or image processor, and graph; and batches
//! through it.

use crate::batches::{BatchLimit, batches, on_workers};
use crate::copies::Copies;
use crate::error::{Cause, Error, ErrorKind, Result};
use crate::images::ImageInput;
use crate::loaded::{exported_graphs, model_graphs};
use crate::options::LoadOptions;
use crate::source::{EncodedSource, SourceEncoder};
use crate::tokenizer::open_tokenizer;
use cognate_folder::{Configuration, Manifest, ModelSource};
use cognate_images::Image;
use cognate_model::interface::{ATTENTION_MASK, INPUT_IDS, PIXEL_VALUES, TOKEN_TYPE_IDS};
use cognate_model::{Attentions, Config, Front, Model};
use cognate_runtime::{Engine, Session, Values};
use ndarray::{Array2, ArrayD, ArrayView1, Ix3, ShapeError};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A loaded encoder. Its sessions share the weights.
pub struct LoadedEncoder {
    source: ModelSource,
    config_json: String,
    config: Config,
    reads: Reads,
    copies: Arc<Copies>,
    engine: String,
    /// Of the graph.
    inputs: Vec<String>,
    outputs: Vec<String>,
    workers: NonZeroUsize,
    n_truncated: AtomicUsize,
}

/// What the encoder reads.
enum Reads {
    Texts(SourceEncoder),
    Images(ImageInput),
}

/// Tokens that are read together, padding included.
pub(crate) const BATCH_TOKENS: usize = 4096;

/// What of a checkpoint is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything, also what reads the states.
    Whole,
    /// The encoder.
    Encoder,
}

impl LoadedEncoder {
    /// Loads a checkpoint or an export.
    ///
    /// # Errors
    /// If a file is missing or wrong, the model is no encoder alone, or the engine cannot run it.
    pub fn open(source: ModelSource, options: &LoadOptions, part: Part) -> Result<Self> {
        options.check()?;
        if options.shortlist.is_some() {
            let message = "an encoder chooses no tokens; leave it out";
            return Err(Error::wrong_option("shortlist", message));
        }
        let source =
            if options.engine == Engine::Reference { source.into_checkpoint() } else { source };
        let folder = source.folder()?;
        Manifest::check(folder)?;
        let Configuration { config_json, mut config, .. } = Configuration::read(folder)?;
        let reads = match config.front {
            Front::Tokens => {
                let tokenizer =
                    options.languages.choose(open_tokenizer(folder, &config)?, &config)?;
                Reads::Texts(SourceEncoder::of_encoder(&tokenizer, &config))
            }
            Front::Pixels(patches) => Reads::Images(ImageInput::open(folder, patches)?),
            Front::Frames { .. } => {
                let message = format!(
                    "{}: reads audio; expected an encoder of texts or images",
                    folder.display()
                );
                return Err(Cause::InFolder(message).into());
            }
        };
        let runtime = options.engine.open(options.device.first())?;
        let workers = options.n_workers();
        let model = if let ModelSource::Exported(_) = source {
            None
        } else {
            let model = open(&source, folder, options, part)?;
            config = model.config().clone();
            Some(model)
        };
        let copies = Copies::load(&options.device, |device| {
            let load = options.of_engine(device);
            let (_, graphs) = match &model {
                Some(model) => model_graphs(model, Attentions::Omit, runtime.as_ref(), &load)?,
                None => exported_graphs(folder, runtime.as_ref(), &load)?,
            };
            if graphs.len() == 1 { Ok(graphs) } else { Err(has_decoder(folder)) }
        })?;
        let session = copies.next()[0].clone().session();
        let (engine, inputs, outputs) =
            (session.engine().to_owned(), session.inputs().to_vec(), session.outputs().to_vec());
        drop(session);
        let n_truncated = AtomicUsize::new(0);
        Ok(Self {
            source,
            config_json,
            config,
            reads,
            copies,
            engine,
            inputs,
            outputs,
            workers,
            n_truncated,
        })
    }

    /// Where the model comes from.
    pub fn source(&self) -> &ModelSource {
        &self.source
    }

    /// The engine with its version and provider.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The most tokens of a text; longer texts are cut. Of an image the positions of the model's
    /// own size.
    pub fn max_tokens(&self) -> usize {
        match &self.reads {
            Reads::Texts(encoder) => encoder.max_tokens(),
            Reads::Images(_) => self.config.front.positions().unwrap_or(0),
        }
    }

    /// Number of texts that were truncated to [`LoadedEncoder::max_tokens`] so far.
    pub fn n_truncated(&self) -> usize {
        self.n_truncated.load(Ordering::Relaxed)
    }

    /// Whether the model reads images, not texts.
    pub fn reads_images(&self) -> bool {
        matches!(self.reads, Reads::Images(_))
    }

    pub(crate) fn config_json(&self) -> &str {
        &self.config_json
    }

    /// Cuts texts to so many tokens; returns how many stand around every text.
    pub(crate) fn cut_to(&mut self, max_tokens: usize) -> usize {
        let Reads::Texts(encoder) = &mut self.reads else { return 0 };
        encoder.cut_to(max_tokens);
        encoder.around().len()
    }

    /// Whether the graph gives this output.
    pub(crate) fn gives(&self, output: &str) -> bool {
        self.outputs.iter().any(|known| known == output)
    }

    /// What `read` makes of the outputs for each batch of texts and of its mask,
    /// `i64 [batch, src]`: a result for each text.
    ///
    /// # Errors
    /// If a text has no tokens or one that the model does not know, the engine fails, or
    /// `is_wanted`, which is called before each text and each batch, returns false.
    pub(crate) fn run<T: Send>(
        &self,
        texts: &[impl AsRef<str>],
        limit: BatchLimit,
        is_wanted: impl Fn() -> bool + Sync,
        read: impl Fn(&Values, &Array2<i64>) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        let tokens = |(text, number): (&_, usize)| {
            if !is_wanted() {
                return Err(Cause::Cancelled.into());
            }
            self.tokens(AsRef::as_ref(text))
                .map_err(|error| error.at(format_args!("text {number}")))
        };
        let texts = texts.iter().zip(1..).map(tokens).collect::<Result<Vec<_>>>()?;
        let lengths: Vec<_> = texts.iter().map(Vec::len).collect();
        let work = |session: &mut Box<dyn Session>, chosen: &[usize]| {
            if !is_wanted() {
                return Err(Cause::Cancelled.into());
            }
            let (inputs, mask) = self
                .inputs(&chosen.iter().map(|&index| texts[index].as_slice()).collect::<Vec<_>>());
            read(&session.run(&inputs)?, &mask)
        };
        on_workers(
            (self.workers, || Ok(self.copies.next()[0].clone().session())),
            batches(&lengths, limit),
            work,
            |_, _| {},
        )
    }

    /// What `read` makes of the outputs for each batch of images, which `load` gives by index: a
    /// result for each.
    ///
    /// # Errors
    /// If the model reads texts, an image cannot be loaded, or the engine fails.
    pub(crate) fn run_images<I: AsRef<Image>, T: Send>(
        &self,
        n_images: usize,
        load: impl Fn(usize) -> Result<I> + Sync,
        read: impl Fn(&Values) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        let Reads::Images(input) = &self.reads else {
            return Err(self.reads_other("texts, not images"));
        };
        let work = |session: &mut Box<dyn Session>, chosen: &[usize]| {
            let pixels = input.pixel_values(chosen, &load)?;
            read(&session.run(&[(PIXEL_VALUES, pixels)].into_iter().collect())?)
        };
        let batches = input.batches(n_images, self.workers.get());
        on_workers(
            (self.workers, || Ok(self.copies.next()[0].clone().session())),
            batches,
            work,
            |_, _| {},
        )
    }

    fn reads_other(&self, what: &str) -> Error {
        Cause::InFolder(format!("{}: the model reads {what}", self.source)).into()
    }

    /// What the model makes of each text: the mean of its states over the tokens, or its logits
    /// likewise.
    ///
    /// # Errors
    /// If a text has a token that the model does not know, or the engine fails.
    pub fn vectors(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>> {
        let name = self.outputs.first().map_or("", String::as_str);
        self.run(
            texts,
            BatchLimit::tokens(BATCH_TOKENS),
            || true,
            |outputs, mask| {
                let single =
                    |row: ArrayView1<'_, f64>| row.iter().map(|number| *number as f32).collect();
                Ok(self.mean(outputs, name, mask)?.outer_iter().map(single).collect())
            },
        )
    }

    /// The mean of an output over the tokens that `mask` shows, `[batch, width]`; of one without an
    /// axis of tokens the output itself.
    pub(crate) fn mean(
        &self,
        outputs: &Values,
        name: &str,
        mask: &Array2<i64>,
    ) -> Result<Array2<f64>> {
        token_means(self.output(outputs, name)?, &mask.mapv(|shown| shown as f64))
            .map_err(|error| self.failed(error))
    }

    /// An output in double precision, so that sums add no rounding.
    pub(crate) fn output(&self, outputs: &Values, name: &str) -> Result<ArrayD<f64>> {
        let found =
            outputs.get(name).ok_or_else(|| self.failed(format_args!("no output {name}")))?;
        Ok(found.to_f64()?)
    }

    fn failed(&self, message: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Engine, format_args!("{}: {message}", self.engine))
    }

    /// A text without words is what stands around every text.
    fn tokens(&self, text: &str) -> Result<Vec<i64>> {
        let Reads::Texts(encoder) = &self.reads else {
            return Err(self.reads_other("images, not texts"));
        };
        match encoder.encode(text)? {
            EncodedSource::Tokens { ids, cut_from } => {
                self.n_truncated.fetch_add(usize::from(cut_from.is_some()), Ordering::Relaxed);
                Ok(ids)
            }
            EncodedSource::Empty => {
                let ids = encoder.encode_blank(text)?;
                let empty = || Error::input("the text is empty; expected a sentence");
                (!ids.is_empty()).then_some(ids).ok_or_else(empty)
            }
        }
    }

    /// The graph's inputs, and the mask among them.
    fn inputs(&self, texts: &[&[i64]]) -> (Values, Array2<i64>) {
        let shape = (texts.len(), texts.iter().map(|ids| ids.len()).max().unwrap_or(0));
        let (mut ids, mut mask) =
            (Array2::from_elem(shape, self.config.pad_token as i64), Array2::zeros(shape));
        for (row, text) in texts.iter().enumerate() {
            for (column, &id) in text.iter().enumerate() {
                (ids[[row, column]], mask[[row, column]]) = (id, 1);
            }
        }
        let mut values: Values =
            [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.clone().into_dyn())]
                .into_iter()
                .collect();
        if self.inputs.iter().any(|name| name == TOKEN_TYPE_IDS) {
            values.insert(TOKEN_TYPE_IDS, ArrayD::<i64>::zeros(vec![shape.0, shape.1]));
        }
        (values, mask)
    }
}

fn open(source: &ModelSource, folder: &Path, options: &LoadOptions, part: Part) -> Result<Model> {
    match part {
        Part::Encoder => Ok(Model::open_encoder(folder)?),
        Part::Whole => {
            let (model, _) = source.open(0, options.ignore_unused)?;
            model.config().require_decoder().map_or(Ok(()), |()| Err(has_decoder(folder)))?;
            Ok(model)
        }
    }
}

fn has_decoder(folder: &Path) -> Error {
    let message = format!(
        "{}: a model with a decoder; expected an encoder alone, as `cognate export --part encoder` writes it",
        folder.display()
    );
    Cause::InFolder(message).into()
}

/// The means of `states: [batch, src, width]` over the tokens that `mask: [batch, src]` shows;
/// `[batch, width]` is returned unchanged.
///
/// # Errors
/// If the states have another number of axes.
pub fn token_means(
    states: ArrayD<f64>,
    mask: &Array2<f64>,
) -> std::result::Result<Array2<f64>, ShapeError> {
    if states.ndim() == 2 {
        return states.into_dimensionality();
    }
    let states = states.into_dimensionality::<Ix3>()?;
    let mut means = Array2::zeros((states.shape()[0], states.shape()[2]));
    for (mut mean, (states, mask)) in
        means.outer_iter_mut().zip(states.outer_iter().zip(mask.outer_iter()))
    {
        mean.assign(&(mask.dot(&states) / mask.sum().max(1.0)));
    }
    Ok(means)
}
