"""Checks the golden models of speech, or writes their answers again from the stored weights and inputs.

A developer's tool: `pip install torch==2.15.0 transformers==4.57.6 safetensors`, then `python generate.py [--write]`.
"""

import argparse
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationMixin, LogitsProcessorList, WhisperForConditionalGeneration
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

HERE = pathlib.Path(__file__).resolve().parent
STATES = ["encoder_last_hidden_state", "logits", "cross_attentions"]


def states(model, stored):
    with torch.no_grad():
        out = model(
            input_features=stored["input_features"].to(model.dtype),
            decoder_input_ids=stored["decoder_input_ids"],
            output_attentions=True,
        )
    return dict(zip(STATES, [out.encoder_last_hidden_state, out.logits, torch.stack(out.cross_attentions)]))


def decode(model, stored, prompt, beams=1, raw=False, timestamps=False):
    config = model.generation_config
    lists = {} if not raw else dict(suppress_tokens=None, begin_suppress_tokens=None)
    processors = LogitsProcessorList()
    if timestamps:
        processors.append(WhisperTimeStampLogitsProcessor(config, begin_index=prompt.shape[1]))
    out = GenerationMixin.generate(
        model,
        stored["input_features"],
        decoder_input_ids=prompt,
        max_new_tokens=24,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=1.0,
        early_stopping=False,
        logits_processor=processors,
        return_dict_in_generate=True,
        output_scores=True,
        **lists,
    )
    return out.sequences, getattr(out, "sequences_scores", None)


def answers(model, stored):
    start = torch.full((3, 1), model.generation_config.decoder_start_token_id)
    found = states(model, stored)
    for name, prompt, options in [
        ("", start, {}),
        ("_raw", start, dict(raw=True)),
        ("_prompt", stored["prompt"], {}),
        ("_timestamps", stored["prompt_timestamps"], dict(timestamps=True)),
    ]:
        found["greedy" + name] = decode(model, stored, prompt, **options)[0]
        if name != "_prompt":
            found["beam4" + name], found[f"beam4{name}_scores"] = decode(model, stored, prompt, beams=4, **options)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the answers")
    options = parser.parse_args()
    failed = False
    for folder in sorted(path.parent for path in HERE.glob("*/config.json")):
        model = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
        files = {"golden.safetensors": answers, "golden.float64.safetensors": states}
        inputs = load_file(folder / "golden.safetensors")
        for file, ask in files.items():
            found = {name: tensor.contiguous() for name, tensor in ask(model, inputs).items()}
            stored = load_file(folder / file)
            for name, tensor in found.items():
                if tensor.dtype == torch.int64:
                    equal = tensor.shape == stored[name].shape and bool((tensor == stored[name]).all())
                    failed |= not equal
                    print(folder.name, name, "equal" if equal else "DIFFERENT")
                else:
                    worst = float((tensor - stored[name]).abs().max())
                    failed |= worst > 1e-4
                    print(folder.name, file, name, f"{worst:.1e}")
            if options.write:
                save_file({**stored, **found}, folder / file)
            model = model.double()
    sys.exit(failed)


main()
