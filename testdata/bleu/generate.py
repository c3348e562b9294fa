"""Writes cases.json: sacreBLEU's words and scores for hard sentences.

    python3 -m venv venv && venv/bin/pip install sacrebleu==2.6.0
    venv/bin/python generate.py
"""

import json
import random
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

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
    """Corpora of random hard words; the reference repeats most of the hypothesis."""
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
    cases = {
        "signature": str(metric.get_signature()),
        "words": [[sentence, words(sentence.rstrip())] for sentence in sentences],
        "corpora": corpora,
    }
    text = json.dumps(cases, ensure_ascii=True, indent=1)
    Path(__file__).with_name("cases.json").write_text(text + "\n")


main()
