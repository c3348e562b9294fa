"""Writes transformers-5.json: the configuration that transformers 5 saves for models of this repository, by folder.

    pip install torch==2.15.0 transformers==5.24.0
    python transformers_5.py

Asserts that it saves the weights that it has read, so that the model is the same.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = "5.24.0"
FOLDERS = [
    "decoders/*",
    "encoders/bert",
    "encoders/bert-masked",
    "encoders/deit-teacher",
    "encoders/distilbert",
    "encoders/mpnet",
    "encoders/roberta-masked",
    "encoders/t5",
    "encoders/umt5",
    "encoders/vit",
    "encoders/xlm-roberta-tokens",
    "golden/*",
    "golden/images/*",
    "golden/speech/*",
    "golden/strange/bert-bert",
    "golden/strange/bert-generation",
    "golden/strange/blenderbot-small",
    "golden/strange/byt5",
    "golden/strange/distilbert-gpt2",
    "golden/strange/mt5-defaults",
    "golden/strange/mt5-tied",
    "golden/strange/plbart",
    "golden/strange/roberta-roberta",
    "golden/strange/t5-gated-tied",
    "golden/strange/umt5-*",
]


def saved(source):
    """The config.json that transformers saves for the model in `source`."""
    architecture = json.loads((source / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(source)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        before, after = load_file(source / "model.safetensors"), load_file(f"{folder}/model.safetensors")
        for name in before.keys() & after.keys():
            assert torch.equal(before[name], after[name]), (source, name)
        return json.loads(pathlib.Path(folder, "config.json").read_text())


def main():
    if transformers.__version__ != TRANSFORMERS:
        sys.exit(f"transformers {transformers.__version__} is installed; expected {TRANSFORMERS}")
    sources = [path for pattern in FOLDERS for path in sorted(HERE.parent.glob(f"{pattern}/config.json"))]
    lines = [f'"{path.parent.relative_to(HERE.parent)}": {json.dumps(saved(path.parent))}' for path in sources]
    (HERE / "transformers-5.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
