"""Writes models/, cases.json and expected.json: the results of AutoTokenizer for each family.

    python3 -m venv venv && venv/bin/pip install transformers==4.57.6 sentencepiece==0.2.3 tokenizers==0.22.2 protobuf
    venv/bin/python generate.py [folder of multi30k/dataset's data/task1/raw, unpacked]

Digests of Multi30k's lines that expected.json has already stay as they are: they take Python a quarter of an hour. Remove
the file to compute them again.
"""

import io
import json
import random
import shutil
import sys
import tempfile
import unicodedata
import warnings
from pathlib import Path

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, BlenderbotSmallTokenizer

assert transformers.__version__ == "4.57.6", transformers.__version__
assert sentencepiece.__version__ == "0.2.3", sentencepiece.__version__
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")

HERE = Path(__file__).parent

# Sentences are seeded random sequences of these words.
WORDS = {
    "en": (
        ["the baker", "a young doctor", "my neighbour", "the old sailor", "a tired student", "our teacher", "the painter's sister", "nobody"],
        ["opens", "repairs", "carries", "forgets", "paints", "doesn't want", "sells", "is watching"],
        ["the window", "a red bicycle", "seven lamps", "the letter", "his broken radio", "a bowl of soup", "the garden gate", "two maps"],
        ["in the morning", "near the harbour", "before lunch", "without a word", "on a rainy Tuesday", "again", "for 12.50 euros", "at the station"],
    ),
    "de": (
        ["der Bäcker", "eine junge Ärztin", "mein Nachbar", "der alte Seemann", "ein müder Schüler", "unsere Lehrerin", "niemand", "das Mädchen"],
        ["öffnet", "repariert", "trägt", "vergisst", "malt", "verkauft", "sucht", "grüßt"],
        ["das Fenster", "ein rotes Fahrrad", "sieben Lampen", "den Brief", "sein kaputtes Radio", "eine Schüssel Suppe", "das Gartentor", "die Straße"],
        ["am Morgen", "nahe dem Hafen", "vor dem Mittagessen", "ohne ein Wort", "an einem Dienstag", "wieder", "für 12,50 Euro", "am Bahnhof"],
    ),
    "fr": (
        ["le boulanger", "une jeune médecin", "mon voisin", "le vieux marin", "un élève fatigué", "notre institutrice", "personne", "l'été"],
        ["ouvre", "répare", "porte", "oublie", "peint", "n'a pas vu", "vend", "cherche"],
        ["la fenêtre", "un vélo rouge", "sept lampes", "la lettre", "sa radio cassée", "un bol de soupe", "le portail du jardin", "où ça"],
        ["le matin", "près du port", "avant le déjeuner", "sans un mot", "un mardi de pluie", "encore", "pour 12,50 euros", "à la gare"],
    ),
}

