//! Files that are not pictures, or not pictures that are supported.

use crate::picture;
use cognate_images::{Error, ErrorKind, Image, ImageProcessor};
use cognate_testing::never_panics;
use insta::assert_snapshot;

fn refused(bytes: &[u8]) -> Error {
    Image::decode(bytes, "file").expect_err("a wrong picture")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(picture(name)).unwrap()
}

/// A PNG that claims a size, without the checksum of its header and more.
fn claiming(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    drop(encoder.write_header().unwrap());
    file
}

#[test]
fn what_is_no_picture_is_refused() {
    assert_snapshot!(refused(b""), @"file: expected a PNG or JPEG file, found an empty file");
    assert_snapshot!(refused(b"GIF89a...."), @"file: expected a PNG or JPEG file, found another format");
    assert_snapshot!(refused(b"\x89PNG\r\n\x1a\n"), @"file: PNG: unexpected end of file");
    assert_snapshot!(refused(b"\xff\xd8\xff\xe0"), @"file: JPEG: I/O errors Not enough bytes, expected 2 but found 0");
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Image::open(folder.path()).unwrap_err().kind(), ErrorKind::Format);
    assert_eq!(Image::open(&folder.path().join("missing.png")).unwrap_err().kind(), ErrorKind::Io);
}

/// Without memory for the pixels.
#[test]
fn bombs_are_refused_by_their_headers() {
    assert_snapshot!(refused(&claiming(100_000, 100_000)), @"file: the picture has 100000 x 100000 pixels; expected 1 to 67108864 in all");
    assert_snapshot!(refused(&claiming(i32::MAX as u32, 1)), @"file: the picture has 2147483647 x 1 pixels; expected 1 to 67108864 in all");
    let mut jpeg = bytes("grey.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].fill(0xff);
    assert_snapshot!(refused(&jpeg), @"file: the picture has 65535 x 65535 pixels; expected 1 to 67108864 in all");
}

#[test]
fn unsupported_channels_are_refused() {
    assert_snapshot!(refused(&bytes("grey-16.png")), @"file: PNG: 16-bit grey is not supported; expected 8 bits per channel, or RGB");
    let mut twelve = bytes("rgb.jpg");
    let frame = twelve.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    twelve[frame + 4] = 12;
    assert_snapshot!(refused(&twelve), @"file: JPEG: Error parsing SOF segment. Reason:The library can only parse 8-bit images, the image has 12 bits of precision");
}

/// A file that was cut anywhere gives an error, never a part of the picture.
#[test]
fn truncated_files_are_refused() {
    for name in [
        "rgb.png",
        "interlaced.png",
        "palette.png",
        "rgb.jpg",
        "progressive-420.jpg",
        "orientation-6.jpg",
    ] {
        let whole = bytes(name);
        for length in (0..whole.len()).step_by(7).chain([whole.len() - 2, whole.len() - 1]) {
            assert!(
                Image::decode(&whole[..length], name).is_err(),
                "{name}, {length} of {} bytes",
                whole.len()
            );
        }
    }
}

#[test]
fn fuzz_images() {
    let seeds: Vec<_> = [
        "rgb.png",
        "palette.png",
        "interlaced.png",
        "rgb-16.png",
        "turned.png",
        "rgb.jpg",
        "progressive-420.jpg",
        "cmyk.jpg",
    ]
    .map(bytes)
    .into();
    never_panics("images", &seeds, 3000, |bytes| {
        let _ = Image::decode(bytes, "file");
    });
}

#[test]
fn wrong_settings_are_refused() {
    let refused =
        |text: &str| ImageProcessor::from_json(text, "preprocessor_config.json").unwrap_err();
    assert_snapshot!(refused("{"), @"preprocessor_config.json: EOF while parsing an object at line 1 column 1");
    assert_snapshot!(refused(r#"{"image_processor_type": "CLIPImageProcessor"}"#), @r#"preprocessor_config.json: image_processor_type "CLIPImageProcessor" is not supported; expected ViTImageProcessor or DeiTImageProcessor"#);
    assert_snapshot!(refused(r#"{"size": {"shortest_edge": 224}}"#), @"preprocessor_config.json: expected a number, or height and width at line 1 column 32");
    assert_snapshot!(refused(r#"{"size": 0}"#), @"preprocessor_config.json: size: expected sides of 1 to 4096, found 0 x 0");
    assert_snapshot!(refused(r#"{"size": 100000}"#), @"preprocessor_config.json: size: expected sides of 1 to 4096, found 100000 x 100000");
    assert_snapshot!(refused(r#"{"resample": 0}"#), @"preprocessor_config.json: resample 0 is not supported; expected 2 (bilinear) or 3 (bicubic)");
    assert_snapshot!(refused(r#"{"image_mean": [0.5]}"#), @"preprocessor_config.json: invalid length 1, expected an array of length 3 at line 1 column 20");
    assert_snapshot!(refused(r#"{"image_std": [0.5, 0, 0.5]}"#), @"preprocessor_config.json: rescale_factor, image_mean and image_std: pixel values are not finite");
}
