//! Transcription of audio: windows of 30 s, each decoded to segments.
//!
//! A window begins where the last complete segment of the one before ended (Radford et al. 2022,
//! section 3.8), or windows are cut in pauses and decoded in batches.

use super::features::{FRAMES_PER_STEP, Frames, Padding};
use super::languages::LANGUAGES;
use super::options::{STANDARD, Semantics, TranscriberOptions, TranscriptionOptions};
use super::segments::{Cut, Cuts, Segment, cut, end_of_speech};
use super::silence::{Following, SilenceRule};
use super::tokens::{SpeechTokens, longest_part};
use super::voice::{Energy, SileroModel, Speech, VoiceDetector};
use super::window::{WindowDecoder, WindowText, check_wanted};
use super::words::Aligner;
use crate::error::{Cause, Error, Result};
use crate::loaded::LoadedModel;
use crate::notice::Notice;
use crate::options::LoadOptions;
use cognate_audio::{AudioReader, Damage, FeatureExtractor};
use cognate_export::read_model;
use cognate_folder::{Configuration, ModelSource, ProcessorSettings, optimum};
use cognate_generate::{Decoder, Sources};
use cognate_model::{Attentions, Front, Layout};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A temperature above which a text does not condition the next one.
const UNCONDITIONAL: f32 = 0.5;

/// The files of the package silero-vad that are read, the fastest first.
pub const SILERO_FILES: [&str; 2] = ["silero_vad_16k_sequence.onnx", "silero_vad_op18_ifless.onnx"];

/// A speech model that transcribes audio. It can be shared between threads; clones share the model.
#[derive(Clone)]
pub struct Transcriber {
    shared: Arc<Shared>,
    options: TranscriptionOptions,
    /// The network that finds pauses.
    silero: Option<Arc<SileroModel>>,
    initial_prompt: Vec<i64>,
    hotwords: Vec<i64>,
}

debug_by_source!(Transcriber, |it| it.shared.model.source());

struct Shared {
    model: LoadedModel,
    tokens: SpeechTokens,
    extractor: FeatureExtractor,
    positions: usize,
    load: LoadOptions,
}

/// The text of audio.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcription {
    /// All text.
    pub text: String,
    /// The code of the language.
    pub language: String,
    /// The segments, in order.
    pub segments: Vec<Segment>,
    /// The duration of the audio in seconds.
    pub duration: f64,
    /// What of the audio could not be decoded.
    pub damage: Damage,
}

/// An event of a transcription.
#[derive(Clone, Copy, Debug)]
pub enum TranscriptionEvent<'a> {
    /// Seconds of audio were read.
    Read(f64),
    /// The language was detected.
    Language {
        /// Its code.
        code: &'a str,
        /// Its probability.
        probability: f32,
    },
    /// A segment is final.
    Segment(&'a Segment),
    /// The audio up to a time was transcribed.
    Progress {
        /// In seconds.
        seconds: f64,
        /// The duration of the audio in seconds.
        duration: f64,
    },
}

impl Transcription {
    /// The English name of the language, such as `german`.
    pub fn language_name(&self) -> &str {
        let found = LANGUAGES.iter().find(|(code, _)| *code == self.language);
        found.and_then(|(_, names)| names.split('|').next()).unwrap_or(&self.language)
    }
}

impl Transcriber {
    /// Whether a model is one of speech.
    ///
    /// # Errors
    /// If its configuration cannot be read.
    pub fn can_load(source: &ModelSource) -> Result<bool> {
        Ok(matches!(Configuration::read(source.folder()?)?.config.front, Front::Frames { .. }))
    }