HARD = [
    "", " ", "   ", "\t", "\n", "\r\n", "a", " a", "a ", " a ", "  a  b   c  ", "a\tb", "a\nb", "a\n\nb\n", "a \n b", "\u3000", "a\u3000b", "a\u00a0b", "\u00a0",
    "a\u2003b\u2009c\u200ad", "\u2028a\u2029b\u0085c", "\u1680a\u180eb", "zero\u200bwidth\u200cnon\u200djoin\ufeffer", "\ufeffmark", "soft\u00adhyphen",
    "nul\x00in", "\x00", "\x01\x02\x7f bell\x07 esc\x1b[0m", "\x1c\x1d\x1e\x1f", "a\x1cb\x1fc", "\x0bvt\x0cff", "\x80\x9f",
    "Ｆｕｌｌ　ｗｉｄｔｈ １２３ ！？", "ﬁne ﬂag ﬃ ſ", "①②③ ½ ¼ ² ³ ₂ ℃ ℡ № ™", "ﾊﾝｶｸ ｶﾞ", "㍿ ㌔ ㋿", "Å Å Å", "e\u0301 é ê\u0323 ệ", "a\u0300\u0301\u0302\u0303\u0304", "\u0301alone",
    "n\u0303 ñ o\u0308ffnen ö", "Z\u0351\u036b\u0343al\u0348go\u0321", "각 각 \u1112\u1161\u11ab", "क्षि नि", "ก็ กำ น้ำ", "བོད་ཡིག", "தமிழ்",
    "😀", "😀😀", "a😀b", "👩‍👩‍👧‍👦 family", "👍🏽 skin", "🇩🇪🇫🇷", "☃️ ☃", "#️⃣ 1️⃣", "\U0001f9d1\u200d\U0001f680", "\U0010ffff\U000e0001", "\ue000 private",
    "שלום עולם", "مرحبا بالعالم", "\u202eabc\u202c", "\u200fab\u200ec", "العربية 123 abc", "لا ﻻ ﷺ",
    "日本語のテキスト。", "日本 語", "中文，标点！", "한국어 문장", "Привет, мир!", "Ελλάδα ΣΑΣ Σ", "İstanbul ıI iİ", "STRASSE straße ẞ",
    "Don't stop, won't, it's we've I'm they're you'll he'd 's 't", "'quoted' \"double\" „deutsch“ «français» ‘a’ ’t", "a.b,c!d?e(f)g:h;i", "...", "!!!???", "(a)", "' '", "''", "a ' b",
    "3.14 1,000.50 12,50 1e-5 0x1F 10%", "http://example.org/a?b=c&d=e#f user@example.org", "tab\tand  two  spaces   three", "-- – — ‐ − ~ ～ 〜", "… ‥ ⁇ ‽",
    "</s>", "<s>", "<unk>", "<pad>", "<mask>", "a</s>b", "a </s> b", "<s>a</s>", "</s></s>", " </s> ", "<unk> x <unk>", "a<mask>b", "a <mask> b", "  <mask>  ", "<pad><pad>a",
    "<extra_id_0>", "a <extra_id_0> b <extra_id_1>", "a<extra_id_99>b", "<extra_id_1><extra_id_2>", "<extra_id_100>", "  <extra_id_3>  x", "<extra_id_7",
    "<mask_1> a <mask_2>", "<unk_2>", "a<unk_102>b <unk_103>", "en_XX", "a en_XX b", "de_DEde_DE", "eng_Latn text fra_Latn", "__en__ hello", "a__de__b", "__java__ x __python__", "__en_XX__a",
    ">>deu<< hello", ">>deu<<hello", ">>fra<<", ">>xyz<< hello", ">>unfinished", " >>deu<< hello", "a >>deu<< b", ">><<a", "</s>>>deu<< a", ">> <<", "<<>>",
    "__start__ hi __end__", "__unk__ __null__", "__newln__", "Hello__start__", "line one\nline two\n", "can't\n", "foo'\n",
    "▁", "▁a", "a▁b", "▁▁", "a ▁ b", "▁ ▁", " ▁", "@@ a@@ b", "</w>", "a</w>", "Ġa Ċ", "<0x41>", "<0x41><0x0A>", "<0xE6>", "\u2581\u2581x",
    "<sep>", "a<sep>b", "<sep><sep>", "<sep> <sep>", "x<sep", "[URL]", "see [URL].", "[URL][URL]s", "the<sep>baker", "[url]", "ab▁cd", "x ab▁cd y",
    "<new>", "a <new> b", "a<new>b", "<newer> <new", "<left> x <left>", "a  <left>b", "<right> b", "a<right>  b", "<word> a<word> <word>b a <word> b", "Upper UPPER <Upper>",
    "abcabcdabdc", "a" * 100, "ab" * 60, "z" * 40, "▁" * 10, " " * 40 + "x" + " " * 40, "日" * 50, "😀" * 20, "the baker " * 20, "Supercalifragilisticexpialidocious", "Donaudampfschifffahrtsgesellschaftskapitän",
    "The Baker OPENS the Window.", "der bäcker öffnet das fenster", "unsere Straße für 12,50 Euro!", "l'été à la gare, où ça?", "qqq xxx jjj", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789",
    " .", "a .", "a , b ! c ? d . n't 's 'm", "do n't ' x ' we 've", "C:\\path\\to `code` {x} [y] |z| ^ _ ~", "\ud7ff\ue000\uffff", "a\u0338=\u0338", "ǆ Ǆ ǅ", "Ω Ω K K", "fi\u200dne",
]


NFKC_PART = "nmt_nfkc.part"


