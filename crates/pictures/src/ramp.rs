//! Colours for weights: one hue, evenly spaced in lightness; larger is darker, or brighter on a
//! dark background.
//!
//! Lightness is that of Oklab (Ottosson 2020), where equal steps look equal.

use serde::{Deserialize, Serialize};

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

const STOPS: usize = 33;
/// Blue, which differs from grey in all common kinds of colour blindness; only lightness carries
/// meaning.
const HUE_DEGREES: f64 = 257.0;

/// Colours from 0 to the largest weight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ramps {
    /// On a light background.
    light: Vec<Colour>,
    /// On a dark background.
    dark: Vec<Colour>,
}

impl Ramps {
    pub(crate) fn new() -> Self {
        Self { light: ramp([0.975, 0.33], [0.008, 0.13]), dark: ramp([0.26, 0.93], [0.025, 0.09]) }
    }
}

/// The colour of a share of the largest weight, on a light background.
pub(crate) fn light(share: f32) -> Colour {
    let share = f64::from(share.clamp(0.0, 1.0));
    at([0.975, 0.33], [0.008, 0.13], share)
}

/// Whether white has more contrast to a colour than black.
pub(crate) fn is_dark(colour: Colour) -> bool {
    // (1 + 0.05) / (y + 0.05) > (y + 0.05) / (0 + 0.05)
    luminance(colour) < 0.179
}

/// Relative luminance (WCAG 2.2).
fn luminance(colour: Colour) -> f64 {
    let linear = |channel: u8| {
        let value = f64::from(channel) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}

fn ramp(lightness: [f64; 2], chroma: [f64; 2]) -> Vec<Colour> {
    (0..STOPS).map(|stop| at(lightness, chroma, stop as f64 / (STOPS - 1) as f64)).collect()
}

fn at(lightness: [f64; 2], chroma: [f64; 2], share: f64) -> Colour {
    let between = |[from, to]: [f64; 2]| from + share * (to - from);
    let (l, c) = (between(lightness), between(chroma));
    let (sin, cos) = HUE_DEGREES.to_radians().sin_cos();
    let (a, b) = (c * cos, c * sin);
    let cones = [
        l + 0.396_337_777_4 * a + 0.215_803_757_3 * b,
        l - 0.105_561_345_8 * a - 0.063_854_172_8 * b,
        l - 0.089_484_177_5 * a - 1.291_485_548_0 * b,
    ]
    .map(|root| root * root * root);
    let rows = [
        [4.076_741_662_1, -3.307_711_591_3, 0.230_969_929_2],
        [-1.268_438_004_6, 2.609_757_401_1, -0.341_319_396_5],
        [-0.004_196_086_3, -0.703_418_614_7, 1.707_614_701_0],
    ];
    rows.map(|row| {
        let linear: f64 = row.iter().zip(cones).map(|(factor, cone)| factor * cone).sum();
        let coded = if linear <= 0.003_130_8 {
            12.92 * linear
        } else {
            1.055 * linear.powf(1.0 / 2.4) - 0.055
        };
        (coded.clamp(0.0, 1.0) * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luminance_distinguishes_weights() {
        let Ramps { light: on_light, dark } = Ramps::new();
        assert!(
            on_light.windows(2).all(|pair| luminance(pair[0]) > luminance(pair[1])),
            "{on_light:?}"
        );
        assert!(dark.windows(2).all(|pair| luminance(pair[0]) < luminance(pair[1])), "{dark:?}");
        let contrast = |a, b| (luminance(a) + 0.05) / (luminance(b) + 0.05);
        assert!(contrast(on_light[0], on_light[STOPS - 1]) > 9.0, "{on_light:?}");
        assert!(contrast(dark[STOPS - 1], dark[0]) > 9.0, "{dark:?}");
        assert_eq!(light(1.0), on_light[STOPS - 1]);
        // Numbers in cells can be read.
        for colour in [on_light, dark].concat() {
            let ink = if is_dark(colour) { 1.0 } else { 0.0 };
            let [low, high] = if ink < luminance(colour) {
                [ink, luminance(colour)]
            } else {
                [luminance(colour), ink]
            };
            assert!((high + 0.05) / (low + 0.05) > 4.5, "{colour:?}");
        }
    }

    /// As CSS Color 4 defines Oklab: white and black have no chroma.
    #[test]
    fn greys_are_grey() {
        assert_eq!(at([1.0, 1.0], [0.0, 0.0], 0.0), [255, 255, 255]);
        assert_eq!(at([0.0, 0.0], [0.0, 0.0], 0.0), [0, 0, 0]);
    }
}
