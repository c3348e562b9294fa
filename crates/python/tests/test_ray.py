"""The examples of Ray, on one machine."""

import importlib.util
import json
import urllib.request

import pytest

from conftest import ROOT

ray = pytest.importorskip("ray")


def example(name: str):
    path = ROOT / "crates" / "python" / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_data(translator, model, sentences, tmp_path):
    text = tmp_path / "text.en"
    text.write_text("\n".join(sentences), encoding="utf-8")
    example("ray_data").translate(model, str(text), str(tmp_path / "out"))
    rows = ray.data.read_parquet(str(tmp_path / "out")).take_all()
    assert {row["text"]: row["translation"] for row in rows} == dict(zip(sentences, translator.translate(sentences)))


def test_serve(translator, model):
    serve = pytest.importorskip("ray.serve")
    serve.run(example("ray_serve").Translation.bind(model))
    try:
        text = "A man is riding a bicycle."
        request = urllib.request.Request("http://127.0.0.1:8000/", json.dumps({"text": text}).encode())
        assert json.load(urllib.request.urlopen(request, timeout=60)) == {"translation": translator.translate(text)}
    finally:
        serve.shutdown()
