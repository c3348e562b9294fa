//! Windows by voice activity: audio is cut in pauses, and windows are filled with whole stretches
//! of speech.

mod energy;
mod silero;

pub(super) use energy::Energy;
pub(super) use silero::SileroModel;

use crate::error::Result;

/// Frames that are added around speech.
const MARGIN: usize = 40;
/// Pauses that are not cut.
const SHORTEST_PAUSE: usize = 16;
/// The fewest frames of speech that are worth a window.
const SHORTEST_SPEECH: usize = 20;

/// Tells speech from other audio.
pub(super) trait VoiceDetector {
    /// Takes the next samples.
    ///
    /// # Errors
    /// If an engine fails.
    fn samples(&mut self, samples: &[f32]) -> Result<()>;

    /// Takes the next frame's logarithmic energies.
    fn frame(&mut self, energies: &[f32]);

    /// The activity of `n_frames` frames.
    ///
    /// # Errors
    /// If an engine fails.
    fn finish(self: Box<Self>, n_frames: usize) -> Result<Activity>;
}

/// How likely each frame is speech, on a detector's own scale.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Activity {
    pub(super) frames: Vec<f32>,
    /// Speech begins at the first value and ends below the second.
    pub(super) thresholds: [f32; 2],
}

/// Stretches of speech, and the windows that they fill.
pub(super) struct Speech {
    activity: Activity,
    /// First frame and end.
    stretches: Vec<[usize; 2]>,
}

impl Speech {
    pub(super) fn new(activity: Activity) -> Self {
        let stretches = stretches(&activity);
        Self { activity, stretches }
    }

    /// Windows of at most `longest` frames, as first frame and length, in clips with first frame
    /// and end. A longer stretch is cut where it is quietest.
    pub(super) fn windows(&self, longest: usize, clips: &[(usize, usize)]) -> Vec<(usize, usize)> {
        clips.iter().flat_map(|clip| self.windows_in(*clip, longest)).collect()
    }

    fn windows_in(&self, (from, to): (usize, usize), longest: usize) -> Vec<(usize, usize)> {
        let mut windows: Vec<(usize, usize)> = Vec::new();
        let stretches =
            self.stretches.iter().map(|[start, end]| [*start.max(&from), *end.min(&to)]);
        for [mut start, end] in stretches.filter(|[start, end]| start < end) {
            if let Some((first, len)) =
                windows.last_mut().filter(|(first, _)| end - *first <= longest)
            {
                *len = end - *first;
                continue;
            }
            while end - start > longest {
                let cut = self.quietest(start + longest / 2, start + longest);
                windows.push((start, cut - start));
                start = cut;
            }
            windows.push((start, end - start));
        }
        windows
    }

    /// The part of a window from frame `start` to `end` that has speech, if any is left.
    pub(super) fn rest(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let begin = self.activity.thresholds[0];
        let is_left = self.activity.frames[start.min(end)..end]
            .iter()
            .filter(|activity| **activity >= begin)
            .count()
            >= SHORTEST_SPEECH;
        let first = self
            .stretches
            .iter()
            .find(|[_, last]| *last > start)
            .map_or(start, |[first, _]| start.max(*first));
        (is_left && first < end).then(|| (first, end - first))
    }

    /// The middle of the quietest tenth of a second between two frames.
    fn quietest(&self, start: usize, end: usize) -> usize {
        const WIDTH: usize = 10;
        let sums = self.activity.frames[start..end]
            .windows(WIDTH)
            .map(|frames| frames.iter().sum::<f32>());
        let quietest = sums.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
        quietest.map_or(end, |(index, _)| start + index + WIDTH / 2)
    }
}

/// Stretches of speech with margins, which do not overlap.
fn stretches(Activity { frames, thresholds: [begin, end] }: &Activity) -> Vec<[usize; 2]> {
    let mut found: Vec<[usize; 2]> = Vec::new();
    let mut is_speech = false;
    for (frame, activity) in frames.iter().enumerate() {
        is_speech = *activity >= if is_speech { *end } else { *begin };
        match found.last_mut() {
            _ if !is_speech => {}
            Some([_, before]) if frame < *before + SHORTEST_PAUSE => *before = frame + 1,
            _ => found.push([frame, frame + 1]),
        }
    }
    // Margins meet in the middle of a pause.
    let bounds = found.clone();
    for (index, [start, end]) in found.iter_mut().enumerate() {
        let before = index.checked_sub(1).map_or(0, |before| (bounds[before][1] + *start) / 2);
        let after = bounds.get(index + 1).map_or(frames.len(), |after| (*end + after[0]) / 2);
        *start = start.saturating_sub(MARGIN).max(before);
        *end = (*end + MARGIN).min(after);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech(len: usize, loud: &[(usize, usize)]) -> Speech {
        let mut frames = vec![0.0; len];
        loud.iter().for_each(|&(start, end)| frames[start..end].fill(1.0));
        Speech::new(Activity { frames, thresholds: [0.5, 0.35] })
    }

    #[test]
    fn windows_are_filled_with_whole_stretches() {
        let found = speech(1000, &[(100, 300), (310, 400), (420, 500), (700, 800)]);
        // A pause of 10 frames is not cut, one of 20 is.
        assert_eq!(found.stretches, [[60, 410], [410, 540], [660, 840]]);
        let windows = |longest| found.windows(longest, &[(0, 1000)]);
        assert_eq!(windows(800), [(60, 780)]);
        assert_eq!(windows(500), [(60, 480), (660, 180)]);
        assert_eq!(windows(400), [(60, 350), (410, 130), (660, 180)]);
        // The long stretch is cut in its short pause, at 300 to 310.
        assert_eq!(windows(300), [(60, 245), (305, 235), (660, 180)]);
        assert_eq!(found.windows(800, &[(0, 200), (350, 750)]), [(60, 140), (350, 400)]);
        assert!(speech(100, &[]).windows(300, &[(0, 100)]).is_empty());
    }

    #[test]
    fn speech_ends_below_the_second_threshold() {
        let mut frames = vec![0.4; 200];
        frames[50] = 0.6;
        frames[120..].fill(0.3);
        let found = stretches(&Activity { frames, thresholds: [0.5, 0.35] });
        assert_eq!(found, [[10, 160]]);
    }

    #[test]
    fn the_rest_of_a_window_is_read_if_it_has_speech() {
        let found = speech(1000, &[(100, 300), (500, 600), (690, 700)]);
        assert_eq!(found.rest(250, 640), Some((250, 390)));
        // From the next stretch on.
        assert_eq!(found.rest(345, 640), Some((460, 180)));
        // Ten frames are no word.
        assert_eq!(found.rest(600, 740), None);
        assert_eq!(found.rest(640, 640), None);
    }
}
