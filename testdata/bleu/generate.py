"""Writes cases.json: sacreBLEU's words and scores for difficult sentences.

    python3 -m venv venv && venv/bin/pip install sacrebleu==2.6.0
    venv/bin/python generate.py
"""

import json
import os
import random
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_char import TokenizerChar
from sacrebleu.tokenizers.tokenizer_intl import TokenizerV14International

assert sacrebleu.__version__ == "2.6.0", sacrebleu.__version__

SENTENCES = [
    "",
    " ",
    "Hello, world!",
    "Ein Mann (links) sagt: „Hallo“ – und geht…",
    "It's 3.14, not 3,14; 1,000.50 or .5 or 5. and ,5 and 5,",
    "a.b,c a..b ... ,,, .,. 1..2 1,,2",
    "U.S. and e.g. i.e.",
    "5-year 1990-2000 well-known -5 a-1 1-a - -- 7--8",
    "&quot;quoted&quot; &amp; &lt;b&gt; &amp;lt; &apos; & &amp",
    "<skipped>a <skipped> b<skip ped>",
    "100% of $5.00 @home #1 a*b=c^d ~x_y `z` {|} [\\] <a/b>",
    "tabs\tand  spaces\u00a0nbsp\u2009thin\u3000wide",
    "separators\x1cfile\x1dgroup\x1erecord\x1funit\x85next\u2028line\u200bzero",
    "trailing space \t\x1f\u00a0",
    "hyphen-\nbroken and new\nline\n",
    "日本語。テスト、です. 5。5",
    "emoji 😀,😀.😀 e\u0301 café ½,½ ٣.٣ ²,²",
    "nul\x00byte \x00",
    "'single' don't \u2019s 'tis",
    "Größe, Straße.",
    ".",
    "-",
    ", . , .",
    "1.",
    "1,",
    "x.1 1.x x,1 1,x",
]

DOGS = "Zwei Hunde spielen im Schnee."
CORPORA = [
    ("equal", [DOGS], [DOGS]),
    ("one word differs", [DOGS], ["Zwei Hunde spielen im Gras."]),
    ("case counts", ["zwei hunde spielen im schnee."], [DOGS]),
    ("shorter", ["Zwei Hunde spielen."], [DOGS]),
    ("longer", ["Zwei große braune Hunde spielen heute im Schnee."], [DOGS]),
    ("no match", ["Ein Mann geht"], [DOGS]),
    ("one word matches", ["Ein Mann geht im Park"], [DOGS]),
    ("two words match apart", ["Hunde und Schnee gehen wir"], [DOGS]),
    ("three words, no 4-gram", ["Zwei Hunde spielen"], [DOGS]),
    ("one word", ["Zwei"], ["Zwei"]),
    ("empty hypothesis", [""], [DOGS]),
    ("empty reference", [DOGS], [""]),
    ("both empty", [""], [""]),
    ("empty lines among others", [DOGS, "", "Ein Mann."], [DOGS, "Ein Hut.", ""]),
    ("repeated words are clipped", ["the the the the the the the"], ["the cat is on the mat"]),
    ("entities", ["&quot;A&quot; &amp; B &lt;c&gt;"], ['"A" & B <c>']),
    ("numbers", ["1,000.5 is 3.14 and 5. end"], ["1,000.5 is 3,14 and 5 . end"]),
    ("hyphens", ["a 5-year-old and 1990-2000"], ["a 5 - year-old and 1990 -2000"]),
    ("white space", ["a\tb\u00a0c  d\x1fe "], ["a b c d e"]),
    ("unicode is not folded", ["cafe\u0301 ﬁne"], ["café fine"]),
    ("sentences add up", [DOGS, "Ein Mann geht."], ["Zwei Hunde laufen im Schnee.", "Ein Mann geht nach Hause."]),
]


def random_corpora(count: int):
    """Corpora of random difficult words; the reference repeats most of the hypothesis."""
    rng = random.Random(20260701)
    words = "a b the Hund . , - 5 5, 5. 1.5 2-3 x-y &amp; &quot; ( ) „ “ ' don't % \u00a0 😀 ß ... <skipped> / : ½".split(" ")
    for index in range(count):
        hypotheses, references = [], []
        for _ in range(rng.randint(1, 4)):
            hypothesis = [rng.choice(words) for _ in range(rng.randint(0, 14))]
            reference = [rng.choice(words) if rng.random() < 0.3 else word for word in hypothesis]
            if rng.random() < 0.5:
                reference += [rng.choice(words) for _ in range(rng.randint(0, 4))]
            for sentences, chosen in ((hypotheses, hypothesis), (references, reference)):
                sentences.append("".join(word + rng.choice(["", " ", " ", " "]) for word in chosen))
        yield f"random {index}", hypotheses, references


