"""Bad input gets its reason, what is merely unusual is derived, and neither takes much time or memory."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import media
import numpy as np
import psutil
import pytest

from headwater.demo.drawing import draw_screen, encode_video, pdf_bytes, wav_bytes
from headwater.domain.modality import classify
from headwater.domain.words import character_accuracy
from headwater.flow.derive.sandbox import Sandbox

CPU_SECONDS_MAX = 2
RSS_MB_MAX = 512


class Lab:
    """A raw store and a sandbox over it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.raw = root / "raw"
        self.raw.mkdir()
        self.sandbox = Sandbox({"lake": str(root), "settings": settings})

    def pointer(self, name: str, data: bytes) -> dict[str, Any]:
        checksum = hashlib.sha256(data).hexdigest()
        path = f"{checksum[:12]}-{name}"
        (self.raw / path).write_bytes(data)
        found = classify(name)
        assert found is not None
        return {"path": path, "size": len(data), "content_type": found[1], "checksum": checksum}

    def derive(self, name: str, data: bytes) -> dict[str, dict[str, Any]]:
        found = classify(name)
        assert found is not None
        # A new lake has no model for pictures themselves.
        steps = [step.name for step in found[0].steps if not step.optional]
        return self.sandbox.derive(steps, found[0], self.pointer(name, data))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    # What is right, not how fast it is: a machine that is busy with others may take minutes for a picture.
    lab = Lab(tmp_path_factory.mktemp("lake"), **{"limits.step_seconds": 500.0})
    yield lab
    lab.sandbox.close()


def faults(results: dict[str, dict[str, Any]]) -> list[str]:
    return [result["fault"][0] for result in results.values() if "fault" in result]


