"""Makes the folders in strange/ from the cases of cases.py: draws the weights, writes them in unusual forms, and reads them."""

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable

import torch
import transformers as hf
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file

from answers import MAX_NEW_TOKENS, ask, ask_in_double, draw_inputs, rounding, tokens_in_double

# Bound on the difference of f32 and float64 for the chosen seed.
ROUNDING = 2e-5
# Least margin between the two best tokens, so that rounding does not choose.
MARGIN = 1e-3
# Untied, these have separate tables for encoder, decoder and output; in others encoder and decoder share one.
SEPARATE = ("bart", "mbart", "plbart", "m2m_100")
# Parts of the names of embedding tables.
TABLES = ("embed_tokens", "shared", "word_embeddings", "wte")


@dataclasses.dataclass
class Case:
    """One folder in strange/."""

    about: str
    config: hf.PretrainedConfig
    # The type of the stored weights; outputs are computed from them in f32.
    dtype: torch.dtype = torch.float32
    # Maximum number of bytes of a weights file.
    shard: str = "5GB"
    # Fields removed from config.json: the reader must know their defaults.
    omit: tuple = ()
    # Fields changed in config.json.
    edit: dict = dataclasses.field(default_factory=dict)
    # Changes the stored tensors: {name: tensor} to the same.
    rewrite: Callable | None = None
    # Steps that transformers 4.57.6 omits on loading: for the new model, and for the tensors before they are loaded.
    prepare: Callable | None = None
    restore: Callable | None = None
    # Changes the inputs.
    inputs: Callable = lambda inputs: inputs
    source_lengths: tuple = (9, 6, 3)
    target_length: int = 6


def copies(name, *others):
    """The tensor also under other names: aliases that some programs save."""
    return lambda tensors: tensors | {other: tensors[name].clone() for other in others}


def renamed(name, *others):
    """The tensor under other names only."""
    return lambda tensors: {n: t for n, t in copies(name, *others)(tensors).items() if n != name}


def base_model_only(tensors):
    """The names of BartModel, which has no head: facebook/bart-base and bart-large are stored this way."""
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name != "final_logits_bias"}


