//! The text of one window of audio: prompt, search or sampling, and further tries at higher
//! temperatures.

use super::options::{STANDARD, Semantics, TranscriptionOptions};
use super::tokens::SpeechTokens;
use crate::error::{Cause, Result};
use cognate_generate::{
    Decoder, EarlyStopping, Event, Hypothesis, Observe, Sampling, SentenceBatch, Settings, Sources,
    decode, first_scores,
};
use cognate_text::Tokenizer;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use ndarray::ArrayD;
use std::io::Write as _;
use std::ops::ControlFlow;

/// The latest initial timestamp of OpenAI's semantics, 1 s, in steps of 20 ms.
const INITIAL_STEPS: usize = 50;

/// The text of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowText {
    /// The tokens after the prompt, without the end.
    pub(super) tokens: Vec<i64>,
    pub(super) temperature: f32,
    /// The mean log-probability of the tokens with the end.
    pub(super) mean_log_probability: f32,
    pub(super) compression_ratio: f32,
    pub(super) no_speech_probability: f32,
}

/// Decodes windows.
pub(super) struct WindowDecoder<'a> {
    pub(super) tokens: &'a SpeechTokens,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) settings: &'a Settings,
    pub(super) options: &'a TranscriptionOptions,
    pub(super) hotwords: &'a [i64],
    /// The number of the decoder's positions.
    pub(super) positions: usize,
    /// Whether the transcription goes on, asked before each step.
    pub(super) is_wanted: &'a dyn Fn() -> bool,
}

/// Fails if a transcription is not wanted any more.
pub(super) fn check_wanted(is_wanted: &dyn Fn() -> bool) -> Result<()> {
    if is_wanted() { Ok(()) } else { Err(Cause::Cancelled.into()) }
}