def parts(name):
    """The files of models/ whose concatenation is NAME."""
    return [name, NFKC_PART] if name in ["unigram.model", "bpe.model", "unigram-t5.model"] else [name]


def corpus(seed, languages, count):
    rng = random.Random(seed)
    for _ in range(count):
        subjects, verbs, objects, places = WORDS[rng.choice(languages)]
        words = [rng.choice(subjects), rng.choice(verbs), rng.choice(objects)]
        if rng.random() < 0.7:
            words.append(rng.choice(places))
        sentence = " ".join(words)
        sentence = sentence[0].upper() + sentence[1:] if rng.random() < 0.7 else sentence
        yield sentence + rng.choice([".", ".", "!", "?", ", " + rng.choice(places) + "."])


def train(name, seed=0, languages=("en", "de", "fr"), **options):
    """Trains models/NAME.model; the options are SentencePiece's."""
    model = io.BytesIO()
    options = dict(vocab_size=400, character_coverage=1.0, num_threads=1, minloglevel=2, hard_vocab_limit=False) | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(seed, languages, 3000), model_writer=model, **options)
    message = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    if message.normalizer_spec.precompiled_charsmap:
        # Two thirds of all bytes, stored once. Concatenated messages are read as one.
        assert message.normalizer_spec.name == "nmt_nfkc"
        part = sentencepiece_model_pb2.ModelProto()
        part.normalizer_spec.precompiled_charsmap = message.normalizer_spec.precompiled_charsmap
        (HERE / "models" / NFKC_PART).write_bytes(part.SerializePartialToString())
        message.normalizer_spec.ClearField("precompiled_charsmap")
    (HERE / "models" / f"{name}.model").write_bytes(message.SerializeToString())


def train_all():
    shutil.rmtree(HERE / "models", ignore_errors=True)
    (HERE / "models").mkdir()
    nfkc, plain = "nmt_nfkc", "identity"
    t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    train("unigram", model_type="unigram", normalization_rule_name=nfkc, user_defined_symbols=["<sep>", "[URL]"])
    train("bpe", model_type="bpe", normalization_rule_name=nfkc)
    train("unigram-t5", model_type="unigram", normalization_rule_name=nfkc, **t5)
    train("unigram-bytes", seed=1, model_type="unigram", normalization_rule_name=plain, byte_fallback=True, vocab_size=600)
    train("bpe-bytes", seed=1, model_type="bpe", normalization_rule_name=plain, byte_fallback=True, vocab_size=600, user_defined_symbols=["<sep>", "ab▁cd"])
    train("bpe-t5-bytes", seed=1, model_type="bpe", normalization_rule_name=plain, byte_fallback=True, vocab_size=600, **t5)
    train("bpe-spaces", seed=2, model_type="bpe", normalization_rule_name=plain, remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=["<sep>"])
    train("unigram-suffix", seed=2, model_type="unigram", normalization_rule_name=plain, treat_whitespace_as_suffix=True)
    train("unigram-spaces", seed=3, model_type="unigram", normalization_rule_name=plain, remove_extra_whitespaces=False, unk_surface="??")


def pieces(*names):
    found = {}
    for name in names:
        model = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "models" / f"{name}.model"))
        found |= {model.id_to_piece(index): None for index in range(len(model))}
    return found


