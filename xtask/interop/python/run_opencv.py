"""OpenCV's `dnn` module on the CPU, with its default engine."""

import cv2
import numpy as np

from cell import answer
from layouts import measure, names


class Session:
    def __init__(self, path):
        self.inputs, self.outputs = names(path)
        try:
            self.net = cv2.dnn.readNetFromONNX(path)
        except cv2.error as error:
            raise RuntimeError(said(error)) from None

    def run(self, feeds):
        try:
            for name in self.inputs:
                self.net.setInput(np.ascontiguousarray(feeds[name]), name)
            results = self.net.forward(self.outputs)
        except cv2.error as error:
            raise RuntimeError(said(error)) from None
        missing = [name for name, result in zip(self.outputs, results) if result is None]
        if missing:
            raise RuntimeError(f"missing output {missing[0]} and {len(missing) - 1} others")
        return {name: result.copy() for name, result in zip(self.outputs, results)}


def said(error):
    """The first line of the message, without the position in OpenCV's sources."""
    return f"{error.func.split('(')[0]}: {error.err.lstrip('> ').splitlines()[0]}".replace("virtual void ", "")


answer(f"OpenCV {cv2.__version__}", lambda cell: measure(Session, cell))
