"""Translations: equal to the command's, in every container, interrupted, pickled, forked."""

import collections
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import cognate


def test_texts_are_those_of_the_command(translator, command, model, sentences):
    for options, arguments in [({}, []), ({"num_beams": 4}, ["--beams", "4"]), ({"do_sample": True, "seed": 7}, ["--sample", "--seed", "7"])]:
        expected = command("translate", "--model", model, *arguments, text=sentences)
        assert translator.translate(sentences, **options) == expected, options


def test_hypotheses_are_those_of_the_command(translator, command, model, sentences):
    found = translator.hypotheses(sentences[:5], num_beams=4, num_return_sequences=3)
    lines = command("translate", "--model", model, "--beams", "4", "--n-best", "3", "--scores", text=sentences[:5])
    expected = [line.split("\t") for line in lines]
    ours = [[str(number), best.text, f"{best.score:.6f}"] for number, all_of in enumerate(found, 1) for best in all_of]
    assert ours == expected
    assert all(best.complete and best.tokens for all_of in found for best in all_of)
    assert isinstance(translator.hypotheses(sentences[0])[0], cognate.Hypothesis)


def test_texts_return_as_they_come(translator):
    texts = ["A man is riding a bicycle.", "", "Two dogs."]
    expected = translator.translate(texts)
    assert expected[0] == "Ein Mann fährt Fahrrad." and expected[1] == ""
    assert translator.translate(texts[0]) == expected[0]
    assert translator.translate(tuple(texts)) == expected
    assert translator.translate(iter(texts)) == expected
    assert translator.translate([]) == []
    for array in [numpy.array(texts), numpy.array(texts, dtype=object)]:
        found = translator.translate(array)
        assert isinstance(found, numpy.ndarray) and found.tolist() == expected
    batch = {"text": numpy.array(texts), "id": numpy.arange(3)}
    found = translator(batch)
    assert found["translation"].tolist() == expected and list(batch) == ["text", "id"]


def test_arrow_and_pandas(translator):
    arrow = pytest.importorskip("pyarrow")
    texts = ["Two dogs.", "A man."]
    expected = translator.translate(texts)
    for kind in [arrow.string(), arrow.large_string()]:
        found = translator.translate(arrow.array(texts, kind))
        assert found.type == kind and found.to_pylist() == expected
    table = translator(arrow.table({"text": texts}))
    assert table.column("translation").to_pylist() == expected
    pandas = pytest.importorskip("pandas")
    assert translator.translate(pandas.Series(texts, name="en")).name == "en"
    frame = translator(pandas.DataFrame({"text": texts}, index=[5, 9]))
    assert frame["translation"].tolist() == expected and frame["translation"].index.tolist() == [5, 9]


def test_polars_and_arrow_s_capsules(translator):
    texts = ["Two dogs.", "A man."]
    expected = translator.translate(texts)
    polars = pytest.importorskip("polars")
    found = translator.translate(polars.Series("en", texts))
    assert (type(found), found.name, found.dtype) == (polars.Series, "en", polars.String)
    assert found.to_list() == expected and translator.translate(polars.Series("en", [], polars.String)).dtype == polars.String
    frame = translator(polars.DataFrame({"text": texts, "id": [5, 9]}))
    assert frame.columns == ["text", "id", "translation"] and frame["translation"].to_list() == expected
    arrow = pytest.importorskip("pyarrow")

    class Array:
        """An array of another package."""

        def __init__(self, array, interface):
            setattr(type(self), interface, lambda self, requested_schema=None: getattr(array, interface)(requested_schema))

    for array, interface in [(arrow.array(texts), "__arrow_c_array__"), (arrow.chunked_array([texts[:1], texts[1:]]), "__arrow_c_stream__")]:
        found = translator.translate(type("Array", (Array,), {})(array, interface))
        assert found.type == arrow.string() and found.to_pylist() == expected
    with pytest.raises(TypeError, match="texts: expected strings, found int at index 0"):
        translator.translate(type("Array", (Array,), {})(arrow.array([1, 2]), "__arrow_c_array__"))


