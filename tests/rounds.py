"""Rounds of small, real media with something of everything: calls, pictures, chat, duplicates, broken files, poison."""

import struct
import wave
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from lakes import parts_of
from PIL import Image

from headwater.domain.tables import EVENTS, TABLES
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.tables.read_progress import read_progress

CHEAP = """\
[models]
transcribe = "cheap_models:CheapSpeech"
caption = "cheap_models:CheapReader"
embed = "lexical"

[limits]
child_variables = "HEADWATER_CALLS"
"""
# What may differ between two runs over the same events: when, and in which order rows were committed.
_INCIDENTAL = {"seq", "event_seq", "bronze_at", "derived_at", "quarantined_at", "model_seconds"}


def use_cheap_models(lake: Path) -> None:
    lake.mkdir(parents=True, exist_ok=True)
    (lake / FILE_NAME).write_text(CHEAP, encoding="utf-8")


def make_media(directory: Path, number: int) -> Path:
    """Two calls, a picture and a broken call, different in every round."""
    folder = directory / f"round-{number}"
    folder.mkdir(parents=True)
    for voice in range(2):
        with wave.open(str(folder / f"call-{number}-{voice}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(struct.pack("<h", 100 + 10 * number + voice) * 8_000)
    Image.new("RGB", (40, 30), (number * 5 % 256, 80, 120)).save(folder / f"shot-{number}.png")
    (folder / f"broken-{number}.wav").write_bytes(b"RIFF, it says, and nothing follows")
    return folder


def put_round(lake: Lake, folder: Path, number: int) -> None:
    """Everything of a round, one call twice, three chat lines and a line that is no event."""
    at = datetime(2026, 3, 1 + number % 20, 12, tzinfo=UTC)
    for customer in ("acme", "globex"):
        assert len(lake.put(folder, customer=customer, at=at)) == 4
    lake.put(folder / f"call-{number}-0.wav", customer="acme", at=at)
    for line in range(3):
        lake.put_text(
            f"round {number}, line {line}: my invoice is wrong", customer="acme", id=f"r{number}-{line}", at=at
        )
    log = parts_of(lake).log
    assert isinstance(log, DirectoryLog)
    log.publish_raw([f"poison {number}"])


def contents(lake: Lake) -> Mapping[str, list[dict[str, Any]]]:
    """Every table's rows without what is incidental, in the order of their keys."""
    return {table.name: _rows(lake.table(table.name).to_arrow(), table.key) for table in TABLES}


def _rows(table: pa.Table, key: tuple[str, ...]) -> list[dict[str, Any]]:
    kept = table.select([name for name in table.column_names if name not in _INCIDENTAL])
    return sorted(kept.to_pylist(), key=lambda row: [str(row[name]) for name in key])


def check_raw_is_counted(lake: Lake) -> None:
    """Bronze counts the raw objects with its rows: what `status` tells from that is what its rows say."""
    counted = read_progress(lake.settings, EVENTS).raw
    rows = lake.table("events").to_arrow().to_pylist()
    objects = [row["pointer"]["size"] for row in rows if row["first_of_object"] and row["modality"] != "chat"]
    assert counted == {"rows": len(rows), "objects": len(objects), "bytes": sum(objects)}
    assert lake.status()["raw"] == {"objects": len(objects), "bytes": sum(objects)}
