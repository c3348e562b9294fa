// The layouts from a caller's view, on any engine: `load(path)` returns `{ inputs, run(feeds) }`. Feeds and results map
// names to tensors. The same steps as python/layouts.py.

import path from 'node:path';

import { difference, ended, error, expectedGreedy, inputs, logitsError, outputsError, rows, same, tensor } from './cell.mjs';

/** A past of length zero. */
function empty(names, dims) {
    const past = names.filter((name) => name.startsWith('past'));
    return Object.fromEntries(past.map((name) => [name, tensor('float32', dims, new Float32Array(0))]));
}

const present = (name) => name.replace(/^past(_key_values)?/, 'present');

const known = (graph, feeds) => Object.fromEntries(Object.entries(feeds).filter(([name]) => graph.inputs.includes(name)));

/** encoder.onnx and decoder.onnx; `input_ids` of the decoder is [batch, beams, tgt], one beam here. */
class Cognate {
    static async load(engine, cell) {
        const graph = (name) => engine.load(path.join(cell.graphs, name));
        return Object.assign(new Cognate(), { cell, encoder: await graph('encoder.onnx'), decoder: await graph('decoder.onnx') });
    }

    async encode() {
        const outputs = await this.encoder.run(inputs(this.cell, this.encoder.inputs));
        this.fixed = inputs(this.cell, this.decoder.inputs.filter((name) => name === 'attention_mask'));
        for (const name in outputs) if (name.startsWith('cross.')) this.fixed[name] = outputs[name];
        const states = outputs.encoder_hidden_states;
        this.past = empty(this.decoder.inputs, [states.dims[0], 1, this.cell.heads, 0, this.cell.head_size]);
        return states;
    }

    /** `ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past. */
    async decode({ dims: [batch, tgt], data }) {
        const outputs = await this.decoder.run({ input_ids: tensor('int64', [batch, 1, tgt], data), ...this.fixed, ...this.past });
        for (const name in this.past) this.past[name] = outputs[present(name)];
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

    async encode() {
        const { last_hidden_state: states } = await this.encoder.run(inputs(this.cell, this.encoder.inputs));
        this.fixed = { encoder_attention_mask: this.cell.tensors.attention_mask, encoder_hidden_states: states };
        this.past = empty(this.decoder.inputs, [states.dims[0], this.cell.heads, 0, this.cell.head_size]);
        this.first = true;
        return states;
    }

    /** `ids` [batch, tgt] -> logits [batch, tgt, vocab]; appends `tgt` positions to the past. */
    async decode(ids) {
        const branches = this.decoder.inputs.includes('use_cache_branch');
        const all = { input_ids: ids, ...this.fixed, ...this.past };
        if (branches) all.use_cache_branch = tensor('bool', [1], Uint8Array.of(this.first ? 0 : 1));
        const outputs = await this.decoder.run(known(this.decoder, all));
        for (const name in this.past) {
            // The branch with a past does not compute cross keys: those of the first step are kept.
            if (this.first || !branches || !name.includes('.encoder.')) this.past[name] = outputs[present(name)];
        }
        this.first = false;
        return outputs.logits;
    }
}

/** model.onnx of a decoder alone; `attention_mask` [batch, past + tgt] is 0 at the padding on the left of prompts. */
class Alone {
    static async load(engine, cell) {
        const decoder = await engine.load(path.join(cell.graphs, 'model.onnx'));
        const mask = rows(cell.tensors.attention_mask);
        return Object.assign(new Alone(), { decoder, mask, past: empty(decoder.inputs, [mask.length, cell.heads, 0, cell.head_size]) });
    }