def test_options_of_numpy_and_paths(translator, tmp_path):
    expected = translator.translate("Two dogs.", num_beams=2, length_penalty=0.5)
    assert translator.translate("Two dogs.", num_beams=numpy.int64(2), length_penalty=numpy.float32(0.5)) == expected
    for options, message in [
        ({"length_penalty": float("nan")}, "length_penalty: Out of range float values"),
        ({"target_prefix": "\udcff"}, "target_prefix: expected text, found a lone surrogate"),
        ({"target_prefix": b"x"}, "target_prefix: unsupported type bytes"),
    ]:
        with pytest.raises(cognate.Error, match=message) as raised:
            translator.translate("a", **options)
        assert raised.value.kind == "options"


def test_wrong_options_are_errors(translator):
    for options, message in [
        ({"num_beams": 2**40}, "beams: expected at most 256, found 1099511627776"),
        ({"num_return_sequences": 2**63 - 1, "do_sample": True}, "n_best: expected at most 256"),
        ({"num_beams": 10**400}, "num_beams: number out of range"),
        ({"length_penalty": 1e300}, "length_penalty: expected a finite number, found inf"),
        ({"temperature": -1}, "temperature: expected a number from 1e-30 to 1e30, found -1"),
        ({"top_p": 2}, "top_p: expected a number from 0 to 1, found 2"),
        ({"repetition_penalty": 0}, "repetition_penalty: expected a number from 1e-30"),
        ({"alignments": True}, "alignments: .* gives no attention weights"),
    ]:
        with pytest.raises(cognate.Error, match=message) as raised:
            translator.hypotheses("Two dogs.", **options)
        assert raised.value.kind == "options", options


def test_options_of_a_call_replace_those_of_loading(translator, model, sentences):
    greedy, expected = translator.translate(sentences), translator.translate(sentences, num_beams=4)
    assert greedy != expected
    loaded = cognate.Translator(model, num_beams=4)
    assert loaded.translate(sentences) == loaded.translate(sentences, seed=0) == expected
    assert [best.text for [best] in loaded.hypotheses(sentences)] == expected
    assert loaded.translate(sentences, beams=1) == loaded.translate(sentences, num_beams=None) == greedy
    prefixed = cognate.Translator(model, target_prefix="Zwei")
    assert prefixed.translate("A man.", max_new_tokens=50).startswith("Zwei")
    assert "".join(prefixed.stream("A man.", max_new_tokens=50)).startswith("Zwei")


def test_tables_are_no_texts(translator):
    arrow, pandas, polars = map(pytest.importorskip, ["pyarrow", "pandas", "polars"])
    texts = ["Two dogs.", "A man."]
    expected = translator.translate(texts)
    for items in [pandas.Index(texts), pandas.array(texts, dtype="string"), pandas.Categorical(texts)]:
        assert translator.translate(items) == expected
    chunked = translator.translate(arrow.chunked_array([texts[:1], texts[1:]]))
    assert isinstance(chunked, arrow.ChunkedArray) and chunked.to_pylist() == expected
    for table in [arrow.table({"text": texts}), pandas.DataFrame({"text": texts}), polars.DataFrame({"text": texts}), {"text": texts}]:
        with pytest.raises(TypeError, match="pass tables and dictionaries to the translator itself"):
            translator.translate(table)
    replaced = translator(arrow.table({"text": texts, "id": [5, 9]}), to="text")
    assert replaced.column_names == ["text", "id"] and replaced.column("text").to_pylist() == expected
    assert translator(collections.UserDict(text=texts)) == {"text": texts, "translation": expected}


