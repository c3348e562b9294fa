//! Options that a model cannot follow are refused, whenever they are set.

use cognate::evaluation::{BleuSettings, Metric, Resampling, Scores};
use cognate::{
    Classifier, DecodingOptions, EmbedOptions, Embedder, Error, ErrorKind, Export, Languages,
    Layout, Line, LoadOptions, ModelSource, Translator, TranslatorOptions,
};
use cognate_testing::{bundled_checkpoint, testdata};
use std::num::NonZeroUsize;

const SENTENCE: &str = "Two dogs play in the snow.";

fn option<T>(result: Result<T, Error>) -> &'static str {
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Options, "{error}");
    error.option().map_or("", |(name, _)| name)
}

#[test]
fn constants_of_a_graph_that_decodes_cannot_be_changed_later() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    Export::open(bundled_checkpoint()).unwrap().layout(Layout::Generate).write(&out).unwrap();
    let translator = Translator::open(&out).unwrap();
    for options in [
        DecodingOptions { bad_words: vec!["Hunde".into()], ..Default::default() },
        DecodingOptions { suppress_tokens: vec![5], ..Default::default() },
    ] {
        option(translator.with(&Languages::default(), &options));
    }
    let greedy = DecodingOptions { beams: NonZeroUsize::new(1), ..Default::default() };
    assert!(translator.with(&Languages::default(), &greedy).is_ok());
}

#[test]
fn of_several_samples_the_first_is_streamed() {
    let options = DecodingOptions {
        sample: true,
        n_best: NonZeroUsize::new(3),
        seed: Some(1),
        ..Default::default()
    };
    let options = TranslatorOptions { decoding: options, ..Default::default() };
    let translator = Translator::open_with(bundled_checkpoint(), &options).unwrap();
    let (mut text, line) = (String::new(), Line { text: SENTENCE.into(), prefix: None });
    let mut write = |part: &str| {
        text += part;
        Ok::<_, Error>(())
    };
    let found = translator.stream(&line, 0, &mut write).unwrap();
    assert_eq!((text, found.hypotheses.len()), (found.text, 3));
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (name, load) in [
        ("workers", LoadOptions { workers: Some(NonZeroUsize::MAX), ..Default::default() }),
        ("threads", LoadOptions { threads: Some(NonZeroUsize::MAX), ..Default::default() }),
    ] {
        let options = TranslatorOptions { load, ..Default::default() };
        assert_eq!(option(Translator::open_with(bundled_checkpoint(), &options)), name);
    }
    let (system, reference) = (("mine".into(), vec![SENTENCE.into()]), [SENTENCE.to_owned()]);
    let metrics = [Metric::Bleu(BleuSettings::default())];
    let scores = |samples| {
        let resampling = Some(Resampling { samples, ..Resampling::default() });
        Scores::of(std::slice::from_ref(&system), &[&reference], &metrics, resampling)
    };
    for samples in [0, usize::MAX] {
        assert_eq!(option(scores(samples)), "samples");
    }
    assert!(scores(10).unwrap().to_text(usize::MAX).starts_with("BLEU|"));
}

#[test]
fn encoders_have_no_shortlist() {
    let load = LoadOptions { shortlist: Some("a.txt".into()), ..Default::default() };
    let source = || ModelSource::find(&testdata("encoders/sentence")).unwrap();
    let options = EmbedOptions { load: load.clone(), ..Default::default() };
    assert_eq!(option(Embedder::load(source(), &options)), "shortlist");
    assert_eq!(option(Classifier::load(source(), &load)), "shortlist");
}

#[test]
fn an_export_in_place_ignores_no_option() {
    let export = || Export::open(bundled_checkpoint()).unwrap();
    assert_eq!(option(export().with_generate(true).write_in_place()), "in_place");
    assert_eq!(option(export().block_size(Some(16)).write_in_place()), "block_size");
}
