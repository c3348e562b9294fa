"""The server by other projects' clients, as they are.

`COGNATE_COMMAND` names a command with the feature `serve`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import numpy
import pytest

import cognate

BICYCLE = "Ein Mann fährt Fahrrad."
DOGS = "Zwei Hunde spielen im Schnee."
TEXTS = ["A man is riding a bicycle.", "Two dogs are playing in the snow."]


def start(*options):
    """Starts a server: its process, its address, its log, and the thread that reads it."""
    program = os.environ.get("COGNATE_COMMAND")
    if not program:
        pytest.skip("COGNATE_COMMAND does not name the command")
    arguments = [program, "serve", *options, "--listen", "127.0.0.1:0", "--json-log"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, encoding="utf-8")
    log = []
    for line in process.stderr:
        log.append(line)
        found = re.search(r'"address":"(127\.0\.0\.1:\d+)"', line)
        if found:
            break
    else:
        pytest.fail("the server did not start: " + "".join(log))
    drain = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
    drain.start()
    return process, found[1], log, drain


@pytest.fixture(scope="module")
def server(model, speech_model, tmp_path_factory):
    export = tmp_path_factory.mktemp("export") / "out"
    cognate.export(model, export)
    models = ["--model", f"multi30k={model}", "--model", f"whisper-1={speech_model}"]
    for part in ["encoder", "decoder"]:
        models += ["--model", f"{part}={export / part}.onnx"]
    # The texts of the small speech model depend on roundings.
    process, address, log, drain = start(*models, "--engine", "tract", "--languages", "multi30k=en-de")
    yield address
    if sys.platform == "win32":
        process.kill()
        return
    # A request that has begun is answered before the server ends.
    answers = []

    def ask():
        body = json.dumps({"q": TEXTS * 200, "source": "en", "target": "de"}).encode()
        request = urllib.request.Request(f"http://{address}/translate", body, {"Content-Type": "application/json"})
        answers.extend(json.load(urllib.request.urlopen(request, timeout=60))["translatedText"])

    asking = threading.Thread(target=ask)
    asking.start()
    threading.Event().wait(0.5)
    process.send_signal(signal.SIGTERM)
    asking.join()
    assert process.wait(60) == 0
    drain.join()
    assert answers == [BICYCLE, DOGS] * 200
    assert all(json.loads(line) for line in log) and '"message":"stopping"' in "".join(log)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_streams_are_logged_at_their_end_and_a_second_signal_is_obeyed_at_once(model):
    process, address, log, drain = start("--model", f"multi30k={model}")
    url = f"http://{address}/v2/models/multi30k/generate_stream"

    def ask(min_new_tokens):
        asked = {"text_input": TEXTS[0], "min_new_tokens": min_new_tokens, "max_new_tokens": 250}
        return urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode()), timeout=60)

    began = time.monotonic()
    with ask(249) as response:
        response.readline()
        first = time.monotonic() - began
        response.read()
    # Requests that keep the server busy, and whose answers nobody reads.
    waiting = [ask(249) for _ in range(64)]
    process.send_signal(signal.SIGTERM)
    while not any('"message":"stopping"' in line for line in log):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 130
    drain.join()
    entry = next(json.loads(line)["fields"] for line in log if '"message":"request"' in line)
    assert entry["milliseconds"] > 1000 * first, (entry, first)
    assert "terminated again" in log[-1]
    for response in waiting:
        response.close()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_graphs(server, model, protocol):
    """A greedy search by hand, over encoder and decoder as tensors."""
    triton = pytest.importorskip(f"tritonclient.{protocol}")
    client = triton.InferenceServerClient(server)

    def run(name, values, wanted):
        inputs = []
        for key, value in values.items():
            tensor = triton.InferInput(key, value.shape, {"int64": "INT64", "float32": "FP32"}[str(value.dtype)])
            tensor.set_data_from_numpy(value)
            inputs.append(tensor)
        answer = client.infer(name, inputs, outputs=[triton.InferRequestedOutput(name) for name in wanted])
        return [answer.as_numpy(name) for name in wanted]

    tokenizer = cognate.Tokenizer(model)
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    caches = [f"{layer}.{part}" for layer in range(config["decoder_layers"]) for part in ["key", "value"]]
    crossed = [f"cross.{cache}" for cache in caches]
    source = numpy.array([tokenizer.encode(TEXTS[0])])
    mask = numpy.ones_like(source)
    cross = run("encoder", {"input_ids": source, "attention_mask": mask}, crossed)
    state = {"attention_mask": mask, **dict(zip(crossed, cross))}
    heads, d_k = cross[0].shape[1], cross[0].shape[3]
    state |= {f"past.{cache}": numpy.zeros((1, 1, heads, 0, d_k), numpy.float32) for cache in caches}
    token, tokens = config["decoder_start_token_id"], []
    while token != config["eos_token_id"]:
        state["input_ids"] = numpy.array([[[token]]])
        logits, *present = run("decoder", state, ["logits", *(f"present.{cache}" for cache in caches)])
        state |= {f"past.{cache}": value for cache, value in zip(caches, present)}
        token = int(logits[0, 0, -1].argmax())
        tokens.append(token)
    assert tokenizer.decode(tokens[:-1]) == BICYCLE


def test_tritonclient(server):
    http = pytest.importorskip("tritonclient.http")
    client = http.InferenceServerClient(server)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("multi30k") and client.is_model_ready("multi30k", "1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "cognate"
    assert client.get_model_metadata("multi30k")["outputs"][0]["name"] == "text_output"
    assert client.get_model_repository_index()[0]["name"] == "multi30k"
    texts = http.InferInput("text_input", [2], "BYTES")
    texts.set_data_from_numpy(numpy.array(TEXTS, dtype=object))
    # The default: binary tensors, all outputs.
    found = client.infer("multi30k", [texts], request_id="7")
    assert [text.decode() for text in found.as_numpy("text_output")] == [BICYCLE, DOGS]
    assert found.as_numpy("score").dtype == numpy.float32 and found.get_response()["id"] == "7"
    assert (found.as_numpy("score") < 0).all()
    for coding in ["gzip", "deflate"]:
        found = client.infer("multi30k", [texts], request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert [text.decode() for text in found.as_numpy("text_output")] == [BICYCLE, DOGS]
    texts.set_data_from_numpy(numpy.array(TEXTS, dtype=object), binary_data=False)
    wanted = [http.InferRequestedOutput("text_output", binary_data=False)]
    found = client.infer("multi30k", [texts], outputs=wanted, parameters={"num_beams": 4, "n_best": 2})
    assert found.as_numpy("text_output").shape == (2, 2)
    running = [client.async_infer("multi30k", [texts], outputs=wanted) for _ in range(4)]
    assert all(request.get_result().as_numpy("text_output").tolist() == [BICYCLE, DOGS] for request in running)
    utilities = pytest.importorskip("tritonclient.utils")
    with pytest.raises(utilities.InferenceServerException, match="there is no model other"):
        client.infer("other", [texts])
    with pytest.raises(utilities.InferenceServerException, match="beams: expected at most 16, found 99"):
        client.infer("multi30k", [texts], parameters={"num_beams": 99})
    client.close()


def test_tritonclient_by_grpc(server):
    grpc = pytest.importorskip("tritonclient.grpc")
    client = grpc.InferenceServerClient(server)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("multi30k") and client.is_model_ready("multi30k", "1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata().name == "cognate"
    assert client.get_model_metadata("multi30k").outputs[0].name == "text_output"
    assert client.get_model_repository_index().models[0].name == "multi30k"
    texts = grpc.InferInput("text_input", [2, 1], "BYTES")
    texts.set_data_from_numpy(numpy.array([[text] for text in TEXTS], dtype=object))
    found = client.infer("multi30k", [texts], request_id="7")
    assert [text.decode() for text in found.as_numpy("text_output").ravel()] == [BICYCLE, DOGS]
    assert found.as_numpy("text_output").shape == (2, 1) and found.get_response().id == "7"
    for coding in ["gzip", "deflate"]:
        found = client.infer("multi30k", [texts], compression_algorithm=coding)
        assert [text.decode() for text in found.as_numpy("text_output").ravel()] == [BICYCLE, DOGS]
    found = client.infer("multi30k", [texts], parameters={"num_beams": 4, "n_best": 2}, outputs=[grpc.InferRequestedOutput("score")])
    assert found.as_numpy("score").shape == (2, 1, 2) and found.as_numpy("text_output") is None
    utilities = pytest.importorskip("tritonclient.utils")
    with pytest.raises(utilities.InferenceServerException, match="there is no model other") as raised:
        client.infer("other", [texts])
    assert raised.value.status() == "StatusCode.NOT_FOUND"
    with pytest.raises(utilities.InferenceServerException, match="beams: expected at most 16, found 99"):
        client.infer("multi30k", [texts], parameters={"num_beams": 99})
    with pytest.raises(utilities.InferenceServerException, match="the method ModelConfig is not supported"):
        client.get_model_config("multi30k")
    client.close()


def test_libretranslatepy(server):
    libretranslate = pytest.importorskip("libretranslatepy")
    client = libretranslate.LibreTranslateAPI(f"http://{server}/")
    assert client.translate(TEXTS[0], "en", "de") == BICYCLE
    assert client.translate(TEXTS[1], "auto", "de") == DOGS
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": ["de"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]
    assert client.detect("Two dogs are playing.")[0]["language"] == "en"


def test_openai(server, speech_model, clip):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://{server}/v1", api_key="none")
    transcriber = cognate.Transcriber(speech_model, word_timestamps=True, engine="tract")
    # Windows end with words where these have times.
    text, timed = transcriber.transcribe(clip, word_timestamps=False)["text"].strip(), transcriber.transcribe(clip)
    words = [word for segment in timed["segments"] for word in segment.get("words", [])]
    create = client.audio.transcriptions.create
    assert [model.id for model in client.models.list()] == ["multi30k", "whisper-1"]
    with clip.open("rb") as file:
        assert create(model="whisper-1", file=file).text == text
    found = create(model="whisper-1", file=clip, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert found.text == timed["text"].strip() and [word.start for word in found.words] == [word["start"] for word in words]
    assert [segment.text for segment in found.segments] == [segment["text"] for segment in timed["segments"]]
    assert create(model="whisper-1", file=clip, response_format="srt").startswith("1\n00:00:")
    events = list(create(model="whisper-1", file=clip, stream=True))
    assert "".join(event.delta for event in events[:-1]).strip() == events[-1].text == text
    assert client.audio.translations.create(model="whisper-1", file=clip).text is not None
    with pytest.raises(openai.NotFoundError, match="there is no speech model"):
        create(model="multi30k", file=clip)
    with pytest.raises(openai.BadRequestError, match="expected audio"):
        create(model="whisper-1", file=b"nonsense")


def test_texts_of_the_server_are_those_of_the_library(server, translator, sentences):
    body = json.dumps({"q": sentences, "source": "en", "target": "de"}).encode()
    request = urllib.request.Request(f"http://{server}/translate", body, {"Content-Type": "application/json"})
    assert json.load(urllib.request.urlopen(request))["translatedText"] == translator.translate(sentences)