def test_greedy_hypotheses_have_scores(translator):
    [greedy], [best] = translator.hypotheses("Two dogs.", num_beams=1), translator.hypotheses("Two dogs.", num_beams=2)
    assert greedy.text == best.text and greedy.score == pytest.approx(best.score, abs=1e-5) and greedy.score < 0


def test_losses_are_warned_of(translator):
    with pytest.warns(UserWarning, match="text 2: truncated: 7.. tokens, but the model has 256 positions"):
        translator.translate(["Two dogs.", "A man is riding a bicycle. " * 100])


def test_generators_are_read_once(translator):
    assert cognate.evaluate((text for text in ["a b"]), (text for text in ["a b"]), metrics=["chrf"])["chrf"]["score"] == 100
    with pytest.raises(TypeError, match="found dict"):
        translator.translate({"text": "Two dogs."})


def test_bad_arguments(translator, model):
    cases = [
        (lambda: cognate.Translator("/no/such/folder"), "folder", "no such file or folder"),
        (lambda: cognate.Translator(model, engine="fast"), "options", "engine: engine: expected auto, reference, tract, ort, found fast"),
        (lambda: cognate.Translator(model, target_language="de"), "options", "target_language"),
        (lambda: translator.translate("a", num_beam=4), "options", "unknown field `num_beam`"),
        (lambda: translator.translate("a", num_beams="4"), "options", "num_beams: invalid type"),
        (lambda: translator.translate("a", num_beams=0), "options", "num_beams: invalid value"),
        (lambda: translator.translate("a", num_return_sequences=2), "options", "n_best: expected at most 1"),
        (lambda: translator.translate("a", top_p=2.0, do_sample=True), "options", "top_p: expected a number from 0 to 1, found 2"),
        (lambda: translator.stream("a", num_beams=2), "options", "stream: cannot be used with beam search"),
    ]
    for call, kind, message in cases:
        with pytest.raises(cognate.Error) as raised:
            call()
        assert (raised.value.kind, message in str(raised.value)) == (kind, True), (kind, message, raised.value.kind, str(raised.value))
    for texts, message in [([1], "found int at index 0"), (5, "expected a string, or a list"), (["a", None], "found NoneType at index 1")]:
        with pytest.raises(TypeError, match=message):
            translator.translate(texts)
    with pytest.raises(ValueError, match="one axis"):
        translator.translate(numpy.array([["a"]]))
    with pytest.raises(UnicodeEncodeError):
        translator.translate("\ud800")


def test_streams_join_to_the_translation(translator):
    text = "A man is riding a bicycle."
    parts = list(translator.stream(text))
    assert "".join(parts) == translator.translate(text) and len(parts) > 1
    # A reader that leaves ends the thread.
    next(translator.stream(text))


def test_pickles_load_the_model_by_its_path(translator, model, tmp_path, monkeypatch):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert len(pickle.dumps(translator, protocol)) < 1000
    relative = cognate.Translator(os.path.relpath(model), num_beams=2)
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickle.dumps(relative))
    assert again.translate("Two dogs.") == translator.translate("Two dogs.", num_beams=2)


def test_hypotheses_are_pickled(translator):
    [best] = translator.hypotheses("Two dogs.", num_beams=2)
    again = pickle.loads(pickle.dumps(best))
    for name in ["text", "tokens", "complete", "score", "alignment"]:
        assert getattr(again, name) == getattr(best, name), name


def _translate(arguments):
    translator, text = arguments
    try:
        return translator.translate(text)
    except cognate.Error as error:
        return error.kind, str(error)


def test_processes_by_spawn_and_fork(translator):
    texts = ["Two dogs.", "A man."]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_translate, [(translator, text) for text in texts]) == translator.translate(texts)
    if sys.platform != "linux":
        return
    global _inherited
    _inherited = translator
    with multiprocessing.get_context("fork").Pool(1) as pool:
        [(kind, message)] = pool.map(_of_inherited, ["Two dogs."])
    assert kind == "engine" and "before a fork" in message and "spawn" in message


