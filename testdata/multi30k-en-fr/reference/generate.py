"""Translates sentences.txt by transformers and compares with greedy.txt and beams.txt (`--write` replaces them)."""

import argparse
import pathlib

import torch
from transformers import MarianMTModel, PreTrainedTokenizerFast

options = argparse.ArgumentParser()
options.add_argument("--write", action="store_true")
options = options.parse_args()
here = pathlib.Path(__file__).resolve().parent
model = MarianMTModel.from_pretrained(here.parent, torch_dtype=torch.float32).eval()
tokenizer = PreTrainedTokenizerFast.from_pretrained(here.parent)
sentences = (here / "sentences.txt").read_text().splitlines()
for name, beams in ("greedy.txt", 1), ("beams.txt", 5):
    texts = []
    for sentence in sentences:
        inputs = tokenizer(sentence, return_tensors="pt")
        found = model.generate(input_ids=inputs["input_ids"], num_beams=beams, max_new_tokens=80, length_penalty=1.0, early_stopping=False)
        texts.append(tokenizer.decode(found[0], skip_special_tokens=True))
    text = "".join(f"{line}\n" for line in texts)
    if options.write:
        (here / name).write_text(text)
    elif (here / name).read_text() != text:
        raise SystemExit(f"{name}: expected\n{(here / name).read_text()}found\n{text}")
