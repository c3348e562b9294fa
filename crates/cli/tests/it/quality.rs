//! The quality gate of exports below f32.
//!
//! Counts and BLEU of f32 are those of transformers (`generate`) and sacreBLEU on the lines below.

use crate::{checkpoint, edit, run, with_dir};
use cognate_runtime::{Device, Engine};
use cognate_testing::shared_multi30k;
use insta::assert_snapshot;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Lines in English, their translations by people, and by PyTorch with the bundled checkpoint,
/// greedily.
const LINES: [[&str; 3]; 12] = [
    [
        "A man in a blue jacket is standing on a ladder and painting a wall.",
        "Ein Mann in einer blauen Jacke steht auf einer Leiter und streicht eine Wand.",
        "Ein Mann in einer blauen Jacke steht auf einer Leiter und malt eine Wand.",
    ],
    [
        "Two children are building a castle out of sand at the beach.",
        "Zwei Kinder bauen am Strand eine Burg aus Sand.",
        "Zwei Kinder bauen eine Sandburg am Strand aus Sand.",
    ],
    [
        "A woman is playing the guitar on a stage.",
        "Eine Frau spielt auf einer Bühne Gitarre.",
        "Eine Frau spielt auf einer Bühne Gitarre.",
    ],
    ["", "", ""],
    [
        "A brown dog is jumping over a fallen tree in the forest.",
        "Ein brauner Hund springt im Wald über einen umgestürzten Baum.",
        "Ein brauner Hund springt über einen umgestürzten Baum im Wald.",
    ],
    [
        "Four people are sitting at a table and eating dinner together.",
        "Vier Personen sitzen an einem Tisch und essen gemeinsam zu Abend.",
        "Vier Personen sitzen an einem Tisch und essen zusammen.",
    ],
    [
        "A boy in a yellow helmet rides his bicycle down a steep hill.",
        "Ein Junge mit einem gelben Helm fährt mit dem Fahrrad einen steilen Hügel hinunter.",
        "Ein Junge mit einem gelben Helm fährt mit seinem Fahrrad einen steilen Hügel hinunter.",
    ],
    [
        "An old man is reading a newspaper on a bench in the park.",
        "Ein alter Mann liest auf einer Bank im Park eine Zeitung.",
        "Ein alter Mann liest auf einer Bank im Park Zeitung.",
    ],
    [
        "The girl is holding a red balloon in her hand.",
        "Das Mädchen hält einen roten Ballon in der Hand.",
        "Das Mädchen hält einen roten Ballon in der Hand.",
    ],
    [
        "Several cyclists are waiting at a traffic light in the rain.",
        "Mehrere Radfahrer warten im Regen an einer Ampel.",
        "Mehrere Radfahrer warten im Regen an einer Ampel.",
    ],
    [
        "A cook with a white hat is cutting vegetables in a small kitchen.",
        "Ein Koch mit einer weißen Mütze schneidet in einer kleinen Küche Gemüse.",
        "Ein Koch mit einem weißen Hut schneidet in einer kleinen Küche Gemüse.",
    ],
    [
        "Three women in long dresses are dancing in front of a church.",
        "Drei Frauen in langen Kleidern tanzen vor einer Kirche.",
        "Drei Frauen in langen Kleidern tanzen vor einer Kirche.",
    ],
];

