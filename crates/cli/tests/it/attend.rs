//! `cognate attend`: its numbers against PyTorch's and the reference evaluator's, its files, and
//! what it refuses.

use crate::{SENTENCES, edit, run, run_with, with_dir};
use cognate_generate::{AttentionRequest, Sources, attend};
use cognate_model::{Attentions, Layout, Model};
use cognate_pictures::{
    Attention, Document, Example, SourceText, TargetText, Token, Weights, html, read_html,
};
use cognate_runtime::{Device, Options, Reference, Runtime, Session, Source as Graph, available};
use cognate_testing::{
    Golden, SPEECH_MODELS, bundled_checkpoint, golden, make_speech_model, testdata, wav,
};
use insta::assert_snapshot;
use safetensors::SafeTensors;
use std::fs;
use std::path::Path;

const CLOSE: f64 = 1e-5;

/// What a model attends to along given ids, as it stands in a page.
fn through_a_page(
    layout: Layout,
    sessions: &mut [Box<dyn Session>],
    model: &Model,
    [source, target]: [&[i64]; 2],
) -> Example {
    let [encoder, decoder] = sessions else { panic!("two graphs") };
    let sources = [source.to_vec()];
    let sentence =
        AttentionRequest { source: (&sources).into(), target, likeliest: 1, of_encoder: true };
    let found =
        attend(layout, [encoder.as_mut(), decoder.as_mut()], model.config(), sentence).unwrap();
    let weights = |array: ndarray::Array4<f32>| {
        let (layers, heads, rows, columns) = array.dim();
        Weights::new([layers, heads, rows, columns], array.into_iter().collect()).unwrap()
    };
    let tokens =
        |ids: &[i64]| ids.iter().map(|&id| Token { piece: id.to_string(), id }).collect::<Vec<_>>();
    let example = Example {
        source: SourceText { text: String::new(), tokens: tokens(source), picture: None },
        target: TargetText { text: String::new(), read: tokens(target), written: tokens(target) },
        encoder_attentions: weights(found.encoder),
        decoder_attentions: weights(found.decoder),
        cross_attentions: weights(found.cross),
        explained: None,
    };
    let page =
        html(&Document { model: String::new(), engine: String::new(), examples: vec![example] });
    read_html(&page).unwrap().examples.remove(0)
}

fn reference(model: &Model) -> Vec<Box<dyn Session>> {
    let graphs = model.graphs(Layout::Cognate, Attentions::All).unwrap();
    graphs
        .map(|graph| Reference::F64.load(&Graph::Graph(graph), &Options::default()).unwrap())
        .into()
}

/// Every row is a distribution.
fn check_sums(example: &Example) {
    for attention in Attention::ALL {
        let weights = example.weights(attention);
        for row in weights.values().chunks(weights.shape()[3]) {
            let sum: f64 = row.iter().map(|&weight| f64::from(weight)).sum();
            assert!((sum - 1.0).abs() < CLOSE, "{attention:?}: {sum}");
        }
    }
}

