//! Formats of transcripts, as OpenAI's command writes them.

use super::segments::Segment;
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

    /// What stands before the segments.
    pub fn header(self) -> &'static str {
        match self {
            TranscriptFormat::Vtt => "WEBVTT\n\n",
            TranscriptFormat::Tsv => "start\tend\ttext\n",
            TranscriptFormat::Txt | TranscriptFormat::Srt | TranscriptFormat::Json => "",
        }
    }

    /// A segment, which is the `number`-th, from 1; nothing in JSON, which is written as a whole.
    pub fn segment(self, segment: &Segment, number: usize) -> String {
        let (text, times) = (segment.text.trim(), [segment.start, segment.end]);
        let cue = text.replace("-->", "->");
        match self {
            TranscriptFormat::Txt => format!("{text}\n"),
            TranscriptFormat::Srt => {
                let [start, end] = times.map(|time| clock(time, true, ','));
                format!("{number}\n{start} --> {end}\n{cue}\n\n")
            }
            TranscriptFormat::Vtt => {
                let [start, end] = times.map(|time| clock(time, false, '.'));
                format!("{start} --> {end}\n{cue}\n\n")
            }
            TranscriptFormat::Tsv => {
                let [start, end] = times.map(|time| (1000.0 * time).round());
                format!("{start}\t{end}\t{}\n", text.replace('\t', " "))
            }
            TranscriptFormat::Json => String::new(),
        }
    }

    /// A whole transcript.
    pub fn document(self, transcript: &Transcription) -> String {
        if self == TranscriptFormat::Json {
            return format!("{}\n", Self::object(transcript));
        }
        let segments = transcript.segments.iter().filter(|segment| !segment.text.is_empty());
        let segments = segments.zip(1..).map(|(segment, number)| self.segment(segment, number));
        self.header().to_owned() + &segments.collect::<String>()
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

/// A time as `hours:minutes:seconds` with milliseconds; hours can be left out while they are 0.
fn clock(seconds: f64, always_hours: bool, decimal: char) -> String {
    let milliseconds = (seconds.max(0.0) * 1000.0).round() as u64;
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
