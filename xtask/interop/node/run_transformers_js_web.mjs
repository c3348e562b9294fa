// transformers.js as in browsers: WebAssembly, and every file fetched over HTTP from a local server.
//
// config.json alone determines the fetched files: the precision, and whether graphs have data files.

import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

import { answer, version } from './cell.mjs';
import { measure } from './transformers_js.mjs';

/** Serves the files below `root`; the address ends with a slash. */
async function serve(root) {
    const server = http.createServer((request, response) => {
        const file = path.join(root, path.normalize(decodeURIComponent(request.url)));
        if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) return response.writeHead(404).end();
        const bytes = fs.readFileSync(file);
        // A persistent connection would time out while WebAssembly computes in this thread.
        response.writeHead(200, { 'content-length': bytes.length, connection: 'close' }).end(request.method === 'HEAD' ? undefined : bytes);
    });
    await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
    return `http://127.0.0.1:${server.address().port}/`;
}

await answer(`${version('@huggingface/transformers')} (browser build)`, async (cell) => {
    const address = await serve(path.dirname(cell.folder));
    // On import the package detects Node by this name.
    Object.defineProperty(process, 'release', { value: { name: 'browser' } });
    const library = await import(new URL('./node_modules/@huggingface/transformers/dist/transformers.web.js', import.meta.url));
    const { env } = library;
    Object.assign(env, { allowLocalModels: false, remoteHost: address, remotePathTemplate: '{model}/' });
    Object.assign(env, { useBrowserCache: false, useWasmCache: false });
    env.backends.onnx.wasm.wasmPaths = new URL('./node_modules/@huggingface/transformers/node_modules/onnxruntime-web/dist/', import.meta.url).href;
    env.backends.onnx.wasm.numThreads = 1;
    try {
        return await measure(cell, library, path.basename(cell.folder));
    } catch (error) {
        // The port differs between runs.
        throw new Error(error.message.replaceAll(address, ''));
    }
});