/// Of the golden Marian model, on every engine and in both layouts, out of the page: PyTorch's
/// numbers in float64. Engines in f32 are off by as much as PyTorch's own f32, 2.1e-4: this model's
/// weights are large, and each rounds in another order.
#[test]
fn a_page_has_pytorchs_numbers() {
    let model = Model::open(&golden("marian")).unwrap();
    let answers = Golden::open("marian");
    let bytes = fs::read(golden("marian").join("attentions.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let own = |name: &str| -> Vec<f64> {
        let (values, []) = tensors.tensor(name).unwrap().data().as_chunks::<8>() else {
            panic!("{name} is f64")
        };
        values.iter().map(|value| f64::from_le_bytes(*value)).collect()
    };
    let expected = [
        own("encoder_attentions"),
        own("decoder_attentions"),
        answers.doubles("cross_attentions").data.clone(),
    ];
    let (sources, targets) =
        (&answers.ids("input_ids").data, &answers.ids("decoder_input_ids").data);

    let folder = tempfile::tempdir().unwrap();
    let mut engines = vec![("reference".to_owned(), Layout::Cognate, reference(&model), false)];
    for layout in [Layout::Cognate, Layout::HuggingFace] {
        let out = folder.path().join(layout.name());
        let marian = golden("marian");
        run(&[
            "export",
            marian.to_str().unwrap(),
            out.to_str().unwrap(),
            "--layout",
            layout.name(),
            "--attentions",
            "--no-verify",
        ])
        .ok();
        for engine in available(Device::Cpu).unwrap() {
            let load = |file: &&str| {
                engine.load(&Graph::Onnx(out.join(file)), &Options::default()).unwrap()
            };
            engines.push((
                format!("{} {layout}", engine.name()),
                layout,
                layout.files().iter().map(load).collect(),
                true,
            ));
        }
    }
    let lengths = [11, 7, 4];
    let (single, double) =
        (&answers.floats("cross_attentions").data, &answers.doubles("cross_attentions").data);
    let rounding = single
        .iter()
        .zip(double)
        .map(|(single, double)| (f64::from(*single) - double).abs())
        .fold(0.0, f64::max);
    for (name, layout, mut sessions, is_f32) in engines {
        for (sentence, length) in lengths.into_iter().enumerate() {
            let ids = [&sources[11 * sentence..][..length], &targets[7 * sentence..][..7]];
            let example = through_a_page(layout, &mut sessions, &model, ids);
            check_sums(&example);
            let bound = if is_f32 { 2.0 * rounding } else { CLOSE };
            for ((attention, expected), padded) in
                Attention::ALL.into_iter().zip(&expected).zip([[11, 11], [7, 7], [7, 11]])
            {
                let weights = example.weights(attention);
                let [layers, heads, rows, columns] = weights.shape();
                for index in 0..weights.values().len() {
                    let (column, row) = (index % columns, index / columns % rows);
                    let (head, layer) =
                        (index / columns / rows % heads, index / columns / rows / heads);
                    let place = (((layer * 3 + sentence) * heads + head) * padded[0] + row)
                        * padded[1]
                        + column;
                    let (found, expected) =
                        (f64::from(weights.at([layer, head, row, column])), expected[place]);
                    assert!(
                        (found - expected).abs() <= bound,
                        "{name} {attention:?} {sentence}: {found} {expected}"
                    );
                }
                assert_eq!([layers, heads], [2, 4]);
            }
        }
    }
}

/// The numbers of the command, out of its page and out of its JSON, against the reference evaluator
/// in f64.
#[test]
fn the_bundled_model_has_the_references_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    run(&["attend", SENTENCES[0], "--out", page.to_str().unwrap()]).ok();
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.len() < 100_000, "{}", text.len());
    let given = [
        "attend",
        SENTENCES[1],
        "--engine",
        "tract",
        "--target",
        "Zwei Hunde spielen.",
        "--compare",
        SENTENCES[0],
        "--out",
        "-",
    ];
    let json = run(&[&given[..], &["--format", "json"]].concat()).ok();
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let documents: [Document; 2] =
        [read_html(&text).unwrap(), serde_json::from_str(&json).unwrap()];
    assert_eq!(documents[0].examples[0].target.text, "Ein Mann fährt Fahrrad.");
    assert_eq!(documents[1].examples.len(), 2);
    for example in documents.iter().flat_map(|document| &document.examples) {
        check_sums(example);
        let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
        let (source, read) = (ids(&example.source.tokens), ids(&example.target.read));
        assert_eq!(
            (source.last(), read[0], example.target.written.last().unwrap().id),
            (Some(&0), 2, 0)
        );
        let expected =
            through_a_page(Layout::Cognate, &mut reference(&model), &model, [&source, &read]);
        for attention in Attention::ALL {
            let (found, expected) = (example.weights(attention), expected.weights(attention));
            assert_eq!(found.shape(), expected.shape());
            let worst = found
                .values()
                .iter()
                .zip(expected.values())
                .map(|(a, b)| f64::from((a - b).abs()))
                .fold(0.0, f64::max);
            assert!(worst < CLOSE, "{attention:?}: {worst}");
        }
    }
    let pieces: Vec<_> =
        documents[1].examples[0].target.written.iter().map(|token| token.piece.as_str()).collect();
    assert_eq!(pieces, ["▁Zwei", "▁Hunde", "▁spielen", ".", "</s>"]);
}

