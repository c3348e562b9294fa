"""Writes a checkpoint of a published shape with seeded random weights, for `cargo xtask bench export --peers`.

    python make_checkpoint.py SHAPE FOLDER

Nothing is downloaded: transformers initialises the weights and writes the folder with `save_pretrained`.
"""

import sys

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

BASE = {
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}


def marian_base():
    """The paper's base model with the vocabulary of `cargo xtask bench export`: 60.6 million parameters, 242 MB."""
    special = {"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": 31999, "decoder_start_token_id": 31999}
    return MarianMTModel(MarianConfig(vocab_size=32000, max_position_embeddings=512, scale_embedding=True, activation_function="swish", **special, **BASE))


def t5_small():
    """google-t5/t5-small's shape: 60.5 million parameters, 242 MB."""
    return T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=512, d_ff=2048, d_kv=64, num_heads=8, num_layers=6, decoder_start_token_id=0))


def t5_base():
    """google-t5/t5-base's shape: 222.9 million parameters, 892 MB."""
    return T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=768, d_ff=3072, d_kv=64, num_heads=12, num_layers=12, decoder_start_token_id=0))


def bart_base():
    """facebook/bart-base's shape: 139.4 million parameters, 558 MB."""
    shape = {name: value * 3 // 2 for name, value in BASE.items() if not name.endswith("_layers")}
    layers = {"encoder_layers": 6, "decoder_layers": 6}
    return BartForConditionalGeneration(BartConfig(vocab_size=50265, max_position_embeddings=1024, **shape, **layers))


def m2m100_small():
    """M2M100's vocabulary of 128,112 on the base model: 109.7 million parameters, 439 MB, most of it embeddings."""
    return M2M100ForConditionalGeneration(M2M100Config(vocab_size=128112, max_position_embeddings=1024, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **BASE))


def nllb_600m():
    """facebook/nllb-200-distilled-600M's shape: 615.1 million parameters, 2,460 MB."""
    shape = {name: value * 2 for name, value in BASE.items()}
    return M2M100ForConditionalGeneration(M2M100Config(vocab_size=256206, max_position_embeddings=1024, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **shape))


def whisper_small():
    """openai/whisper-small's shape: 241.7 million parameters, 967 MB."""
    shape = {name: value * 3 // 2 for name, value in BASE.items() if not name.endswith("_layers")}
    special = {"bos_token_id": 50257, "eos_token_id": 50257, "pad_token_id": 50257, "decoder_start_token_id": 50258}
    return WhisperForConditionalGeneration(WhisperConfig(encoder_layers=12, decoder_layers=12, **shape, **special))


def bert_base():
    """google-bert/bert-base-uncased's shape: 109.5 million parameters, 438 MB."""
    return BertModel(BertConfig())


def gpt2():
    """openai-community/gpt2's shape: 124.4 million parameters, 498 MB."""
    return GPT2LMHeadModel(GPT2Config())


SHAPES = {
    "marian-base": marian_base,
    "t5-small": t5_small,
    "t5-base": t5_base,
    "bart-base": bart_base,
    "m2m100-small": m2m100_small,
    "nllb-600m": nllb_600m,
    "whisper-small": whisper_small,
    "bert-base": bert_base,
    "gpt2": gpt2,
}

if __name__ == "__main__":
    shape, folder = sys.argv[1:]
    torch.manual_seed(1)
    model = SHAPES[shape]()
    # Initial biases are zeros, unlike those of trained models, and some programs omit zeros.
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder)
    print(f"{shape}: {model.num_parameters():,} parameters")
