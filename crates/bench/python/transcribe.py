"""faster-whisper from audio to text, for `cargo xtask bench transcribe`.

    python transcribe.py convert CHECKPOINT OUT TYPE                 TYPE is float32 or int8
    python transcribe.py serve FOLDER TYPE THREADS BEAMS BATCH [N]   answers {"files": [...]}; N new tokens without timestamps

CTranslate2's own loader for Whisper gets arrays in place of PyTorch's modules, so that PyTorch is not needed.
"""

import json
import resource
import shutil
import sys
import time
from types import SimpleNamespace


def convert(checkpoint, out, compute_type):
    import numpy
    from ctranslate2.converters import transformers as loaders
    from ctranslate2.converters.converter import Converter
    from safetensors.numpy import load_file
    from text import tree
    from transformers import AutoTokenizer

    loaders.transformers = SimpleNamespace(Conv1D=())
    read = lambda name: SimpleNamespace(**json.load(open(f"{checkpoint}/{name}")))
    arrays = {name: array.astype(numpy.float32) for name, array in load_file(f"{checkpoint}/model.safetensors").items()}
    arrays.setdefault("proj_out.weight", arrays["model.decoder.embed_tokens.weight"])
    model = tree(arrays)
    model.config = model.model.encoder.config = model.model.decoder.config = read("config.json")
    model.generation_config = read("generation_config.json")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)

    class FromCheckpoint(Converter):
        def _load(self):
            return loaders.WhisperLoader()(model, tokenizer)

    FromCheckpoint().convert(out, quantization=None if compute_type == "float32" else compute_type, force=True)
    for name in ["tokenizer.json", "preprocessor_config.json"]:
        shutil.copyfile(f"{checkpoint}/{name}", f"{out}/{name}")


def serve(folder, compute_type, threads, beams, batch, new_tokens=None):
    from harness import answer, requests

    import ctranslate2
    import faster_whisper

    model = faster_whisper.WhisperModel(folder, device="cpu", compute_type=compute_type, cpu_threads=int(threads))
    options = {"beam_size": int(beams), "temperature": 0.0, "condition_on_previous_text": False}
    if int(batch) > 1:
        model = faster_whisper.BatchedInferencePipeline(model)
        options["batch_size"] = int(batch)
    answer(engine=f"faster-whisper {faster_whisper.__version__} (CTranslate2 {ctranslate2.__version__})")
    if new_tokens:
        options.update(max_new_tokens=int(new_tokens), without_timestamps=True)
    for request in requests():
        before, processor = time.perf_counter(), time.process_time()
        found = {"audio_seconds": 0, "texts": []}
        for file in request["files"]:
            segments, info = model.transcribe(file, **options)
            found["texts"].append("".join(segment.text for segment in segments).strip())
            found["audio_seconds"] += info.duration
        found["seconds"], found["processor_seconds"] = time.perf_counter() - before, time.process_time() - processor
        answer(peak_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, **found)


if __name__ == "__main__":
    {"convert": convert, "serve": serve}[sys.argv[1]](*sys.argv[2:])
