"""Transcription of speech."""

import json
import pickle
import wave

import numpy
import pytest

import cognate
from conftest import ROOT


def test_transcripts_are_those_of_the_command(speech_model, clip, command):
    # The texts of the small model depend on roundings.
    transcriber = cognate.Transcriber(speech_model, word_timestamps=True, engine="tract")
    for options, arguments in [
        ({}, []),
        ({"beam_size": 1, "temperature": 0}, ["--beams", "1", "--temperature-increment-on-fallback", "0"]),
        ({"language": "german", "seed": 3, "batch": 2}, ["--language", "german", "--seed", "3", "--batch", "2"]),
    ]:
        lines = command("transcribe", "--model", speech_model, "--format", "json", "--word-timestamps", "--engine", "tract", *arguments, str(clip))
        assert transcriber.transcribe(clip, **options) == json.loads("".join(lines))
    assert "words" not in transcriber.transcribe(clip, word_timestamps=False)["segments"][0]


def test_thresholds_are_switched_off(speech_model, clip):
    transcriber = cognate.Transcriber(speech_model, beam_size=1, temperature=[0, 0.5], best_of=1, logprob_threshold=0)
    temperature = lambda **options: transcriber.transcribe(clip, **options)["segments"][0]["temperature"]
    assert temperature() == 0.5 and temperature(logprob_threshold=None, compression_ratio_threshold=None) == 0
    with pytest.raises(cognate.Error, match="no-such-file"):
        transcriber.transcribe(clip, batch=2, vad="no-such-file")
    with pytest.raises(cognate.Error, match="target_language: expected language and task"):
        cognate.Transcriber(speech_model, target_language="de")


def test_audio_comes_as_a_path_as_bytes_or_as_samples(speech_model, clip):
    transcriber = cognate.Transcriber(speech_model)
    expected = transcriber.transcribe(str(clip))
    assert transcriber.transcribe(clip.read_bytes()) == transcriber.transcribe(bytearray(clip.read_bytes())) == expected
    plain = ROOT / "testdata" / "audio" / "clip.wav"
    with wave.open(str(plain)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    assert transcriber.transcribe(samples) == transcriber.transcribe(plain)
    assert pickle.loads(pickle.dumps(transcriber)).transcribe(clip) == expected
    for audio, error, message in [
        (3, TypeError, "expected a path, the bytes of a file, or a NumPy array"),
        (numpy.zeros((2, 3)), ValueError, "floats and of one axis"),
        (numpy.zeros(3, "int16"), ValueError, "floats and of one axis"),
        (b"nonsense", cognate.Error, "audio: expected audio"),
        ("no-such.wav", cognate.Error, "no-such.wav"),
    ]:
        with pytest.raises(error, match=message):
            transcriber.transcribe(audio)
    with pytest.raises(cognate.Error, match="unknown field `colour`"):
        transcriber.transcribe(clip, colour="red")
    with pytest.raises(cognate.Error, match="a model of text"):
        cognate.Transcriber(ROOT / "testdata" / "multi30k-en-de")
