"""A small file that claims hours, or that takes hours, is refused or cut off in seconds."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest
from test_decoding import Lab, faults

LIMITS = {"limits.step_seconds": 8.0, "limits.object_seconds": 20.0}
# A file and the faults that it may end with; none where what it holds can be had in time.
FILES: dict[str, tuple[str, Callable[[], bytes], set[str]]] = {
    "14 kB of sound at 1 Hz": ("a.wav", hostile.slow_wav, {"UNREADABLE"}),
    "sound at 3,999 Hz": ("a.wav", lambda: hostile.slow_wav(3_999), {"UNREADABLE"}),
    "a FLAC at 100 Hz": ("a.flac", lambda: hostile.flac_at(100), {"TRUNCATED"}),
    "a million frames that are one": ("a.mp4", lambda: hostile.many_frames(1_000_000, 13), {"UNREADABLE"}),
    "a million frames of no length": ("a.mp4", lambda: hostile.many_frames(1_000_000, 0), {"UNREADABLE"}),
    "frames that are none": ("a.mp4", lambda: hostile.many_frames(100_000, 100, frame=4), {"UNREADABLE"}),
    "a video that its edits play 100,000 times": ("a.mp4", lambda: hostile.edited(100_000), {"UNREADABLE"}),
    "a GIF of 100,000 pictures": ("a.gif", lambda: hostile.many_gif_frames(100_000), set()),
    "a picture of 20,000,000 × 1": ("a.png", lambda: hostile.png(20_000_000, 1), set()),
    "a picture of 1 × 20,000,000": ("a.png", lambda: hostile.png(1, 20_000_000), set()),
    "a page 100,000 levels down": ("a.pdf", lambda: hostile.deep_pdf(100_000), set()),
    "a PDF of 300,000 objects": ("a.pdf", lambda: hostile.crowded_pdf(300_000), set()),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lake"), **LIMITS)
    yield lab
    lab.sandbox.close()


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_is_refused_or_read_in_the_time_that_it_is_worth(lab: Lab, name: str) -> None:
    file, make, wanted = FILES[name]
    data = make()
    lab.derive("a.pdf", b"")  # the child is up: what is measured is the file
    started = time.monotonic()
    assert set(faults(lab.derive(file, data))) == wanted
    print(f"{name}: {len(data):,} bytes, {time.monotonic() - started:.1f} s")
    assert time.monotonic() - started < LIMITS["limits.object_seconds"]


def test_time_is_earned_by_what_is_decoded_and_not_by_what_a_header_claims(tmp_path: Path) -> None:
    """A file that claims an hour and holds two seconds: a model that hangs on it is cut off after seconds."""
    lab = Lab(tmp_path, **{"limits.step_seconds": 4.0, "models.transcribe": "cheap_models:HangingSpeech"})
    try:
        lab.derive("a.pdf", b"")
        started = time.monotonic()
        results = lab.derive("a.flac", hostile.flac_claiming(3_600 * 16_000))
    finally:
        lab.sandbox.close()
    assert results["probe"]["ok"]["duration_ms"] == 3_600_000
    assert results["transcribe"]["fault"][0] == "TIMEOUT"
    assert time.monotonic() - started < 25  # four seconds, and five for each that was decoded


def test_a_scan_that_runs_out_of_time_keeps_every_page_that_was_read(tmp_path: Path) -> None:
    limits = {"limits.object_seconds": 6.0, "models.scans": "cheap_models:StuckReader"}
    lab = Lab(tmp_path, **limits)
    try:
        answer = lab.derive("a.pdf", hostile.scans(80))["extract"]
    finally:
        lab.sandbox.close()
    assert sorted({part["page"] for part in answer["ok"]["segments"]}) == [1, 2, 3, 4]
    reason, detail = answer["note"]
    assert reason == "PARTIAL" and "limits.object_seconds, 6 s" in detail
