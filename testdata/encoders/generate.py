"""Makes and checks the encoders: tiny Hugging Face models with PyTorch's outputs.

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

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True  # nothing but data beside the data
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
from answers import StayDouble

LENGTHS = (9, 6, 3)
# Two builds of PyTorch round float64 differently.
TOLERANCE = 1e-9

SHAPE = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
    initializer_range=0.4,
)
ROBERTA = SHAPE | dict(layer_norm_eps=1e-5, type_vocab_size=1)
DISTIL = dict(vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=24, initializer_range=0.4)
T5 = dict(vocab_size=40, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0)
BART = dict(
    vocab_size=40,
    d_model=16,
    encoder_layers=2,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=24,
    decoder_ffn_dim=24,
    max_position_embeddings=24,
    init_std=0.4,
)
LABELS = dict(num_labels=3)
IMAGES = {name: SHAPE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "initializer_range")}
IMAGES |= dict(image_size=16, patch_size=4)

# A case is a class of transformers and its configuration.
CASES = {
    "bert": ("BertModel", SHAPE),
    "bert-masked": ("BertForMaskedLM", SHAPE | dict(hidden_act="gelu_new")),
    "bert-masked-untied": ("BertForMaskedLM", SHAPE | dict(hidden_act="relu", tie_word_embeddings=False, layer_norm_eps=1e-3)),
    "bert-text": ("BertForSequenceClassification", SHAPE | LABELS | dict(type_vocab_size=3, pad_token_id=5)),
    "bert-tokens": ("BertForTokenClassification", SHAPE | dict(num_labels=5)),
    "deit": ("DeiTModel", IMAGES | dict(layer_norm_eps=1e-6)),
    "deit-classes": ("DeiTForImageClassification", IMAGES | LABELS),
    "deit-teacher": ("DeiTForImageClassificationWithTeacher", IMAGES | LABELS | dict(qkv_bias=False)),
    "distilbert": ("DistilBertModel", DISTIL | dict(activation="relu")),
    "distilbert-masked": ("DistilBertForMaskedLM", DISTIL),
    "distilbert-text": ("DistilBertForSequenceClassification", DISTIL | LABELS | dict(sinusoidal_pos_embds=True)),
    "m2m100": ("M2M100Encoder", BART | dict(scale_embedding=True)),
    "mbart": ("MBartEncoder", BART),
    "mpnet": ("MPNetModel", SHAPE),
    "mpnet-masked": ("MPNetForMaskedLM", SHAPE),
    "mpnet-text": ("MPNetForSequenceClassification", SHAPE | LABELS),
    "roberta": ("RobertaModel", ROBERTA),
    "roberta-masked": ("RobertaForMaskedLM", ROBERTA | dict(hidden_act="gelu_new")),
    "roberta-text": ("RobertaForSequenceClassification", ROBERTA | dict(num_labels=1)),
    "t5": ("T5EncoderModel", T5),
    "umt5": ("UMT5EncoderModel", T5),
    "vit": ("ViTForImageClassification", IMAGES | LABELS | dict(patch_size=5)),
    "vit-model": ("ViTModel", IMAGES | dict(qkv_bias=False, num_channels=1, hidden_act="relu")),
    "vit-wide": ("ViTForImageClassification", IMAGES | dict(num_labels=1, image_size=(8, 18), patch_size=(4, 3))),
    "xlm-roberta-tokens": ("XLMRobertaForTokenClassification", ROBERTA | dict(num_labels=5)),
}


def draw_model(case, seed):
    """A random model in which every parameter matters: biases and scales differ from 0 and 1."""
    torch.manual_seed(seed)
    name, fields = CASES[case]
    kind = getattr(transformers, name, None) or getattr(transformers.models.m2m_100.modeling_m2m_100, name, None)
    kind = kind or getattr(transformers.models.mbart.modeling_mbart, name)
    model = kind(kind.config_class(**fields))
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def draw_inputs(model, seed):
    """Random tokens, padded right; in the second half of each text they are of the second segment."""
    generator = torch.Generator().manual_seed(seed)
    if model.config.model_type in ("deit", "vit"):
        sides = model.config.image_size
        own = sides if isinstance(sides, (list, tuple)) else (sides, sides)
        sizes = {"pixel_values": own} | ({} if own is sides else {"other.pixel_values": (own[0] * 2 - 7, own[1] - 3)})
        patch = model.config.patch_size
        # Images of other sizes have as many pixels too many as those of the model's own.
        fit = lambda side: side if own is sides else side // patch * patch + sides % patch
        draw = lambda size: torch.randn(2, model.config.num_channels, *map(fit, size), generator=generator)
        return {name: draw(size) for name, size in sizes.items()}
    pad = model.config.pad_token_id
    ordinary = torch.tensor([i for i in range(model.config.vocab_size) if i != pad])
    ids = torch.full((len(LENGTHS), max(LENGTHS)), pad)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = ordinary[torch.randint(len(ordinary), (length,), generator=generator)]
        mask[row, :length] = 1
        types[row, length // 2 : length] = 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs | ({"token_type_ids": types} if model.config.model_type == "bert" else {})


# Folders with a tokenizer: in the form of sentence-transformers, and classifiers.
SENTENCES = {
    "sentence": dict(pooling="mean", normalize=True, max_seq_length=12),
    "sentence-classes": dict(labels=["bad", "good", "neither"]),
    "sentence-first": dict(pooling="cls", normalize=False, max_seq_length=20),
    "sentence-score": dict(labels=["good"]),
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "##s", "man", "is", "riding", "bicycle", ".", ",", "two"]
PIECES += [c for c in "bcdefghijklmnopqrstuvwxyz0123"] + ["##" + c for c in "abcdefghijklmnopqrtuvwxyz"] + ["\u732b", "\u72ac"]
TEXTS = [
    "A man is riding a bicycle.",
    "Two dogs, a man.",
    "",
    "Caf\u00e9 \u732b\u72ac \u1e9e!",
    "two dogs is a man riding a bicycle, a dog, a man, a bicycle, two dogs.",
    "  A\tman\u200b [MASK] isdog ",
]


def draw_sentence_model(case):
    """A model with a tokenizer and the files of sentence-transformers."""
    settings, folder = SENTENCES[case], HERE / case
    torch.manual_seed(sum(case.encode()))
    fields = SHAPE | dict(vocab_size=len(PIECES))
    if "labels" in settings:
        labels = dict(enumerate(settings["labels"]))
        config = transformers.BertConfig(**fields, id2label=labels, label2id={label: i for i, label in labels.items()})
        model = transformers.BertForSequenceClassification(config)
    else:
        model = transformers.BertModel(transformers.BertConfig(**fields), add_pooling_layer=False)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    if "labels" in settings:
        return
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * settings["normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        dict(idx=i, name=str(i), path=paths[i], type=f"sentence_transformers.models.{kind}") for i, kind in enumerate(kinds)
    ]
    modes = {f"pooling_mode_{mode}": False for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    modes[f"pooling_mode_{settings['pooling']}" + ("_token" if settings["pooling"] == "cls" else "_tokens")] = True
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, value in [
        ("modules.json", modules),
        ("1_Pooling/config.json", dict(word_embedding_dimension=16, **modes)),
        ("sentence_bert_config.json", dict(max_seq_length=settings["max_seq_length"], do_lower_case=False)),
    ]:
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")


@torch.no_grad()
def ask_for_sentences(case):
    """Texts with their ids and embeddings, as sentence-transformers computes them, or the probabilities of classes, in float64."""
    settings, folder = SENTENCES[case], HERE / case
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if "labels" in settings:
        model = transformers.BertForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval().double()
        logits = [model(**tokenizer(text, truncation=True, max_length=24, return_tensors="pt")).logits[0] for text in TEXTS]
        scores = [row.softmax(0) if len(row) > 1 else row.sigmoid() for row in logits]
        return [dict(text=text, ids=tokenizer(text).input_ids, numbers=row.tolist()) for text, row in zip(TEXTS, scores)]
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False).eval().double()
    answers = []
    for text in TEXTS:
        ids = tokenizer(text, truncation=True, max_length=settings["max_seq_length"], return_tensors="pt")
        states = model(**ids).last_hidden_state[0]
        vector = states[0] if settings["pooling"] == "cls" else states.mean(0)
        if settings["normalize"]:
            vector = torch.nn.functional.normalize(vector, dim=0)
        answers.append(dict(text=text, ids=tokenizer(text).input_ids, numbers=vector.tolist()))
    return answers


# Folders with an image processor: classifiers, asked about files of testdata/images.
PICTURES = {
    "image-classes": ("vit", dict(labels=["cat", "dog", "other"]), transformers.ViTImageProcessor(size={"height": 16, "width": 16})),
    "image-score": (
        "deit",
        dict(labels=["good"]),
        transformers.DeiTImageProcessor(size={"height": 20, "width": 20}, crop_size={"height": 16, "width": 16}),
    ),
}
FILES = ("rgb.png", "palette.png", "turned.png", "grey-alpha.png")


def draw_image_model(case):
    kind, settings, processor = PICTURES[case]
    labels = dict(enumerate(settings["labels"]))
    CASES[case] = ({"vit": "ViT", "deit": "DeiT"}[kind] + "ForImageClassification", IMAGES | dict(id2label=labels))
    CASES[case][1].update(label2id={label: i for i, label in labels.items()})
    draw_model(case, sum(case.encode())).save_pretrained(HERE / case)
    del CASES[case]
    processor.save_pretrained(HERE / case)


@torch.no_grad()
def ask_for_images(case):
    """The probabilities of classes in float64, as transformers' pipeline computes them."""
    processor = transformers.AutoImageProcessor.from_pretrained(HERE / case, use_fast=False)
    model = transformers.AutoModelForImageClassification.from_pretrained(HERE / case, attn_implementation="eager").eval().double()
    answers = []
    for name in FILES:
        image = transformers.image_utils.load_image(str(HERE.parent / "images" / name))
        pixels = processor(image, return_tensors="pt").pixel_values.double()
        with StayDouble():
            row = model(pixel_values=pixels).logits[0]
        answers.append(dict(file=name, numbers=(row.softmax(0) if len(row) > 1 else row.sigmoid()).tolist()))
    return answers


