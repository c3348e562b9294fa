"""A cell of the matrix: the question, and the comparison and report of the answer.

The question is a JSON file, whose path is the only argument:

    layout    "cognate", or "hugging-face" for that layout and for Optimum's folders
    graphs    the folder of the graphs; folder: the one with config.json, for from_pretrained
    golden    golden.safetensors with PyTorch's outputs
    layers, heads, head_size, start, eos, pad, forced_eos (or null), max_new_tokens

The answer is a JSON object on the last line of standard output: `version`, and either `error` or any of `encoder` and
`logits` (maximum absolute difference from PyTorch), `greedy` and `beam` (equal tokens), `texts` (equal texts of pipelines).
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
        """Compares unpadded positions only; the values at others are never read."""
        mask = self["attention_mask"].astype(bool)
        return difference(states[mask], self["encoder_last_hidden_state"][mask])

    def logits_error(self, logits):
        return difference(logits, self["logits"])


def difference(found, expected):
    if found.shape != expected.shape:
        raise ValueError(f"expected shape {list(expected.shape)}, found {list(found.shape)}")
    found = np.asarray(found, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("expected finite values")
    return float(np.abs(found - expected).max())


def answer(version, measure):
    """Runs `measure(cell)` and prints its dictionary or its error."""
    try:
        found = measure(Cell(sys.argv[1]))
    except Exception as error:  # any error of the runtime is the answer
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"}
    print()
    print(json.dumps({"version": version, **found}))
