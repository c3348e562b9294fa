"""Trains the model of this folder with PyTorch: the same batches, schedule, moving average and choice of checkpoint.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 sacrebleu==2.6.0
    python train.py --batches BATCHES --data FOLDER --out OUT

BATCHES is what `cognate bench train` writes for `training/multi30k.toml` (its README has the command): `config.json` and
`batches.jsonl`, a line for each update. FOLDER holds the raw text of Multi30k task 1. OUT receives the best checkpoint, `log.jsonl`
and `scores.json`.

Settings are read from `training/multi30k.toml`, so that both trainings follow one file.
"""

import argparse
import json
import pathlib
import sys
import time
import tomllib

import sacrebleu
import torch
import transformers
from torch.nn.functional import cross_entropy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "reference"))
from generate import lines_of, score, translate  # noqa: E402

TESTS = ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"]
LABEL_SMOOTHING = 0.1
IGNORED = -100


def initial_model(config, dropout):
    """Cognate's initial distributions: matrices normal with deviation 0.02, embeddings with `d_model^-1/2`, biases 0."""
    rates = {"dropout": dropout["embeddings"], "attention_dropout": dropout["attention"], "activation_dropout": dropout["activation"]}
    # transformers has one rate for embeddings and sublayers.
    assert dropout["embeddings"] == dropout["sublayers"]
    model = transformers.MarianMTModel(transformers.MarianConfig(**config | rates))
    for name, parameter in model.named_parameters():
        if "layer_norm" in name or "embed_positions" in name:
            continue
        if parameter.dim() == 1:
            torch.nn.init.zeros_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5 if "shared" in name else 0.02)
    # transformers does not train the padding token's row, from which decoding starts.
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model


def rate(update, settings, updates):
    """A linear rise over the warm-up, then a linear fall to 0 at the last update."""
    peak, warmup = settings["learning_rate"], settings["warmup_updates"]
    return peak * (update / warmup if update <= warmup else (updates - update) / (updates - warmup))


def loss_of(model, batch):
    labels = batch.pop("labels")
    logits = model(**batch, use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=LABEL_SMOOTHING)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=pathlib.Path, required=True, help="folder with config.json and batches.jsonl")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the raw text")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the best checkpoint and the log")
    options = parser.parse_args()

    settings = tomllib.loads((HERE.parent / "training" / "multi30k.toml").read_text())
    schedule, optimiser = settings["schedule"], settings["optimiser"]
    updates, stays = schedule["max_updates"], optimiser["ema_decay"]
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    config = json.loads((options.batches / "config.json").read_text())
    model = initial_model(config, settings["dropout"]).train()
    averaged = initial_model(config, settings["dropout"]).eval()
    averaged.load_state_dict(model.state_dict())
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    averages = [parameter for parameter in averaged.parameters() if parameter.requires_grad]
    print(f"{sum(parameter.numel() for parameter in learned)} parameters", flush=True)
    adam = torch.optim.Adam(learned, betas=(0.9, 0.98), eps=1e-9, fused=True)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(HERE.parent)
    held_out = [lines_of(options.data / f"val.{language}") for language in ("en", "de")]

    options.out.mkdir(parents=True, exist_ok=True)
    log = open(options.out / "log.jsonl", "w")
    best, started, losses, labels = -1.0, time.process_time(), 0.0, 0
    with open(options.batches / "batches.jsonl") as lines:
        for update, line in zip(range(1, updates + 1), lines, strict=False):
            batch = {name: torch.tensor(rows) for name, rows in json.loads(line).items()}
            count = int((batch["labels"] >= 0).sum())
            for group in adam.param_groups:
                group["lr"] = rate(update, optimiser, updates)
            loss = loss_of(model, batch)
            loss.backward()
            adam.step()
            adam.zero_grad(set_to_none=True)
            with torch.no_grad():
                torch._foreach_lerp_(averages, learned, 1 - stays)
            losses, labels = losses + loss.item() * count, labels + count
            if update % 50 == 0:
                entry = {"update": update, "loss": losses / labels, "learning_rate": adam.param_groups[0]["lr"]}
                print(json.dumps(entry | {"processor_seconds": round(time.process_time() - started, 1)}), file=log, flush=True)
                losses, labels = 0.0, 0
            if update % schedule["validate_every"] == 0:
                texts = translate(averaged, tokenizer, held_out[0], num_beams=1)[0]
                bleu = sacrebleu.corpus_bleu(texts, [held_out[1]]).score
                seconds = round(time.process_time() - started, 1)
                print(json.dumps({"update": update, "valid_bleu": bleu, "processor_seconds": seconds}), file=log, flush=True)
                print(update, f"{bleu:.2f}", f"{seconds / 60:.1f} min", flush=True)
                if bleu > best:
                    best = bleu
                    averaged.save_pretrained(options.out)
                    (options.out / "best.json").write_text(json.dumps({"update": update, "valid_bleu": bleu}))

    model = transformers.MarianMTModel.from_pretrained(options.out, attn_implementation="eager").eval()
    scores = {"best": json.loads((options.out / "best.json").read_text())}
    for test in ["val", *TESTS]:
        sources, references = (lines_of(options.data / f"{test}.{language}") for language in ("en", "de"))
        found = {name: translate(model, tokenizer, sources, num_beams=beams)[0] for name, beams in (("greedy", 1), ("beam5", 5))}
        scores[test] = {name: score(texts, references) for name, texts in found.items()}
        print(test, json.dumps(scores[test]), flush=True)
    (options.out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    main()
