"""A model repository of Triton: its configurations are Triton's messages, and its model of Python answers requests.

Triton itself is not installed; a module stands in for the one that it gives to models of Python.
"""

import importlib.util
import json
import sys
import types

import numpy
import pytest

import cognate

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")


@pytest.fixture(scope="module")
def repository(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "models"
    cognate.export(model, folder, layout="triton")
    return folder


@pytest.mark.parametrize("name", ["encoder", "decoder", "translate"])
def test_configurations(repository, name):
    parsed = text_format.Parse((repository / name / "config.pbtxt").read_text(encoding="utf-8"), model_config.ModelConfig())
    assert parsed.name == name
    file = "model.py" if name == "translate" else "model.onnx"
    assert (repository / name / "1" / file).is_file()


def test_graphs_are_as_configured(repository):
    onnxruntime = pytest.importorskip("onnxruntime")
    types = {"tensor(int64)": "TYPE_INT64", "tensor(float)": "TYPE_FP32"}
    for name in ["encoder", "decoder"]:
        parsed = text_format.Parse((repository / name / "config.pbtxt").read_text(encoding="utf-8"), model_config.ModelConfig())
        session = onnxruntime.InferenceSession(repository / name / "1" / "model.onnx")
        for found, expected in [(parsed.input, session.get_inputs()), (parsed.output, session.get_outputs())]:
            configured = [(value.name, model_config.DataType.Name(value.data_type), list(value.dims)) for value in found]
            sizes = [[size if isinstance(size, int) else -1 for size in value.shape] for value in expected]
            assert configured == [(value.name, types[value.type], size) for value, size in zip(expected, sizes)]


class Tensor:
    def __init__(self, name, values):
        self.name, self.values = name, values

    def as_numpy(self):
        return self.values


class Request:
    def __init__(self, texts, **parameters):
        self.texts, self.options = texts, json.dumps(parameters) if parameters else ""

    def parameters(self):
        return self.options


class InferenceResponse:
    def __init__(self, output_tensors, error=None):
        self.outputs, self.error = {tensor.name: tensor.values for tensor in output_tensors}, error


@pytest.fixture(scope="module")
def served(repository):
    """The model of Python, loaded as Triton loads it."""
    utils = types.ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.InferenceResponse, utils.TritonError = Tensor, InferenceResponse, str
    utils.get_input_tensor_by_name = lambda request, name: Tensor(name, numpy.array(request.texts, dtype=object).reshape(-1, 1))
    sys.modules[utils.__name__] = utils
    spec = importlib.util.spec_from_file_location("model", repository / "translate" / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_repository": str(repository / "translate"), "model_version": "1", "model_name": "translate"})
    yield model
    del sys.modules[utils.__name__]


def test_requests_are_answered(served, translator, sentences):
    texts = [text.encode() for text in sentences[:3]]
    requests = [
        Request(texts[:2]),
        Request(texts, num_beams=4, num_return_sequences=2),
        Request([b"\xff"]),
        Request(texts, colour="red"),
        Request([texts[2], b""]),
    ]
    first, beams, no_text, unknown, last = served.execute(requests)
    assert [text.decode() for text in first.outputs["text_output"][:, 0]] == translator.translate(sentences[:2])
    expected = translator.hypotheses(sentences[:3], num_beams=4, num_return_sequences=2)
    assert [[text.decode() for text in row] for row in beams.outputs["text_output"]] == [[best.text for best in row] for row in expected]
    scores = [[best.score for best in row] for row in expected]
    numpy.testing.assert_allclose(beams.outputs["score"], numpy.array(scores, numpy.float32), rtol=1e-5)
    assert no_text.error.startswith("text_input: ") and "colour" in unknown.error and not unknown.outputs
    assert last.outputs["text_output"][:, 0].tolist() == [translator.translate(sentences[2]).encode(), b""]
    assert last.outputs["score"][1, 0] == 0
