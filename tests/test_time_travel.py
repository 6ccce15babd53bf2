"""Reading the past: each reader gives the rows and columns of then, tells which snapshot it read, or says why not."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from calling import answer
from lakes import CALL, CALL_CHUNK, parts_of, small_lake
from pyiceberg.types import StringType
from sample_rows import append, rows

from headwater import clock
from headwater import lake as lakes
from headwater.domain.ref import Ref
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, TABLES, TRANSCRIPTS, Table
from headwater.errors import InvalidRequest, NotFound
from headwater.lake import Lake
from headwater.storage.query import reader as reading
from headwater.storage.query.row_stream import stream_rows
from headwater.storage.tables.commit import Committer
from headwater.storage.tables.expire_snapshots import HOUR_MS, Keep
from headwater.storage.tables.time_travel import TablesAt

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

TEXTS = "select text from messages order by seq"


class Snap:
    """A snapshot as the tests know it: its id, when it was committed and one millisecond before that."""

    def __init__(self, table: "IcebergTable") -> None:
        current = table.current_snapshot()
        assert current is not None
        self.id = current.snapshot_id
        self.at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=current.timestamp_ms)
        self.before = self.at - timedelta(milliseconds=1)


def loaded(lake: Lake, table: Table = MESSAGES) -> "IcebergTable":
    return parts_of(lake).catalog.load_table(table.name)


def say(lake: Lake, *texts: str, table: Table = MESSAGES) -> Snap:
    """One commit; numbers go on."""
    iceberg = loaded(lake, table)
    first = reading.scan(parts_of(lake).reader, table.name, ["seq"]).num_rows
    given = [{"object_id": text, "event_id": text, "customer": "acme", "text": text, "model": "m"} for text in texts]
    append(iceberg, rows(table, given, first_seq=first), table.day)
    return Snap(loaded(lake, table))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        yield made


@pytest.fixture
def three(lake: Lake) -> list[Snap]:
    return [say(lake, "one"), say(lake, "two", "three"), say(lake, "four")]


WORDS = ["one", "two", "three", "four"]


def by_scan(lake: Lake, ref: Ref) -> list[str]:
    found = reading.scan(TablesAt(parts_of(lake).reader, ref, [MESSAGES.name]), "messages", ["seq", "text"])
    return list(found.sort_by("seq")["text"].to_pylist())


def by_stream(lake: Lake, ref: Ref) -> list[str]:
    past = TablesAt(parts_of(lake).reader, ref, [MESSAGES.name])
    found = [row for batch in stream_rows(past, MESSAGES.name, ["seq", "text"]) for row in batch.to_pylist()]
    return [row["text"] for row in sorted(found, key=lambda row: int(row["seq"]))]


def by_sql_here(lake: Lake, ref: Ref) -> list[str]:
    return [row["text"] for row in reading.run_sql(parts_of(lake).reader, TEXTS, as_of=ref)["rows"]]


READERS: Mapping[str, Callable[[Lake, Ref], list[str]]] = {
    "scan": by_scan,
    "stream": by_stream,
    "sql here": by_sql_here,
    "sql in its process": lambda lake, ref: [row["text"] for row in lake.sql(TEXTS, as_of=ref)["rows"]],
    "arrow": lambda lake, ref: lake.table("messages", as_of=ref).to_arrow().sort_by("seq")["text"].to_pylist(),
    "pandas": lambda lake, ref: list(lake.table("messages", as_of=ref).to_pandas().sort_values("seq")["text"]),
    "duckdb": lambda lake, ref: [
        text for (text,) in lake.table("messages", as_of=ref).to_duckdb().order("seq").project("text").fetchall()
    ],
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_gives_the_rows_of_a_snapshot_a_tag_a_branch_and_a_time(
    lake: Lake, three: list[Snap], name: str
) -> None:
    first, second, third = three
    loaded(lake).manage_snapshots().create_tag(second.id, "v2").create_branch(first.id, "audit").commit()
    read = partial(READERS[name], lake)
    assert [read(Ref(snapshot_id=snap.id)) for snap in three] == [WORDS[:1], WORDS[:3], WORDS]
    assert [read(Ref(name=name)) for name in ("v2", "audit", "main")] == [WORDS[:3], WORDS[:1], WORDS]
    assert [read(Ref(at=snap.at)) for snap in three] == [WORDS[:1], WORDS[:3], WORDS], "the moment itself counts"
    assert [read(Ref(at=snap.before)) for snap in (second, third)] == [WORDS[:1], WORDS[:3]]
    assert read(Ref(at=third.at + timedelta(days=900))) == WORDS


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_what_is_not_there_and_names_what_is(lake: Lake, three: list[Snap], name: str) -> None:
    for ref, sentence in (
        (Ref(snapshot_id=4711), f"has no snapshot 4711.*The oldest that can be read is {three[0].id}"),
        (Ref(name="v9"), r"has no tag or branch v9\. It has: main\."),
        (Ref(at=three[0].before), f"had no snapshot yet.*The oldest that can be read is {three[0].id}"),
    ):
        with pytest.raises(NotFound, match=rf"silver\.messages {sentence}|At .* silver\.messages {sentence}"):
            READERS[name](lake, ref)


def test_spark_reads_the_same(engine: None, lake: Lake, three: list[Snap]) -> None:
    loaded(lake).manage_snapshots().create_tag(three[1].id, "v2").commit()
    for ref in (three[0].id, "v2", three[2].before, "main"):
        table = lake.table("messages", as_of=ref)
        found = [row.text for row in table.to_spark().orderBy("seq").collect()]
        assert found == table.to_arrow().sort_by("seq")["text"].to_pylist()


def test_a_snapshot_has_its_own_columns_whatever_became_of_them_since(lake: Lake) -> None:
    first = say(lake, "one")
    with loaded(lake).update_schema() as update:
        update.add_column("mood", StringType())
    second = say(lake, "two")
    with loaded(lake).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("text", "words")
        update.delete_column("language")
    columns = MESSAGES.schema.names
    for ref, there in ((first.id, columns), (second.id, [*columns, "mood"]), (first.at, columns)):
        assert lake.table("messages", as_of=ref).to_arrow().column_names == there
        assert lake.sql("from messages", as_of=ref)["columns"] == there
        found = lake.sql("select text, language from messages order by seq", as_of=ref)["rows"]
        assert [row["text"] for row in found] == (["one"] if there is columns else ["one", "two"])
    for column in ("mood", "words"):
        with pytest.raises(InvalidRequest, match=column):
            lake.sql(f"select {column} from messages", as_of=first.id)
    with pytest.raises(InvalidRequest, match="text"):
        lake.sql(TEXTS)


def test_a_column_that_our_own_questions_ask_for_and_that_came_later_is_null(lake: Lake) -> None:
    with loaded(lake).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("cost")
    iceberg = loaded(lake)
    given = rows(MESSAGES, [{"object_id": "one", "text": "one"}]).drop_columns(["cost"])
    append(iceberg, given, MESSAGES.day)
    old = Snap(loaded(lake))
    with loaded(lake).update_schema() as update:
        update.add_column("cost", StringType())
    past = TablesAt(parts_of(lake).reader, Ref(snapshot_id=old.id), [MESSAGES.name])
    assert reading.scan(past, "messages", ["cost", "text"]).to_pylist() == [{"cost": None, "text": "one"}]


def test_which_snapshot_was_read_is_told_and_names_it_for_ever(lake: Lake, three: list[Snap]) -> None:
    loaded(lake).manage_snapshots().create_tag(three[1].id, "v2").commit()
    told = lake.sql(TEXTS, as_of="v2")["as_of"]
    moment = clock.to_text(three[1].at)
    assert told == {
        "ref": "v2",
        "snapshots": [{"table": "silver.messages", "snapshot_id": three[1].id, "committed_at": moment}],
    }
    table = lake.table("messages", as_of="v2")
    assert (table.snapshot.snapshot_id, table.snapshot.committed_at) == (three[1].id, three[1].at)
    assert lake.table("messages").snapshot.snapshot_id == three[2].id
    assert lake.sql(TEXTS, as_of=told["snapshots"][0]["snapshot_id"])["rows"] == lake.sql(TEXTS, as_of="v2")["rows"]
    assert "as_of" not in lake.sql(TEXTS)


def test_over_several_tables_a_time_gives_each_its_own_and_a_younger_one_is_empty(lake: Lake) -> None:
    heard = say(lake, "hello", table=TRANSCRIPTS)
    typed = say(lake, "hi")
    both = "select (select count(*) from transcripts) as heard, (select count(*) from messages) as typed"
    assert lake.sql(both, as_of=typed.before)["rows"] == [{"heard": 1, "typed": 0}]
    assert lake.sql(both, as_of=typed.at)["rows"] == [{"heard": 1, "typed": 1}]
    read = lake.sql(both, as_of=typed.before)["as_of"]["snapshots"]
    assert {each["table"]: each["snapshot_id"] for each in read} == {
        "silver.transcripts": heard.id, "silver.messages": None
    }  # fmt: skip
    assert lake.sql("select count(*) as n from captions, messages", as_of=typed.at)["rows"] == [{"n": 0}]
    with pytest.raises(NotFound, match=r"silver\.transcripts had no snapshot yet"):
        lake.sql(both, as_of=heard.before)
    with pytest.raises(NotFound, match=r"silver\.messages had no snapshot yet"):
        lake.sql(TEXTS, as_of=heard.at)


def test_over_several_tables_a_snapshot_or_tag_that_one_of_them_has_is_refused(lake: Lake) -> None:
    heard, typed = say(lake, "hello", table=TRANSCRIPTS), say(lake, "hi")
    loaded(lake).manage_snapshots().create_tag(typed.id, "mine").commit()
    both = "select count(*) as n from transcripts, messages"
    for ref in ("mine", typed.id):
        with pytest.raises(NotFound, match=r"is one of silver\.messages, and not of silver\.transcripts"):
            lake.sql(both, as_of=ref)
        assert lake.sql("select count(*) as n from messages", as_of=ref)["rows"] == [{"n": 1}]
        relation = lake.table("messages", as_of=ref).to_duckdb()
        assert relation.count("*").fetchall() == [(1,)]
    loaded(lake, TRANSCRIPTS).manage_snapshots().create_tag(heard.id, "mine").commit()
    assert lake.sql(both, as_of="mine")["rows"] == [{"n": 1}]


def test_what_is_no_table_is_of_no_time(lake: Lake, three: list[Snap]) -> None:
    assert lake.sql("select 1 as one", as_of="never")["rows"] == [{"one": 1}]
    found = lake.sql("select count(*) as n from runs, messages", as_of=three[0].at)
    assert [each["table"] for each in found["as_of"]["snapshots"]] == ["silver.messages"], "the journal is as it is now"


def expire_all_but_the_newest(lake: Lake) -> None:
    last = int(Committer(lake.settings).tables.base(MESSAGES.name).metadata["last-updated-ms"])
    committer = Committer(lake.settings, lambda: last + 9 * HOUR_MS)
    assert committer.expire(MESSAGES.name, Keep(hours=1, newest=1, age=True))


def test_what_has_expired_says_when_and_what_can_still_be_read(lake: Lake, three: list[Snap]) -> None:
    loaded(lake).manage_snapshots().create_tag(three[1].id, "kept").commit()
    expire_all_but_the_newest(lake)
    with pytest.raises(NotFound, match=rf"Snapshot {three[0].id} of silver\.messages expired on \d{{4}}-") as refused:
        lake.sql(TEXTS, as_of=three[0].id)
    assert f"The oldest that can be read is {three[1].id} of {clock.to_text(three[1].at)}." in str(refused.value)
    with pytest.raises(NotFound, match="has expired"):
        lake.sql(TEXTS, as_of=three[1].before)
    assert len(lake.sql(TEXTS, as_of="kept")["rows"]) == 3
    assert len(lake.sql(TEXTS, as_of=three[1].id)["rows"]) == 3


class Expiring:
    """A catalog whose table loses all but its newest snapshot right after it was looked up."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._left = 1

    def load_table(self, identifier: str) -> "IcebergTable":
        table = parts_of(self._lake).reader.load_table(identifier)
        if self._left:
            self._left -= 1
            with loaded(self._lake).transaction() as change:  # the old files leave the newest snapshot
                change.delete("seq >= 0")
            expire_all_but_the_newest(self._lake)
        return table


