// One cell of the matrix, as python/cell.py describes it: the question is a JSON file, its path the only argument; the
// answer is a JSON object on the last line of the standard output.

import fs from 'node:fs';

/** A tensor: `type` as ONNX Runtime's packages name it, `dims`, `data` a typed array (int64: BigInt64Array). */
export const tensor = (type, dims, data) => ({ type, dims, data });

const ARRAYS = { F32: ['float32', Float32Array], I64: ['int64', BigInt64Array] };

/** Tensors by name. safetensors: eight bytes of length, a JSON header, then the values. */
function loadTensors(path) {
    const file = fs.readFileSync(path);
    const length = Number(file.readBigUInt64LE(0));
    const header = JSON.parse(file.subarray(8, 8 + length).toString('utf8'));
    const tensors = {};
    for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
        if (!(dtype in ARRAYS)) continue;
        const [type, Values] = ARRAYS[dtype];
        // Copied, so that the values are aligned.
        const bytes = new Uint8Array(file.subarray(8 + length + offsets[0], 8 + length + offsets[1]));
        tensors[name] = tensor(type, shape, new Values(bytes.buffer));
    }
    return tensors;
}

/** The rows of a matrix of integers, as numbers. */
export function rows({ dims: [count, width], data }) {
    return Array.from({ length: count }, (_, row) => Array.from(data.slice(row * width, (row + 1) * width), Number));
}

/** The largest absolute difference, over the elements that `counts(index)` approves. */
function difference(found, expected, counts = () => true) {
    if (String(found.dims) !== String(expected.dims)) {
        throw new Error(`shape [${found.dims}], expected [${expected.dims}]`);
    }
    let largest = 0;
    expected.data.forEach((value, index) => {
        if (!counts(index)) return;
        if (!Number.isFinite(found.data[index])) throw new Error('not finite');
        largest = Math.max(largest, Math.abs(found.data[index] - value));
    });
    return largest;
}

/** Padded positions carry values too, which no one reads: only the unpadded ones are compared. */
export function encoderError(cell, states) {
    const mask = cell.tensors.attention_mask.data;
    const width = states.dims[2];
    return difference(states, cell.tensors.encoder_last_hidden_state, (index) => mask[Math.floor(index / width)] === 1n);
}

export const logitsError = (cell, logits) => difference(logits, cell.tensors.logits);

export const sameTokens = (found, cell) => JSON.stringify(found) === JSON.stringify(rows(cell.tensors.greedy));

/** The version of an installed package, which may hide its package.json from import. */
export function version(name) {
    const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
    return `${name} ${JSON.parse(fs.readFileSync(path, 'utf8')).version}`;
}

/** Runs `measure(cell)` and prints its object, or the error it ended with. */
export async function answer(version, measure) {
    let found;
    try {
        const cell = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
        cell.tensors = loadTensors(cell.golden);
        found = await measure(cell);
    } catch (error) {
        // Whatever the other side throws is the answer; onnxruntime-web throws bare numbers too.
        console.error(error);
        found = { error: error instanceof Error ? `${error.name}: ${error.message}` : `threw ${String(error)}` };
    }
    console.log(`\n${JSON.stringify({ version, ...found })}`);
    process.exit(0);
}
