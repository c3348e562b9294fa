// The two layouts from a caller's view, on any engine: `load(path)` returns `{ inputs, run(feeds) }`. Feeds and results map
// names to tensors. The same steps as python/layouts.py.

import path from 'node:path';

import { encoderError, logitsError, sameTokens, tensor } from './cell.mjs';

const empty = (dims) => tensor('float32', dims, new Float32Array(0));

/** encoder.onnx and decoder.onnx; `input_ids` of the decoder is [batch, beams, tgt], one beam here. */
class Cognate {
    static async load(engine, cell) {
        const graph = (name) => engine.load(path.join(cell.graphs, name));
        return Object.assign(new Cognate(), { cell, encoder: await graph('encoder.onnx'), decoder: await graph('decoder.onnx') });
    }

    async encode(ids, mask) {
        const outputs = await this.encoder.run({ input_ids: ids, attention_mask: mask });
        this.fixed = { attention_mask: mask };
        for (const name in outputs) if (name.startsWith('cross.')) this.fixed[name] = outputs[name];
        this.past = {};
        for (const name of this.decoder.inputs) {
            if (name.startsWith('past.')) this.past[name] = empty([ids.dims[0], 1, this.cell.heads, 0, this.cell.head_size]);
        }
        return outputs.encoder_hidden_states;
    }

    /** `ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past. */
    async decode({ dims: [batch, tgt], data }) {
        const outputs = await this.decoder.run({ input_ids: tensor('int64', [batch, 1, tgt], data), ...this.fixed, ...this.past });
        for (const name in this.past) this.past[name] = outputs[name.replace('past', 'present')];
        const { dims, data: values } = outputs.logits;
        return tensor('float32', [batch, tgt, dims[3]], values);
    }
}

/** encoder_model.onnx and decoder_model_merged.onnx, of Cognate or Optimum (which has `use_cache_branch`). */
class HuggingFace {
    static async load(engine, cell) {
        const graph = (name) => engine.load(path.join(cell.graphs, name));
        const encoder = await graph('encoder_model.onnx');
        return Object.assign(new HuggingFace(), { cell, encoder, decoder: await graph('decoder_model_merged.onnx') });
    }

    async encode(ids, mask) {
        const { last_hidden_state: states } = await this.encoder.run({ input_ids: ids, attention_mask: mask });
        this.fixed = { encoder_attention_mask: mask, encoder_hidden_states: states };
        this.past = {};
        for (const name of this.decoder.inputs) {
            if (name.startsWith('past_key_values.')) this.past[name] = empty([ids.dims[0], this.cell.heads, 0, this.cell.head_size]);
        }
        this.first = true;
        return states;
    }

    /** `ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past. */
    async decode(ids) {
        const branches = this.decoder.inputs.includes('use_cache_branch');
        const all = { input_ids: ids, ...this.fixed, ...this.past };
        if (branches) all.use_cache_branch = tensor('bool', [1], Uint8Array.of(this.first ? 0 : 1));
        const feeds = Object.fromEntries(Object.entries(all).filter(([name]) => this.decoder.inputs.includes(name)));
        const outputs = await this.decoder.run(feeds);
        for (const name in this.past) {
            // The branch with a past does not compute cross keys: those of the first step are kept.
            if (this.first || !branches || !name.includes('.encoder.')) {
                this.past[name] = outputs[name.replace('past_key_values', 'present')];
            }
        }
        this.first = false;
        return outputs.logits;
    }
}

/** Encoder states, teacher-forced logits, and greedy decoding with a past. */
export async function measure(engine, cell) {
    const model = await { cognate: Cognate, 'hugging-face': HuggingFace }[cell.layout].load(engine, cell);
    const { input_ids: ids, attention_mask: mask, decoder_input_ids: targets } = cell.tensors;
    const encoder = encoderError(cell, await model.encode(ids, mask));
    const logits = logitsError(cell, await model.decode(targets));
    await model.encode(ids, mask);
    return { encoder, logits, greedy: sameTokens(await greedy(model, cell, ids.dims[0]), cell) };
}

/** Rows of token ids, including the start token, as from transformers' `generate(num_beams=1)`. */
async function greedy(model, cell, batch) {
    const tokens = Array.from({ length: batch }, () => [cell.start]);
    const running = tokens.map(() => true);
    for (let step = 1; step <= cell.max_new_tokens && running.includes(true); ++step) {
        const last = BigInt64Array.from(tokens, (row) => BigInt(row.at(-1)));
        const { dims, data } = await model.decode(tensor('int64', [batch, 1], last));
        const forced = step === cell.max_new_tokens ? cell.forced_eos : null;
        tokens.forEach((row, index) => {
            const chosen = forced ?? largest(data.subarray(index * dims[2], (index + 1) * dims[2]));
            row.push(running[index] ? chosen : cell.pad);
            running[index] &&= chosen !== cell.eos;
        });
    }
    return tokens;
}

const largest = (values) => values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
