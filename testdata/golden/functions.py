"""PyTorch's values of activations and relative position buckets: activations.json and buckets.json."""

import json

import torch
from transformers.activations import ACT2FN
from transformers.models.t5.modeling_t5 import T5Attention

# These have parameters, which would be in a checkpoint.
LEARNED = ("prelu", "xielu")
POINTS = [*(round(-6 + 0.6 * i, 1) for i in range(21)), -12.0, 12.0]
# Number of buckets, largest distance.
BUCKETS = [
    (32, 128),
    (32, 64),
    (12, 20),
    (7, 13),
    (8, 200),
    (9, 11),
    (4, 5),
    (16, 1000),
    (33, 100),
    (64, 256),
    (20, 300),
]
DISTANCES = range(-300, 301)


def activations():
    x = torch.tensor(POINTS, dtype=torch.float64)
    values = {name: ACT2FN[name](x).tolist() for name in sorted(ACT2FN) if name not in LEARNED}
    return {"x": POINTS, "activations": values}


def buckets():
    distances = torch.tensor(DISTANCES)
    cases = []
    for count, limit in BUCKETS:
        for side, bidirectional in (("encoder", True), ("decoder", False)):
            found = T5Attention._relative_position_bucket(
                distances, bidirectional=bidirectional, num_buckets=count, max_distance=limit
            )
            cases.append(dict(num_buckets=count, max_distance=limit, side=side, buckets=found.tolist()))
    return {"key_minus_query": [DISTANCES.start, DISTANCES.stop - 1], "cases": cases}


def texts():
    """One line for each function and case, so that changes are readable."""
    for file, value in (("activations.json", activations()), ("buckets.json", buckets())):
        text = json.dumps(value, separators=(",", ":"))
        for opening in ('{"num_buckets"', *(f'"{name}":' for name in sorted(ACT2FN))):
            text = text.replace(opening, "\n" + opening)
        yield file, text + "\n"


def write(folder):
    for file, text in texts():
        (folder / file).write_text(text)
    return 0


def check(folder):
    """Whether a file differs from PyTorch's current values."""
    failed = False
    for file, text in texts():
        if (folder / file).read_text() != text:
            failed = True
            print(f"{file} differs")
    return failed
