"""Makes and checks the decoders: tiny Hugging Face models without an encoder, with PyTorch's outputs.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install torch==2.15.0 transformers==4.57.6 safetensors
    python generate.py                 compute the answers again, from the stored weights and tokens
    python generate.py --check         recompute and compare, changing nothing
    python generate.py --new-weights   draw weights and tokens anew first

What the answers are is written in README.md beside this file.
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
sys.path.insert(0, str(HERE.parent / "golden"))
from answers import StayDouble, in_double

LENGTHS = (9, 5, 1)
NEW_TOKENS = 12
BEAMS = 3
# Two builds of PyTorch round float64 differently.
TOLERANCE = 1e-9

GPT2 = dict(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32, initializer_range=0.4, bos_token_id=38, eos_token_id=8)
OPT = dict(
    vocab_size=40,
    hidden_size=16,
    word_embed_proj_dim=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    ffn_dim=24,
    max_position_embeddings=32,
    init_std=0.4,
    eos_token_id=20,
)
LLAMA = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=24,
    max_position_embeddings=32,
    initializer_range=0.4,
    bos_token_id=38,
    eos_token_id=7,
)

# A case is a class of transformers and its configuration.
CASES = {
    "gemma": ("GemmaForCausalLM", LLAMA | dict(head_dim=6, num_key_value_heads=1, attention_bias=True, eos_token_id=1, pad_token_id=0)),
    "gemma2": (
        "Gemma2ForCausalLM",
        LLAMA
        | dict(head_dim=6, query_pre_attn_scalar=9, sliding_window=3, attn_logit_softcapping=4.0, final_logit_softcapping=7.0)
        | dict(tie_word_embeddings=False, pad_token_id=0),
    ),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2-untied": ("GPT2LMHeadModel", GPT2 | dict(n_inner=24, scale_attn_weights=False, tie_word_embeddings=False, n_head=4)),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama-biases": (
        "LlamaForCausalLM",
        LLAMA | dict(attention_bias=True, tie_word_embeddings=True, num_key_value_heads=1, head_dim=6, rope_theta=500.0, rms_norm_eps=1e-3),
    ),
    "llama-linear": ("LlamaForCausalLM", LLAMA | dict(rope_scaling=dict(type="linear", factor=2.5))),
    "llama-llama3": (
        "LlamaForCausalLM",
        LLAMA
        | dict(
            head_dim=8,
            rope_scaling=dict(
                rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0, original_max_position_embeddings=16
            ),
        ),
    ),
    "mistral": ("MistralForCausalLM", LLAMA | dict(sliding_window=4, num_key_value_heads=4, hidden_act="gelu")),
    "opt": ("OPTForCausalLM", OPT),
    "opt-narrow": ("OPTForCausalLM", OPT | dict(word_embed_proj_dim=12, do_layer_norm_before=False)),
    "opt-post": ("OPTForCausalLM", OPT | dict(do_layer_norm_before=False, enable_bias=False, activation_function="gelu")),
    "qwen2": ("Qwen2ForCausalLM", LLAMA),
    "qwen2-yarn": (
        "Qwen2ForCausalLM",
        LLAMA
        | dict(
            head_dim=8,
            num_attention_heads=2,
            rope_scaling=dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.05),
        ),
    ),
    "qwen2-windows": ("Qwen2ForCausalLM", LLAMA | dict(use_sliding_window=True, sliding_window=3, max_window_layers=1, rope_theta=1e6)),
}


def draw_model(case, seed):
    """A random model in which every parameter matters: biases and scales differ from 0 and 1."""
    torch.manual_seed(seed)
    name, fields = CASES[case]
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**fields))
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def draw_inputs(model, seed):
    """Prompts of random tokens, padded left."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    pad = config.eos_token_id if config.pad_token_id is None else config.pad_token_id
    ordinary = torch.tensor([i for i in range(config.vocab_size) if i not in (pad, config.eos_token_id)])
    ids = torch.full((len(LENGTHS), max(LENGTHS)), pad)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        ids[row, max(LENGTHS) - length :] = ordinary[torch.randint(len(ordinary), (length,), generator=generator)]
        mask[row, max(LENGTHS) - length :] = 1
    return {"input_ids": ids, "attention_mask": mask}


# A folder with a tokenizer, and texts.
PROMPTS = ["A man is", "Two dogs are playing in the", "Caf\u00e9 \u732b,", "a", "", "A man"]
CORPUS = [
    "A man is riding a bicycle.",
    "Two dogs are playing in the snow.",
    "A group of people are standing in front of a large building.",
    "A woman with a blue umbrella is waiting for the bus.",
]


