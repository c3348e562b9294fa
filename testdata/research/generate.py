"""Computes the outputs of small models of the family `cognate` from their equations in PyTorch.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 numpy safetensors
    python generate.py             write the answers again, from the stored weights and tokens
    python generate.py --check     recompute and compare, changing nothing
    python generate.py --new-weights   draw weights and tokens anew first

What the answers are is written in README.md beside this file.
"""

import argparse
import json
import math
import pathlib

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
SMOOTHING = 0.1
NEW_TOKENS = 10
# Least margin of a choice between tokens, larger than rounding.
LEAST_MARGIN = 1e-3

COMMON = {
    "model_type": "cognate",
    "vocab_size": 30,
    "d_model": 12,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 14,
    "decoder_ffn_dim": 14,
    "max_position_embeddings": 24,
    "activation_function": "relu",
    "scale_embedding": True,
    "decoder_start_token_id": 2,
    "eos_token_id": 0,
    "pad_token_id": 2,
    "position_embedding_type": "sinusoidal",
    "is_encoder_decoder": True,
}
CASES = {
    "additive": {"attention_score": "additive"},
    "alibi": {"position_embedding_type": "alibi", "encoder_attention_heads": 6, "decoder_attention_heads": 6},
    "dot": {"attention_score": "dot"},
    "learned": {"position_embedding_type": "learned", "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 26},
    "pre-rms-gated": {
        "norm": "rms",
        "norm_placement": "pre",
        "gated": True,
        "biases": False,
        "activation_function": "swish",
        "layer_norm_epsilon": 1e-6,
        "scale_embedding": False,
        "tie_word_embeddings": False,
    },
    "relative": {
        "position_embedding_type": "relative",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 9,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 10,
        "encoder_layers": 2,
        "max_position_embeddings": None,
    },
    "rotary": {"position_embedding_type": "rotary", "norm_placement": "pre", "decoder_layers": 2, "encoder_attention_heads": 2},
}


def sinusoids(rows, width):
    """Vaswani et al. 2017, section 3.5: sines and cosines alternate. Rounded to f32, as a stored table."""
    angle = torch.arange(rows, dtype=torch.float64)[:, None] / 10000.0 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(rows, width).float().double()


def rotate(x, first):
    """Su et al. 2021, eq. 13, with complex numbers: element i and element i + d/2 of position m are multiplied by exp(i m theta_i)."""
    length, width = x.shape[-2:]
    theta = 10000.0 ** (-2.0 * torch.arange(width // 2, dtype=torch.float64) / width)
    angle = torch.arange(first, first + length, dtype=torch.float64)[:, None] * theta
    turned = torch.complex(x[..., : width // 2].contiguous(), x[..., width // 2 :].contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def slopes(heads):
    """The rule of Press et al. 2022, by recursion as in the authors' program."""
    if math.log2(heads).is_integer():
        start = 2.0 ** (-(2.0 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return slopes(below) + slopes(2 * below)[0::2][: heads - below]


def bucket(distance, is_both, buckets, largest):
    """The range of key - query (Raffel et al. 2020, as transformers' T5 has it)."""
    first = 0
    if is_both:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(largest / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


class Model:
    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: value.double().requires_grad_() for name, value in weights.items()}

    def get(self, field, otherwise):
        return self.config.get(field, otherwise)

    def linear(self, path, x):
        y = x @ self.weights[path + ".weight"].T
        return y + self.weights[path + ".bias"] if self.get("biases", True) else y

    def norm(self, path, x):
        epsilon = self.get("layer_norm_epsilon", 1e-5)
        if self.get("norm", "layer") == "rms":
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * self.weights[path + ".weight"]
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + epsilon) * self.weights[path + ".weight"] + self.weights[path + ".bias"]

    def embedding(self, side):
        return self.weights["shared.weight" if self.get("share_encoder_decoder_embeddings", True) else f"{side}.embed_tokens.weight"]

    def embed(self, side, ids):
        x = self.embedding(side)[ids]
        if self.config["scale_embedding"]:
            x = x * math.sqrt(self.config["d_model"])
        kind = self.config["position_embedding_type"]
        if kind == "sinusoidal":
            x = x + sinusoids(ids.shape[1], self.config["d_model"])
        if kind == "learned":
            x = x + self.weights[f"{side}.embed_positions.weight"][: ids.shape[1]]
        return x

    def position_bias(self, side, heads, length):
        """[heads, query, key]"""
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        kind = self.config["position_embedding_type"]
        if kind == "alibi":
            return -torch.tensor(slopes(heads), dtype=torch.float64)[:, None, None] * distance.abs()
        if kind == "relative":
            table = self.weights[f"{side}.layers.0.self_attn.relative_attention_bias.weight"]
            settings = self.config["relative_attention_num_buckets"], self.config["relative_attention_max_distance"]
            places = [[bucket(int(d), side == "encoder", *settings) for d in row] for row in distance]
            return table[torch.tensor(places)].permute(2, 0, 1)
        return torch.zeros(1, length, length, dtype=torch.float64)

    def attention(self, path, heads, x, memory, mask, is_rotary=False):
        split = lambda y: y.reshape(y.shape[0], y.shape[1], heads, -1).transpose(1, 2)
        q, k, v = (split(self.linear(f"{path}.{name}", y)) for name, y in [("q_proj", x), ("k_proj", memory), ("v_proj", memory)])
        if is_rotary:
            q, k = rotate(q, 0), rotate(k, 0)
        kind = self.get("attention_score", "scaled_dot")
        if kind == "additive":
            # Bahdanau et al. 2015, appendix A.1.2: v . tanh(W s + U h), in each head.
            scores = torch.einsum("bhqkd,hd->bhqk", torch.tanh(q[:, :, :, None, :] + k[:, :, None, :, :]), self.weights[f"{path}.score.weight"])
        else:
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
            scores = scores / math.sqrt(q.shape[-1]) if kind == "scaled_dot" else scores
        weights = torch.softmax(scores.masked_fill(~mask[0], -torch.inf) + mask[1], dim=-1)
        context = (weights @ v).transpose(1, 2).flatten(2)
        return self.linear(f"{path}.out_proj", context), weights

    def feed_forward(self, path, x):
        act = {"relu": torch.relu, "swish": lambda y: y * torch.sigmoid(y)}[self.config["activation_function"]]
        hidden = act(self.linear(f"{path}.fc1", x))
        if self.get("gated", False):
            hidden = hidden * self.linear(f"{path}.fc_gate", x)
        return self.linear(f"{path}.fc2", hidden)

    def residual(self, path, x, sublayer):
        if self.get("norm_placement", "post") == "pre":
            return x + sublayer(self.norm(path, x))
        return self.norm(path, x + sublayer(x))

    def last_norm(self, side, x):
        return self.norm(f"{side}.layer_norm", x) if self.get("norm_placement", "post") == "pre" else x

    def encode(self, ids, attention_mask):
        heads, length = self.config["encoder_attention_heads"], ids.shape[1]
        mask = attention_mask.bool()[:, None, None, :], self.position_bias("encoder", heads, length)
        is_rotary = self.config["position_embedding_type"] == "rotary"
        x = self.embed("encoder", ids)
        for layer in range(self.config["encoder_layers"]):
            path = f"encoder.layers.{layer}"
            x = self.residual(f"{path}.self_attn_layer_norm", x, lambda y: self.attention(f"{path}.self_attn", heads, y, y, mask, is_rotary)[0])
            x = self.residual(f"{path}.final_layer_norm", x, lambda y: self.feed_forward(path, y))
        return self.last_norm("encoder", x)

    def decode(self, memory, attention_mask, ids):
        heads, length = self.config["decoder_attention_heads"], ids.shape[1]
        mask = torch.ones(length, length).tril().bool()[None, None], self.position_bias("decoder", heads, length)
        cross_mask = attention_mask.bool()[:, None, None, :], 0.0
        is_rotary = self.config["position_embedding_type"] == "rotary"
        x, seen = self.embed("decoder", ids), []
        for layer in range(self.config["decoder_layers"]):
            path = f"decoder.layers.{layer}"
            x = self.residual(f"{path}.self_attn_layer_norm", x, lambda y: self.attention(f"{path}.self_attn", heads, y, y, mask, is_rotary)[0])

            def cross(y):
                context, weights = self.attention(f"{path}.encoder_attn", heads, y, memory, cross_mask)
                seen.append(weights)
                return context

            x = self.residual(f"{path}.encoder_attn_layer_norm", x, cross)
            x = self.residual(f"{path}.final_layer_norm", x, lambda y: self.feed_forward(path, y))
        table = self.embedding("decoder") if self.get("tie_word_embeddings", True) else self.weights["lm_head.weight"]
        return self.last_norm("decoder", x) @ table.T, torch.stack(seen)


def shapes(config):
    get, width, found = config.get, config["d_model"], {}
    target = get("decoder_vocab_size", config["vocab_size"])
    if get("share_encoder_decoder_embeddings", True):
        found["shared.weight"] = (config["vocab_size"], width)
    else:
        found |= {"encoder.embed_tokens.weight": (config["vocab_size"], width), "decoder.embed_tokens.weight": (target, width)}
    if not get("tie_word_embeddings", True):
        found["lm_head.weight"] = (target, width)

    def linear(path, out, into):
        found[f"{path}.weight"] = (out, into)
        if get("biases", True):
            found[f"{path}.bias"] = (out,)

    def norm(path):
        found[f"{path}.weight"] = (width,)
        if get("norm", "layer") == "layer":
            found[f"{path}.bias"] = (width,)

    for side in ("encoder", "decoder"):
        heads, ffn = config[f"{side}_attention_heads"], config[f"{side}_ffn_dim"]
        if config["position_embedding_type"] == "learned":
            found[f"{side}.embed_positions.weight"] = (config["max_position_embeddings"], width)
        for layer in range(config[f"{side}_layers"]):
            path = f"{side}.layers.{layer}"
            for name in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{path}.{name}.{projection}", width, width)
                if get("attention_score") == "additive":
                    found[f"{path}.{name}.score.weight"] = (heads, width // heads)
                norm(f"{path}.{name}_layer_norm")
            if layer == 0 and config["position_embedding_type"] == "relative":
                found[f"{path}.self_attn.relative_attention_bias.weight"] = (config["relative_attention_num_buckets"], heads)
            linear(f"{path}.fc1", ffn, width)
            if get("gated", False):
                linear(f"{path}.fc_gate", ffn, width)
            linear(f"{path}.fc2", width, ffn)
            norm(f"{path}.final_layer_norm")
        if get("norm_placement", "post") == "pre":
            norm(f"{side}.layer_norm")
    return found


def draw(config, seed):
    generator = torch.Generator().manual_seed(seed)
    normal = lambda shape: torch.randn(shape, generator=generator)

    def value(name, shape):
        if "norm." in name:
            return float(name.endswith("weight")) + 0.2 * normal(shape)
        if name.endswith("bias") or "score" in name or "relative" in name:
            return (0.2 if name.endswith("bias") else 1.0) * normal(shape)
        if "embed" in name or "shared" in name or "lm_head" in name:
            return 0.5 * normal(shape)
        return normal(shape) * (3.0 / sum(shape)) ** 0.5

    return {name: value(name, shape).contiguous() for name, shape in sorted(shapes(config).items())}


def tokens(config):
    """Sources of 7, 5 and 3 tokens and targets of 6, padded."""
    generator = torch.Generator().manual_seed(7)
    target = config.get("decoder_vocab_size", config["vocab_size"])
    row = lambda length, vocab: [int(torch.randint(3, vocab, [], generator=generator)) for _ in range(length)]
    pad, start, eos = config["pad_token_id"], config["decoder_start_token_id"], config["eos_token_id"]
    sources = [row(length - 1, config["vocab_size"]) + [eos] for length in (7, 5, 3)]
    targets = [row(6, target) for _ in sources]
    return {
        "input_ids": torch.tensor([source + [pad] * (7 - len(source)) for source in sources]),
        "attention_mask": torch.tensor([[1] * len(source) + [0] * (7 - len(source)) for source in sources]),
        "decoder_input_ids": torch.tensor([[start] + target[:-1] for target in targets]),
        "labels": torch.tensor(targets[:-1] + [targets[-1][:3] + [-100] * 3]),
    }


def greedy(model, memory, attention_mask):
    """Tokens of one sentence at a time, from the whole target at each step, -1 after the end; and the smallest margin of a choice."""
    rows, margin = [], math.inf
    memory = memory.detach()
    for sentence in range(memory.shape[0]):
        row = [model.config["decoder_start_token_id"]]
        while len(row) <= NEW_TOKENS:
            with torch.no_grad():
                logits, _ = model.decode(memory[sentence : sentence + 1], attention_mask[sentence : sentence + 1], torch.tensor([row]))
            best = logits[0, -1].topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            row.append(int(best.indices[0]))
            if row[-1] == model.config["eos_token_id"]:
                break
        rows.append(row[1:] + [-1] * (NEW_TOKENS + 1 - len(row)))
    return torch.tensor(rows), margin


def answers(config, weights):
    model, given = Model(config, weights), tokens(config)
    memory = model.encode(given["input_ids"], given["attention_mask"])
    logits, crossed = model.decode(memory, given["attention_mask"], given["decoder_input_ids"])
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), given["labels"].flatten(), ignore_index=-100, reduction="sum", label_smoothing=SMOOTHING
    )
    loss.backward()
    chosen, margin = greedy(model, memory, given["attention_mask"])
    found = given | {
        "encoder_hidden_states": memory.detach(),
        "logits": logits.detach(),
        "cross_attentions": crossed.detach(),
        "loss": loss.detach().reshape(1),
        "greedy": chosen,
    }
    found |= {f"gradient.{name}": value.grad.float() for name, value in model.weights.items()}
    return {name: value.contiguous() for name, value in found.items()}, margin


def liveliness(found, margin):
    """The number of different greedy tokens, if no choice depends on rounding."""
    return len(found["greedy"].unique()) if margin > LEAST_MARGIN else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--new-weights", action="store_true")
    options = parser.parse_args()
    for number, (case, choices) in enumerate(CASES.items()):
        folder = HERE / case
        folder.mkdir(exist_ok=True)
        config = COMMON | choices
        config = {name: value for name, value in config.items() if value is not None}
        if options.new_weights:
            # Random models often repeat a token: the one that repeats least is chosen.
            drawn = [draw(config, seed) for seed in range(100 * number, 100 * number + 100)]
            weights = max(drawn, key=lambda weights: liveliness(*answers(config, weights)))
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        found, margin = answers(config, load_file(folder / "model.safetensors"))
        assert margin > LEAST_MARGIN, (case, margin)
        stored = folder / "answers.safetensors"
        if options.check:
            before = load_file(stored)
            assert before.keys() == found.keys() and json.loads((folder / "config.json").read_text()) == config, case
            # Gradients of key biases are zero except for rounding.
            scale = lambda value: max(1e-3, float(value.double().norm()))
            worst = max(float((before[name] - value).double().norm()) / scale(value) for name, value in found.items())
            print(case, worst)
            assert worst < 1e-6, case
            continue
        save_file(found, stored, metadata={"format": "pt"})
        print(case, "loss", float(found["loss"]), "margin", margin, "greedy", found["greedy"].tolist())


if __name__ == "__main__":
    main()
