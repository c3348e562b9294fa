"""Optimum's ORTModelForSeq2SeqLM on an unchanged folder: `generate`, greedy and with 4 beams."""

import os
from importlib.metadata import version

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from optimum.onnxruntime import ORTModelForSeq2SeqLM

from cell import answer


def measure(cell):
    model = ORTModelForSeq2SeqLM.from_pretrained(cell.folder)
    tensor = {name: torch.from_numpy(value) for name, value in cell.tensors.items()}
    source = {"input_ids": tensor["input_ids"], "attention_mask": tensor["attention_mask"]}
    limits = {"max_new_tokens": cell.max_new_tokens}
    beams = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 1.0, "early_stopping": False}
    # Decoding comes first: forward alone sets no zero-length past if the cache is off.
    greedy = model.generate(**source, **limits, num_beams=1)
    beam = model.generate(**source, **limits, **beams)
    found = model(**source, decoder_input_ids=tensor["decoder_input_ids"])
    return {
        "encoder": cell.encoder_error(found.encoder_last_hidden_state.numpy()),
        "logits": cell.logits_error(found.logits.numpy()),
        "greedy": torch.equal(greedy, tensor["greedy"]),
        "beam": torch.equal(beam, tensor["beam4"]),
    }


answer(f"optimum {version('optimum')} with optimum-onnx {version('optimum-onnx')}", measure)
