//! The quality gate of an export below f32: the same model in f32, exported likewise to a temporary folder and run by the same
//! engine, tells what the lower precision changes.
//!
//! Where the user names a text, both translate it, and BLEU is compared. In any case both choose greedily along the f32 model's
//! translations. The batches depend on the text alone, and so does all that is found, however many workers there are.

use super::{Options, Precision, tokenizer::Chosen};
use crate::account::Account;
use crate::quality::{BLEU_LOSS, BleuAccount, Quality, StepsAccount};
use crate::source::ModelSource;
use crate::translate::batches::batches;
use crate::translate::progress::Progress;
use crate::translate::translator::Translator;
use crate::{languages, layout, messages, verify};
use anyhow::{Context, Result, bail};
use cognate_export::{Existing, Folder, Staged};
use cognate_generate::{Decoder, Hypothesis, Settings, generate, greedy_choices};
use cognate_model::{Attentions, Layout, Model};
use cognate_pipeline::EncodedSource;
use cognate_runtime::{Device, Engine};
use cognate_text::{corpus_bleu, read_lines};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Sentences beside those of a verification and of tuning, of everyday things, numbers, names and questions.
const SENTENCES: [&str; 16] = [
    "The old bridge was closed for repairs last winter.",
    "Children are running through a field of yellow flowers.",
    "I do not know what he means.",
    "The meeting begins at half past nine on Monday.",
    "A black cat sleeps on the roof of a parked car.",
    "If it rains tomorrow, we will stay at home and play cards.",
    "Two men in orange jackets are repairing the road.",
    "Please close the window before you leave the house.",
    "The doctor told him to drink more water and to sleep longer.",
    "A woman with a blue umbrella is waiting for the bus.",
    "Maria and Peter have lived in London since 2010.",
    "The child laughed because the dog had stolen the hat.",
    "This soup is too hot; wait a few minutes.",
    "Several boats lie in the harbour while the sun goes down behind the mountains.",
    "Why did nobody answer the telephone?",
    "Thank you very much for your help!",
];

/// Tokens that are translated together, padding and beams included.
const BATCH_TOKENS: usize = 2048;

/// What an export will have to pass.
pub(super) struct Gate<'a> {
    options: &'a Options,
    source: &'a ModelSource,
    model: &'a Model,
    layout: Layout,
    chosen: &'a Chosen,
    text: Text,
}

/// What is translated.
enum Text {
    /// Sentences of this program.
    Own,
    /// Lines of two files with these names.
    Given { names: [String; 2], sources: Vec<String>, references: Vec<String> },
}

impl<'a> Gate<'a> {
    /// The gate for an export, if its precision is below f32 and there is something to translate. What is wrong with the text is
    /// found here, before anything is written.
    ///
    /// # Errors
    /// If a text is named, and it is not as it must be, or nothing can translate it.
    pub(super) fn open(
        options: &'a Options,
        source: &'a ModelSource,
        model: &'a Model,
        layout: Layout,
        chosen: &'a Chosen,
    ) -> Result<Option<Self>> {
        if options.precision == Precision::F32 {
            return Ok(None);
        }
        let text = match options.data.as_deref() {
            Some([sources, references]) => {
                check_model(source, model, layout, chosen).context("--data")?;
                read(sources, references).context("--data")?
            }
            _ if options.no_verify || chosen.tokenizer.is_none() => return Ok(None),
            _ => Text::Own,
        };
        Ok(Some(Self { options, source, model, layout, chosen, text }))
    }

