"""The limits of PyTorch and ONNX Runtime on this machine, for `cargo xtask bench decode`: bytes read and operations per second.

    python limits.py THREADS BYTES,BYTES,...

The same bytes are read repeatedly, as are a decoder's weights.
"""

import json
import sys
import time

import numpy
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

ROUNDS = 7
# Bytes of a round, compared with which starting threads is fast.
PASS_BYTES = 1 << 28
SIZE = 2048


def best(work, amount, repeats=1):
    """The amount per second of the fastest round."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        for _ in range(repeats):
            work()
        seconds.append(time.perf_counter() - before)
    return amount * repeats / min(seconds)


def read(size):
    rows = size // 4 // SIZE
    table, vector = torch.ones(rows, SIZE), torch.ones(SIZE)
    repeats = -(-PASS_BYTES // table.nbytes)
    return max(best(table.sum, table.nbytes, repeats), best(lambda: table @ vector, table.nbytes, repeats))


def product(operator, left, right, kind):
    """ONNX Runtime's product of an input and a constant, whose layout it may change."""
    given = helper.make_tensor_value_info("left", helper.np_dtype_to_tensor_dtype(left.dtype), left.shape)
    found = helper.make_tensor_value_info("product", kind, (left.shape[0], right.shape[1]))
    node = helper.make_node(operator, ["left", "right"], ["product"])
    graph = helper.make_graph([node], "product", [given], [found], [numpy_helper.from_array(right, "right")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return best(lambda: session.run(["product"], {"left": left}), operations)


threads, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
torch.set_num_threads(threads)
operations = 2 * SIZE**3
random = numpy.random.default_rng(1)
left, right = random.random((2, SIZE, SIZE), dtype=numpy.float32)
whole = random.integers(-100, 100, (SIZE, SIZE), dtype=numpy.int8)
unsigned = random.integers(0, 200, (SIZE, SIZE), dtype=numpy.uint8)
with torch.inference_mode():
    speeds = [read(size) for size in sizes]
    a, b, c = torch.from_numpy(left), torch.from_numpy(right), torch.from_numpy(whole)
    floating = max(best(lambda: a @ b, operations), product("MatMul", left, right, TensorProto.FLOAT))
    integers = product("MatMulInteger", unsigned, whole, TensorProto.INT32)
    try:
        integers = max(integers, best(lambda: torch._int_mm(c, c), operations))
    except RuntimeError:
        # This PyTorch has no product of integers for this processor.
        pass
print(json.dumps({"bytes_per_second": speeds, "f32": floating, "int8": integers}))
