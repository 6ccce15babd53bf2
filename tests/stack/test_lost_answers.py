"""Answers of the catalog that get lost, cut, late or doubled: nothing is lost, nothing twice, tables stay readable."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
import rounds
from lakes import parts_of
from pyspark.sql import functions as F
from sample_rows import rows
from wire import ACTIONS, Wire, once, wire_to

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, MESSAGES, TABLES
from headwater.errors import Conflict, HeadwaterError, OutcomeUnknown
from headwater.lake import Lake
from headwater.settings import FILE_NAME, resolve
from headwater.storage.ledger import postgres_database
from headwater.storage.spark.session import start_spark, stop_spark
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import Keep
from headwater.storage.tables.metadata import snapshot_ids
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.rewrite_files import remove_rows
from headwater.storage.tables.writer import TableWriter

# An answer to a commit, or to anything else that the catalog is asked.
COMMITS = b"UPDATE iceberg_tables"
REQUESTS = (COMMITS, b"iceberg_tables")


@pytest.fixture
def wire(postgres_uri: str) -> Iterator[Wire]:
    address = urlsplit(postgres_uri)
    assert address.hostname and address.port
    with wire_to(address.hostname, address.port, lambda data: COMMITS in data) as made:
        yield made


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One JVM for all tests here, with what it takes to speak to Postgres."""
    options = {"catalog.uri": "postgresql://nobody@127.0.0.1:9/nothing"}
    session = start_spark(resolve(tmp_path_factory.mktemp("engine"), {}, options, {}))
    yield
    stop_spark(session)


@pytest.fixture
def lake(engine: None, wire: Wire, postgres_uri: str, tmp_path: Path) -> Iterator[Lake]:
    """Its catalog is behind the wire; its ledger is not."""
    directory = tmp_path / "lake"
    rounds.use_cheap_models(directory)
    address = urlsplit(postgres_uri)
    through = postgres_uri.replace(f":{address.port}", f":{wire.port}")
    with (directory / FILE_NAME).open("a") as file:
        file.write(f'[catalog]\nuri = "{through}"\n[ledger]\nuri = "{postgres_uri}"\n')
    with lakes.init(directory) as made:
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_database, "ONCE_SECONDS", 3.0)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("number", [1, 2])
def test_rows_are_there_once_whatever_becomes_of_the_answer(lake: Lake, wire: Wire, action: str, number: int) -> None:
    writer = TableWriter(lake.spark, lake.settings, epoch=1)
    given = rows(MESSAGES, [{"object_id": f"o{n}", "event_id": f"e{n}"} for n in range(3)]).select(MESSAGES.columns)
    wire.fault = once(wire.answers + number, action)
    for position in (3, 6):
        since = read_progress(writer.tables, MESSAGES)
        writer.publish(MESSAGES, given, {EVENTS.name: position}, since=since, stage="derive")
    assert wire.done == [action]
    assert len(snapshot_ids(Committer(lake.settings).tables.base(MESSAGES.name).metadata)) == 2
    check_readable(lake)
    assert lake.spark.table("lake.silver.messages").count() == 6


@pytest.mark.parametrize("action", ACTIONS)
def test_rows_go_and_files_are_compacted_whatever_becomes_of_the_answer(lake: Lake, wire: Wire, action: str) -> None:
    writer = TableWriter(lake.spark, lake.settings)
    for number in range(6):
        row = {"object_id": f"o{number}", "event_id": f"e{number}", "customer": "acme"}
        writer.publish(MESSAGES, rows(MESSAGES, [row]).select(MESSAGES.columns), {}, stage="derive")
    wire.fault = once(wire.answers + 1, action)
    remove_rows(writer, MESSAGES, F.col("object_id") == "o3")
    wire.fault = once(wire.answers + 1, action)
    lake.maintain()
    wire.fault = once(wire.answers + 1, action)
    assert writer._committer.expire(MESSAGES.name, Keep(hours=0, age=True, newest=1)) >= 6
    assert wire.done == [action] * 3
    check_readable(lake)
    assert sorted(lake.table("messages").to_arrow()["object_id"].to_pylist()) == ["o0", "o1", "o2", "o4", "o5"]


