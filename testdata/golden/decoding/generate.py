"""Writes tokens, scores, alignments and sampling probabilities of transformers: `MODEL.json` and `warpers.json`; see README.md.

`--check` recomputes and compares instead.
"""

import argparse
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # nothing but data beside the data

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM
from transformers.generation import utils

import cases

HERE = Path(__file__).parent
MODELS = ["bart", "m2m100", "marian", "mbart", "mt5", "pegasus", "t5", "t5-gated"]

# Least difference of compared scores: closer ones may be ordered differently by programs that round differently.
# Number of random sources, of which the first without such a choice, on which the row's options have an effect, is used instead.
MARGIN = 1e-4
OTHER_SOURCES = 200
# Options of plain decoding, too.
PLAIN = ("max_new_tokens", "max_length", "eos_token_id", "num_beams", "num_return_sequences", "prefix")

# Rows whose attention is recorded, and the least distance of the two largest weights there.
ALIGNED = ("greedy", "beam", "beam-prefix")
ALIGNMENT_MARGIN = 1e-3

BEAM_SAMPLED = ["marian", "t5"]
BEAM_DRAWS = 40_000


class Margins:
    """The smallest difference of two scores that beam search compared."""

    def __init__(self):
        self.smallest = float("inf")

    def between(self, scores):
        real = scores[scores > -1e8]
        if len(real) > 1:
            self.smallest = min(self.smallest, (real[:-1] - real[1:]).abs().min().item())

    def __enter__(self):
        self.topk, self.heuristic = torch.topk, utils.GenerationMixin._check_early_stop_heuristic

        def topk(values, k, *args, **kwargs):
            ordered = torch.sort(values, dim=-1, descending=True)[0]
            for row in ordered:
                self.between(row[: k + 1])
            return self.topk(values, k, *args, **kwargs)

        def heuristic(**kwargs):
            if kwargs["is_sent_finished"].all():
                never = kwargs["early_stopping"] == "never" and kwargs["length_penalty"] > 0.0
                length = (kwargs["max_length"] if never else kwargs["cur_len"]) - kwargs["decoder_prompt_len"]
                possible = kwargs["running_beam_scores"][0, 0] / length ** kwargs["length_penalty"]
                self.smallest = min(self.smallest, (possible - kwargs["beam_scores"].min()).abs().item())
            return self.heuristic(**kwargs)

        torch.topk, utils.GenerationMixin._check_early_stop_heuristic = topk, staticmethod(heuristic)
        return self

    def __exit__(self, *_):
        torch.topk, utils.GenerationMixin._check_early_stop_heuristic = self.topk, staticmethod(self.heuristic)


def sources(folder):
    golden = load_file(folder / "golden.safetensors")
    rows = [ids[mask == 1] for ids, mask in zip(golden["input_ids"], golden["attention_mask"])]
    return [row[None] for row in rows], golden["decoder_input_ids"]


def decode(model, source, options):
    """Sequences without start and end token, their scores, and the smallest difference of compared scores."""
    options = dict(options)
    prefix = options.pop("prefix", [])
    start = model.generation_config.decoder_start_token_id
    if prefix:
        options["decoder_input_ids"] = torch.tensor([[start, *prefix]])
    ends = options.get("eos_token_id", model.generation_config.eos_token_id)
    ends = ends if isinstance(ends, list) else [ends]
    with Margins() as margins:
        found = model.generate(source, do_sample=False, return_dict_in_generate=True, output_scores=True, **options)
    margin = margins.smallest
    if "num_beams" not in options:
        best = [step[0].topk(2).values for step in found.scores]
        margin = min((first - second).item() for first, second in best)
    sequences = []
    for row in found.sequences.tolist():
        row = row[1:]
        end = next((place for place, token in enumerate(row) if token in ends and place >= len(prefix)), None)
        sequences.append({"tokens": row[:end], "complete": end is not None})
    if "num_beams" in options:
        for sequence, score in zip(sequences, found.sequences_scores.tolist()):
            sequence["score"] = float(f"{score:.7g}")
    return sequences, margin


