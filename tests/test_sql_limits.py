"""A query has so much time and so much memory, whatever it asks for; what is stopped says so, and costs nobody else."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from calling import answer
from lakes import small_lake
from waiting import wait_until

from headwater import lake as lakes
from headwater.errors import InvalidRequest
from headwater.lake import Lake

FOREVER = "select sleep_ms(600000)"
MEMORY_MB = 256


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("limits") / "lake")


@pytest.fixture(scope="module")
def lake(directory: Path) -> Iterator[Lake]:
    with lakes.open(directory, {"sql.memory_mb": MEMORY_MB, "sql.timeout_seconds": 60}) as opened:
        yield opened


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(answer, capsys)


def children(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if "headwater.storage.query.child" in " ".join(child.cmdline())]


# Some of these the engine cannot interrupt once they have begun.
@pytest.mark.parametrize(
    "query",
    [FOREVER, "select count(*) from range(1000000000000)",
     "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
     "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t"],
)  # fmt: skip
def test_a_query_that_takes_too_long_is_stopped_and_the_next_one_is_answered(lake: Lake, query: str) -> None:
    lake.sql("select 1")
    begun = time.monotonic()
    with pytest.raises(InvalidRequest, match=r"longer than 0\.5 s .* --timeout 1, .* sql\.timeout_seconds"):
        lake.sql(query, timeout_seconds=0.5)
    assert time.monotonic() - begun < 10
    assert lake.sql("select 1 as one")["rows"] == [{"one": 1}]


def test_the_command_line_has_the_limit_where_one_looks_for_it(call: Any, directory: Path) -> None:
    stopped = call("sql", FOREVER, "--timeout", "0.3", "--lake", directory)
    assert stopped.code == 2 and "longer than 0.3 s" in stopped.err and not stopped.out
    stopped = call("sql", FOREVER, "--set", "sql.timeout_seconds=0.2", "--lake", directory)
    assert stopped.code == 2 and "longer than 0.2 s" in stopped.err
    assert "--timeout" in call("sql", "--help").out


# The engine counts only some of this as memory; the rest it takes from the machine as it likes.
@pytest.mark.parametrize(
    "query",
    ["select range(2000000000)", "select length(repeat('x', 4000000000))", "select list(i) from range(1000000000) t(i)",
     "select i, repeat('y', 1000) as y from range(10000000) t(i) order by y, i", "select list_sort(range(500000000))",
     "select repeat('x', 1000) as x from range(100000000)", "select a.i from range(100000) a(i), range(100000) b(i)"],
)  # fmt: skip
def test_a_query_that_takes_too_much_memory_is_stopped_and_the_next_one_is_answered(lake: Lake, query: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"sql\.memory_mb, {MEMORY_MB} MB, .* --set sql\.memory_mb=512"):
        lake.sql(query)
    assert lake.sql("select 1 as one")["rows"] == [{"one": 1}]


def test_the_memory_that_is_taken_is_no_more_than_that(directory: Path) -> None:
    code = """
import resource, sys, headwater
with headwater.open(sys.argv[1], {"sql.memory_mb": int(sys.argv[2])}) as lake:
    for query in sys.argv[3:]:
        try:
            lake.sql(query)
        except headwater.errors.InvalidRequest:
            pass
# Not getrusage of itself: what its parent took before it became this program counts there too.
own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(own) // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
    queries = ["select range(2000000000)", "select list(i) from range(1000000000) t(i)",
               "select i, i * 2 as j, 'some text' as t from range(100000000) t(i)"]  # fmt: skip
    line = [sys.executable, "-c", code, str(directory), str(MEMORY_MB), *queries]
    told = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()
    own, child = map(int, told)
    loaded = 250  # the engine, Arrow and PyIceberg
    assert own < loaded + MEMORY_MB and child < loaded + MEMORY_MB


def test_a_crash_of_the_engine_costs_one_sentence(lake: Lake) -> None:
    lake.sql("select 1")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lake.sql, FOREVER)
        (child,) = wait_until(lambda: children(psutil.Process()))
        wait_until(lambda: child.num_threads() > 2 or asked.done())
        child.send_signal(signal.SIGSEGV)
        with pytest.raises(InvalidRequest, match="SIGSEGV"):
            asked.result(60)
    assert lake.sql("select 1 as one")["rows"] == [{"one": 1}]


def test_several_may_ask_at_once(lake: Lake) -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda number: lake.sql(f"select {number} as n, sleep_ms(50)")["rows"][0]["n"], range(9)))
    assert found == list(range(9))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_query_ends_with_who_asked_it(directory: Path, sent: signal.Signals) -> None:
    line = [sys.executable, "-m", "headwater", "--lake", str(directory), "sql", FOREVER]
    asking = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    (child,) = wait_until(lambda: children(psutil.Process(asking.pid)))
    wait_until(lambda: child.num_threads() > 2)
    os.killpg(asking.pid, sent)
    asking.communicate(timeout=60)
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_closed_lake_leaves_no_process(directory: Path) -> None:
    before = children(psutil.Process())
    with lakes.open(directory) as opened:
        opened.sql("select 1")
        assert len(children(psutil.Process())) == len(before) + 1
    assert children(psutil.Process()) == before


def test_columns_of_one_name_both_survive(call: Any, lake: Lake, directory: Path) -> None:
    query = "select a.seq, b.seq, a.customer as who, 7 as seq, 8 as seq_1 from events a join events b using (event_id)"
    told = {"seq": 0, "seq_2": 0, "who": "acme", "seq_3": 7, "seq_1": 8}
    python = lake.sql(f"{query} order by 1 limit 1")
    assert python == {"columns": list(told), "rows": [told]}
    assert call("sql", f"{query} order by 1 limit 1", "--lake", directory, "--json").json == python
    text = call("sql", f"{query} order by 1 limit 1", "--lake", directory).out
    assert [line.split() for line in text.splitlines()] == [list(told), [str(value) for value in told.values()]]
    assert json.loads(json.dumps(python)) == python


@pytest.mark.parametrize(
    "value",
    ["date 'infinity'", "date '294247-01-01'", "[timestamp '290309-12-22 (BC) 00:00:00']", "timestamptz '-infinity'"],
)
def test_a_time_beyond_the_calendar_is_told_with_the_way_to_see_it(lake: Lake, value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"years 1 to 9999.*::varchar"):
        lake.sql(f"select {value} as at")
    assert lake.sql(f"select ({value})::varchar as at")["rows"][0]["at"]


def test_a_query_that_is_no_text_is_refused_in_a_sentence(lake: Lake) -> None:
    """A shell hands on whatever bytes it was given."""
    with pytest.raises(InvalidRequest, match="UTF-8"):
        lake.sql("select '\udcff'")


def test_a_lake_that_is_forgotten_takes_its_query_process_along(directory: Path) -> None:
    before = {child.pid for child in children(psutil.Process())}
    forgotten = lakes.open(directory)
    forgotten.sql("select 1")
    (child,) = (child for child in children(psutil.Process()) if child.pid not in before)
    del forgotten
    gc.collect()
    assert not child.is_running()