    /// Compares the export in `destination` with f32, prints what is found, and stores it in `cognate.json`.
    pub(super) fn pass(self, destination: &Path, out: &mut dyn Write) -> Result<()> {
        let Some(quality) = self.measure(destination)? else { return Ok(()) };
        write!(out, "{quality}")?;
        out.flush()?;
        if let Some(mut account) = Account::read(destination)? {
            account.quality = Some(quality.clone());
            account.write(destination)?;
        }
        if let Some(bleu) = quality.bleu.filter(BleuAccount::is_low) {
            let (precision, loss) = (self.options.precision, bleu.loss());
            let advice = match precision {
                Precision::Int8Tensor => "--precision int8 usually loses less",
                Precision::Int8 | Precision::Int8Block => "--precision f16, for the portable target, usually loses less",
                Precision::Int4 => "--block-size 16 or --precision int8-block usually loses less",
                Precision::F16 | Precision::F32 => "f32 loses nothing",
            };
            let name = precision.name();
            messages::warning(format_args!("{name} loses {loss:.2} BLEU on {}, more than {BLEU_LOSS}; {advice}", bleu.source));
        }
        Ok(())
    }

    /// What the export in `destination` loses; `None` if the model can read none of this program's sentences.
    fn measure(&self, destination: &Path) -> Result<Option<Quality>> {
        let runtime = engine(self.layout).open(Device::Cpu)?;
        let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let workers = if matches!(self.text, Text::Own) { NonZeroUsize::MIN } else { cores };
        let load = |folder: &Path| Translator::of_export(folder, self.layout, runtime.as_ref(), workers);

        let temporary = Staged::temporary().context("a temporary folder for the export in f32")?;
        let folder = temporary.path().join("f32");
        self.write_in_single(&folder)?;
        let single = load(&folder)?;
        // As in translating: what is mapped stays where a file may be removed, and nothing is left behind by an interruption.
        let _there = (!cfg!(unix)).then_some(temporary);
        let lines = self.lines(&single)?;
        if lines.n_lines == 0 {
            return Ok(None);
        }
        let work = Work::new(&lines, single.settings().num_beams, workers.get());
        let expected = work.run(&single, "f32", |decoder, chosen| {
            let sources = lines.sources(chosen);
            let hypotheses = generate(decoder, &sources, single.settings())?;
            let choices = match single.settings().num_beams {
                0 | 1 => hypotheses.iter().map(|hypothesis| own_choices(hypothesis, single.settings())).collect(),
                _ => greedy_choices(decoder, &sources, &hypotheses, single.settings())?,
            };
            Ok(hypotheses.into_iter().map(Some).zip(choices).collect())
        })?;
        let in_single = texts(&single, &lines, &expected)?;
        let ends = single.settings().eos_tokens.clone();
        drop(single);

        let lower = load(destination)?;
        let is_translated = matches!(self.text, Text::Given { .. });
        let found = work.run(&lower, self.options.precision.name(), |decoder, chosen| {
            let sources = lines.sources(chosen);
            let hypotheses: Vec<_> = chosen.iter().filter_map(|&index| expected[index].0.clone()).collect();
            let choices = greedy_choices(decoder, &sources, &hypotheses, lower.settings())?;
            let hypotheses = match is_translated {
                true => generate(decoder, &sources, lower.settings())?.into_iter().map(Some).collect(),
                false => vec![None; sources.len()],
            };
            Ok(hypotheses.into_iter().zip(choices).collect())
        })?;
        let bleu = match &self.text {
            Text::Own => None,
            Text::Given { names: [source, reference], references, .. } => {
                let (single, lower) = (corpus_bleu(&in_single, references)?, corpus_bleu(&texts(&lower, &lines, &found)?, references)?);
                let (source, reference, signature) = (source.clone(), reference.clone(), single.signature);
                Some(BleuAccount { source, reference, f32: single.score, exported: lower.score, signature })
            }
        };
        let method = match lower.settings().num_beams {
            0 | 1 => "greedy".into(),
            beams => format!("beam {beams}"),
        };
        let steps = steps(&expected, &found, &ends);
        Ok(Some(Quality { engine: lower.engine().into(), method, sentences: lines.n_lines, steps, bleu }))
    }

    /// Writes the same export in f32.
    fn write_in_single(&self, destination: &Path) -> Result<()> {
        let [encoder, decoder] = layout::programs(self.model, self.layout, Attentions::Omit)?;
        let mut folder = Folder::create(destination, Existing::Refuse)?;
        layout::write_programs([&encoder, &decoder], self.layout, self.model.config(), &super::name(self.source), &mut folder)?;
        super::write_configuration(self.source, self.model, self.layout, self.chosen, &mut folder)?;
        folder.commit()?;
        Ok(())
    }

