"""Encoder-decoder Transformers: translate, export to ONNX and verify, without PyTorch.

Texts are a string, or many in a list, a NumPy array, a series of pandas or Polars, or an Arrow array; translations come
back as the texts came. Models are folders of Hugging Face checkpoints or exports. All classes release the
GIL, can be shared between threads, and are pickled by the model's path and arguments: a process loads the
model anew. A model cannot be used in a process that was forked after it was loaded; load it there, or
start processes by `spawn`.

ONNX Runtime is used if the package `onnxruntime` is installed (or `ORT_DYLIB_PATH` names its library),
else the built-in engine `tract`.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, TypeVar, final, overload

from typing_extensions import Unpack

__version__: str

_Texts = TypeVar("_Texts")
_Path = str | PathLike[str]

class Error(Exception):
    """Raised by all functions; texts and audio of other types are `TypeError`, as elsewhere in Python."""

    kind: Literal["text", "mismatch", "folder", "options", "input", "engine", "cancelled"]

class Languages(TypedDict, total=False):
    source_language: str
    """Language of the texts, for a multilingual model: en_XX (mBART), eng_Latn (NLLB), en (M2M100)."""
    target_language: str
    """Language of translations: de_DE (mBART), deu_Latn (NLLB), de (M2M100), deu (Marian)."""

class Loading(Languages, total=False):
    engine: Literal["auto", "tract", "ort", "reference"]
    device: str
    workers: int
    """Batches that are computed in parallel; by default the number of cores."""
    threads: int
    """Threads of ONNX Runtime for each worker; by default 1."""
    ignore_unused: bool
    """Ignore tensors of a checkpoint that its model does not use."""
    shortlist: str
    """File of a lexical shortlist: translations have only the tokens that it allows."""

class Decoding(Languages, total=False):
    """What is not given, or None, is as in the model's `generation_config.json`; names are transformers' or the command's."""

    num_beams: int
    beams: int
    max_new_tokens: int
    min_new_tokens: int
    min_length: int
    num_return_sequences: int
    n_best: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    repetition_penalty: float
    no_repeat_ngram_size: int
    encoder_no_repeat_ngram_size: int
    bad_words: list[str]
    suppress_tokens: list[int]
    disable_unk: bool
    target_prefix: str
    """Beginning of every translation."""
    scores: bool
    """Compute scores without beam search too."""
    alignments: bool
    """Compute the source position of each token; a checkpoint must be loaded with it."""
    replace_unknowns: bool
    do_sample: bool
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float
    seed: int

class TranslatorOptions(Loading, Decoding, total=False):
    batch_tokens: int
    """Maximum number of tokens of a batch, padding and beams included; by default 2048, and 3072
    with several hypotheses."""
    batch_size: int
    """Maximum number of texts of a batch; by default any."""

@final
class Hypothesis:
    """A translation."""

    def __new__(cls, text: str, tokens: list[int], complete: bool, score: float, alignment: list[int]) -> Hypothesis: ...
    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> list[int]:
        """Ids without start and end token."""
    @property
    def complete(self) -> bool:
        """Whether the end token was generated; otherwise the limit on tokens was reached."""
    @property
    def score(self) -> float:
        """Log-probability divided by the length to the power of the length penalty; 0 without beams or `scores`."""
    @property
    def alignment(self) -> list[int]:
        """The source position of each token; empty without `alignments`."""

class Translator:
    """A model that translates.

    >>> translator = cognate.Translator("opus-mt-en-de")
    >>> translator.translate(["A man is riding a bicycle."], num_beams=4)
    ['Ein Mann fährt Fahrrad.']
    """

    def __new__(cls, model: _Path, **options: Unpack[TranslatorOptions]) -> Translator: ...
    def translate(self, texts: _Texts, **options: Unpack[Decoding]) -> _Texts:
        """Translate texts in batches of similar length. Options given here replace those given at loading.

        Ctrl-C ends it within a decoding step.
        """
    @overload
    def hypotheses(self, texts: str, **options: Unpack[Decoding]) -> list[Hypothesis]: ...
    @overload
    def hypotheses(self, texts: Any, **options: Unpack[Decoding]) -> list[list[Hypothesis]]:
        """The `num_return_sequences` best translations of each text, with their scores and tokens."""
    def stream(self, text: str, **options: Unpack[Decoding]) -> Iterator[str]:
        """Parts of a translation as soon as they are final; not with beams."""
    def __call__(self, batch: Any, column: str = "text", to: str = "translation", **options: Unpack[Decoding]) -> Any:
        """Translate a column of a dictionary, an Arrow table or a frame of pandas or Polars into a new one, as Ray Data's
        `map_batches` and Spark's `mapInPandas` need it; other arguments are texts as of `translate`.
        """
    @property
    def engine(self) -> str: ...
    @property
    def languages(self) -> list[str]: ...

