// transformers.js on an unchanged folder: AutoModelFor...'s outputs and its `generate`, then the pipelines on text, which
// the folder's tokenizer converts to the same ids (`t5 t17` is 5, 17).

import { ended, error, inputs, logitsError, outputsError, rows, same } from './cell.mjs';

const INPUTS = ['input_ids', 'attention_mask', 'token_type_ids', 'pixel_values', 'input_features'];

const PIPELINES = { 'text2text-generation': 'generated_text', translation: 'translation_text' };

/** `library` is the imported package, configured to find the model `name`. */
export async function measure(cell, library, name) {
    const auto = cell.auto_class === 'FeatureExtraction' ? 'AutoModel' : `AutoModelFor${cell.auto_class}`;
    const model = await library[auto].from_pretrained(name);
    const tensor = ({ type, dims, data }) => new library.Tensor(type, data, dims);
    const source = () => Object.fromEntries(Object.entries(inputs(cell, INPUTS)).map(([name, value]) => [name, tensor(value)]));

    if (cell.kind === 'encoder') return { numbers: outputsError(cell, await model(source())) };
    if (cell.kind === 'decoder') {
        const numbers = outputsError(cell, await model(source()));
        const prompt = cell.tensors.input_ids.dims[1];
        const generated = await generate(model, cell, source());
        return { numbers, greedy: equal(cell, generated.map((row) => row.slice(prompt))) };
    }
    const feeds = Object.entries(source()).filter(([name]) => model.sessions.model.inputNames.includes(name));
    const { last_hidden_state: states } = await model.sessions.model.run(
        Object.fromEntries(feeds.map(([name, value]) => [name, value.ort_tensor])),
    );
    const { logits } = await model({ ...source(), decoder_input_ids: tensor(cell.tensors.decoder_input_ids) });
    const numbers = Math.max(error(cell, 'encoder_last_hidden_state', states), logitsError(cell, logits));
    const generated = cell.auto_class === 'SpeechSeq2Seq' ? await transcribe(model, cell, source()) : await generate(model, cell, source());
    const greedy = equal(cell, generated);
    if (cell.auto_class !== 'Seq2SeqLM') return { numbers, greedy };
    return { numbers, greedy, texts: await sameTexts(cell, library, name) };
}

async function generate(model, cell, source) {
    const generated = await model.generate({ ...source, max_new_tokens: cell.max_new_tokens });
    return generated.tolist().map((row) => row.map(Number));
}

/** Clip by clip, because Whisper's `generate` takes no batch; from the start token alone, as in the golden tokens. */
async function transcribe(model, cell, { input_features: clips }) {
    const found = [];
    for (const clip of clips) {
        found.push(...(await generate(model, cell, { input_features: clip.unsqueeze(0), decoder_input_ids: [cell.start] })));
    }
    return found;
}

/** Up to each row's eos: transformers.js continues a finished row, transformers pads it. */
const equal = (cell, tokens) => same(ended(cell, tokens), ended(cell, rows(cell.tensors.greedy)));

async function sameTexts(cell, { pipeline }, name) {
    let equal = true;
    for (const [task, field] of Object.entries(PIPELINES)) {
        const run = await pipeline(task, name);
        const texts = await run(sources(cell), { max_new_tokens: cell.max_new_tokens });
        const given = texts.map((text) => text[field].trim());
        if (JSON.stringify(given) !== JSON.stringify(targets(cell))) {
            console.error(`${task}: "${given.join('", "')}", expected "${targets(cell).join('", "')}"`);
            equal = false;
        }
    }
    return equal;
}

/** The sources without their padding. */
function sources(cell) {
    const special = { [cell.pad]: '<pad>', [cell.eos]: '</s>' };
    const text = (ids) => ids.map((id) => special[id] ?? `t${id}`).join(' ');
    const mask = rows(cell.tensors.attention_mask);
    return rows(cell.tensors.input_ids).map((ids, row) => text(ids.filter((_, column) => mask[row][column])));
}

/** The greedy tokens without special tokens, as in pipelines. */
function targets(cell) {
    const plain = (id) => id !== cell.pad && id !== cell.eos;
    return rows(cell.tensors.greedy).map((ids) => ids.filter(plain).map((id) => `t${id}`).join(' '));
}
