"""MNN on the CPU: each graph is converted by the package's converter and run by its Python API.

The converter is not called through `MNN.tools`, whose import installs a logging package and reports conversions to the vendor.
"""

import os
import sys
import tempfile
from importlib.metadata import version

# MNN prints to standard output until the process ends; redirected, so that the answer is the last line.
sys.stdout = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import MNN.expr as expr
import MNN.nn as nn
import numpy as np
from _tools import mnnconvert

from cell import answer
from layouts import measure, names

TYPES = {np.dtype(np.float32): expr.float, np.dtype(np.int64): expr.int, np.dtype(bool): expr.int}


class Session:
    def __init__(self, path):
        self.inputs, self.outputs = names(path)
        with tempfile.TemporaryDirectory() as folder:
            converted = os.path.join(folder, "graph.mnn")
            mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", converted, "--bizCode", "interop"])
            if not os.path.exists(converted):
                raise RuntimeError(f"the converter rejects {os.path.basename(path)}")
            self.module = nn.load_module_from_file(converted, self.inputs, self.outputs)

    def run(self, feeds):
        variables = []
        for name in self.inputs:
            value = feeds[name]
            # MNN does not support i64.
            number = int if value.dtype != np.float32 else float
            variables.append(expr.const([number(x) for x in value.ravel()], list(value.shape), expr.NCHW, TYPES[value.dtype]))
        results = self.module.forward(variables)
        # The reason is only on standard error.
        if len(results) < len(self.outputs):
            raise RuntimeError(f"expected {len(self.outputs)} outputs, found {len(results)}")
        return {name: result.read().copy() for name, result in zip(self.outputs, results)}


answer(f"MNN {version('MNN')}", lambda cell: measure(Session, cell))