def draw_text_model(folder):
    """GPT-2 with a byte-level tokenizer trained on a few sentences."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=290, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False)
    trained.save_model(str(folder))
    transformers.GPT2TokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
    torch.manual_seed(3)
    fields = GPT2 | dict(vocab_size=trained.get_vocab_size(), bos_token_id=0, eos_token_id=0, n_positions=48)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields))
    # Bytes that are no character by themselves would make most texts unreadable.
    readable = lambda id: trained.decode([id]).isprintable() and "\ufffd" not in trained.decode([id])
    hidden = [id for id in range(1, trained.get_vocab_size()) if not readable(id)]
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=0, suppress_tokens=hidden)
    model.save_pretrained(folder)


@torch.no_grad()
def ask_for_texts(folder):
    """Each prompt's ids, and the texts after it of greedy decoding and of beam search, each prompt alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    answers = []
    for prompt in PROMPTS:
        # A text without a prompt begins with the start token.
        tokens = tokenizer(prompt).input_ids or [tokenizer.bos_token_id]
        ids = dict(input_ids=torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.long))
        options = dict(max_new_tokens=10, do_sample=False, pad_token_id=0)
        rows = [model.generate(**ids, **options)[0], *model.generate(**ids, **options, num_beams=3, num_return_sequences=3)]
        start = len(tokenizer.decode(tokens, skip_special_tokens=True))
        texts = [tokenizer.decode(row, skip_special_tokens=True)[start:] for row in rows]
        answers.append(dict(prompt=prompt, ids=tokens, greedy=texts[0], beams=texts[1:]))
    return answers


def load_model(case):
    kind = getattr(transformers, CASES[case][0])
    return in_double(kind.from_pretrained(HERE / case, attn_implementation="eager", dtype=torch.float32).eval())


@torch.no_grad()
def ask(model, inputs):
    """Logits and attentions as `generate` computes them for the prompts, and tokens of greedy decoding and of beam search."""
    positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    pad = model.config.eos_token_id if model.config.pad_token_id is None else model.config.pad_token_id
    options = dict(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=pad)
    with StayDouble():
        found = model(**inputs, position_ids=positions, output_attentions=True)
        greedy = model.generate(**inputs, **options, num_beams=1)
        beams = dict(num_beams=BEAMS, num_return_sequences=BEAMS, return_dict_in_generate=True, output_scores=True)
        beams = model.generate(**inputs, **options, **beams)
        assert torch.equal(greedy, model.generate(**inputs, **options, num_beams=1, use_cache=False)), "the cache changes tokens"
    tokens = {"greedy": greedy, "beams": beams.sequences, "beams_scores": beams.sequences_scores.double()}
    tokens = {name: tensor[..., inputs["input_ids"].shape[1] :] if tensor.dim() > 1 else tensor for name, tensor in tokens.items()}
    numbers = {"logits": found.logits, "attentions": torch.stack(found.attentions)}
    return {name: tensor.contiguous() for name, tensor in (numbers | tokens).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--new-weights", action="store_true")
    options = parser.parse_args()
    failures = []
    for case in options.cases:
        file = HERE / case / "answers.safetensors"
        if options.new_weights:
            seed = sum(case.encode())
            model = draw_model(case, seed)
            model.save_pretrained(HERE / case)
            inputs = draw_inputs(model, seed)
        else:
            stored = load_file(file)
            inputs = {name: stored[name] for name in ("input_ids", "attention_mask")}
        answers = inputs | ask(load_model(case), inputs)
        if options.check:
            worst = max((answers[name] - stored[name]).abs().max().item() for name in answers)
            print(f"{case:24} largest difference {worst:.1e}")
            if answers.keys() != stored.keys() or not worst <= TOLERANCE:
                failures.append(case)
        else:
            save_file(answers, file)
            print(f"{case:24} {answers['greedy'].tolist()}")
    if options.cases == list(CASES):
        folder = HERE / "text"
        file = folder / "texts.json"
        if options.new_weights:
            folder.mkdir(exist_ok=True)
            draw_text_model(folder)
        answers = ask_for_texts(folder)
        if not options.check:
            file.write_text(json.dumps(answers, indent=1) + "\n")
        elif json.loads(file.read_text()) != answers:
            failures.append("text")
    if failures:
        sys.exit(f"differ from the files: {', '.join(failures)}")


if __name__ == "__main__":
    main()