    /// The text as tokens.
    fn lines(&self, translator: &Translator) -> Result<Lines> {
        let mut lines = Lines { n_lines: 0, places: Vec::new(), sources: Vec::new(), bytes: Vec::new() };
        match &self.text {
            Text::Own => {
                // What f16 was tuned on would flatter it.
                let tuning = if self.options.precision == Precision::F16 { &[][..] } else { &verify::TUNING };
                for text in verify::SENTENCES.iter().chain(tuning).chain(&SENTENCES) {
                    // A small vocabulary may lack some words.
                    if let Ok(EncodedSource::Tokens { ids, cut_from: None }) = translator.encode(text) {
                        lines.push(lines.n_lines, text, ids);
                        lines.n_lines += 1;
                    }
                }
            }
            Text::Given { names, sources, .. } => {
                lines.n_lines = sources.len();
                let mut n_cut = 0;
                for (place, text) in sources.iter().enumerate() {
                    // An empty line gives an empty line.
                    if let EncodedSource::Tokens { ids, cut_from } =
                        translator.encode(text).with_context(|| format!("--data: {}: line {}", names[0], place + 1))?
                    {
                        n_cut += usize::from(cut_from.is_some());
                        lines.push(place, text, ids);
                    }
                }
                if n_cut > 0 {
                    let limit = translator.max_positions();
                    messages::warning(format_args!(
                        "--data: {}: {n_cut} of {} lines have more than {limit} tokens, the positions of the model; what is beyond is left out",
                        names[0], lines.n_lines
                    ));
                }
            }
        }
        Ok(lines)
    }
}

/// What executes graphs of a layout.
fn engine(layout: Layout) -> Engine {
    match layout {
        Layout::SharedCache => Engine::Ort,
        Layout::Cognate | Layout::HuggingFace => Engine::Auto,
    }
}

/// Refuses a model that cannot translate a text that is named.
fn check_model(source: &ModelSource, model: &Model, layout: Layout, chosen: &Chosen) -> Result<()> {
    let (ModelSource::Checkpoint(folder), Some(tokenizer)) = (source, &chosen.tokenizer) else {
        bail!("{source}: has no tokenizer to translate a text with; leave it out");
    };
    let generation = layout::read_if_there(&folder.join(layout::GENERATION))?;
    let settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    languages::target_naming(folder, model.config_json(), tokenizer, &settings)?;
    engine(layout).open(Device::Cpu)?;
    Ok(())
}

/// The lines of two files, which belong together.
fn read(sources: &Path, references: &Path) -> Result<Text> {
    let names = [sources, references].map(|path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned());
    let [source, reference] = [sources, references].map(|path| {
        let place = path.display();
        if path.is_dir() {
            bail!("{place}: is a folder; expected a text file, one sentence a line");
        }
        let lines = read_lines(path)?;
        if lines.iter().all(|line| line.trim().is_empty()) {
            bail!("{place}: has no text; expected one sentence a line");
        }
        Ok(lines)
    });
    let (source, reference) = (source?, reference?);
    if source.len() != reference.len() {
        let (n_sources, n_references) = (source.len(), reference.len());
        bail!("{}: expected a line for each of the {n_sources} lines of {}, found {n_references}", references.display(), sources.display());
    }
    Ok(Text::Given { names, sources: source, references: reference })
}

/// The lines of a text that have something to translate.
struct Lines {
    /// Of the whole text.
    n_lines: usize,
    /// Their places in the text.
    places: Vec<usize>,
    sources: Vec<Vec<i64>>,
    /// With line ends.
    bytes: Vec<usize>,
}

impl Lines {
    fn push(&mut self, place: usize, text: &str, ids: Vec<i64>) {
        self.places.push(place);
        self.sources.push(ids);
        self.bytes.push(text.len() + 1);
    }

