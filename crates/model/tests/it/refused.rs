//! Errors of invalid checkpoints name file, field, expected and found.

use cognate_model::Model;
use cognate_testing::golden;
use insta::assert_snapshot;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::fs;
use std::path::Path;

/// The error for the golden checkpoint after `change`, without the folder's name.
fn refused(change: impl Fn(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden("marian").join(name), folder.path().join(name)).unwrap();
    }
    change(folder.path());
    let message = Model::open(folder.path()).unwrap_err().to_string();
    message.replace(&format!("{}/", folder.path().display()), "")
}

fn config(field: &str, value: &str) -> String {
    refused(|folder| {
        let path = folder.join("config.json");
        let mut json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        json[field] = serde_json::from_str(value).unwrap();
        fs::write(&path, json.to_string()).unwrap();
    })
}

/// What a decoder of images says of an encoder is of one that its class does not build.
#[test]
fn an_encoder_that_is_not_built_contradicts_nothing() {
    let (source, folder) = (golden("images/mbart"), tempfile::tempdir().unwrap());
    fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(source.join("config.json")).unwrap()).unwrap();
    for (size, value) in [("attention_heads", 7), ("layers", 12), ("ffn_dim", 4096)] {
        json["decoder"][format!("encoder_{size}")] = value.into();
    }
    fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
    let (found, expected) = (Model::open(folder.path()).unwrap(), Model::open(&source).unwrap());
    assert_eq!(found.config(), expected.config());
}

#[test]
fn configurations() {
    assert_snapshot!(config("d_model", "33"), @"
    config.json: 2 invalid fields
      d_model 33 is not divisible by encoder_attention_heads 4
      d_model 33 is not divisible by decoder_attention_heads 4
    ");
    assert_snapshot!(config("model_type", "\"electra\""), @r#"config.json: model_type "electra" is not supported; expected one of bart, bert, bert-generation, blenderbot, blenderbot-small, camembert, cognate, deit, distilbert, gemma, gemma2, gpt2, llama, m2m_100, marian, mbart, mistral, mpnet, mt5, opt, pegasus, plbart, qwen2, roberta, t5, t5gemma, trocr, umt5, vit, whisper, xlm-roberta, encoder-decoder, vision-encoder-decoder"#);
    assert_snapshot!(config("activation_function", "\"softplus\""), @r#"config.json: activation_function "softplus" is not supported; expected one of gelu, gelu_10, gelu_new, gelu_accurate, gelu_fast, gelu_python, gelu_python_tanh, gelu_pytorch_tanh, laplace, leaky_relu, linear, mish, quick_gelu, relu, relu2, relu6, sigmoid, swish, silu, tanh"#);
    assert_snapshot!(config("decoder_layers", "0"), @"config.json: decoder_layers: expected 1 to 16777216, found 0");
    assert_snapshot!(config("decoder_layers", "100000"), @"config.json: decoder_layers: expected at most 1024, found 100000");
    assert_snapshot!(config("eos_token_id", "120"), @"config.json: eos_token_id 120 is outside the vocabulary of 120");
    assert_snapshot!(config("vocab_size", "-1"), @"config.json: vocab_size: expected a whole number, found -1");
    assert_snapshot!(config("decoder_vocab_size", "99"), @"config.json: decoder_vocab_size: expected vocab_size 120 with shared embeddings, found 99");
    assert_snapshot!(config("is_encoder_decoder", "false"), @"config.json: is_encoder_decoder false is not supported; expected true");
    assert_snapshot!(config("tie_word_embeddings", "1"), @"config.json: tie_word_embeddings: expected true or false, found 1");
    let folder = |text: &'static str| {
        refused(move |folder| fs::write(folder.join("config.json"), text).unwrap())
    };
    assert_snapshot!(folder("{"), @"config.json: not JSON: EOF while parsing an object at line 1 column 1");
    assert_snapshot!(folder("{}"), @"config.json: model_type is missing; expected one of bart, bert, bert-generation, blenderbot, blenderbot-small, camembert, cognate, deit, distilbert, gemma, gemma2, gpt2, llama, m2m_100, marian, mbart, mistral, mpnet, mt5, opt, pegasus, plbart, qwen2, roberta, t5, t5gemma, trocr, umt5, vit, whisper, xlm-roberta, encoder-decoder, vision-encoder-decoder");
    assert_snapshot!(folder("[]"), @"config.json: expected a JSON object");
}

#[test]
fn everything_wrong_with_a_configuration_is_told_at_once() {
    let message = refused(|folder| {
        let text = r#"{"model_type": "t5", "vocab_size": 120, "d_model": "wide", "d_kv": 8, "d_ff": 0, "num_heads": 4,
            "relative_attention_num_buckets": 2, "feed_forward_proj": "gated-softplus", "layer_norm_epsilon": -1, "pad_token_id": 120}"#;
        fs::write(folder.join("config.json"), text).unwrap();
    });
    assert_snapshot!(message);
}

#[test]
fn files() {
    assert_snapshot!(refused(|folder| fs::remove_file(folder.join("config.json")).unwrap()), @"config.json: No such file or directory (os error 2)");
    assert_snapshot!(refused(|folder| fs::remove_file(folder.join("model.safetensors")).unwrap()), @"model.safetensors: No such file or directory (os error 2)");
    let truncated = |len| {
        refused(move |folder| {
            let path = folder.join("model.safetensors");
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..len]).unwrap();
        })
    };
    assert_snapshot!(truncated(0), @"model.safetensors: not a safetensors file (0 bytes): header too small; is it complete?");
    assert_snapshot!(truncated(100), @"model.safetensors: not a safetensors file (100 bytes): invalid header length; is it complete?");
    assert_snapshot!(truncated(150_000), @"model.safetensors: not a safetensors file (150000 bytes): incomplete metadata, file not fully covered; is it complete?");
}

