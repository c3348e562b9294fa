//! Decoding and pixel values, compared with Pillow's and transformers' answers in
//! `testdata/images`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod decoding;
mod processing;
mod wrong;

use cognate_images::Image;
use cognate_testing::testdata;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

fn picture(name: &str) -> PathBuf {
    testdata("images").join(name)
}

/// The bytes and shape of a tensor.
fn answer(file: &Path, name: &str) -> (Vec<u8>, Vec<usize>) {
    let bytes = std::fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(name).unwrap();
    (tensor.data().to_vec(), tensor.shape().to_vec())
}

/// The largest difference from `expected: [height, width, 3]`.
fn difference(found: &Image, (expected, shape): &(Vec<u8>, Vec<usize>)) -> u8 {
    assert_eq!([found.height(), found.width(), 3], shape.as_slice());
    found.pixels().iter().zip(expected).map(|(one, other)| one.abs_diff(*other)).max().unwrap()
}