def others(model, source):
    """Seeded random sources of the same length, with an end token."""
    generator = torch.Generator().manual_seed(source.numel())
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    ordinary = torch.tensor([token for token in range(model.config.vocab_size) if token not in (pad, eos)])
    for _ in range(OTHER_SOURCES):
        chosen = torch.randint(len(ordinary), (source.numel() - 1,), generator=generator)
        yield torch.cat([ordinary[chosen], torch.tensor([eos])])[None]


def tells_apart(model, source, options, sequences):
    """Whether options other than plain decoding's give another best sequence."""
    plain = {name: value for name, value in options.items() if name in PLAIN}
    return plain == options or decode(model, source, plain)[0][0]["tokens"] != sequences[0]["tokens"]


def clear_sequences(model, source, name, options):
    """The sequences of a row, or `None` if compared scores are too close."""
    sequences, margin = decode(model, source, options)
    if margin < MARGIN or (name in ALIGNED and attended(model, source, sequences[0]["tokens"])[1] < ALIGNMENT_MARGIN):
        return None
    return sequences


def answered(model, source, name, options):
    """The source and its sequences, or those of another source without close scores."""
    found = []
    if sequences := clear_sequences(model, source, name, options):
        return source, sequences
    for other in others(model, source):
        if sequences := clear_sequences(model, other, name, options):
            found.append((other, sequences))
            if tells_apart(model, other, options, sequences):
                return found[-1]
    if not found:
        raise SystemExit(f"{model.config.model_type} {name}: of {OTHER_SOURCES} sources every one has a choice too near")
    return found[0]


def decoded(model, folder, stored):
    """The table for one model; a source with close scores is replaced.

    Of a `stored` table the sources are taken as they were chosen: another processor rounds margins otherwise.
    """
    inputs, _ = sources(folder)
    greedy = [decode(model, source, {"max_new_tokens": cases.MAX_NEW_TOKENS})[0][0]["tokens"] for source in inputs]
    facts = {"greedy": greedy, "eos": model.generation_config.eos_token_id}
    table = {}
    for name, options in cases.cases(facts).items():
        if stored:
            taken = asked(stored[name], inputs)
            answers = [decode(model, source, options)[0] for source in taken]
        else:
            taken, answers = zip(*(answered(model, source, name, options) for source in inputs))
        replaced = sum(not torch.equal(found, source) for found, source in zip(taken, inputs))
        changed = sum(tells_apart(model, source, options, answer) for source, answer in zip(taken, answers))
        print(f"{folder.name:9} {name:30} {changed} differ from plain decoding, {replaced} of another source", flush=True)
        table[name] = {"options": options, "answers": list(answers)}
        if replaced:
            table[name]["sources"] = [source[0].tolist() for source in taken]
    return table


def asked(row, inputs):
    """The sources of a row of the table."""
    return [torch.tensor([source]) for source in row["sources"]] if "sources" in row else inputs


def scored(model, folder):
    """Log-probabilities of the golden targets and the end token after them, teacher forced in float64."""
    inputs, targets = sources(folder)
    double = model.double()
    answers = []
    for source, target in zip(inputs, targets):
        labels = torch.cat([target[1:], torch.tensor([model.generation_config.eos_token_id])])
        logits = double(input_ids=source, decoder_input_ids=target[None]).logits[0]
        chosen = logits.log_softmax(-1).gather(1, labels[:, None])[:, 0]
        answers.append({"target": target[1:].tolist(), "log_probabilities": [round(value, 6) for value in chosen.tolist()]})
    model.float()
    return answers


def attended(model, source, tokens):
    """For each layer the source position that each token's step attends to most, heads averaged; and the smallest distance to the next."""
    start = torch.tensor([[model.generation_config.decoder_start_token_id, *tokens]])
    outputs = model(input_ids=source, decoder_input_ids=start, output_attentions=True)
    best = [weights[0].mean(0)[: len(tokens)].topk(2) for weights in outputs.cross_attentions]
    distances = torch.cat([layer.values[:, 0] - layer.values[:, 1] for layer in best]).tolist()
    return [layer.indices[:, 0].tolist() for layer in best], min(distances, default=float("inf"))


