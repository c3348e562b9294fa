use std::path::{Path, PathBuf};

use cognate_train::config::{AttentionScore, PositionKind, PresetName, Text, TrainingConfig};
use cognate_train::{Cleaning, ErrorKind, Files, Framing};
use insta::assert_snapshot;

use crate::Folder;

const LEAST: &str = r#"
[data]
train = [{ source = "train.en", target = "train.de" }]
[schedule]
max_updates = 10
"#;

fn read(text: &str) -> TrainingConfig {
    TrainingConfig::from_toml(text, "train.toml").unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The problems of a file that begins with these lines; what they lack of [`LEAST`] is added.
fn problems(text: &str) -> String {
    let mut whole = text.to_owned();
    for (section, fields) in [
        ("[data]", "train = [{ source = \"a\", target = \"b\" }]"),
        ("[schedule]", "max_updates = 10"),
    ] {
        if !text.contains(section) {
            whole += &format!("\n{section}\n{fields}\n");
        }
    }
    let error = TrainingConfig::from_toml(&whole, "train.toml").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Settings);
    error.to_string()
}

#[test]
fn a_file_says_what_differs_from_the_defaults() {
    let config = read(LEAST);
    assert_eq!((config.seed, config.data.max_tokens, config.optimiser.beta2), (1, 2_048, 0.98));
    let sizes = config.sizes();
    assert_eq!(
        (sizes.d_model, sizes.heads, sizes.d_ff, sizes.encoder_layers, sizes.decoder_layers),
        (128, 4, 256, 4, 4)
    );
    let config = read(&format!(
        "seed = 7\n{LEAST}\n[model]\npreset = \"base\"\ndecoder_layers = 2\npositions = \"alibi\"\nattention_score = \"additive\"\n\
         [dropout]\nattention = 0.1\n[tokenizer]\nvocabularies = \"joint\"\nsample = 9\n"
    ));
    let sizes = config.sizes();
    assert_eq!((sizes.d_model, sizes.encoder_layers, sizes.decoder_layers), (512, 6, 2));
    assert_eq!(
        (config.model.preset, config.model.positions(), config.model.attention_score()),
        (PresetName::Base, PositionKind::Alibi, AttentionScore::Additive)
    );
    assert_eq!((config.dropout.attention, config.dropout.sublayers), (0.1, 0.1));
    assert_eq!(
        (config.tokenizer_choice().sample, config.batch_settings(Framing::default()).seed),
        (9, 7)
    );
    assert_eq!(config.cleaning(), Cleaning { max_words: None });
    let longest = |data: &str, model: &str| {
        let text = format!(
            "[model]\n{model}\n[data]\ntrain = [{{ tsv = \"a\" }}]\n{data}\n[schedule]\nmax_updates = 10\n"
        );
        read(&text).batch_settings(Framing::default()).max_source_tokens
    };
    assert_eq!(longest("", ""), 256);
    assert_eq!(longest("max_tokens = 100", ""), 100);
    assert_eq!(longest("", "max_positions = 90"), 90);
    assert_eq!(longest("max_source_tokens = 300", ""), 300);
}

