"""Computes gradients and the losses of twelve training steps with PyTorch.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 safetensors
    python generate.py             write the answers again, from the stored weights and tokens
    python generate.py --check     recompute and compare, changing nothing
    python generate.py --new-weights   draw the paper's model and all tokens anew first

What the answers are is written in README.md beside this file.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True  # nothing but data beside the data
HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
sys.path.append(str(GOLDEN))
from answers import StayDouble
TRANSFORMERS = "4.57.6"

SMOOTHING = 0.1
STEPS = 12
# The optimiser of the twelve steps: rate, betas, epsilon, decay, largest norm of the gradient.
OPTIMISERS = {
    "adam": dict(learning_rate=1e-3, betas=[0.9, 0.98], epsilon=1e-9, weight_decay=0.0, clip_norm=None),
    "adamw": dict(learning_rate=2e-3, betas=[0.9, 0.999], epsilon=1e-8, weight_decay=0.05, clip_norm=1.0),
    "lion": dict(learning_rate=2e-4, betas=[0.9, 0.99], epsilon=1e-8, weight_decay=0.05, clip_norm=None),
    "muon": dict(learning_rate=2e-3, betas=[0.9, 0.98], epsilon=1e-8, weight_decay=0.05, clip_norm=1.0),
}
IGNORED = -100

PAPER = {
    "model_type": "cognate",
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 16,
    "activation_function": "relu",
    "scale_embedding": True,
    "decoder_start_token_id": 2,
    "eos_token_id": 0,
    "pad_token_id": 2,
    "position_embedding_type": "sinusoidal",
    "is_encoder_decoder": True,
}
CASES = ["paper", "marian", "bart", "t5-gated"]


def folder_of(case):
    return HERE / "paper" if case == "paper" else GOLDEN / case


def sinusoids(rows, width):
    """The table of Vaswani et al. 2017, section 3.5: sines and cosines alternate."""
    row = torch.arange(rows, dtype=torch.float64)[:, None]
    angle = row / 10000.0 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    # Rounded to f32, as in a checkpoint.
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(rows, width).float()


def paper_model(weights):
    """MarianMT differs from the paper's model in the order of sines and cosines and in the bias of the logits, which is zero here."""
    config = {key: value for key, value in PAPER.items() if key not in ("model_type", "position_embedding_type")}
    model = transformers.MarianMTModel(transformers.MarianConfig(**config, decoder_vocab_size=config["vocab_size"]))
    if weights is not None:
        missing, unexpected = model.load_state_dict({name if name == "final_logits_bias" else f"model.{name}": value for name, value in weights.items()}, strict=False)
        assert not unexpected, unexpected
        assert all("embed" in name or name in ("lm_head.weight", "final_logits_bias") for name in missing), missing
    model.tie_weights()
    table = sinusoids(PAPER["max_position_embeddings"], PAPER["d_model"])
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight = torch.nn.Parameter(table.clone(), requires_grad=False)
    return model


def f32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def round_constants(model):
    """Rounds constants to f32, as in a graph; attention scales queries and keys by the square root each."""
    for module in model.modules():
        for name in ("embed_scale", "eps", "variance_epsilon"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, f32(getattr(module, name)))
        if isinstance(getattr(module, "scaling", None), float):
            module.scaling = f32(math.sqrt(module.scaling)) ** 2


def load(case, dtype):
    folder = folder_of(case)
    if case == "paper":
        model = paper_model(load_file(folder / "model.safetensors"))
    else:
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.config._attn_implementation = "eager"
    # transformers does not train the padding token's row. A model that starts decoding from this token would not learn to
    # start a sentence; nothing else changes, because padding has no loss.
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.to(dtype).eval()


def draw_paper():
    torch.manual_seed(1)
    model = paper_model(None)
    weights = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        value = parameter.data
        if "layer_norm" in name or name.endswith("bias"):
            value = value + 0.2 * torch.randn_like(value)
        else:
            value = torch.randn_like(value) * (2.0 / sum(value.shape)) ** 0.5
        weights[name.removeprefix("model.")] = value.contiguous()
    (HERE / "paper").mkdir(exist_ok=True)
    (HERE / "paper" / "config.json").write_text(json.dumps(PAPER, indent=2) + "\n")
    save_file(weights, HERE / "paper" / "model.safetensors", metadata={"format": "pt"})


