//! Voice activity by energy: a frame is speech if its mean logarithmic energy is above a threshold
//! between the quietest and the loudest.

use super::{Activity, VoiceDetector};
use crate::error::Result;

/// The share of the range of energies, from the quietest to the loudest frames, below which a frame
/// is silence.
const SHARE: f32 = 0.25;
/// The least range, in powers of ten, in which silence is told from speech.
const LEAST_RANGE: f32 = 0.5;

/// The mean logarithmic energy of each frame.
#[derive(Default)]
pub(crate) struct Energy(Vec<f32>);

impl VoiceDetector for Energy {
    fn samples(&mut self, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn frame(&mut self, energies: &[f32]) {
        self.0.push(energies.iter().sum::<f32>() / energies.len() as f32);
    }

    fn finish(self: Box<Self>, n_frames: usize) -> Result<Activity> {
        let mut frames = self.0;
        frames.truncate(n_frames);
        let mut sorted = frames.clone();
        sorted.sort_by(f32::total_cmp);
        let at = |share: f32| {
            sorted
                .get((sorted.len().saturating_sub(1) as f32 * share) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let (quiet, loud) = (at(0.05), at(0.95));
        // Where nothing stands out, all is speech.
        let threshold = if loud - quiet < LEAST_RANGE {
            f32::NEG_INFINITY
        } else {
            quiet + SHARE * (loud - quiet)
        };
        Ok(Activity { frames, thresholds: [threshold; 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(frames: &[f32]) -> Activity {
        let mut energy = Box::new(Energy::default());
        frames.iter().for_each(|frame| energy.frame(&[frame - 1.0, frame + 1.0]));
        energy.finish(frames.len() - 1).expect("no engine, no error")
    }

    #[test]
    fn the_threshold_lies_between_quiet_and_loud_frames() {
        let frames: Vec<f32> = [vec![-8.0; 50], vec![-4.0; 51]].concat();
        assert_eq!(
            activity(&frames),
            Activity { frames: frames[..100].to_vec(), thresholds: [-7.0; 2] }
        );
        assert_eq!(activity(&[-2.0; 50]).thresholds, [f32::NEG_INFINITY; 2]);
    }
}
