"""OpenVINO on the CPU, set to f32: it would use bf16 if the processor supports it."""

import openvino

from cell import answer
from layouts import measure

CORE = openvino.Core()


class Session:
    def __init__(self, path):
        try:
            self.model = CORE.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        except RuntimeError as error:
            # Other lines contain positions in OpenVINO's sources.
            lines = [line for line in str(error).splitlines() if line and not line.startswith("Exception from")]
            raise RuntimeError(" ".join(lines)) from None
        self.inputs = [value.get_any_name() for value in self.model.inputs]

    def run(self, feeds):
        results = self.model(feeds)
        return {value.get_any_name(): results[value].copy() for value in self.model.outputs}


answer(f"openvino {openvino.__version__.split('-')[0]}", lambda cell: measure(Session, cell))
