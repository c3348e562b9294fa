"""Writes tokens/languages.json: the languages that transformers detects in tones that are shorter than a window.

A developer's tool: `pip install torch transformers==4.57.6`, then `python languages.py`.
"""

import json
import pathlib

import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).parent
RATE = 16_000


@torch.no_grad()
def main():
    model = transformers.WhisperForConditionalGeneration.from_pretrained(HERE / "whisper", dtype=torch.float64).eval()
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(HERE / "tokens")
    languages = model.generation_config.lang_to_id
    rows = []
    for n_samples in (3_200, 8_000, 14_400):
        tone = 0.3 * numpy.sin(numpy.arange(n_samples, dtype=numpy.float32) * 0.1)
        features = extractor(tone, sampling_rate=RATE, return_tensors="pt").input_features.double()
        start = torch.tensor([[model.generation_config.decoder_start_token_id]])
        logits = model(input_features=features, decoder_input_ids=start).logits[0, 0]
        found = logits[list(languages.values())].softmax(0)
        [best] = model.detect_language(input_features=features).tolist()
        code = next(code for code, id in languages.items() if id == best)
        assert best == list(languages.values())[found.argmax()]
        rows.append({"samples": n_samples, "language": code.strip("<|>"), "probability": found.max().item()})
    (HERE / "tokens" / "languages.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
