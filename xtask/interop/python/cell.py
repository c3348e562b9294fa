"""One cell of the matrix: what the program is asked, and how its answer is compared and reported.

The question is a JSON file, its path the only argument:

    layout    "cognate", or "hugging-face" for that layout and for Optimum's own folders
    graphs    the folder of the graphs; folder: the one with config.json, as from_pretrained takes it
    golden    golden.safetensors with PyTorch's answers
    layers, heads, head_size, start, eos, pad, forced_eos (or null), max_new_tokens

The answer is the last line of the standard output, a JSON object: `version`, then either `error`, or any of `encoder`
and `logits` (largest absolute difference from PyTorch), `greedy` and `beam` (tokens equal), `texts` (a pipeline's texts equal).
"""

import json
import sys
import traceback

import numpy as np
from safetensors.numpy import load_file


class Cell:
    """The question, and PyTorch's tensors by name: `input_ids` [batch, src], `decoder_input_ids` [batch, tgt] and so on."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.__dict__.update(json.load(file))
        self.tensors = load_file(self.golden)

    def __getitem__(self, name):
        return self.tensors[name]

    def encoder_error(self, states):
        """Padded positions carry values too, which no one reads: only the unpadded ones are compared."""
        mask = self["attention_mask"].astype(bool)
        return difference(states[mask], self["encoder_last_hidden_state"][mask])

    def logits_error(self, logits):
        return difference(logits, self["logits"])


def difference(found, expected):
    if found.shape != expected.shape:
        raise ValueError(f"shape {list(found.shape)}, expected {list(expected.shape)}")
    found = np.asarray(found, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("not finite")
    return float(np.abs(found - expected).max())


def answer(version, measure):
    """Runs `measure(cell)` and prints its dictionary, or the error it ended with."""
    try:
        found = measure(Cell(sys.argv[1]))
    except Exception as error:  # whatever the other side throws is the answer
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"}
    print()
    print(json.dumps({"version": version, **found}))
