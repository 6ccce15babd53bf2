"""A process that decodes what strangers send knows no secret but the key of the model that it asks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import media
import pytest
from endpoint_models import *  # noqa: F403
from endpoint_server import EndpointServer
from test_decoding import Lab

from headwater.demo.drawing import wav_bytes
from headwater.flow.derive.sandbox import Sandbox, StepJob, job, sandbox_config
from headwater.settings import resolve

SECRETS = {
    "CALLS_KEY": "sk-calls-1",
    "OTHER_KEY": "sk-other-2",
    "AWS_SECRET_ACCESS_KEY": "aws-3",
    "AWS_SESSION_TOKEN": "aws-4",
    "HEADWATER_CATALOG_TOKEN": "catalog-5",
    "HEADWATER_S3_SECRET_KEY": "s3-6",
    "HEADWATER_LEDGER_URI": "postgresql://me:ledger-7@db/x",
    "PGPASSWORD": "pg-8",
    "HF_TOKEN": "hf-9",
    "HTTPS_PROXY": "http://me:proxy-10@proxy:3128",
    "SOMETHING_NEW": "surely-secret-11",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def environ(pid: int | None) -> dict[str, str]:
    """What the kernel says that a process was started with."""
    parts = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(part.decode().split("=", 1) for part in parts if part)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.sandbox.close()


def test_a_decoding_child_starts_without_a_secret_and_decodes(lab: Lab) -> None:
    assert "ok" in lab.derive("a.wav", wav_bytes(media.tone()))["transcribe"]
    found = environ(lab.sandbox.pid)
    assert not set(SECRETS) & set(found)
    assert not [secret for secret in SECRETS.values() if secret in str(found)]
    assert {"PATH", "HOME", "PYTHONPATH", "OMP_NUM_THREADS"} <= set(found)


def test_a_child_gets_the_key_of_the_model_that_it_asks_and_no_other(server: EndpointServer, tmp_path: Path) -> None:
    endpoint = {"kind": "openai-transcription", "url": server.url, "model": "tiny"}
    models = {
        "calls": {**endpoint, "key_env": "CALLS_KEY"},
        "others": {**endpoint, "key_env": "OTHER_KEY"},
    }
    lab = Lab(tmp_path)
    lab.sandbox = Sandbox(
        {
            "lake": str(tmp_path),
            "settings": {"models.transcribe": "calls"},
            "models": models,
            "steps": {"variables": "faulty_steps:variables"},
        }
    )
    pointer = lab.pointer("a.wav", wav_bytes(media.tone()))
    asked = job([StepJob("t", "transcribe", "models.transcribe", "calls"), "variables"], "audio", pointer)
    try:
        (answer,) = lab.sandbox.derive_many([asked])
        assert "ok" in answer["t"], answer
        assert server.requests[0].authorization == "Bearer sk-calls-1"
        started, known = environ(lab.sandbox.pid), answer["variables"]["ok"]["variables"]
    finally:
        lab.sandbox.close()
    assert not set(SECRETS) & set(started)
    # It talks to another machine, so it knows the way there.
    assert set(SECRETS) & set(known) == {"CALLS_KEY", "HTTPS_PROXY"}


def test_what_travels_to_a_child_holds_no_secret_but_the_raw_stores_own(tmp_path: Path) -> None:
    secret = {"catalog.token": "catalog-5", "s3.secret_key": "s3-6", "ledger.uri": "postgresql://me:ledger-7@db/x"}
    here = json.dumps(sandbox_config(resolve(tmp_path, {}, secret, {})))
    assert not [text for text in ("catalog-5", "s3-6", "ledger-7") if text in here]
    there = json.dumps(sandbox_config(resolve(tmp_path, {}, {**secret, "raw.uri": "s3://lake/raw"}, {})))
    assert [text for text in ("catalog-5", "s3-6", "ledger-7") if text in there] == ["s3-6"]


def test_an_operator_may_name_more_variables(tmp_path: Path) -> None:
    lab = Lab(tmp_path, **{"limits.child_variables": "SOMETHING_NEW, HF_TOKEN"})
    try:
        lab.derive("a.pdf", b"")
        found: dict[str, Any] = environ(lab.sandbox.pid)
    finally:
        lab.sandbox.close()
    assert set(SECRETS) & set(found) == {"SOMETHING_NEW", "HF_TOKEN"}
