// ONNX Runtime compiled to WebAssembly, as in browsers. It cannot read files: graph and weights are passed as bytes.

import fs from 'node:fs';
import path from 'node:path';

import * as ort from 'onnxruntime-web';

import { answer, version } from './cell.mjs';
import { measure } from './layouts.mjs';

const engine = {
    async load(file) {
        const folder = path.dirname(file);
        const weights = fs.readdirSync(folder).filter((name) => /\.((onnx_)?data|safetensors)$/.test(name));
        const externalData = weights.map((name) => ({ path: name, data: fs.readFileSync(path.join(folder, name)) }));
        const session = await ort.InferenceSession.create(fs.readFileSync(file), { executionProviders: ['wasm'], externalData });
        const run = (feeds) => {
            const tensors = Object.entries(feeds).map(([name, { type, dims, data }]) => [name, new ort.Tensor(type, data, dims)]);
            return session.run(Object.fromEntries(tensors));
        };
        return { inputs: session.inputNames, run };
    },
};

await answer(version('onnxruntime-web'), (cell) => measure(engine, cell));