def load_model(case):
    folder = HERE / case
    name = CASES[case][0]
    for module in (transformers, transformers.models.m2m_100.modeling_m2m_100, transformers.models.mbart.modeling_mbart):
        if hasattr(module, name):
            kind = getattr(module, name)
    return kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval().double()


@torch.no_grad()
def ask(model, inputs):
    answers = {}
    for prefix in ["", "other."] if "other.pixel_values" in inputs else [""]:
        given = {name.removeprefix(prefix): tensor for name, tensor in inputs.items() if name.startswith("other.") == bool(prefix)}
        if "pixel_values" in given:
            given = {"pixel_values": given["pixel_values"].double(), "interpolate_pos_encoding": bool(prefix)}
        with StayDouble():
            found = model(**given, return_dict=True)
            bare = model.base_model(**given, output_attentions=True, return_dict=True)
        answers[prefix + "attentions"] = torch.stack(bare.attentions)
        for part in (found, bare):
            for name in ("last_hidden_state", "pooler_output", "logits"):
                if name in part:
                    answers[prefix + name] = part[name]
    return {name: tensor.contiguous() for name, tensor in answers.items()}


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
            inputs = {name: stored[name] for name in stored if stored[name].dtype != torch.float64}
        answers = inputs | ask(load_model(case), inputs)
        if options.check:
            worst = max((answers[name] - stored[name]).abs().max().item() for name in answers)
            print(f"{case:24} largest difference {worst:.1e}")
            if answers.keys() != stored.keys() or not worst <= TOLERANCE:
                failures.append(case)
        else:
            save_file(answers, file)
            print(f"{case:24} {', '.join(f'{name} {list(tensor.shape)}' for name, tensor in answers.items())}")
    folders = [(case, "sentences.json", draw_sentence_model, ask_for_sentences) for case in SENTENCES]
    folders += [(case, "images.json", draw_image_model, ask_for_images) for case in PICTURES]
    for case, name, draw, ask_for in folders if options.cases == list(CASES) else []:
        if options.new_weights:
            draw(case)
        file, answers = HERE / case / name, ask_for(case)
        if not options.check:
            file.write_text(json.dumps(answers, indent=1) + "\n")
            continue
        for old, new in zip(json.loads(file.read_text()), answers, strict=True):
            worst = max(abs(a - b) for a, b in zip(old.pop("numbers"), new.pop("numbers"), strict=True))
            if old != new or not worst <= TOLERANCE:
                failures.append(case)
    sys.exit(f"differ: {', '.join(failures)}" if failures else 0)


if __name__ == "__main__":
    main()