    /// Loads the model in `folder`, a checkpoint or an export, with OpenAI's options.
    ///
    /// # Errors
    /// If there is no such model, or no engine can run it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load(ModelSource::find(folder.as_ref())?, &TranscriberOptions::default())
    }

    /// Loads a model from its source.
    ///
    /// # Errors
    /// If it is not a speech model, an option contradicts it, or no engine can run it.
    pub fn load(source: ModelSource, options: &TranscriberOptions) -> Result<Self> {
        // Words are aligned by attention weights, which cost nothing that could be measured.
        Self::with_attentions(source, options, Attentions::Cross)
    }

    pub(super) fn with_attentions(
        source: ModelSource,
        options: &TranscriberOptions,
        attentions: Attentions,
    ) -> Result<Self> {
        let TranscriberOptions { load, transcription: options } = options;
        options.check()?;
        let folder = source.folder()?.to_owned();
        let Configuration { config, generation_json, .. } = Configuration::read(&folder)?;
        let Front::Frames { n_mels, positions: windows } = config.front else {
            let reads = if matches!(config.front, Front::Pixels(_)) { "images" } else { "text" };
            let message = format!(
                "{}: a model of {reads}; expected a speech model such as Whisper",
                folder.display()
            );
            return Err(Cause::InFolder(message).into());
        };
        let extractor = extractor(&folder, n_mels, windows)?;
        let model = LoadedModel::open_speech(source, load, attentions)?;
        if model.layout() == Layout::Generate {
            let message = format!(
                "{}: generate.onnx searches by itself, without timestamps; expected an export without --layout generate",
                folder.display()
            );
            return Err(Cause::InFolder(message).into());
        }
        let tokens = SpeechTokens::read(
            generation_json.as_deref(),
            model.tokenizer(),
            &config,
            model.settings(),
        )?;
        let positions = config.max_positions.unwrap_or(0);
        let load = load.clone();
        let shared = Arc::new(Shared { model, tokens, extractor, positions, load });
        Self::new(shared, options.clone(), None)
    }

    /// The same model with other options.
    ///
    /// # Errors
    /// If an option contradicts the model, or the detector of pauses cannot be loaded.
    pub fn with(&self, options: TranscriptionOptions) -> Result<Self> {
        Self::new(self.shared.clone(), options, self.silero.clone())
    }

    /// `silero` is the detector of earlier options.
    fn new(
        shared: Arc<Shared>,
        mut options: TranscriptionOptions,
        silero: Option<Arc<SileroModel>>,
    ) -> Result<Self> {
        options.check()?;
        let Shared { model, tokens, load, .. } = &*shared;
        options.language = options.language.or_else(|| tokens.language.clone());
        options.task = options.task.or(tokens.task);
        let file = match &options.voice_detector {
            _ if options.batch == 1 => None,
            Some(file) => Some(file.clone()),
            None => silero_in(model.source().folder()?),
        };
        let silero = match (file, silero) {
            (None, _) => None,
            (Some(file), Some(silero)) if silero.file() == file => Some(silero),
            (Some(file), _) => Some(Arc::new(SileroModel::load(&file, load)?)),
        };
        let vocab = model.config().vocab;
        if let Some(id) = options
            .suppress_tokens
            .iter()
            .filter(|id| **id != STANDARD)
            .find(|id| usize::try_from(**id).map_or(true, |id| id >= vocab))
        {
            let message = format!(
                "expected ids from 0 to {}, those of the model, or -1, found {id}",
                vocab - 1
            );
            return Err(Error::wrong_option("suppress_tokens", message));
        }
        if options.word_timestamps {
            check_attentions(model)?;
        }
        if options.short_windows {
            check_lengths(model)?;
        }
        if let Some(language) = &options.language {
            tokens.prompt(&tokens.language(language)?, options.task, options.timestamps)?;
        } else if !tokens.is_multilingual() {
            tokens.prompt("en", options.task, options.timestamps)?;
        }
        let encoded = |text: Option<&str>| {
            let ids =
                text.map(|text| model.tokenizer().encode_target(&format!(" {}", text.trim())));
            ids.transpose().map(Option::unwrap_or_default)
        };
        let hotwords = options.hotwords.as_deref().filter(|words| !words.trim().is_empty());
        let (initial_prompt, hotwords) =
            (encoded(options.initial_prompt.as_deref())?, encoded(hotwords)?);
        let longest = longest_part(shared.positions);
        if hotwords.len() > longest {
            return Err(Error::wrong_option(
                "hotwords",
                format!("expected at most {longest} tokens, found {}", hotwords.len()),
            ));
        }
        Ok(Self { shared, options, silero, initial_prompt, hotwords })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        &self.shared.model
    }

    /// The engine with its version and provider.
    pub fn engine(&self) -> &str {
        self.model().engine()
    }

    /// What finds the pauses in which windows are cut, if they are decoded in batches.
    pub fn voice_detector(&self) -> Option<String> {
        let name = self.silero.as_ref().map_or("the energy of the audio".into(), |silero| {
            format!("Silero's detector {}", silero.file().display())
        });
        (self.options.batch > 1).then_some(name)
    }

    /// Messages about the loaded model.
    pub fn notices(&self) -> &[Notice] {
        self.model().notices()
    }

    /// Transcribes an audio file.
    ///
    /// # Errors
    /// If the file is not audio or is empty, or the engine fails.
    pub fn transcribe(&self, audio: impl AsRef<Path>) -> Result<Transcription> {
        self.transcribe_with(AudioReader::open(audio.as_ref())?, &mut |_| {})
    }

    /// Transcribes an audio stream; `events` receives segments as they become final.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`].
    pub fn transcribe_with(
        &self,
        audio: AudioReader,
        events: &mut dyn FnMut(TranscriptionEvent<'_>),
    ) -> Result<Transcription> {
        self.transcribe_while(audio, events, &|| true)
    }

    /// Transcribes an audio stream until `is_wanted` becomes false, which is asked before each
    /// step.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`], or with
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn transcribe_while(
        &self,
        audio: AudioReader,
        events: &mut dyn FnMut(TranscriptionEvent<'_>),
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Transcription> {
        let (Shared { model, extractor, .. }, options) = (&*self.shared, &self.options);
        let padding = if options.semantics == Semantics::OpenAi {
            Padding::Window
        } else {
            Padding::ToWindow
        };
        let mut detector = (options.batch > 1).then(|| -> Box<dyn VoiceDetector> {
            match &self.silero {
                Some(silero) => Box::new(silero.detector()),
                None => Box::new(Energy::default()),
            }
        });
        let mut progress = |seconds| {
            events(TranscriptionEvent::Read(seconds));
            check_wanted(is_wanted)
        };
        let listener = detector.as_mut().map(|detector| &mut **detector as &mut dyn VoiceDetector);
        let frames = Frames::read(audio, extractor, padding, (listener, &mut progress))?;
        let mut frames = frames.with_short_windows(options.short_windows);
        let (decoding, mut decoder) = (self.window_decoder(is_wanted), model.decoder()?);
        let (language, probability) = self.language(&decoding, decoder.as_mut(), &mut frames)?;
        if let Some(probability) = probability {
            events(TranscriptionEvent::Language { code: &language, probability });
        }
        let prompt = self.prompt(&language)?;
        let found = Transcription {
            language,
            duration: frames.seconds(frames.n_heard()),
            damage: frames.damage,
            ..Transcription::default()
        };
        let n_heard = frames.n_heard();
        let mut run = Run { transcriber: self, decoding, frames, prompt, found, events };
        match detector {
            None => run.sequentially(decoder.as_mut())?,
            Some(detector) => {
                run.in_batches(decoder.as_mut(), &Speech::new(detector.finish(n_heard)?))?
            }
        }
        let mut found = run.found;
        found.text = found.segments.iter().map(|segment| segment.text.as_str()).collect();
        Ok(found)
    }

    pub(super) fn extractor(&self) -> &FeatureExtractor {
        &self.shared.extractor
    }

    pub(super) fn window_decoder<'a>(
        &'a self,
        is_wanted: &'a dyn Fn() -> bool,
    ) -> WindowDecoder<'a> {
        let Self { shared, options, hotwords, .. } = self;
        let (tokenizer, settings) = (shared.model.tokenizer(), shared.model.settings());
        WindowDecoder {
            tokens: &shared.tokens,
            tokenizer,
            settings,
            options,
            hotwords,
            positions: shared.positions,
            is_wanted,
        }
    }

    /// The code of the language, and its probability if it is detected, in the first window.
    pub(super) fn language(
        &self,
        decoding: &WindowDecoder<'_>,
        decoder: &mut dyn Decoder,
        frames: &mut Frames,
    ) -> Result<(String, Option<f32>)> {
        let tokens = &self.shared.tokens;
        Ok(match &self.options.language {
            Some(language) => (tokens.language(language)?, None),
            None if tokens.is_multilingual() => {
                let found = decoding.languages(decoder, &frames.first_window()?)?;
                let (code, probability) =
                    found.into_iter().next().expect("a language for each window");
                (code, Some(probability))
            }
            None => ("en".into(), None),
        })
    }

    /// The prompt of each window.
    pub(super) fn prompt(&self, language: &str) -> Result<Vec<i64>> {
        self.shared.tokens.prompt(language, self.options.task, self.options.timestamps)
    }
}