class Transcribing(TypedDict, total=False):
    """Names and defaults are those of OpenAI's `transcribe`."""

    language: str
    """Code or English name; by default that of `generation_config.json`, or else detected."""
    task: Literal["transcribe", "translate"]
    """By default that of `generation_config.json`, or else "transcribe"."""
    temperature: float | Sequence[float]
    """Temperatures to try in turn; by default 0, 0.2, ... 1."""
    beam_size: int
    """Beams at temperature 0; by default 5."""
    best_of: int
    patience: float
    length_penalty: float
    """Power of the length by which hypotheses of a window are compared; by default their mean log-probability decides."""
    compression_ratio_threshold: float | None
    """None switches a threshold off."""
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_previous_text: bool
    initial_prompt: str
    carry_initial_prompt: bool
    hotwords: str
    """Words that are likely, such as names, before every window."""
    timestamps: bool
    without_timestamps: bool
    word_timestamps: bool
    """Compute the time and the probability of each word; an export needs its attention weights for it."""
    prepend_punctuations: str
    append_punctuations: str
    max_new_tokens: int
    suppress_tokens: str | Sequence[int]
    """Tokens that are not written; -1 stands for most symbols."""
    clip_timestamps: str | Sequence[float]
    """Seconds at which the clips to transcribe begin and end, in turn; by default all audio."""
    hallucination_silence_threshold: float
    """Skip longer silences beside words that are likely invented; needs `word_timestamps`."""
    seed: int
    short_windows: bool
    """Pad audio by 2 s instead of to 30 s: faster for short audio, with other results."""
    batch: int
    """Windows that are decoded together, cut in pauses; by default 1: windows follow the timestamps."""
    vad: str
    """File of the package silero-vad that finds the pauses."""
    semantics: Literal["openai", "transformers"]

class TranscriberOptions(Loading, Transcribing, total=False): ...

class Transcriber:
    """A speech model that transcribes audio.

    >>> transcriber = cognate.Transcriber("whisper-tiny.en")
    >>> transcriber.transcribe("speech.wav")["text"]
    """

    def __new__(cls, model: _Path, **options: Unpack[TranscriberOptions]) -> Transcriber: ...
    def transcribe(self, audio: Any, **options: Unpack[Transcribing]) -> dict[str, Any]:
        """Transcribe a file (WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A, WebM): its path, its bytes, or samples at 16 kHz
        in a NumPy array of floats. Options given here replace those given at loading.

        Returns `text`, `segments` and `language`, as OpenAI's `transcribe`. Ctrl-C ends it within a decoding step.
        """
    @property
    def engine(self) -> str: ...

class Embedding(Loading, total=False):
    pooling: Literal["mean", "first", "cls", "pooler"]
    """By default as sentence-transformers' files in the folder say, else mean."""
    normalize: bool
    max_tokens: int
    prompt: str
    """Text before each text; by default the model's default prompt."""
    prompt_name: str
    """The name of a prompt of the model, such as "query"."""

class Embedder:
    """An encoder that turns texts into vectors."""

    def __new__(cls, model: _Path, **options: Unpack[Embedding]) -> Embedder: ...
    def embed(self, texts: Any) -> Any:
        """A NumPy array of float32, `[texts, width]`; `[width]` for one string."""
    @property
    def width(self) -> int: ...
    @property
    def engine(self) -> str: ...

class Classifier:
    """A classifier of texts, such as BertForSequenceClassification."""

    def __new__(cls, model: _Path, **options: Unpack[Loading]) -> Classifier: ...
    @overload
    def classify(self, texts: str) -> list[tuple[str, float]]: ...
    @overload
    def classify(self, texts: Any) -> list[list[tuple[str, float]]]:
        """All classes of each text with their scores, the likeliest first."""
    @property
    def engine(self) -> str: ...

@final
class Tokenizer:
    """The tokenizer of a model's folder; ids are those of transformers."""

    def __new__(cls, model: _Path, **options: Unpack[Languages]) -> Tokenizer: ...
    @overload
    def encode(self, texts: str, target: bool = False) -> list[int]: ...
    @overload
    def encode(self, texts: Any, target: bool = False) -> list[list[int]]:
        """Ids with the special tokens around a text; with `target` those of a translation, without them."""
    @overload
    def decode(self, ids: Sequence[int]) -> str: ...
    @overload
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]: ...
    def tokenize(self, text: str, target: bool = False) -> list[str]:
        """The pieces of a text."""
    def __len__(self) -> int:
        """Number of pieces."""
    @property
    def languages(self) -> list[str]: ...

class Exporting(Languages, total=False):
    precision: Literal["f32", "f16", "bf16", "int8", "int8-tensor", "int8-block", "int4"]
    layout: Literal["cognate", "hf", "generate", "triton"]
    target: Literal["portable", "ort"]
    part: Literal["all", "encoder"]
    attentions: bool
    block_size: int
    seed: int
    force: bool
    """Replace an earlier export."""
    ignore_unused: bool
    allow_non_finite: bool

def export(model: _Path, out: _Path, **options: Unpack[Exporting]) -> dict[str, Any]:
    """Write a checkpoint, or `preset:tiny`, as ONNX graphs. The folder `out` appears whole or not at all.

    Returns the contents of `cognate.json`.
    """

class Verifying(Languages, total=False):
    ignore_unused: bool

def verify(folder: _Path, checkpoint: _Path | None = None, **options: Unpack[Verifying]) -> dict[str, Any]:
    """Compare an export with the f64 reference on every engine, and its files with their hashes.

    Returns the report, with `passed`, and in `damaged` the files that changed since the export.
    """

class Score(TypedDict):
    score: float
    """From 0 to 100."""
    signature: str
    """sacreBLEU's."""

class Evaluating(TypedDict, total=False):
    metrics: list[Literal["bleu", "chrf", "chrf++"]]
    tokenize: Literal["13a", "intl", "char", "none"]
    lowercase: bool

def evaluate(hypotheses: Any, references: Any, **options: Unpack[Evaluating]) -> dict[str, Score]:
    """BLEU and chrF, equal to sacreBLEU's. `references` is a list of texts, or several such lists."""
