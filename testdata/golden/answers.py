"""PyTorch's outputs for a golden model, and their comparison. The command is `generate.py`."""

import copy

import torch
import transformers
from torch.overrides import TorchFunctionMode

SOURCE_LENGTHS = (11, 7, 4)
TARGET_LENGTH = 7
MAX_NEW_TOKENS = 24
NUM_BEAMS = 4

# PyTorch's outputs differ by up to 2e-5 between batches; the same is allowed between two builds.
TOLERANCE = 2e-5


class StayDouble(TorchFunctionMode):
    """Keeps float64 values in float64 if transformers converts them to float32.

    T5's norms, its softmax and that of ViT compute in float32 whatever the model's type; with this they round as the rest does.
    Products of float64 and float32, those of frequencies and positions, are computed in float64.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.matmul, torch.Tensor.__matmul__) and args[0].dtype != args[1].dtype:
            args = tuple(factor.to(torch.float64) for factor in args)
        if func is torch.Tensor.float or (func is torch.Tensor.to and torch.float32 in args):
            if args[0].dtype == torch.float64:
                return args[0]
        kwargs = kwargs or {}
        if kwargs.get("dtype") is torch.float32 and args and getattr(args[0], "dtype", None) is torch.float64:
            kwargs = kwargs | {"dtype": torch.float64}
        return func(*args, **kwargs)


def in_double(model):
    """The model in float64, frequencies of rotary positions computed in it."""
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq = frequencies_in_double(module)
    return model


def frequencies_in_double(module):
    """transformers' functions name the type; here its names mean float64."""
    kept = torch.float, torch.float32
    torch.float = torch.float32 = torch.float64
    try:
        return module.rope_init_fn(module.config, None)[0]
    finally:
        torch.float, torch.float32 = kept


def draw_inputs(model, seed, source_lengths=SOURCE_LENGTHS, target_length=TARGET_LENGTH):
    """Sources of random tokens, each ending in eos and padded right, and a target prefix for teacher forcing."""
    generator = torch.Generator().manual_seed(seed)
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    rows = lambda stack: stack.get_input_embeddings().num_embeddings
    source_vocabulary = rows(model.get_encoder())
    target_vocabulary = min(rows(model.get_decoder()), model.get_output_embeddings().out_features)
    start = model.config.decoder_start_token_id

    def tokens(count, vocabulary):
        ordinary = torch.tensor([i for i in range(vocabulary) if i not in (pad, eos)])
        return ordinary[torch.randint(len(ordinary), (count,), generator=generator)]

    input_ids = torch.full((len(source_lengths), max(source_lengths)), pad)
    attention_mask = torch.zeros_like(input_ids)
    decoder_input_ids = torch.full((len(source_lengths), target_length), model.config.bos_token_id if start is None else start)
    for row, length in enumerate(source_lengths):
        input_ids[row, : length - 1] = tokens(length - 1, source_vocabulary)
        input_ids[row, length - 1] = eos
        attention_mask[row, :length] = 1
        decoder_input_ids[row, 1:] = tokens(target_length - 1, target_vocabulary)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}


def decode(model, inputs):
    """The tokens of greedy decoding and of beam search, with scores."""
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    greedy = model.generate(**source, max_new_tokens=MAX_NEW_TOKENS, num_beams=1, do_sample=False)
    beams = model.generate(
        **source,
        max_new_tokens=MAX_NEW_TOKENS,
        num_beams=NUM_BEAMS,
        num_return_sequences=NUM_BEAMS,
        length_penalty=1.0,
        early_stopping=False,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return {"greedy": greedy, "beam4": beams.sequences, "beam4_scores": beams.sequences_scores}


@torch.no_grad()
def ask(model, inputs):
    """PyTorch's outputs, with the names and shapes of README.md's table."""
    answers = {**inputs, **forced_numbers(model, inputs), **decode(model, inputs)}
    return {name: tensor.contiguous() for name, tensor in answers.items()}


def forced_numbers(model, inputs):
    """Hidden states, logits and attentions on the given targets."""
    source = {name: inputs[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    forced = model(**source, output_attentions=True)
    return {
        "encoder_last_hidden_state": forced.encoder_last_hidden_state,
        "logits": forced.logits,
        "cross_attentions": torch.stack(forced.cross_attentions),
    }


@torch.no_grad()
def ask_in_double(model, inputs):
    """The numbers of `ask` computed in float64 from the same f32 weights and tables."""
    with StayDouble():
        answers = forced_numbers(in_double(model), inputs)
    return {name: tensor.contiguous() for name, tensor in answers.items()}


@torch.no_grad()
def tokens_in_double(model, answers):
    """Whether float64 decodes the same tokens."""
    with StayDouble():
        doubles = decode(in_double(model), answers)
    return all(torch.equal(doubles[name], answers[name]) for name in ("greedy", "beam4"))


def load_model(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    return model.eval()


def differences(old, new):
    """One line for every tensor that is missing or differs: integers exactly, floats within TOLERANCE."""
    found = [f"{name}: in one of the two only" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        a, b = old[name], new[name]
        if a.shape != b.shape:
            found.append(f"{name}: {list(a.shape)} in the file, {list(b.shape)} recomputed")
        elif a.is_floating_point():
            worst = (a - b).abs().max().item()
            print(f"    {name:28} {str(list(a.shape)):20} largest difference {worst:.1e}")
            if not worst <= TOLERANCE:
                found.append(f"{name}: differs by {worst:.1e}, at most {TOLERANCE:.0e} is allowed")
        else:
            print(f"    {name:28} {str(list(a.shape)):20} {'equal' if torch.equal(a, b) else 'DIFFERS'}")
            if not torch.equal(a, b):
                found.append(f"{name}: {(a != b).sum().item()} of {a.numel()} tokens differ")
    return found


def rounding(singles, doubles):
    """The largest differences of f32 and float64 in unpadded encoder states and in logits."""
    unpadded = singles["attention_mask"].bool()
    states = "encoder_last_hidden_state"
    return {
        states: (singles[states] - doubles[states]).abs()[unpadded].max().item(),
        "logits": (singles["logits"] - doubles["logits"]).abs().max().item(),
    }