@pytest.fixture(scope="module")
def header_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of its own for broken files, so that its memory is not that of models other tests have loaded."""
    lab = Lab(tmp_path_factory.mktemp("lake"))
    yield lab
    lab.sandbox.close()


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.mark.parametrize("name", [name for name in media.BROKEN if not name.startswith("a truncated ")])
def test_bad_input_gets_its_reason_within_time_and_memory(header_lab: Lab, name: str) -> None:
    (file, make), reason = media.BROKEN[name]
    data = make()
    header_lab.derive("a.pdf", b"")  # the child is up: what is measured is the file
    child = psutil.Process(header_lab.sandbox.pid)
    before = cpu_seconds(child)
    results = header_lab.derive(file, data)
    assert faults(results) == [reason], results
    assert header_lab.sandbox.pid == child.pid, "it did not end its child"
    assert cpu_seconds(child) - before < CPU_SECONDS_MAX  # and who waits is another reason: TIMEOUT
    assert child.memory_info().rss < RSS_MB_MAX << 20


@pytest.mark.parametrize("name", [name for name in media.BROKEN if name.startswith("a truncated ")])
def test_a_truncated_file_is_one_fault_even_where_its_header_is_sound(lab: Lab, name: str) -> None:
    (file, make), reason = media.BROKEN[name]
    results = lab.derive(file, make())
    assert faults(results) == [reason], results


@pytest.mark.parametrize("name", list(media.UNUSUAL))
def test_what_is_merely_unusual_is_derived(lab: Lab, name: str) -> None:
    file, make = media.UNUSUAL[name]
    results = lab.derive(file, make())
    assert faults(results) == [], results
    assert results["probe"]["ok"]["codec"]


def test_a_video_without_sound_has_no_transcript_and_no_fault(lab: Lab) -> None:
    results = lab.derive("a.mp4", media.video(sound=False))
    assert results["transcribe"] == {"ok": None}
    assert media.TITLE in results["caption"]["ok"]["text"]


def test_a_silent_call_says_nothing(lab: Lab) -> None:
    said = lab.derive("a.wav", media.UNUSUAL["a silent call"][1]())["transcribe"]["ok"]
    assert said["text"] == "" and said["segments"] == [] and said["confidence"] is None


def test_a_probe_tells_what_the_header_says(lab: Lab) -> None:
    stereo = lab.derive("a.wav", wav_bytes(media.tone(2), channels=2, rate=8_000))["probe"]["ok"]
    assert (stereo["duration_ms"], stereo["channels"], stereo["sample_rate"]) == (2_000, 2, 8_000)
    image = lab.derive("a.webp", media.picture("WEBP"))["probe"]["ok"]
    assert (image["width"], image["height"], image["codec"]) == (640, 360, "webp")
    video = lab.derive("a.mp4", media.video())["probe"]["ok"]
    assert (video["duration_ms"], video["width"], video["channels"]) == (pytest.approx(1_000, abs=100), 640, 1)
    assert lab.derive("a.pdf", pdf_bytes([["one"], ["two"]]))["probe"]["ok"]["pages"] == 2


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_text_in_a_picture_is_read_with_its_place(lab: Lab, form: str) -> None:
    ending = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp"}[form]
    said = lab.derive(f"a.{ending}", media.picture(form))["caption"]["ok"]
    assert character_accuracy(f"{media.TITLE} {media.LINE}", said["text"]) > 0.95
    left, top, right, bottom = said["segments"][0]["box"]
    assert 40 < left < 80 and 50 < top < bottom < 130 and right < 400


def test_boxes_are_in_pixels_of_the_picture_that_was_sent(lab: Lab) -> None:
    large = media.screen().resize((2_560, 1_440))
    said = lab.derive("a.png", media.picture("PNG", large))["caption"]["ok"]
    left, top, _, _ = said["segments"][0]["box"]
    assert left == pytest.approx(240, abs=40) and top == pytest.approx(290, abs=60)


def test_frames_that_look_alike_are_read_once_and_each_line_knows_its_frame(lab: Lab) -> None:
    screens = [(media.screen(), 5.0), (draw_screen("Export failed", ["Ask support."], size=(640, 360)), 3.0)]
    said = lab.derive("a.mp4", encode_video(screens, None))["caption"]["ok"]
    frames = [(part["text"], part["frame_ms"]) for part in said["segments"]]
    assert frames[0] == (media.TITLE, 0)
    assert [frame for text, frame in frames if text == "Export failed"] == [6_000]
    assert len({frame for _, frame in frames}) == 2


def test_pages_keep_their_numbers_and_a_scanned_page_is_read(lab: Lab) -> None:
    written = lab.derive("a.pdf", pdf_bytes([["first page"], [], ["third (page)"]]))["extract"]["ok"]
    assert [(part["text"], part["page"]) for part in written["segments"]] == [("first page", 1), ("third (page)", 3)]
    scanned = lab.derive("a.pdf", media.scanned_pdf())["extract"]["ok"]
    assert character_accuracy(f"{media.TITLE} {media.LINE}", scanned["text"]) > 0.95
    assert scanned["segments"][0]["page"] == 1 and scanned["segments"][0]["box"]


def test_limits_are_held_against_the_header(tmp_path: Path) -> None:
    limits = {"limits.pixels": 10_000, "limits.media_minutes": 1, "limits.pages": 1, "limits.object_mb": 1}
    lab = Lab(tmp_path, **limits)
    try:
        assert faults(lab.derive("a.png", media.picture("PNG"))) == ["TOO_LARGE"]
        assert faults(lab.derive("a.mp4", media.video())) == ["TOO_LARGE"]
        assert faults(lab.derive("a.wav", wav_bytes(media.tone(61), rate=8_000)[:900_000])) == ["TRUNCATED"]
        assert faults(lab.derive("a.wav", wav_bytes(media.tone(31), rate=8_000))) == ["TOO_LARGE"]
        assert faults(lab.derive("a.pdf", pdf_bytes([["a"], ["b"]]))) == ["TOO_LARGE"]
        assert faults(lab.derive("a.wav", wav_bytes(media.tone(60)))) == ["TOO_LARGE"]
    finally:
        lab.sandbox.close()


def test_stored_bytes_that_changed_or_went_are_never_derived_from(lab: Lab) -> None:
    data = wav_bytes(media.tone())
    pointer = lab.pointer("changed.wav", data)
    (lab.raw / pointer["path"]).write_bytes(data[:-1] + b"\x00")
    assert faults(lab.sandbox.derive(["probe", "transcribe"], "audio", pointer)) == ["CORRUPT"]
    (lab.raw / pointer["path"]).unlink()
    assert faults(lab.sandbox.derive(["probe", "transcribe"], "audio", pointer)) == ["MISSING_OBJECT"]


def test_a_path_that_leaves_the_store_is_a_bad_event(lab: Lab) -> None:
    pointer = lab.pointer("a.wav", wav_bytes(media.tone()))
    assert faults(lab.sandbox.derive(["probe"], "audio", {**pointer, "path": "../secret.wav"})) == ["BAD_EVENT"]


def test_a_large_recording_is_streamed_from_its_file(lab: Lab) -> None:
    silence = wav_bytes(np.zeros(16_000 * 600, np.int16))
    results = lab.derive("a.wav", silence)
    assert results["probe"]["ok"]["duration_ms"] == 600_000 and results["transcribe"]["ok"]["text"] == ""
