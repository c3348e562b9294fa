//! Pictures, image processors, and models of images.

use anyhow::Result;
use serde_json::{Value, json};

use super::bytes::{nested, spread, write};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

const CLASSIFY: &[Reader] = &[Reader::ClassifyImage];
const READ: &[Reader] = &[Reader::Read];

/// The header of a PNG with 8 bits of red, green and blue; its checksum is valid for 100,000 x
/// 100,000 pixels.
const BOMB: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\x01\x86\xa0\0\x01\x86\xa0\x08\x02\0\0\0\x27\x30\x9c\x9f";

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let (classifier, reader) = (models.path(Good::ImageClassifier), models.path(Good::ImageReader));
    let length = |folder: &std::path::Path, file: &str| {
        std::fs::metadata(folder.join(file)).map_or(0, |data| data.len() as usize)
    };
    let all = &[Reader::ClassifyImage, Reader::Show, Reader::Export];
    let mut cases = vec![
        Subject::new("image classifier", Good::ImageClassifier, "", all).untouched(),
        Subject::new(
            "image reader",
            Good::ImageReader,
            "",
            &[Reader::Read, Reader::Show, Reader::Export],
        )
        .untouched(),
    ];
    let given = |what, good, readers, name, found| {
        let change = |folder: &std::path::Path| write(&folder.join("picture.png"), BOMB);
        Subject::new(what, good, "", readers).expecting(Expect::Refused(found)).case(name, change)
    };
    cases.extend([
        given("classifier", Good::Classifier, CLASSIFY, "given a picture", "is a picture"),
        given(
            "image classifier",
            Good::ImageClassifier,
            &[Reader::Classify],
            "given text",
            "Dogs.",
        ),
        given(
            "image classifier",
            Good::ImageClassifier,
            &[Reader::Embed],
            "given to embed",
            "reads images",
        ),
        given(
            "image reader",
            Good::ImageReader,
            &[Reader::Tract, Reader::Reference],
            "given to translate",
            "reads images",
        ),
        given("translation model", Good::Checkpoint, READ, "given to read", "does not read images"),
    ]);
    for (good, file, readers, folder) in [
        (Good::ImageClassifier, "picture.png", CLASSIFY, classifier),
        (Good::ImageReader, "picture.jpg", READ, reader),
    ] {
        let picture = Subject::new(file, good, file, readers);
        cases.extend(picture.cuts(spread(length(folder, file), 8)));
        cases.extend(picture.either().changes(spread(length(folder, file), 16), 0x55));
        cases.extend(picture.not_files(..));
        cases.extend([
            picture.content("100,000 x 100,000 pixels", BOMB),
            picture.content("a text", "just a text\n".repeat(100)),
            picture.content("another format", "GIF89a"),
        ]);
    }
    let settings = Subject::new(
        "image processor",
        Good::ImageClassifier,
        "preprocessor_config.json",
        CLASSIFY,
    );
    cases.push(settings.case("missing", |path| Ok(std::fs::remove_file(path)?)));
    cases.push(settings.content("nested 100,000 deep", nested(100_000)));
    cases.extend(
        [
            ("size", json!(0)),
            ("size", json!(17)),
            ("size", json!(1_u64 << 40)),
            ("size", json!({ "shortest_edge": 16 })),
            ("resample", json!(0)),
            ("resample", json!(-1)),
            ("image_mean", json!([0.5])),
            ("image_std", json!([0, 0, 0])),
            ("rescale_factor", json!(1e300)),
            ("image_processor_type", json!("CLIPImageProcessor")),
        ]
        .into_iter()
        .map(|(field, value)| settings.field(field, value)),
    );
    let config = Subject::new("image classifier", Good::ImageClassifier, "config.json", all)
        .expecting(Expect::Refused(""));
    let fields = [
        ("image_size", json!(0)),
        ("image_size", json!(1_u64 << 40)),
        ("image_size", json!([16, 16, 16])),
        ("patch_size", json!(0)),
        ("patch_size", json!(17)),
        ("num_channels", json!(1_u64 << 40)),
        ("hidden_size", json!(1_u64 << 40)),
        ("pooler_output_size", json!(3)),
        ("architectures", json!(["ViTForMaskedImageModeling"])),
    ];
    cases.extend(fields.into_iter().map(|(field, value)| config.field(field, value)));
    let pair = Subject::new("image reader", Good::ImageReader, "config.json", READ)
        .expecting(Expect::Refused(""));
    let within = |half: &'static str, field: &'static str, value: Value| {
        let name = format!("{half}.{field} {value}");
        pair.json(name, move |fields| fields[half][field] = value.clone())
    };
    cases.extend([
        pair.field("encoder", json!(null)),
        pair.field("decoder", json!([])),
        pair.field("tie_encoder_decoder", json!(true)),
        within("encoder", "model_type", json!("bert")),
        within("decoder", "model_type", json!("t5")),
        within("decoder", "model_type", json!("vision-encoder-decoder")),
        within("decoder", "cross_attention_hidden_size", json!(7)),
        within("decoder", "d_model", json!(1_u64 << 40)),
    ]);
    Ok(cases)
}
