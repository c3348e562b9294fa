//! The reports of a manifest.

use cognate_folder::{
    BleuComparison, DecodingReport, OutputReport, Quality, RuntimeReport, StepsComparison,
    StepsReport, VectorsReport,
};

#[test]
fn a_loss_beyond_the_bound_is_marked() {
    let shown = |f32, exported| {
        let (source, reference, signature) = ("a.en".into(), "a.de".into(), String::new());
        let bleu = BleuComparison { source, reference, f32, exported, signature };
        let (engine, method) = ("tract".into(), "greedy".into());
        let quality = Quality {
            engine,
            method,
            sentences: 1000,
            steps: StepsComparison { steps: 2000, equal: 1999 },
            vectors: None,
            bleu: Some(bleu),
        };
        quality
            .to_string()
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let [head, steps] = [
        "compared with f32 on tract: 1000 sentences of a.en, greedy",
        "greedy steps 1999 of 2000 equal, 99.95%",
    ];
    for (f32, exported, bleu) in [
        (30.0, 29.75, "BLEU 29.75, in f32 30.00: 0.25 less"),
        (30.0, 29.5, "BLEU 29.50, in f32 30.00: 0.50 less LOW"),
        (30.0, 31.0, "BLEU 31.00, in f32 30.00: 1.00 more"),
    ] {
        assert_eq!(shown(f32, exported), [head, bleu, steps]);
    }
}

#[test]
fn bundled_sentences_have_no_bleu_in_json() {
    let steps = StepsComparison { steps: 0, equal: 0 };
    let quality = Quality {
        engine: "tract".into(),
        method: "beam 4".into(),
        sentences: 24,
        steps,
        vectors: None,
        bleu: None,
    };
    let text = serde_json::to_string(&quality).expect("a report is JSON");
    assert_eq!(
        text,
        r#"{"engine":"tract","method":"beam 4","sentences":24,"steps":{"steps":0,"equal":0}}"#
    );
    assert_eq!(serde_json::from_str::<Quality>(&text).expect("what was written"), quality);
    assert!(
        quality
            .to_string()
            .starts_with("compared with f32 on tract: 24 sentences of the bundled text, beam 4\n"),
        "{quality}"
    );
}

#[test]
fn an_error_that_is_no_number_fails_and_survives_json() {
    let row = |relative_l2_error| OutputReport {
        graph: "decoder".into(),
        output: "logits".into(),
        max_absolute_error: 0.0,
        relative_l2_error,
    };
    let report = |error| RuntimeReport {
        engine: "tract".into(),
        outputs: vec![row(1e-7), row(error)],
        decoding: Vec::new(),
        steps: None,
        vectors: None,
    };
    assert!(report(9e-6).passed(1e-5));
    assert!(!report(2e-5).passed(1e-5));
    let text = serde_json::to_string(&report(f64::NAN)).expect("a report is JSON");
    let read: RuntimeReport = serde_json::from_str(&text).expect("what was written");
    assert!(!read.passed(1e-5), "{text}");
}

#[test]
fn vectors_are_bound_in_place_of_outputs() {
    let output = OutputReport {
        graph: "model".into(),
        output: "logits".into(),
        max_absolute_error: 0.0,
        relative_l2_error: 0.5,
    };
    let passed = |mean_cosine| {
        let vectors = Some(VectorsReport { vectors: 4, mean_cosine, wanted: 0.98 });
        RuntimeReport {
            engine: "tract".into(),
            outputs: vec![output.clone()],
            decoding: Vec::new(),
            steps: None,
            vectors,
        }
        .passed(1e-1)
    };
    assert_eq!([0.99, 0.98, 0.97, f64::NAN].map(passed), [true, true, false, false]);
    // A decoder that follows such an encoder has its own bound.
    let logits = |relative_l2_error| OutputReport {
        graph: "decoder".into(),
        relative_l2_error,
        ..output.clone()
    };
    let passed = |relative_l2_error| {
        let vectors = Some(VectorsReport { vectors: 4, mean_cosine: 0.99, wanted: 0.98 });
        let outputs = vec![output.clone(), logits(relative_l2_error)];
        RuntimeReport {
            engine: "tract".into(),
            outputs,
            decoding: Vec::new(),
            steps: None,
            vectors,
        }
        .passed(1e-1)
    };
    assert_eq!([0.05, 0.2, f64::NAN].map(passed), [true, false, false]);
}

#[test]
fn a_sentence_that_differs_without_a_tie_fails() {
    let decoding =
        |equal, ties| DecodingReport { method: "greedy".into(), sentences: 3, equal, ties };
    let report = |decoding| RuntimeReport {
        engine: "tract".into(),
        outputs: Vec::new(),
        decoding: vec![decoding],
        steps: None,
        vectors: None,
    };
    assert!(report(decoding(2, 1)).passed(1e-5));
    assert!(!report(decoding(2, 0)).passed(1e-5));
    let steps = |equal| RuntimeReport {
        steps: Some(StepsReport { steps: 100, equal, wanted: 99 }),
        ..report(decoding(2, 0))
    };
    assert!(steps(99).passed(1e-5));
    assert!(!steps(98).passed(1e-5));
}