def draw_tokens(case):
    """Sources of 7, 5 and 3 tokens and targets of 6, 6 and 2, padded."""
    config = json.loads((folder_of(case) / "config.json").read_text())
    generator = torch.Generator().manual_seed(7)
    pad, start = config["pad_token_id"], config["decoder_start_token_id"]
    token = lambda: int(torch.randint(4, config["vocab_size"] - 2, [], generator=generator))
    sources = [[token() for _ in range(length)] for length in (7, 5, 3)]
    targets = [[token() for _ in range(length)] for length in (6, 6, 2)]
    padded = lambda rows, length, fill: [row + [fill] * (length - len(row)) for row in rows]
    return {
        "input_ids": padded(sources, 7, pad),
        "attention_mask": padded([[1] * len(row) for row in sources], 7, 0),
        "decoder_input_ids": padded([[start] + row[:-1] for row in targets], 6, pad),
        "labels": padded(targets, 6, IGNORED),
    }


def loss_of(model, tokens):
    """The mean over all labels that are not ignored."""
    tokens = {name: torch.tensor(rows) for name, rows in tokens.items()}
    labels = tokens.pop("labels")
    logits = model(**tokens, use_cache=False).logits
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING, ignore_index=IGNORED)
    return criterion(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def gradients(case, tokens):
    """By the names of the checkpoint's tensors, tied ones once; computed in float64, rounded to f32."""
    model = load(case, torch.float64)
    with StayDouble():
        loss = loss_of(model, tokens)
        loss.backward()
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert "embed_positions" in name, name
            continue
        found[name.removeprefix("model.") if case == "paper" else name] = parameter.grad.float().contiguous()
    return loss.item(), found


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for x in filter(lambda x: x.grad is not None, group["params"]):
                m = self.state[x].setdefault("m", torch.zeros_like(x))
                x.mul_(1 - rate * group["weight_decay"]).sub_(rate * (beta1 * m + (1 - beta1) * x.grad).sign())
                m.mul_(beta2).add_((1 - beta2) * x.grad)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon(nesterov=True, adjust_lr_fn="match_rms_adamw"), whose iterations are in bfloat16; here in the parameters' type."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            rounded = group["rounded"]
            a, b, c, epsilon, stays, enters = map(rounded, (3.4445, -4.775, 2.0315, 1e-7, 0.95, 0.05))
            for x in filter(lambda x: x.grad is not None, group["params"]):
                m = self.state[x].setdefault("m", torch.zeros_like(x))
                m.mul_(stays).add_(enters * x.grad)
                o = stays * m + enters * x.grad
                o = o.T if x.shape[0] > x.shape[1] else o
                o = o / (o.norm() + epsilon)
                for _ in range(5):
                    gram = o @ o.T
                    o = a * o + (b * gram + c * gram @ gram) @ o
                o = o.T if x.shape[0] > x.shape[1] else o
                x.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * rounded(0.2 * math.sqrt(max(x.shape))) * o)


def optimisers(name, settings, parameters):
    """By parameters with their names."""
    shared = dict(lr=settings["learning_rate"], weight_decay=settings["weight_decay"])
    adam = lambda chosen: torch.optim.AdamW(chosen, betas=settings["betas"], eps=settings["epsilon"], **shared)
    every = [parameter for _, parameter in parameters]
    if name == "lion":
        return [Lion(every, dict(betas=settings["betas"], **shared))]
    if name == "muon":
        is_matrix = lambda path, x: x.ndim == 2 and ("layers." in path or "block." in path) and "relative" not in path
        matrices = [x for path, x in parameters if is_matrix(path, x)]
        return [Muon(matrices, dict(rounded=settings.get("rounded", float), **shared)), adam([x for path, x in parameters if not is_matrix(path, x)])]
    return [adam(every)]