/// A folder with `text.en`, `text.de` and `pytorch.de`.
fn text() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (column, name) in ["text.en", "text.de", "pytorch.de"].into_iter().enumerate() {
        let text: String = LINES.iter().map(|line| format!("{}\n", line[column])).collect();
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Exports without verification to `out` in a folder with texts, `data` being two of its files.
fn export(folder: &Path, model: &str, options: &[&str], data: [&str; 2]) -> crate::Ended {
    let [out, source, reference] =
        [&["out"][..], &data[..1], &data[1..]].map(|name| folder.join(name[0]));
    let [out, source, reference] = [&out, &source, &reference].map(|path| path.to_str().unwrap());
    run(&[
        &["export", model, out, "--force", "--no-verify"],
        options,
        &["--data", source, reference],
    ]
    .concat())
}

fn quality(out: &Path) -> Value {
    let account: Value =
        serde_json::from_slice(&fs::read(out.join("cognate.json")).unwrap()).unwrap();
    account["quality"].clone()
}

const BUNDLED: &str = "testdata/multi30k-en-de";

#[test]
fn what_f32_does_is_what_pytorch_does() {
    let folder = text();
    let beams = checkpoint(true);
    edit(&beams, "generation_config.json", "\"num_beams\": 1", "\"num_beams\": 4");
    let beams = beams.path().to_str().unwrap();
    for (model, options, method, steps, bleu) in [
        (BUNDLED, &["--precision", "int8"][..], "greedy", 140, 76.816_158_765_483_75),
        (BUNDLED, &["--precision", "f16", "--layout", "hf"], "greedy", 140, 76.816_158_765_483_75),
        (beams, &["--precision", "int8"], "beam 4", 140, 72.851_862_078_890_87),
    ] {
        let ended = export(folder.path(), model, options, ["text.en", "text.de"]);
        assert!(!ended.err.contains("warning"), "{}", ended.err);
        let said = ended.ok();
        assert!(said.contains(&format!(": 12 sentences of text.en, {method}\n  BLEU  ")), "{said}");
        let quality = quality(&folder.path().join("out"));
        assert_eq!(
            (&quality["method"], &quality["steps"]["steps"]),
            (&method.into(), &steps.into()),
            "{quality}"
        );
        // All but a few are equal, and none is made up.
        let equal = quality["steps"]["equal"].as_u64().unwrap();
        assert!((steps - 4..=steps).contains(&equal), "{quality}");
        let [single, lower] =
            ["f32", "exported"].map(|name| quality["bleu"][name].as_f64().unwrap());
        assert!((single - bleu).abs() < 1e-9 && (single - lower).abs() < 0.3, "{quality}");
        assert_eq!(
            (&quality["bleu"]["source"], &quality["bleu"]["reference"]),
            (&"text.en".into(), &"text.de".into())
        );
    }
}

/// The bundled checkpoint with one unit of each feed-forward layer and one of each attention's
/// values 1,024 times as large, and weighed as much less by the layer that follows: the same
/// numbers in f32, to the bit, and of other units little is left by one scale a tensor.
fn with_outliers() -> tempfile::TempDir {
    let folder = checkpoint(true);
    let path = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let (length, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let offset = |name: &str| 8 + length + header.info(name).unwrap().data_offsets.0;
    let mut scale = |offset: usize, numbers: &mut dyn Iterator<Item = usize>, factor: f32| {
        for number in numbers {
            let place = &mut bytes[offset + 4 * number..][..4];
            let value = f32::from_le_bytes(place.try_into().unwrap());
            place.copy_from_slice(&(value * factor).to_le_bytes());
        }
    };
    // All are of 128 rows or columns, as many as d_model; `next` is [128, width].
    for (stack, first, next, width) in [
        ("encoder", "fc1", "fc2", 256),
        ("encoder", "self_attn.v_proj", "self_attn.out_proj", 128),
        ("decoder", "fc1", "fc2", 256),
        ("decoder", "self_attn.v_proj", "self_attn.out_proj", 128),
        ("decoder", "encoder_attn.v_proj", "encoder_attn.out_proj", 128),
    ] {
        for layer in 0..4 {
            let tensor = |name: &str| offset(&format!("model.{stack}.layers.{layer}.{name}"));
            scale(tensor(&format!("{first}.weight")), &mut (0..128), 1024.0);
            scale(tensor(&format!("{first}.bias")), &mut (0..1), 1024.0);
            scale(
                tensor(&format!("{next}.weight")),
                &mut (0..128).map(|row| width * row),
                1.0 / 1024.0,
            );
        }
    }
    fs::write(path, bytes).unwrap();
    folder
}

/// PyTorch's own translations are the references: f32 has all of BLEU, and a word that changes is a
/// loss.
#[test]
fn a_loss_is_told_and_no_failure() {
    let (folder, outliers) = (text(), with_outliers());
    let ended = export(
        folder.path(),
        outliers.path().to_str().unwrap(),
        &["--precision", "int8-tensor"],
        ["text.en", "pytorch.de"],
    );
    let said = ended.err.trim_end().to_owned();
    assert!(ended.ok().contains("in f32 100.00: "));
    let out = folder.path().join("out");
    let stored = quality(&out);
    let loss = 100.0 - stored["bleu"]["exported"].as_f64().unwrap();
    let expected = format!(
        "cognate: warning: int8-tensor loses {loss:.2} BLEU on text.en, more than 0.3; --precision int8 usually loses less"
    );
    assert!(loss > 0.3 && said == expected, "{stored}\n{said}");

    // BLEU of what the export translates, by the other command.
    let [source, model] =
        [folder.path().join("text.en"), out.clone()].map(|path| path.to_str().unwrap().to_owned());
    let translations = run(&["translate", "--model", &model, "--input", &source]).ok();
    let references = LINES.map(|[.., pytorch]| pytorch);
    let bleu =
        cognate_text::corpus_bleu(&translations.lines().collect::<Vec<_>>(), &references).unwrap();
    assert!((bleu.score - 100.0 + loss).abs() < 1e-9, "{bleu}");

    let shown = run(&["show", &model]).ok();
    assert!(
        shown.contains("  quality      compared with f32 on ")
            && shown.contains("less  LOW\n      greedy steps  "),
        "{shown}"
    );
    run(&["verify", &model, "--checkpoint", outliers.path().to_str().unwrap()]);
    assert_eq!(quality(&out), stored, "a verification leaves it");
}

#[test]
fn without_a_text_the_sentences_are_our_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let said = run(&["export", BUNDLED, out.to_str().unwrap(), "--precision", "int8"]).ok();
    assert!(
        said.contains(": 24 sentences of the bundled text, greedy\n  greedy steps  ")
            && !said.contains("BLEU"),
        "{said}"
    );
    let stored = quality(&out);
    let [steps, equal] = ["steps", "equal"].map(|name| stored["steps"][name].as_u64().unwrap());
    assert!(
        stored["bleu"].is_null() && steps > 200 && equal <= steps && 100 * equal > 95 * steps,
        "{stored}"
    );

    for (model, options) in [
        (BUNDLED, &["--precision", "int8", "--no-verify"][..]),
        ("preset:tiny", &["--precision", "int8"]),
    ] {
        let said =
            run(&[&["export", model, out.to_str().unwrap(), "--force"], options].concat()).ok();
        assert!(!said.contains("compared with f32") && quality(&out).is_null(), "{said}");
    }
}

#[test]
fn what_is_wrong_with_a_text_is_found_before_anything_is_written() {
    let folder = text();
    for (name, text) in [
        ("short.de", "Ein Hund.\n".as_bytes()),
        ("empty.en", b""),
        ("blank.en", b"\n \n"),
        ("latin.de", b"Gr\xfcn.\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let error = |model: &str, options: &[&str], data| {
        let said = export(folder.path(), model, options, data).failed(1);
        assert!(!folder.path().join("out").exists());
        with_dir(&said, folder.path())
    };
    let of = |data| error(BUNDLED, &["--precision", "int8"], data);
    let said = [
        of(["text.en", "no.de"]),
        of(["text.en", "short.de"]),
        of(["empty.en", "text.de"]),
        of(["blank.en", "text.de"]),
        of(["text.en", "latin.de"]),
        of([".", "text.de"]),
        error(BUNDLED, &[], ["text.en", "text.de"]),
        error("preset:tiny", &["--precision", "int8"], ["text.en", "text.de"]),
    ];
    assert_snapshot!(said.join("\n"), @"
    cognate: error: --data: DIR/no.de: cannot read: No such file or directory (os error 2)
    cognate: error: --data: DIR/short.de: expected a line for each of the 12 lines of DIR/text.en, found 1
    cognate: error: --data: DIR/empty.en: has no text; expected one sentence a line
    cognate: error: --data: DIR/blank.en: has no text; expected one sentence a line
    cognate: error: --data: DIR/latin.de: line 1: not UTF-8 at byte 3; convert the file to UTF-8
    cognate: error: --data: DIR/.: is a folder; expected a text file, one sentence a line
    cognate: error: --data: expected a lower precision with it, found f32; add --precision
    cognate: error: --data: preset:tiny: has no tokenizer, so text cannot be translated
    ");
}

/// BLEU of all of test_2016_flickr, whose text is not part of the repository.
#[test]
fn lower_precisions_lose_little_on_multi30k() {
    let Some(data) = shared_multi30k() else { return };
    let [source, reference] =
        ["en", "de"].map(|language| data.join(format!("test_2016_flickr.{language}")));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = ["export", BUNDLED, out.to_str().unwrap(), "--force", "--no-verify", "--data"];
    let args = [&args[..], &[source.to_str().unwrap(), reference.to_str().unwrap()]].concat();
    // With the largest loss, and the least share of equal choices. Where one choice of 23 is
    // another, as in 4 bits, BLEU goes up and down by 0.2 with details of rounding.
    let mut forms = vec![("portable", "int8", 0.3, 0.985)];
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => forms.extend([
            ("ort", "bf16", 0.1, 0.995),
            ("ort", "int8", 0.3, 0.985),
            ("ort", "int8-block", 0.3, 0.985),
            ("ort", "int4", 0.5, 0.95),
        ]),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
    for (target, precision, loss, equal) in forms {
        run(&[&args[..], &["--target", target, "--precision", precision]].concat()).ok();
        let quality = quality(&out);
        let [single, lower] =
            ["f32", "exported"].map(|name| quality["bleu"][name].as_f64().unwrap());
        assert_eq!(format!("{single:.2}"), "38.57", "{quality}");
        assert!(single - lower <= loss, "{target}, {precision}: {quality}");
        let [steps, found] =
            ["steps", "equal"].map(|name| quality["steps"][name].as_f64().unwrap());
        assert!(found >= equal * steps, "{target}, {precision}: {quality}");
    }
}
