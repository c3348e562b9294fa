"""Converts a checkpoint for another engine, for `cargo xtask bench decode`.

    python convert.py KIND CHECKPOINT OUT

The checkpoints have no tokenizer: CTranslate2's converter gets generated words, `t5` for token 5.
"""

import glob
import os
import sys

import ctranslate2
import torch
from ctranslate2.converters import transformers as loaders
from ctranslate2.converters.converter import Converter
from transformers import AutoConfig, AutoModelForSeq2SeqLM, WhisperForConditionalGeneration

from words import Words

LOADERS = {"marian": loaders.MarianMTLoader, "m2m_100": loaders.M2M100Loader, "t5": loaders.T5Loader, "whisper": loaders.WhisperLoader}


class FromCheckpoint(Converter):
    def __init__(self, folder):
        self.folder = folder

    def _load(self):
        is_speech = AutoConfig.from_pretrained(self.folder).model_type == "whisper"
        model = (WhisperForConditionalGeneration if is_speech else AutoModelForSeq2SeqLM).from_pretrained(self.folder).eval()
        with torch.no_grad():
            return LOADERS[model.config.model_type]()(model, Words(model.config))


def optimum(folder, out):
    from optimum.exporters.onnx import main_export

    main_export(folder, output=out, task="text2text-generation-with-past", do_validation=False)


def optimum_int8(folder, out):
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    optimum(folder, out)
    for name in ["encoder_model", "decoder_model", "decoder_with_past_model"]:
        quantizer = ORTQuantizer.from_pretrained(out, file_name=f"{name}.onnx")
        config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
        quantizer.quantize(save_dir=out, quantization_config=config, file_suffix="int8")
    for path in glob.glob(f"{out}/*.onnx"):
        if not path.endswith("_int8.onnx"):
            os.remove(path)


KINDS = {
    "ctranslate2": lambda folder, out: FromCheckpoint(folder).convert(out),
    "ctranslate2-int8": lambda folder, out: FromCheckpoint(folder).convert(out, quantization="int8"),
    "optimum": optimum,
    "optimum-int8": optimum_int8,
}

if __name__ == "__main__":
    kind, folder, out = sys.argv[1:]
    KINDS[kind](folder, out)
