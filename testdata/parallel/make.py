"""Writes the parallel text of this folder: sentences of a small grammar, in English and German."""

import itertools
import random
from pathlib import Path

SINGULAR = [
    ("A man", "Ein Mann"),
    ("A woman", "Eine Frau"),
    ("A child", "Ein Kind"),
    ("A girl", "Ein Mädchen"),
    ("A boy", "Ein Junge"),
    ("An old man", "Ein alter Mann"),
    ("A young woman", "Eine junge Frau"),
    ("A small dog", "Ein kleiner Hund"),
]
PLURAL = [
    ("Two men", "Zwei Männer"),
    ("Two women", "Zwei Frauen"),
    ("Three children", "Drei Kinder"),
    ("Some people", "Einige Leute"),
    ("Two dogs", "Zwei Hunde"),
]
# English and German of one subject, then of several.
DOING = [
    ("is running", "rennt", "are running", "rennen"),
    ("is sleeping", "schläft", "are sleeping", "schlafen"),
    ("is waiting", "wartet", "are waiting", "warten"),
    ("is playing", "spielt", "are playing", "spielen"),
    ("is sitting on a bench", "sitzt auf einer Bank", "are sitting on a bench", "sitzen auf einer Bank"),
    ("is standing in front of a house", "steht vor einem Haus", "are standing in front of a house", "stehen vor einem Haus"),
    ("is playing with a ball", "spielt mit einem Ball", "are playing with a ball", "spielen mit einem Ball"),
    ("is drinking water", "trinkt Wasser", "are drinking water", "trinken Wasser"),
    ("is jumping over a fence", "springt über einen Zaun", "are jumping over a fence", "springen über einen Zaun"),
    ("is looking at a red car", "schaut auf ein rotes Auto", "are looking at a red car", "schauen auf ein rotes Auto"),
]
WHERE = [
    ("", ""),
    (" in the snow", " im Schnee"),
    (" in the rain", " im Regen"),
    (" in the park", " im Park"),
    (" on the beach", " am Strand"),
    (" in the city", " in der Stadt"),
]
LINES = {"train": 300, "valid": 40}


def sentences():
    for (english, german), (doing, tut, _, _), (where, wo) in itertools.product(SINGULAR, DOING, WHERE):
        yield f"{english} {doing}{where}.", f"{german} {tut}{wo}."
    for (english, german), (_, _, doing, tun), (where, wo) in itertools.product(PLURAL, DOING, WHERE):
        yield f"{english} {doing}{where}.", f"{german} {tun}{wo}."


pairs = list(sentences())
random.Random(1).shuffle(pairs)
for name, count in LINES.items():
    chosen, pairs = pairs[:count], pairs[count:]
    for index, language in enumerate(["en", "de"]):
        text = "".join(pair[index] + "\n" for pair in chosen)
        Path(__file__).with_name(f"{name}.{language}").write_text(text, encoding="utf-8")
