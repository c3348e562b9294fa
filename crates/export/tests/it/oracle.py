"""Checks the graphs of graphs.rs in a folder with ONNX's checker, and compares their results with numpy's.

    python oracle.py FOLDER

The formulas follow the definitions of the graph's operations, not the exported nodes.
"""

import math
import pathlib
import sys

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor
from onnx.reference import ReferenceEvaluator

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

random = np.random.default_rng(1)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def layer_norm(w, name, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / deviation * w[name + ".weight"] + w[name + ".bias"]


def mlp(w, x):
    for layer in ["layers.0.", "layers.1."]:
        hidden = np.maximum(linear(w, layer + "fc1", x), 0)
        x = layer_norm(w, layer + "norm", x + linear(w, layer + "fc2", hidden))
    return {"y": linear(w, "head", x) + w["final_bias"]}


def attention(w, x, past_key, past_value):
    batch, beams, tgt, _ = x.shape
    past = past_key.shape[3]
    split = lambda name: linear(w, "self_attn." + name, x).reshape(batch, beams, tgt, 2, 4).swapaxes(2, 3)
    key = np.concatenate([past_key, split("k_proj")], axis=3)
    value = np.concatenate([past_value, split("v_proj")], axis=3)
    scores = split("q_proj") @ key.swapaxes(3, 4) / 2
    scores = np.where(np.tri(tgt, past + tgt, past, dtype=bool), scores, -1e9)
    context = (softmax(scores) @ value).swapaxes(2, 3).reshape(batch, beams, tgt, 8)
    return {"y": linear(w, "self_attn.out_proj", context), "present.key": key, "present.value": value}


def cross_attention(w, x, mask, key, value):
    batch, beams, tgt, _ = x.shape
    query = linear(w, "encoder_attn.q_proj", x).reshape(batch, beams, tgt, 2, 4)
    scores = np.einsum("bkthd,bhsd->bkhts", query, key) + np.where(mask, 0, -1e9)[:, None, None, None, :]
    context = np.einsum("bkhts,bhsd->bkthd", softmax(scores), value).reshape(batch, beams, tgt, 8)
    return {"y": layer_norm(w, "encoder_attn.norm", x + linear(w, "encoder_attn.out_proj", context))}


def embeddings(w, ids, past):
    words, start = w["shared.weight"], past.shape[1]
    x = words[ids] * math.sqrt(8) + w["positions.weight"][start : start + ids.shape[1]]
    return {"logits": x @ words.T}


def reshapes(w, x, padded):
    a, b, _ = x.shape
    return {
        "merged": x.reshape(a * b, 6),
        "split": x.reshape(a, b, 2, 3),
        "turned": x.reshape(a, 2, 3 * b),
        "line": x.reshape(a * b * 6),
        "again": x,
        "mapped": (x @ w["map.weight"].T).reshape(a, 2 * b, 2),
        "one": w["map.bias"] @ w["map.weight"].T,
        "counted": padded.reshape(3, 2 * a - b + 1),
        "numbers": np.arange(2 * a - b, 2 * a * b + 5),
    }


def elementwise(w, x, ids):
    total = x + np.maximum(x, 0) / (1 + np.exp(-x)) - np.tanh(x) / (np.vectorize(math.erf)(x) + 2)
    is_small = ids * 3 - 7 <= 5
    return {
        "sum": total,
        "is_small": is_small,
        "as_number": is_small * 0.5 + ids,
        "as_integer": x.astype(np.int64),
        "chosen": np.where(x <= 0, x, softmax(total)),
    }


def learning(w, x, ids):
    y = linear(w, "fc", x)
    ones = {"norm.weight": 1.0, "norm.bias": 0.0}
    rows = y.reshape(-1, 8)
    table = np.abs(rows.T @ rows)
    np.add.at(table, ids % 5, y)
    return {
        "normal": layer_norm(w, "norm", y),
        "unit": layer_norm(ones, "norm", y),
        "total": np.log(np.exp(y).sum(axis=-1, keepdims=True)),
        "shares": softmax(y),
        "table": table,
        "wide": np.floor(np.exp(np.broadcast_to(y.sum(axis=(0, 2), keepdims=True), (*y.shape[:2], 3)))),
    }


def names(w, x):
    left, right = x + 0.25, x - 0.25
    return {
        "left": left,
        "left_again": left,
        "x_again": x,
        "weight_again": w["shared.weight"],
        "number": np.array(0.25),
        "Add": right,
        "Mul": right + right,
    }


# Formula and inputs of each run; also with sizes of 1 and, if a past may be empty, of 0.
RUNS = {
    "mlp": [(mlp, {"x": normal(b, t, 8)}) for b, t in [(2, 3), (1, 1)]],
    "attention": [
        (attention, {"x": normal(b, k, t, 8), "past.key": normal(b, k, 2, p, 4), "past.value": normal(b, k, 2, p, 4)})
        for b, k, t, p in [(2, 3, 4, 5), (1, 1, 3, 0), (2, 2, 1, 6)]
    ],
    "cross_attention": [
        (
            cross_attention,
            {
                "x": normal(b, k, t, 8),
                "attention_mask": np.tri(b, s, s - b, dtype=np.int64),
                "cross.key": normal(b, 2, s, 4),
                "cross.value": normal(b, 2, s, 4),
            },
        )
        for b, k, t, s in [(2, 3, 4, 5), (1, 1, 1, 1), (2, 1, 3, 2)]
    ],
    "embeddings": [
        (embeddings, {"input_ids": random.integers(0, 11, (b, t)), "past": normal(b, p)}) for b, t, p in [(2, 3, 0), (1, 1, 4)]
    ],
    "reshapes": [(reshapes, {"x": normal(a, b, 6), "padded": normal(2 * a - b + 1, 3)}) for a, b in [(4, 2), (1, 1), (2, 5), (0, 1)]],
    "elementwise": [(elementwise, {"x": normal(n, 4), "ids": random.integers(0, 9, n)}) for n in [5, 1]],
    "learning": [(learning, {"x": normal(b, t, 8), "ids": random.integers(-9, 9, (b, t))}) for b, t in [(2, 3), (1, 1)]],
    "names": [(names, {"x": normal(n, 8)}) for n in [5, 1]],
}


def engines(path):
    yield "reference", ReferenceEvaluator(str(path)).run
    if onnxruntime:
        for level in [onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL]:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = level
            yield f"onnxruntime {level.name}", onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run


def weights(path):
    found = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            load_external_data_for_tensor(tensor, str(path.parent))
        found[tensor.name] = onnx.numpy_helper.to_array(tensor).astype(np.float64)
    return found


def difference(expected, found):
    if expected.shape != found.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if expected.size and np.abs(expected.astype(np.float64) - found).max() > 1e-5:
        return f"differs by {np.abs(expected.astype(np.float64) - found).max():.1e}"
    return None


def main(folder):
    failures = []
    paths = sorted(folder.glob("*.onnx"))
    if {path.stem for path in paths} != set(RUNS):
        failures.append(f"graphs {[path.stem for path in paths]}, formulas {list(RUNS)}")
    for path in paths:
        try:
            onnx.checker.check_model(str(path), full_check=True)
        except Exception as error:
            failures.append(f"{path.name}: checker: {error}")
        for engine, run in engines(path):
            for formula, inputs in RUNS[path.stem]:
                expected = formula(weights(path), *inputs.values())
                place = f"{path.name}: {engine}: {[value.shape for value in inputs.values()]}"
                try:
                    found = run(list(expected), inputs)
                except Exception as error:
                    failures.append(f"{place}: {error}")
                    continue
                for (name, value), tensor in zip(expected.items(), found):
                    problem = difference(np.asarray(value), np.asarray(tensor))
                    if problem:
                        failures.append(f"{place}: {name}: {problem}")
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime and onnxruntime.__version__}: {len(paths)} graphs, {len(failures)} failures")
    sys.exit("\n".join(failures) or 0)


main(pathlib.Path(sys.argv[1]))