/// Checks that a decoder outputs the attention by which words are aligned.
fn check_attentions(model: &LoadedModel) -> Result<()> {
    if model.gives_attentions() {
        return Ok(());
    }
    let message = format!(
        "{}: was exported without attention weights, by which words are aligned; export it again with `cognate export CHECKPOINT OUT \
         --attentions`, or pass the checkpoint",
        model.source()
    );
    Err(Error::wrong_option("word_timestamps", message))
}

/// Checks that an encoder takes windows of any length.
fn check_lengths(model: &LoadedModel) -> Result<()> {
    let ModelSource::Exported(folder) = model.source() else { return Ok(()) };
    let is_fixed = match model.layout().files().first().filter(|_| optimum(folder).is_none()) {
        Some(file) => {
            let graph = read_model(&folder.join(file))?.graph.unwrap_or_default();
            let shape = graph
                .input
                .first()
                .and_then(|input| input.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref());
            shape.and_then(|shape| shape.dim.last()).is_none_or(|size| size.dim_value.is_some())
        }
        None => true,
    };
    if !is_fixed {
        return Ok(());
    }
    let message = format!(
        "{}: its encoder takes windows of one length; export the checkpoint by this version of `cognate export`, or pass the checkpoint",
        model.source()
    );
    Err(Error::wrong_option("short_windows", message))
}

