//! The comparison of a lower precision with f32: the same model is exported in f32 to a temporary
//! folder and run by the same engine.
//!
//! Both run greedy search along the f32 model's translations. If a text is given, both translate
//! it, and BLEU is compared. Batches, and so results, depend only on the text, not on the number of
//! workers.

use super::graphs::joined;
use super::tokenizer::ChosenTokenizer;
use super::{Export, ExportEvent, Target};
use crate::sentences;
use cognate_export::{Existing, Folder, Staged};
use cognate_folder::{
    BleuComparison, GENERATION_CONFIG, Manifest, ModelSource, Precision, Quality, StepsComparison,
    VectorComparison, f32_programs, read_if_there, write_programs,
};
use cognate_generate::{Decoder, Hypothesis, Settings, generate, greedy_choices};
use cognate_model::{Attentions, Front, Layout, Parts};
use cognate_pipeline::{
    BatchLimit, EncodedSource, Error, ErrorKind, LoadOptions, LoadedEncoder, LoadedModel, Notice,
    Part, Result, SourceEncoder, TargetNaming, in_batches,
};
use cognate_runtime::{Device, Engine};
use cognate_text::{corpus_bleu, read_lines};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

/// Maximum number of tokens of a batch, padding and beams included.
const BATCH_TOKENS: usize = 2048;

/// The text on which two precisions are compared.
#[derive(Clone, Debug)]
pub struct ComparisonText(Text);

#[derive(Clone, Debug)]
enum Text {
    /// Bundled sentences.
    Own,
    /// Lines of two files with these names.
    Given { names: [String; 2], sources: Vec<String>, references: Vec<String> },
}

impl ComparisonText {
    /// The bundled sentences, which have no references.
    pub fn own() -> Self {
        Self(Text::Own)
    }

    /// The lines of a file and of the file of their references.
    ///
    /// # Errors
    /// If a file cannot be read or is empty, or their numbers of lines differ.
    pub fn read(sources: &Path, references: &Path) -> Result<Self> {
        let names = [sources, references].map(super::file_name);
        let input = |message| Error::new(ErrorKind::Input, message);
        let read = |path: &Path| {
            let place = path.display();
            if path.is_dir() {
                return Err(input(format!(
                    "{place}: is a folder; expected a text file, one sentence a line"
                )));
            }
            let lines = read_lines(path)?;
            match lines.iter().all(|line| line.trim().is_empty()) {
                true => Err(input(format!("{place}: has no text; expected one sentence a line"))),
                false => Ok(lines),
            }
        };
        let (source, reference) = (read(sources)?, read(references)?);
        if source.len() != reference.len() {
            let (n_sources, n_references) = (source.len(), reference.len());
            return Err(input(format!(
                "{}: expected a line for each of the {n_sources} lines of {}, found {n_references}",
                references.display(),
                sources.display()
            )));
        }
        Ok(Self(Text::Given { names, sources: source, references: reference }))
    }

    fn is_given(&self) -> bool {
        matches!(self.0, Text::Given { .. })
    }
}

impl Export {
    /// Checks, before anything is written, that the model can translate a text.
    ///
    /// # Errors
    /// If it has no tokenizer, needs a language, or no engine runs it.
    pub fn check_comparison(&self) -> Result<()> {
        if self.target == Target::Ort && self.precision == Precision::F16 {
            let message =
                "target ort in f16 is for a GPU, on which nothing is compared; leave it out";
            return Err(Error::new(ErrorKind::Input, message));
        }
        let (tokenizer, _) = ChosenTokenizer::of(&self.source, &self.model, &self.languages)?;
        let (ModelSource::Checkpoint(folder), Some(tokenizer)) =
            (&self.source, &tokenizer.tokenizer)
        else {
            let message =
                format!("{}: has no tokenizer, so text cannot be translated", self.source);
            return Err(Error::new(ErrorKind::Input, message));
        };
        if self.model.config().parts == Parts::Decoder {
            return Err(Error::new(
                ErrorKind::Input,
                format!("{}: a decoder alone translates no text; leave it out", self.source),
            ));
        }
        if self.model.config().require_decoder().is_err() {
            return Err(Error::new(
                ErrorKind::Input,
                format!("{}: an encoder alone translates no text; leave it out", self.source),
            ));
        }
        if self.model.config().front != Front::Tokens {
            return Err(Error::new(
                ErrorKind::Input,
                format!("{}: the model reads no text; leave it out", self.source),
            ));
        }
        let generation = read_if_there(&folder.join(GENERATION_CONFIG))?;
        let settings = Settings::from_json(
            self.model.config_json(),
            generation.as_deref(),
            self.model.config(),
        )?;
        TargetNaming::of(self.model.config_json(), tokenizer, &settings)?.check(folder)?;
        engine(self.written_layout()?).open(Device::Cpu)?;
        Ok(())
    }

