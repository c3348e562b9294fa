"""The cases in strange/: configurations and checkpoint files that each family allows, beyond the usual ones.

A case is one row: its configuration, and what was done to its files afterwards. Several oddities share a row, so
that there are few.
"""

import torch
import transformers as hf

from strange import Case, base_model_only, m2m100_sinusoids, marian_sinusoids, mbart_leftovers, padding_inside, renamed
from strange import saved_sinusoids, t5_leftovers

BART = dict(
    vocab_size=40,
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=24,
    decoder_ffn_dim=24,
    max_position_embeddings=31,
    init_std=0.3,
)
T5 = dict(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0)
MARIAN = dict(pad_token_id=39, decoder_start_token_id=39)
GEMMA = dict(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    max_position_embeddings=31,
    query_pre_attn_scalar=10,
    sliding_window=3,
    attn_logit_softcapping=3.0,
    final_logit_softcapping=6.0,
    initializer_range=0.2,
)

BERT = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=31,
    initializer_range=0.3,
)

# With larger weights RoBERTa repeats a token.
SOFT = dict(initializer_range=0.15, pad_token_id=1)

# Fields of config.json by older programs, which transformers does not read; their values contradict the others.
UNREAD = dict(
    add_bias_logits=False,
    add_final_layer_norm=False,
    extra_pos_embeddings=7,
    normalize_before=False,
    normalize_embedding=False,
    static_position_embeddings=False,
)


def gemma(encoder, decoder, tied=True):
    """A T5Gemma of halves that differ from GEMMA."""
    halves = (hf.T5GemmaModuleConfig(**GEMMA | half) for half in (encoder, decoder))
    return hf.T5GemmaConfig(*halves, vocab_size=40, tie_word_embeddings=tied)


def pair(encoder, decoder, **tokens):
    """A model of two models."""
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.update(tokens)
    return config


def own_ends(inputs):
    """Sources that end with 2 and are padded with 0, where the decoder's tokens are no tokens of the encoder."""
    ids = inputs["input_ids"]
    return inputs | {"input_ids": ids.where(ids < 40, 2) * inputs["attention_mask"]}


def widths(layers, heads, ffn):
    """A depth, a number of heads and a feed-forward width for the encoder, and others for the decoder."""
    names = ("layers", "attention_heads", "ffn_dim")
    return {
        f"{side}_{name}": pair[i]
        for i, side in enumerate(("encoder", "decoder"))
        for name, pair in zip(names, (layers, heads, ffn))
    }


