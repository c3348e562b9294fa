// A cell of the matrix, documented in python/cell.py: the question is a JSON file, whose path is the only argument; the
// answer is a JSON object on the last line of standard output.

import fs from 'node:fs';

/** A tensor: ONNX Runtime's name of the `type`, `dims`, and `data`, a typed array (int64: BigInt64Array). */
export const tensor = (type, dims, data) => ({ type, dims, data });

const ARRAYS = { F32: ['float32', Float32Array], F64: ['float64', Float64Array], I64: ['int64', BigInt64Array] };

/** Tensors by name. A safetensors file has eight bytes of length, a JSON header, then the values. */
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

/** The maximum absolute difference of the elements for which `counts(index)` is true. */
export function difference(found, expected, counts = () => true) {
    if (String(found.dims) !== String(expected.dims)) {
        throw new Error(`expected shape [${expected.dims}], found [${found.dims}]`);
    }
    let largest = 0;
    expected.data.forEach((value, index) => {
        if (!counts(index)) return;
        if (!Number.isFinite(found.data[index])) throw new Error('expected finite values');
        largest = Math.max(largest, Math.abs(found.data[index] - value));
    });
    return largest;
}

/** Those of the golden tensors that are inputs of a graph. */
export function inputs({ tensors }, names) {
    return Object.fromEntries(names.filter((name) => name in tensors).map((name) => [name, tensors[name]]));
}

/** Compares values of unpadded positions only; those at others are never read. */
export function error({ tensors }, name, found) {
    const expected = tensors[name];
    const mask = expected.dims.length === 3 ? tensors.attention_mask?.data : undefined;
    return difference(found, expected, (index) => !mask || mask[Math.floor(index / expected.dims[2])] === 1n);
}

/** Compares all outputs of which PyTorch's are known. */
export function outputsError(cell, outputs) {
    const names = Object.keys(outputs).filter((name) => name in cell.tensors);
    if (!names.length) throw new Error(`expected an output that PyTorch has, found ${Object.keys(outputs)}`);
    return Math.max(...names.map((name) => error(cell, name, outputs[name])));
}

/** Compares teacher-forced logits, which have no padded positions. */
export const logitsError = (cell, logits) => difference(logits, cell.tensors.logits);

/** Of Whisper without the tokens that its generation_config.json suppresses. */
export const expectedGreedy = ({ tensors }) => tensors.greedy_raw ?? tensors.greedy;

/** Rows up to their eos. A row of an encoder-decoder may start with eos. */
export function ended({ eos, kind }, tokens) {
    return tokens.map((row) => {
        const end = row.indexOf(eos, kind === 'decoder' ? 0 : 1);
        return end < 0 ? row : row.slice(0, end + 1);
    });
}

export const same = (found, expected) => JSON.stringify(found) === JSON.stringify(expected);

/** The version of an installed package, read from its package.json, which it may not export. */
export function version(name) {
    const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
    return `${name} ${JSON.parse(fs.readFileSync(path, 'utf8')).version}`;
}

/** Runs `measure(cell)` and prints its object or its error. */
export async function answer(version, measure) {
    let found;
    try {
        const cell = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
        cell.tensors = loadTensors(cell.golden);
        found = await measure(cell);
    } catch (error) {
        // Any error of the runtime is the answer; onnxruntime-web also throws numbers.
        console.error(error);
        found = { error: error instanceof Error ? `${error.name}: ${error.message}` : `threw ${String(error)}` };
    }
    console.log(`\n${JSON.stringify({ version, ...found })}`);
    process.exit(0);
}