def _of_inherited(text):
    return _translate((_inherited, text))


def test_classes_can_be_derived(model, translator):
    class Polite(cognate.Translator):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.calls = 0

        def __call__(self, *arguments, **options):
            self.calls += 1
            return super().__call__(*arguments, **options)

    polite = Polite(model, num_beams=2)
    assert polite("Two dogs.") == translator.translate("Two dogs.", num_beams=2) and polite.calls == 1


def test_threads_share_a_model(translator, sentences):
    expected = translator.translate(sentences)
    found = [None] * 4

    def work(place):
        found[place] = translator.translate(sentences)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [expected] * 4


def test_the_gil_is_released(translator, sentences):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.002):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    translator.translate(sentences * 10, num_beams=4)
    taken = time.perf_counter() - start
    stop.set()
    thread.join()
    assert len(ticks) > taken / 0.05, (len(ticks), taken)


def test_onnxruntime_is_found_in_its_package(model, tmp_path):
    program = "import sys; {}; import cognate; print(cognate.Translator(sys.argv[1]).engine)"
    environment = {name: value for name, value in os.environ.items() if name not in ("ORT_DYLIB_PATH", "CARGO_TARGET_DIR")}

    def engine(before):
        done = subprocess.run(
            [sys.executable, "-c", program.format(before), model],
            capture_output=True, encoding="utf-8", check=True, env=environment, cwd=tmp_path,
        )
        return done.stdout

    version = pytest.importorskip("importlib.metadata").version("onnxruntime")
    assert engine("pass").startswith(f"ONNX Runtime {version}")
    assert engine("sys.modules['onnxruntime'] = None").startswith("tract ")


# Models, and work that takes much longer than the time until the signal.
ENDLESS = {
    "translate": (
        "cognate.Translator(sys.argv[1], workers=1)",
        "model.translate(['A man is riding a bicycle along a street in the city.'] * 200000, num_beams=4)",
    ),
    "stream": ("cognate.Translator(sys.argv[1], workers=1)", "[list(model.stream('A man is riding a bicycle.')) for _ in range(10**6)]"),
    "embed": ("cognate.Embedder(sys.argv[1], workers=1)", "model.embed(['A man is riding a bicycle along a street.'] * 500000)"),
    "transcribe": ("cognate.Transcriber(sys.argv[2], workers=1)", "model.transcribe(numpy.random.default_rng(1).normal(0, 0.1, 16000 * 600))"),
    "export": ("tempfile.mkdtemp()", "[cognate.export('preset:tiny', model + '/out', precision='f16', force=True) for _ in range(10**6)]"),
    "verify": ("(folder := tempfile.mkdtemp(), cognate.export('preset:tiny', folder, force=True))[0]", "[cognate.verify(model) for _ in range(10**6)]"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="no os.kill with SIGINT")
@pytest.mark.parametrize("work", ENDLESS)
def test_ctrl_c_ends_work_within_a_step(work, model, speech_model):
    load, call = ENDLESS[work]
    program = textwrap.dedent(
        f"""
        import sys, tempfile, threading, time, os, signal, numpy, cognate
        # A background job ignores it otherwise.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = {load}
        def interrupt():
            time.sleep(4)
            print(time.monotonic(), flush=True)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            {call}
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)
        """
    )
    arguments = [sys.executable, "-c", program, model, speech_model]
    done = subprocess.run(arguments, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    sent, ended = map(float, done.stdout.split())
    # A step of a batch takes a few milliseconds; the rest is for a busy machine. While an engine loads a model, it is not interrupted.
    assert ended - sent < (5.0 if work == "verify" else 1.0)


def test_handlers_that_do_not_raise_do_not_end_it(translator, sentences):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1)) if hasattr(signal, "SIGALRM") else None
    if before is None:
        pytest.skip("no SIGALRM")
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert len(translator.translate(sentences * 10, num_beams=4)) == 10 * len(sentences)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen
