"""Makes models of an encoder of images and a decoder, with PyTorch's answers, as ../README.md describes them.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 safetensors pillow==13.0.0
    python generate.py                 compute the answers again, from the stored weights and pixels
    python generate.py --new-weights   draw weights and pixels anew first
"""

import argparse
import json
import pathlib
import sys

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True  # nothing but data beside the data
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from answers import MAX_NEW_TOKENS, NUM_BEAMS, TARGET_LENGTH

VOCAB = 264
VIT = dict(num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=4, initializer_range=0.4)
TROCR = dict(vocab_size=VOCAB, d_model=16, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=24, init_std=0.4)
TROCR |= dict(max_position_embeddings=40)
GPT2 = dict(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=40, initializer_range=0.4)
BERT = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
BERT |= dict(max_position_embeddings=40, initializer_range=0.4)
MBART = TROCR | dict(encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24)
CASES = {
    "bert": (transformers.DeiTConfig(**VIT, hidden_size=16), transformers.BertConfig(**BERT)),
    "gpt2": (transformers.ViTConfig(**VIT, hidden_size=20), transformers.GPT2Config(**GPT2)),
    "mbart": (transformers.ViTConfig(**VIT, hidden_size=16), transformers.MBartConfig(**MBART, scale_embedding=True)),
    "trocr": (
        transformers.ViTConfig(**VIT, hidden_size=20, qkv_bias=False),
        transformers.TrOCRConfig(**TROCR, cross_attention_hidden_size=20),
    ),
    "trocr-projected": (
        transformers.DeiTConfig(**VIT, hidden_size=20),
        transformers.TrOCRConfig(
            **TROCR,
            activation_function="relu",
            scale_embedding=True,
            use_learned_position_embeddings=False,
            layernorm_embedding=False,
            tie_word_embeddings=False,
        ),
    ),
}
FILES = ("rgb.png", "palette.png", "turned.png", "grey-alpha.png")


def draw(case):
    """A random model in which every parameter matters, with a tokenizer of bytes and an image processor."""
    torch.manual_seed(sum(case.encode()))
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*CASES[case])
    config.update(dict(decoder_start_token_id=2, pad_token_id=1, eos_token_id=2, bos_token_id=0))
    model = transformers.VisionEncoderDecoderModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=2, pad_token_id=1, eos_token_id=2, bos_token_id=0)
    model.save_pretrained(HERE / case)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = special + sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()) + ["<mask>"]
    bytes_only = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    bytes_only.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = tokenizers.decoders.ByteLevel()
    transformers.RobertaTokenizerFast(tokenizer_object=bytes_only).save_pretrained(HERE / case)
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(HERE / case)
    ids = torch.randint(4, VOCAB - 4, (2, TARGET_LENGTH))
    ids[:, 0] = 2
    return {"pixel_values": torch.randn(2, 3, 16, 16), "decoder_input_ids": ids}


@torch.no_grad()
def ask(case, inputs):
    load = lambda: transformers.VisionEncoderDecoderModel.from_pretrained(HERE / case, attn_implementation="eager").eval()
    answers = []
    for dtype in (torch.float32, torch.float64):
        model = load().to(dtype)
        given = {name: tensor.to(model.dtype) if name == "pixel_values" else tensor for name, tensor in inputs.items()}
        # The causal mask is made in the default type.
        torch.set_default_dtype(model.dtype)
        out = model(**given, output_attentions=True)
        states = dict(encoder_last_hidden_state=out.encoder_last_hidden_state, logits=out.logits)
        answers.append(states | dict(cross_attentions=torch.stack(out.cross_attentions)))
    torch.set_default_dtype(torch.float32)
    single, double = answers
    pixels, model = inputs["pixel_values"], load()
    single["greedy"] = model.generate(pixels, max_new_tokens=MAX_NEW_TOKENS, num_beams=1, do_sample=False)
    beams = dict(num_beams=NUM_BEAMS, num_return_sequences=NUM_BEAMS, length_penalty=1.0, early_stopping=False, do_sample=False)
    found = model.generate(pixels, max_new_tokens=MAX_NEW_TOKENS, return_dict_in_generate=True, output_scores=True, **beams)
    single |= dict(beam4=found.sequences, beam4_scores=found.sequences_scores)
    contiguous = lambda tensors: {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous(inputs | single), HERE / case / "golden.safetensors")
    save_file(contiguous(double), HERE / case / "golden.float64.safetensors")
    processor = transformers.AutoImageProcessor.from_pretrained(HERE / case, use_fast=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(HERE / case)
    texts = []
    for name in FILES:
        image = transformers.image_utils.load_image(str(HERE.parent.parent / "images" / name))
        ids = model.generate(processor(image, return_tensors="pt").pixel_values, max_new_tokens=MAX_NEW_TOKENS)
        texts.append(dict(file=name, text=tokenizer.decode(ids[0], skip_special_tokens=True)))
    (HERE / case / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
    print(f"{case:20} {single['greedy'].tolist()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--new-weights", action="store_true")
    options = parser.parse_args()
    for case in CASES:
        stored = None if options.new_weights else load_file(HERE / case / "golden.safetensors")
        inputs = draw(case) if stored is None else {name: stored[name] for name in ("pixel_values", "decoder_input_ids")}
        ask(case, inputs)