/// A file of the package silero-vad in a model's folder.
fn silero_in(folder: &Path) -> Option<PathBuf> {
    SILERO_FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The extractor of a folder's features, which have to be those of the model.
fn extractor(folder: &Path, n_mels: usize, positions: usize) -> Result<FeatureExtractor> {
    let ProcessorSettings { place, text } = ProcessorSettings::read(folder, "feature_extractor")?;
    let extractor = FeatureExtractor::from_json(&text, &place)?;
    let found = [extractor.n_mels(), extractor.chunk() / extractor.hop()];
    if found != [n_mels, FRAMES_PER_STEP * positions] {
        let message = format!(
            "{place}: expected {n_mels} mels and {} frames, those of config.json, found {} and {}",
            FRAMES_PER_STEP * positions,
            found[0],
            found[1]
        );
        return Err(Cause::InFolder(message).into());
    }
    Ok(extractor)
}

/// A transcription in progress.
struct Run<'a> {
    transcriber: &'a Transcriber,
    decoding: WindowDecoder<'a>,
    frames: Frames,
    prompt: Vec<i64>,
    found: Transcription,
    events: &'a mut dyn FnMut(TranscriptionEvent<'_>),
}

impl Run<'_> {
    /// Each window begins where the last complete segment ended.
    fn sequentially(&mut self, decoder: &mut dyn Decoder) -> Result<()> {
        let Transcriber { options, initial_prompt, .. } = self.transcriber;
        let (mut seek, mut number) = (0, 0);
        // All earlier tokens, and where the prompt of the next window begins among them.
        let (mut written, mut since) = (initial_prompt.clone(), 0);
        let mut last_speech = 0.0;
        let mut clips = self.clips()?.into_iter();
        let mut end = 0;
        loop {
            if seek >= end {
                let Some(clip) = clips.next() else { break };
                (seek, end) = clip;
                continue;
            }
            let len = self.frames.window().min(end - seek);
            let is_cut = options.semantics == Semantics::OpenAi
                || options.short_windows
                || end < self.frames.n_heard();
            let size = if is_cut { len } else { self.frames.window() };
            let features = self.frames.windows(&[(seek, size)])?;
            let mut previous = written[since..].to_vec();
            if options.carry_initial_prompt && !initial_prompt.is_empty() {
                let rest = &written[since.max(initial_prompt.len())..];
                let room = (self.decoding.positions / 2).saturating_sub(1 + initial_prompt.len());
                previous = [initial_prompt, &rest[rest.len().saturating_sub(room)..]].concat();
            }
            let text = self.decoding.text(
                decoder,
                Sources::Features(&features),
                [&previous, &self.prompt],
                number,
            )?;
            number += 1;
            if self.decoding.is_silence(&text) {
                seek += len;
                self.progress(seek);
                continue;
            }
            let cuts = self.cut(&text);
            let offset = self.frames.seconds(seek);
            let next = cuts.next.map_or(len, |step| step.max(0) as usize * FRAMES_PER_STEP);
            let mut segments = self.segments(&text, (seek, len), &cuts.cuts)?;
            let mut following = seek + next;
            if options.word_timestamps {
                self.align(
                    (decoder, Sources::Again(1)),
                    &mut segments,
                    (offset, len),
                    last_speech,
                )?;
                let step = self.frames.seconds(1);
                if let Some(spoken) = end_of_speech(&segments)
                    && !cuts.ends_in_silence
                    && spoken > offset
                {
                    following = (spoken / step).round() as usize;
                }
                if let Some(threshold) = options.hallucination_silence_threshold {
                    let rule = SilenceRule {
                        threshold,
                        window: (seek, len),
                        times: [offset, self.frames.seconds(seek + self.frames.window())],
                        n_frames: self.frames.n_heard(),
                        step,
                        last_speech,
                    };
                    match rule.apply(&mut segments, following, cuts.ends_in_silence) {
                        Following::Instead(next) => {
                            seek = next.max(seek + 1);
                            self.progress(seek);
                            continue;
                        }
                        Following::After(next) => following = next,
                    }
                }
                last_speech = end_of_speech(&segments).unwrap_or(last_speech);
            }
            // A window whose text ends at its start would be read for ever.
            seek = if following > seek { following } else { seek + len };
            written.extend(self.put(segments));
            if !options.condition_on_previous_text || text.temperature > UNCONDITIONAL {
                since = written.len();
            }
            self.progress(seek);
        }
        Ok(())
    }

    /// The first frames and ends of the clips that are transcribed.
    fn clips(&self) -> Result<Vec<(usize, usize)>> {
        let (all, times) = (self.frames.n_heard(), &self.transcriber.options.clip_timestamps);
        let frame = |seconds: &f64| ((seconds / self.frames.seconds(1)).round() as usize).min(all);
        match times.first() {
            None => return Ok(vec![(0, all)]),
            Some(first) if frame(first) == all => {
                return Err(Error::input(format!(
                    "clip_timestamps: the first clip begins at {first} s, expected a time before the end of the audio, {:.2} s",
                    self.found.duration
                )));
            }
            Some(_) => {}
        }
        let clips = times.chunks(2);
        Ok(clips.map(|clip| (frame(&clip[0]), clip.get(1).map_or(all, frame))).collect())
    }

    fn cut(&self, text: &WindowText) -> Cuts {
        // Without timestamps each window is one segment.
        let time_zero = if self.transcriber.options.timestamps {
            self.decoding.tokens.first_timestamp()
        } else {
            i64::MAX
        };
        cut(&text.tokens, time_zero)
    }

    /// The segments of a window of `len` frames from `seek` on.
    fn segments(
        &self,
        text: &WindowText,
        (seek, len): (usize, usize),
        cuts: &[Cut],
    ) -> Result<Vec<Segment>> {
        let offset = self.frames.seconds(seek);
        // Without the rules of timestamps a cut may begin with a word.
        let seconds = |step: i64| self.frames.seconds(step.max(0) as usize * FRAMES_PER_STEP);
        let segments = cuts.iter().map(|cut| {
            let [start, end] = cut.times;
            let start = offset + start.map_or(0.0, seconds);
            // A timestamp can lie beyond a short window.
            let times =
                [start, (offset + end.map_or(self.frames.seconds(len), seconds)).max(start)];
            Ok(Segment::of(
                text,
                seek,
                times,
                cut.tokens.clone(),
                self.decoding.text_of(&cut.tokens)?,
            ))
        });
        segments.collect()
    }

    /// Adds words to the segments of a window, whose sources are given.
    fn align(
        &self,
        (decoder, sources): (&mut dyn Decoder, Sources<'_>),
        segments: &mut [Segment],
        (offset, len): (f64, usize),
        last_speech: f64,
    ) -> Result<()> {
        let WindowDecoder { tokens, tokenizer, options, .. } = self.decoding;
        let aligner =
            Aligner { tokens, tokenizer, options, step: self.frames.seconds(FRAMES_PER_STEP) };
        let words: Vec<i64> = segments
            .iter()
            .flat_map(|segment| &segment.tokens)
            .copied()
            .filter(|id| *id < tokens.end)
            .collect();
        let prompt = tokens.prompt(&self.found.language, options.task, false)?;
        let alignment = aligner.align(
            (decoder, sources),
            &prompt,
            (&words, &self.found.language),
            len / FRAMES_PER_STEP,
        )?;
        aligner.put(alignment, segments, offset, last_speech);
        Ok(())
    }

    /// Keeps segments; returns their tokens.
    fn put(&mut self, segments: Vec<Segment>) -> Vec<i64> {
        let mut tokens = Vec::new();
        for mut segment in segments {
            segment.clear_if_blank();
            segment.id = self.found.segments.len();
            tokens.extend(&segment.tokens);
            if !segment.text.is_empty() {
                (self.events)(TranscriptionEvent::Segment(&segment));
            }
            self.found.segments.push(segment);
        }
        tokens
    }

    fn progress(&mut self, seek: usize) {
        let duration = self.found.duration;
        (self.events)(TranscriptionEvent::Progress {
            seconds: self.frames.seconds(seek).min(duration),
            duration,
        });
    }

    /// Windows that are cut in pauses, several at a time; each is decoded without the text of
    /// others. What a text leaves of its window is read again, as the next window of a sequence
    /// would.
    fn in_batches(&mut self, decoder: &mut dyn Decoder, speech: &Speech) -> Result<()> {
        let Transcriber { options, initial_prompt, .. } = self.transcriber;
        let mut waiting: VecDeque<(usize, usize)> =
            speech.windows(self.frames.window(), &self.clips()?).into();
        // Segments by their window, until no window before it waits.
        let mut done: BTreeMap<usize, (Vec<Segment>, usize)> = BTreeMap::new();
        let (mut number, mut last_speech) = (0, 0.0);
        while !waiting.is_empty() {
            let chunk: Vec<_> = waiting.drain(..options.batch.min(waiting.len())).collect();
            let numbers: Vec<u64> = (number..).take(chunk.len()).collect();
            number += chunk.len() as u64;
            let features = self.frames.windows(&chunk)?;
            let prompts = [initial_prompt.as_slice(), &self.prompt];
            let texts = self.decoding.texts(
                decoder,
                Sources::Features(&features),
                prompts,
                &numbers,
                options.temperatures[0],
            )?;
            let mut rests = Vec::new();
            for ((text, &(seek, len)), &number) in texts.into_iter().zip(&chunk).zip(&numbers) {
                // Further temperatures and the alignment of words have one window.
                let alone = (options.word_timestamps || self.decoding.is_rejected(&text))
                    .then(|| self.frames.windows(&[(seek, len)]));
                let alone = alone.transpose()?;
                let text = match &alone {
                    Some(features) => self.decoding.again(
                        decoder,
                        Sources::Features(features),
                        [initial_prompt, &self.prompt],
                        (text, number),
                    )?,
                    None => text,
                };
                let mut segments = Vec::new();
                if !self.decoding.is_silence(&text) {
                    let cuts = self.cut(&text);
                    segments = self.segments(&text, (seek, len), &cuts.cuts)?;
                    if let Some(features) = alone.filter(|_| options.word_timestamps) {
                        let sources = Sources::Features(&features);
                        self.align(
                            (decoder, sources),
                            &mut segments,
                            (self.frames.seconds(seek), len),
                            last_speech,
                        )?;
                        last_speech = end_of_speech(&segments).unwrap_or(last_speech);
                    }
                    let read = cuts.next.map_or(len, |step| step.max(0) as usize * FRAMES_PER_STEP);
                    rests
                        .extend((read > 0).then(|| speech.rest(seek + read, seek + len)).flatten());
                }
                done.insert(seek, (segments, seek + len));
            }
            rests.into_iter().rev().for_each(|rest| waiting.push_front(rest));
            while let Some(first) = done
                .first_entry()
                .filter(|first| waiting.front().is_none_or(|(seek, _)| first.key() < seek))
            {
                let (segments, end) = first.remove();
                self.put(segments);
                self.progress(end);
            }
        }
        self.progress(self.frames.n_heard());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
mod tests {
    use super::*;
    use cognate_testing::{golden, make_speech_model, shared_whisper};
    use serde_json::Value;

    /// `testdata/golden/speech/prompts.py` wrote the prompts.
    #[test]
    fn hot_words_precede_windows_as_in_faster_whisper() {
        let folder = tempfile::tempdir().unwrap();
        make_speech_model(folder.path());
        let transcriber = Transcriber::open(folder.path()).unwrap();
        let with = |hotwords: Option<&str>| {
            transcriber.with(TranscriptionOptions {
                hotwords: hotwords.map(str::to_owned),
                ..TranscriptionOptions::default()
            })
        };
        let cases: Vec<Value> = serde_json::from_str(
            &std::fs::read_to_string(golden("speech/tokens/prompts.json")).unwrap(),
        )
        .unwrap();
        let ids = |list: &Value| -> Vec<i64> {
            list.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
        };
        for case in &cases {
            let given = with(case["hotwords"].as_str()).unwrap();
            let Shared { tokens, positions, .. } = &*given.shared;
            let prompt = tokens.prompt("en", None, case["without_timestamps"] == false).unwrap();
            let found = tokens
                .start_of_window([&given.hotwords, &ids(&case["previous"]), &prompt], *positions);
            assert_eq!(found, ids(&case["ids"]), "{case}");
        }
        assert_eq!(with(Some(" ")).unwrap().hotwords, [0; 0]);
        let refused = with(Some(&"w1 ".repeat(20))).err().unwrap().to_string();
        assert_eq!(refused, "hotwords: expected at most 19 tokens, found 20");
    }

    /// The list in the `generation_config.json` of Whisper tiny.en.
    #[test]
    fn what_nobody_speaks_is_the_published_list() {
        let Some(folder) = shared_whisper() else { return };
        let transcriber = Transcriber::open(folder.join("models/whisper-tiny.en")).unwrap();
        let mut found = transcriber.shared.tokens.unspoken.clone();
        found.sort_unstable();
        assert_eq!(found, transcriber.model().settings().suppressed_tokens);
    }

    /// Earlier text gives way to hot words, so that there is room for a text.
    #[test]
    fn a_quarter_of_the_positions_remains_after_hot_words() {
        let folder = tempfile::tempdir().unwrap();
        make_speech_model(folder.path());
        let transcriber = Transcriber::open(folder.path()).unwrap();
        let (hotwords, previous): (Vec<i64>, Vec<i64>) = ((1..20).collect(), (20..50).collect());
        let start =
            transcriber.shared.tokens.start_of_window([&hotwords, &previous, &[61, 62, 66]], 40);
        assert_eq!(start, [&[68], &hotwords[..], &previous[23..], &[61, 62, 66]].concat());
    }
}
