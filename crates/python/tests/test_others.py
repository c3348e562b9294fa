"""Tokenizers, encoders, exports, verification and scores."""

import ast
import inspect
import json
import pickle

import numpy
import pytest

import cognate
from conftest import ROOT


def test_tokenizer(model, command, sentences):
    tokenizer = cognate.Tokenizer(model)
    assert len(tokenizer) == 8000 and tokenizer.languages == []
    expected = [[int(number) for number in line.split()] for line in command("tokenize", "--model", model, "--ids", text=sentences)]
    assert tokenizer.encode(sentences) == expected
    assert [tokenizer.encode(text) for text in sentences] == expected
    assert tokenizer.decode(expected) == sentences
    assert tokenizer.decode(numpy.array(expected[0])) == sentences[0]
    assert tokenizer.tokenize("A man") == ["▁A", "▁man", "</s>"]
    assert pickle.loads(pickle.dumps(tokenizer)).encode("A man") == [8, 20, 0]
    with pytest.raises(TypeError):
        tokenizer.decode("text")


def test_wrong_exports_are_errors(model, tmp_path):
    for size in [0, 7, 2**63 - 1]:
        with pytest.raises(cognate.Error, match=f"block_size: expected 16, 32, 64 or 128, found {size}") as raised:
            cognate.export(model, tmp_path / "out", precision="int4", target="ort", block_size=size)
        assert raised.value.kind == "options" and not (tmp_path / "out").exists()


