//! Silences are skipped where the words beside them are likely invented, as in OpenAI's
//! `transcribe`.

use super::options::{APPENDED, PREPENDED};
use super::segments::{Segment, Word, end_of_speech};

/// Only this number of a segment's words is judged.
const JUDGED: usize = 8;
/// Words with a lower probability are improbable.
const IMPROBABLE: f64 = 0.15;
/// Words of a shorter, or a longer duration are improbable, in seconds.
const DURATIONS: [f64; 2] = [0.133, 2.0];
/// What each missing second of a short word counts.
const SHORTNESS: f64 = 15.0;
/// A segment is improbable from this score on.
const MOST: f64 = 3.0;
/// Segments so close to an end of the window have silence beside them, in seconds.
const NEAR: f64 = 2.0;

/// A window, and the silences that are skipped in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SilenceRule {
    /// The shortest silence, in seconds.
    pub(super) threshold: f64,
    /// First frame and number of frames.
    pub(super) window: (usize, usize),
    /// The time of the first frame, and the latest time that a window of full length has.
    pub(super) times: [f64; 2],
    /// The number of frames of all audio.
    pub(super) n_frames: usize,
    /// Seconds of a frame.
    pub(super) step: f64,
    /// The end of the speech before the window.
    pub(super) last_speech: f64,
}

/// How a window is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Following {
    /// Its text is dropped; the next window begins at this frame.
    Instead(usize),
    /// The next window begins at this frame.
    After(usize),
}

impl SilenceRule {
    /// How a window is followed, by default at the frame `next`; removes segments that are likely
    /// invented.
    pub(super) fn apply(
        &self,
        segments: &mut Vec<Segment>,
        mut next: usize,
        ends_in_silence: bool,
    ) -> Following {
        let ([offset, end], (seek, len)) = (self.times, self.window);
        if !ends_in_silence
            && let Some(last) = end_of_speech(segments).filter(|last| *last > offset)
        {
            next = if end - last > self.threshold { self.frame(last) } else { seek + len };
        }
        if let Some(first) = with_words(segments).filter(|first| is_improbable(first)) {
            let gap = first.start - offset;
            if gap > self.threshold {
                return Following::Instead(seek + self.frame(gap));
            }
        }
        let mut before = self.last_speech;
        for index in 0..segments.len() {
            let segment = &segments[index];
            if segment.words.is_empty() {
                continue;
            }
            if is_improbable(segment) && self.is_alone(segment, &segments[index + 1..], before) {
                next = self.frame((offset + 1.0).max(segment.start));
                if self.n_frames as f64 * self.step - segment.end < self.threshold {
                    next = self.n_frames;
                }
                segments.truncate(index);
                break;
            }
            before = segment.end;
        }
        Following::After(next)
    }

    /// Whether silence, or text that is likely invented, is on both sides of a segment.
    fn is_alone(&self, segment: &Segment, later: &[Segment], before: f64) -> bool {
        let [offset, end] = self.times;
        let following = with_words(later);
        let after = following.map_or(offset + self.window.1 as f64 * self.step, |following| {
            following.words[0].start
        });
        let is_silent_before = segment.start - before > self.threshold
            || segment.start < self.threshold
            || segment.start - offset < NEAR;
        let is_silent_after = after - segment.end > self.threshold
            || following.is_some_and(is_improbable)
            || end - segment.end < NEAR;
        is_silent_before && is_silent_after
    }

    fn frame(&self, seconds: f64) -> usize {
        (seconds / self.step).round() as usize
    }
}

fn with_words(segments: &[Segment]) -> Option<&Segment> {
    segments.iter().find(|segment| !segment.words.is_empty())
}

/// Whether the first words of a segment are too improbable, short or long.
fn is_improbable(segment: &Segment) -> bool {
    let is_punctuation = |word: &Word| [PREPENDED, APPENDED].concat().contains(word.word.as_str());
    let words = segment.words.iter().filter(|word| !is_punctuation(word)).take(JUDGED);
    let (mut score, mut n_words) = (0.0, 0);
    for word in words {
        let duration = word.end - word.start;
        score += f64::from(u8::from(f64::from(word.probability) < IMPROBABLE))
            + SHORTNESS * (DURATIONS[0] - duration).max(0.0)
            + (duration - DURATIONS[1]).max(0.0);
        n_words += 1;
    }
    score >= MOST || score + 0.01 >= f64::from(n_words)
}