BLEUS = [
    {},
    *({"tokenize": way, "lowercase": lowercase} for way in ("13a", "intl", "char", "none") for lowercase in (False, True)),
    *({"smooth_method": method} for method in ("none", "floor", "add-k")),
    {"smooth_method": "floor", "smooth_value": 0.37},
    {"smooth_method": "add-k", "smooth_value": 2.5},
    {"smooth_method": "floor", "effective_order": True},
    {"effective_order": True},
]
CHRFS = [
    {},
    {"word_order": 2},
    {"lowercase": True},
    {"whitespace": True, "word_order": 1},
    {"char_order": 4, "beta": 3, "word_order": 2, "lowercase": True},
]


def systems():
    """Three systems of different quality for difficult lines with two references; and two similar ones, for resampling."""
    rng = random.Random(20260702)
    words = (
        "a b the The Hund HUND . , - 5 5, 5. 1.5 2-3 x-y &amp; &quot; ( ) „ “ ' don't % \u00a0 😀 ß ẞ İ ... / : ½ 日本語。 ١٫٥ €5 5€ (hi) .5 5.% a+b «x»"
        " — ‑ Σας ΣΑΣ e\u0301 \u200b straße STRASSE No. U.S. $ ^ ` \x1f"
    ).split(" ")
    sentence = lambda: [rng.choice(words) for _ in range(rng.choice([0, 1, 2, 3, 8, 8, 12, 20]))]
    changed = lambda line, share: [rng.choice(words) if rng.random() < share else word for word in line if rng.random() > share / 3]
    joined = lambda line: "".join(word + rng.choice(["", " ", " ", " ", " "]) for word in line).rstrip()
    lines = [sentence() for _ in range(60)]
    references = [[joined(changed(line, share)) for line in lines] for share in (0.1, 0.4)]
    hypotheses = [[joined(changed(line, share)) for line in lines] for share in (0.2, 0.3, 0.8)]
    scores = []
    for kind, options in [*(("bleu", options) for options in BLEUS), *(("chrf", options) for options in CHRFS)]:
        metric = (BLEU if kind == "bleu" else CHRF)(**options)
        for n_references in (1, 2):
            found = [metric.corpus_score(system, references[:n_references]) for system in hypotheses]
            signature = str(metric.get_signature())
            sentences = [metric.sentence_score(line, [reference[index] for reference in references[:n_references]]).score
                         for index, line in enumerate(hypotheses[0])]
            scores.append({
                "metric": kind, "options": options, "references": n_references, "signature": signature,
                "scores": [score.score for score in found],
                "lines": [score.format(signature=signature) for score in found],
                "sentences": sentences,
            })
    paired = []
    # Lengths for all branches of numpy's sums.
    for n_samples, seed, n_references in ((1000, 12345, 1), (300, 12345, 2), (100, 987654321987654321, 1), (7, 5, 1)):
        os.environ["SACREBLEU_SEED"] = str(seed)
        metrics = {"BLEU": BLEU(), "BLEU-add": BLEU(smooth_method="add-k", lowercase=True), "CHRF": CHRF(), "CHRF++": CHRF(word_order=2)}
        for metric in metrics.values():
            # Two metrics need two names.
            named = [(f"system {index}", system) for index, system in enumerate([*hypotheses, hypotheses[0]])]
            signatures, results = PairedTest(named, {"one": metric}, references[:n_references], "bs", n_samples)()
            (name, signature), = signatures.items()
            paired.append({
                "samples": n_samples, "seed": seed, "references": n_references, "name": name, "signature": str(signature),
                "options": {"smooth_method": "add-k", "lowercase": True} if metric is metrics["BLEU-add"]
                else {"word_order": 2} if metric is metrics["CHRF++"] else {},
                "results": [[result.score, result.mean, result.ci, result.p_value] for result in results[name]],
            })
    to_float = lambda value: None if value is None else float(value)
    for row in paired:
        row["results"] = [[to_float(value) for value in result] for result in row["results"]]
    return {"references": references, "hypotheses": hypotheses, "scores": scores, "paired": paired}


def main():
    words = Tokenizer13a()
    metric = BLEU()
    corpora = []
    for name, hypotheses, references in [*CORPORA, *random_corpora(60)]:
        bleu = metric.corpus_score(hypotheses, [references])
        corpora.append({
            "name": name,
            "hypotheses": hypotheses,
            "references": references,
            "score": bleu.score,
            "precisions": bleu.precisions,
            "brevity_penalty": bleu.bp,
            "sys_len": bleu.sys_len,
            "ref_len": bleu.ref_len,
            "display": str(bleu),
        })
    random_sentences = [s for corpus in corpora if corpus["name"].startswith("random") for s in corpus["hypotheses"]]
    sentences = [*SENTENCES, *random_sentences]
    ways = {"13a": words, "intl": TokenizerV14International(), "char": TokenizerChar()}
    cases = {
        "signature": str(metric.get_signature()),
        # Split at white space, as for BLEU.
        "words": {
            name: [[sentence, " ".join(way(sentence.rstrip()).split())] for sentence in sentences] for name, way in ways.items()
        },
        "corpora": corpora,
    }
    for name, content in (("cases.json", cases), ("systems.json", systems())):
        Path(__file__).with_name(name).write_text(json.dumps(content, ensure_ascii=True, indent=1) + "\n")


main()
