"""The layouts from a caller's view, on any engine.

An engine's `session(path)` has `inputs` (names) and `run(feeds)`, from inputs by name to outputs by name.
"""

import os
import re

import numpy as np

from cell import difference, same


class Cognate:
    """encoder.onnx and decoder.onnx; `input_ids` of the decoder is [batch, beams, tgt], one beam here."""

    def __init__(self, session, cell):
        self.cell = cell
        self.encoder = session(os.path.join(cell.graphs, "encoder.onnx"))
        self.decoder = session(os.path.join(cell.graphs, "decoder.onnx"))

    def encode(self):
        outputs = self.encoder.run(self.cell.inputs(self.encoder.inputs))
        self.fixed = {name: value for name, value in outputs.items() if name.startswith("cross.")}
        self.fixed.update(self.cell.inputs(set(self.decoder.inputs) & {"attention_mask"}))
        states = outputs["encoder_hidden_states"]
        self.past = empty(self.decoder.inputs, (len(states), 1, self.cell.heads, 0, self.cell.head_size))
        return states

    def decode(self, ids):
        """`ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past."""
        outputs = self.decoder.run({"input_ids": ids[:, None, :], **self.fixed, **self.past})
        self.past = {name: outputs[present(name)] for name in self.past}
        return outputs["logits"][:, 0]


class HuggingFace:
    """encoder_model.onnx and decoder_model_merged.onnx, of Cognate or Optimum (which has `use_cache_branch`)."""

    def __init__(self, session, cell):
        self.cell = cell
        self.encoder = session(os.path.join(cell.graphs, "encoder_model.onnx"))
        self.decoder = session(os.path.join(cell.graphs, "decoder_model_merged.onnx"))
        self.branches = "use_cache_branch" in self.decoder.inputs

    def encode(self):
        states = self.encoder.run(self.cell.inputs(self.encoder.inputs))["last_hidden_state"]
        self.fixed = {"encoder_attention_mask": self.cell.tensors.get("attention_mask"), "encoder_hidden_states": states}
        self.past = empty(self.decoder.inputs, (len(states), self.cell.heads, 0, self.cell.head_size))
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
                self.past[name] = outputs[present(name)]
        self.first = False
        return outputs["logits"]


class Alone:
    """model.onnx of a decoder alone; `attention_mask` [batch, past + tgt] is 0 at the padding on the left of prompts."""

    def __init__(self, session, cell):
        self.decoder = session(os.path.join(cell.graphs, "model.onnx"))
        self.mask = cell["attention_mask"]
        self.past = empty(self.decoder.inputs, (len(self.mask), cell.heads, 0, cell.head_size))

    def decode(self, ids):
        """`ids` [batch, tgt], first the prompts -> logits [batch, tgt, vocab]; appends `tgt` positions to the past."""
        # transformers' positions: 1 at padding.
        positions = np.where(self.mask == 1, self.mask.cumsum(-1) - 1, 1)[:, -ids.shape[1] :]
        feeds = {"input_ids": ids, "attention_mask": self.mask, "position_ids": positions, **self.past}
        outputs = self.decoder.run({name: value for name, value in feeds.items() if name in self.decoder.inputs})
        self.past = {name: outputs[present(name)] for name in self.past}
        self.mask = np.concatenate([self.mask, np.ones_like(self.mask[:, :1])], axis=1)
        return outputs["logits"]


def empty(inputs, shape):
    return {name: np.zeros(shape, np.float32) for name in inputs if name.startswith("past")}


def present(name):
    return re.sub("^past(_key_values)?", "present", name)


def names(path):
    """The names of a graph's inputs and outputs, for engines that do not tell them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in weights], [value.name for value in graph.output]


def measure(session, cell):
    """Compares numbers, and tokens if the model generates some."""
    if cell.layout == "generate":
        return generate(session, cell)
    return {"encoder-decoder": encoder_decoder, "encoder": encoder, "decoder": decoder}[cell.kind](session, cell)


def encoder_decoder(session, cell):
    """Encoder states, teacher-forced logits, and greedy decoding with a past."""
    model = {"cognate": Cognate, "hugging-face": HuggingFace}[cell.layout](session, cell)
    states = model.encode()
    numbers = max(cell.error("encoder_last_hidden_state", states), cell.logits_error(model.decode(cell["decoder_input_ids"])))
    model.encode()
    try:
        tokens = greedy(model, cell, np.full((len(states), 1), cell.start, np.int64))
    except Exception as error:
        raise RuntimeError(f"teacher forcing runs, decoding fails: {error}") from error
    return {"numbers": numbers, "greedy": same(tokens, cell.expected_greedy())}


def encoder(session, cell):
    """All outputs of a single graph."""
    graph = session(os.path.join(cell.graphs, "model.onnx"))
    return {"numbers": cell.outputs_error(graph.run(cell.inputs(graph.inputs)))}


def decoder(session, cell):
    """The logits of prompts, and their greedy continuation."""
    prompts = cell["input_ids"]
    numbers = cell.error("logits", Alone(session, cell).decode(prompts))
    try:
        tokens = greedy(Alone(session, cell), cell, prompts)
    except Exception as error:
        raise RuntimeError(f"prompts run, decoding fails: {error}") from error
    return {"numbers": numbers, "greedy": same(tokens[:, prompts.shape[1] :], cell["greedy"])}


def generate(session, cell):
    """A graph that decodes: tokens of greedy decoding, tokens and scores of 4 beams."""

    def run(search):
        graph = session(os.path.join(cell.graphs, search, "generate.onnx"))
        outputs = graph.run(cell.inputs(graph.inputs))
        return outputs["sequences"].reshape(-1, outputs["sequences"].shape[-1]), outputs["scores"].ravel()

    greedy, _ = run("greedy")
    beams, scores = run("beams")
    return {
        "numbers": difference(scores, cell["beam4_scores"]),
        "greedy": same(greedy, cell["greedy"]),
        # The golden beams of T5Gemma are padded with eos.
        "beam": ended(beams, cell.eos) == ended(cell["beam4"], cell.eos),
    }


def ended(tokens, eos):
    """Rows up to their eos, after the start token, which may be eos."""
    rows = tokens.tolist()
    return [row[: row.index(eos, 1) + 1] if eos in row[1:] else row for row in rows]


def greedy(model, cell, tokens):
    """Continues `tokens` [batch, tgt] as transformers' `generate(num_beams=1)`; returns them, too."""
    running = np.ones(len(tokens), bool)
    ids = tokens
    for step in range(1, cell.max_new_tokens + 1):
        chosen = model.decode(ids)[:, -1].argmax(-1)
        if step == cell.max_new_tokens and cell.forced_eos is not None:
            chosen = np.full(len(tokens), cell.forced_eos)
        chosen = np.where(running, chosen, cell.pad).astype(np.int64)
        ids = chosen[:, None]
        tokens = np.concatenate([tokens, ids], axis=1)
        running &= chosen != cell.eos
        if not running.any():
            break
    return tokens