/// Over the patches of images: PyTorch's numbers, and what the commands write of a file.
#[test]
fn patches_of_images_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (case, leading) in [("images/trocr", 1), ("images/trocr-projected", 2)] {
        let (checkpoint, answers) = (golden(case), Golden::open(case));
        let model = Model::open(&checkpoint).unwrap();
        let (pixels, targets) = (answers.floats("pixel_values"), answers.ids("decoder_input_ids"));
        let expected = answers.doubles("cross_attentions");
        let [layers, images, heads, tgt, src] = expected.shape[..] else { panic!("five axes") };
        assert_eq!(src, 16 + leading);
        for image in 0..images {
            let size = pixels.data.len() / images;
            let values = pixels.data[size * image..][..size].to_vec();
            let values = ndarray::ArrayD::from_shape_vec(vec![1, 3, 16, 16], values).unwrap();
            let (source, target) =
                (Sources::Features(&values), &targets.data[tgt * image..][..tgt]);
            let mut sessions = reference(&model);
            let [encoder, decoder] = sessions.as_mut_slice() else { panic!("two graphs") };
            let request = AttentionRequest { source, target, likeliest: 1, of_encoder: true };
            let found = attend(
                Layout::Cognate,
                [encoder.as_mut(), decoder.as_mut()],
                model.config(),
                request,
            )
            .unwrap()
            .cross;
            for ((layer, head, row, column), &found) in found.indexed_iter() {
                let expected = expected.data
                    [(((layer * images + image) * heads + head) * tgt + row) * src + column];
                assert!((f64::from(found) - expected).abs() < CLOSE, "{case}: {found} {expected}");
            }
            assert_eq!(found.dim(), (layers, heads, tgt, src));
        }

        let picture = testdata("images/rgb.png");
        let texts = fs::read_to_string(checkpoint.join("texts.json")).unwrap();
        let texts: serde_json::Value = serde_json::from_str(&texts).unwrap();
        let given = [
            "--model",
            checkpoint.to_str().unwrap(),
            "--image",
            picture.to_str().unwrap(),
            "--max-new-tokens",
            "24",
        ];
        let written = |name: &str| {
            let out = folder.path().join(name);
            run(&[&["attend", "--out", out.to_str().unwrap()], &given[..]].concat()).ok();
            fs::read_to_string(out).unwrap()
        };
        let page = read_html(&written("page.html")).unwrap();
        let example = &page.examples[0];
        assert_eq!(
            (texts[0]["file"].as_str(), texts[0]["text"].as_str()),
            (Some("rgb.png"), Some(example.target.text.as_str()))
        );
        check_sums(example);
        let picture = example.source.picture.as_ref().unwrap();
        assert_eq!(
            (picture.cells, picture.leading, example.source.tokens.len()),
            ([4, 4], leading, src)
        );
        assert_eq!(example.source.tokens[src - 1].piece, "4,4");
        assert_eq!(written("figure.svg").matches("<image ").count(), example.target.written.len());
        let explained = run(&[&["explain"], &given[..]].concat()).ok();
        assert!(
            explained.starts_with("rgb.png\n→ ") && explained.contains("attends to  "),
            "{explained}"
        );
        let refused = run(&["attend", "A dog.", "--model", given[1], "--out", "-"]).failed(1);
        assert!(refused.ends_with("the model reads images, not texts"), "{refused}");
    }
    let image = testdata("images/rgb.png");
    let refused = run(&["attend", "--image", image.to_str().unwrap(), "--out", "-"]).failed(1);
    assert_eq!(refused.lines().last(), Some("cognate: error: the model reads texts, not images"));
}