#[test]
fn single_fields_are_set_as_a_file_would() {
    let mut config = read(LEAST);
    for (name, value) in [
        ("model.positions", "rotary"),
        ("model.gated", "true"),
        ("model.activation", "silu"),
        ("optimiser.learning_rate", "3e-4"),
        ("seed", "9"),
        ("dropout.attention", "0.2"),
        ("tokenizer.from", "folder"),
        ("schedule.max_updates", "20"),
    ] {
        config.set(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let file = "seed = 9\n[data]\ntrain = [{ source = \"train.en\", target = \"train.de\" }]\n[schedule]\nmax_updates = 20\n[model]\n\
                positions = \"rotary\"\ngated = true\nactivation = \"silu\"\n[optimiser]\nlearning_rate = 3e-4\n[dropout]\n\
                attention = 0.2\n[tokenizer]\nfrom = \"folder\"\n";
    assert_eq!(config, read(file));
    // A preset brings its choice, and another takes it back, but not what was set.
    for (field, value, choice) in [
        ("preset", "additive", (PositionKind::Rotary, AttentionScore::Additive)),
        ("preset", "tiny", (PositionKind::Rotary, AttentionScore::ScaledDot)),
        ("positions", "sinusoidal", (PositionKind::Sinusoidal, AttentionScore::ScaledDot)),
        ("preset", "rotary", (PositionKind::Sinusoidal, AttentionScore::ScaledDot)),
    ] {
        config.set(&format!("model.{field}"), value).unwrap();
        let found = (config.model.positions(), config.model.attention_score());
        assert_eq!(found, choice, "{field} {value}");
    }
    let mut refused = |name: &str, value: &str| config.set(name, value).unwrap_err().to_string();
    assert_snapshot!(refused("dropout.layers", "1"), @"dropout.layers is unknown; expected one of embeddings, sublayers, attention, activation, consistency");
    assert_snapshot!(refused("modell.gated", "true"), @"modell.gated: modell is not a section; expected one of data, tokenizer, model, tuning, dropout, optimiser, schedule");
    assert_snapshot!(refused("model.norm_placement", "middle"), @"model.norm_placement: found `middle`, expected one of `post`, `pre`, `around`");
    assert_snapshot!(refused("model.positions", "3"), @"model.positions: expected text with one word");
    assert_snapshot!(refused("model.heads", "many"), @r#"model.heads: found string "many", expected a whole number, 0 or more"#);
}

/// Those called after a choice make it, wherever they stand, unless the file makes another.
#[test]
fn presets_bring_their_choice() {
    let paper = (PositionKind::Sinusoidal, AttentionScore::ScaledDot);
    for (model, (positions, score)) in [
        ("preset = \"tiny\"", paper),
        ("preset = \"additive\"", (paper.0, AttentionScore::Additive)),
        ("preset = \"rotary\"", (PositionKind::Rotary, paper.1)),
        (
            "positions = \"alibi\"\npreset = \"additive\"",
            (PositionKind::Alibi, AttentionScore::Additive),
        ),
        ("attention_score = \"dot\"\npreset = \"additive\"", (paper.0, AttentionScore::Dot)),
        ("preset = \"rotary\"\npositions = \"learned\"", (PositionKind::Learned, paper.1)),
    ] {
        let config = read(&format!("{LEAST}\n[model]\n{model}\n"));
        assert_eq!(
            (config.model.positions(), config.model.attention_score()),
            (positions, score),
            "{model}"
        );
        assert_eq!(config.sizes(), read(LEAST).sizes(), "{model}");
        assert_eq!(read(&config.to_toml().unwrap()), config, "{model}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let text = format!(
        "threads = 2\n{LEAST}max_minutes = 1.5\n[optimiser]\nlearning_rate = 4e-3\nema_decay = 0.999\n[tokenizer]\n\
         additional_special_tokens = [\">>deu<<\"]\n"
    );
    for text in [LEAST, &text] {
        let config = read(text);
        assert_eq!(read(&config.to_toml().unwrap()), config);
    }
    let config = TrainingConfig { seed: u64::MAX, ..read(LEAST) };
    assert_eq!(read(&config.to_toml().unwrap()), config);
    // Runs write what the preset brings, also beside a checkpoint.
    read(&format!(
        "{LEAST}\n[model]\ninit = \"m\"\npositions = \"sinusoidal\"\nattention_score = \"scaled_dot\"\n"
    ));
}

#[cfg(unix)]
#[test]
fn a_path_that_is_no_text_cannot_be_written() {
    use std::os::unix::ffi::OsStrExt;
    let mut config = read(LEAST);
    config.tokenizer.from = Some(std::ffi::OsStr::from_bytes(b"\xff").into());
    assert_snapshot!(config.to_toml().unwrap_err(), @"these settings cannot be written: path contains invalid UTF-8 characters");
}

#[test]
fn paths_begin_at_the_file() {
    let folder = Folder::new();
    let text = "[data]\ntrain = [{ source = \"a.en\", target = \"/b.de\" }, { tsv = \"c/d.tsv\" }]\n[tokenizer]\nfrom = \"tok\"\n\
                [schedule]\nmax_epochs = 2\n";
    let config = TrainingConfig::read(folder.write("run.toml", text)).unwrap();
    let inside = |name: &str| folder.path().join(name);
    let tsv = Files::Tsv { file: inside("c/d.tsv"), source_column: 1, target_column: 2 };
    assert_eq!(
        config.train_files(),
        [Files::Parallel { source: inside("a.en"), target: PathBuf::from("/b.de") }, tsv]
    );
    assert_eq!(config.tokenizer.from.as_deref(), Some(inside("tok").as_path()));
    assert_eq!(config.valid_files(), []);
    let error = TrainingConfig::read(folder.path().join("no.toml")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    assert_snapshot!(folder.shown(error), @"no.toml: cannot read: No such file or directory (os error 2)");
}

#[test]
fn all_problems_are_told_with_their_lines() {
    assert_snapshot!(problems("seed = -1\nspeed = 3\n[model]\nheads = 3\nheadz = 2\nnorm_placement = \"middle\"\nactivation = \"rulu\"\ngated = 1\n[optimiser]\nbeta2 = 1.5\nclip_norm = 0\nwarmup_updates = \"many\"\n[data]\ntrain = [{ source = \"a\", tsv = \"b\" }]\nmax_tokens = 100\nmax_source_tokens = 200\n"), @r#"
    train.toml: line 1: seed: found integer `-1`, expected a whole number, 0 or more
    train.toml: line 2: speed is unknown; expected one of seed, threads, and the sections data, tokenizer, model, tuning, dropout, optimiser, schedule
    train.toml: line 4: model.heads is 3, expected a divisor of d_model, 128
    train.toml: line 5: model.headz is unknown; expected one of init, preset, d_model, heads, d_ff, encoder_layers, decoder_layers, max_positions, norm, norm_placement, positions, relative_buckets, relative_max_distance, activation, gated, attention_score, initialisation, biases, tie_embeddings, tie_output, scale_embedding
    train.toml: line 6: model.norm_placement: found `middle`, expected one of `post`, `pre`, `around`
    train.toml: line 7: model.activation is "rulu", expected one of gelu, gelu_10, gelu_new, gelu_accurate, gelu_fast, gelu_python, gelu_python_tanh, gelu_pytorch_tanh, laplace, leaky_relu, linear, mish, quick_gelu, relu, relu2, relu6, sigmoid, swish, silu, tanh
    train.toml: line 8: model.gated: found integer `1`, expected true or false
    train.toml: line 10: optimiser.beta2 is 1.5, expected a number from 0 to less than 1
    train.toml: line 11: optimiser.clip_norm is 0, expected a number above 0
    train.toml: line 12: optimiser.warmup_updates: found string "many", expected a whole number, 0 or more
    train.toml: line 14: data.train is source and tsv in corpus 1, expected source and target, or tsv with columns counted from 1
    train.toml: line 16: data.max_source_tokens is 200, expected 1 to data.max_tokens, which is 100
    "#);
}

#[test]
fn texts_that_are_no_toml_are_refused() {
    assert_snapshot!(problems("seed = \n[model\nheads 3\n"), @"
    train.toml: line 1: TOML: string values must be quoted, expected literal string
    train.toml: line 2: TOML: unclosed table, expected `]`
    train.toml: line 3: TOML: key with no value, expected `=`
    ");
    assert_snapshot!(problems("model = 3\n"), @"train.toml: line 1: model is not a section; expected [model] and its fields below");
    assert_snapshot!(problems("[model]\nheads = 4\nheads = 8\n"), @"train.toml: line 3: TOML: duplicate key");
    assert_snapshot!(TrainingConfig::from_toml("", "train.toml").unwrap_err(), @r#"
    train.toml: data.train is empty, expected at least one corpus: { source = "train.en", target = "train.de" }
    train.toml: schedule is without end, expected max_updates, max_epochs, max_minutes or patience
    "#);
}

#[test]
fn corpora_are_named_in_one_of_two_ways() {
    assert_snapshot!(problems("[data]\ntrain = [{ source = \"a\" }, {}, { tsv = \"c\", target_column = 0 }]\nvalid = [\"x\"]\n"), @r#"
    train.toml: line 2: data.train is source in corpus 1, expected source and target, or tsv with columns counted from 1
    train.toml: line 2: data.train is nothing in corpus 2, expected source and target, or tsv with columns counted from 1
    train.toml: line 2: data.train is tsv and target_column in corpus 3, expected source and target, or tsv with columns counted from 1
    train.toml: line 3: data.valid: found string "x", expected a corpus in { }
    "#);
    assert_snapshot!(problems("[data]\ntrain = { source = \"a\", target = \"b\" }\n"), @"train.toml: line 2: data.train: found map, expected a list in [ ]");
    assert_snapshot!(problems("[data]\ntrain = [{ source = \"a\", targt = \"b\" }]\n"), @"train.toml: line 2: data.train: found the unknown field `targt`, expected one of `source`, `target`, `tsv`, `source_column`, `target_column`");
    let text = Text { source: Some("a".into()), target: Some("b".into()), ..Text::default() };
    assert_eq!(
        text.files(),
        Some(Files::Parallel { source: Path::new("a").into(), target: Path::new("b").into() })
    );
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    assert_snapshot!(problems("[model]\nd_model = 30\nheads = 10\npositions = \"rotary\"\n[optimiser]\nweight_decay = 0.1\nlearning_rate = 1e-3\nfactor = 2\ndecay = \"linear\"\n"), @"
    train.toml: line 4: model.positions is rotary, expected an even d_model / heads, found 3
    train.toml: line 6: optimiser.weight_decay is 0.1, expected 0, or an optimiser.algorithm with weight decay: adamw, lion, muon
    train.toml: line 8: optimiser.factor is 2, expected no value if optimiser.learning_rate is set: both define the peak rate
    train.toml: line 15: schedule.max_updates is 10, expected more than optimiser.warmup_updates, which is 4000
    ");
    assert_snapshot!(problems("[tokenizer]\nvocabularies = \"separate\"\ncoverage = 0\n[data]\ntrain = [{ tsv = \"a\" }]\nmax_source_tokens = 256\n[model]\nmax_positions = 100\npositions = \"relative\"\nrelative_max_distance = 16\n"), @r#"
    train.toml: model.tie_embeddings is true, expected false, because tokenizer.vocabularies is "separate"
    train.toml: line 3: tokenizer.coverage is 0, expected a share above 0 and at most 1
    train.toml: line 6: data.max_source_tokens is 256, expected at most model.max_positions, which is 100
    train.toml: line 10: model.relative_max_distance is 16, expected 17 to 65536
    "#);
    assert_snapshot!(problems("[tokenizer]\nalgorithm = \"bpe\"\n[data]\ntrain = [{ tsv = \"a\" }]\nsubword_sampling = 0.3\n[dropout]\nembeddings = 0\nsublayers = 0\nconsistency = 5\n[schedule]\nmax_epochs = 3\n[optimiser]\ndecay = \"cosine\"\n"), @r#"
    train.toml: line 5: data.subword_sampling is 0.3, expected no value, or tokenizer.algorithm = "unigram"
    train.toml: line 9: dropout.consistency is 5, expected 0, or another dropout rate above 0
    train.toml: line 13: optimiser.decay is cosine, expected schedule.max_updates to be set: the rate is zero there
    "#);
    // In single precision these are 0, 1 and infinite.
    assert_snapshot!(problems("threads = 5000\n[optimiser]\nepsilon = 1e-46\nclip_norm = 1e-60\nema_decay = 0.9999999999\nweight_decay = inf\nalgorithm = \"adamw\"\n"), @"
    train.toml: line 1: threads is 5000, expected 1 to 1024
    train.toml: line 3: optimiser.epsilon is 1e-46, expected a number from 1.2e-38 to 3.4e38
    train.toml: line 4: optimiser.clip_norm is 1e-60, expected a number from 1.2e-38 to 3.4e38
    train.toml: line 5: optimiser.ema_decay is 0.9999999999, expected a number from 0 to less than 1
    train.toml: line 6: optimiser.weight_decay is inf, expected a number of at least 0
    ");
    assert_snapshot!(problems("[tuning]\nlora_rank = 0\nlora_alpha = 0\nlora_targets = []\nfreeze = [\"encoder\"]\n"), @r#"
    train.toml: line 2: tuning.lora_rank is 0, expected at least 1
    train.toml: line 2: tuning.lora_rank is 0, expected model.init to be set: adapters are for a trained model
    train.toml: line 3: tuning.lora_alpha is 0, expected a number above 0
    train.toml: line 4: tuning.lora_targets is empty, expected at least one layer's name: ["q_proj"]
    train.toml: line 5: tuning.freeze is beside tuning.lora_rank, expected only one of them: with adapters no other weights are learned
    "#);
    // What nothing reads.
    assert_snapshot!(problems("[model]\nrelative_buckets = 16\nrelative_max_distance = 64\n[tuning]\nlora_alpha = 4\nlora_targets = []\n[optimiser]\nalgorithm = \"lion\"\nepsilon = 1e-8\n"), @r#"
    train.toml: line 2: model.relative_buckets is 16, expected no value, or model.positions = "relative"
    train.toml: line 3: model.relative_max_distance is 64, expected no value, or model.positions = "relative"
    train.toml: line 5: tuning.lora_alpha is 4, expected no value, or tuning.lora_rank to be set
    train.toml: line 6: tuning.lora_targets is [], expected no value, or tuning.lora_rank to be set
    train.toml: line 9: optimiser.epsilon is 0.00000001, expected no value, or an optimiser.algorithm with epsilon: adam, adamw, muon
    "#);
    assert_snapshot!(problems("[tokenizer]\nfrom = \"t\"\nvocab_size = 9000\n[model]\ninit = \"m\"\nd_model = 64\n"), @r#"
    train.toml: line 2: tokenizer.from is "t", expected no value beside model.init: the checkpoint has a tokenizer
    train.toml: line 3: tokenizer.vocab_size is 9000, expected no value beside tokenizer.from: an existing tokenizer is not trained
    train.toml: line 3: tokenizer.vocab_size is 9000, expected no value beside model.init: the checkpoint has a tokenizer
    train.toml: line 6: model.d_model is 64, expected no value beside model.init: the checkpoint defines the model
    "#);
    assert_snapshot!(problems("[schedule]\npatience = 3\nmetric = \"bleu\"\naverage_checkpoints = 4\nkeep_checkpoints = 3\nmax_minutes = nan\n"), @"
    train.toml: line 2: schedule.patience is 3, expected no value, or data.valid to be set
    train.toml: line 3: schedule.metric is bleu, expected data.valid to be set
    train.toml: line 4: schedule.average_checkpoints is 4, expected 1 to 3
    train.toml: line 6: schedule.max_minutes is NaN, expected a number above 0
    ");
    assert_snapshot!(problems("[schedule]\nlog_every = 0\n[dropout]\nattention = 1\nsublayers = -0.1\n[data]\ntrain = [{ source = \"a\", target = \"b\" }]\nmax_ratio = 0.5\nmax_words = 0\nprefetch = 0\nmax_target_tokens = 4000\n"), @"
    train.toml: schedule is without end, expected max_updates, max_epochs, max_minutes or patience
    train.toml: line 2: schedule.log_every is 0, expected at least 1
    train.toml: line 4: dropout.attention is 1, expected a number from 0 to 0.95
    train.toml: line 5: dropout.sublayers is -0.1, expected a number from 0 to 0.95
    train.toml: line 8: data.max_ratio is 0.5, expected at least 1
    train.toml: line 9: data.max_words is 0, expected at least 1
    train.toml: line 10: data.prefetch is 0, expected 1 to 10000
    train.toml: line 11: data.max_target_tokens is 4000, expected 1 to data.max_tokens, which is 2048
    ");
}

/// What flags change after reading is checked again.
#[test]
fn changed_settings_are_checked() {
    let mut config = read(LEAST);
    config.check().unwrap();
    (config.data.max_sentences, config.optimiser.label_smoothing) = (Some(0), 1.0);
    assert_snapshot!(config.check().unwrap_err(), @"
    data.max_sentences is 0, expected at least 1
    optimiser.label_smoothing is 1, expected a number from 0 to less than 1
    ");
}

#[test]
fn fuzz_training_config() {
    let seed = "data.train = [{ source = \"a\", target = \"b\" }]\ndata.max_tokens = 64\nthreads = 1\ntokenizer.algorithm = \"bpe\"\n\
                model.d_model = 8\nmodel.heads = 2\noptimiser.learning_rate = 5e-3\nschedule.max_updates = 2\nschedule.max_minutes = 1.5\n";
    cognate_testing::never_panics("training_config", &[seed.as_bytes().to_vec()], 2000, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = TrainingConfig::from_toml(text, "run.toml");
        }
    });
}
