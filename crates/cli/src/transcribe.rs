//! `cognate transcribe`: speech to text.

use crate::amounts::{self, at_most};
use crate::model_options::MediaModelOptions;
use crate::{messages, whole_file};
use anyhow::{Context, Result, bail};
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use cognate::{
    AudioReader, Error, ErrorKind, Semantics, SubtitleOptions, Task, Transcriber,
    TranscriberOptions, TranscriptFormat, TranscriptWriter, Transcription, TranscriptionEvent,
    TranscriptionOptions,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::env;
use std::io::{self, Write};
use std::num::{NonZeroUsize, ParseIntError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The environment variable with the default of `--vad`.
const VAD_VARIABLE: &str = "COGNATE_VAD";

/// Transcribe speech by a Whisper model
///
/// Files are WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A or WebM. Segments are written as they are found.
/// Options have the names and the defaults of OpenAI's command; --semantics transformers decodes as
/// transformers does.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Audio files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format of the transcripts; all formats need --output-dir
    #[arg(short, long, visible_alias = "output-format", default_value = "txt", value_parser = formats())]
    format: Formats,
    /// Write a file for each input into DIR, with the ending of the format [default: standard
    /// output]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    #[command(flatten)]
    model: MediaModelOptions,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Language of the speech, as code or English name [default: the model's, or detected]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<String>,
    /// Text in the language spoken, or its translation into English [default: the model's, or
    /// transcribe]
    #[arg(long, value_parser = tasks())]
    task: Option<Task>,
    /// First temperature; above 0 tokens are sampled
    #[arg(long, value_name = "X", default_value = "0")]
    temperature: f32,
    /// Step to the next temperature if a text is rejected; 0 for no other temperature
    #[arg(long, value_name = "X", default_value = "0.2", value_parser = increment)]
    temperature_increment_on_fallback: f32,
    /// Number of beams at temperature 0; 1 is greedy
    #[arg(long, visible_aliases = ["beam-size", "num-beams"], value_name = "N", default_value = "5", value_parser = at_most(256))]
    beams: NonZeroUsize,
    /// Number of samples at other temperatures
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_most(256))]
    best_of: NonZeroUsize,
    /// Beam search ends when beams times X hypotheses have ended
    #[arg(long, value_name = "X", default_value = "1")]
    patience: f32,
    /// Compare the hypotheses of a window by this power of their lengths, 0 to 1 [default: by the
    /// mean log-probability]
    #[arg(long, value_name = "X")]
    length_penalty: Option<f32>,
    /// Reject a text that compresses by more than X [default: 2.4; 1.35 with --semantics
    /// transformers]
    #[arg(long, value_name = "X")]
    compression_ratio_threshold: Option<f32>,
    /// Reject a text with a lower mean log-probability
    #[arg(long, value_name = "X", default_value = "-1")]
    logprob_threshold: f32,
    /// Skip a window with a rejected text as silence if the probability of no speech is higher
    #[arg(long, value_name = "X", default_value = "0.6")]
    no_speech_threshold: f32,
    /// Continue the text of the window before
    #[arg(long, value_name = "BOOL", default_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    condition_on_previous_text: bool,
    /// Text that precedes the first window, such as names and terms
    #[arg(long, value_name = "TEXT")]
    initial_prompt: Option<String>,
    /// Put --initial-prompt before every window
    #[arg(long, requires = "initial_prompt")]
    carry_initial_prompt: bool,
    /// Words that precede every window, such as names and terms
    #[arg(long, value_name = "TEXT")]
    hotwords: Option<String>,
    /// Write text without timestamps; windows of 30 s follow each other
    #[arg(long)]
    without_timestamps: bool,
    /// Compute the time and the probability of each word, for json, srt and vtt; exports need
    /// --attentions for it
    #[arg(long)]
    word_timestamps: bool,
    /// Punctuation that belongs to the next word
    #[arg(long, value_name = "CHARACTERS", requires = "word_timestamps")]
    prepend_punctuations: Option<String>,
    /// Punctuation that belongs to the word before
    #[arg(long, value_name = "CHARACTERS", requires = "word_timestamps")]
    append_punctuations: Option<String>,
    /// Underline each word while it is spoken (srt, vtt)
    #[arg(long, requires = "word_timestamps")]
    highlight_words: bool,
    /// Maximum number of characters of a line (srt, vtt)
    #[arg(long, value_name = "N", requires = "word_timestamps", value_parser = at_most(65_536))]
    max_line_width: Option<NonZeroUsize>,
    /// Maximum number of lines of a subtitle (srt, vtt)
    #[arg(long, value_name = "N", requires = "max_line_width", value_parser = at_most(65_536))]
    max_line_count: Option<NonZeroUsize>,
    /// Maximum number of words of a subtitle (srt, vtt)
    #[arg(long, value_name = "N", requires = "word_timestamps", conflicts_with = "max_line_width", value_parser = at_most(65_536))]
    max_words_per_line: Option<NonZeroUsize>,
    /// Skip silences longer than X seconds beside words that are likely invented
    #[arg(long, value_name = "X", requires = "word_timestamps")]
    hallucination_silence_threshold: Option<f64>,
    /// Times in seconds at which the clips to transcribe begin and end in turn, separated by commas
    /// [default: all audio]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', allow_hyphen_values = true)]
    clip_timestamps: Vec<f64>,
    /// Pad audio by 2 s instead of to 30 s: faster for short audio, with other results
    #[arg(long)]
    short_windows: bool,
    /// Number of windows to decode together, cut in pauses; 1 lets windows follow the timestamps
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_most(256))]
    batch: NonZeroUsize,
    /// File of the Python package silero-vad that finds the pauses, such as
    /// silero_vad_16k_sequence.onnx [default: $COGNATE_VAD, else one in the model's folder, else
    /// pauses are told by energy]
    #[arg(long, value_name = "FILE", requires = "batch")]
    vad: Option<PathBuf>,
    /// Whose results to equal where implementations differ
    #[arg(long, default_value = "openai", value_parser = ["openai", "transformers"])]
    semantics: String,
    /// Tokens that are not written, separated by commas; -1 stands for most symbols, "" for none
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = token
    )]
    suppress_tokens: Vec<Option<i64>>,
    /// Random seed
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  cognate transcribe --model whisper-tiny.en speech.wav
  cognate transcribe --model whisper-small --language de --task translate --format srt --output-dir . talk.mp3
  cognate transcribe --model whisper-base --word-timestamps --format json interview.flac
  cognate transcribe --model whisper-base --batch 8 --beams 1 *.m4a";