    /** `ids` [batch, tgt], first the prompts -> logits [batch, tgt, vocab]; appends `tgt` positions to the past. */
    async decode(ids) {
        const positions = this.mask.map((row) => {
            let next = 0;
            // transformers' positions: 1 at padding.
            return row.map((read) => (read ? next++ : 1)).slice(-ids.dims[1]);
        });
        const all = { input_ids: ids, attention_mask: matrix(this.mask), position_ids: matrix(positions), ...this.past };
        const outputs = await this.decoder.run(known(this.decoder, all));
        for (const name in this.past) this.past[name] = outputs[present(name)];
        this.mask.forEach((row) => row.push(1));
        return outputs.logits;
    }
}

const matrix = (rows) => tensor('int64', [rows.length, rows[0].length], BigInt64Array.from(rows.flat(), BigInt));

/** Compares numbers, and tokens if the model generates some. */
export function measure(engine, cell) {
    if (cell.layout === 'generate') return generate(engine, cell);
    return { 'encoder-decoder': encoderDecoder, encoder, decoder }[cell.kind](engine, cell);
}

/** Encoder states, teacher-forced logits, and greedy decoding with a past. */
async function encoderDecoder(engine, cell) {
    const model = await { cognate: Cognate, 'hugging-face': HuggingFace }[cell.layout].load(engine, cell);
    const states = await model.encode();
    const logits = await model.decode(cell.tensors.decoder_input_ids);
    const numbers = Math.max(error(cell, 'encoder_last_hidden_state', states), logitsError(cell, logits));
    await model.encode();
    const start = Array.from({ length: states.dims[0] }, () => [cell.start]);
    return { numbers, greedy: same(await greedy(model, cell, start), rows(expectedGreedy(cell))) };
}

/** All outputs of a single graph. */
async function encoder(engine, cell) {
    const graph = await engine.load(path.join(cell.graphs, 'model.onnx'));
    return { numbers: outputsError(cell, await graph.run(inputs(cell, graph.inputs))) };
}

/** The logits of prompts, and their greedy continuation. */
async function decoder(engine, cell) {
    const { input_ids: prompts, greedy: expected } = cell.tensors;
    const numbers = error(cell, 'logits', await (await Alone.load(engine, cell)).decode(prompts));
    const tokens = await greedy(await Alone.load(engine, cell), cell, rows(prompts));
    return { numbers, greedy: same(tokens.map((row) => row.slice(prompts.dims[1])), rows(expected)) };
}

/** A graph that decodes: tokens of greedy decoding, tokens and scores of 4 beams. */
async function generate(engine, cell) {
    const run = async (search) => {
        const graph = await engine.load(path.join(cell.graphs, search, 'generate.onnx'));
        const { sequences, scores } = await graph.run(inputs(cell, graph.inputs));
        const [batch, beams, length] = sequences.dims;
        return [rows(tensor('int64', [batch * beams, length], sequences.data)), tensor('float32', [batch * beams], scores.data)];
    };
    const [found] = await run('greedy');
    const [beams, scores] = await run('beams');
    const { greedy: expected, beam4, beam4_scores: expectedScores } = cell.tensors;
    // The golden beams of T5Gemma are padded with eos.
    const beam = same(ended(cell, beams), ended(cell, rows(beam4)));
    return { numbers: difference(scores, expectedScores), greedy: same(found, rows(expected)), beam };
}

/** Continues rows of token ids as transformers' `generate(num_beams=1)`; returns them, too. */
async function greedy(model, cell, tokens) {
    const running = tokens.map(() => true);
    let ids = matrix(tokens);
    for (let step = 1; step <= cell.max_new_tokens && running.includes(true); ++step) {
        const { dims: [batch, tgt, vocab], data } = await model.decode(ids);
        const forced = step === cell.max_new_tokens ? cell.forced_eos : null;
        for (let row = 0; row < batch; ++row) {
            const last = (row + 1) * tgt * vocab;
            const chosen = forced ?? largest(data.subarray(last - vocab, last));
            tokens[row].push(running[row] ? chosen : cell.pad);
            running[row] &&= chosen !== cell.eos;
        }
        ids = matrix(tokens.map((row) => row.slice(-1)));
    }
    return tokens;
}

const largest = (values) => values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
