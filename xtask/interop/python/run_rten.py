"""rten, a runtime in pure Rust: each graph is a process of the program RTEN_DRIVER (`interop/rten`)."""

import json
import os
import subprocess

import numpy as np
from safetensors.numpy import load, save

from cell import answer
from layouts import measure


class Session:
    def __init__(self, path):
        self.process = subprocess.Popen([os.environ["RTEN_DRIVER"], path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.inputs = json.loads(self.receive())

    def run(self, feeds):
        # rten converts ONNX's i64 to i32.
        arrays = {name: np.ascontiguousarray(value, np.float32 if value.dtype == np.float32 else np.int32) for name, value in feeds.items()}
        message = save(arrays)
        try:
            self.process.stdin.write(len(message).to_bytes(8, "little") + message)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # `receive` reads the reason
        return load(self.receive())

    def receive(self):
        length = self.process.stdout.read(8)
        if len(length) < 8:
            raise RuntimeError(self.process.stderr.read().decode().strip())
        return self.process.stdout.read(int.from_bytes(length, "little"))


answer("rten 0.27.0", lambda cell: measure(Session, cell))