def aligned(model, folder, table):
    """What the best sequences of some rows attend to."""
    inputs, _ = sources(folder)
    rows = {name: zip(asked(table[name], inputs), table[name]["answers"]) for name in ALIGNED}
    return {name: [attended(model, source, found[0]["tokens"])[0] for source, found in row] for name, row in rows.items()}


def warped():
    """Probabilities that warpers leave of one recorded distribution."""
    logits = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 2
    logits[7] = -torch.inf
    logits = torch.tensor([round(value, 4) for value in logits.tolist()])
    mixin = utils.GenerationMixin()
    rows = []
    # With beams as many stay as there are ends, and one more; at least two.
    for fewest, beams, ends in ((1, 1, None), (2, 2, None), (4, 2, torch.tensor([1, 2, 3]))):
        for options in cases.WARPERS:
            config = transformers.GenerationConfig(do_sample=True, num_beams=beams, **options)
            config._eos_token_tensor = ends
            warpers = mixin._get_logits_processor(config, device="cpu")
            probabilities = warpers(torch.zeros(1, 1, dtype=torch.long), logits[None].clone())[0].softmax(-1)
            probabilities = [round(value, 7) for value in probabilities.tolist()]
            rows.append({"options": options, "fewest": fewest, "probabilities": probabilities})
    finite = [value if value > -1e9 else None for value in logits.tolist()]
    return {"logits": [value and round(value, 4) for value in finite], "warped": rows}


def beam_sampled(model, folder):
    """How often each sequence is the best of beam search that draws, for the first source."""
    inputs, _ = sources(folder)
    greedy = [decode(model, source, {"max_new_tokens": cases.MAX_NEW_TOKENS})[0][0]["tokens"] for source in inputs]
    facts = {"greedy": greedy, "eos": model.generation_config.eos_token_id}
    table = {}
    for name, options in cases.beam_samples(facts).items():
        ends = options["eos_token_id"] if isinstance(options["eos_token_id"], list) else [options["eos_token_id"]]
        counts = {}
        torch.manual_seed(17)
        for _ in range(BEAM_DRAWS // 2000):
            for row in model.generate(inputs[0].repeat(2000, 1), do_sample=True, **options).tolist():
                end = next((place for place, token in enumerate(row) if place > 0 and token in ends), None)
                key = (tuple(row[1:end]), end is not None)
                counts[key] = counts.get(key, 0) + 1
        often = sorted((item for item in counts.items() if item[1] >= BEAM_DRAWS // 400), key=lambda item: -item[1])
        rows = [{"tokens": list(tokens), "complete": complete, "count": count} for (tokens, complete), count in often]
        print(f"{folder.name:9} {name:30} {len(counts)} sequences, {len(rows)} often")
        table[name] = {"options": options, "draws": BEAM_DRAWS, "often": rows}
    return table


@torch.no_grad()
def answers(check):
    """Contents by file name; to `check` them, of the sources that the files have."""
    files = {"warpers.json": warped(), "beam_samples.json": {}}
    for name in MODELS:
        folder = HERE.parent / name
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
        if name in BEAM_SAMPLED:
            files["beam_samples.json"][name] = beam_sampled(model, folder)
        stored = json.loads((HERE / f"{name}.json").read_text())["decoded"] if check else None
        table = decoded(model, folder, stored)
        files[f"{name}.json"] = {"decoded": table, "scored": scored(model, folder), "aligned": aligned(model, folder, table)}
    return files


def differences(found, expected, place=""):
    """Where two JSON values differ by more than rounding."""
    if isinstance(expected, float) and isinstance(found, float):
        return [] if abs(found - expected) < 2e-5 * max(1.0, abs(expected)) else [f"{place}: {found} {expected}"]
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [line for key in expected for line in differences(found[key], expected[key], f"{place}/{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [line for i, pair in enumerate(zip(found, expected)) for line in differences(*pair, f"{place}/{i}")]
    return [] if found == expected else [f"{place}: {found} {expected}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is stored")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    failures = []
    for file, content in answers(arguments.check).items():
        path = HERE / file
        if arguments.check:
            failures += differences(content, json.loads(path.read_text()), file)
        else:
            path.write_text(json.dumps(content, separators=(",", ":")) + "\n")
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
