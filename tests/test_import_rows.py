"""Imports: every row of a table that somebody has is an event, or a reject that says where and why."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.cli.progress import RowBar
from headwater.domain.line import read_line
from headwater.errors import InvalidRequest, NotFound
from headwater.flow.imports import row_source
from headwater.flow.imports.seen_rows import Earlier, SeenRow, SeenRows

HEADER = "ticket,account,created,body,conv,channel,minutes\n"
MAP = {"id": "ticket", "customer": "account", "at": "created", "text": "body", "thread": "conv"}
GOOD = "t1,acme,2026-03-01T10:00:00Z,where is my refund,c1,phone,7\n"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with lakes.init(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def events(lake: lakes.Lake) -> list[dict[str, Any]]:
    """What was published, in order."""
    found = []
    for _, data in parts_of(lake).log_to_write.segments(0):  # type: ignore[attr-defined]
        found += [json.loads(line)["event"] for line in data.splitlines()]
    return found


def test_columns_are_mapped_by_name_or_as_told_and_all_others_are_meta(lake: lakes.Lake, write: Any) -> None:
    imported = lake.put_rows(write("a.csv", HEADER + GOOD), map=MAP)
    assert (imported.rows, imported.stored, imported.rejected) == (1, 1, 0)
    (event,) = events(lake)
    assert event["event_id"] == "t1" and event["customer"] == "acme" and event["thread"] == "c1"
    assert event["occurred_at"] == "2026-03-01T10:00:00.000Z" and event["text"] == "where is my refund"
    assert event["meta"] == {"channel": "phone", "minutes": "7"}
    lake.put_rows(write("b.csv", "ID,Text,Customer,extra\n1,hello,acme,x\n"))
    assert [events(lake)[1][name] for name in ("event_id", "text", "meta")] == ["1", "hello", {"extra": "x"}]
    (columns,) = lake.put_rows(
        write("b.csv", "ID,Text,Customer,extra\n1,hello,acme,x\n"), dry_run=True
    ).columns.values()
    assert columns == {"ID": "id", "Text": "text", "Customer": "customer", "extra": "meta.extra"}


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (HEADER + GOOD, None),
        (("\ufeff" + HEADER + GOOD).encode(), None),
        ((HEADER + GOOD).replace("\n", "\r\n"), None),
        ((HEADER + GOOD).replace(",", ";"), None),
        ((HEADER + GOOD).replace(",", "\t"), None),
        ((HEADER + GOOD).encode("utf-16"), None),
        ((HEADER + GOOD).encode("latin-1"), "latin-1"),
        (HEADER.replace("account", '"account"') + "\n\n" + GOOD.rstrip("\n"), None),
    ],
)
def test_every_way_to_write_csv_is_read(
    lake: lakes.Lake, write: Any, content: str | bytes, encoding: str | None
) -> None:
    lake.put_rows(write("a.csv", content), map=MAP, encoding=encoding)
    (event,) = events(lake)
    assert (event["event_id"], event["text"], event["meta"]["minutes"]) == ("t1", "where is my refund", "7")


def test_a_bad_row_is_told_with_its_line_and_costs_only_itself(lake: lakes.Lake, write: Any) -> None:
    rows = [
        GOOD,
        't2,acme,1772359200,"two\nlines, and a ""quote""",c1,,\n',
        "t3,acme,soon,no time,c1,phone,7\n",
        "t4,acme,2026-03-01,,c1,phone,7\n",
        "t5,acme,2026-03-01,too few\n",
        "t6,,2026-03-01,whose?,c1,phone,7\n",
        "t7,acme,1772359200123,in thousandths,c1,phone,7\n",
    ]
    told: list[tuple[int, str]] = []
    path = write("a.csv", (HEADER + "".join(rows)).encode() + b"t8,acme,2026-03-01,caf\xe9,c1,phone,7\n")
    imported = lake.put_rows(path, map=MAP, on_reject=lambda reject, _: told.append((reject.line, reject.reason)))
    assert (imported.rows, imported.stored, imported.rejected) == (8, 3, 5)
    assert [line for line, _ in told] == [5, 6, 7, 8, 10]
    assert {reason.split(",")[0].split(":")[0] for _, reason in told} == {
        "its time is neither ISO 8601 nor a number since 1970", "neither a text nor a file",
        "another number of cells than the header has", "no customer", "not utf-8",
    }  # fmt: skip
    assert [event["event_id"] for event in events(lake)] == ["t1", "t2", "t7"]
    assert events(lake)[1]["text"] == 'two\nlines, and a "quote"' and "meta" not in events(lake)[1]
    assert events(lake)[1]["occurred_at"] == "2026-03-01T10:00:00.000Z"
    assert events(lake)[2]["occurred_at"] == "2026-03-01T10:00:00.123Z"
    (first,) = (about["first"] for about in imported.to_dict()["reasons"] if "time" in about["reason"])
    assert first == [{"source": str(path), "line": 5}]


