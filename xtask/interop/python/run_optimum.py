"""Optimum's ORTModelFor... on an unchanged folder: its outputs, and `generate`, greedy and with beams."""

import os
from importlib.metadata import version

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from optimum import onnxruntime
from transformers import GenerationMixin

from cell import answer

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "pixel_values", "input_features")


def measure(cell):
    model = getattr(onnxruntime, f"ORTModelFor{cell.auto_class}").from_pretrained(cell.folder)
    tensor = {name: torch.from_numpy(value) for name, value in cell.tensors.items()}
    source = {name: tensor[name] for name in INPUTS if name in tensor}
    if cell.kind == "encoder":
        return {"numbers": outputs_error(cell, model(**source))}
    # Decoding comes first: forward alone sets no zero-length past if the cache is off.
    expected = tensor["beam4" if "beam4" in tensor else "beams"]
    n_beams = len(expected) // len(tensor["greedy"])
    beams = {"num_beams": n_beams, "num_return_sequences": n_beams, "length_penalty": 1.0, "early_stopping": False}
    prompt = tensor["input_ids"].shape[1] if cell.kind == "decoder" else 0

    def generate(**options):
        # Whisper's own method decodes long recordings.
        found = GenerationMixin.generate(model, **source, **options, max_new_tokens=cell.max_new_tokens, pad_token_id=cell.pad)
        return found[:, prompt:]

    greedy, beam = generate(num_beams=1), generate(**beams)
    if cell.kind == "decoder":
        mask = source["attention_mask"]
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        numbers = outputs_error(cell, model(**source, position_ids=positions))
    else:
        found = model(**source, decoder_input_ids=tensor["decoder_input_ids"])
        states = cell.error("encoder_last_hidden_state", found.encoder_last_hidden_state.numpy())
        numbers = max(states, cell.logits_error(found.logits.numpy()))
    return {"numbers": numbers, "greedy": torch.equal(greedy, tensor["greedy"]), "beam": torch.equal(beam, expected)}


def outputs_error(cell, outputs):
    return cell.outputs_error({name: value.numpy() for name, value in outputs.items() if isinstance(value, torch.Tensor)})


answer(f"optimum {version('optimum')} with optimum-onnx {version('optimum-onnx')}", measure)
