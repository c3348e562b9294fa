"""An engine that answers requests, for `cargo xtask bench decode`.

    python serve.py KIND FOLDER THREADS [cpu | cuda | cuda:1]

A request is {"sources": [[5, 6, 0]], "beams": 4, "new_tokens": 32}, each source with its end token; of a speech model it is {"windows": 8,
"prompt": [50259], ...}, windows of random frames and the tokens after the start token. The first answer is the engine.
Each sentence gets exactly `new_tokens` tokens: the end token is forbidden until then. PyTorch and Optimum also answer
{"sources": [[5, 6, 0], [7, 0]], "beams": 4, "batch": 1}, by the tokens of each sentence up to its end token.
"""

import os
import sys
import time

from harness import answer, requests

kind, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
started = time.perf_counter()


def transformers_generate(model):
    """PyTorch's and Optimum's models have the same `generate`."""
    import torch

    torch.set_num_threads(threads)
    model.generation_config.forced_bos_token_id = None
    model.generation_config.forced_eos_token_id = None
    model.generation_config.bad_words_ids = None

    def call(sources, beams, new_tokens):
        with torch.inference_mode():
            longest = max(map(len, sources))
            padding = [[model.config.pad_token_id] * (longest - len(source)) for source in sources]
            ids = torch.tensor([source + pad for source, pad in zip(sources, padding)], device=device)
            mask = torch.tensor([[1] * len(source) + [0] * len(pad) for source, pad in zip(sources, padding)], device=device)
            limits = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens} if new_tokens else {}
            found = model.generate(input_ids=ids, attention_mask=mask, num_beams=beams, do_sample=False, **limits)
            # Without the start token.
            return found[:, 1:].tolist()

    return call


def pytorch(precision):
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval().to(device, getattr(torch, precision))
    return f"PyTorch {torch.__version__.split('+')[0]}", transformers_generate(model)


def optimum(names):
    from importlib.metadata import version

    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    model = ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options, **names)
    return f"optimum-onnx {version('optimum-onnx')} on onnxruntime {onnxruntime.__version__}", transformers_generate(model)


def ctranslate2(compute_type):
    import ctranslate2
    from transformers import AutoConfig

    from words import Words

    config = AutoConfig.from_pretrained(os.path.dirname(folder) + "/checkpoint")
    if config.model_type == "whisper":
        return whisper(config, compute_type)
    words = Words(config)
    processor, _, number = device.partition(":")
    translator = ctranslate2.Translator(
        folder, device=processor, device_index=int(number or 0), inter_threads=1, intra_threads=threads, compute_type=compute_type
    )

    def call(sources, beams, new_tokens):
        limits = {"min_decoding_length": new_tokens, "max_decoding_length": new_tokens}
        found = translator.translate_batch([[words.words[token] for token in source] for source in sources], beam_size=beams, **limits)
        return [result.hypotheses[0] for result in found]

    return f"CTranslate2 {ctranslate2.__version__}", call


def whisper(config, compute_type):
    import ctranslate2
    import numpy

    processor, _, number = device.partition(":")
    model = ctranslate2.models.Whisper(
        folder, device=processor, device_index=int(number or 0), inter_threads=1, intra_threads=threads, compute_type=compute_type
    )
    frames = {}

    def call(windows, prompt, beams, new_tokens):
        if windows not in frames:
            shape = (windows, config.num_mel_bins, 2 * config.max_source_positions)
            frames[windows] = numpy.random.default_rng(1).uniform(-1, 1, shape).astype(numpy.float32)
        # At most half of `max_length` are new tokens.
        limits = {"max_length": 2 * new_tokens, "suppress_tokens": [config.eos_token_id], "suppress_blank": False}
        prompts = [[config.decoder_start_token_id, *prompt]] * windows
        found = model.generate(ctranslate2.StorageView.from_array(frames[windows]), prompts, beam_size=beams, **limits)
        return [result.sequences_ids[0] for result in found]

    return f"CTranslate2 {ctranslate2.__version__}", call


INT8 = {
    "encoder_file_name": "encoder_model_int8.onnx",
    "decoder_file_name": "decoder_model_int8.onnx",
    "decoder_with_past_file_name": "decoder_with_past_model_int8.onnx",
    "use_merged": False,
}
KINDS = {
    "pytorch": lambda: pytorch("float32"),
    "pytorch-float16": lambda: pytorch("float16"),
    "optimum": lambda: optimum({}),
    "optimum-int8": lambda: optimum(INT8),
    "ctranslate2": lambda: ctranslate2("float32"),
    "ctranslate2-int8": lambda: ctranslate2("int8"),
    "ctranslate2-float16": lambda: ctranslate2("float16"),
}

engine, call = KINDS[kind]()
answer(engine=engine, load_seconds=time.perf_counter() - started)
for request in requests():
    sources, limit = request.get("sources", []), request.get("new_tokens")
    before, processor = time.perf_counter(), time.process_time()
    batch = request.get("batch", len(sources))
    if "windows" in request:
        found = call(request["windows"], request["prompt"], request["beams"], limit)
    else:
        found = [tokens for first in range(0, len(sources), batch) for tokens in call(sources[first : first + batch], request["beams"], limit)]
    seconds, processor = time.perf_counter() - before, time.process_time() - processor
    if limit:
        answer(seconds=seconds, tokens=sum(len(tokens) for tokens in found))
    else:
        answer(seconds=seconds, processor_seconds=processor, found=found)
