"""Commands of every kind that `exclusion.KINDS` names, each on a lake that has something to do for it, in processes of
their own: one that holds its leases and is asleep, and others that are started beside it."""

import os
import re
import sqlite3
import subprocess
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import rounds
import zombies
from cheap_models import FormerSpeech, LouderSpeech
from lakes import CALL, small_lake
from PIL import Image

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.model_book import KnownModel, State
from headwater.domain.tables import TABLES
from headwater.flow.models.port import ModelCard
from headwater.lake import Lake
from headwater.settings import load
from headwater.storage.ledger.labels import labels_by_key
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.model_book import change_book
from headwater.storage.ledger.plans import unfinished_plans
from headwater.upkeep.backup.file import check_backup
from headwater.upkeep.exclusion import HOLD_NOTHING
from headwater.upkeep.journal import DONE
from headwater.upkeep.maintenance.compaction import FILES_MIN

_LEASE = re.compile(r"INSERT INTO \"(leases\"|lake\" VALUES\('unfenced)")
ORPHAN = "documents/acme/2026-03-02/lost.pdf"
PUT_ID = "put-beside"
CORRECT_TYPE = "audio/x-wav"


def command(kind: str, lake: Path) -> tuple[str, ...]:
    files = lake.parent
    return {
        "run": ("run", "--once"),
        "replay": ("replay", "embed", "--model", "cheap_models:CheapEmbedder", "--yes"),
        "retry": ("retry",),
        "retire": ("retire", "transcribe", "cheap_models:FormerSpeech"),
        "maintain": ("maintain",),
        "rescan": ("rescan",),
        "event": ("event", "correct", _recording(lake), "--content-type", CORRECT_TYPE),
        "backup": ("backup", str(files / "second.backup")),
        "activate": ("activate", "transcribe", "cheap_models:LouderSpeech"),
        "dismiss": ("quarantine", "dismiss", "--reason", "TRUNCATED", "--because", "it is cut", "--by", "ann"),
        "label": ("label", "e1", "mood=angry", "--by", "ann"),
        "tag": ("tag", "before", "--by", "ann"),
        "untag": ("untag", "known", "--by", "ann"),
        "restore": ("restore", str(files / "first.backup"), "--force"),
        "upgrade": ("upgrade",),
        "migrate": ("migrate", "--to", str(files / "other.toml")),
        "put": ("put", str(files / "late.png"), "--customer", "acme", "--id", PUT_ID),
        "reading": ("search", "refund"),
    }[kind]


def _recording(lake: Path) -> str:
    """That has an event: of the small lake, or of one that was filled by rounds."""
    return CALL if (lake / "raw" / CALL).exists() else "audio/acme/2026-03-01/call-0-0.wav"


def make_lake(directory: Path) -> Path:
    """Without Spark, and with something to do for every kind."""
    lake = directory / "lake"
    rounds.use_cheap_models(lake)
    small_lake(lake)
    with lakes.open(lake) as opened:
        _know(opened, LouderSpeech.card, FormerSpeech.card)
        _prepare(opened)
    return lake


def make_full_lake(directory: Path) -> Path:
    """By runs and replays, in so many files that maintenance has some to compact; the second round is pending."""
    lake = directory / "lake"
    rounds.use_cheap_models(lake)
    with lakes.init(lake) as opened:
        first, second = (rounds.make_media(directory, number) for number in range(2))
        rounds.put_round(opened, first, 0)
        (first / "cut.wav").write_bytes((first / "call-0-0.wav").read_bytes()[:5_000])
        opened.put(first / "cut.wav", customer="acme")
        opened.run()
        opened.put_text("the router is new", customer="acme", id="e1")
        for number in range(FILES_MIN):
            opened.put_text("the refund is late", customer="acme", id=f"late-{number}")
            opened.run()
        for model in (LouderSpeech, FormerSpeech):
            opened.models.replay("transcribe", f"cheap_models:{model.__name__}")
        _prepare(opened)
        rounds.put_round(opened, second, 1)
    return lake


def _know(lake: Lake, *cards: ModelCard) -> None:
    """Models that are said to have rows for everything."""
    book = lake.models.book()
    active: KnownModel = book.find("transcribe", "ACTIVE")
    for card in cards:
        name = f"cheap_models:{card.name.title().replace('-', '')}"
        book = book.with_model(
            replace(active, name=name, label=card.label, fingerprint=card.fingerprint, state=State.STANDBY)
        )
    change_book(open_ledger(lake.settings.text("ledger.uri")), lambda _: book)


