"""The container file and the manifest of `crates/serve`."""

import json

import pytest

from conftest import ROOT

SERVE = ROOT / "crates" / "serve"


def entry_point() -> list[str]:
    lines = (SERVE / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return json.loads(next(line.removeprefix("ENTRYPOINT ") for line in lines if line.startswith("ENTRYPOINT ")))


def test_the_manifest_is_of_the_container():
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load((SERVE / "kserve.yaml").read_text(encoding="utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    [container] = manifest["spec"]["predictor"]["containers"]
    [port] = container["ports"]
    arguments = entry_point()
    assert arguments[arguments.index("--listen") + 1] == f"0.0.0.0:{port['containerPort']}"
    probe = container["readinessProbe"]["httpGet"]
    description = json.loads((SERVE / "src" / "openapi.json").read_text(encoding="utf-8"))
    assert probe["port"] == port["containerPort"] and "get" in description["paths"][probe["path"]]


def test_the_command_has_the_options_of_the_container(command):
    program, name, *arguments = entry_point()
    options = {argument for argument in arguments if argument.startswith("--")}
    text = "\n".join(command(name, "--help"))
    assert program == "cognate" and all(option in text for option in options)