def test_a_snapshot_that_expires_under_its_reader_is_told_and_never_half_read(lake: Lake, three: list[Snap]) -> None:
    ref = Ref(snapshot_id=three[0].id)
    with pytest.raises(NotFound, match=rf"Snapshot {three[0].id} of silver\.messages expired on"):
        reading.run_sql(Expiring(lake), TEXTS, as_of=ref)


def test_a_table_read_at_a_ref_is_settled_once_though_its_tag_moves(lake: Lake, three: list[Snap]) -> None:
    loaded(lake).manage_snapshots().create_tag(three[0].id, "v").commit()
    past = TablesAt(parts_of(lake).reader, Ref(name="v"), [MESSAGES.name])
    loaded(lake).manage_snapshots().remove_tag("v").commit()
    loaded(lake).manage_snapshots().create_tag(three[2].id, "v").commit()
    assert [reading.scan(past, "messages", ["seq"]).num_rows for _ in range(3)] == [1, 1, 1]
    with pytest.raises(NotFound, match="not among the tables"):
        past.load_table(EVENTS.name)


def test_a_clock_that_went_back_hides_no_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fail-over to a machine whose clock is behind: its commits have the time of the last one before, not earlier."""
    first = say(lake, "one")
    monkeypatch.setattr(clock, "skew", timedelta(hours=-5))
    second = say(lake, "two")
    assert second.at >= first.at
    monkeypatch.setattr(clock, "skew", timedelta(hours=5))
    third = say(lake, "three")
    assert third.at - second.at > timedelta(hours=4)
    assert by_scan(lake, Ref(at=second.at)) == ["one", "two"]
    assert by_scan(lake, Ref(at=third.before)) == ["one", "two"]
    assert by_scan(lake, Ref(at=third.at)) == ["one", "two", "three"]


def test_hidden_models_are_those_of_now(tmp_path: Path) -> None:
    with lakes.open(small_lake(tmp_path / "lake")) as lake:
        made = lake.table("transcripts", as_of="main")
        assert made.to_arrow().equals(lake.table("transcripts").to_arrow())
        answered = reading.run_sql(
            parts_of(lake).reader, "from transcripts", {"transcribe-print"}, as_of=Ref(name="main")
        )
        assert answered["rows"] == []
        every = reading.run_sql(
            parts_of(lake).reader, "from all_models.transcripts", {"transcribe-print"}, as_of=Ref(name="main")
        )
        assert len(every["rows"]) == 1


def test_a_trace_of_then_tells_what_the_tables_told(tmp_path: Path) -> None:
    with lakes.open(small_lake(tmp_path / "lake")) as lake:
        embedded = Snap(loaded(lake, EMBEDDINGS))
        now, then = lake.trace(CALL_CHUNK), lake.trace(CALL, as_of=embedded.before)
        assert "as_of" not in now
        assert {row["table"] for row in then["derived"]} == {"silver.metadata", "silver.transcripts"}
        assert (len(now["vectors"]), then["vectors"]) == (1, [])
        snapshots = {each["table"]: each["snapshot_id"] for each in then["as_of"]["snapshots"]}
        assert set(snapshots) == {table.name for table in TABLES}
        assert snapshots[EMBEDDINGS.name] is None
        assert lake.trace(CALL_CHUNK, as_of=embedded.at)["vectors"] == now["vectors"]
        with pytest.raises(NotFound, match=f"nothing in the lake was called {CALL_CHUNK}"):
            lake.trace(CALL_CHUNK, as_of=embedded.before)
        with pytest.raises(NotFound, match=r"is one of silver\.embeddings, and not of .* and 3 others"):
            lake.trace(CALL, as_of=embedded.id)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(answer, capsys)


def test_the_commands_take_it_and_their_json_says_what_was_read(call: Any, tmp_path: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    with lakes.open(directory) as lake:
        snap = Snap(loaded(lake, TRANSCRIPTS))
        later = say(lake, "later", table=TRANSCRIPTS)
    for command, rows_of in ((("show", "transcripts"), "rows"), (("sql", "from transcripts"), "rows")):
        for ref in (str(snap.id), clock.to_text(snap.at), f"snapshot:{snap.id}", clock.to_text(later.before)):
            found = call(*command, "--as-of", ref, "--lake", directory, "--json").json
            assert len(found[rows_of]) == 1
            assert [each["snapshot_id"] for each in found["as_of"]["snapshots"]] == [snap.id]
        assert len(call(*command, "--lake", directory, "--json").json[rows_of]) == 2
        person = call(*command, "--as-of", str(snap.id), "--lake", directory)
        assert f"snapshot {snap.id} of {clock.to_text(snap.at)}" in person.out + person.err
    traced = call("trace", CALL, "--as-of", "main", "--lake", directory)
    assert "as of main" in traced.out
    refused = call("show", "transcripts", "--as-of", "2026-02-30", "--lake", directory, "--json")
    assert (refused.code, refused.json["error"]["kind"]) == (2, "InvalidRequest")
    unknown = call("sql", "from transcripts", "--as-of", "v9", "--lake", directory, "--json")
    assert (unknown.code, unknown.json["error"]["kind"]) == (3, "NotFound")


def test_show_never_shows_vectors_neither_now_nor_then(call: Any, tmp_path: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    for extra in ((), ("--as-of", "main")):
        found = call("show", "embeddings", *extra, "--lake", directory, "--json").json
        assert found["columns"] == [name for name in EMBEDDINGS.schema.names if name != "vector"]


def test_reading_the_past_loads_neither_a_jvm_nor_pandas_nor_sqlalchemy(tmp_path: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    code = f"""
import json, sys
from headwater.cli.main import main
for line in (["show", "messages"], ["trace", {CALL!r}]):
    assert main([*line, "--as-of", "main", "--lake", {str(directory)!r}, "--json"]) == 0
print(json.dumps(sorted({{"pyspark", "py4j", "pandas", "sqlalchemy"}} & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