/// The formats of a transcript, with the endings of their files.
#[derive(Clone, Debug)]
struct Formats(Vec<(TranscriptFormat, &'static str)>);

/// The values of --format.
fn formats() -> impl TypedValueParser<Value = Formats> {
    let names = TranscriptFormat::ALL.into_iter().map(|(_, name)| name);
    PossibleValuesParser::new(names.chain([ALL_FORMATS])).map(|name| {
        let formats = TranscriptFormat::ALL.into_iter();
        Formats(
            formats.filter(|(_, known)| [known, ALL_FORMATS].contains(&name.as_str())).collect(),
        )
    })
}

/// The value of --format for all of them.
const ALL_FORMATS: &str = "all";

/// The values of --task.
pub(crate) fn tasks() -> impl TypedValueParser<Value = Task> {
    PossibleValuesParser::new(["transcribe", "translate"]).map(|name| match name.as_str() {
        "translate" => Task::Translate,
        _ => Task::Transcribe,
    })
}

/// A value of --suppress-tokens; `None` for an empty one.
fn token(value: &str) -> Result<Option<i64>, ParseIntError> {
    if value.is_empty() { Ok(None) } else { value.parse().map(Some) }
}

/// The value of --temperature-increment-on-fallback.
fn increment(value: &str) -> Result<f32, String> {
    let step = value.parse().ok().filter(|step| (0.0..f32::INFINITY).contains(step));
    step.ok_or_else(|| "expected a number from 0".into())
}

/// The maximum number of further temperatures.
const MOST_FALLBACKS: usize = 100;

impl Options {
    fn transcription(&self) -> TranscriptionOptions {
        let step = self.temperature_increment_on_fallback;
        let further = (1..=MOST_FALLBACKS)
            .map(|n| self.temperature + step * n as f32)
            .take_while(|t| step > 0.0 && *t <= 1.0 + 1e-6);
        let rounded = |temperature: f32| (temperature * 1e4).round() / 1e4;
        let defaults = TranscriptionOptions::default();
        TranscriptionOptions {
            language: self.language.clone(),
            task: self.task,
            semantics: if self.semantics == "openai" {
                Semantics::OpenAi
            } else {
                Semantics::Transformers
            },
            temperatures: [self.temperature].into_iter().chain(further).map(rounded).collect(),
            beam_size: self.beams.get(),
            best_of: self.best_of.get(),
            patience: self.patience,
            compression_ratio_threshold: self.compression_ratio_threshold.map(Some),
            log_probability_threshold: Some(self.logprob_threshold),
            no_speech_threshold: Some(self.no_speech_threshold),
            condition_on_previous_text: self.condition_on_previous_text,
            initial_prompt: self.initial_prompt.clone(),
            carry_initial_prompt: self.carry_initial_prompt,
            hotwords: self.hotwords.clone(),
            timestamps: !self.without_timestamps,
            word_timestamps: self.word_timestamps,
            length_penalty: self.length_penalty,
            clip_timestamps: self.clip_timestamps.clone(),
            hallucination_silence_threshold: self.hallucination_silence_threshold,
            prepend_punctuations: self
                .prepend_punctuations
                .clone()
                .unwrap_or(defaults.prepend_punctuations),
            append_punctuations: self
                .append_punctuations
                .clone()
                .unwrap_or(defaults.append_punctuations),
            suppress_tokens: self.suppress_tokens.iter().flatten().copied().collect(),
            seed: self.seed,
            short_windows: self.short_windows,
            batch: self.batch.get(),
            voice_detector: self.vad.clone().or_else(|| {
                env::var_os(VAD_VARIABLE)
                    .filter(|path| !path.is_empty() && self.batch > NonZeroUsize::MIN)
                    .map(PathBuf::from)
            }),
            max_new_tokens: defaults.max_new_tokens,
        }
    }

    fn subtitles(&self) -> SubtitleOptions {
        SubtitleOptions {
            max_line_width: self.max_line_width.map(NonZeroUsize::get),
            max_line_count: self.max_line_count.map(NonZeroUsize::get),
            max_words_per_line: self.max_words_per_line.map(NonZeroUsize::get),
            highlight_words: self.highlight_words,
        }
    }

    /// Checks options that depend on the format.
    fn check(&self) -> Result<()> {
        let Formats(formats) = &self.format;
        if let Some(folder) = self.output_dir.as_ref().filter(|folder| !folder.is_dir()) {
            bail!("--output-dir: {}: is not a folder; create it first", folder.display());
        }
        if formats.len() > 1 && self.output_dir.is_none() {
            bail!("--format all: writes several files; name their folder with --output-dir");
        }
        let has_subtitles = formats
            .iter()
            .any(|(format, _)| matches!(format, TranscriptFormat::Srt | TranscriptFormat::Vtt));
        if self.subtitles() != SubtitleOptions::default() && !has_subtitles {
            bail!(
                "--highlight-words, --max-line-width and --max-words-per-line need --format srt, vtt or all"
            );
        }
        Ok(())
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    options.check()?;
    if options.output_dir.is_some() {
        check_names(&options.files)?;
    }
    let load = options.model.load(Some(NonZeroUsize::MIN), options.threads);
    let transcriber = Transcriber::load(
        options.model.source()?,
        &TranscriberOptions { load, transcription: options.transcription() },
    )?;
    messages::notices(transcriber.notices());
    messages::status(transcriber.model().source(), transcriber.engine());
    if let Some(detector) = transcriber.voice_detector() {
        messages::note(format_args!("windows are cut in pauses, found by {detector}"));
    }
    let mut code = ExitCode::SUCCESS;
    for file in &options.files {
        let found = transcribe(&transcriber, file, options, out)
            .with_context(|| file.display().to_string());
        let found = match found {
            Err(error) if options.files.len() > 1 && is_about_audio(&error) => {
                messages::error(&error);
                code = ExitCode::FAILURE;
                continue;
            }
            found => found?,
        };
        if let Some(damage) = found.damage.description() {
            messages::warning(format_args!("{}: {damage}", file.display()));
        }
        if let Some(folder) = &options.output_dir {
            for &(format, ending) in &options.format.0 {
                let mut name = stem(file).as_os_str().to_owned();
                name.push(format!(".{ending}"));
                let path = folder.join(name);
                let text = TranscriptWriter::new(format, options.subtitles()).document(&found);
                whole_file::write("--output-dir", &path, text.as_bytes(), out)?;
            }
        }
    }
    Ok(code)
}

/// Whether an error is about one file, so that others can be transcribed.
fn is_about_audio(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Input)
}

/// The name of a file's text, without its ending.
fn stem(file: &Path) -> &Path {
    match file.file_stem() {
        Some(stem) if file != Path::new("-") => Path::new(stem),
        _ => Path::new("stdin"),
    }
}

/// Checks that no two texts have one name.
fn check_names(files: &[PathBuf]) -> Result<()> {
    for (index, file) in files.iter().enumerate() {
        if let Some(other) = files[..index].iter().find(|other| stem(other) == stem(file)) {
            bail!(
                "--output-dir: the texts of {} and {} would have the same name; transcribe them to different folders",
                other.display(),
                file.display()
            );
        }
    }
    Ok(())
}

/// Transcribes one file; segments go to `out` as they come, unless they go to a file.
fn transcribe(
    transcriber: &Transcriber,
    file: &Path,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Transcription> {
    let audio = match file {
        path if path == Path::new("-") => AudioReader::from_stream("standard input", io::stdin()),
        path => AudioReader::open(path),
    };
    let audio = audio.map_err(Error::from)?;
    let (bar, begin) = (bar(), Instant::now());
    let (format, mut failure) = (options.format.0[0].0, Ok(()));
    let mut writer = TranscriptWriter::new(format, options.subtitles());
    let mut write = |text: &str| -> Result<()> {
        if options.output_dir.is_none() {
            bar.suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))
                .context(messages::UNWRITTEN)
        } else {
            Ok(())
        }
    };
    write(writer.header())?;
    let found = transcriber.transcribe_with(audio, &mut |event| match event {
        TranscriptionEvent::Read(_) => {}
        TranscriptionEvent::Language { code, probability } => {
            bar.suspend(|| {
                messages::note(format_args!("language {code}, probability {probability:.2}"))
            });
        }
        TranscriptionEvent::Segment(segment) => {
            if failure.is_ok() {
                failure = write(&writer.segment(segment));
            }
        }
        TranscriptionEvent::Progress { seconds, duration } => {
            bar.set_length((duration * 1000.0) as u64);
            bar.set_position((seconds * 1000.0) as u64);
            let speed = seconds / begin.elapsed().as_secs_f64().max(1e-3);
            bar.set_message(format!(
                "{seconds:.0} of {duration:.0} s of audio, {speed:.1} times real time"
            ));
        }
    })?;
    failure?;
    match format {
        TranscriptFormat::Json => write(&format.document(&found))?,
        _ => write(&writer.finish())?,
    }
    bar.finish_and_clear();
    if messages::shows_progress() {
        let elapsed = begin.elapsed();
        let speed = found.duration / elapsed.as_secs_f64().max(1e-3);
        messages::note(format_args!(
            "{:.1} s of audio in {}, {speed:.1} times real time",
            found.duration,
            amounts::duration(elapsed)
        ));
    }
    Ok(found)
}

/// The progress bar, hidden if standard error is not a terminal.
fn bar() -> ProgressBar {
    if !messages::shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:10} {percent}% {msg}") {
        bar.set_style(style);
    }
    bar
}
