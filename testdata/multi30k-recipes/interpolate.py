"""Chooses for each sentence, among the ten best translations of a model, the one that is most like its reference.

    pip install sacremoses==0.2.0
    python interpolate.py train.n-best.de train.lc.norm.tok.de train.interpolated.lc.norm.tok.de

The first file is of `cognate translate --beams 10 --n-best 10`; its translations are lower-cased and tokenised as by lower-case.py. Alike is BLEU of
the sentence, in which one is added to the matches and n-grams of all orders but the first.
"""

import collections
import math
import sys

from sacremoses import MosesPunctNormalizer, MosesTokenizer

BEST = 10
ORDERS = range(1, 5)
normaliser, tokenizer = MosesPunctNormalizer("de"), MosesTokenizer("de")


def lines(path):
    with open(path, encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def counts(words):
    return [collections.Counter(tuple(words[place : place + n]) for place in range(len(words) - n + 1)) for n in ORDERS]


def likeness(text, expected, length):
    words = text.split()
    logarithms = 0.0
    for n, found, wanted in zip(ORDERS, counts(words), expected):
        added = int(n > 1)
        matches = sum(min(count, wanted[gram]) for gram, count in found.items()) + added
        logarithms += math.log(matches / (max(len(words) - n + 1, 1) + added)) if matches else -9
    return logarithms / len(ORDERS) + min(0, 1 - length / max(len(words), 1))


n_best, references, out = sys.argv[1:]
n_best, references = lines(n_best), lines(references)
with open(out, "w", encoding="utf-8", newline="\n") as file:
    for place, reference in enumerate(references):
        given = [line.split("\t", 1)[1] for line in n_best[BEST * place :][:BEST]]
        texts = [tokenizer.tokenize(normaliser.normalize(text.lower()), return_str=True) for text in given]
        words = reference.split()
        expected = counts(words)
        file.write(max(texts, key=lambda text: likeness(text, expected, len(words))) + "\n")