def test_rows_without_an_id_are_the_same_events_when_they_come_again(lake: lakes.Lake, write: Any) -> None:
    content = "customer,text\nacme,yes\nacme,yes\nacme,no\n"
    for name in ("a.csv", "copy.csv"):
        lake.put_rows(write(name, content))
    ids = [event["event_id"] for event in events(lake)]
    assert len(set(ids)) == 3 and ids[:3] == ids[3:]


def test_json_lines_keep_their_types_and_name_what_is_no_row(lake: lakes.Lake, write: Any) -> None:
    good = {"id": 1, "text": "hello", "at": 1772359200, "n": 5, "deep": {"a": [1, 2]}, "none": None}
    lines = [json.dumps(good), "{", "[1]", "", '{"id": 2, "text": "\\ud800"}', json.dumps({"id": 3, "text": "bye"})]
    imported = lake.put_rows(write("a.jsonl", "\n".join(lines)), customer="acme")
    assert (imported.stored, imported.rejected) == (2, 3)
    assert events(lake)[0]["meta"] == {"n": 5, "deep": {"a": [1, 2]}} and events(lake)[0]["event_id"] == "1"
    assert [about["first"][0]["line"] for about in imported.to_dict()["reasons"]] == [2, 3, 5]
    lake.put_rows(write("list.json", json.dumps([good, {"text": "x", "id": "4"}])), customer="acme")
    assert [event["event_id"] for event in events(lake)] == ["1", "3", "1", "4"]


def test_parquet_frames_tables_and_dicts_are_the_same_rows(lake: lakes.Lake, tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, 10, tzinfo=UTC)
    rows = [
        {"id": "a", "text": "one", "at": at, "n": 1.5, "s": None},
        {"id": "b", "text": "two", "at": at, "n": None, "s": "x"},
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "a.parquet")
    for given in (tmp_path / "a.parquet", table, pd.DataFrame(rows), table.to_reader(), iter(rows), rows):
        assert lake.put_rows(given, customer="acme").stored == 2
    first, *others = [events(lake)[start : start + 2] for start in range(0, 12, 2)]
    assert all(other == first for other in others)
    assert [event.get("meta") for event in first] == [{"n": 1.5}, {"s": "x"}]
    with pytest.raises(InvalidRequest, match="DataFrame"):
        lake.put_rows(5)


def test_a_row_may_name_a_file_beside_it_and_none_elsewhere(lake: lakes.Lake, write: Any, tmp_path: Path) -> None:
    (tmp_path / "in" / "calls").mkdir(parents=True)
    (tmp_path / "in" / "calls" / "a.pdf").write_bytes(b"%PDF-1.4 not much")
    write("secret.pdf", b"%PDF-1.4 secret")
    header = "id,customer,at,file,thread,channel\n"
    rows = [
        f"{n},acme,2026-03-01,{file},c1,phone\n"
        for n, file in enumerate(["calls/a.pdf", "../secret.pdf", f"{tmp_path}/secret.pdf", "none.pdf"])
    ]
    imported = lake.put_rows(write("in/a.csv", header + "".join(rows)))
    assert (imported.stored, imported.rejected) == (1, 3)
    (event,) = events(lake)
    assert event["meta"] == {"channel": "phone"} and event["thread"] == "c1" and event["modality"] == "document"
    assert parts_of(lake).raw_store.head(event["pointer"]["path"]) is not None