/// Over the positions of audio: PyTorch's numbers, and what the commands write of a file.
#[test]
fn times_of_audio_are_drawn() {
    for name in SPEECH_MODELS {
        let (model, answers) = (Model::open(&golden(name)).unwrap(), Golden::open(name));
        let (frames, targets) =
            (answers.floats("input_features"), answers.ids("decoder_input_ids"));
        let expected = answers.doubles("cross_attentions");
        let [layers, clips, heads, tgt, src] = expected.shape[..] else { panic!("five axes") };
        for clip in 0..clips {
            let size = frames.data.len() / clips;
            let values = frames.data[size * clip..][..size].to_vec();
            let values =
                ndarray::ArrayD::from_shape_vec([&[1], &frames.shape[1..]].concat(), values)
                    .unwrap();
            let (source, target) = (Sources::Features(&values), &targets.data[tgt * clip..][..tgt]);
            let mut sessions = reference(&model);
            let [encoder, decoder] = sessions.as_mut_slice() else { panic!("two graphs") };
            let request = AttentionRequest { source, target, likeliest: 1, of_encoder: false };
            let found = attend(
                Layout::Cognate,
                [encoder.as_mut(), decoder.as_mut()],
                model.config(),
                request,
            )
            .unwrap();
            assert_eq!((found.encoder.dim().0, found.cross.dim()), (0, (layers, heads, tgt, src)));
            for ((layer, head, row, column), &found) in found.cross.indexed_iter() {
                let expected = expected.data
                    [(((layer * clips + clip) * heads + head) * tgt + row) * src + column];
                assert!((f64::from(found) - expected).abs() < CLOSE, "{name}: {found} {expected}");
            }
        }
    }

    let folder = tempfile::tempdir().unwrap();
    make_speech_model(folder.path());
    let [checkpoint, short, long, page] =
        ["", "short.wav", "long.wav", "page.html"].map(|name| folder.path().join(name));
    let samples: Vec<f32> = (0..16_001).map(|index| (0.1 * index as f32).sin()).collect();
    fs::write(&short, wav(&samples[..10_000])).unwrap();
    fs::write(&long, wav(&samples)).unwrap();
    let given = ["--model", checkpoint.to_str().unwrap(), "--language", "en", "--audio"];
    let attend = |audio: &Path, more: &[&str]| {
        run(&[
            &["attend", "--out", page.to_str().unwrap()],
            &given[..],
            &[audio.to_str().unwrap(), "--max-new-tokens", "5"],
            more,
        ]
        .concat())
    };
    attend(&short, &["--beams", "2"]).ok();
    let example = read_html(&fs::read_to_string(&page).unwrap()).unwrap().examples.remove(0);
    // 0.625 s of the model's 1 s, of which a position is 0.02 s.
    let picture = example.source.picture.as_ref().unwrap();
    assert_eq!((picture.cells, picture.leading, picture.trailing), ([1, 32], 0, 1));
    let pieces: Vec<_> =
        example.source.tokens[30..].iter().map(|token| token.piece.as_str()).collect();
    assert_eq!(pieces, ["0.60 s", "0.62 s", "padding"]);
    assert_eq!(example.encoder_attentions.shape()[0], 0);
    for row in example.cross_attentions.values().chunks(33) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let read: Vec<_> =
        example.target.read.iter().map(|token| token.piece.as_str()).take(4).collect();
    assert_eq!(read, ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]);
    let explained = example.explained.unwrap();
    let beams = explained.beams.unwrap();
    assert_eq!(
        (beams.finished.len(), beams.finished[0].text.trim()),
        (2, example.target.text.as_str())
    );

    let refused = attend(&long, &[]).failed(1);
    assert!(
        refused.ends_with(
            "expected at most 1 s of audio, one window of the model; cut out the part to look at"
        ),
        "{refused}"
    );
    let refused = attend(&short, &["--format", "svg", "--attention", "encoder"]).failed(1);
    assert!(
        refused.ends_with(
            "encoder self-attention: its weights are not known; choose another attention"
        ),
        "{refused}"
    );
    let refused = attend(&short, &["--target", ""]).failed(1);
    assert!(refused.ends_with("--target: expected a text, found none"), "{refused}");
    let refused = run(&["attend", "A dog.", "--out", "-", given[0], given[1]]).failed(1);
    assert!(refused.ends_with(": a model of audio; give it a file by --audio"), "{refused}");
    let image_model = golden("images/trocr");
    let refused = run(&[
        "attend",
        "--out",
        "-",
        "--audio",
        short.to_str().unwrap(),
        "--model",
        image_model.to_str().unwrap(),
    ])
    .failed(1);
    assert!(
        refused.ends_with("trocr: a model of images; expected a speech model such as Whisper"),
        "{refused}"
    );
    let explained =
        run(&[&["explain"], &given[..], &[short.to_str().unwrap(), "--max-new-tokens", "5"]]
            .concat())
        .ok();
    assert!(
        explained.starts_with("short.wav\n→ ") && !explained.contains("encoder self-attention"),
        "{explained}"
    );
}

