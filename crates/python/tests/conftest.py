"""Fixtures: the bundled model, the command, and sentences.

`cargo xtask test --full` builds the wheel, installs it and runs this suite. `COGNATE_COMMAND` names the command.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import cognate

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "testdata" / "multi30k-en-de"


@pytest.fixture(scope="session")
def model() -> str:
    return str(MODEL)


@pytest.fixture(scope="session")
def speech_model(tmp_path_factory) -> str:
    """A small seeded model with windows of one second."""
    folder = tmp_path_factory.mktemp("speech")
    golden = ROOT / "testdata" / "golden" / "speech"
    for name in ["config.json", "generation_config.json", "model.safetensors"]:
        shutil.copy(golden / "whisper" / name, folder)
    for name in ["tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"]:
        shutil.copy(golden / "tokens" / name, folder)
    return str(folder)


@pytest.fixture(scope="session")
def clip() -> Path:
    return ROOT / "testdata" / "audio" / "clip-float.wav"


@pytest.fixture(scope="session")
def translator(model: str) -> cognate.Translator:
    return cognate.Translator(model)


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    return (ROOT / "testdata" / "parallel" / "valid.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def command():
    """Runs the command and returns its output's lines."""
    program = os.environ.get("COGNATE_COMMAND")
    if not program:
        pytest.skip("COGNATE_COMMAND does not name the command")

    def run(*arguments: str, text: list[str] = ()) -> list[str]:
        done = subprocess.run(
            [program, *arguments], input="".join(line + "\n" for line in text), capture_output=True, encoding="utf-8", check=True
        )
        return done.stdout.splitlines()

    return run
