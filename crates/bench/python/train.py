"""Training by PyTorch, for `cargo xtask bench train`.

    python train.py FOLDER THREADS pytorch|pytorch-bf16|pytorch-compiled cpu|cuda[:N]

FOLDER contains `config.json` and `batches.jsonl` of `cognate-bench measure train --write`. A request is {"updates": 8}; the first
answer is the engine. Updates continue after those of the last request, and start again after the last batch.
"""

import json
import os
import sys
import time

from harness import answer, requests

folder, threads, way, device = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

import torch
from torch.nn.functional import cross_entropy
from transformers import MarianConfig, MarianMTModel


def memory(field):
    """A size of this process in bytes."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":")), 0)


torch.set_num_threads(threads)
# cuDNN's attention makes a plan for each new shape of a batch: on an H200 8,800 instead of 126,000 tokens/s in bf16.
torch.backends.cuda.enable_cudnn_sdp(False)
torch.manual_seed(1)
with open(os.path.join(folder, "batches.jsonl")) as lines:
    batches = [{name: torch.tensor(rows, device=device) for name, rows in json.loads(line).items()} for line in lines]
tokens = [int((batch["labels"] >= 0).sum()) for batch in batches]
base = memory("VmRSS")

with open(os.path.join(folder, "config.json")) as file:
    config = MarianConfig(**json.load(file) | {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0})
model = MarianMTModel(config).train().to(device)
learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimiser = torch.optim.Adam(learned, lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)
forward = torch.compile(model, dynamic=True) if way == "pytorch-compiled" else model


def update(batch):
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=way != "pytorch"):
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        logits = forward(**inputs, use_cache=False).logits
    loss = cross_entropy(logits.float().flatten(0, 1), batch["labels"].flatten(), ignore_index=-100, label_smoothing=0.1)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return loss.item()


engine = f"PyTorch {torch.__version__.split('+')[0]}"
answer(engine=engine, parameters=sum(parameter.numel() for parameter in learned), base_bytes=base)
place = 0
for request in requests():
    count, labels = request["updates"], 0
    started = time.perf_counter()
    for _ in range(count):
        update(batches[place])
        labels += tokens[place]
        place = (place + 1) % len(batches)
    answer(seconds=time.perf_counter() - started, seconds_in_graph=None, tokens=labels, peak_bytes=memory("VmHWM"))
