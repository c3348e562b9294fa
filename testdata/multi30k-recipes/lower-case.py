"""Lower-cases, normalises and tokenises the text of Multi30k as in its files *.lc.norm.tok.*.

    pip install sacremoses==0.2.0
    python lower-case.py FOLDER fr     writes FOLDER/train.lc.norm.tok.fr and the like, from FOLDER/train.fr

Of the 64,950 lines in English and German that the data set has in both forms, 8 differ, by a quotation mark or what follows one.
"""

import pathlib
import sys

from sacremoses import MosesPunctNormalizer, MosesTokenizer

folder, language = pathlib.Path(sys.argv[1]), sys.argv[2]
normaliser, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
for name in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
    lines = (folder / f"{name}.{language}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    texts = (tokenizer.tokenize(normaliser.normalize(line.lower()), return_str=True) for line in lines)
    with open(folder / f"{name}.lc.norm.tok.{language}", "w", encoding="utf-8", newline="\n") as out:
        out.writelines(text + "\n" for text in texts)
