"""The two layouts from a caller's view, on any engine.

An engine's `session(path)` has `inputs` (names) and `run(feeds)`, from inputs by name to outputs by name.
"""

import os

import numpy as np


class Cognate:
    """encoder.onnx and decoder.onnx; `input_ids` of the decoder is [batch, beams, tgt], one beam here."""

    def __init__(self, session, cell):
        self.cell = cell
        self.encoder = session(os.path.join(cell.graphs, "encoder.onnx"))
        self.decoder = session(os.path.join(cell.graphs, "decoder.onnx"))

    def encode(self, ids, mask):
        outputs = self.encoder.run({"input_ids": ids, "attention_mask": mask})
        self.fixed = {name: value for name, value in outputs.items() if name.startswith("cross.")}
        self.fixed["attention_mask"] = mask
        empty = np.zeros((len(ids), 1, self.cell.heads, 0, self.cell.head_size), np.float32)
        self.past = {f"past.{layer}.{part}": empty for layer in range(self.cell.layers) for part in ("key", "value")}
        return outputs["encoder_hidden_states"]

    def decode(self, ids):
        """`ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past."""
        outputs = self.decoder.run({"input_ids": ids[:, None, :], **self.fixed, **self.past})
        self.past = {name: outputs[name.replace("past", "present")] for name in self.past}
        return outputs["logits"][:, 0]


class HuggingFace:
    """encoder_model.onnx and decoder_model_merged.onnx, of Cognate or Optimum (which has `use_cache_branch`)."""

    def __init__(self, session, cell):
        self.cell = cell
        self.encoder = session(os.path.join(cell.graphs, "encoder_model.onnx"))
        self.decoder = session(os.path.join(cell.graphs, "decoder_model_merged.onnx"))
        self.branches = "use_cache_branch" in self.decoder.inputs

    def encode(self, ids, mask):
        states = self.encoder.run({"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
        self.fixed = {"encoder_attention_mask": mask, "encoder_hidden_states": states}
        empty = np.zeros((len(ids), self.cell.heads, 0, self.cell.head_size), np.float32)
        names = [name for name in self.decoder.inputs if name.startswith("past_key_values.")]
        self.past = dict.fromkeys(names, empty)
        self.first = True
        return states

    def decode(self, ids):
        """`ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past."""
        feeds = {"input_ids": ids, **self.fixed, **self.past}
        if self.branches:
            feeds["use_cache_branch"] = np.array([not self.first])
        feeds = {name: value for name, value in feeds.items() if name in self.decoder.inputs}
        outputs = self.decoder.run(feeds)
        for name in self.past:
            # The branch with a past does not compute cross keys: those of the first step are kept.
            if self.first or not self.branches or ".encoder." not in name:
                self.past[name] = outputs[name.replace("past_key_values", "present")]
        self.first = False
        return outputs["logits"]


def names(path):
    """The names of a graph's inputs and outputs, for engines that do not tell them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in weights], [value.name for value in graph.output]


def measure(session, cell):
    """Encoder states, teacher-forced logits, and greedy decoding with a past."""
    model = {"cognate": Cognate, "hugging-face": HuggingFace}[cell.layout](session, cell)
    ids, mask = cell["input_ids"], cell["attention_mask"]
    found = {"encoder": cell.encoder_error(model.encode(ids, mask))}
    found["logits"] = cell.logits_error(model.decode(cell["decoder_input_ids"]))
    model.encode(ids, mask)
    try:
        tokens = greedy(model, cell, len(ids))
    except Exception as error:
        raise RuntimeError(f"teacher forcing runs, decoding fails: {error}") from error
    found["greedy"] = tokens.shape == cell["greedy"].shape and bool((tokens == cell["greedy"]).all())
    return found


def greedy(model, cell, batch):
    """Token ids [batch, length], including the start token, as from transformers' `generate(num_beams=1)`."""
    tokens = np.full((batch, 1), cell.start, np.int64)
    running = np.ones(batch, bool)
    for step in range(1, cell.max_new_tokens + 1):
        chosen = model.decode(tokens[:, -1:])[:, -1].argmax(-1)
        if step == cell.max_new_tokens and cell.forced_eos is not None:
            chosen = np.full(batch, cell.forced_eos)
        chosen = np.where(running, chosen, cell.pad).astype(np.int64)
        tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
        running &= chosen != cell.eos
        if not running.any():
            break
    return tokens
