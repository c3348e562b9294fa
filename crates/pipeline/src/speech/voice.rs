//! Windows by voice activity: pauses are told by the energy of frames.
//!
//! A frame is speech if its mean log energy is above a threshold between the quietest and the loudest frames; speech is widened by a
//! margin, and windows are filled with whole stretches of speech.

use super::features::Frames;

/// Frames that are added around speech.
const MARGIN: usize = 20;
/// Pauses that are not cut.
const SHORTEST_PAUSE: usize = 50;
/// The share of the range of energies, from the quietest to the loudest frames, below which a frame is silence.
const SHARE: f32 = 0.25;
/// The least range, in powers of ten, in which silence is told from speech.
const LEAST_RANGE: f32 = 0.5;

/// The windows of an audio, as first frame and length.
pub(super) fn windows(frames: &Frames) -> Vec<(usize, usize)> {
    let loudness: Vec<f32> = (0..frames.n_heard()).map(|frame| frames.loudness(frame)).collect();
    filled(&speech(&loudness), frames.window())
}

/// Stretches of speech, as first frame and end.
fn speech(loudness: &[f32]) -> Vec<(usize, usize)> {
    let mut sorted = loudness.to_vec();
    sorted.sort_by(f32::total_cmp);
    let at = |share: f32| sorted[((sorted.len() - 1) as f32 * share) as usize];
    let (quiet, loud) = (at(0.05), at(0.95));
    if loud - quiet < LEAST_RANGE {
        return vec![(0, loudness.len())];
    }
    let threshold = quiet + SHARE * (loud - quiet);
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (frame, _) in loudness.iter().enumerate().filter(|(_, loudness)| **loudness > threshold) {
        let (start, end) = (frame.saturating_sub(MARGIN), (frame + 1 + MARGIN).min(loudness.len()));
        match found.last_mut() {
            Some((_, before)) if start <= *before + SHORTEST_PAUSE => *before = end,
            _ => found.push((start, end)),
        }
    }
    found
}

/// Windows of at most `longest` frames; a stretch that is longer is divided evenly.
fn filled(speech: &[(usize, usize)], longest: usize) -> Vec<(usize, usize)> {
    let mut windows: Vec<(usize, usize)> = Vec::new();
    for &(start, end) in speech {
        match windows.last_mut() {
            Some((first, len)) if end - *first <= longest => *len = end - *first,
            _ => {
                let parts = (end - start).div_ceil(longest).max(1);
                let bound = |part: usize| start + (end - start) * part / parts;
                windows.extend((0..parts).map(|part| (bound(part), bound(part + 1) - bound(part))));
            }
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_divide_speech() {
        let mut loudness = vec![-8.0; 1000];
        loudness[100..300].fill(-1.0);
        loudness[320..400].fill(-1.0);
        loudness[700..800].fill(-1.0);
        assert_eq!(speech(&loudness), [(80, 420), (680, 820)]);
        assert_eq!(filled(&speech(&loudness), 800), [(80, 740)]);
        assert_eq!(filled(&speech(&loudness), 500), [(80, 340), (680, 140)]);
        assert_eq!(filled(&speech(&loudness), 200), [(80, 170), (250, 170), (680, 140)]);
        // Nothing stands out.
        assert_eq!(speech(&[-2.0; 50]), [(0, 50)]);
    }
}
