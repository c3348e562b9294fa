"""Writes text.txt and expected.json: the results of the Python package tokenizers for the text. See README.md.

    python generate.py
"""

import json
import os
import pathlib
import random

os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

FOLDER = pathlib.Path(__file__).parent
SPECIAL = ["</s>", "<unk>", "<pad>"]
VOCAB_SIZE = 200
SYLLABLES = "ba be bi do du fa fe ga gu ha hi ka ke ko la le li ma me mi na no nu pa po ra re ri sa se so ta te ti to va ve wa wo za".split()
ENDINGS = ["", "", "", "n", "s", "t", "ung", "ing", "st", "ß", "ü"]


def text(random_numbers):
    """600 lines of generated words; frequent words come first, so that counts differ."""
    words = sorted({"".join(random_numbers.choices(SYLLABLES, k=random_numbers.randint(1, 4))) + random_numbers.choice(ENDINGS) for _ in range(400)})
    random_numbers.shuffle(words)
    weights = [1 / (rank + 2) for rank in range(len(words))]
    lines = []
    for _ in range(600):
        chosen = random_numbers.choices(words, weights, k=random_numbers.randint(1, 14))
        line = " ".join(chosen)
        lines.append(line[0].upper() + line[1:] + random_numbers.choice([".", "!", "?", " ,  " + chosen[0] + "."]))
    return lines


def trained(model, trainer, lines):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def dealt(vocabulary):
    """Characters that the trainer took out come back with the scores least, least + 0.0001, ... in the order of a hash map: here in that
    of the alphabet, the best first, with characters that have such a score by themselves. Equal scores are in the order of the pieces."""
    special, pieces = vocabulary[: len(SPECIAL)], dict(vocabulary[len(SPECIAL) :])
    least, step, scores = min(pieces.values()), 0.0, []
    returned = []
    while found := [piece for piece, score in pieces.items() if score == least + step and len(piece) == 1]:
        returned += found
        scores += [least + step] * len(found)
        step += 0.0001
    pieces |= dict(zip(sorted(returned), sorted(scores, reverse=True)))
    return special + sorted(pieces.items(), key=lambda item: (-item[1], item[0]))


def main():
    random_numbers = random.Random(5)
    lines = text(random_numbers)
    (FOLDER / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    special = [AddedToken(token, normalized=False, special=True) for token in SPECIAL]
    hard = json.loads((FOLDER.parent / "tokenizers/cases.json").read_text(encoding="utf-8"))["hard"]
    texts = hard + lines[::20] + text(random.Random(6))[::20]

    bpe = trained(
        models.BPE(unk_token="<unk>", fuse_unk=True),
        trainers.BpeTrainer(vocab_size=VOCAB_SIZE, min_frequency=2, special_tokens=special, show_progress=False),
        lines,
    )
    unigram = trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=VOCAB_SIZE, special_tokens=special, unk_token="<unk>", show_progress=False),
        lines,
    )
    vocabulary = dealt([tuple(item) for item in json.loads(unigram.to_str())["model"]["vocab"]])
    unigram.model = models.Unigram(vocabulary, 1, False)
    expected = {
        "vocab_size": VOCAB_SIZE,
        "texts": texts,
        "bpe": {"merges": json.loads(bpe.to_str())["model"]["merges"], "ids": [bpe.encode(text).ids for text in texts]},
        # Pieces with equal scores have no defined order there, so pieces are compared, not ids.
        "unigram": {
            "scores": dict(sorted((piece, round(score, 9)) for piece, score in vocabulary)),
            "pieces": [[unigram.id_to_token(id) for id in unigram.encode(text).ids] for text in texts],
        },
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
