// transformers.js in Node, with local files only.

import path from 'node:path';

import * as library from '@huggingface/transformers';

import { answer, version } from './cell.mjs';
import { measure } from './transformers_js.mjs';

await answer(version('@huggingface/transformers'), (cell) => {
    library.env.allowRemoteModels = false;
    library.env.localModelPath = path.dirname(cell.folder) + path.sep;
    return measure(cell, library, path.basename(cell.folder));
});