def vocabulary(name, first, *models, last=()):
    """Writes models/NAME.json: ids of tokens and of the models' pieces."""
    tokens = list(dict.fromkeys([*first, *sorted(pieces(*models), key=lambda piece: (piece[::-1], piece)), *last]))
    path = HERE / "models" / f"{name}.json"
    path.write_text(json.dumps({token: index for index, token in enumerate(tokens)}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def byte_level():
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(corpus(4, ["en", "fr"], 3000), vocab_size=500, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_model(folder)
        for name in ["vocab.json", "merges.txt"]:
            shutil.copy(Path(folder) / name, HERE / "models" / f"byte-level.{name}")


def small():
    """Blenderbot-small's vocabulary and merges: byte pair encoding of words in lower case."""
    words = {}
    for sentence in corpus(5, ["en"], 2000):
        for word in sentence.lower().replace(".", " .").replace("'", " ' ").split():
            symbols = (*word[:-1], word[-1] + "</w>")
            words[symbols] = words.get(symbols, 0) + 1
    merges, symbols = [], {symbol for word in words for symbol in word}
    while len(merges) < 150:
        pairs = {}
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        symbols.add("".join(best))
        merged = {}
        for word, count in words.items():
            out, index = [], 0
            while index < len(word):
                step = 2 if word[index : index + 2] == best else 1
                out.append("".join(word[index : index + step]))
                index += step
            merged[tuple(out)] = count
        words = merged
    tokens = sorted({symbol.removesuffix("</w>") if symbol.endswith("</w>") else symbol + "@@" for symbol in symbols} | set("abcdefghijklmnopqrstuvwxyz.,!?()'"))
    tokens = ["__null__", "__start__", "__end__", "__unk__", "__newln__", *tokens]
    (HERE / "models/small.vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}, indent=0) + "\n")
    (HERE / "models/small.merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


def token(content, **flags):
    return dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=False) | flags


ADDED = {
    "<new>": token("<new>", normalized=True),
    "<left>": token("<left>", lstrip=True, special=True),
    "<right>": token("<right>", rstrip=True),
    "<word>": token("<word>", single_word=True),
    "<Upper>": token("<Upper>", normalized=True, special=True),
}


def added(first, specials=()):
    """`added_tokens_decoder`: special tokens by id, and ADDED from id `first` on."""
    tokens = {str(index): token(content, special=True) for index, content in specials}
    return tokens | {str(first + index): value for index, value in enumerate(ADDED.values())}


def cases():
    """A name; files of models/ by their names in the folder; JSON files; languages."""
    def case(name, files, settings, languages=None, **json_files):
        json_files = {f"{key}.json": value for key, value in json_files.items()}
        if settings is not None:
            json_files["tokenizer_config.json"] = settings
        return dict(name=name, files={key: parts(file) for key, file in files.items()}, json=json_files, languages=languages)

    spm = "sentencepiece.bpe.model"
    marian = lambda source, target, vocab: {"source.spm": f"{source}.model", "target.spm": f"{target}.model", "vocab.json": f"{vocab}.json"}
    marian_files = marian("unigram", "unigram-bytes", "marian")
    marian_class = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    yield case("marian", marian_files, None, config={"model_type": "marian"})
    yield case("marian-prefix", marian_files, marian_class, [None, "deu"])
    yield case("marian-bpe-bytes", marian("bpe-bytes", "bpe-spaces", "marian-bpe"), marian_class)
    yield case("marian-spaces", marian("bpe-spaces", "unigram-spaces", "marian-bpe"), marian_class)
    yield case("marian-suffix", marian("unigram-suffix", "unigram-suffix", "marian-bpe"), marian_class)
    yield case("marian-unigram-spaces", marian("unigram-spaces", "bpe-bytes", "marian"), marian_class | {"clean_up_tokenization_spaces": True})
    yield case("marian-unigram-bytes", marian("unigram-bytes", "bpe", "marian"), marian_class)
    yield case("marian-separate", marian_files | {"target_vocab.json": "marian-bpe.json"}, marian_class | {"separate_vocabs": True})
    yield case("marian-added", marian_files, marian_class | {"added_tokens_decoder": added(2000, [(0, "</s>"), (1, "<unk>"), (2, "<pad>")]), "additional_special_tokens": ["<left>", "<late>"]})
    yield case("marian-old", marian_files, marian_class, special_tokens_map={"eos_token": "<pad>", "unk_token": token("<unk>", lstrip=True), "pad_token": "<pad>", "additional_special_tokens": ["<new>"]}, added_tokens={"<right>": 3000, "<new>": 3001})

    m2m = {spm: "bpe.model", "vocab.json": "m2m100.json"}
    yield case("m2m100", m2m, None, config={"model_type": "m2m_100"})
    yield case("m2m100-languages", m2m | {spm: "unigram.model"}, {"tokenizer_class": "M2M100Tokenizer", "src_lang": "fr"}, ["__de__", "fr"])
    codes = transformers.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    yield case("m2m100-specials", m2m | {spm: "bpe-bytes.model"}, {"tokenizer_class": "M2M100Tokenizer"}, ["fr", "en"], special_tokens_map={"additional_special_tokens": [f"__{code}__" for code in codes]})
    yield case("m2m100-wmt21", m2m, {"tokenizer_class": "M2M100Tokenizer", "language_codes": "wmt21", "added_tokens_decoder": added(4000, [(2, "</s>")])}, ["de", "is"])

    yield case("mbart", {spm: "unigram.model"}, None, config={"model_type": "mbart"})
    yield case("mbart-languages", {spm: "bpe.model"}, {"tokenizer_class": "MBartTokenizer", "src_lang": "de_DE"}, ["ro_RO", "fr_XX"])
    yield case("mbart-added", {spm: "bpe-bytes.model"}, {"tokenizer_class": "MBartTokenizerFast", "src_lang": "cs_CZ", "added_tokens_decoder": added(700, [(0, "<s>")]), "additional_special_tokens": ["<left>", "xx_XX"]}, ["xx_XX", None])
    yield case("mbart50", {spm: "unigram-bytes.model"}, {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX"}, ["sl_SI", "af_ZA"])
    yield case("mbart50-bpe", {spm: "bpe.model"}, {"tokenizer_class": "MBart50Tokenizer", "mask_token": token("<mask>", lstrip=True, __type="AddedToken")})
    yield case("nllb", {spm: "bpe.model"}, {"tokenizer_class": "NllbTokenizer"}, ["zul_Latn", "ace_Arab"])
    yield case("nllb-legacy", {spm: "unigram.model"}, {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True, "src_lang": "deu_Latn"}, [None, "fra_Latn"])
    yield case("nllb-custom", {spm: "bpe-bytes.model"}, {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": ["eng_Latn", "tyv_Cyrl"], "added_tokens_decoder": added(600)}, ["tyv_Cyrl", "eng_Latn"])
    yield case("nllb-unknown", {spm: "bpe-spaces.model"}, {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": ["tyv_Cyrl"]})
    yield case("plbart", {spm: "unigram.model"}, None, config={"model_type": "plbart"})
    yield case("plbart-base", {spm: "bpe-bytes.model"}, {"tokenizer_class": "PLBartTokenizer", "language_codes": "base", "src_lang": "java", "clean_up_tokenization_spaces": False}, ["python", "__en_XX__"])
    yield case("plbart-multi", {spm: "bpe.model"}, {"tokenizer_class": "PLBartTokenizer", "language_codes": "multi", "added_tokens_decoder": added(900)}, ["go", "ruby"])

    yield case("pegasus", {"spiece.model": "unigram-t5.model"}, None, config={"model_type": "pegasus"})
    yield case("pegasus-offset", {"spiece.model": "unigram-t5.model"}, {"tokenizer_class": "PegasusTokenizer", "offset": 20, "additional_special_tokens": ["<mask_1>", "<new>"]})
    yield case("pegasus-zero", {"spiece.model": "bpe-t5-bytes.model"}, {"tokenizer_class": "PegasusTokenizer", "offset": 0, "mask_token_sent": None, "mask_token": None, "additional_special_tokens": []})
    yield case("t5", {"spiece.model": "unigram-t5.model"}, None, config={"model_type": "t5"})
    yield case("t5-not-legacy", {"spiece.model": "unigram-t5.model"}, {"tokenizer_class": "T5Tokenizer", "legacy": False, "extra_ids": 10})
    yield case("t5-unprefixed", {"spiece.model": "unigram-t5.model"}, {"tokenizer_class": "T5TokenizerFast", "add_prefix_space": False, "extra_ids": 100, "additional_special_tokens": [f"<extra_id_{index}>" for index in range(100)]})
    yield case("t5-added", {"spiece.model": "unigram-t5.model"}, {"tokenizer_class": "T5Tokenizer", "extra_ids": 3, "added_tokens_decoder": added(500, [(0, "<pad>"), (1, "</s>")]), "eos_token": "</s>", "additional_special_tokens": ["<late>"]})
    yield case("mt5", {"spiece.model": "bpe-t5-bytes.model"}, {"tokenizer_class": "MT5Tokenizer", "extra_ids": 0, "additional_special_tokens": None})
    yield case("umt5", {"spiece.model": "bpe-t5-bytes.model"}, None, config={"model_type": "umt5"})

    yield case("mbart-json", {"tokenizer.json": "mbart.tokenizer.json"}, {"tokenizer_class": "MBartTokenizer"}, ["ja_XX", "cs_CZ"])
    yield case("mbart50-json", {"tokenizer.json": "mbart50.tokenizer.json"}, {"tokenizer_class": "MBart50TokenizerFast", "src_lang": "de_DE"})
    yield case("nllb-json", {"tokenizer.json": "nllb.tokenizer.json"}, {"tokenizer_class": "NllbTokenizer"}, ["deu_Latn", "rus_Cyrl"])
    yield case("nllb-json-legacy", {"tokenizer.json": "nllb.tokenizer.json"}, {"tokenizer_class": "NllbTokenizerFast", "legacy_behaviour": True})

    level = {"vocab.json": "byte-level.vocab.json", "merges.txt": "byte-level.merges.txt"}
    yield case("bart", level, None, config={"model_type": "bart"})
    yield case("bart-added", level, {"tokenizer_class": "BartTokenizer", "add_prefix_space": True, "added_tokens_decoder": added(600)})
    yield case("blenderbot", level, {"tokenizer_class": "BlenderbotTokenizer", "add_prefix_space": True})
    yield case("blenderbot-plain", level, None, config={"model_type": "blenderbot"})
    lower = {"vocab.json": "small.vocab.json", "merges.txt": "small.merges.txt"}
    yield case("blenderbot-small", lower, {"tokenizer_class": "BlenderbotSmallTokenizer"})
    yield case("blenderbot-small-added", lower, {"tokenizer_class": "BlenderbotSmallTokenizer", "added_tokens_decoder": added(1000)})
    speech = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
    ids = {content: 500 + index for index, content in enumerate(speech)}
    yield case("whisper", level, {"tokenizer_class": "WhisperTokenizer"}, special_tokens_map={"eos_token": speech[0], "additional_special_tokens": speech[1:]}, added_tokens=ids)
    of_decoder = {str(500 + index): token(content, special=True) for index, content in enumerate(speech)}
    yield case("whisper-added", level, {"tokenizer_class": "WhisperTokenizer", "eos_token": speech[0], "added_tokens_decoder": of_decoder | added(507)}, config={"model_type": "whisper"})

    yield case("bert-generation", {"spiece.model": "unigram-t5.model"}, None, config={"model_type": "encoder-decoder", "encoder": {"model_type": "bert-generation"}, "decoder": {"model_type": "bert-generation"}})
    yield case("bert-generation-bytes", {"spiece.model": "bpe-t5-bytes.model"}, {"tokenizer_class": "BertGenerationTokenizer", "added_tokens_decoder": added(600), "sep_token": "<left>"})
    yield case("bert-generation-spaces", {"spiece.model": "unigram-spaces.model"}, {"tokenizer_class": "BertGenerationTokenizer", "clean_up_tokenization_spaces": True})


def from_json():
    """Writes tokenizer.json of three families, with templates of languages that the cases then change."""
    spm = "sentencepiece.bpe.model"
    for name, model, settings in [
        ("mbart", "unigram-spaces", {"tokenizer_class": "MBartTokenizer", "src_lang": "fr_XX"}),
        ("mbart50", "unigram-suffix", {"tokenizer_class": "MBart50Tokenizer", "src_lang": "fr_XX"}),
        ("nllb", "bpe-spaces", {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn"}),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = load(dict(files={spm: parts(f"{model}.model")}, json={"tokenizer_config.json": settings}, languages=None), Path(folder))
        tokenizer.backend_tokenizer.save(str(HERE / "models" / f"{name}.tokenizer.json"), pretty=False)


def load(case, folder):
    for name, source in case["files"].items():
        (folder / name).write_bytes(b"".join((HERE / "models" / part).read_bytes() for part in source))
    for name, value in case["json"].items():
        (folder / name).write_text(json.dumps(value))
    if case["json"].get("tokenizer_config.json", {}).get("tokenizer_class") == "BlenderbotSmallTokenizer":
        # AutoTokenizer's fast class of this family cannot read the family's merges.
        tokenizer = BlenderbotSmallTokenizer.from_pretrained(folder)
    else:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    source, _ = case["languages"] or [None, None]
    if source:
        tokenizer.src_lang = source.strip("_") if "M2M100" in type(tokenizer).__name__ else source
    return tokenizer


def token_ids(tokenizer, case, text):
    _, target = case["languages"] or [None, None]
    if "Marian" in type(tokenizer).__name__ and target:
        # As written by a user; the text must not begin with another code.
        return [tokenizer.convert_tokens_to_ids(f">>{target}<<"), *tokenizer(text).input_ids]
    return tokenizer(text).input_ids


def decoded(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True)


def target_language(tokenizer, case):
    name, (_, target) = type(tokenizer).__name__, case["languages"] or [None, None]
    if not target or "Marian" in name:
        return None
    if "M2M100" in name:
        return ["forced", tokenizer.get_lang_id(target.strip("_"))]
    if "PLBart" in name:
        return ["start", tokenizer.lang_code_to_id[target if target.startswith("__") else f"__{target}__"]]
    return ["start" if name.startswith("MBartTokenizer") else "forced", tokenizer.convert_tokens_to_ids(target)]


def fnv(text):
    """FNV-1a, 64 bits."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def multi30k(folder):
    """10,000 lines: 4,000 English, 3,000 German, 3,000 French."""
    for language, count in [("en", 4000), ("de", 3000), ("fr", 3000)]:
        yield from (folder / f"train.{language}").read_text(encoding="utf-8").split("\n")[:count]


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    train_all()
    vocabulary("marian", ["</s>", "<unk>"], "unigram", "unigram-bytes", last=[">>deu<<", ">>fra<<", "日本", "<pad>"])
    vocabulary("marian-bpe", ["<pad>", "</s>", "<unk>", ">>deu<<"], "bpe-bytes", "unigram-suffix", "bpe-spaces")
    vocabulary("m2m100", ["<s>", "<pad>", "</s>", "<unk>"], "bpe", "bpe-bytes", "unigram")
    byte_level()
    small()
    from_json()
    expected_path = HERE / "expected.json"
    before = json.loads(expected_path.read_text(encoding="utf-8")) if expected_path.exists() else {}
    lines = list(multi30k(folder)) if folder else []
    expected = {}
    rng = random.Random(7)
    all_cases = list(cases())
    for case in all_cases:
        name = case["name"]
        with tempfile.TemporaryDirectory() as temporary:
            tokenizer = load(case, Path(temporary))
        ids = [token_ids(tokenizer, case, text) for text in HARD]
        # Languages (M2M100) and what is decoded (Marian) are not in get_vocab.
        vocabularies = [tokenizer.get_vocab(), getattr(tokenizer, "lang_token_to_id", {}), getattr(tokenizer, "target_encoder", {})]
        largest = max(index for vocabulary in vocabularies for index in vocabulary.values())
        sequences = [[rng.randrange(largest + 1) for _ in range(rng.randint(1, 12))] for _ in range(60)]
        if "PLBart" in type(tokenizer).__name__:
            # It fails on ids between its vocabulary and its added tokens.
            sequences = [[id for id in ids if id < tokenizer.vocab_size or id in tokenizer.added_tokens_decoder] for ids in sequences]
        expected[name] = {
            "class": type(tokenizer).__name__,
            "largest_id": largest,
            "target": target_language(tokenizer, case),
            "hard": [[one, decoded(tokenizer, one)] for one in ids],
            "decoded": [[one, decoded(tokenizer, one)] for one in sequences],
            "multi30k": before.get(name, {}).get("multi30k", []),
        }
        if lines and not expected[name]["multi30k"]:
            digests = []
            for start in range(0, len(lines), 100):
                answers = []
                for text in lines[start : start + 100]:
                    one = token_ids(tokenizer, case, text)
                    answers.append(" ".join(map(str, one)) + "\t" + decoded(tokenizer, one) + "\n")
                digests.append(fnv("".join(answers)))
            expected[name]["multi30k"] = digests
        print(name, type(tokenizer).__name__, len(tokenizer), flush=True)
    (HERE / "cases.json").write_text(json.dumps({"hard": HARD, "cases": all_cases}, indent=1) + "\n", encoding="utf-8")
    expected_path.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}" for name, value in expected.items()) + "\n}\n", encoding="utf-8")


main()
