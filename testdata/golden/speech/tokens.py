"""Writes tokens/: a tokenizer of made-up words for the golden model `whisper`, and its windows of one second."""

import json
import pathlib

SPECIALS = "endoftext startoftranscript en de fr translate transcribe startoflm startofprev nospeech notimestamps".split()


def main():
    specials = [f"<|{name}|>" for name in SPECIALS] + [f"<|{step * 0.02:.2f}|>" for step in range(51)]
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 60 + index, "content": token, **flags} for index, token in enumerate(specials)]
    vocab = {token: index for index, token in enumerate([f"w{index}" for index in range(60)] + specials)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    }
    files = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "WhisperTokenizer"},
        "preprocessor_config.json": {"feature_size": 80, "chunk_length": 1},
    }
    for name, content in files.items():
        (pathlib.Path(__file__).with_name("tokens") / name).write_text(json.dumps(content) + "\n")


main()
