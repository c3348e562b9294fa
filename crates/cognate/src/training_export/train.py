"""Trains the model in this folder, with onnxruntime and numpy only.

    cognate tokenize --model FOLDER --ids --input train.en > source.ids
    cognate tokenize --model FOLDER --ids --target --input train.de > target.ids
    paste source.ids target.ids > pairs.ids
    python FOLDER/train.py pairs.ids --updates 100 --batch 32 --learning-rate 1e-3

A line of pairs.ids has token ids of a source with its end token, a tab, and those of its target. FOLDER is then the trained model.
"""
import argparse, json, pathlib
import numpy as np
import onnxruntime

def read(path):
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = {name: entry for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}
    numbers = lambda entry: data[slice(*(begin + offset for offset in entry["data_offsets"]))]
    return {name: np.frombuffer(numbers(entry), np.float32).reshape(entry["shape"]) for name, entry in header.items()}

def write(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [end, end := end + tensor.nbytes]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensor.tobytes() for tensor in tensors.values()))
def rows(lists, padding):
    return np.array([ids + [padding] * (max(map(len, lists)) - len(ids)) for ids in lists], np.int64)

def ids(text):
    if all(word.isdigit() for word in text.split()): return [int(word) for word in text.split()]
    raise SystemExit(f"{options.pairs}: expected token ids, found {text!r}; make them with `cognate tokenize --model {here} --ids`")

options = argparse.ArgumentParser()
options.add_argument("pairs", type=pathlib.Path)
for name, default in ("updates", 100), ("batch", 32), ("learning-rate", 1e-3), ("seed", 1):
    options.add_argument(f"--{name}", type=type(default), default=default)
options.add_argument("--exact", action="store_true", help="do not add the end token to targets")
options, here = options.parse_args(), pathlib.Path(__file__).resolve().parent
session = onnxruntime.InferenceSession(here / "train_step.onnx", providers=["CPUExecutionProvider"])
facts, inputs = session.get_modelmeta().custom_metadata_map, {value.name: value for value in session.get_inputs()}
pad, start, end = (int(facts[f"cognate.{name}_token"]) for name in ("pad", "start", "eos"))
outputs, tensors, random = [value.name for value in session.get_outputs()], read(here / "model.safetensors"), np.random.default_rng(options.seed)
zero = lambda name: np.zeros(inputs[name].shape, np.int64 if name == "step" else np.float32)
value, order = onnxruntime.OrtValue.ortvalue_from_numpy, []
state = {name: value(tensors[name] if name in tensors else zero(name)) for name in inputs if f"next.{name}" in outputs}
pairs = [[ids(side) for side in line.split("\t")] for line in options.pairs.read_text().splitlines()]
pairs = [(source, target if options.exact or target[-1:] == [end] else target + [end]) for source, target in pairs]
for update in range(1, options.updates + 1):
    order = order or list(random.permutation(len(pairs)))
    batch, order = [pairs[index] for index in order[: options.batch]], order[options.batch :]
    given = {"input_ids": rows([source for source, _ in batch], pad), "attention_mask": rows([[1] * len(source) for source, _ in batch], 0)}
    given |= {"decoder_input_ids": rows([[start] + target[:-1] for _, target in batch], pad), "labels": rows([target for _, target in batch], -100)}
    given |= {"learning_rate": np.array(options.learning_rate, np.float32), "dropout_seed": random.integers(2**31, size=())}
    given = {name: value(array) for name, array in given.items() if name in inputs}
    found = dict(zip(outputs, session.run_with_ort_values(outputs, state | given)))
    state = {name: found[f"next.{name}"] for name in state}
    print(f"update {update} loss {found['loss'].numpy() / found['tokens'].numpy():.9f} tokens {found['tokens'].numpy()}")
write(here / "model.safetensors", {name: state[name].numpy() if name in state else tensor for name, tensor in tensors.items()})