/// A reader sees what the model does, and two engines see the same.
#[test]
fn figures_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (file, args) in [
        ("a.svg", &["--layer", "3", "--head", "2", "--picture", "heat-map"][..]),
        ("b.png", &["--attention", "encoder"]),
        ("c.SVG", &["--attention", "decoder", "--engine", "tract"]),
    ] {
        let path = folder.path().join(file);
        run(&[&["attend", SENTENCES[1], "--out", path.to_str().unwrap()], args].concat()).ok();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"<svg ") || bytes.starts_with(b"\x89PNG"), "{file}");
    }
    let svg = fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(
        svg.contains(
            "<title>Cross-attention, layer 3, head 2: Two dogs are playing in the snow.</title>"
        ),
        "{svg}"
    );
    assert!(svg.contains("<title>▁Schnee → ▁snow: 0."), "{svg}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn exports_give_their_attentions_if_they_were_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let exported = |name: &str, args: &[&str]| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        run(&[&["export", "testdata/multi30k-en-de", &out, "--no-verify"], args].concat()).ok();
        out
    };
    let look = |model: &str| {
        run(&[
            "attend",
            SENTENCES[0],
            "--engine",
            "tract",
            "--model",
            model,
            "--out",
            "-",
            "--format",
            "json",
        ])
    };
    let expected: Document = serde_json::from_str(&look("testdata/multi30k-en-de").ok()).unwrap();
    for (name, args) in
        [("own", &["--attentions"][..]), ("hf", &["--attentions", "--layout", "hf"])]
    {
        let found: Document = serde_json::from_str(&look(&exported(name, args)).ok()).unwrap();
        assert_eq!(found.examples[0].target, expected.examples[0].target);
        let (found, expected) = (
            found.examples[0].cross_attentions.values(),
            expected.examples[0].cross_attentions.values(),
        );
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{name}");
    }
    let refused =
        |name: &str, args: &[&str]| with_dir(&look(&exported(name, args)).failed(1), folder.path());
    assert_snapshot!(refused("without", &[]), @"cognate: error: DIR/without: was exported without attention weights; export it again with --attentions, or pass the checkpoint that it was exported from");
    assert_snapshot!(refused("fused", &["--target", "ort", "--attentions"]), @"cognate: error: DIR/fused: was exported with --target ort, without attention weights; export it again with --attentions and without --target ort, or pass the checkpoint that it was exported from");
    assert_snapshot!(refused("generate", &["--layout", "generate", "--attentions"]), @"cognate: error: DIR/generate: was exported with --layout generate, without the attention weights of the encoder and of the decoder to itself; export it again with --attentions and without --layout generate, or pass the checkpoint that it was exported from");
    // Beside graphs in place lies the checkpoint.
    let checkpoint = crate::checkpoint(true);
    run(&["export", checkpoint.path().to_str().unwrap(), "--in-place"]).ok();
    let ended = look(checkpoint.path().to_str().unwrap());
    assert_snapshot!(with_dir(ended.err.lines().next().unwrap(), checkpoint.path()), @"cognate: DIR: the graphs do not output attention weights; the checkpoint is exported to a temporary folder");
    ended.ok();
}