# As the program itself, with less patience for a catalog that is silent.
IMPATIENT = """
import sys
from headwater.storage.ledger import postgres_database
from headwater.storage.tables import commit
commit.SETTLE_SECONDS, postgres_database.WAIT_SECONDS = 1.0, 0.5
from headwater.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run_once(lake: Lake) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-c", IMPATIENT, "--lake", str(lake.settings.lake), "run", "--once"]
    return subprocess.run(line, check=False, capture_output=True, text=True)


def files(lake: Lake) -> set[Path]:
    return {path for path in (lake.settings.lake / "warehouse").rglob("*") if path.is_file()}


def test_a_process_that_hears_of_none_of_its_commits_makes_each_once_deletes_nothing_and_exits_0(
    lake: Lake, wire: Wire
) -> None:
    lake.put_text("my invoice is wrong", customer="acme", id="m")
    before = files(lake)
    wire.fault = lambda _: "lose"
    done = run_once(lake)
    wire.fault = lambda _: None
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert wire.done.count("lose") >= 3
    assert before <= files(lake)
    assert_chat_is_there_once(lake, "m")
    for name in ("bronze.events", "silver.messages", "silver.embeddings"):
        found = parts_of(lake).catalog.load_table(name)
        assert len(found.metadata.snapshots) == 1
        # Each version of the table left its file, so none was taken back.
        versions = {path.name.partition("-")[0] for path in files(lake) if is_metadata_of(path, name)}
        assert versions == {f"{number:05}" for number in range(len(versions))}


@pytest.mark.parametrize("landed", [True, False])
def test_a_process_whose_catalog_falls_silent_at_a_commit_exits_7_keeps_every_file_and_the_next_finds_out(
    lake: Lake, wire: Wire, landed: bool
) -> None:
    lake.put_text("my invoice is wrong", customer="acme", id="m")
    if landed:
        wire.fault = wire.vanish
    else:
        wire.vanish_before_asked()
    before = files(lake)
    done = run_once(lake)
    assert (done.returncode, "Traceback" in done.stderr) == (OutcomeUnknown.exit_code, False), done.stderr
    assert "unknown" in done.stderr
    staged = files(lake)
    assert before < staged
    wire.come_back()
    assert lake.table("events").to_arrow().num_rows == int(landed)
    lake.run()
    assert staged <= files(lake), "what may still have been on its way is there"
    assert_chat_is_there_once(lake, "m")
    assert not lake.pending()


def is_metadata_of(path: Path, table: str) -> bool:
    return path.name.endswith(".metadata.json") and table.replace(".", "/") in str(path)


def assert_chat_is_there_once(lake: Lake, event: str) -> None:
    check_readable(lake)
    for name in ("events", "messages", "embeddings"):
        assert lake.table(name).to_arrow()["event_id"].to_pylist() == [event], name
    assert parts_of(lake).index.count() == 1


def disturb(lake: Lake, wire: Wire, tmp_path: Path, seed: int, times: int) -> None:
    """Rounds, each with one fault while it runs, until so many have really happened.

    A fault is of a commit in one round, of any answer of the catalog in the next. Which and how is dealt from all that
    there can be, shuffled: after enough rounds every commit of a run has had every fault.
    """
    random, number, known = Random(seed), 0, set[str]()
    decks = {kind: Deck(random, undisturbed(lake, wire, tmp_path, kind, at)) for at, kind in enumerate(REQUESTS)}
    for kind in islice(cycle(REQUESTS), times * 2):
        number += 1
        put(lake, tmp_path, len(decks) + number - 1)
        nth, action = decks[kind].deal()
        watch(wire, kind)
        wire.fault = once(wire.answers + nth, action)
        print(f"round {number}, {len(wire.done)} faults so far: {action} of answer {nth} to {kind!r}")
        try:
            lake.run()
        except HeadwaterError as error:
            assert error.retryable and not isinstance(error, Conflict), error
        wire.fault = lambda _: None
        lake.run()
        check_readable(lake, known)
        if len(wire.done) == times:
            break
    assert len(wire.done) == times, f"{len(wire.done)} faults in {number} rounds"
    check_contents(lake, number + len(decks))


def undisturbed(lake: Lake, wire: Wire, tmp_path: Path, kind: bytes, number: int) -> int:
    """How many answers of a kind a run gets where none is lost."""
    put(lake, tmp_path, number)
    watch(wire, kind)
    before = wire.answers
    lake.run()
    return wire.answers - before


def put(lake: Lake, tmp_path: Path, number: int) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path / "media", number), number)


def watch(wire: Wire, kind: bytes) -> None:
    wire.watched = lambda data: kind in data


class Deck:
    """Every answer of a run with every fault, shuffled; and again when all were dealt."""

    def __init__(self, random: Random, answers: int) -> None:
        assert answers > 0
        self._random, self._answers = random, answers
        self._cards: list[tuple[int, str]] = []

    def deal(self) -> tuple[int, str]:
        if not self._cards:
            self._cards = [(nth, action) for nth in range(1, self._answers + 1) for action in ACTIONS[:4]]
            self._random.shuffle(self._cards)
        return self._cards.pop()


def check_contents(lake: Lake, times: int) -> None:
    expected = {"bronze.events": 11, "silver.transcripts": 4, "silver.captions": 2, "silver.messages": 3}
    found = rounds.contents(lake)
    assert {name: len(found[name]) for name in expected} == {name: n * times for name, n in expected.items()}
    for table in TABLES:
        assert set(Counter(tuple(row[name] for name in table.key) for row in found[table.name]).values()) == {1}
    assert parts_of(lake).index.count() == len(found["silver.embeddings"])


def test_a_run_survives_any_lost_answer(lake: Lake, wire: Wire, tmp_path: Path) -> None:
    disturb(lake, wire, tmp_path, seed=9, times=8)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_two_hundred_lost_answers_lose_nothing(lake: Lake, wire: Wire, tmp_path: Path) -> None:
    disturb(lake, wire, tmp_path, seed=200, times=200)


def check_readable(lake: Lake, known: set[str] | None = None) -> None:
    """By Spark at the current snapshot, and by PyIceberg at every one that is kept.

    Manifests never change: those that are `known` to be readable have only to be there still.
    """
    known = set() if known is None else known
    for table in TABLES:
        loaded = parts_of(lake).catalog.load_table(table.name)
        named = {one.manifest_path: one for each in loaded.metadata.snapshots for one in each.manifests(loaded.io)}
        for path in named.keys() - known:
            named[path].fetch_manifest_entry(loaded.io)
        assert all(Path(urlsplit(path).path).is_file() for path in named)
        known |= named.keys()
        assert lake.spark.table(f"lake.{table.name}").count() >= 0
