"""A part leads to what it came in and that lists its parts; subtitles and their video lead to one another."""

from pathlib import Path
from typing import Any

import pytest
from lakes import parts_of
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.modality import classify
from headwater.domain.tables import EVENTS
from headwater.storage.tables import catalog as catalogs

DAY = "acme/2026-03-01"
MAIL = f"documents/{DAY}/in/mail.eml"
OFFER = f"documents/{DAY}/in/mail.eml.parts/offer.pdf"
INNER = f"documents/{DAY}/in/mail.eml.parts/inner.eml"
PHOTO = f"images/{DAY}/in/mail.eml.parts/inner.eml.parts/photo.png"
CALL = f"audio/{DAY}/export.zip/a/call.wav"
CLIP = f"video/{DAY}/talk/clip.mp4"
ENGLISH = "documents/acme/2026-03-05/talk/clip.en.srt"
PLAIN = "documents/acme/2026-02-28/talk/clip.vtt"
OTHERS = ("documents/acme/2026-03-01/clip.srt", "documents/globex/2026-03-01/talk/clip.srt", f"video/{DAY}/talk/c.mp4")
PART_OF = {OFFER: "in/mail.eml", INNER: "in/mail.eml", PHOTO: "in/mail.eml", CALL: "export.zip"}


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with lakes.init(tmp_path / "lake") as lake:
        tables = catalogs.open_catalog(parts_of(lake).settings)
        given = [_event(path) for path in (MAIL, *PART_OF, CLIP, ENGLISH, PLAIN, *OTHERS)]
        append(tables.load_table(EVENTS.name), rows(EVENTS, given))
        yield lake


def _event(path: str) -> dict[str, Any]:
    kind = classify(path)
    assert kind is not None
    meta = f'{{"part_of":"{PART_OF[path]}"}}' if path in PART_OF else None
    about = {"object_id": path, "event_id": path, "customer": path.split("/")[1], "modality": str(kind[0])}
    return {**about, "meta": meta}


def related(lake: lakes.Lake, path: str) -> tuple[Any, Any, Any]:
    found = lake.trace(path)
    return found["part_of"], found["parts"], found["beside"]


def test_a_part_leads_to_what_it_came_in_and_that_lists_its_parts(lake: lakes.Lake) -> None:
    assert related(lake, MAIL) == (None, [INNER, OFFER], [])
    assert related(lake, OFFER) == ({"name": "in/mail.eml", "id": MAIL}, [], [])
    assert related(lake, INNER) == ({"name": "in/mail.eml", "id": MAIL}, [PHOTO], [])
    assert related(lake, PHOTO)[0] == {"name": "in/mail.eml", "id": INNER}
    assert related(lake, CALL) == ({"name": "export.zip", "id": None}, [], [])


def test_subtitles_and_the_video_of_their_name_lead_to_one_another_whenever_they_were_written(lake: lakes.Lake) -> None:
    assert related(lake, CLIP)[2] == [PLAIN, ENGLISH]
    assert related(lake, ENGLISH)[2] == related(lake, PLAIN)[2] == [CLIP]
    assert all(related(lake, path)[2] == [] for path in OTHERS)


def test_a_person_is_told_too(lake: lakes.Lake, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (OFFER, MAIL, CLIP, CALL):
        assert main(["--lake", str(lake.settings.lake), "trace", path]) == 0
    shown = capsys.readouterr().out
    for line in (f"part of {MAIL}", f"holds {OFFER}", f"beside {PLAIN}", "part of export.zip"):
        assert line in shown