    /// Compares the export in `out` with one in f32, and stores the result in its `cognate.json`.
    /// The result is `None` for an export in f32, and if the model cannot read any bundled
    /// sentence.
    ///
    /// # Errors
    /// If the model cannot translate, an engine fails, or the comparison is cancelled.
    pub fn compare(
        &self,
        out: &Path,
        text: &ComparisonText,
        events: &mut dyn FnMut(ExportEvent<'_>),
    ) -> Result<(Option<Quality>, Vec<Notice>)> {
        let (tokenizer, _) = ChosenTokenizer::of(&self.source, &self.model, &self.languages)?;
        let reads_text = self.model.config().front == Front::Tokens;
        if self.precision == Precision::F32
            || !(text.is_given() || reads_text && tokenizer.tokenizer.is_some())
        {
            return Ok((None, Vec::new()));
        }
        let (quality, notices) = match self.model.config().require_decoder() {
            Ok(()) => self.measure(out, text, &tokenizer, events)?,
            Err(_) => (Some(self.measure_vectors(out, &tokenizer, events)?), Vec::new()),
        };
        if let (Some(quality), Some(mut manifest)) = (&quality, Manifest::read(out)?) {
            manifest.quality = Some(quality.clone());
            manifest.write(out)?;
        }
        Ok((quality, notices))
    }

    fn measure(
        &self,
        out: &Path,
        text: &ComparisonText,
        tokenizer: &ChosenTokenizer,
        events: &mut dyn FnMut(ExportEvent<'_>),
    ) -> Result<(Option<Quality>, Vec<Notice>)> {
        let layout = self.written_layout()?;
        let one = NonZeroUsize::MIN;
        let workers =
            if text.is_given() { thread::available_parallelism().unwrap_or(one) } else { one };
        let threads = (workers > one).then_some(one);
        let options = LoadOptions {
            engine: engine(layout),
            workers: Some(workers),
            threads,
            huge_pages: true,
            allow_missing_language: true,
            ..LoadOptions::default()
        };
        let load = |folder: &Path| {
            let deterministic = |mut settings: Settings, _: &_, _: &_| {
                (settings.sampling, settings.num_return_sequences) = (None, 1);
                Ok(settings)
            };
            LoadedModel::open(
                ModelSource::Exported(folder.into()),
                &options,
                Attentions::Omit,
                deterministic,
            )
        };

        let failed = |error| {
            Error::new(
                ErrorKind::Folder,
                format!("a temporary folder for the export in f32: {error}"),
            )
        };
        let temporary = Staged::temporary().map_err(failed)?;
        let folder = temporary.path().join("f32");
        self.write_in_f32(&folder, layout, tokenizer)?;
        let single = load(&folder)?;
        // On Unix mapped files can be removed, so that an interruption leaves nothing.
        let _there = (!cfg!(unix)).then_some(temporary);
        let (lines, notice) = self.lines(text, &single)?;
        let notices = notice.into_iter().collect();
        if lines.n_lines == 0 {
            return Ok((None, notices));
        }
        let num_beams = single.settings().num_beams;
        let mut run = |model: &LoadedModel, precision: &str, work: &Work<'_>| {
            events(ExportEvent::Translating {
                precision,
                engine: model.engine(),
                bytes: lines.bytes.iter().sum(),
            });
            let lengths: Vec<_> = lines.sources.iter().map(Vec::len).collect();
            let found = in_batches(
                model,
                &lengths,
                BatchLimit::tokens(BATCH_TOKENS / num_beams.max(1)),
                |decoder, chosen| {
                    self.cancellation.check()?;
                    work(decoder, chosen)
                },
                |batch, found: &[Found]| {
                    let tokens = found.iter().map(|(_, choices)| choices.len()).sum();
                    let bytes = batch.iter().map(|&index| lines.bytes[index]).sum();
                    events(ExportEvent::Translated { sentences: batch.len(), tokens, bytes });
                },
            );
            events(ExportEvent::Finished);
            found
        };
        let expected = run(&single, "f32", &|decoder, chosen| {
            let sources = lines.sources(chosen);
            let hypotheses = generate(decoder, &sources, single.settings())?;
            let choices = match num_beams {
                0 | 1 => hypotheses
                    .iter()
                    .map(|hypothesis| own_choices(hypothesis, single.settings()))
                    .collect(),
                _ => greedy_choices(decoder, &sources, &hypotheses, single.settings())?,
            };
            Ok(hypotheses.into_iter().map(Some).zip(choices).collect())
        })?;
        let in_f32 = lines.texts(&single, &expected)?;
        let ends = single.settings().eos_tokens.clone();
        drop(single);

        let lower = load(out)?;
        let found = run(&lower, self.precision.name(), &|decoder, chosen| {
            let sources = lines.sources(chosen);
            let hypotheses: Vec<_> =
                chosen.iter().filter_map(|&index| expected[index].0.clone()).collect();
            let choices = greedy_choices(decoder, &sources, &hypotheses, lower.settings())?;
            let hypotheses = match text.is_given() {
                true => {
                    generate(decoder, &sources, lower.settings())?.into_iter().map(Some).collect()
                }
                false => vec![None; sources.len()],
            };
            Ok(hypotheses.into_iter().zip(choices).collect())
        })?;
        let bleu = match &text.0 {
            Text::Own => None,
            Text::Given { names: [source, reference], references, .. } => {
                let (single, lower) = (
                    corpus_bleu(&in_f32, references)?,
                    corpus_bleu(&lines.texts(&lower, &found)?, references)?,
                );
                let (source, reference, signature) =
                    (source.clone(), reference.clone(), single.signature);
                Some(BleuComparison {
                    source,
                    reference,
                    f32: single.score,
                    exported: lower.score,
                    signature,
                })
            }
        };
        let method = match num_beams {
            0 | 1 => "greedy".into(),
            beams => format!("beam {beams}"),
        };
        let steps = compare_steps(&expected, &found, &ends);
        Ok((
            Some(Quality {
                engine: lower.engine().into(),
                method,
                sentences: lines.n_lines,
                steps,
                vectors: None,
                bleu,
            }),
            notices,
        ))
    }

    /// Compares the vectors of an encoder alone.
    fn measure_vectors(
        &self,
        out: &Path,
        tokenizer: &ChosenTokenizer,
        events: &mut dyn FnMut(ExportEvent<'_>),
    ) -> Result<Quality> {
        let layout = self.written_layout()?;
        let failed = |error| {
            Error::new(
                ErrorKind::Folder,
                format!("a temporary folder for the export in f32: {error}"),
            )
        };
        let temporary = Staged::temporary().map_err(failed)?;
        let folder = temporary.path().join("f32");
        self.write_in_f32(&folder, layout, tokenizer)?;
        // Sentences by which f16 was tuned would flatter it.
        let texts: Vec<_> = sentences::VERIFICATION.iter().chain(&sentences::COMPARISON).collect();
        let options = LoadOptions {
            engine: engine(layout),
            workers: Some(NonZeroUsize::MIN),
            ..LoadOptions::default()
        };
        let mut engine = String::new();
        let mut read = |folder: &Path| {
            let model =
                LoadedEncoder::open(ModelSource::Exported(folder.into()), &options, Part::Whole)?;
            engine = model.engine().into();
            events(ExportEvent::Stage(&format!("vectors on {engine}")));
            model.vectors(&texts)
        };
        let (single, lower) = (read(&folder)?, read(out)?);
        let (steps, vectors) = (
            StepsComparison { steps: 0, equal: 0 },
            VectorComparison::of(single.iter().zip(&lower)),
        );
        Ok(Quality {
            engine,
            method: "vectors".into(),
            sentences: texts.len(),
            steps,
            vectors: Some(vectors),
            bleu: None,
        })
    }

    /// Writes the same export in f32.
    fn write_in_f32(&self, out: &Path, layout: Layout, tokenizer: &ChosenTokenizer) -> Result<()> {
        let generation = self.generation_text(tokenizer)?;
        let programs = f32_programs(&self.model, layout, Attentions::Omit)?;
        let programs = joined(self, layout, programs, generation.as_deref())?;
        let mut folder = Folder::create(out, Existing::Refuse)?;
        write_programs(&programs, layout, self.model.config(), &self.source.name(), &mut folder)?;
        self.write_configuration(layout, tokenizer, generation, &mut folder)?;
        folder.commit()?;
        Ok(())
    }

    /// The text as tokens.
    fn lines(&self, text: &ComparisonText, model: &LoadedModel) -> Result<(Lines, Option<Notice>)> {
        let encoder = SourceEncoder::new(model.tokenizer(), model.config(), model.settings());
        let mut lines =
            Lines { n_lines: 0, places: Vec::new(), sources: Vec::new(), bytes: Vec::new() };
        match &text.0 {
            Text::Own => {
                // Sentences by which f16 was tuned would flatter it.
                let tuning =
                    if self.precision == Precision::F16 { &[][..] } else { &sentences::TUNING };
                for text in
                    sentences::VERIFICATION.iter().chain(tuning).chain(&sentences::COMPARISON)
                {
                    // A small vocabulary may lack some words.
                    if let Ok(EncodedSource::Tokens { ids, cut_from: None }) = encoder.encode(text)
                    {
                        lines.push(lines.n_lines, text, ids);
                        lines.n_lines += 1;
                    }
                }
                Ok((lines, None))
            }
            Text::Given { names, sources, .. } => {
                lines.n_lines = sources.len();
                let mut n_cut = 0;
                for (place, text) in sources.iter().enumerate() {
                    let encoded = encoder.encode(text).map_err(|error| {
                        error.at(format_args!("{}: line {}", names[0], place + 1))
                    })?;
                    // An empty line gives an empty line.
                    if let EncodedSource::Tokens { ids, cut_from } = encoded {
                        n_cut += usize::from(cut_from.is_some());
                        lines.push(place, text, ids);
                    }
                }
                let (file, n_lines, limit) =
                    (names[0].clone(), lines.n_lines, encoder.max_tokens());
                Ok((lines, (n_cut > 0).then_some(Notice::LinesCut { file, n_cut, n_lines, limit })))
            }
        }
    }
}

/// The engine that runs a layout.
fn engine(layout: Layout) -> Engine {
    match layout {
        Layout::SharedCache | Layout::Generate => Engine::Ort,
        Layout::Cognate | Layout::HuggingFace | Layout::Triton => Engine::Auto,
    }
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

    /// The text's translation, line by line.
    fn texts(&self, model: &LoadedModel, found: &[Found]) -> Result<Vec<String>> {
        let mut texts = vec![String::new(); self.n_lines];
        for (&place, (hypothesis, _)) in self.places.iter().zip(found) {
            if let Some(hypothesis) = hypothesis {
                texts[place] =
                    model.tokenizer().decode(&hypothesis.tokens)?.replace(['\n', '\r'], " ");
            }
        }
        Ok(texts)
    }
}

/// A line's translation, if it was translated, and its greedy choices along the translation in f32.
type Found = (Option<Hypothesis>, Vec<i64>);

/// What is done with a batch of lines.
type Work<'w> = dyn Fn(&mut dyn Decoder, &[usize]) -> Result<Vec<Found>> + Sync + 'w;

/// What greedy decoding chose: its tokens, and the end if it came there.
fn own_choices(hypothesis: &Hypothesis, settings: &Settings) -> Vec<i64> {
    let end = settings.eos_tokens.first().filter(|_| hypothesis.complete);
    hypothesis.tokens.iter().chain(end).copied().collect()
}

/// Compares choices; any end token is as good as another.
fn compare_steps(expected: &[Found], found: &[Found], ends: &[i64]) -> StepsComparison {
    let pairs = expected
        .iter()
        .zip(found)
        .flat_map(|((_, expected), (_, found))| expected.iter().zip(found));
    let is_equal =
        |(one, other): &(&i64, &i64)| one == other || (ends.contains(one) && ends.contains(other));
    StepsComparison { steps: pairs.clone().count(), equal: pairs.filter(is_equal).count() }
}
