//! Images to classes and to text, as transformers makes them.

use cognate::{
    Classifier, DecodingOptions, Export, Image, ImageReader, Layout, LoadOptions, ModelSource,
    VerifyOptions, verify,
};
use cognate_testing::testdata;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// The largest difference of a probability to PyTorch's float64.
const BOUND: f64 = 1e-5;

/// Another program's answers for files of `testdata/images`.
fn answers(file: &str) -> (Vec<PathBuf>, Vec<Value>) {
    let answers: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(testdata(file)).unwrap()).unwrap();
    (
        answers
            .iter()
            .map(|answer| testdata("images").join(answer["file"].as_str().unwrap()))
            .collect(),
        answers,
    )
}

/// A checkpoint and its exports in two layouts, in `out`.
fn folders(checkpoint: &str, out: &std::path::Path) -> [PathBuf; 3] {
    let (own, hf) = (out.join("own"), out.join("hf"));
    for (out, layout) in [(&own, Layout::Cognate), (&hf, Layout::HuggingFace)] {
        Export::open(testdata(checkpoint)).unwrap().layout(layout).write(out).unwrap();
    }
    assert!(verify(&own, &VerifyOptions::default(), |_| {}).unwrap().report.passed());
    [testdata(checkpoint), own, hf]
}

/// Classes of images as transformers' `pipeline("image-classification")` scores them, from
/// checkpoints and exports.
#[test]
fn classes_of_images_are_those_of_transformers() {
    for (case, labels) in
        [("image-classes", &["cat", "dog", "other"][..]), ("image-score", &["good"])]
    {
        let (paths, answers) = answers(&format!("encoders/{case}/images.json"));
        let out = tempfile::tempdir().unwrap();
        for folder in folders(&format!("encoders/{case}"), out.path()) {
            let classifier = Classifier::open(&folder).unwrap();
            let images: Vec<_> = paths.iter().map(|path| Image::open(path).unwrap()).collect();
            let found = classifier.classify_files(&paths).unwrap();
            assert_eq!(found, classifier.classify_images(&images).unwrap());
            for (found, answer) in found.iter().zip(&answers) {
                assert!(
                    found.is_sorted_by(|one, other| one.score >= other.score),
                    "{case}: {found:?}"
                );
                for (label, expected) in labels.iter().zip(answer["numbers"].as_array().unwrap()) {
                    let score = found.iter().find(|class| class.label == *label).unwrap().score;
                    let difference = (f64::from(score) - expected.as_f64().unwrap()).abs();
                    assert!(
                        difference <= BOUND,
                        "{case}, {}, {label}: {score}, expected {expected}",
                        answer["file"]
                    );
                }
            }
            let error = classifier.classify(&["A dog."]).unwrap_err().to_string();
            assert!(error.ends_with("the model reads images, not texts"), "{error}");
        }
        let error = Classifier::open(testdata("encoders/sentence-classes"))
            .unwrap()
            .classify_files(&paths)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("the model reads texts, not images"), "{error}");
    }
}

/// Texts as transformers' `generate` gives them, greedily, from checkpoints and exports.
#[test]
fn texts_of_images_are_those_of_transformers() {
    let decoding =
        DecodingOptions { max_new_tokens: NonZeroUsize::new(24), ..DecodingOptions::default() };
    let load = |folder: &PathBuf| {
        ImageReader::load(ModelSource::find(folder).unwrap(), &LoadOptions::default(), &decoding)
    };
    for case in ["bert", "gpt2", "mbart", "trocr", "trocr-projected"] {
        let (paths, answers) = answers(&format!("golden/images/{case}/texts.json"));
        let out = tempfile::tempdir().unwrap();
        for folder in folders(&format!("golden/images/{case}"), out.path()) {
            let reader = load(&folder).unwrap();
            let images: Vec<_> = paths.iter().map(|path| Image::open(path).unwrap()).collect();
            let found = reader.read_files(&paths).unwrap();
            assert_eq!(found, reader.read_images(&images).unwrap());
            for (found, answer) in found.iter().zip(&answers) {
                let expected = answer["text"].as_str().unwrap().replace(['\n', '\r'], " ");
                assert_eq!(
                    found[0].text,
                    expected,
                    "{case}, {}, {}",
                    folder.display(),
                    answer["file"]
                );
            }
            let error = cognate::Translator::open(&folder).map(drop).unwrap_err().to_string();
            assert!(
                error.ends_with(
                    "the model reads images, as `cognate read` does; expected a model of text"
                ),
                "{error}"
            );
        }
    }
    let error = load(&cognate_testing::bundled_checkpoint()).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("does not read images; expected a model such as TrOCR"), "{error}");
}
