"""ONNX Runtime's Python package on the CPU, with default settings."""

import onnxruntime

from cell import answer
from layouts import measure


class Session:
    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, feeds):
        return dict(zip(self.outputs, self.session.run(None, feeds)))


answer(f"onnxruntime {onnxruntime.__version__}", lambda cell: measure(Session, cell))
