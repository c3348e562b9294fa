"""Makes and checks the golden models: tiny Hugging Face models with PyTorch's own answers.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 safetensors
    python generate.py --check     recompute the answers of every folder and compare, changing nothing
    python generate.py marian      recompute the answers of marian from marian/model.safetensors
    python generate.py marian --new-weights --seed 1
                                   draw a new model first, then ask it

`cargo xtask fixtures --check` runs the check in a virtual environment of its own.
What the answers are is written in README.md beside this file.
"""

import argparse
import copy
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = "4.57.6"

SOURCE_LENGTHS = [11, 7, 4]
TARGET_LENGTH = 7
MAX_NEW_TOKENS = 24
NUM_BEAMS = 4

# PyTorch disagrees with itself by up to 2e-5 when the batch changes; between two builds of it we allow the same.
TOLERANCE = 2e-5

# A family is one row: its configuration, small enough to commit and with every part switched on.
FAMILIES = {
    "marian": lambda: transformers.MarianConfig(
        vocab_size=120,
        decoder_vocab_size=120,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        activation_function="swish",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        init_std=0.3,
        pad_token_id=119,
        decoder_start_token_id=119,
        eos_token_id=0,
        forced_eos_token_id=0,
    ),
}


def draw_model(family, seed):
    """A random model in which every parameter matters.

    Biases and norms are moved away from 0 and 1, so that a dropped one shows; hidden weights are large, so that
    decoding does not merely repeat one token. The padding token's embedding stays zero, as Hugging Face keeps it.
    """
    torch.manual_seed(seed)
    config = FAMILIES[family]()
    model = transformers.AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:  # sinusoids are not learned
                continue
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "shared" not in name:
                parameter.mul_(2.0)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.9)
    return model


def draw_inputs(config, seed):
    """Sources of 11, 7 and 4 tokens, each ending in eos and padded right, and a target prefix for teacher forcing."""
    generator = torch.Generator().manual_seed(seed)
    pad, eos = config.pad_token_id, config.eos_token_id
    ordinary = torch.tensor([i for i in range(config.vocab_size) if i not in (pad, eos)])

    def tokens(count):
        return ordinary[torch.randint(len(ordinary), (count,), generator=generator)]

    input_ids = torch.full((len(SOURCE_LENGTHS), max(SOURCE_LENGTHS)), pad)
    attention_mask = torch.zeros_like(input_ids)
    decoder_input_ids = torch.full((len(SOURCE_LENGTHS), TARGET_LENGTH), config.decoder_start_token_id)
    for row, length in enumerate(SOURCE_LENGTHS):
        input_ids[row, : length - 1] = tokens(length - 1)
        input_ids[row, length - 1] = eos
        attention_mask[row, :length] = 1
        decoder_input_ids[row, 1:] = tokens(TARGET_LENGTH - 1)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}


@torch.no_grad()
def ask(model, inputs):
    """PyTorch's answers, under the names and shapes of README.md's table."""
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    forced = model(**source, decoder_input_ids=inputs["decoder_input_ids"], output_attentions=True)
    greedy = model.generate(**source, max_new_tokens=MAX_NEW_TOKENS, num_beams=1, do_sample=False)
    beams = model.generate(
        **source,
        max_new_tokens=MAX_NEW_TOKENS,
        num_beams=NUM_BEAMS,
        num_return_sequences=NUM_BEAMS,
        length_penalty=1.0,
        early_stopping=False,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    answers = {
        **inputs,
        "encoder_last_hidden_state": forced.encoder_last_hidden_state,
        "logits": forced.logits,
        "cross_attentions": torch.stack(forced.cross_attentions),
        "greedy": greedy,
        "beam4": beams.sequences,
        "beam4_scores": beams.sequences_scores,
    }
    return {name: tensor.contiguous() for name, tensor in answers.items()}


@torch.no_grad()
def ask_in_double(model, inputs):
    """The numbers of `ask` once more, computed in float64: what PyTorch's f32 rounds."""
    source = {name: inputs[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    forced = copy.deepcopy(model).double()(**source, output_attentions=True)
    answers = {
        "encoder_last_hidden_state": forced.encoder_last_hidden_state,
        "logits": forced.logits,
        "cross_attentions": torch.stack(forced.cross_attentions),
    }
    return {name: tensor.contiguous() for name, tensor in answers.items()}


def load_model(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval()


def differences(old, new):
    """One line for every tensor that is missing or differs: integers exactly, floats within TOLERANCE."""
    found = [f"{name}: in one of the two only" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        a, b = old[name], new[name]
        if a.shape != b.shape:
            found.append(f"{name}: {list(a.shape)} in the file, {list(b.shape)} recomputed")
        elif a.is_floating_point():
            worst = (a - b).abs().max().item()
            print(f"    {name:28} {str(list(a.shape)):20} largest difference {worst:.1e}")
            if not worst <= TOLERANCE:
                found.append(f"{name}: differs by {worst:.1e}, at most {TOLERANCE:.0e} is allowed")
        else:
            print(f"    {name:28} {str(list(a.shape)):20} {'equal' if torch.equal(a, b) else 'DIFFERS'}")
            if not torch.equal(a, b):
                found.append(f"{name}: {(a != b).sum().item()} of {a.numel()} tokens differ")
    return found


def check(folders):
    failed = False
    for folder in folders:
        print(folder.name)
        stored = load_file(folder / "golden.safetensors")
        inputs = {name: stored[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        model = load_model(folder)
        doubles = load_file(folder / "golden.float64.safetensors")
        for line in differences(stored, ask(model, inputs)) + differences(doubles, ask_in_double(model, inputs)):
            failed = True
            print(f"  {line}")
    return 1 if failed else 0


def generate(family, new_weights, seed):
    folder = HERE / family
    if new_weights:
        draw_model(family, seed).save_pretrained(folder)
    elif not (folder / "model.safetensors").exists():
        sys.exit(f"{folder}: no model.safetensors; give --new-weights to draw one")
    model = load_model(folder)
    golden = folder / "golden.safetensors"
    if golden.exists() and not new_weights:
        stored = load_file(golden)
        inputs = {name: stored[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    else:
        inputs = draw_inputs(model.config, seed)
    save_file(ask(model, inputs), golden)
    save_file(ask_in_double(model, inputs), folder / "golden.float64.safetensors")
    print(f"wrote {golden} and golden.float64.safetensors")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="?", choices=sorted(FAMILIES))
    parser.add_argument("--check", action="store_true", help="recompute and compare, change nothing")
    parser.add_argument("--new-weights", action="store_true", help="draw a new seeded model")
    parser.add_argument("--seed", type=int, default=1, help="of the new weights and inputs")
    options = parser.parse_args()
    if transformers.__version__ != TRANSFORMERS:
        sys.exit(f"transformers {transformers.__version__} is installed, the golden models are made with {TRANSFORMERS}")
    torch.set_num_threads(1)
    if options.check:
        return check(sorted(path.parent for path in HERE.glob("*/golden.safetensors")))
    if options.family is None:
        parser.error("name a family, or give --check")
    return generate(options.family, options.new_weights, options.seed)


if __name__ == "__main__":
    sys.exit(main())
