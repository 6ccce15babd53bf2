"""What the catalog promises in any database: tables made once, properties compared and set, errors in our own words.

The file that imports these tests gives the fixture `settings`: of a lake that has no tables yet.
"""

import threading

import pytest
from sample_rows import NOON, data_file, rows

from headwater.domain import tables
from headwater.domain.progress import NEXT_SEQ, STAMP, Progress
from headwater.domain.ref import Ref
from headwater.domain.tables import EVENTS, MESSAGES
from headwater.errors import Conflict, NotFound
from headwater.settings import Settings
from headwater.storage.query import reader as reading
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.snapshots import to_moment
from headwater.storage.tables.time_travel import TablesAt


def test_creating_the_tables_twice_is_once(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    before = catalogs.load(catalog, "silver.transcripts").metadata.table_uuid
    catalogs.create_tables(catalogs.open_catalog(settings))
    assert catalogs.load(catalog, "transcripts").metadata.table_uuid == before
    names = {".".join(name) for space in ("bronze", "silver") for name in catalog.list_tables(space)}
    assert names == {table.name for table in tables.TABLES}


def test_a_table_keeps_the_contract_of_its_value(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    for table in tables.TABLES:
        made = catalogs.load(catalog, table.name)
        assert [column.name for column in made.schema().columns] == table.schema.names
        assert [column.required for column in made.schema().columns] == [not field.nullable for field in table.schema]
        assert [field.name for field in made.spec().fields] == [f"{table.day}_day"]
        ordered = [made.schema().find_column_name(field.source_id) for field in made.sort_order().fields]
        assert ordered == list(table.order)
        assert made.format_version == 2
        assert made.location().startswith(catalogs.warehouse_uri(settings))
        assert made.properties["write.metadata.metrics.column.seq"] == "full"
        assert read_progress(settings, table) == Progress()


def test_properties_change_only_where_the_expectation_holds(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    catalogs.set_properties_if(
        catalog,
        "bronze.events",
        {"headwater.next_seq": None},
        {"headwater.next_seq": "5"},
    )
    with pytest.raises(Conflict, match="expected=None found=5"):
        catalogs.set_properties_if(
            catalog,
            "bronze.events",
            {"headwater.next_seq": None},
            {"headwater.next_seq": "9"},
        )
    assert read_progress(settings, EVENTS).next_seq == 5


def test_many_writers_counting_up_lose_no_step(settings: Settings) -> None:
    catalogs.create_tables(catalogs.open_catalog(settings))

    def count_up() -> None:
        catalog = catalogs.open_catalog(settings)
        done = 0
        while done < 5:
            seq = catalogs.load(catalog, "events").properties.get(NEXT_SEQ)
            try:
                catalogs.set_properties_if(
                    catalog,
                    "events",
                    {NEXT_SEQ: seq},
                    {NEXT_SEQ: str(int(seq or 0) + 1)},
                )
                done += 1
            except Conflict:
                continue

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_progress(settings, EVENTS).next_seq == 20


def test_a_ref_names_the_same_snapshot_to_who_reads_rows_and_to_who_reads_progress(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    for number in range(1, 3):
        table = catalogs.load(catalog, "messages")
        file = data_file(table, rows(MESSAGES, [{"object_id": str(number)}]), NOON.date())
        stamp = {STAMP: Progress(next_seq=number).stamp()}
        with table.transaction() as change, change.update_snapshot(stamp).fast_append() as commit:
            commit.append_data_file(file)
    table = catalogs.load(catalog, "messages")
    first, second = table.metadata.snapshots
    table.manage_snapshots().create_tag(first.snapshot_id, "before-import").commit()
    times = [Ref(at=to_moment(snapshot.timestamp_ms)) for snapshot in (first, second)]
    reader = catalogs.open_reader(settings)
    for ref, count in ((Ref(name="before-import"), 1), (Ref(snapshot_id=first.snapshot_id), 1), (Ref(name="main"), 2),
                       (times[0], 1), (times[1], 2)):  # fmt: skip
        assert reading.scan(TablesAt(reader, ref, [MESSAGES.name]), "messages", ["seq"]).num_rows == count
        assert read_progress(settings, MESSAGES, ref) == Progress(next_seq=count)
    with pytest.raises(NotFound, match=r"It has: before-import, main\."):
        read_progress(settings, MESSAGES, Ref(name="after-import"))
    with pytest.raises(NotFound, match="has no snapshot 4711"):
        TablesAt(reader, Ref(snapshot_id=4711), [MESSAGES.name])


def test_a_missing_table_is_not_found(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    with pytest.raises(NotFound, match=r"silver\.nothing"):
        catalogs.load(catalog, "silver.nothing")


def test_progress_is_read_as_it_was_just_committed(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    with pytest.raises(NotFound, match="headwater init"):
        read_progress(settings, EVENTS)
    catalogs.create_tables(catalog)
    assert read_progress(settings, EVENTS) == Progress()
    catalogs.set_properties_if(catalog, EVENTS.name, {NEXT_SEQ: None}, {NEXT_SEQ: "7"})
    assert read_progress(settings, EVENTS).next_seq == 7
