"""CTranslate2 from text to text, for `cargo xtask bench text`.

    python text.py convert CHECKPOINT OUT TYPE         TYPE is float32 or int8
    python text.py file FOLDER TOKENIZER TYPE BEAMS SHORTLIST WORKERS BATCH_TOKENS < TEXT > TRANSLATIONS
    python text.py serve FOLDER TOKENIZER TYPE BEAMS SHORTLIST   answers {"lines": [...]}, one line of text after the other

SHORTLIST is `exact`, or `shortlist` for that in the folder's vmap.txt.

The checkpoint is read by CTranslate2's own loader for Marian, with two changes: it takes the last row of the embeddings for the
padding and drops it, and starts from zeros; here padding is another token, from which decoding starts. The loader gets arrays in
place of PyTorch's modules, so that PyTorch is not needed.
"""

import json
import os
import sys
import time
from types import SimpleNamespace

import ctranslate2
import numpy
from tokenizers import Tokenizer


def tree(arrays):
    """Modules by the names of their arrays; those in numbers become lists."""
    found = {}
    for name, array in arrays.items():
        *path, last = name.split(".")
        here = found
        for part in path:
            here = here.setdefault(part, {})
        here[last] = array

    def node(value):
        if not isinstance(value, dict):
            return value
        if all(key.isdigit() for key in value):
            return [node(value[key]) for key in sorted(value, key=int)]
        return SimpleNamespace(**{key: node(inner) for key, inner in value.items()})

    return node(found)


def sinusoids(places, width):
    angles = numpy.arange(places)[:, None] / numpy.power(10000, 2 * numpy.arange(width // 2) / width)[None]
    return numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1).astype(numpy.float32)


def convert(checkpoint, out, compute_type):
    from ctranslate2.converters import transformers as loaders
    from ctranslate2.converters.converter import Converter
    from safetensors.numpy import load_file

    loaders.transformers = SimpleNamespace(Conv1D=())
    config = SimpleNamespace(**json.load(open(f"{checkpoint}/config.json")))
    arrays = load_file(f"{checkpoint}/model.safetensors")
    shared = arrays["model.shared.weight"]
    for side in ["encoder", "decoder"]:
        arrays.setdefault(f"model.{side}.embed_tokens.weight", shared)
        arrays.setdefault(f"model.{side}.embed_positions.weight", sinusoids(config.max_position_embeddings, config.d_model))
    arrays.setdefault("lm_head.weight", shared)
    bias = arrays.pop("final_logits_bias", None)
    model = tree(arrays)
    model.config = config
    model.model.encoder.config = model.model.decoder.config = config
    names = json.load(open(f"{checkpoint}/tokenizer.json"))["model"]["vocab"]
    words = [name[0] for name in names] if isinstance(names, list) else sorted(names, key=names.get)
    words += [f"<unused{index}>" for index in range(len(words), config.vocab_size)]
    tokenizer = SimpleNamespace(
        bos_token=words[config.decoder_start_token_id],
        eos_token=words[config.eos_token_id],
        unk_token="<unk>",
        get_vocab=lambda: {word: index for index, word in enumerate(words)},
        convert_ids_to_tokens=lambda index: words[index],
    )

    class Loader(loaders.MarianMTLoader):
        set_config = loaders.BartLoader.set_config
        set_decoder = loaders.BartLoader.set_decoder
        get_vocabulary = loaders.BartLoader.get_vocabulary

        def _remove_pad_weights(self, spec):
            if bias is not None and bias.any():
                spec.decoder.projection.bias = bias.reshape(-1)

    class FromCheckpoint(Converter):
        def _load(self):
            return Loader()(model, tokenizer)

    FromCheckpoint().convert(out, quantization=None if compute_type == "float32" else compute_type, force=True)


class Text:
    def __init__(self, folder, tokenizer, compute_type, beams, shortlist, workers=1):
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        # The start token counts there.
        limit = json.load(open(os.path.join(os.path.dirname(tokenizer), "generation_config.json")))["max_length"] - 1
        self.options = {"beam_size": int(beams), "use_vmap": shortlist == "shortlist", "max_decoding_length": limit}
        threads = {"inter_threads": int(workers), "intra_threads": 1}
        self.translator = ctranslate2.Translator(folder, device="cpu", compute_type=compute_type, **threads)

    def translate(self, lines, batch_tokens):
        sources = [encoding.tokens for encoding in self.tokenizer.encode_batch(lines)]
        limits = {"max_batch_size": batch_tokens, "batch_type": "tokens"} if batch_tokens else {}
        found = self.translator.translate_batch(sources, **self.options, **limits)
        token = self.tokenizer.token_to_id
        return self.tokenizer.decode_batch([[token(word) for word in result.hypotheses[0]] for result in found])


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if command == "convert":
        convert(*arguments)
    elif command == "file":
        *model, workers, batch_tokens = arguments
        lines = sys.stdin.read().splitlines()
        for line in Text(*model, workers).translate(lines, int(batch_tokens)):
            print(line)
    else:
        text = Text(*arguments)
        print(json.dumps({"engine": f"CTranslate2 {ctranslate2.__version__}"}), flush=True)
        for request in sys.stdin:
            answer = {"seconds": [], "processor_seconds": time.process_time(), "texts": []}
            for line in json.loads(request)["lines"]:
                before = time.perf_counter()
                answer["texts"] += text.translate([line], 0)
                answer["seconds"].append(time.perf_counter() - before)
            answer["processor_seconds"] = time.process_time() - answer["processor_seconds"]
            print(json.dumps(answer), flush=True)