impl WindowDecoder<'_> {
    /// The language of each window: code and probability.
    pub(super) fn languages(
        &self,
        decoder: &mut dyn Decoder,
        features: &ArrayD<f32>,
    ) -> Result<Vec<(String, f32)>> {
        let scores = first_scores(decoder, Sources::Features(features), self.tokens.start)?;
        let rows = scores.outer_iter().map(|row| {
            let scored: Vec<_> =
                self.tokens.languages.iter().map(|(code, id)| (code, row[*id as usize])).collect();
            let largest = scored.iter().map(|(_, score)| *score).fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = scored.iter().map(|(_, score)| (score - largest).exp()).sum();
            let (code, score) = scored
                .into_iter()
                .max_by(|(_, a), (_, b)| a.total_cmp(b))
                .expect("a multilingual model has languages");
            (code.clone(), (score - largest).exp() / sum)
        });
        Ok(rows.collect())
    }

    /// The text of one window after `previous` text and `prompt`; `number` is part of the random
    /// seed.
    pub(super) fn text(
        &self,
        decoder: &mut dyn Decoder,
        sources: Sources<'_>,
        [previous, prompt]: [&[i64]; 2],
        number: u64,
    ) -> Result<WindowText> {
        let found = self.texts(
            decoder,
            sources,
            [previous, prompt],
            &[number],
            self.options.temperatures[0],
        )?;
        let found = found.into_iter().next().expect("a text for each window");
        self.again(decoder, Sources::Again(1), [previous, prompt], (found, number))
    }

    /// A text of the first temperature, unless it is rejected; then that of a further one.
    pub(super) fn again(
        &self,
        decoder: &mut dyn Decoder,
        mut sources: Sources<'_>,
        prompts: [&[i64]; 2],
        (mut found, number): (WindowText, u64),
    ) -> Result<WindowText> {
        for &temperature in &self.options.temperatures[1..] {
            if !self.is_rejected(&found) {
                break;
            }
            let texts = self.texts(decoder, sources, prompts, &[number], temperature)?;
            found = texts.into_iter().next().expect("a text for each window");
            sources = Sources::Again(1);
        }
        Ok(found)
    }

    /// Whether another temperature is to be tried.
    pub(super) fn is_rejected(&self, found: &WindowText) -> bool {
        let is_improbable = self
            .options
            .log_probability_threshold
            .is_some_and(|limit| found.mean_log_probability < limit);
        let repeats =
            self.options.compression_limit().is_some_and(|limit| found.compression_ratio > limit);
        let is_silence = self
            .options
            .no_speech_threshold
            .is_some_and(|limit| found.no_speech_probability > limit)
            && is_improbable;
        (repeats || is_improbable) && !is_silence
    }

    /// Whether a window is skipped as silence.
    pub(super) fn is_silence(&self, found: &WindowText) -> bool {
        let is_probable = self
            .options
            .log_probability_threshold
            .is_some_and(|limit| found.mean_log_probability > limit);
        self.options.no_speech_threshold.is_some_and(|limit| found.no_speech_probability > limit)
            && !is_probable
    }

    /// The texts of several windows at one temperature.
    pub(super) fn texts(
        &self,
        decoder: &mut dyn Decoder,
        sources: Sources<'_>,
        [previous, prompt]: [&[i64]; 2],
        numbers: &[u64],
        temperature: f32,
    ) -> Result<Vec<WindowText>> {
        let start = self.tokens.start_of_window([self.hotwords, previous, prompt], self.positions);
        let prefixes = vec![start[1..].to_vec(); numbers.len()];
        let batch = SentenceBatch { sources, prefixes: &prefixes, numbers };
        let settings = self.settings_at(start[0], temperature);
        let mut observer = |_: Event<'_>| {
            if (self.is_wanted)() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let found = decode(decoder, &batch, &settings, &mut observer)?;
        check_wanted(self.is_wanted)?;
        found
            .into_iter()
            .map(|hypotheses| self.best(hypotheses, start.len() - 1, &settings))
            .collect()
    }

    pub(super) fn settings_at(&self, start_token: i64, temperature: f32) -> Settings {
        let options = self.options;
        let is_openai = options.semantics == Semantics::OpenAi;
        let samples = if is_openai { options.best_of } else { 1 };
        let (beams, samples) =
            if temperature > 0.0 { (1, samples) } else { (options.beam_size, 1) };
        let candidates = (beams as f32 * options.patience).round().max(1.0) as usize;
        // All hypotheses are needed where their lengths decide.
        let is_compared = beams > 1 && options.length_penalty.is_some();
        let sampling = Sampling {
            temperature,
            top_k: 0,
            seed: options.seed ^ u64::from(temperature.to_bits()),
            ..Sampling::default()
        };
        Settings {
            start_token,
            num_beams: beams,
            num_return_sequences: if is_compared { candidates.max(beams) } else { samples },
            sampling: (temperature > 0.0).then_some(sampling),
            early_stopping: if is_openai {
                EarlyStopping::Finished(candidates)
            } else {
                self.settings.early_stopping
            },
            length_penalty: 1.0,
            renormalize: is_openai,
            scores: true,
            max_new_tokens: options.max_new_tokens.unwrap_or(if is_openai {
                self.positions / 2
            } else {
                self.positions
            }),
            max_length: if is_openai { self.positions + 1 } else { self.positions },
            timestamps: options
                .timestamps
                .then(|| self.tokens.rules(is_openai.then_some(INITIAL_STEPS))),
            suppressed_tokens: self.suppressed(),
            observe: Some(Observe { after: self.tokens.start, token: self.tokens.no_speech }),
            ..self.settings.clone()
        }
    }

    /// The tokens that are not written: those given, the standard ones where -1 stands for them,
    /// and special tokens.
    fn suppressed(&self) -> Vec<i64> {
        let (given, tokens) = (&self.options.suppress_tokens, self.tokens);
        let is_standard = given.contains(&STANDARD);
        // Published files have OpenAI's list for some models, and none for others.
        let is_openai = self.options.semantics == Semantics::OpenAi;
        let unspoken = tokens.unspoken.iter().filter(|_| is_openai);
        let standard = self.settings.suppressed_tokens.iter().chain(unspoken);
        let mut all: Vec<i64> = standard
            .filter(|id| is_standard || **id > tokens.end)
            .chain(given.iter().filter(|id| **id != STANDARD))
            .copied()
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The hypothesis with the largest mean log-probability of its tokens, or by the length
    /// penalty.
    fn best(
        &self,
        hypotheses: Vec<Hypothesis>,
        n_prefix: usize,
        settings: &Settings,
    ) -> Result<WindowText> {
        let ranked = hypotheses.into_iter().enumerate().map(|(rank, hypothesis)| {
            let n_new = hypothesis.tokens.len().saturating_sub(n_prefix);
            // Beams of OpenAI are ranked and divided without the end.
            let counts_end = hypothesis.complete
                && !matches!(
                    (settings.num_beams, settings.early_stopping),
                    (2.., EarlyStopping::Finished(_))
                );
            let sum = hypothesis.score * (n_new + usize::from(counts_end)).max(1) as f32;
            let rank = match self.options.length_penalty {
                Some(alpha) => sum / ((5 + n_new) as f32 / 6.0).powf(alpha),
                None if settings.num_beams > 1 => -(rank as f32),
                None => sum / n_new.max(1) as f32,
            };
            (rank, sum / (n_new + 1) as f32, hypothesis)
        });
        let best = ranked
            .max_by(|(a, ..), (b, ..)| a.total_cmp(b))
            .expect("decoding returns a hypothesis");
        let (_, mean_log_probability, Hypothesis { tokens, observed, .. }) = best;
        let tokens = tokens[n_prefix.min(tokens.len())..].to_vec();
        let compression_ratio = match self.options.semantics {
            Semantics::OpenAi => compression_ratio(self.text_of(&tokens)?.trim().as_bytes()),
            Semantics::Transformers => {
                // As transformers: two bytes for each token.
                let bytes: Vec<u8> =
                    tokens.iter().flat_map(|token| [*token as u8, (token >> 8) as u8]).collect();
                compression_ratio(&bytes)
            }
        };
        let temperature = settings.sampling.map_or(0.0, |sampling| sampling.temperature);
        Ok(WindowText {
            tokens,
            temperature,
            mean_log_probability,
            compression_ratio,
            no_speech_probability: observed.unwrap_or(0.0),
        })
    }

    /// The words of tokens, without timestamps and other special tokens.
    pub(super) fn text_of(&self, tokens: &[i64]) -> Result<String> {
        let words: Vec<_> =
            tokens.iter().copied().filter(|token| *token < self.tokens.end).collect();
        Ok(self.tokenizer.decode_verbatim(&words)?)
    }
}

/// The length of bytes relative to that of their zlib stream, at the default level of the original
/// zlib, which Python has. Of 3,000 texts, most with repetitions, 2,943 have its length exactly at
/// level 9 of zlib-rs, 1,537 at level 6.
fn compression_ratio(bytes: &[u8]) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(bytes).expect("a vector takes all bytes");
    let compressed = encoder.finish().expect("a vector takes all bytes");
    bytes.len() as f32 / compressed.len() as f32
}

#[cfg(test)]
mod tests {
    /// Python 3.11, `len(text) / len(zlib.compress(text))`.
    #[test]
    fn ratios_are_those_of_pythons_zlib() {
        for (text, compressed) in [
            (
                "and might even might even might even might even might even might even might even ",
                24,
            ),
            (&*"The cat sat on the mat. ".repeat(12), 34),
            (" Mr. John Smith is a good man and he lives in a big house.", 63),
        ] {
            let expected = text.len() as f32 / compressed as f32;
            assert_eq!(super::compression_ratio(text.as_bytes()), expected, "{text}");
        }
    }
}
