//! Features, compared with those of transformers' `WhisperFeatureExtractor`.

use crate::{answer, numbers, samples};
use cognate_audio::{AudioReader, FeatureExtractor};

/// The bound of every comparison with transformers.
const CLOSE: f32 = 1e-4;

#[test]
fn features_are_those_of_transformers() {
    let samples = samples("clip.wav");
    for n_mels in [80, 128] {
        let found = FeatureExtractor::whisper(n_mels).extract(&samples);
        assert_eq!(found.dim(), (n_mels, 200));
        let chosen: Vec<_> = (0..200).step_by(10).chain([199]).collect();
        let expected = answer(&format!("features.{n_mels}"));
        assert_eq!(expected.len(), n_mels * chosen.len());
        for (index, expected) in expected.iter().enumerate() {
            let (mel, frame) = (index / chosen.len(), chosen[index % chosen.len()]);
            let found = found[[mel, frame]];
            assert!(
                (found - expected).abs() <= CLOSE,
                "{n_mels} mels, filter {mel}, frame {frame}: {found}, expected {expected}"
            );
        }
    }
}

/// A real clip of 30 s with its padding of zeros, where the shared files are there.
#[test]
fn a_padded_window_is_that_of_transformers() {
    let Some(shared) = cognate_testing::shared_whisper() else { return };
    let extractor = FeatureExtractor::whisper(80);
    let mut samples =
        AudioReader::open(&shared.join("audio/0880.wav")).unwrap().read_all().unwrap();
    samples.resize(extractor.chunk(), 0.0);
    let found = extractor.extract(&samples);
    let bytes =
        std::fs::read(shared.join("models/whisper-tiny.en/reference/features-0880.safetensors"))
            .unwrap();
    let expected = numbers(&bytes, "input_features");
    assert_eq!(found.len(), expected.len());
    let error = found
        .iter()
        .zip(&expected)
        .map(|(found, expected)| (found - expected).abs())
        .fold(0.0, f32::max);
    assert!(error <= CLOSE, "{error}");
}

#[test]
fn frames_do_not_depend_on_blocks() {
    let samples = samples("clip.wav");
    let extractor = FeatureExtractor::whisper(80);
    for length in [0, 1, 159, 160, 200, 201, 400, 1_000, 32_000] {
        let samples = &samples[..length];
        let whole = extractor.extract(samples);
        assert_eq!(whole.ncols(), length / 160);
        let maximum = f32::NEG_INFINITY;
        for block in [1, 7, 160, 401, 5_000] {
            let (mut frames, mut maximum) = (Vec::new(), maximum);
            let mut sink = |frame: &[f32]| {
                maximum = frame.iter().copied().fold(maximum, f32::max);
                frames.push(frame.to_vec());
            };
            let mut stream = extractor.stream();
            samples.chunks(block).for_each(|block| stream.push(block, &mut sink));
            stream.finish(&mut sink);
            let found: Vec<Vec<f32>> = frames
                .iter()
                .map(|frame| {
                    frame.iter().map(|energy| FeatureExtractor::scaled(*energy, maximum)).collect()
                })
                .collect();
            let expected: Vec<Vec<f32>> =
                whole.columns().into_iter().map(|column| column.to_vec()).collect();
            assert_eq!(found, expected, "{length} samples in blocks of {block}");
        }
    }
}

#[test]
fn settings_are_read() {
    let text = r#"{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "chunk_length": 15, "n_fft": 400}"#;
    let extractor = FeatureExtractor::from_json(text, "preprocessor_config.json").unwrap();
    assert_eq!((extractor.n_mels(), extractor.hop(), extractor.chunk()), (128, 160, 240_000));
}