def _prepare(lake: Lake) -> None:
    """A backup, a place to move to, a picture to put, and an object that nobody has announced."""
    directory = lake.settings.lake.parent
    Components(lake.settings).log.identity()  # the first look at a log names it
    Image.new("RGB", (40, 30), (200, 80, 120)).save(directory / "late.png")
    lake.history.tag("known", by="ann")
    lake.backup(directory / "first.backup")
    (directory / "other.toml").write_text(f'[raw]\nuri = "{directory}/other-raw"\n')
    lost = lake.settings.lake / "raw" / ORPHAN
    lost.parent.mkdir(parents=True, exist_ok=True)
    lost.write_bytes(b"%PDF")
    os.utime(lost, (1_700_000_000, 1_700_000_000))


@contextmanager
def at_work(lake: Path, kind: str, point: str = "work.begun") -> "Iterator[subprocess.Popen[str]]":
    """It has its leases and is asleep, for as long as it takes."""
    sleeper = zombies.freeze(Lake(Components(load(lake))), point, *command(kind, lake))
    try:
        with closing(sqlite3.connect(lake / "ledger.db")) as ledger, ledger:
            ledger.execute("update leases set ttl_seconds = 3600")
            # Who fell asleep with a database locked was killed, and another sent to sleep: its line is no fault.
            mine = "select max(id) from runs where kind = :kind and outcome is null"
            ledger.execute(f"delete from runs where kind = :kind and outcome is null and id < ({mine})", {"kind": kind})
        yield sleeper
    finally:
        sleeper.kill()
        sleeper.communicate()


def written(directory: Path) -> dict[str, Any]:
    """Every file below it, and every row of its databases but those of leases and of who took one over."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                found[str(path)] = [row for row in database.iterdump() if not _LEASE.match(row)]
        elif path.is_file() and not path.name.endswith(("-wal", "-shm")):
            found[str(path)] = path.stat().st_mtime_ns, path.stat().st_size
    return found


def has_done(kind: str, lake: Lake) -> bool:
    """Whether what a kind does can be seen; of the others nothing is left to be seen but their line in the journal."""
    parts = Components(lake.settings)
    raw, lines = [each.path for each in parts.raw_store.list()], [each.value for each in parts.log.read(0, 0, 1_000)]
    book = lake.models.book()
    match kind:
        case "put":
            return any(f"{PUT_ID}.png" in path for path in raw) and any(PUT_ID in line for line in lines)
        case "rescan":
            return any(ORPHAN in line for line in lines)
        case "event":
            return any(CORRECT_TYPE in line for line in lines)
        case "backup":
            return bool(check_backup(lake.settings.lake.parent / "second.backup"))
        case "dismiss":
            return len(lake.quarantine()["dismissed"]) > 0
        case "label":
            return bool(labels_by_key(parts.ledger, "mood"))
        case "tag" | "untag":
            names = {tag["name"] for tag in lake.history.tags()}
            return "before" in names if kind == "tag" else "known" not in names
        case "activate":
            return book.find("transcribe", "ACTIVE").label == LouderSpeech.card.label
        case "replay":
            return any(known.kept and known.label.startswith("cheap-embedder") for known in book.of("embed"))
        case "retire":
            gone = all(known.label != FormerSpeech.card.label for known in book.of("transcribe"))
            rows = lake.table("transcripts", all_models=True).to_arrow()["model"].to_pylist()
            return gone and FormerSpeech.card.label not in rows
    return True


def check_journal(lake: Lake, kinds: Collection[str]) -> None:
    """Every line has its outcome, no plan is left, and each of these kinds has its line."""
    ledger = open_ledger(lake.settings.text("ledger.uri"))
    runs = ledger.runs(100)
    assert {run.outcome for run in runs} == {DONE}, runs
    assert unfinished_plans(ledger) == []
    assert {run.kind for run in runs} >= {*kinds} - {*HOLD_NOTHING, "activate", "dismiss", "label"}


def count_compactions(lake: Lake) -> int:
    runs = open_ledger(lake.settings.text("ledger.uri")).runs(100)
    return sum(run.detail["done"].get("compact-files", 0) for run in runs if run.kind == "maintain")


def check_rows(lake: Lake) -> None:
    """Nothing is there twice, no model that is kept lacks an object, and the index has what the embeddings have."""
    for table in TABLES:
        rows = lake.table(table.name, all_models=True).to_arrow().select([*table.key, "seq"]).to_pylist()
        keys = [tuple(row[name] for name in table.key) for row in rows]
        assert len(keys) == len({*keys}), table.name
    calls = {row["object_id"] for row in lake.table("transcripts").to_arrow().to_pylist()}
    assert len(calls) == 2 * 4
    transcripts = lake.table("transcripts", all_models=True).to_arrow().to_pylist()
    for known in lake.models.book().of("transcribe"):
        assert {row["object_id"] for row in transcripts if row["fingerprint"] == known.fingerprint} == calls, known
    index, chunks = Components(lake.settings).index, lake.table("embeddings", all_models=True).to_arrow()["chunk_id"]
    assert index.count() == len(chunks) and index.present(chunks.to_pylist()) == {*chunks.to_pylist()}
