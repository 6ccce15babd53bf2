"""A conversation of messages, calls, a screenshot and an e-mail, by one import: found, read in its order, exported."""

import csv
import hashlib
import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import media
import pyarrow.parquet as pq

from headwater import lake as lakes
from headwater.demo.drawing import pdf_bytes, wav_bytes

FILES = {"calls/one.wav": "10:31", "calls/two.wav": "10:32", "screen.png": "10:33", "letter.eml": "10:34"}


def write_conversation(place: Path) -> Path:
    """Rows with 30 messages and four files, two of which have a side-car."""
    (place / "calls").mkdir(parents=True)
    (place / "calls/one.wav").write_bytes(wav_bytes(media.tone()))
    (place / "calls/two.wav").write_bytes(wav_bytes(media.tone(1.5)))
    (place / "calls/one.wav.json").write_text(json.dumps({"channel": "phone", "agent": {"name": "ann"}}))
    (place / "screen.png").write_bytes(media.picture("PNG"))
    (place / "screen.png.json").write_text(json.dumps({"page": "checkout"}))
    letter = EmailMessage()
    letter["From"], letter["To"], letter["Subject"] = "carl@example.org", "help@example.org", "My parcel"
    letter.set_content("The parcel arrived broken, see the certificate.")
    letter.add_attachment(
        pdf_bytes([["A certificate of damage."]]), maintype="application", subtype="pdf", filename="certificate.pdf"
    )
    (place / "letter.eml").write_bytes(bytes(letter))
    with (place / "conversation.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "customer", "at", "text", "file", "conversation", "channel"])
        for n in range(30):
            text = "where is the zeppelin manual" if n == 17 else f"message {n} of many"
            rows.writerow([f"m{n}", "acme", f"2026-03-01T10:{n:02}:00Z", text, "", "case 9", "chat"])
        for name, at in FILES.items():
            rows.writerow(["", "acme", f"2026-03-01T{at}:00Z", "", name, "case 9", ""])
    return place / "conversation.csv"


def test_a_conversation_is_put_by_one_import_found_by_label_thread_and_word_and_exported_whole(
    tmp_path: Path, engine: None
) -> None:
    lakes.init(tmp_path / "lake").close()
    models = {"models.transcribe": "cheap_models:CheapSpeech", "models.caption": "cheap_models:CheapReader"}
    with lakes.open(tmp_path / "lake", {**models, "models.embed": "lexical"}) as lake:
        source = write_conversation(tmp_path / "in")
        imported = lake.put_rows(source, map={"thread": "conversation"})
        assert (imported.stored, imported.rejected) == (34, 0), imported.to_dict()["reasons"]
        lake.run()
        assert lake.put_rows(source, map={"thread": "conversation"}).stored == 34
        before = lake.sql("select count(*) as n from events")["rows"]
        lake.run()
        assert lake.sql("select count(*) as n from events")["rows"] == before, "a second import changes nothing"
        assert lake.quarantine()["rows"] == []

        (call,) = lake.ls(where={"agent.name": "ann"})["objects"]
        lake.label(call["id"], {"outcome": "refund"}, by="ann")
        found = lake.search("loudness of a call", where={"outcome": "refund"}, limit=50)
        assert {hit.entry.object_id for hit in found.hits} == {call["id"]}
        (hit,) = [hit for hit in lake.search("zeppelin", thread="case 9").hits if "zeppelin" in hit.entry.text]
        assert (hit.entry.meta, hit.entry.thread) == ({"channel": "chat"}, "case 9")
        assert lake.search("zeppelin", thread="another case").hits == ()
        assert lake.search("certificate parcel", thread="case 9").hits

        items = lake.thread("case 9")["items"]
        assert [item["event_id"] for item in items[:30]] == [f"m{n}" for n in range(30)]
        assert len(items) >= 34 and all(item["text"] for item in items)
        metadata = "select meta->>'page' as page from metadata where thread = 'case 9' and modality = 'image'"
        assert {"page": "checkout"} in lake.sql(metadata)["rows"]

        exported = lake.export(tmp_path / "out", thread="case 9")
        assert exported.missing == []
        check_export(tmp_path / "out", source.parent)


def check_export(out: Path, put: Path) -> None:
    """Every byte, message, meta and label that was put is there."""
    events = pq.read_table(out / "tables" / "bronze.events.parquet").to_pylist()
    assert {row["text"] for row in events if row["modality"] == "chat"} >= {f"message {n} of many" for n in range(17)}
    metas: dict[str, Any] = {row["object_id"]: json.loads(row["meta"]) for row in events if row["meta"]}
    assert {"channel": "phone", "agent": {"name": "ann"}} in metas.values()
    raw = {hashlib.sha256(file.read_bytes()).digest() for file in (out / "raw").rglob("*") if file.is_file()}
    assert {hashlib.sha256((put / name).read_bytes()).digest() for name in FILES} <= raw
    (label,) = pq.read_table(out / "tables" / "labels.parquet").to_pylist()
    assert (label["key"], label["value"]) == ("outcome", "refund")
