//! Configurations as `config.json`: written in transformers' family if there is one, and
//! read back equal.

use cognate_model::{
    AttentionScore, Biases, Config, Embeddings, Model, Norm, NormPlacement, OutputBias,
    OutputProjection, Positions, Preset, RelativeLayers, Sinusoids,
};

/// A change of the tiny preset and the family that can represent it; `None` if none can.
type Case = (&'static str, fn(&mut Config), Option<&'static str>);

const CASES: [Case; 13] = [
    ("the paper's", |_| {}, Some("cognate")),
    ("marian's", marian, Some("marian")),
    (
        "two tables",
        |config| (config.source_vocab, config.embeddings) = (90, Embeddings::Separate),
        Some("cognate"),
    ),
    (
        "marian's, an own output",
        |config| {
            marian(config);
            config.output = OutputProjection::Own;
        },
        Some("marian"),
    ),
    (
        "pegasus's",
        |config| {
            marian(config);
            config.placement = NormPlacement::Pre;
        },
        Some("pegasus"),
    ),
    (
        "blenderbot's",
        |config| {
            (config.placement, config.positions, config.output_bias) =
                (NormPlacement::Pre, Positions::Learned { offset: 0 }, OutputBias::Fixed);
        },
        Some("blenderbot"),
    ),
    (
        "relative positions",
        |config| {
            config.positions =
                Positions::Relative { buckets: 8, max_distance: 20, of: RelativeLayers::First }
        },
        Some("cognate"),
    ),
    (
        "no biases, a gate",
        |config| (config.biases, config.gated) = (Biases::None, true),
        Some("cognate"),
    ),
    ("plain products", |config| config.score = AttentionScore::Dot, Some("cognate")),
    (
        "sums under a tanh, turned",
        |config| (config.score, config.positions) = (AttentionScore::Additive, Positions::Rotary),
        Some("cognate"),
    ),
    ("slopes", |config| config.positions = Positions::Alibi, Some("cognate")),
    (
        "root mean squares",
        |config| (config.norm, config.placement) = (Norm::Rms, NormPlacement::Pre),
        Some("cognate"),
    ),
    (
        "a bias of the logits with a gate",
        |config| (config.output_bias, config.gated) = (OutputBias::Fixed, true),
        None,
    ),
];

fn marian(config: &mut Config) {
    (config.positions, config.output_bias) =
        (Positions::Sinusoidal(Sinusoids::Halves), OutputBias::Fixed);
}

#[test]
fn configurations_are_read_as_they_were_written() {
    let mut failures = Vec::new();
    for (name, change, family) in CASES {
        let mut config = Preset::Tiny.config();
        change(&mut config);
        let text = config.to_json();
        let told = text.as_ref().ok().and_then(|text| {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            value["model_type"].as_str().map(str::to_owned)
        });
        let read = text.as_ref().map(|text| Config::from_json(text).unwrap());
        if told.as_deref() != family || read.is_ok_and(|read| read != config) {
            failures.push(format!("{name}: {text:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The tensors of Marian's checkpoints (`testdata/golden/marian`), without a table of sinusoids.
#[test]
fn tensors_have_the_familys_names_and_shapes() {
    let model = Model::open(&cognate_testing::golden("marian")).unwrap();
    let tensors: Vec<_> = model.tensors().unwrap().collect();
    let shape = |name: &str| {
        tensors.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.shape.clone())
    };
    let (vocab, d_model) = (model.config().vocab, model.config().d_model);
    assert_eq!(shape("model.shared.weight"), Some(vec![vocab, d_model]));
    assert_eq!(shape("final_logits_bias"), Some(vec![1, vocab]));
    assert!(shape("model.decoder.layers.0.encoder_attn.q_proj.weight").is_some());
    assert!(tensors.iter().all(|tensor| !tensor.name.contains("embed_positions")));
}

/// The tensors of a pair are those of its file, which also has the encoder's unused pooler.
#[test]
fn tensors_of_pairs_have_the_names_and_shapes_of_their_files() {
    for case in ["bert-bert", "bert-generation", "roberta-roberta"] {
        let folder = cognate_testing::golden(&format!("strange/{case}"));
        let model = Model::open(&folder).unwrap();
        let mut found: Vec<_> =
            model.tensors().unwrap().map(|tensor| (tensor.name, tensor.shape)).collect();
        found.sort();
        let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let stored = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut expected: Vec<_> = stored
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec()))
            .filter(|(name, _)| !name.starts_with("encoder.pooler."))
            .collect();
        expected.sort();
        assert_eq!(found, expected, "{case}");
    }
    for (case, problem) in [("distilbert-gpt2", "GPT-2"), ("bert-tied", "tie_encoder_decoder")] {
        let model = Model::open(&cognate_testing::golden(&format!("strange/{case}"))).unwrap();
        let error = model.tensors().map(drop).unwrap_err().to_string();
        assert!(
            error.starts_with("config.json: a model with ") && error.contains(problem),
            "{error}"
        );
    }
}
