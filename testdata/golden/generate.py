"""Makes and checks the golden models: tiny Hugging Face models with PyTorch's outputs.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 safetensors
    python generate.py --check     recompute the answers of every folder and compare, changing nothing
    python generate.py marian      recompute the answers of marian from marian/model.safetensors
    python generate.py marian --new-weights --seed 1
                                   draw a new model first, then ask it
    python generate.py --functions write activations.json and buckets.json

`cargo xtask fixtures --check` runs the check in a virtual environment of its own.
What the answers are is written in README.md beside this file; how they are asked for, in answers.py. The models under
strange/ are rows of cases.py, made as strange.py says; functions.py is for activations.json and buckets.json.
"""

import argparse
import pathlib
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True  # nothing but data beside the data
import functions
import strange
from answers import ask, ask_in_double, differences, draw_inputs, load_model, rounding
from cases import CASES

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = "4.57.6"

BART_SHAPE = dict(
    vocab_size=120,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    init_std=0.3,
)
T5_SHAPE = dict(vocab_size=120, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)

# A row per family: a small configuration with all parts.
FAMILIES = {
    "bart": lambda: transformers.BartConfig(**BART_SHAPE),
    "m2m100": lambda: transformers.M2M100Config(**BART_SHAPE),
    "marian": lambda: transformers.MarianConfig(
        **BART_SHAPE,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=119,
        decoder_start_token_id=119,
        eos_token_id=0,
        forced_eos_token_id=0,
    ),
    "mbart": lambda: transformers.MBartConfig(**BART_SHAPE, scale_embedding=True, decoder_start_token_id=2),
    "mt5": lambda: transformers.MT5Config(**T5_SHAPE | {"d_kv": 6}),
    "pegasus": lambda: transformers.PegasusConfig(**BART_SHAPE, scale_embedding=True),
    "t5": lambda: transformers.T5Config(**T5_SHAPE),
    "t5-gated": lambda: transformers.T5Config(**T5_SHAPE, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
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
            if "embed_positions" in name and config.model_type in ("marian", "pegasus"):  # sinusoids are not learned
                continue
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "shared" not in name:
                parameter.mul_(2.0)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.9)
    return model


def folder_of(name):
    return HERE / name if name in FAMILIES else HERE / "strange" / name


def read(name):
    return strange.read(CASES[name], folder_of(name)) if name in CASES else load_model(folder_of(name))


def stored_answers(name):
    folder = folder_of(name)
    return load_file(folder / "golden.safetensors"), load_file(folder / "golden.float64.safetensors")


def check():
    failed = functions.check(HERE)
    expected, found = {*FAMILIES, *CASES}, {path.parent.name for path in HERE.rglob("golden.safetensors")}
    if expected != found:
        failed = True
        print(f"  the tables and the folders differ: {sorted(expected ^ found)}")
    for name in sorted(expected & found):
        print(name)
        stored, doubles = stored_answers(name)
        inputs = {name: stored[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        model = read(name)
        for line in differences(stored, ask(model, inputs)) + differences(doubles, ask_in_double(model, inputs)):
            failed = True
            print(f"  {line}")
    print("decoding", flush=True)
    failed |= subprocess.run([sys.executable, HERE / "decoding" / "generate.py", "--check"]).returncode != 0
    return 1 if failed else 0


def table():
    """The rows of README.md's table of cases."""
    for name, case in CASES.items():
        worst = rounding(*stored_answers(name)).values()
        size = sum(path.stat().st_size for path in folder_of(name).iterdir())
        print(f"| `{name}` | {case.about} | {' | '.join(f'{value:.1e}' for value in worst)} | {size // 1000} |")
    return 0


def generate(name, new_weights, seed):
    folder = folder_of(name)
    golden = folder / "golden.safetensors"
    if new_weights and name in CASES:
        answers, doubles, seed = strange.make(CASES[name], folder, seed)
    else:
        if new_weights:
            draw_model(name, seed).save_pretrained(folder)
        elif not (folder / "config.json").exists():
            sys.exit(f"{folder}: there is no model; give --new-weights to draw one")
        model = read(name)
        if golden.exists() and not new_weights:
            stored = load_file(golden)
            inputs = {name: stored[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        else:
            inputs = draw_inputs(model, seed)
        answers, doubles = ask(model, inputs), ask_in_double(model, inputs)
    save_file(answers, golden)
    save_file(doubles, folder / "golden.float64.safetensors")
    print(
        f"wrote the answers in {folder}, seed {seed}" if new_weights else f"wrote the answers in {folder}", flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a family, or a case of cases.py")
    parser.add_argument("--check", action="store_true", help="recompute and compare, change nothing")
    parser.add_argument("--functions", action="store_true", help="write activations.json and buckets.json")
    parser.add_argument("--table", action="store_true", help="print the rows of README.md's table of cases")
    parser.add_argument("--new-weights", action="store_true", help="draw a new seeded model")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the new weights and inputs; for a case, the first one tried"
    )
    options = parser.parse_args()
    if transformers.__version__ != TRANSFORMERS:
        sys.exit(
            f"transformers {transformers.__version__} is installed, the golden models are made with {TRANSFORMERS}"
        )
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.check:
        return check()
    if options.table:
        return table()
    if options.functions:
        return functions.write(HERE)
    unknown = [name for name in options.names if name not in FAMILIES and name not in CASES]
    if unknown or not options.names:
        parser.error(f"name families or cases, or give --check; known are {', '.join([*FAMILIES, *CASES])}")
    for name in options.names:
        generate(name, options.new_weights, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
