"""What this machine can do at most, for `cargo xtask bench decode`: bytes read and products summed in a second.

    python limits.py THREADS
"""

import json
import sys
import time

import torch

ROUNDS = 7


def best(work, amount):
    work()
    seconds = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - before)
    return amount / min(seconds)


torch.set_num_threads(int(sys.argv[1]))
# Beyond every cache.
long = torch.ones(1 << 27)
table, vector = torch.ones(1 << 14, 1 << 13), torch.ones(1 << 13)
square, size = torch.rand(2048, 2048), 2048
small = torch.randint(-128, 127, (size, size), dtype=torch.int8)
bandwidth = max(best(lambda: long.sum(), long.nbytes), best(lambda: table @ vector, table.nbytes))
operations = 2 * size**3
with torch.inference_mode():
    floating = best(lambda: square @ square, operations)
    try:
        whole = best(lambda: torch._int_mm(small, small), operations)
    except RuntimeError:
        whole = None
print(json.dumps({"bytes": bandwidth, "f32": floating, "int8": whole}))
