"""Writes the settings with which transformers decodes, for several pairs of config.json and generation_config.json.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6
    python generate.py             write cases.json
    python generate.py --check     recompute and compare, changing nothing
"""

import argparse
import json
import pathlib
import tempfile
import warnings

import transformers

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = "4.57.6"

SIZES = {"vocab_size": 20, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1}
SIZES |= {"decoder_attention_heads": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16}
CONFIGS = {
    "bart": SIZES | {"model_type": "bart", "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
    "marian": SIZES | {"model_type": "marian", "pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2},
    "t5": {"model_type": "t5", "vocab_size": 20, "d_model": 8, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1}
    | {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
TOKENS = {"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2}
OWN = {"_from_model_config": True}
# The model, additional fields of config.json, and generation_config.json.
CASES = [
    ("bart", {}, None),
    ("bart", {"num_beams": 4, "length_penalty": 2.0, "forced_bos_token_id": 0}, None),
    ("bart", {"num_beams": None, "no_repeat_ngram_size": 3}, None),
    ("bart", {"forced_eos_token_id": None}, None),
    ("bart", {"forced_bos_token_id": 0}, TOKENS | {"forced_bos_token_id": None}),
    ("bart", {"forced_bos_token_id": 0}, TOKENS),
    ("bart", {"forced_eos_token_id": 2}, TOKENS | {"forced_eos_token_id": None}),
    ("bart", {}, TOKENS),
    ("bart", {"num_beams": 4, "early_stopping": True, "min_length": 3}, TOKENS | {"num_beams": 2}),
    ("bart", {"no_repeat_ngram_size": 3}, TOKENS | {"no_repeat_ngram_size": None}),
    ("bart", {"bad_words_ids": [[5], [6, 7]]}, TOKENS | {"bad_words_ids": None}),
    ("bart", {"suppress_tokens": [5], "begin_suppress_tokens": [6]}, TOKENS | {"suppress_tokens": None}),
    ("bart", {"min_length": 3}, TOKENS | {"min_length": None, "min_new_tokens": 2}),
    ("bart", {"repetition_penalty": 1.5}, TOKENS | {"repetition_penalty": None}),
    ("bart", {}, TOKENS | {"eos_token_id": None}),
    ("bart", {}, {"pad_token_id": 1, "decoder_start_token_id": 2}),
    ("bart", {}, TOKENS | {"eos_token_id": [2, 3]}),
    ("bart", {}, TOKENS | {"pad_token_id": None}),
    ("bart", {}, TOKENS | {"decoder_start_token_id": None, "bos_token_id": 0}),
    ("bart", {}, TOKENS | {"decoder_start_token_id": None}),
    ("bart", {}, {}),
    ("bart", {}, TOKENS | OWN | {"num_beams": 3}),
    ("bart", {"num_beams": 4}, TOKENS | OWN | {"num_beams": 3}),
    ("bart", {"num_beams": 1, "forced_eos_token_id": 2}, TOKENS | OWN | {"num_beams": 3}),
    ("bart", {"forced_eos_token_id": 3}, TOKENS | OWN | {"num_beams": 3}),
    ("bart", {"num_beams": 4}, TOKENS | {"_from_model_config": False, "num_beams": 3}),
    ("bart", {"num_beams": 4, "forced_bos_token_id": 0}, TOKENS | OWN | {"forced_bos_token_id": None}),
    ("marian", {"num_beams": 6, "bad_words_ids": [[2]]}, None),
    ("marian", {"num_beams": 6, "forced_eos_token_id": 0}, {"eos_token_id": 0, "pad_token_id": 2, "decoder_start_token_id": 2, "num_beams": None}),
    ("marian", {"forced_eos_token_id": 0}, OWN | {"eos_token_id": 0, "pad_token_id": 2, "decoder_start_token_id": 2, "max_length": 9}),
    ("t5", {"length_penalty": 0.5}, {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0, "num_beams": 2}),
    ("t5", {"do_sample": True, "temperature": 0.5}, {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}),
    ("t5", {"do_sample": True, "temperature": 0.5, "top_k": 3}, None),
]
FIELDS = ["num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "repetition_penalty"]
FIELDS += ["min_length", "min_new_tokens", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens"]
FIELDS += ["begin_suppress_tokens", "do_sample", "temperature", "top_k", "max_length"]


def effective(model, config, generation):
    """The settings of `generate`, or its error."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = pathlib.Path(folder)
        made = transformers.AutoModelForSeq2SeqLM.from_config(transformers.AutoConfig.for_model(**CONFIGS[model]))
        made.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(CONFIGS[model] | config))
        (folder / "generation_config.json").unlink()
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps(generation))
        loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        settings, _ = loaded._prepare_generation_config(None)
        try:
            loaded._prepare_special_tokens(settings, True)
        except ValueError as error:
            return {"error": str(error)}
        tokens = {"eos": settings._eos_token_tensor, "pad": settings._pad_token_tensor, "start": settings._decoder_start_token_tensor}
        found = {f"{name}_token": None if tensor is None else tensor.tolist() for name, tensor in tokens.items()}
        return found | {field: getattr(settings, field) for field in FIELDS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    assert transformers.__version__ == TRANSFORMERS, transformers.__version__
    cases = []
    for model, config, generation in CASES:
        cases.append({"config": CONFIGS[model] | config, "generation": generation, "expected": effective(model, config, generation)})
    text = "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"
    if options.check:
        print("equal" if (HERE / "cases.json").read_text() == text else "differs")
    else:
        (HERE / "cases.json").write_text(text)


if __name__ == "__main__":
    main()
