"""One of each kind that people write goes all the way: put, derived, found by a word with its place, and traced."""

import io
from pathlib import Path

import media
import written

from headwater import lake as lakes
from headwater.demo.drawing import draw_screen
from headwater.lake import Lake

# Of each file a word that it alone has, and where that stands.
FOUND = {
    "plain.txt": ("walnut", {"section": "lines 1–2"}),
    "prices.md": ("heron", {"section": "Prices › Europe"}),
    "terms.html": ("badger", {"section": "Prices & fees"}),
    "tariffs.docx": ("gannet", {"section": "Tariffs"}),
    "talk.pptx": ("narwhal", {"page": 1, "section": "notes"}),
    "stock.xlsx": ("teapot", {"page": 2, "section": "Stock!2–2"}),
    "film.srt": ("lighthouse", {"start_ms": 1000, "end_ms": 4000}),  # two that follow one another are one chunk
    "film.vtt": ("buoy", {"start_ms": 1000, "end_ms": 2500, "speaker": "Roger"}),
    "mail.eml": ("kettle", {"section": "body"}),
    "mail.eml.parts/offer.docx": ("marmot", {"section": "Offer"}),
    "export.zip/inner/note.txt": ("pangolin", {"section": "lines 1–1"}),
}


def write_inbox(inbox: Path) -> None:
    inbox.mkdir()
    offer = written.docx(written.paragraph("Offer", "berschrift1") + written.paragraph("A marmot for two."))
    picture = io.BytesIO()
    draw_screen("Payment failed", [media.LINE]).save(picture, "AVIF", quality=90)
    files = {
        "plain.txt": b"The first line\nand a walnut\n",
        "prices.md": written.MARKDOWN.encode(),
        "terms.html": written.HTML.encode(),
        "tariffs.docx": written.docx(written.paragraph("Tariffs", "berschrift1") + written.paragraph("A gannet.")),
        "talk.pptx": written.pptx(["The only slide"]),
        "stock.xlsx": written.xlsx(("Prices", [["item"]]), ("Stock", [[None], ["teapot", 3]])),
        "film.srt": written.SRT.encode(),
        "film.vtt": written.VTT.encode(),
        "mail.eml": written.mail(attached={"offer.docx": offer}),
        "export.zip": written.packed({"inner/note.txt": "a pangolin"}),
        "screen.avif": picture.getvalue(),
    }
    for name, data in files.items():
        (inbox / name).write_bytes(data)


def test_each_kind_is_found_by_a_word_with_its_place_and_traced_to_its_bytes(tmp_path: Path, engine: None) -> None:
    write_inbox(tmp_path / "inbox")
    lakes.init(tmp_path / "lake").close()
    with lakes.open(tmp_path / "lake") as lake:
        assert len(lake.put(tmp_path / "inbox", customer="acme", at="2026-03-02T10:00:00Z")) == len(FOUND) + 1
        lake.run()
        assert lake.quarantine()["rows"] == [] and not lake.pending()
        for name, (word, place) in FOUND.items():
            require_found(lake, f"documents/acme/2026-03-02/{name}", word, place)
        picture = lake.search("payment", modality="image").hits[0].to_dict()
        assert picture["pointer"]["path"] == "images/acme/2026-03-02/screen.avif"
        rows = lake.sql("SELECT DISTINCT step, model FROM captions ORDER BY step")["rows"]
        assert [row["step"] for row in rows] == ["caption", "read"] and rows[1]["model"] == "readers 1"
        assert lake.put(tmp_path / "inbox", customer="acme")[0].status == "already there"


def require_found(lake: Lake, path: str, word: str, place: dict[str, object]) -> None:
    hits = [hit.to_dict() for hit in lake.search(word, modality="document").hits]
    (hit,) = (hit for hit in hits if word in hit["snippet"].lower())
    assert hit["pointer"]["path"] == path
    assert {name: value for name, value in hit["locator"].items() if value is not None} == place
    traced = lake.trace(hit["id"])
    assert traced["object"]["id"] == path and traced["object"]["exists"]