def mbart_leftovers(tensors):
    aliases = copies(
        "model.shared.weight",
        *(f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")),
        "lm_head.weight",
    )
    return aliases(tensors) | {f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}


def t5_leftovers(tensors):
    bias = tensors["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    left_over = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.full_like(bias, 0.5)}
    aliases = copies("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    return aliases(tensors) | left_over


def saved_sinusoids(name, table):
    """Adds tables of sinusoids, rounded to f16: so it shows whether they are read or computed again."""
    names = [f"model.{side}.embed_positions.{name}" for side in ("encoder", "decoder")]
    return lambda tensors: tensors | {name: table.half().float() for name in names}


def marian_sinusoids(positions, d_model):
    table = hf.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding(positions, d_model)
    table._init_weight()
    return table.weight.data


def m2m100_sinusoids(positions, d_model, pad):
    kind = hf.models.m2m_100.modeling_m2m_100.M2M100SinusoidalPositionalEmbedding
    return kind.get_embedding(positions + 2, d_model, pad)


def padding_inside(inputs):
    """Padding within the sources: seen by attention in the first, hidden in the second; the third is padded left."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    ids[0, 3:5] = ids[1, 2] = 3
    mask[1, 2] = 0
    ids[2], mask[2] = ids[2].roll(6), mask[2].roll(6)
    return inputs


@torch.no_grad()
def draw(case, seed):
    """A random model in which every parameter matters, the padding token's embedding too."""
    torch.manual_seed(seed)
    model = hf.AutoModelForSeq2SeqLM.from_config(copy.deepcopy(case.config), attn_implementation="eager")
    if case.prepare:
        case.prepare(model)
    family = case.config.model_type
    if not case.config.tie_word_embeddings and family in SEPARATE:
        for side in (model.get_encoder(), model.get_decoder()):
            side.embed_tokens.weight = torch.nn.Parameter(torch.empty_like(side.embed_tokens.weight))
    is_gemma = family == "t5gemma"
    is_scaled = getattr(case.config, "scale_embedding", False)
    table = 0.3 if is_gemma else 0.8 if "t5" in family else 0.45 if is_scaled else 0.9
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and family in ("marian", "pegasus"):  # sinusoids are not learned
            continue
        if parameter.dim() == 1:
            # A norm that keeps the signs lets a tied output repeat the token that came in.
            neutral = 1.0 if is_gemma and "norm" in name else 0.0
            parameter.add_(torch.randn_like(parameter) * 0.2 + neutral).mul_(torch.randn_like(parameter).sign()).sub_(neutral)
        elif any(part in name for part in TABLES):
            parameter.normal_(std=table)
        elif "relative_attention_bias" in name:
            parameter.normal_(std=2.0)
        elif "lm_head" in name:
            parameter.normal_(std=0.5)
        else:
            # Attention is sharp, positions show, and the layers do not drown what comes in.
            factors = {"embed_positions": 4.0, "position_embeddings": 4.0, "wpe": 4.0, "query": 3.0, "key": 3.0}
            factors |= {"q_proj": 3.0, "k_proj": 3.0, "_proj": 0.7, "fc": 0.7}
            parameter.mul_(next((factor for part, factor in factors.items() if part in name), 2.0))
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(std=0.8)[:, case.config.eos_token_id] -= 3
    return model


def write(case, model, folder):
    """The checkpoint of a drawn model, with the case's oddities."""
    model.to(case.dtype).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    save_torch_state_dict(case.rewrite(tensors) if case.rewrite else tensors, folder, max_shard_size=case.shard)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | case.edit
    missing = [name for name in case.omit if name not in config]
    if missing:
        raise SystemExit(f"{path}: has no {', '.join(missing)} to leave out")
    config = {name: value for name, value in config.items() if name not in case.omit}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def read(case, folder):
    """The checkpoint in f32, by `from_pretrained` where that can."""
    if case.prepare or case.restore:
        return able_to_generate(read_by_hand(case, folder))
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    return able_to_generate(model)


def able_to_generate(model):
    """`generate` sizes its beams by the first vocabulary and T5's cache by the encoder's depth; both are the decoder's."""
    model.config.vocab_size = model.get_output_embeddings().out_features
    if model.config.model_type in ("t5", "mt5", "umt5"):
        model.config.num_layers = model.config.num_decoder_layers
    if model.config.model_type == "encoder-decoder":
        # GPT-2 otherwise returns no weights of attention.
        model.decoder.config._attn_implementation = "eager"
    if model.config.model_type == "t5gemma":
        # Its cache crops the keys of the source to the window of sliding layers. Without one it hides padding tokens that it decoded.
        model.config.decoder.use_cache = model.generation_config.use_cache = False
        kind = hf.models.t5gemma.modeling_t5gemma
        kind.make_default_2d_attention_mask = lambda ids, states, pad: torch.ones(states.shape[:2], dtype=torch.long)
    return model.eval()


def read_by_hand(case, folder):
    config = hf.AutoConfig.from_pretrained(folder)
    model = hf.AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    if case.prepare:
        case.prepare(model)
    tensors = load_file(folder / "model.safetensors")
    missing, unexpected = model.load_state_dict(case.restore(tensors) if case.restore else tensors, strict=False)
    known = ("embed_tokens", "lm_head", "embed_positions")
    if unexpected or not all(any(part in name for part in known) for name in missing):
        raise SystemExit(f"{folder}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def lively(model, inputs):
    """Whether greedy decoding goes on for a while and does not merely repeat."""
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    greedy = model.generate(**source, max_new_tokens=MAX_NEW_TOKENS, num_beams=1, do_sample=False)[:, 1:]
    kept = [row[row != model.config.pad_token_id] for row in greedy]
    repeated = [row.unique(return_counts=True)[1].max() / len(row) for row in kept if len(row)]
    return (
        min(map(len, kept)) >= 2
        and sum(map(len, kept)) >= 10 * len(kept)
        and max(repeated) <= 0.6
        and greedy.unique().numel() >= 8
    )


def unfit(model, inputs, answers, doubles):
    """Why rounding makes a poor test of this model, or nothing."""
    if max(rounding(answers, doubles).values()) > ROUNDING:
        return "rounds too much"
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    best = model(**source, decoder_input_ids=answers["greedy"]).logits[:, :-1].topk(2).values
    if (best[..., 0] - best[..., 1]).min() < MARGIN:
        return "close to a tie"
    return None if tokens_in_double(model, answers) else "float64 decodes otherwise"


@torch.no_grad()
def make(case, folder, seed):
    """Draws models until one is fit, from `seed` on; writes its checkpoint, gives its answers."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in itertools.count(seed):
        drawn = draw(case, seed)
        inputs = case.inputs(draw_inputs(drawn, seed, case.source_lengths, case.target_length))
        if not lively(able_to_generate(copy.deepcopy(drawn)), inputs):
            continue
        write(case, drawn, folder)
        model = read(case, folder)
        answers, doubles = ask(model, inputs), ask_in_double(model, inputs)
        reason = unfit(model, inputs, answers, doubles)
        if reason is None:
            return answers, doubles, seed
        print(f"seed {seed}: {reason}")