def train(optimiser, case, tokens, dtype, settings, rounded_constants=False):
    model = load(case, dtype)
    if rounded_constants:
        round_constants(model)
        settings = {name: f32(value) if isinstance(value, float) else value for name, value in settings.items()}
        settings["betas"] = [f32(beta) for beta in settings["betas"]]
        settings["rounded"] = f32
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Sinusoids are never learned; transformers may load them as parameters.
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and case in ("paper", "marian"):
            parameter.requires_grad_(False)
    updated = optimisers(optimiser, settings, [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad])
    losses, norms = [], []
    for _ in range(STEPS):
        model.zero_grad()
        loss = loss_of(model, tokens)
        loss.backward()
        learned = [parameter for parameter in parameters if parameter.grad is not None]
        norms.append(math.sqrt(sum(float((parameter.grad.double() ** 2).sum()) for parameter in learned)))
        if settings["clip_norm"] is not None:
            torch.nn.utils.clip_grad_norm_(learned, settings["clip_norm"])
        for part in updated:
            part.step()
        losses.append(loss.item())
    losses.append(loss_of(model, tokens).item())
    return losses, norms


def answers(case, tokens):
    loss, found = gradients(case, tokens)
    steps = {}
    for name, settings in OPTIMISERS.items():
        if (case, name) == ("t5-gated", "muon"):
            continue  # it magnifies the rounding of GELU's constants, which round_constants cannot reach
        with StayDouble():
            double, norms = train(name, case, tokens, torch.float64, settings)
            rounded_double, rounded_norms = train(name, case, tokens, torch.float64, settings, rounded_constants=True)
        single, _ = train(name, case, tokens, torch.float32, settings)
        steps[name] = settings | {"losses_float64": double, "gradient_norms": norms}
        # How far float64 itself goes from these when nothing but its constants are f32: how much these steps magnify rounding.
        steps[name] |= {"losses_rounded_constants": rounded_double, "gradient_norms_rounded_constants": rounded_norms}
        if case == "paper":
            # The others' large random weights magnify rounding: two f32 runs part within twelve steps.
            steps[name]["losses_float32"] = single
    return {"tokens": tokens, "loss": loss, "label_smoothing": SMOOTHING, "steps": steps}, found


def written(tree, indent=""):
    """JSON with lists of numbers on one line."""
    if isinstance(tree, dict):
        inner = indent + "  "
        lines = [f"{inner}{json.dumps(name)}: {written(value, inner)}" for name, value in tree.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return json.dumps(tree)


def differences(expected, found):
    """The largest difference between two trees of numbers, relative where they are above 1."""
    if isinstance(expected, dict):
        assert expected.keys() == found.keys(), (expected.keys(), found.keys())
        return max((differences(expected[key], found[key]) for key in expected), default=0.0)
    if isinstance(expected, list):
        assert len(expected) == len(found)
        return max((differences(*pair) for pair in zip(expected, found)), default=0.0)
    if expected is None or isinstance(expected, str):
        assert expected == found, (expected, found)
        return 0.0
    return abs(expected - found) / max(1.0, abs(expected))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--new-weights", action="store_true")
    options = parser.parse_args()
    assert transformers.__version__ == TRANSFORMERS, transformers.__version__
    torch.use_deterministic_algorithms(True)
    if options.new_weights:
        draw_paper()
    for case in CASES:
        folder = HERE / case
        folder.mkdir(exist_ok=True)
        known = folder / "answers.json"
        tokens = draw_tokens(case) if options.new_weights or not known.exists() else json.loads(known.read_text())["tokens"]
        made, found = answers(case, tokens)
        stored = folder / "gradients.safetensors"
        if options.check:
            print(case, "answers", differences(json.loads(known.read_text()), made))
            before = load_file(stored)
            assert before.keys() == found.keys(), before.keys() ^ found.keys()
            print(case, "gradients", max(float((before[name] - value).norm() / max(1e-12, value.norm())) for name, value in found.items() if float(value.norm()) > 1e-9))
            continue
        known.write_text(written(made) + "\n")
        save_file(found, stored, metadata={"format": "pt"})
        norm = lambda value: float(value.double().norm())
        total = math.sqrt(sum(norm(value) ** 2 for value in found.values()))
        small = [f"{name} {norm(value):.1e}" for name, value in found.items() if norm(value) < 1e-9 * total]
        print(case, "loss", made["loss"], "norm", total, "zero:", small)
        for name, steps in made["steps"].items():
            print(case, name, steps["losses_float64"][0], steps["losses_float64"][-1], max(abs(a - b) for a, b in zip(steps["losses_float64"], steps.get("losses_float32", []))) if case == "paper" else "")


if __name__ == "__main__":
    main()
