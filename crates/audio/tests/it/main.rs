//! Decoding and features, compared with other programs' answers in `testdata/audio`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod features;
mod reading;
mod wrong;

use cognate_audio::AudioReader;
use cognate_testing::testdata;
use safetensors::SafeTensors;
use std::path::PathBuf;

fn clip(name: &str) -> PathBuf {
    testdata("audio").join(name)
}

fn samples(name: &str) -> Vec<f32> {
    AudioReader::open(&clip(name)).unwrap().read_all().unwrap()
}

/// A tensor of other programs' answers, in row-major order.
fn answer(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(clip("answers.safetensors")).unwrap();
    numbers(&bytes, name)
}

fn numbers(bytes: &[u8], name: &str) -> Vec<f32> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let bytes = file.tensor(name).unwrap().data().to_vec();
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The energy of a signal over that of its difference from another, in dB.
fn signal_to_noise(signal: &[f32], other: &[f32]) -> f64 {
    let energy = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|value| f64::from(value).powi(2)).sum::<f64>()
    };
    let noise = energy(&mut signal.iter().zip(other).map(|(one, other)| one - other));
    10.0 * (energy(&mut signal.iter().copied()) / noise).log10()
}
