//! Pixel values, as transformers' `ViTImageProcessor` and `DeiTImageProcessor` compute them:
//! resize, crop, rescale, normalise.

use crate::resize::{Filter, resize};
use crate::{Error, ErrorKind, Image, Result};
use ndarray::{Array3, ArrayView3};
use serde::Deserialize;

/// The longest side of a resized or cropped picture.
const LONGEST_SIDE: usize = 4096;

/// Computes the input of a vision Transformer: `(x · scale - mean) / deviation` of a resized
/// picture.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageProcessor {
    resize: Option<([usize; 2], Filter)>,
    /// Height and width.
    crop: Option<[usize; 2]>,
    /// The value of each level, 0 to 255, of red, green and blue.
    levels: [Vec<f32>; 3],
}

/// The fields of `preprocessor_config.json` that determine the pixel values.
#[derive(Deserialize)]
struct Settings {
    #[serde(alias = "feature_extractor_type")]
    image_processor_type: Option<String>,
    do_resize: Option<bool>,
    size: Option<Size>,
    resample: Option<u8>,
    do_center_crop: Option<bool>,
    crop_size: Option<Size>,
    do_rescale: Option<bool>,
    rescale_factor: Option<f64>,
    do_normalize: Option<bool>,
    image_mean: Option<[f32; 3]>,
    image_std: Option<[f32; 3]>,
    do_pad: Option<bool>,
}

/// A size; in older files one number for both sides.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a number, or height and width")]
enum Size {
    Square(usize),
    Sides { height: usize, width: usize },
}

/// Default settings of a type of processor.
struct Kind {
    resample: u8,
    size: usize,
    crops: bool,
}

const VIT: Kind = Kind { resample: 2, size: 224, crops: false };
const DEIT: Kind = Kind { resample: 3, size: 256, crops: true };

impl ImageProcessor {
    /// The processor described by the text of a `preprocessor_config.json`, whose name in errors is
    /// `place`.
    ///
    /// # Errors
    /// If the text is not such a file, or a setting is not supported.
    pub fn from_json(text: &str, place: &str) -> Result<Self> {
        let wrong = |message: String| Error::new(ErrorKind::Settings, place, message);
        let settings: Settings =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let kind = match settings.image_processor_type.as_deref() {
            Some(
                "ViTImageProcessor"
                | "ViTImageProcessorFast"
                | "ViTImageProcessorPil"
                | "ViTFeatureExtractor",
            ) => VIT,
            Some(
                "DeiTImageProcessor"
                | "DeiTImageProcessorFast"
                | "DeiTImageProcessorPil"
                | "DeiTFeatureExtractor",
            ) => DEIT,
            // Early files do not name their processor.
            None if settings.do_center_crop.is_none() => VIT,
            None => DEIT,
            Some(other) => {
                let message = format!(
                    "image_processor_type {other:?} is not supported; expected ViTImageProcessor or DeiTImageProcessor"
                );
                return Err(wrong(message));
            }
        };
        let size = |field: &str, size: Option<Size>, default| {
            let [height, width] = match size.unwrap_or(Size::Square(default)) {
                Size::Square(side) => [side; 2],
                Size::Sides { height, width } => [height, width],
            };
            match (1..=LONGEST_SIDE).contains(&height) && (1..=LONGEST_SIDE).contains(&width) {
                true => Ok([height, width]),
                false => Err(wrong(format!(
                    "{field}: expected sides of 1 to {LONGEST_SIDE}, found {height} x {width}"
                ))),
            }
        };
        let filter = match settings.resample.unwrap_or(kind.resample) {
            2 => Filter::Bilinear,
            3 => Filter::Bicubic,
            other => {
                return Err(wrong(format!(
                    "resample {other} is not supported; expected 2 (bilinear) or 3 (bicubic)"
                )));
            }
        };
        let resize = settings
            .do_resize
            .unwrap_or(true)
            .then(|| size("size", settings.size, kind.size))
            .transpose()?;
        if settings.do_pad == Some(true) {
            return Err(wrong("do_pad is not supported; expected false, found true".into()));
        }
        let crops = settings.do_center_crop.unwrap_or(kind.crops);
        let crop = crops.then(|| size("crop_size", settings.crop_size, 224)).transpose()?;
        let scale = if settings.do_rescale.unwrap_or(true) {
            settings.rescale_factor.unwrap_or(1.0 / 255.0)
        } else {
            1.0
        };
        let normalizes = settings.do_normalize.unwrap_or(true);
        let channel = |given: Option<[f32; 3]>, index: usize, neutral| {
            if normalizes { given.unwrap_or([0.5; 3])[index] } else { neutral }
        };
        let levels = [0, 1, 2].map(|index| {
            let (mean, deviation) =
                (channel(settings.image_mean, index, 0.0), channel(settings.image_std, index, 1.0));
            (0..=255)
                .map(|level| ((f64::from(level) * scale) as f32 - mean) / deviation)
                .collect::<Vec<_>>()
        });
        if levels.iter().flatten().any(|level| !level.is_finite()) {
            return Err(wrong(
                "rescale_factor, image_mean and image_std: pixel values are not finite".into(),
            ));
        }
        Ok(Self { resize: resize.map(|size| (size, filter)), crop, levels })
    }

    /// The height and width of all pixel values; `None` if they depend on the picture.
    pub fn size(&self) -> Option<[usize; 2]> {
        self.crop.or(self.resize.map(|(size, _)| size))
    }

    /// The pixel values of a picture: `[3, height, width]`.
    pub fn pixel_values(&self, image: &Image) -> Array3<f32> {
        let resized;
        let ([height, width], pixels) = match self.resize {
            Some((size, filter)) => {
                resized = resize(image, size, filter);
                (size, resized.as_slice())
            }
            None => ([image.height(), image.width()], image.pixels()),
        };
        let view =
            ArrayView3::from_shape((height, width, 3), pixels).expect("three bytes for each pixel");
        let [rows, columns] = self.crop.unwrap_or([height, width]);
        // If a picture is smaller than its crop, the rest is black.
        let offset = |whole: usize, part: usize| (whole as isize - part as isize).div_euclid(2);
        let (top, left) = (offset(height, rows), offset(width, columns));
        Array3::from_shape_fn((3, rows, columns), |(channel, row, column)| {
            let place = (row.checked_add_signed(top), column.checked_add_signed(left));
            let level = if let (Some(row), Some(column)) = place {
                view.get((row, column, channel))
            } else {
                None
            };
            self.levels[channel][usize::from(level.copied().unwrap_or(0))]
        })
    }

    /// The picture of pixel values `[3, height, width]`, as the model sees it.
    ///
    /// # Errors
    /// If they are too large for a picture.
    pub fn picture(&self, values: ArrayView3<'_, f32>) -> Result<Image> {
        let (_, height, width) = values.dim();
        let byte = |channel: usize, value: f32| {
            let [first, last] = [self.levels[channel][0], self.levels[channel][255]];
            (255.0 * (value - first) / (last - first)).round() as u8
        };
        let pixels = (0..height * width).flat_map(|place| {
            [0, 1, 2].map(|channel| byte(channel, values[[channel, place / width, place % width]]))
        });
        Image::from_rgb(width, height, pixels.collect())
    }
}
