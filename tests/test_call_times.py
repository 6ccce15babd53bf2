"""An object of many calls to another machine holds up no batch: it is set aside before the first of them is paid."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile
import media
import pytest
from endpoint_models import *  # noqa: F403
from endpoint_models import made
from endpoint_server import EndpointServer, late
from test_decoding import Lab

from headwater.demo.drawing import draw_screen, encode_video, pdf_bytes
from headwater.domain.modality import classify
from headwater.flow.derive.call_times import SECONDS_ELSEWHERE, CallTimes
from headwater.flow.derive.sandbox import BatchBudget, Sandbox, job

PATIENCE_SECONDS = 2 * SECONDS_ELSEWHERE  # two calls fit, as long as nobody knows better
STEPS = {"pdf": ["probe", "extract"], "mp4": ["probe", "caption"], "png": ["probe", "caption"]}


@pytest.fixture
def lab(server: EndpointServer, tmp_path: Path) -> Iterator[Lab]:
    """One whose pictures and scans are read by the endpoint."""
    lab = Lab(tmp_path)
    eyes = {"kind": "openai-caption", "url": server.url, "model": "tiny", "price": 0.01, "concurrency": 1}
    named = {"models.caption": "eyes", "models.scans": "eyes"}
    lab.sandbox = Sandbox({"lake": str(tmp_path), "settings": named, "models": {"eyes": eyes}})
    yield lab
    lab.sandbox.close()


def derive(lab: Lab, *files: tuple[str, bytes], patience: float | None = PATIENCE_SECONDS) -> list[dict[str, Any]]:
    jobs = []
    for name, data in files:
        kind = classify(name)
        assert kind is not None
        jobs.append(job(STEPS[name.rpartition(".")[2]], kind[0], lab.pointer(name, data)))
    return lab.sandbox.derive_many(jobs, budget=BatchBudget(patience=patience))


def screens(count: int, seconds: float = 2.0) -> bytes:
    """Each with a line more than the one before."""
    shown = [draw_screen(media.TITLE, [media.LINE] * number, size=(640, 360)) for number in range(1, count + 1)]
    return encode_video([(screen, seconds) for screen in shown], None)


def test_a_document_of_more_scans_than_a_batch_waits_for_is_set_aside_before_a_page_is_bought(
    lab: Lab, server: EndpointServer
) -> None:
    server.always(late(0.2))
    many, mate = derive(lab, ("many.pdf", hostile.scans(20)), ("mate.png", media.picture("PNG")))
    assert many["probe"]["ok"]["pages"] == 20
    assert many["extract"]["fault"][0] == "SLOW" and "2 calls" in many["extract"]["fault"][1]
    assert "a picture of colour" in mate["caption"]["ok"]["text"] and len(server.requests) == 1
    (alone,) = derive(lab, ("many.pdf", hostile.scans(20)), patience=None)
    assert {part["page"] for part in alone["extract"]["ok"]["segments"]} == set(range(1, 21))
    assert len(server.requests) == 21


def test_a_video_of_more_frames_than_a_batch_waits_for_is_set_aside_before_one_is_bought(
    lab: Lab, server: EndpointServer
) -> None:
    many, still = derive(lab, ("many.mp4", screens(4)), ("still.mp4", screens(1, 8.0)))
    assert many["probe"]["ok"]["duration_ms"] >= 7_000
    assert many["caption"]["fault"][0] == "SLOW"
    assert len(still["caption"]["ok"]["segments"]) == 1 and len(server.requests) == 1
    (alone,) = derive(lab, ("many.mp4", screens(4)), patience=None)
    assert alone["caption"]["ok"]["text"] and len(server.requests) == 5


def test_pages_of_text_are_no_calls(lab: Lab, server: EndpointServer) -> None:
    (read,) = derive(lab, ("text.pdf", pdf_bytes([[f"Page {number}"] for number in range(30)])))
    assert "Page 29" in read["extract"]["ok"]["text"] and server.requests == []


def test_how_many_calls_fit_is_learnt_from_those_that_were_made(lab: Lab, server: EndpointServer) -> None:
    for _ in range(3):  # at once: more fit
        assert "ok" in derive(lab, ("two.pdf", hostile.scans(2)))[0]["extract"]
    assert "ok" in derive(lab, ("more.pdf", hostile.scans(6)))[0]["extract"]
    server.always(late(4.0))  # slower than was thought: fewer do
    assert "ok" in derive(lab, ("one.pdf", hostile.scans(1)))[0]["extract"]
    made_before = len(server.requests)
    assert derive(lab, ("more.pdf", hostile.scans(6)))[0]["extract"]["fault"][0] == "SLOW"
    assert len(server.requests) == made_before


def test_one_call_always_fits(server: EndpointServer) -> None:
    times, card = CallTimes(), made("openai-caption", server).card
    times.note(card, 600.0)
    assert times.calls_within(60.0, card) == 1 and times.seconds(card) > 300
