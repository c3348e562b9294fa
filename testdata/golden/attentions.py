"""Writes marian/attentions.safetensors: PyTorch's float64 weights of self-attention, along the answers' own inputs.

A developer's tool, for torch 2.15.0 and transformers 4.57.6; cross attentions are among the answers that generate.py writes.

    python attentions.py
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True  # nothing but data beside the data
from answers import StayDouble, load_model

FOLDER = pathlib.Path(__file__).resolve().parent / "marian"


def main():
    given = load_file(FOLDER / "golden.safetensors")
    inputs = {name: given[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    with torch.no_grad(), StayDouble():
        found = load_model(FOLDER).double()(**inputs, output_attentions=True)
    tensors = {name: torch.stack(getattr(found, name)) for name in ("encoder_attentions", "decoder_attentions")}
    known = load_file(FOLDER / "golden.float64.safetensors")["cross_attentions"]
    assert torch.stack(found.cross_attentions).sub(known).abs().max() < 1e-12
    save_file(tensors, FOLDER / "attentions.safetensors")


if __name__ == "__main__":
    main()
