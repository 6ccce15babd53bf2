"""What lists objects by what is known of them and what search filters by agree on every fact."""

import duckdb
import pytest

from headwater.domain.meta import WantedFact, facts_of, meta_to_json
from headwater.errors import InvalidRequest
from headwater.upkeep.objects import Selection

METAS = [
    {"channel": "phone"},
    {"channel": ["phone", "mail"]},
    {"account": {"tier": "gold", "ids": [1, 2.5, True]}},
    {"items": [{"sku": "a-1"}, {"sku": ["b", "c"]}]},
    {"orders": [{"lines": [{"sku": "x"}]}, {"lines": {"sku": "y"}}]},
    {"a.b": "dotted", "a": {"b": "inner"}},
    {"a..b": "1"},
    {"sp ace": {"a*b": "star", "[0]": "nought", "o'neil": "it's"}},
    {"nothing": None, "empty": "", "none": []},
    {"a": {"b": {"c": {"d": {"e": {"f": "deep"}}}}}},
]  # fmt: skip


@pytest.fixture(scope="module")
def metas() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE events (n INTEGER, meta JSON)")
    connection.executemany("INSERT INTO events VALUES (?, ?)", [[n, meta_to_json(one)] for n, one in enumerate(METAS)])
    connection.execute("INSERT INTO events VALUES (-1, NULL)")
    return connection


def found(metas: duckdb.DuckDBPyConnection, key: str, value: str) -> set[int]:
    [condition] = Selection(where=(WantedFact(key, value),)).conditions()
    return {n for (n,) in metas.execute(f"SELECT n FROM events WHERE {condition}").fetchall()}


def test_every_fact_of_a_meta_finds_it_and_those_alike_alone(metas: duckdb.DuckDBPyConnection) -> None:
    facts = {fact for one in METAS for fact in facts_of(meta_to_json(one))}
    assert len(facts) > 15
    for fact in facts:
        key, _, value = fact.partition("=")
        expected = {n for n, one in enumerate(METAS) if fact in facts_of(meta_to_json(one))}
        assert found(metas, key, value) == expected, fact


@pytest.mark.parametrize(
    "key", ["a..b..c", ".", "a.", ".a", "items[0].sku", "***", "$", "a.b.c.d.e.f.g.h.i.j.k", "nowhere"]
)
def test_a_key_that_nothing_has_finds_nothing_however_it_is_written(metas: duckdb.DuckDBPyConnection, key: str) -> None:
    assert found(metas, key, "1") == set()


@pytest.mark.parametrize("key", ['a"b', "a\\b", "*", "a.*", "**.b"])
def test_a_key_that_says_something_else_to_sql_is_refused_with_a_way_out(key: str) -> None:
    with pytest.raises(InvalidRequest, match="Ask in SQL"):
        Selection(where=(WantedFact(key, "1"),)).conditions()