CASES = {
    # BART
    "bart-asymmetric": Case(
        "other depths, heads and widths on the two sides; scaled embeddings; `gelu_new`",
        hf.BartConfig(
            **BART | widths((1, 3), (4, 2), (24, 40)) | dict(activation_function="gelu_new", scale_embedding=True)
        ),
    ),
    "bart-untied": Case(
        "`tie_word_embeddings: false`: four different tables, of which `model.shared.weight` is unused; `tanh`",
        hf.BartConfig(
            **BART | widths((2, 1), (2, 4), (40, 24)) | dict(activation_function="tanh", tie_word_embeddings=False)
        ),
    ),
    "bart-base-names": Case(
        "names of `BartModel`: no `model.`, no `final_logits_bias`; defaults left out of config.json; unread fields in it",
        hf.BartConfig(**BART | UNREAD),
        edit=dict(architectures=["BartModel"]),
        rewrite=base_model_only,
        omit=(
            "activation_function",
            "scale_embedding",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "decoder_start_token_id",
            "forced_eos_token_id",
        ),
    ),
    "bart-decoder-name": Case(
        "the table under `model.decoder.embed_tokens.weight` only (as facebook/bart-large-cnn); stored in f16; `leaky_relu`",
        hf.BartConfig(**BART | dict(activation_function="leaky_relu")),
        dtype=torch.float16,
        rewrite=renamed("model.shared.weight", "model.decoder.embed_tokens.weight"),
    ),
    # mBART
    "mbart-asymmetric": Case(
        "other depths, heads and widths; embeddings not scaled; `relu6`; all aliases and `encoder.version` saved",
        hf.MBartConfig(
            **BART | widths((3, 1), (2, 8), (16, 40)) | dict(activation_function="relu6", decoder_start_token_id=2)
        ),
        rewrite=mbart_leftovers,
    ),
    "mbart-untied": Case(
        "untied, four different tables; scaled; `gelu_python`; stored in bf16",
        hf.MBartConfig(
            **BART
            | dict(
                activation_function="gelu_python",
                scale_embedding=True,
                tie_word_embeddings=False,
                decoder_start_token_id=2,
            )
        ),
        dtype=torch.bfloat16,
    ),
    # PLBART
    "plbart": Case(
        "other depths and heads; odd `max_position_embeddings`; scaled (the default left out); `swish`",
        hf.PLBartConfig(
            **BART
            | widths((1, 2), (4, 1), (24, 16))
            | dict(activation_function="swish", max_position_embeddings=29, decoder_start_token_id=2)
        ),
        omit=("scale_embedding", "pad_token_id", "eos_token_id", "forced_eos_token_id"),
    ),
    "plbart-untied": Case(
        "untied, four different tables; not scaled; `laplace`",
        hf.PLBartConfig(
            **BART
            | dict(
                activation_function="laplace",
                scale_embedding=False,
                tie_word_embeddings=False,
                decoder_start_token_id=2,
            )
        ),
    ),
    # Blenderbot
    "blenderbot": Case(
        "other depths, heads and widths; scaled; `gelu_accurate`; odd `max_position_embeddings`",
        hf.BlenderbotConfig(
            **BART
            | widths((1, 2), (4, 2), (40, 24))
            | dict(
                activation_function="gelu_accurate",
                scale_embedding=True,
                max_position_embeddings=27,
                encoder_no_repeat_ngram_size=0,
            )
        ),
    ),
    "blenderbot-untied": Case(
        "untied output; not scaled; `gelu` (defaults left out); stored in shards",
        hf.BlenderbotConfig(**BART | dict(tie_word_embeddings=False, encoder_no_repeat_ngram_size=0)),
        shard="12KB",
        omit=("activation_function", "scale_embedding", "pad_token_id", "eos_token_id"),
    ),
    "blenderbot-small": Case(
        "positions added after the decoder's embedding norm, before the encoder's; other depths and heads; scaled; `mish`",
        hf.BlenderbotSmallConfig(
            **BART | widths((2, 1), (2, 4), (24, 16)) | dict(activation_function="mish", scale_embedding=True)
        ),
    ),
    "blenderbot-small-untied": Case(
        "untied output; `relu2`; table under `model.encoder.embed_tokens.weight` only",
        hf.BlenderbotSmallConfig(**BART | dict(activation_function="relu2", tie_word_embeddings=False)),
        rewrite=renamed("model.shared.weight", "model.encoder.embed_tokens.weight"),
    ),
    # Marian
    "marian-asymmetric": Case(
        "other depths, heads and widths; odd d_model; not scaled; `quick_gelu`",
        hf.MarianConfig(
            **BART | MARIAN | widths((1, 2), (5, 3), (20, 24)) | dict(d_model=15, activation_function="quick_gelu")
        ),
    ),
    "marian-two-tables": Case(
        "`share_encoder_decoder_embeddings: false`: the output is tied to the decoder's table; scaled; `gelu_fast`",
        hf.MarianConfig(
            **BART
            | MARIAN
            | dict(share_encoder_decoder_embeddings=False, activation_function="gelu_fast", scale_embedding=True)
        ),
    ),
    "marian-two-vocabularies": Case(
        "not shared, not tied: three tables, `decoder_vocab_size` 36 of 40 (the decoder's table has 40 rows)",
        hf.MarianConfig(
            **BART
            | dict(
                share_encoder_decoder_embeddings=False,
                tie_word_embeddings=False,
                decoder_vocab_size=36,
                pad_token_id=35,
                decoder_start_token_id=35,
            )
        ),
    ),
    "marian-resized": Case(
        "not shared, tied, `decoder_vocab_size` 44 with 44 rows in the decoder's table",
        hf.MarianConfig(**BART | MARIAN | dict(share_encoder_decoder_embeddings=False)),
        prepare=lambda model: model.resize_decoder_token_embeddings(44),
    ),
    "marian-saved-sinusoids": Case(
        "`tie_word_embeddings: false` with one shared table; saved sinusoids, which count; unread fields",
        hf.MarianConfig(**BART | MARIAN | UNREAD | dict(tie_word_embeddings=False, scale_embedding=True)),
        rewrite=saved_sinusoids("weight", marian_sinusoids(31, 16)),
    ),
    "marian-sharded": Case(
        "stored in shards with an index; the table under two aliases, not under its own name",
        hf.MarianConfig(**BART | MARIAN | dict(activation_function="swish")),
        shard="8KB",
        rewrite=renamed("model.shared.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
    ),
    # M2M100
    "m2m100-asymmetric": Case(
        "pad is 3 and lies inside a source; odd d_model; more positions than `max_position_embeddings`; other depths and heads; not scaled; `gelu_pytorch_tanh`",
        hf.M2M100Config(
            **BART
            | widths((2, 1), (3, 5), (16, 40))
            | dict(
                d_model=15,
                pad_token_id=3,
                max_position_embeddings=8,
                scale_embedding=False,
                activation_function="gelu_pytorch_tanh",
            )
        ),
        inputs=padding_inside,
    ),
    "m2m100-untied": Case(
        "untied, four different tables; saved sinusoids, which do not count; defaults left out",
        hf.M2M100Config(**BART | dict(tie_word_embeddings=False)),
        rewrite=saved_sinusoids("weights", m2m100_sinusoids(31, 16, 1)),
        omit=(
            "activation_function",
            "scale_embedding",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "decoder_start_token_id",
        ),
    ),
    # Pegasus
    "pegasus-asymmetric": Case(
        "other depths, heads and widths; odd d_model; not scaled (default left out); `sigmoid`",
        hf.PegasusConfig(**BART | widths((1, 2), (3, 5), (16, 24)) | dict(d_model=15, activation_function="sigmoid")),
        omit=("scale_embedding", "pad_token_id", "eos_token_id"),
    ),
    "pegasus-bf16": Case(
        "stored in bf16 with its sinusoids, which count; untied; scaled; `relu`; unread fields",
        hf.PegasusConfig(
            **BART | UNREAD | dict(tie_word_embeddings=False, scale_embedding=True, activation_function="relu")
        ),
        dtype=torch.bfloat16,
    ),
    # T5
    "t5-asymmetric": Case(
        "other depths; d_kv x heads is not d_model; 12 buckets to 20; `gelu` (exact); epsilon 1e-3",
        hf.T5Config(
            **T5
            | dict(
                num_layers=1,
                num_decoder_layers=3,
                d_kv=5,
                relative_attention_num_buckets=12,
                relative_attention_max_distance=20,
                feed_forward_proj="gelu",
                layer_norm_epsilon=1e-3,
            )
        ),
    ),
    "t5-gated-tied": Case(
        "gated and tied; `gated-relu`; 32 buckets to 64; deeper encoder; 3 heads",
        hf.T5Config(
            **T5
            | dict(
                num_layers=3,
                num_decoder_layers=1,
                num_heads=3,
                relative_attention_max_distance=64,
                feed_forward_proj="gated-relu",
            )
        ),
    ),
    "t5-gated-untied": Case(
        "gated and untied; `gated-silu`; 7 buckets to 13; stored in f16 shards",
        hf.T5Config(
            **T5
            | dict(
                relative_attention_num_buckets=7,
                relative_attention_max_distance=13,
                feed_forward_proj="gated-silu",
                tie_word_embeddings=False,
            )
        ),
        dtype=torch.float16,
        shard="10KB",
    ),
    "t5-act-override": Case(
        "config.json's `dense_act_fn: tanh` wins over `feed_forward_proj: gated-gelu`; 8 buckets to 200",
        hf.T5Config(
            **T5
            | dict(
                relative_attention_num_buckets=8, relative_attention_max_distance=200, feed_forward_proj="gated-gelu"
            )
        ),
        edit=dict(dense_act_fn="tanh"),
    ),
    "t5-long": Case(
        "a source and a target of 141 tokens: past every bucket",
        hf.T5Config(**T5 | dict(vocab_size=24, num_heads=1, num_layers=1)),
        source_lengths=(141,),
        target_length=141,
    ),
    "t5-leftovers": Case(
        "the old unused bias of cross-attention; every alias of the tied table; defaults left out; `n_positions`",
        hf.T5Config(**T5 | dict(n_positions=512)),
        rewrite=t5_leftovers,
        omit=(
            "num_decoder_layers",
            "relative_attention_num_buckets",
            "relative_attention_max_distance",
            "layer_norm_epsilon",
            "feed_forward_proj",
            "dense_act_fn",
            "is_gated_act",
            "pad_token_id",
            "eos_token_id",
        ),
    ),
    "t5-head-name": Case(
        "the tied table under `lm_head.weight` only; `silu`; stored in bf16",
        hf.T5Config(**T5 | dict(feed_forward_proj="silu")),
        dtype=torch.bfloat16,
        rewrite=renamed("shared.weight", "lm_head.weight"),
        restore=renamed("lm_head.weight", "shared.weight"),
    ),
    "t5-encoder-name": Case(
        "the tied table under `encoder.embed_tokens.weight` only",
        hf.T5Config(**T5 | dict(num_layers=1)),
        rewrite=renamed("shared.weight", "encoder.embed_tokens.weight"),
    ),
    "byt5": Case(
        "ByT5: its vocabulary, a deeper encoder, gated, untied; text is bytes, with the file of its tokenizer's class",
        hf.T5Config(
            **T5
            | dict(
                vocab_size=384,
                d_kv=6,
                num_layers=3,
                num_decoder_layers=1,
                feed_forward_proj="gated-gelu",
                tie_word_embeddings=False,
                tokenizer_class="ByT5Tokenizer",
            )
        ),
    ),
    "mt5-tied": Case(
        "mT5 tied (untied is its default); `gated-gelu_new`; other depths",
        hf.MT5Config(
            **T5
            | dict(tie_word_embeddings=True, num_layers=1, num_decoder_layers=2, feed_forward_proj="gated-gelu_new")
        ),
    ),
    "mt5-defaults": Case(
        "mT5 untied and gated, with the defaults left out; heads of 3",
        hf.MT5Config(**T5 | dict(d_kv=3, num_heads=4)),
        omit=("tie_word_embeddings", "feed_forward_proj", "dense_act_fn", "is_gated_act", "decoder_start_token_id"),
    ),
    "umt5-tied": Case(
        "a bias in every layer; tied and gated (defaults left out); other depths; 12 buckets to 20; d_kv 5",
        hf.UMT5Config(
            **T5
            | dict(
                num_layers=2,
                num_decoder_layers=3,
                d_kv=5,
                relative_attention_num_buckets=12,
                relative_attention_max_distance=20,
            )
        ),
        omit=("feed_forward_proj", "dense_act_fn", "is_gated_act"),
    ),
    "umt5-untied": Case(
        "untied; not gated, `relu`; 9 buckets to 11",
        hf.UMT5Config(
            **T5
            | dict(
                tie_word_embeddings=False,
                feed_forward_proj="relu",
                relative_attention_num_buckets=9,
                relative_attention_max_distance=11,
            )
        ),
    ),
    # T5Gemma
    "t5gemma": Case(
        "a deeper and wider encoder with other heads, window, caps, scale, epsilon, activation and rotary base; windows of 3 and 4; tied",
        gemma(
            dict(
                hidden_size=20,
                intermediate_size=28,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=8,
                query_pre_attn_scalar=7,
                sliding_window=4,
                attn_logit_softcapping=2.5,
                rms_norm_eps=1e-3,
                rope_theta=500.0,
                hidden_activation="silu",
            ),
            {},
        ),
    ),
    "t5gemma-untied": Case(
        "no caps; biases in attention; 3 heads each with its keys; the second layer slides; an own output table",
        gemma(
            *[
                dict(
                    num_attention_heads=3,
                    num_key_value_heads=3,
                    attention_bias=True,
                    attn_logit_softcapping=None,
                    final_logit_softcapping=None,
                    layer_types=["full_attention", "sliding_attention"],
                    tie_word_embeddings=False,
                )
            ]
            * 2,
            tied=False,
        ),
    ),
    "t5gemma-source-output": Case(
        "`tie_word_embeddings: false` of the whole only: the output is the encoder's table; 5 heads on 1; stored in bf16",
        gemma(*[dict(num_attention_heads=5, num_key_value_heads=1)] * 2, tied=False),
        dtype=torch.bfloat16,
    ),
    # Pairs
    "bert-bert": Case(
        "BERT with a decoder of BERT: a wider encoder of other depth and heads, whose states are projected; 3 token types; activations differ",
        pair(
            hf.BertConfig(**BERT | dict(hidden_size=20, num_hidden_layers=1, type_vocab_size=3, hidden_act="gelu_new")),
            hf.BertConfig(**BERT | dict(hidden_act="relu", layer_norm_eps=1e-5)),
            decoder_start_token_id=3,
            pad_token_id=0,
            eos_token_id=2,
        ),
    ),
    "bert-tied": Case(
        "`tie_encoder_decoder`: the decoder has the encoder's weights, but for cross-attention and its head",
        pair(
            *[hf.BertConfig(**BERT | dict(initializer_range=0.15)) for _ in range(2)],
            decoder_start_token_id=3,
            pad_token_id=0,
            eos_token_id=2,
            tie_encoder_decoder=True,
        ),
    ),
    "roberta-roberta": Case(
        "counted positions on both sides; the decoder has an own output table",
        pair(
            hf.RobertaConfig(**BERT | SOFT),
            hf.RobertaConfig(**BERT | SOFT | dict(hidden_act="relu", tie_word_embeddings=False)),
            decoder_start_token_id=0,
            pad_token_id=1,
            eos_token_id=2,
        ),
    ),
    "bert-generation": Case(
        "BertGeneration on both sides, of other depth and heads: no segments, no layer before the output projection",
        pair(
            hf.BertGenerationConfig(**BERT | dict(num_hidden_layers=1, num_attention_heads=4)),
            hf.BertGenerationConfig(**BERT | dict(hidden_act="relu")),
            decoder_start_token_id=2,
            pad_token_id=0,
            eos_token_id=1,
        ),
    ),
    "distilbert-gpt2": Case(
        "vocabularies of 40 and 43, the decoder's padding and end are outside the encoder's; joined, transposed weights of cross-attention",
        pair(
            hf.DistilBertConfig(
                vocab_size=40,
                dim=16,
                n_layers=2,
                n_heads=2,
                hidden_dim=24,
                max_position_embeddings=31,
                initializer_range=0.3,
            ),
            hf.GPT2Config(vocab_size=43, n_embd=16, n_layer=2, n_head=4, n_positions=33, initializer_range=0.3),
            decoder_start_token_id=1,
            pad_token_id=42,
            eos_token_id=41,
        ),
        inputs=own_ends,
    ),
}
