"""Recomputes the translations of this folder with PyTorch from the checkpoint in the parent folder.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 sacrebleu==2.6.0
    python generate.py --data FOLDER            compare with the files here, changing nothing
    python generate.py --data FOLDER --write    replace them

FOLDER holds test_2016_flickr.en and .de of Multi30k task 1 (`data/task1/raw` of the GitHub repository
multi30k/dataset). The data is for research use and is not kept here.
"""

import argparse
import json
import pathlib
import sys

import sacrebleu
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
TEST = "test_2016_flickr"
BATCH = 25
MAX_NEW_TOKENS = 80


@torch.no_grad()
def translate(model, tokenizer, lines, num_beams):
    """Texts, token ids without start and end tokens, and scores of beams, in the order of `lines`."""
    encoded = [tokenizer(line).input_ids for line in lines]
    by_length = sorted(range(len(lines)), key=lambda index: len(encoded[index]))
    texts, ids, scores = [""] * len(lines), [[]] * len(lines), [0.0] * len(lines)
    special = {model.config.decoder_start_token_id, model.config.eos_token_id, model.config.pad_token_id}
    for start in range(0, len(lines), BATCH):
        batch = by_length[start : start + BATCH]
        inputs = tokenizer.pad({"input_ids": [encoded[index] for index in batch]}, return_tensors="pt")
        answer = model.generate(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask,
            max_new_tokens=MAX_NEW_TOKENS,
            num_beams=num_beams,
            do_sample=False,
            length_penalty=1.0,
            early_stopping=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        for row, index in enumerate(batch):
            ids[index] = [token for token in answer.sequences[row].tolist() if token not in special]
            texts[index] = tokenizer.decode(ids[index])
            if num_beams > 1:
                scores[index] = answer.sequences_scores[row].item()
    return texts, ids, scores


def score(texts, references):
    return {
        "bleu": round(sacrebleu.corpus_bleu(texts, [references]).score, 2),
        "chrf": round(sacrebleu.corpus_chrf(texts, [references]).score, 2),
    }


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the Multi30k test set")
    parser.add_argument("--write", action="store_true", help="replace the files instead of comparing")
    options = parser.parse_args()

    model = transformers.MarianMTModel.from_pretrained(HERE.parent, attn_implementation="eager").eval()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(HERE.parent)
    sources, references = lines_of(options.data / f"{TEST}.en"), lines_of(options.data / f"{TEST}.de")
    greedy, greedy_ids, _ = translate(model, tokenizer, sources, num_beams=1)
    beam, _, beam_scores = translate(model, tokenizer, sources, num_beams=5)
    scores = {"greedy": score(greedy, references), "beam5": score(beam, references)}

    files = {
        f"{TEST}.greedy.de": "".join(f"{line}\n" for line in greedy),
        f"{TEST}.greedy.ids.json": json.dumps(greedy_ids),
        f"{TEST}.beam5.de": "".join(f"{line}\n" for line in beam),
        f"{TEST}.beam5.scores.txt": "".join(f"{value:.6f}\n" for value in beam_scores),
        "scores.json": json.dumps(scores, indent=1),
    }
    print(json.dumps(scores))
    failed = False
    for name, text in files.items():
        path = HERE / name
        if options.write:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
        elif path.read_text(encoding="utf-8") == text:
            print(f"{name}: equal")
        else:
            old, new = lines_of(path), text.splitlines()
            if name.endswith(".scores.txt"):
                worst = max((abs(float(a) - float(b)) for a, b in zip(old, new)), default=0.0)
                print(f"{name}: largest difference {worst:.1e}")
                failed |= len(old) != len(new) or worst > 2e-5
                continue
            failed = True
            print(f"{name}: {sum(a != b for a, b in zip(old, new))} of {len(old)} lines differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