def test_export_and_verify(model, tmp_path):
    out = tmp_path / "out"
    manifest = cognate.export(model, out)
    assert manifest == json.loads((out / "cognate.json").read_text()) and manifest["precision"] == "f32"
    report = cognate.verify(out)
    assert report["passed"] and report["damaged"] == [] and report["runtimes"]
    assert cognate.Translator(out).translate("Two dogs.") == cognate.Translator(model).translate("Two dogs.")
    with pytest.raises(cognate.Error, match="exists") as raised:
        cognate.export(model, out)
    assert raised.value.kind == "folder"
    cognate.export(model, out, force=True, precision="int8")
    assert cognate.verify(out, model)["passed"]
    weights = next(file for file in out.iterdir() if file.suffix == ".data" or "onnx_data" in file.name)
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(damaged)
    report = cognate.verify(out, model)
    assert not report["passed"] and report["damaged"] == [str(weights)]
    for options, message in [({"precision": "f64"}, "precision: expected f32"), ({"layout": "x"}, "layout: expected cognate, hf, generate, triton, found x")]:
        with pytest.raises(cognate.Error, match=message):
            cognate.export(model, tmp_path / "other", **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        cognate.export(model, tmp_path / "other", colour="red")
    assert not (tmp_path / "other").exists()


def test_embeddings_are_those_of_the_command(model, command, sentences):
    embedder = cognate.Embedder(model, normalize=True)
    lines = command("embed", "--model", model, "--normalize", text=sentences)
    expected = numpy.array([json.loads(line)["embedding"] for line in lines])
    found = embedder.embed(sentences)
    assert found.dtype == numpy.float32 and found.shape == (len(sentences), embedder.width)
    numpy.testing.assert_array_equal(found, expected.astype(numpy.float32))
    numpy.testing.assert_allclose(embedder.embed(sentences[0]), found[0], rtol=1e-4, atol=1e-6)
    assert embedder.embed([]).shape == (0, embedder.width)
    numpy.testing.assert_array_equal(pickle.loads(pickle.dumps(embedder)).embed(sentences[:3]), embedder.embed(sentences[:3]))
    with pytest.raises(cognate.Error, match="pooling: expected mean, first, cls or pooler, found max"):
        cognate.Embedder(model, pooling="max")
    with pytest.raises(cognate.Error, match="a model with a decoder"):
        cognate.Classifier(model)


def test_classes_have_the_probabilities_of_transformers():
    folder = ROOT / "testdata" / "encoders" / "sentence-classes"
    cases = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    classifier = cognate.Classifier(folder)
    found = classifier.classify([case["text"] for case in cases])
    for classes, case in zip(found, cases):
        probabilities = [score for _, score in classes]
        assert probabilities == sorted(probabilities, reverse=True)
        numpy.testing.assert_allclose([dict(classes)[name] for name in ["bad", "good", "neither"]], case["numbers"], atol=1e-5)
    assert pickle.loads(pickle.dumps(classifier)).classify(cases[0]["text"]) == found[0]


def test_scores_are_sacrebleus():
    hypotheses, references = ["Zwei Hunde spielen im Schnee."], ["Zwei Hunde spielen im Gras."]
    scores = cognate.evaluate(hypotheses, references, metrics=["bleu", "chrf", "chrf++"])
    sacrebleu = pytest.importorskip("sacrebleu")
    expected = {
        "bleu": sacrebleu.corpus_bleu(hypotheses, [references]),
        "chrf": sacrebleu.corpus_chrf(hypotheses, [references]),
        "chrf++": sacrebleu.corpus_chrf(hypotheses, [references], word_order=2),
    }
    assert {name: score["score"] for name, score in scores.items()} == {name: score.score for name, score in expected.items()}
    assert scores["bleu"]["signature"] == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    arrow = pytest.importorskip("pyarrow")
    assert cognate.evaluate(hypotheses, arrow.array(references)) == cognate.evaluate(hypotheses, references)
    several = cognate.evaluate(hypotheses, [references, hypotheses])
    assert round(several["bleu"]["score"], 6) == 100 and several["bleu"]["signature"].startswith("nrefs:2|")
    with pytest.raises(cognate.Error):
        cognate.evaluate(hypotheses, references * 2)
    with pytest.raises(cognate.Error, match="metrics: expected bleu, chrf or chrf"):
        cognate.evaluate(hypotheses, references, metrics=["ter"])


def test_documented():
    classes = [cognate.Translator, cognate.Transcriber, cognate.Hypothesis, cognate.Embedder, cognate.Classifier, cognate.Tokenizer]
    methods = [cognate.Translator.translate, cognate.Translator.hypotheses, cognate.Translator.stream, cognate.Tokenizer.encode]
    others = [cognate.Transcriber.transcribe, cognate.export, cognate.verify, cognate.evaluate]
    assert all(item.__doc__ for item in classes + methods + others) and cognate.__version__


def test_stubs_have_the_names_of_the_module():
    stub = ast.parse((ROOT / "crates" / "python" / "cognate.pyi").read_text(encoding="utf-8"))
    described = {item.name: item for item in stub.body if isinstance(item, (ast.ClassDef, ast.FunctionDef))}
    # Types of keyword arguments and of results are no part of the module.
    typed = {name for name, item in described.items() if isinstance(item, ast.ClassDef) and is_dictionary(item, described)}
    public = {name for name in vars(cognate) if not name.startswith("_") and name != "cognate"}
    assert described.keys() - typed == public
    for name in public - {"Error"}:
        if inspect.isclass(getattr(cognate, name)):
            check_class(getattr(cognate, name), described[name])
        else:
            assert parameters(described[name]) == list(inspect.signature(getattr(cognate, name)).parameters), name


def is_dictionary(item, described):
    bases = [base.id for base in item.bases if isinstance(base, ast.Name)]
    return any(base == "TypedDict" or base in described and is_dictionary(described[base], described) for base in bases)


def check_class(found, described):
    methods = {item.name: item for item in described.body if isinstance(item, ast.FunctionDef)}
    assert {name for name in vars(found) if not name.startswith("_")} == {name for name in methods if not name.startswith("_")}
    assert parameters(methods.get("__new__"))[1:] == list(inspect.signature(found).parameters), found
    for name, method in methods.items():
        # Special methods have no signatures; decorators are of properties and of overloads.
        if not name.startswith("__") and not method.decorator_list:
            assert parameters(method) == list(inspect.signature(getattr(found, name)).parameters), (found, name)


def parameters(function):
    arguments = function.args
    named = [argument.arg for argument in arguments.posonlyargs + arguments.args]
    return named + [argument.arg for argument in [arguments.vararg, *arguments.kwonlyargs, arguments.kwarg] if argument]
