//! Pixel values, compared with those of transformers' processors.

use crate::{answer, picture};
use cognate_images::{Image, ImageProcessor};
use ndarray::Array3;

/// What is left of an f32 of about 1 by three operations.
const ROUNDING: f32 = 1e-6;

fn floats((bytes, shape): (Vec<u8>, Vec<usize>)) -> Array3<f32> {
    let values =
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    Array3::from_shape_vec([shape[0], shape[1], shape[2]], values).unwrap()
}

#[test]
fn pixel_values_are_those_of_transformers() {
    let image = Image::open(&picture("rgb.png")).unwrap();
    for name in [
        "vit",
        "vit-larger",
        "vit-flatter",
        "vit-wider",
        "vit-as-much",
        "deit",
        "deit-padded",
        "as-it-is",
    ] {
        let text = std::fs::read_to_string(picture(&format!("{name}.json"))).unwrap();
        let processor = ImageProcessor::from_json(&text, name).unwrap();
        let (found, expected) =
            (processor.pixel_values(&image), floats(answer(&picture("answers.safetensors"), name)));
        assert_eq!(found.dim(), expected.dim(), "{name}");
        assert!(
            processor.size().is_none_or(|[height, width]| found.dim() == (3, height, width)),
            "{name}"
        );
        let worst =
            found.iter().zip(&expected).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(worst <= ROUNDING, "{name}: {worst:e} from transformers'");
    }
}

/// transformers' `ViTImageProcessorFast`, the only one of version 5, cuts as DeiT's does.
#[test]
fn pictures_for_vit_are_cut_if_the_file_says_so() {
    let image = Image::open(&picture("rgb.png")).unwrap();
    let text = std::fs::read_to_string(picture("deit.json")).unwrap();
    let [deit, vit] = ["DeiT", "ViT"].map(|name| {
        let text = text.replace("DeiTImage", &format!("{name}Image"));
        ImageProcessor::from_json(&text, name).unwrap().pixel_values(&image)
    });
    assert_eq!(vit, deit);
    let error = ImageProcessor::from_json(r#"{"do_pad": true}"#, "a.json").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "a.json: do_pad is not supported; expected false, found true");
}

#[test]
fn pixel_values_are_shown() {
    let image = Image::open(&picture("rgb.png")).unwrap();
    for text in [
        r#"{"do_resize": false}"#,
        r#"{"do_resize": false, "image_mean": [0.1, 0.5, 0.9], "image_std": [0.2, 0.3, 0.4]}"#,
    ] {
        let processor = ImageProcessor::from_json(text, "").unwrap();
        assert_eq!(
            processor.picture(processor.pixel_values(&image).view()).unwrap(),
            image,
            "{text}"
        );
    }
}

/// Larger pictures and sizes, where the shared ones are there.
#[test]
fn shared_pictures_are_resized_as_pillow_does() {
    let Some(folder) = cognate_testing::shared_images() else { return };
    for name in [
        "line.png",
        "line.jpg",
        "line-grey.png",
        "line-grey.jpg",
        "gradient.png",
        "gradient-420.jpg",
    ] {
        let answers = folder.join(name).with_added_extension("safetensors");
        let (pixels, shape) = answer(&answers, "decoded");
        let image = Image::from_rgb(shape[1], shape[0], pixels).unwrap();
        for size in [224, 384] {
            let processor = ImageProcessor::from_json(
                &format!(r#"{{"size": {size}, "do_rescale": false, "do_normalize": false}}"#),
                "",
            )
            .unwrap();
            let (found, (expected, shape)) =
                (processor.pixel_values(&image), answer(&answers, &format!("resized_{size}")));
            for ((channel, row, column), found) in found.indexed_iter() {
                let expected = expected[(row * size + column) * shape[2] + channel % shape[2]];
                assert_eq!(
                    *found,
                    f32::from(expected),
                    "{name} to {size}: {channel}, {row}, {column}"
                );
            }
        }
    }
    let found = ImageProcessor::from_json("{}", "")
        .unwrap()
        .pixel_values(&Image::open(&folder.join("line.png")).unwrap());
    let expected = floats(answer(&folder.join("line.png.safetensors"), "pixel_values_224"));
    let worst =
        found.iter().zip(&expected).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(worst <= ROUNDING, "{worst:e}");
}