def test_a_dry_run_shows_first_rows_and_stores_nothing(lake: lakes.Lake, write: Any, capsys: Any) -> None:
    path = write("a.csv", HEADER + GOOD + "t2,acme,soon,x,c1,phone,7\n")
    pairs = ",".join(f"{field}={column}" for field, column in MAP.items())
    directory = str(lake.settings.lake)
    assert main(["--lake", directory, "put", "--from", str(path), "--map", pairs, "--dry-run"]) == 6
    shown = capsys.readouterr().out
    assert "where is my refund" in shown and "channel" in shown and "line 3" in shown
    assert events(lake) == []
    assert main(["--lake", directory, "--json", "put", "--from", str(path), "--map", pairs]) == 6
    answer = json.loads(capsys.readouterr().out)
    assert (answer["stored"], answer["rejected"], answer["rejects"][0]["line"]) == (1, 1, 3)
    assert len(events(lake)) == 1


def test_what_holds_no_rows_is_told_and_what_is_empty_is_nothing(lake: lakes.Lake, write: Any, tmp_path: Path) -> None:
    for content, why in (("a,b\n1,2\n", "text or the file|text=…"), ("text\nhi\n", "no column nowhere")):
        with pytest.raises(InvalidRequest, match=why):
            lake.put_rows(write("a.csv", content), map={"id": "nowhere"} if "nowhere" in why else None, customer="acme")
    with pytest.raises(NotFound):
        lake.put_rows(tmp_path / "nothing.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotFound, match="holds no file of rows"):
        lake.put_rows(tmp_path / "folder")
    assert lake.put_rows(write("a.csv", "text,id\n"), customer="acme").rows == 0
    assert lake.put_rows(write("a.csv", ""), customer="acme").rows == 0
    assert lake.put_rows([], customer="acme").rows == 0
    assert events(lake) == []


def test_a_quote_that_nobody_closes_is_one_bad_row(lake: lakes.Lake, write: Any) -> None:
    imported = lake.put_rows(write("a.csv", 'id,text\n1,good\n2,"bad\n3,swallowed\n'), customer="acme")
    assert (imported.stored, imported.rejected) == (1, 1)
    assert imported.to_dict()["reasons"][0]["first"][0]["line"] == 3


def test_a_table_that_cannot_be_read_at_all_is_told_by_its_name(lake: lakes.Lake, write: Any) -> None:
    german = write("german.csv", "text;Priorität\nhallo;hoch\n".encode("cp1252"))
    with pytest.raises(InvalidRequest, match=r"german\.csv is not utf-8: tell its encoding"):
        lake.put_rows(german, customer="acme")
    assert lake.put_rows(german, customer="acme", encoding="cp1252").stored == 1
    assert events(lake)[0]["meta"] == {"Priorität": "hoch"}
    for name, content in (("screen.png", b"\x89PNG\r\n\x1a\n"), ("prices.csv", b"article,price\n")):
        with pytest.raises(InvalidRequest, match=name):
            lake.put_rows(write(name, content), customer="acme")


def test_headers_that_are_twice_there_or_empty_have_names_of_their_own(lake: lakes.Lake, write: Any) -> None:
    lake.put_rows(write("a.csv", "id,text,tag,tag,\n1,hello,a,b,c\n"), customer="acme")
    assert events(lake)[0]["meta"] == {"tag": "a", "tag_2": "b", "column_5": "c"}


def test_meta_and_thread_are_given_with_texts_lines_rows_and_files(lake: lakes.Lake, write: Any, capsys: Any) -> None:
    at = ["--lake", str(lake.settings.lake), "put", "--customer", "acme", "--meta", "channel=phone", "--thread", "t1"]
    assert main([*at, "--text", "hello"]) == 0
    assert main([*at, str(write("a.pdf", "%PDF-1.4 one"))]) == 0
    assert main([*at, "--from", str(write("a.csv", "id,text,channel\n1,hi,\n2,ho,mail\n"))]) == 0
    lake.put_lines(["a line"], customer="acme", meta={"channel": "phone"}, thread="t1")
    lake.put_text("words", customer="acme", meta={"channel": "phone"}, thread="t1")
    found = [(event["thread"], event["meta"]["channel"]) for event in events(lake)]
    assert found == [("t1", "phone")] * 3 + [("t1", "mail")] + [("t1", "phone")] * 2
    assert main([*at[:-4], "--meta", "channel", "--text", "hello"]) == InvalidRequest.exit_code
    assert "key=value" in capsys.readouterr().err


def test_a_side_car_is_the_meta_of_its_file_and_no_object(lake: lakes.Lake, write: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        write(f"in/{name}", f"%PDF-1.4 {name}")
    write("in/a.pdf.json", json.dumps({"channel": "mail", "pages": 3, "thread": "t7"}))
    write("in/c.pdf.json", "{")
    landed = lake.put(tmp_path / "in", customer="acme", meta={"channel": "phone", "site": "x"}, collect=True)
    assert [result.status for result in landed] == ["stored", "stored", "failed"]
    assert "c.pdf.json" in str(landed[2].error) and "c.pdf.json" not in str(landed[2].source)
    first, second = events(lake)
    assert (first["meta"], first["thread"]) == ({"channel": "mail", "pages": 3, "site": "x"}, "t7")
    assert second["meta"] == {"channel": "phone", "site": "x"} and "thread" not in second
    write("in/rows.csv", "file,at,agent\na.pdf,2026-03-01,ann\n")
    lake.put_rows(tmp_path / "in" / "rows.csv", customer="globex")
    assert events(lake)[2]["meta"] == {"channel": "mail", "pages": 3, "agent": "ann"}


def test_an_import_that_was_ended_in_its_middle_and_done_again_has_every_row_once(
    lake: lakes.Lake, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.flow.imports.import_rows.BATCH_ROWS", 10)
    path = write("a.csv", "customer,text,n\n" + "".join(f"acme,message {n % 7},{n}\n" for n in range(45)))

    def end(rows: int, place: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.put_rows(path, progress=end)
    assert len(events(lake)) == 10
    assert lake.put_rows(path).stored == 45
    found = {read_line(json.dumps(event).encode()).content_hash for event in events(lake)}
    assert len(events(lake)) == 55 and len(found) == 45, "bronze counts the ten as duplicates"


def test_a_row_takes_no_part_of_a_lake_for_its_file(lake: lakes.Lake, write: Any, tmp_path: Path) -> None:
    raw = tmp_path / "lake" / "raw" / "documents" / "globex" / "2026-01-01"
    raw.mkdir(parents=True)
    (raw / "secret.txt").write_text("of another customer")
    rows = write("rows.csv", "id,customer,file\n1,acme,lake/raw/documents/globex/2026-01-01/secret.txt\n2,acme,n.txt\n")
    write("n.txt", "a note")
    imported = lake.put_rows(rows)
    assert (imported.stored, imported.rejected) == (1, 1)
    assert "is a part of the lake" in next(iter(imported.reasons))
    assert [event["event_id"] for event in events(lake)] == ["2"]


def test_a_dict_with_a_name_that_is_no_text_costs_only_itself(lake: lakes.Lake) -> None:
    imported = lake.put_rows([{"text": "a", 1: "x", None: 3}, {"text": "b"}], customer="acme")
    assert (imported.stored, imported.rejected) == (1, 1) and list(imported.reasons) == ["a name in it is no text"]


def test_rows_of_a_megabyte_go_out_a_few_at_a_time(lake: lakes.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.flow.imports.import_rows.BATCH_LETTERS", 1_000)
    held: list[int] = []
    rows = [{"text": "x" * 300, "deep": {"list": ["y" * 100]}} for _ in range(10)] + [{"text": "short"}] * 50
    imported = lake.put_rows(rows, customer="acme", progress=lambda count, _: held.append(count))
    assert imported.stored == 60 and held == [3, 3, 3, 51]


def test_parquet_with_long_rows_is_read_a_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"text": [f"{n} " + "x" * 10_000 for n in range(100)]}), tmp_path / "a.parquet")
    monkeypatch.setattr(row_source, "_BYTES_AT_ONCE", 50_000)
    table = pq.read_table(tmp_path / "a.parquet").combine_chunks()
    sizes: list[int] = []

    class Counted:
        """A batch that says how much of it is turned to Python at once."""

        def __init__(self, batch: Any) -> None:
            self.batch, self.nbytes, self.num_rows = batch, batch.nbytes, batch.num_rows

        def slice(self, start: int, length: int) -> Any:
            sizes.append(self.batch.slice(start, length).num_rows)
            return self.batch.slice(start, length)

    rows = list(row_source._rows_of_batches(map(Counted, table.to_batches())))
    assert len(rows) == 100 and max(sizes) == 4 and [row.line for row in rows] == list(range(1, 101))
    assert row_source._rows_at_once(pq.ParquetFile(tmp_path / "a.parquet").metadata) < 100


def test_a_second_row_of_an_id_is_told_as_known_or_as_a_conflict_with_its_line(
    lake: lakes.Lake, write: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.flow.imports.import_rows.BATCH_ROWS", 3)
    rows = ["1,acme,hello,x", "1,acme,hello,x", "1,acme,hello,y", "1,globex,hello,z", "2,acme,ho,x", "1,acme,bye,x"]
    path = write("a.csv", "\n".join(["id,customer,text,tag", *rows]) + "\n")
    told: list[dict[str, Any]] = []
    imported = lake.put_rows(path, on_reject=lambda reject, _: told.append(reject.to_dict()))
    assert (imported.rows, imported.stored, imported.known, imported.rejected) == (6, 3, 1, 2)
    first = {"source": str(path), "line": 2}
    assert [(each["line"], each["earlier"]) for each in told] == [(4, first), (7, first)]
    assert [(event["event_id"], event["customer"]) for event in events(lake)] == [
        ("1", "acme"), ("1", "globex"), ("2", "acme"),
    ]  # fmt: skip
    again = lake.put_rows(path, dry_run=True)
    assert (again.known, again.rejected) == (1, 2), "looking first shows the same"
    assert main(["--lake", str(lake.settings.lake), "put", "--from", str(path)]) == 6
    shown = capsys.readouterr().out
    assert "3 put, 1 the same as an earlier row, 2 rejected" in shown
    assert "which says something else (line 4 as line 2, line 7 as line 2)" in shown


def test_of_files_with_one_id_the_first_row_wins_whoever_is_stored_sooner(lake: lakes.Lake, write: Any) -> None:
    write("a.txt", "a long note\n" * 100_000)
    write("b.txt", "a short one")
    rows = "id,file\n7,a.txt\n7,b.txt\n7,a.txt\n,b.txt\n,b.txt\n"
    imported = lake.put_rows(write("rows.csv", rows), customer="acme", at="2026-03-01")
    assert (imported.stored, imported.known, imported.rejected) == (2, 2, 1)
    assert [event["pointer"]["size"] for event in events(lake)] == [1_200_000, 11]


def test_ids_of_an_import_are_kept_on_disk_and_not_in_memory() -> None:
    seen = SeenRows()
    for start in range(0, 300_000, 5_000):
        assert not any(seen.add([SeenRow(hash(f"id-{n}"), n, 0, n) for n in range(start, start + 5_000)]))
    again = [SeenRow(hash("id-7"), 7, 1, 1), SeenRow(hash("id-8"), 0, 1, 2), SeenRow(hash("new"), 0, 1, 3)]
    assert seen.add(again) == [Earlier(True, 0, 7), Earlier(False, 0, 8), None]
    seen.close()


def test_an_import_that_is_interrupted_says_how_far_it_came_and_how_it_goes_on(
    lake: lakes.Lake, write: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.flow.imports.import_rows.BATCH_ROWS", 10)
    path = write("a.csv", "customer,text,n\n" + "".join(f"acme,message,{n}\n" for n in range(45)))
    advance = RowBar.advance

    def interrupted(bar: RowBar, rows: int, place: float | None) -> None:
        advance(bar, rows, place)
        if bar.rows == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(RowBar, "advance", interrupted)
    assert main(["--lake", str(lake.settings.lake), "put", "--from", str(path)]) == 130
    shown = capsys.readouterr().err
    assert "20 rows taken by now. The same import again goes on" in shown and len(events(lake)) == 20