#[test]
fn all_tensors_that_do_not_fit_are_named_together() {
    let message = refused(|folder| {
        let path = folder.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let mut tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
        tensors.retain(|(name, _)| {
            name != "model.decoder.layers.0.fc1.bias" && name != "model.encoder.layers.1.fc2.weight"
        });
        let short = vec![0; 4 * 16];
        tensors
            .push(("model.surplus".into(), TensorView::new(Dtype::F32, vec![16], &short).unwrap()));
        for (name, tensor) in &mut tensors {
            match name.as_str() {
                "model.encoder.layers.0.fc1.bias" => {
                    *tensor = TensorView::new(Dtype::F32, vec![16], &short).unwrap()
                }
                "model.encoder.layers.0.fc2.bias" => {
                    *tensor = TensorView::new(Dtype::I32, vec![16], &short).unwrap()
                }
                _ => {}
            }
        }
        // A tied tensor saved twice with different values.
        let other = vec![1; 4 * 120 * 32];
        tensors.push((
            "lm_head.weight".into(),
            TensorView::new(Dtype::F32, vec![120, 32], &other).unwrap(),
        ));
        let changed = safetensors::serialize(tensors, None).unwrap();
        fs::write(&path, changed).unwrap();
    });
    assert_snapshot!(message, @r"
    model.safetensors: weights do not match config.json
      lm_head.weight: differs from the tensor that it is tied to
      model.encoder.layers.0.fc1.bias: expected [64], found [16]
      model.encoder.layers.0.fc2.bias: I32 is not supported; expected F32, F16 or BF16: save the checkpoint in float32
      model.encoder.layers.1.fc2.weight: missing, expected [32, 64]
      model.decoder.layers.0.fc1.bias: missing, expected [64]
      model.surplus: in the file, but not in the model of config.json
    ");
}

/// The error for a small model of Cognate's own family after `change` of its fields.
fn own(change: &str) -> String {
    let folder = cognate_testing::testdata("research/rotary");
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    fields.extend(serde_json::from_str::<serde_json::Map<_, _>>(change).unwrap());
    cognate_model::Config::from_json(&serde_json::to_string(&fields).unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn choices_of_our_own_family() {
    assert_snapshot!(own(r#"{"norm": "batch"}"#), @"config.json: norm: unknown variant `batch`, expected `layer` or `rms`");
    assert_snapshot!(own(r#"{"norm_placement": 1}"#), @"config.json: norm_placement: expected a string, found 1");
    assert_snapshot!(own(r#"{"position_embedding_type": "rope"}"#), @"config.json: position_embedding_type: unknown variant `rope`, expected one of `sinusoidal`, `learned`, `relative`, `rotary`, `alibi`");
    assert_snapshot!(own(r#"{"attention_score": "cosine"}"#), @"config.json: attention_score: unknown variant `cosine`, expected one of `scaled_dot`, `dot`, `additive`");
    assert_snapshot!(own(r#"{"encoder_attention_heads": 4}"#), @"config.json: encoder_attention_heads 4: expected an even head width for rotary positions, found 3");
    assert_snapshot!(own(r#"{"max_position_embeddings": null}"#), @"config.json: max_position_embeddings is missing; expected a whole number");
    assert_snapshot!(own(r#"{"decoder_vocab_size": 31}"#), @"config.json: decoder_vocab_size: expected vocab_size 30 with shared embeddings, found 31");
    assert_snapshot!(own(r#"{"attention_scores": "dot", "relative_attention_num_buckets": 8}"#), @r#"
    config.json: 2 invalid fields
      attention_scores "dot" is not used by this model; remove it
      relative_attention_num_buckets 8 is not used by this model; remove it
    "#);
}

/// The message for a T5Gemma after `change` of the fields of a half, or of the whole.
fn t5gemma(half: &str, change: &str) -> String {
    let text = fs::read_to_string(golden("strange/t5gemma").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fields = if half.is_empty() { &mut config } else { &mut config[half] };
    fields
        .as_object_mut()
        .unwrap()
        .extend(serde_json::from_str::<serde_json::Map<_, _>>(change).unwrap());
    cognate_model::Config::from_json(&config.to_string()).unwrap_err().to_string()
}

#[test]
fn halves_of_t5gemma() {
    let mut failures = Vec::new();
    for (half, change, expected) in [
        (
            "encoder",
            r#"{"rope_scaling": {"rope_type": "longrope"}}"#,
            "rope_scaling {\"rope_type\":\"longrope\"} is not supported; expected null, or a rope_type of default, linear, dynamic, llama3, yarn",
        ),
        (
            "decoder",
            r#"{"rope_scaling": {"rope_type": "yarn", "factor": 0}}"#,
            "rope_scaling: factor: expected a positive number, found 0",
        ),
        (
            "decoder",
            r#"{"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 9}}"#,
            "rope_scaling: expected low_freq_factor below high_freq_factor, found 4 and 1",
        ),
        (
            "encoder",
            r#"{"rope_scaling": {"rope_type": "yarn", "factor": 2}, "rope_theta": 1}"#,
            "rope_theta: expected more than 1 for rope_scaling yarn",
        ),
        (
            "decoder",
            r#"{"attn_logit_softcapping": 0}"#,
            "attn_logit_softcapping: expected a positive number, found 0",
        ),
        (
            "decoder",
            r#"{"layer_types": ["full_attention"]}"#,
            "layer_types: expected num_hidden_layers 2, found 1",
        ),
        (
            "encoder",
            r#"{"layer_types": ["full_attention", "chunked_attention", "full_attention"]}"#,
            "layer_types \"chunked_attention\" is not supported; expected sliding_attention or full_attention",
        ),
        (
            "decoder",
            r#"{"head_dim": 5}"#,
            "num_attention_heads 4: expected an even head width for rotary positions, found 5",
        ),
        ("encoder", r#"{"sliding_window": 0}"#, "sliding_window: expected at least 1, found 0"),
        (
            "decoder",
            r#"{"num_key_value_heads": 3}"#,
            "num_attention_heads 4 is not divisible by num_key_value_heads 3",
        ),
        ("", r#"{"decoder": null}"#, "decoder is missing; expected an object"),
        ("", r#"{"eos_token_id": 40}"#, "eos_token_id 40 is outside the vocabulary of 40"),
        (
            "",
            r#"{"tie_encoder_decoder": true}"#,
            "tie_encoder_decoder true is not supported; expected false",
        ),
        (
            "",
            r#"{"tie_word_embeddings": false}"#,
            "tie_word_embeddings false ties the output to the encoder's table of width 20, and the decoder has 16; set tie_word_embeddings of the decoder to false",
        ),
        (
            "",
            r#"{"architectures": ["T5GemmaForSequenceClassification"]}"#,
            "architectures \"T5GemmaForSequenceClassification\" is not supported; expected T5GemmaForConditionalGeneration, T5GemmaModel, T5GemmaEncoderModel",
        ),
    ] {
        let found = t5gemma(half, change);
        let place = if found.contains("decoder: eos_token_id") { "decoder" } else { half };
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        let expected = format!("config.json: {place}{expected}");
        if found != expected {
            failures.push(format!("{half} {change}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The message for a pair of models after `change` of the fields of a half, or of the whole.
fn pair(case: &str, half: &str, change: &str) -> String {
    let text = fs::read_to_string(cognate_testing::golden(case).join("config.json")).unwrap();
    let mut whole: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).unwrap();
    let change = serde_json::from_str::<serde_json::Map<_, _>>(change).unwrap();
    match half {
        "" => whole.extend(change),
        half => whole[half].as_object_mut().unwrap().extend(change),
    }
    cognate_model::Config::from_json(&serde_json::to_string(&whole).unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn pairs_of_models() {
    let (text, image) = ("strange/bert-bert", "images/gpt2");
    assert_snapshot!(pair(text, "encoder", r#"{"model_type": "t5"}"#), @"config.json: encoder: expected one of bert, bert-generation, camembert, deit, distilbert, mpnet, roberta, vit, xlm-roberta");
    assert_snapshot!(pair(text, "decoder", r#"{"model_type": "distilbert"}"#), @"config.json: decoder: expected one of trocr, bart, bert, bert-generation, blenderbot, blenderbot-small, camembert, gpt2, marian, mbart, pegasus, plbart, roberta, xlm-roberta");
    assert_snapshot!(pair(text, "decoder", r#"{"model_type": "t6"}"#).split(';').next().unwrap(), @r#"config.json: decoder: model_type "t6" is not supported"#);
    assert_snapshot!(pair(text, "", r#"{"model_type": "vision-encoder-decoder"}"#), @"config.json: encoder: expected a model of images, vit or deit");
    assert_snapshot!(pair(image, "", r#"{"model_type": "encoder-decoder"}"#), @"config.json: encoder: expected a model of text, such as bert");
    assert_snapshot!(pair(image, "", r#"{"encoder": [1]}"#), @"config.json: encoder: expected an object, found [1]");
    assert_snapshot!(pair(text, "encoder", r#"{"model_type": "encoder-decoder"}"#), @r#"config.json: encoder: model_type "encoder-decoder" is not supported; expected one of bart, bert, bert-generation, blenderbot, blenderbot-small, camembert, cognate, deit, distilbert, gemma, gemma2, gpt2, llama, m2m_100, marian, mbart, mistral, mpnet, mt5, opt, pegasus, plbart, qwen2, roberta, t5, t5gemma, trocr, umt5, vit, whisper, xlm-roberta"#);
    assert_snapshot!(pair(text, "decoder", r#"{"cross_attention_hidden_size": 20}"#), @"config.json: decoder: cross_attention_hidden_size 20 is not supported; expected null");
    assert_snapshot!(pair(text, "", r#"{"eos_token_id": null}"#), @"config.json: decoder: eos_token_id is missing; expected a whole number");
    assert_snapshot!(pair(text, "", r#"{"decoder_start_token_id": 40}"#), @"config.json: decoder: decoder_start_token_id 40 is outside the vocabulary of 40");
    assert_snapshot!(pair(text, "encoder", r#"{"vocab_size": 50, "pad_token_id": 45}"#), @"config.json: encoder: pad_token_id 45 is outside the decoder's vocabulary of 40");
    assert_snapshot!(pair("strange/distilbert-gpt2", "", r#"{"tie_encoder_decoder": true}"#), @"config.json: tie_encoder_decoder true: expected an encoder and a decoder of one family");
    assert_snapshot!(pair(text, "", r#"{"tie_encoder_decoder": "yes"}"#), @r#"config.json: tie_encoder_decoder: expected true or false, found "yes""#);
    assert_snapshot!(pair(text, "decoder", r#"{"cross_attention_hidden_size": "wide"}"#), @r#"config.json: decoder: cross_attention_hidden_size "wide" is not supported; expected null"#);
    assert_snapshot!(pair(image, "decoder", r#"{"scale_attn_by_inverse_layer_idx": true}"#), @"config.json: decoder: scale_attn_by_inverse_layer_idx true is not supported; expected false");
}

/// The message for an encoder alone after `change` of its fields.
fn encoder(case: &str, change: &str) -> String {
    let text =
        fs::read_to_string(cognate_testing::testdata("encoders").join(case).join("config.json"))
            .unwrap();
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).unwrap();
    fields.extend(serde_json::from_str::<serde_json::Map<_, _>>(change).unwrap());
    cognate_model::Config::from_json(&serde_json::to_string(&fields).unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn encoders_alone() {
    assert_snapshot!(encoder("bert", r#"{"position_embedding_type": "relative_key"}"#), @r#"config.json: position_embedding_type "relative_key" is not supported; expected one of absolute"#);
    assert_snapshot!(encoder("bert", r#"{"hidden_size": 15}"#), @"config.json: hidden_size 15 is not divisible by num_attention_heads 2");
    assert_snapshot!(encoder("bert", r#"{"is_decoder": true, "add_cross_attention": true}"#), @r"
    config.json: 2 invalid fields
      is_decoder true is not supported; expected false
      add_cross_attention true is not supported; expected false
    ");
    assert_snapshot!(encoder("roberta", r#"{"architectures": ["RobertaForCausalLM"]}"#), @r#"config.json: architectures "RobertaForCausalLM" is not supported; expected one of RobertaModel, RobertaForSequenceClassification, RobertaForTokenClassification, RobertaForMaskedLM"#);
    assert_snapshot!(encoder("bert", r#"{"model_type": "bert-generation", "architectures": ["BertGenerationDecoder"]}"#), @r#"config.json: architectures "BertGenerationDecoder" is not supported; expected one of BertGenerationEncoder"#);
    assert_snapshot!(encoder("mpnet", r#"{"relative_attention_num_buckets": 8}"#), @"config.json: relative_attention_num_buckets 8 is not supported; expected 32");
    assert_snapshot!(encoder("roberta", r#"{"max_position_embeddings": 2}"#), @"config.json: max_position_embeddings: expected 1 to 131072, found 0");
    assert_snapshot!(encoder("bert-tokens", r#"{"num_labels": 0}"#), @"config.json: num_labels: expected 1 to 16777216, found 0");
    let decoder = Model::open(&cognate_testing::testdata("encoders/t5"))
        .unwrap()
        .teacher_forced()
        .unwrap_err();
    assert_snapshot!(decoder, @"config.json: expected a model with a decoder, found an encoder-only model");
}
