//! Formats of transcripts, as OpenAI's command writes them.

use super::segments::Segment;
use super::subtitles::{Cue, SubtitleOptions, Subtitles, milliseconds};
use super::transcriber::Transcription;
use serde_json::{Value, json};

/// A format of transcripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// A line for each segment.
    #[default]
    Txt,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// Start and end in milliseconds, and the text.
    Tsv,
    /// Everything, as one object.
    Json,
}

impl TranscriptFormat {
    /// All formats with their names, which are also the endings of files.
    pub const ALL: [(TranscriptFormat, &str); 5] = [
        (TranscriptFormat::Txt, "txt"),
        (TranscriptFormat::Srt, "srt"),
        (TranscriptFormat::Vtt, "vtt"),
        (TranscriptFormat::Tsv, "tsv"),
        (TranscriptFormat::Json, "json"),
    ];

    /// A whole transcript, with subtitles as their defaults are.
    pub fn document(self, transcript: &Transcription) -> String {
        TranscriptWriter::new(self, SubtitleOptions::default()).document(transcript)
    }

    /// The fields of OpenAI's `transcribe`.
    pub fn object(transcript: &Transcription) -> Value {
        let segment = |segment: &Segment| {
            let mut object = json!({
                "id": segment.id,
                "seek": segment.seek,
                "start": segment.start,
                "end": segment.end,
                "text": segment.text,
                "tokens": segment.tokens,
                "temperature": segment.temperature,
                "avg_logprob": segment.mean_log_probability,
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech_probability,
            });
            if !segment.words.is_empty() {
                let words = segment.words.iter();
                let words =
                    words.map(|word| json!({ "word": word.word, "start": word.start, "end": word.end, "probability": word.probability }));
                object["words"] = words.collect();
            }
            object
        };
        let segments: Vec<_> = transcript.segments.iter().map(segment).collect();
        json!({ "text": transcript.text, "segments": segments, "language": transcript.language })
    }
}

/// Writes a transcript in one format, segment by segment.
#[derive(Clone, Debug)]
pub struct TranscriptWriter {
    format: TranscriptFormat,
    subtitles: Subtitles,
    n_cues: usize,
}

impl TranscriptWriter {
    /// A writer of one transcript.
    pub fn new(format: TranscriptFormat, subtitles: SubtitleOptions) -> Self {
        Self { format, subtitles: Subtitles::new(subtitles), n_cues: 0 }
    }

    /// What stands before the segments.
    pub fn header(&self) -> &'static str {
        match self.format {
            TranscriptFormat::Vtt => "WEBVTT\n\n",
            TranscriptFormat::Tsv => "start\tend\ttext\n",
            TranscriptFormat::Txt | TranscriptFormat::Srt | TranscriptFormat::Json => "",
        }
    }

    /// The text that the next segment completes; nothing in JSON, which is written as a whole.
    pub fn segment(&mut self, segment: &Segment) -> String {
        let (text, times) = (segment.text.trim(), [segment.start, segment.end]);
        match self.format {
            TranscriptFormat::Txt => format!("{text}\n"),
            TranscriptFormat::Srt | TranscriptFormat::Vtt => {
                let cues = if segment.words.is_empty() {
                    let mut cues = self.subtitles.finish();
                    cues.push(Cue { times, text: text.replace("-->", "->") });
                    cues
                } else {
                    self.subtitles.push(&segment.words)
                };
                self.cues(cues)
            }
            TranscriptFormat::Tsv => {
                let [start, end] = times.map(milliseconds);
                format!("{start}\t{end}\t{}\n", text.replace('\t', " "))
            }
            TranscriptFormat::Json => String::new(),
        }
    }

    /// The text that the end of the transcript completes.
    pub fn finish(&mut self) -> String {
        let cues = self.subtitles.finish();
        self.cues(cues)
    }

    /// A whole transcript.
    pub fn document(mut self, transcript: &Transcription) -> String {
        if self.format == TranscriptFormat::Json {
            return format!("{}\n", TranscriptFormat::object(transcript));
        }
        let mut document = self.header().to_owned();
        for segment in transcript.segments.iter().filter(|segment| !segment.text.is_empty()) {
            document += &self.segment(segment);
        }
        document + &self.finish()
    }

    fn cues(&mut self, cues: Vec<Cue>) -> String {
        let is_srt = self.format == TranscriptFormat::Srt;
        let cues = cues.into_iter().map(|Cue { times, text }| {
            self.n_cues += 1;
            let number = if is_srt { format!("{}\n", self.n_cues) } else { String::new() };
            let [start, end] =
                times.map(|time| clock(time, is_srt, if is_srt { ',' } else { '.' }));
            format!("{number}{start} --> {end}\n{text}\n\n")
        });
        cues.collect()
    }
}

/// A time as `hours:minutes:seconds` with milliseconds; hours can be left out while they are 0.
fn clock(seconds: f64, always_hours: bool, decimal: char) -> String {
    let milliseconds = milliseconds(seconds);
    let (hours, minutes) = (milliseconds / 3_600_000, milliseconds / 60_000 % 60);
    let hours = if always_hours || hours > 0 { format!("{hours:02}:") } else { String::new() };
    format!(
        "{hours}{minutes:02}:{:02}{decimal}{:03}",
        milliseconds / 1000 % 60,
        milliseconds % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_as_of_openai() {
        let segment = |start, end, text: &str| Segment {
            start,
            end,
            text: text.into(),
            ..Segment::default()
        };
        let segments = vec![
            segment(0.0, 2.5, " A --> b."),
            segment(2.5, 2.5, ""),
            segment(3599.9994, 3661.25, " Two\twords."),
        ];
        let transcript = Transcription {
            text: " A".into(),
            language: "en".into(),
            segments,
            ..Transcription::default()
        };
        let documents = TranscriptFormat::ALL.map(|(format, _)| format.document(&transcript));
        assert_eq!(documents[0], "A --> b.\nTwo\twords.\n");
        assert_eq!(
            documents[1],
            "1\n00:00:00,000 --> 00:00:02,500\nA -> b.\n\n2\n00:59:59,999 --> 01:01:01,250\nTwo\twords.\n\n"
        );
        assert_eq!(
            documents[2],
            "WEBVTT\n\n00:00.000 --> 00:02.500\nA -> b.\n\n59:59.999 --> 01:01:01.250\nTwo\twords.\n\n"
        );
        assert_eq!(
            documents[3],
            "start\tend\ttext\n0\t2500\tA --> b.\n3599999\t3661250\tTwo words.\n"
        );
        let object: Value = serde_json::from_str(&documents[4]).expect("JSON");
        assert_eq!(
            (&object["language"], object["segments"].as_array().map(Vec::len)),
            (&json!("en"), Some(3))
        );
    }
}
