// ONNX Runtime's package for Node: the native library on the CPU.

import * as ort from 'onnxruntime-node';

import { answer, version } from './cell.mjs';
import { measure } from './layouts.mjs';

const engine = {
    async load(path) {
        const session = await ort.InferenceSession.create(path);
        const run = (feeds) => {
            const tensors = Object.entries(feeds).map(([name, { type, dims, data }]) => [name, new ort.Tensor(type, data, dims)]);
            return session.run(Object.fromEntries(tensors));
        };
        return { inputs: session.inputNames, run };
    },
};

await answer(version('onnxruntime-node'), (cell) => measure(engine, cell));
