"""The wheel and CTranslate2 from text to text, for `cargo xtask bench wheel`.

    python wheel.py export CHECKPOINT OUT PRECISION
    python wheel.py Cognate FOLDER BEAMS THREADS                         answers {"lines": [...]}
    python wheel.py CTranslate2 FOLDER TOKENIZER TYPE BEAMS THREADS      the same
"""

import json
import os
import sys
import time

BATCH_TOKENS = 2048


def cognate_translator(folder, beams, threads):
    import cognate

    translator = cognate.Translator(folder, num_beams=int(beams), workers=int(threads), threads=1, batch_tokens=BATCH_TOKENS)
    return translator.engine, translator.translate


def ctranslate2_translator(folder, tokenizer, compute_type, beams, threads):
    # Threads of the tokenizer.
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if int(threads) > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = threads
    import ctranslate2

    from text import Text

    text = Text(folder, tokenizer, compute_type, beams, "exact", threads)
    return f"CTranslate2 {ctranslate2.__version__}", lambda lines: text.translate(lines, BATCH_TOKENS)


def answer(engine, translate):
    print(json.dumps({"engine": engine}), flush=True)
    for request in sys.stdin:
        lines = json.loads(request)["lines"]
        wall, processor = time.perf_counter(), time.process_time()
        texts = translate(lines)
        seconds = [time.perf_counter() - wall]
        print(json.dumps({"seconds": seconds, "processor_seconds": time.process_time() - processor, "texts": texts}), flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "export":
        import cognate

        model, out, precision = arguments
        cognate.export(model, out, precision=precision, target="ort", force=True)
    else:
        answer(*{"Cognate": cognate_translator, "CTranslate2": ctranslate2_translator}[command](*arguments))
