"""Writes tokens/prompts.json: the prompts of windows with hot words, as faster-whisper's `get_prompt` makes them.

A developer's tool: `pip install faster-whisper==1.2.1`, then `python prompts.py`.
"""

import json
import pathlib
import types

import tokenizers
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer

TOKENS = pathlib.Path(__file__).with_name("tokens")
# `max_target_positions` of the golden model.
MODEL = types.SimpleNamespace(max_length=40)
LONG = " ".join(f"w{index}" for index in range(1, 20))

CASES = [
    # Hot words, earlier tokens, whether there are no timestamps.
    (None, [], False),
    (None, [5, 6, 7], False),
    ("w3", [], False),
    ("  w3 w4\n", [], True),
    ("w3 w4", [5, 6, 7], False),
    ("w3 w4", list(range(1, 31)), True),
    (LONG, [], False),
]


def main():
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_file(str(TOKENS / "tokenizer.json")), True, "transcribe", "en")
    rows = []
    for hotwords, previous, without_timestamps in CASES:
        ids = WhisperModel.get_prompt(MODEL, tokenizer, previous, without_timestamps=without_timestamps, hotwords=hotwords)
        rows.append({"hotwords": hotwords, "previous": previous, "without_timestamps": without_timestamps, "ids": ids})
    (TOKENS / "prompts.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
