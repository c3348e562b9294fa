"""A cell of the matrix: the question, and the comparison and report of the answer.

The question is a JSON file, whose path is the only argument:

    layout      "cognate", "generate", or "hugging-face" for that layout and for Optimum's folders
    kind        "encoder-decoder", "encoder" or "decoder"
    auto_class  what follows `ORTModelFor` in Optimum and `AutoModelFor` in transformers.js
    graphs      the folder of the graphs; folder: the one with config.json, for from_pretrained
    golden      a file of safetensors: inputs and PyTorch's outputs by name
    heads, head_size of the past; start, eos, pad, forced_eos (each may be null), max_new_tokens

The answer is a JSON object on the last line of standard output: `version`, and either `error` or `numbers` (maximum
absolute difference from PyTorch) and any of `greedy` and `beam` (equal tokens), `texts` (equal texts of pipelines).
"""

import json
import sys
import traceback

import numpy as np
from safetensors.numpy import load_file


class Cell:
    """The question, and the golden tensors by name: `input_ids` [batch, src], `logits` [batch, tgt, vocab] and so on."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.__dict__.update(json.load(file))
        self.tensors = load_file(self.golden)

    def __getitem__(self, name):
        return self.tensors[name]

    def inputs(self, names):
        """Those of the golden tensors that are inputs of a graph."""
        return {name: self[name] for name in names if name in self.tensors}

    def error(self, name, found):
        """Compares values of unpadded positions only; those at others are never read."""
        expected, mask = self[name], self.tensors.get("attention_mask")
        if mask is not None and expected.ndim == 3 and found.shape == expected.shape:
            found, expected = found[mask.astype(bool)], expected[mask.astype(bool)]
        return difference(found, expected)

    def outputs_error(self, outputs):
        """Compares all outputs of which PyTorch's are known."""
        return max(self.error(name, outputs[name]) for name in outputs if name in self.tensors)

    def logits_error(self, logits):
        """Compares teacher-forced logits, which have no padded positions."""
        return difference(logits, self["logits"])

    def expected_greedy(self):
        """Of Whisper without the tokens that its generation_config.json suppresses."""
        return self.tensors.get("greedy_raw", self["greedy"])


def difference(found, expected):
    if found.shape != expected.shape:
        raise ValueError(f"expected shape {list(expected.shape)}, found {list(found.shape)}")
    found = np.asarray(found, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("expected finite values")
    return float(np.abs(found - expected).max())


def same(found, expected):
    return found.shape == expected.shape and bool((found == expected).all())


def answer(version, measure):
    """Runs `measure(cell)` and prints its dictionary or its error."""
    try:
        found = measure(Cell(sys.argv[1]))
    except Exception as error:  # any error of the runtime is the answer
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"}
    print()
    print(json.dumps({"version": version, **found}))
