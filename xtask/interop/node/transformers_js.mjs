// transformers.js on an unchanged folder: `generate` on token ids, then the pipelines on text, which the folder's tokenizer
// converts to the same ids (`t5 t17` is 5, 17).

import { encoderError, logitsError, rows } from './cell.mjs';

const PIPELINES = { 'text2text-generation': 'generated_text', translation: 'translation_text' };

/** `library` is the imported package, configured to find the model `name`. */
export async function measure(cell, { AutoModelForSeq2SeqLM, pipeline, Tensor }, name) {
    const model = await AutoModelForSeq2SeqLM.from_pretrained(name);
    const tensor = ({ type, dims, data }) => new Tensor(type, data, dims);
    const source = () => ({ input_ids: tensor(cell.tensors.input_ids), attention_mask: tensor(cell.tensors.attention_mask) });

    const { last_hidden_state: states } = await model.sessions.model.run({
        input_ids: source().input_ids.ort_tensor,
        attention_mask: source().attention_mask.ort_tensor,
    });
    const { logits } = await model({ ...source(), decoder_input_ids: tensor(cell.tensors.decoder_input_ids) });
    const generated = await model.generate({ ...source(), max_new_tokens: cell.max_new_tokens });
    const tokens = generated.tolist().map((row) => row.map(Number));
    const greedy = JSON.stringify(ended(cell, tokens)) === JSON.stringify(ended(cell, rows(cell.tensors.greedy)));
    const found = { encoder: encoderError(cell, states), logits: logitsError(cell, logits), greedy, texts: true };

    for (const [task, field] of Object.entries(PIPELINES)) {
        const run = await pipeline(task, name);
        const texts = await run(sources(cell), { max_new_tokens: cell.max_new_tokens });
        const given = texts.map((text) => text[field].trim());
        if (JSON.stringify(given) !== JSON.stringify(targets(cell))) {
            console.error(`${task}: "${given.join('", "')}", expected "${targets(cell).join('", "')}"`);
            found.texts = false;
        }
    }
    return found;
}

/** Rows up to their eos: transformers.js continues a finished row, transformers pads it. Some start with eos. */
function ended(cell, tokens) {
    return tokens.map((row) => {
        const end = row.indexOf(cell.eos, 1);
        return end < 0 ? row : row.slice(0, end + 1);
    });
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