#[test]
fn five_hundred_tokens_and_markup_make_a_page() {
    let checkpoint = crate::checkpoint(true);
    edit(
        &checkpoint,
        "config.json",
        "\"max_position_embeddings\": 256",
        "\"max_position_embeddings\": 512",
    );
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("long.html");
    let (model, out) = (checkpoint.path().to_str().unwrap(), page.to_str().unwrap());
    let long = "dog ".repeat(498) + "<b>&";
    run_with(&["attend", "--model", model, "--max-new-tokens", "300", "--out", out], long + "\n")
        .ok();
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.len() < 9_000_000, "{}", text.len());
    let n_tokens = read_html(&text).unwrap().examples[0].source.tokens.len();
    assert!((500..512).contains(&n_tokens), "{n_tokens}");
    assert!(!text.contains("<b>"), "markup is text");
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let ended = run(&[&["attend", "--engine", "tract"], args].concat());
        with_dir(ended.failed(1).lines().last().unwrap(), folder.path())
    };
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert_snapshot!(refused(&["A dog.", "--out", &at("a.pdf")]), @"cognate: error: --out: DIR/a.pdf: expected a name that ends in .html, .svg, .png, .json, or --format");
    assert_snapshot!(refused(&["A dog.", "--out", &at("no/a.svg")]), @"cognate: error: --out: DIR/no/a.svg: there is no folder DIR/no; create it first");
    assert_snapshot!(refused(&["A dog.", "--out", &at(""), "--format", "svg"]), @"cognate: error: --out: DIR/: is a folder; expected a file");
    assert_snapshot!(refused(&["A dog.", "--out", &at("a.html"), "--layer", "2"]), @"cognate: error: --layer: applies to SVG and PNG only; a page contains all attentions");
    assert_snapshot!(refused(&["A dog.", "--out", &at("a.svg"), "--layer", "5"]), @"cognate: error: layer 5: expected 1 to 4, those of the model");
    assert_snapshot!(refused(&["A dog.", "--out", &at("a.svg"), "--head", "9"]), @"cognate: error: head 9: expected 1 to 4, those of the model");
    assert_snapshot!(refused(&[" ", "--out", &at("a.svg")]), @"cognate: error: the source is empty; expected a sentence");
    assert_snapshot!(refused(&["A dog.", "--compare", "", "--out", &at("a.svg")]), @"cognate: error: --compare: the source is empty; expected a sentence");
    assert_snapshot!(refused(&["--out", &at("a.svg")]), @"cognate: error: stdin: expected a sentence, found none; pass it as the argument, or through a pipe");
    assert_snapshot!(refused(&[&"dog ".repeat(300), "--out", &at("a.svg")]), @"cognate: error: the source has 301 tokens; expected at most 256, the positions of the model");
    assert_snapshot!(refused(&["A dog.", "--model", "preset:tiny", "--out", &at("a.svg")]), @"cognate: error: preset:tiny: has random weights and no tokenizer; expected a checkpoint or an export");
    let lines = run_with(&["attend", "--out", &at("a.svg")], "A dog.\nA cat.\n").failed(1);
    assert_snapshot!(lines, @"cognate: error: stdin: expected one sentence, found 2 lines");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}
