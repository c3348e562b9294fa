"""Writes subtitles.json and clips.json: what openai-whisper makes of words and of audio.

    python openai.py [MODEL AUDIO]

subtitles.json: seeded words with times, and the subtitles of openai-whisper's writers by their options. With the folder of the
checkpoint whisper-tiny.en and that of the clips, also clips.json: transcriptions with options that need audio.
"""

import io
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).parent
OPTIONS = [
    {},
    {"max_line_width": 16},
    {"max_line_width": 16, "max_line_count": 1},
    {"max_line_width": 20, "max_line_count": 2},
    {"max_line_width": 5, "max_line_count": 3},
    {"max_words_per_line": 3},
    {"max_words_per_line": 1},
    {"highlight_words": True},
    {"highlight_words": True, "max_line_width": 20, "max_line_count": 2},
    {"highlight_words": True, "max_words_per_line": 4},
]
NOISE = [(9, 0.125, "0870"), (14, 0.03125, "0890"), (6, 0.25, "0880")]
WORDS = ["I", "a", "the", "river", "und", "straße", "extraordinarily", "go-between", "“Yes", "no”,", "well.", "早", "x -->"]


def segments(draw):
    """Segments of words, some with pauses between them and some without words."""
    found, time = [], 0.0
    for _ in range(draw.randint(1, 6)):
        words = []
        for _ in range(draw.randint(0, 9)):
            time += draw.choice([0, 0, 0, 0.02, 0.5, 3.5, 40])
            start, time = time, time + draw.choice([0.1, 0.24, 0.8])
            words.append({"word": " " + draw.choice(WORDS), "start": round(start, 2), "end": round(time, 2), "probability": 0.5})
        if words:
            text = "".join(word["word"] for word in words)
            found.append({"start": words[0]["start"], "end": words[-1]["end"], "text": text, "words": words})
        time += draw.choice([0, 2.5, 3.5, 3600])
    return found


def subtitles():
    from whisper.utils import get_writer

    draw, cases = random.Random(7), []
    for _ in range(5):
        result, files = {"segments": segments(draw)}, []
        for options in OPTIONS:
            texts = {}
            for name in ["srt", "vtt"]:
                text = io.StringIO()
                get_writer(name, ".").write_result(result, text, options)
                texts[name] = text.getvalue()
            files.append({"options": options, **texts})
        cases.append({"segments": result["segments"], "files": files})
    return cases


def checkpoint(folder):
    """transformers' checkpoint as a model of openai-whisper."""
    import torch
    from safetensors.torch import load_file
    from whisper.model import ModelDimensions, Whisper

    config = json.loads((folder / "config.json").read_text())
    size = ModelDimensions(
        n_mels=config["num_mel_bins"], n_audio_ctx=config["max_source_positions"], n_audio_state=config["d_model"],
        n_audio_head=config["encoder_attention_heads"], n_audio_layer=config["encoder_layers"], n_vocab=config["vocab_size"],
        n_text_ctx=config["max_target_positions"], n_text_state=config["d_model"],
        n_text_head=config["decoder_attention_heads"], n_text_layer=config["decoder_layers"])
    names = [
        ("model.", ""), ("layers", "blocks"), ("encoder_attn_layer_norm", "cross_attn_ln"), ("self_attn_layer_norm", "attn_ln"),
        ("encoder_attn", "cross_attn"), ("self_attn", "attn"), ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"),
        ("out_proj", "out"), ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("final_layer_norm", "mlp_ln"), ("encoder.layer_norm", "encoder.ln_post"),
        ("decoder.layer_norm", "decoder.ln"), ("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding")]
    weights = {}
    for name, value in load_file(folder / "model.safetensors").items():
        if name != "proj_out.weight":
            for old, new in names:
                name = name.replace(old, new)
            weights[name] = value.float()
    model = Whisper(size)
    model.load_state_dict(weights)
    heads = torch.zeros(size.n_text_layer, size.n_text_head, dtype=torch.bool)
    for layer, head in json.loads((folder / "generation_config.json").read_text())["alignment_heads"]:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    return model.eval()


def clip(folder, name):
    """A file's samples at 16 kHz."""
    import numpy
    import wave

    with wave.open(str(folder / f"{name}.wav")) as file:
        return numpy.frombuffer(file.readframes(file.getnframes()), dtype=numpy.int16).astype(numpy.float32) / 32_768


def noise(seconds, loudness):
    """White noise by a linear congruential generator."""
    import numpy

    state, samples = 1, []
    for _ in range(16_000 * seconds):
        state = (state * 1_664_525 + 1_013_904_223) % 2**32
        samples.append(state / 2**31 - 1)
    return numpy.array(samples, dtype=numpy.float32) * numpy.float32(loudness)


def clips_in_noise(folder):
    """Clips with noise before them, some of it loud."""
    import numpy

    parts = [part for seconds, loudness, name in NOISE for part in [noise(seconds, loudness), clip(folder, name)]]
    return numpy.concatenate(parts + [noise(20, 0.25)])


def clips(model, audio):
    model, noisy, long = checkpoint(model), clips_in_noise(audio), clip(audio, "long")
    usual = {"language": "en", "temperature": 0.0, "condition_on_previous_text": False}
    cases = []
    for name, samples, options in [
        ("long", long, {"clip_timestamps": "20,30,90.5,100"}),
        ("long", long, {"clip_timestamps": "180"}),
        ("long", long, {"clip_timestamps": "10,12,30,31.5,190", "word_timestamps": True}),
        ("noise", noisy, {"word_timestamps": True, "no_speech_threshold": None}),
        ("noise", noisy, {"word_timestamps": True, "no_speech_threshold": None, "hallucination_silence_threshold": 1.0}),
        ("noise", noisy, {"word_timestamps": True, "no_speech_threshold": None, "hallucination_silence_threshold": 2.0}),
        ("long", long, {"beam_size": 3, "patience": 4.0, "length_penalty": 0.0, "clip_timestamps": "62,90"}),
        ("long", long, {"suppress_tokens": "", "clip_timestamps": "0,30"}),
        ("long", long, {"suppress_tokens": "-1,11,13", "clip_timestamps": "0,30"}),
    ]:
        result = model.transcribe(samples, fp16=False, **usual, **options)
        cases.append({"audio": name, "options": usual | options, "segments": result["segments"]})
    return cases


def write(name, cases):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


if __name__ == "__main__":
    write("subtitles.json", subtitles())
    if len(sys.argv) == 3:
        write("clips.json", clips(*map(pathlib.Path, sys.argv[1:])))
