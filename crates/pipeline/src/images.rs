//! Images as the input of a model.

use crate::error::{Cause, Error, Result};
use cognate_folder::ProcessorSettings;
use cognate_images::{Image, ImageProcessor};
use cognate_model::Patches;
use cognate_pictures::SourcePicture;
use ndarray::{Array3, ArrayD, Axis, s};
use std::path::Path;

/// The most positions of an image whose size the processor does not change: the memory of attention
/// grows quadratically.
const MOST_POSITIONS: usize = 4096;
/// The most images of a batch.
const MOST_IMAGES: usize = 16;

/// The image processor of a model's folder.
#[derive(Clone, Debug)]
pub(crate) struct ImageInput {
    processor: ImageProcessor,
    patches: Patches,
}

impl ImageInput {
    /// Reads the settings of images.
    pub(crate) fn open(folder: &Path, patches: Patches) -> Result<Self> {
        let ProcessorSettings { place, text } = ProcessorSettings::read(folder, "image_processor")?;
        let processor = ImageProcessor::from_json(&text, &place);
        let processor = processor.map_err(|error| Cause::InFolder(error.to_string()))?;
        if patches.channels != 3 {
            let message = format!(
                "{}: num_channels {} is not supported for pictures; expected 3",
                folder.display(),
                patches.channels
            );
            return Err(Cause::InFolder(message).into());
        }
        if let Some([height, width]) = processor.size()
            && patches.positions([height, width]).is_none()
        {
            let [patch_height, patch_width] = patches.patch;
            let message = format!(
                "{place}: its pictures of {height} x {width} pixels are not divisible into the patches of {patch_height} x {patch_width} \
                 of config.json"
            );
            return Err(Cause::InFolder(message).into());
        }
        Ok(Self { processor, patches })
    }

    /// Indices of images that are read together.
    pub(crate) fn batches(&self, n_images: usize, workers: usize) -> Vec<Vec<usize>> {
        // Images of one batch have one size.
        let most = if self.processor.size().is_some() {
            n_images.div_ceil(workers).clamp(1, MOST_IMAGES)
        } else {
            1
        };
        (0..n_images).collect::<Vec<_>>().chunks(most).map(<[_]>::to_vec).collect()
    }

    /// The pixel values of a batch of images, which `load` gives by index:
    /// `[batch, 3, height, width]`
    pub(crate) fn pixel_values<I: AsRef<Image>>(
        &self,
        batch: &[usize],
        load: impl Fn(usize) -> Result<I>,
    ) -> Result<ArrayD<f32>> {
        let values = |&index: &usize| {
            let image = load(index)?;
            self.of_one(image.as_ref())
                .map_err(|error| error.at(format_args!("image {}", index + 1)))
        };
        let values = batch.iter().map(values).collect::<Result<Vec<_>>>()?;
        let views: Vec<_> =
            values.iter().map(|values| values.view().insert_axis(Axis(0))).collect();
        ndarray::concatenate(Axis(0), &views)
            .map(|batch| batch.into_dyn())
            .map_err(|_| Error::input("images of one batch differ in size"))
    }

    fn of_one(&self, image: &Image) -> Result<Array3<f32>> {
        if self.processor.size().is_none() {
            let [height, width] = [image.height(), image.width()];
            let is_small = |positions: &usize| *positions <= MOST_POSITIONS;
            if self.patches.positions([height, width]).filter(is_small).is_none() {
                let [rows, columns] = self.patches.patch;
                return Err(Error::input(format_args!(
                    "the picture has {height} x {width} pixels; expected a size of at most {MOST_POSITIONS} patches of {rows} x {columns}"
                )));
            }
        }
        Ok(self.processor.pixel_values(image))
    }

    /// The pixel values of an image, `[1, 3, height, width]`, and the picture that they show.
    pub(crate) fn observed(&self, image: &Image) -> Result<(ArrayD<f32>, SourcePicture)> {
        let values = self.of_one(image)?;
        let (_, height, width) = values.dim();
        let cells =
            self.patches.grid_of([height, width]).expect("checked with the processor's size");
        let [rows, columns] = [0, 1].map(|axis| cells[axis] * self.patches.patch[axis]);
        let shown = self.processor.picture(values.slice(s![.., ..rows, ..columns]))?;
        let picture = SourcePicture::new(
            shown.pixels(),
            [columns, rows],
            cells,
            [self.patches.n_tokens(), 0],
        )
        .map_err(Error::input)?;
        Ok((values.insert_axis(Axis(0)).into_dyn(), picture))
    }
}