    fn sources(&self, chosen: &[usize]) -> Vec<Vec<i64>> {
        chosen.iter().map(|&index| self.sources[index].clone()).collect()
    }
}

/// A line's translation, if it was translated, and its greedy choices along the translation in f32.
type Found = (Option<Hypothesis>, Vec<i64>);

/// What is to be done with both models.
struct Work<'a> {
    lines: &'a Lines,
    batches: Vec<Vec<usize>>,
    n_workers: usize,
}

impl<'a> Work<'a> {
    fn new(lines: &'a Lines, num_beams: usize, n_workers: usize) -> Self {
        let lengths: Vec<_> = lines.sources.iter().map(Vec::len).collect();
        Self { lines, batches: batches(&lengths, BATCH_TOKENS / num_beams.max(1)), n_workers }
    }

    /// What `work` finds in each line, by a decoder of each worker; `name` is what is seen of it on a terminal.
    fn run(
        &self,
        translator: &Translator,
        name: &str,
        work: impl Fn(&mut dyn Decoder, &[usize]) -> Result<Vec<Found>> + Sync,
    ) -> Result<Vec<Found>> {
        if io::stderr().is_terminal() {
            messages::note(format_args!("measuring: {name} on {}", translator.engine()));
        }
        let mut progress = Progress::new(Some(self.lines.bytes.iter().sum::<usize>() as u64));
        progress.show();
        let mut all: Vec<Found> = vec![(None, Vec::new()); self.lines.sources.len()];
        let next = AtomicUsize::new(0);
        let (sender, results) = mpsc::channel();
        let worker = |sender: mpsc::Sender<Result<(usize, Vec<Found>)>>| {
            let found = || -> Result<()> {
                let mut decoder = translator.decoder()?;
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(batch) = self.batches.get(number)
                {
                    // Nobody receives after an error of another worker.
                    if sender.send(Ok((number, work(decoder.as_mut(), batch)?))).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            if let Err(error) = found() {
                let _ = sender.send(Err(error));
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.n_workers.min(self.batches.len()) {
                let (sender, worker) = (sender.clone(), &worker);
                scope.spawn(move || worker(sender));
            }
            drop(sender);
            // Dropped at the first error, so that the workers end.
            for result in results {
                let (number, found) = result?;
                let batch = &self.batches[number];
                let (n_tokens, bytes) = (found.iter().map(|(_, choices)| choices.len()).sum(), batch.iter().map(|&i| self.lines.bytes[i]));
                progress.add(batch.len(), n_tokens, bytes.sum());
                batch.iter().zip(found).for_each(|(&index, found)| all[index] = found);
            }
            Ok::<_, anyhow::Error>(())
        })?;
        progress.finish();
        Ok(all)
    }
}

/// The text's translation, line by line.
fn texts(translator: &Translator, lines: &Lines, found: &[Found]) -> Result<Vec<String>> {
    let mut texts = vec![String::new(); lines.n_lines];
    for (&place, (hypothesis, _)) in lines.places.iter().zip(found) {
        if let Some(hypothesis) = hypothesis {
            texts[place] = translator.text(hypothesis)?;
        }
    }
    Ok(texts)
}

/// What greedy decoding chose: its tokens, and the end if it came there.
fn own_choices(hypothesis: &Hypothesis, settings: &Settings) -> Vec<i64> {
    let end = settings.eos_tokens.first().filter(|_| hypothesis.complete);
    hypothesis.tokens.iter().chain(end).copied().collect()
}

/// Compares choices; any end of a sentence is as good as another.
fn steps(expected: &[Found], found: &[Found], ends: &[i64]) -> StepsAccount {
    let pairs = expected.iter().zip(found).flat_map(|((_, expected), (_, found))| expected.iter().zip(found));
    let is_equal = |(one, other): &(&i64, &i64)| one == other || (ends.contains(one) && ends.contains(other));
    StepsAccount { steps: pairs.clone().count(), equal: pairs.filter(is_equal).count() }
}
