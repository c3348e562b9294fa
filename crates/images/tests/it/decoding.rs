//! Every kind of file, compared with what transformers' `load_image` makes of it.

use crate::{answer, difference, picture};
use cognate_images::Image;

/// JPEG decoders may round by themselves: FFmpeg's and libjpeg-turbo's differ by more.
const JPEG: u8 = 4;

#[test]
fn files_are_as_transformers_loads_them() {
    let answers = picture("answers.safetensors");
    let mut names: Vec<_> = std::fs::read_dir(picture("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| (name.ends_with(".png") || name.ends_with(".jpg")) && name != "grey-16.png")
        .collect();
    names.sort();
    assert_eq!(names.len(), 21);
    let worse: Vec<_> = names
        .iter()
        .map(|name| {
            (name, difference(&Image::open(&picture(name)).unwrap(), &answer(&answers, name)))
        })
        .filter(|(name, worst)| *worst > if name.ends_with(".png") { 0 } else { JPEG })
        .collect();
    assert!(worse.is_empty(), "levels from Pillow's: {worse:?}");
}

/// Larger pictures, where the shared ones are there.
#[test]
fn shared_pictures_are_as_pillow_decodes_them() {
    let Some(folder) = cognate_testing::shared_images() else { return };
    for (name, bound) in [
        ("line.png", 0),
        ("line-grey.png", 0),
        ("gradient.png", 0),
        ("gradient-rgba.png", 0),
        ("line.jpg", JPEG),
        ("line-grey.jpg", JPEG),
        ("gradient-420.jpg", JPEG),
    ] {
        let expected = folder.join(if name == "gradient-rgba.png" { "gradient.png" } else { name });
        let worst = difference(
            &Image::open(&folder.join(name)).unwrap(),
            &answer(&expected.with_added_extension("safetensors"), "decoded"),
        );
        eprintln!("{name}: {worst} of {bound}");
        assert!(worst <= bound, "{name}: {worst} levels from Pillow's");
    }
}
