"""A stranger's statement, taken apart by the engine's own parser: one query that only reads, over tables of the lake.

What is let through is what is known: kinds of nodes, kinds of tables and table functions that are named here, and
functions but for a few. A COPY or an INSERT inside a WITH is a SELECT by its type; in the tree it is what it is. This
is the front door, and answers in sentences. That nothing can be written behind it is the affair of `lake_files`.
"""

import difflib
import json
import re
import string
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.domain import tables
from headwater.errors import HeadwaterError, InvalidRequest, NotFound, sound_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# The schema in which every model's rows are to be seen.
ALL_MODELS: Final = "all_models"
_QUERIES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_SOURCES: Final = frozenset(
    {"BASE_TABLE", "CTE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"}
)
_EXPRESSIONS: Final = frozenset(
    {
        "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION",
        "LAMBDA", "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW",
    }
)  # fmt: skip
# What orders, limits and types are made of; nothing in them can act.
_PARTS: Final = re.compile(r"[A-Z]+(_PERCENT)?_MODIFIER|ORDER_DEFAULT|ASCENDING|DESCENDING|[A-Z]+_TYPE_INFO")
_TABLE_FUNCTIONS: Final = frozenset(
    {
        "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_schemas", "duckdb_tables", "duckdb_types",
        "duckdb_views", "generate_series", "json_each", "json_tree", "pragma_version", "range", "repeat", "repeat_row",
        "unnest",
    }
)  # fmt: skip
# These tell about the engine rather than the data, keep something between queries, or take SQL as text.
_REFUSED_FUNCTIONS: Final = re.compile(
    r"__internal_.*|current_setting|getenv|getvariable|write_log|nextval|currval|setval|json_serialize_plan"
)
_CATALOG_SCHEMAS: Final = frozenset({"information_schema", "pg_catalog"})
_CATALOG_TABLES: Final = frozenset(
    {"duckdb_columns", "duckdb_schemas", "duckdb_tables", "duckdb_types", "duckdb_views"}
)
_SETTINGS: Final = "pg_settings"  # tells about the engine, under whatever schema
_IN_REACH: Final = frozenset({"main", "temp"})  # where tables that are handed over are found as well
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_EXPLAIN: Final = re.compile(r"explain(\s+analyze)?(?=\W)", re.IGNORECASE)
_OPTIONS: Final = re.compile(r"\s*\(\s*[a-z]+(\s+[a-z]+)?(\s*,\s*[a-z]+(\s+[a-z]+)?)*\s*\)", re.IGNORECASE)
_ONLY_READS: Final = "A query only reads: SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, or EXPLAIN of one"
Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """`query` is what it asks, and `tree` how DuckDB parsed that; `text` is what to run, which may explain it."""

    text: str
    query: str
    tree: Node

    def tables(self, others: frozenset[str] = frozenset()) -> frozenset[str]:
        """Full names of the lake's tables that it reads; NotFound for a name that is neither theirs nor `others`'."""
        found: set[str] = set()
        for node, given in _scoped(self.tree):
            if _looks_around(node):
                found |= {table.name for table in tables.TABLES}
                continue
            if (path := _named(node)) is None:
                continue
            if path[-1] == _SETTINGS:
                raise _unknown(path)  # whatever a WITH calls so
            if _is_given(node, path, given) or (path[-1] in others and _IN_REACH.issuperset(path[:-1])):
                # The lake's own table of that name is there as well, in case the engine means that one.
                found |= {table.name for table in tables.TABLES if path == (table.short_name,)}
                continue
            found.add(_find(path))
        return frozenset(found)


def parse(connection: "DuckDBPyConnection", text: str) -> Statement:
    """Raises InvalidRequest where it is not one statement that only reads."""
    import duckdb

    if sound_text(text) != text:
        raise InvalidRequest("That is not SQL: it is no valid Unicode. Send it as UTF-8.")
    try:
        statements = connection.extract_statements(text)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise InvalidRequest(f"That is not SQL: {error}") from error
    if len(statements) != 1:
        raise InvalidRequest(f"One statement at a time, please; found {len(statements)}.")
    query = whole = statements[0].query.strip()
    match _kind(statements[0]):
        case "SELECT":
            pass
        case "EXPLAIN":
            query = _explained(connection, whole)
        case "MULTI":
            raise InvalidRequest("PIVOT must be told its values: PIVOT … ON column IN (value, …) USING …")
        case kind:
            raise InvalidRequest(f"{_ONLY_READS}, not {kind.replace('_', ' ')}.")
    tree = _tree(connection, query)
    for node in _nodes(tree):
        _check(node)
    return Statement(whole, query, tree)


def _kind(statement: Any) -> str:
    try:
        return str(statement.type.name)
    except ValueError:  # DuckDB has kinds that its Python client has no name for
        return "this"


def _explained(connection: "DuckDBPyConnection", whole: str) -> str:
    """The query behind EXPLAIN, which must be one by itself."""
    import duckdb

    start = next(offset for offset, kind in duckdb.tokenize(whole) if kind != duckdb.token_type.comment)
    if not (found := _EXPLAIN.match(whole, start)):
        raise InvalidRequest(f"{_ONLY_READS}; write EXPLAIN, or EXPLAIN ANALYZE, right before it.")
    options = _OPTIONS.match(whole, found.end())
    for query in (whole[at.end() :].strip() for at in (found, options) if at):
        with suppress(duckdb.Error):
            if [_kind(each) for each in connection.extract_statements(query)] == ["SELECT"]:
                return query
    raise InvalidRequest(f"{_ONLY_READS}.")


def _tree(connection: "DuckDBPyConnection", query: str) -> Node:
    from headwater.storage.tables.row_filter import literal

    # All of it is fetched: DuckDB refuses the next statement while one has rows left.
    ((answer,),) = connection.execute(f"SELECT json_serialize_sql({literal(query)})").fetchall()
    tree: Node = json.loads(answer)
    if tree["error"]:
        raise InvalidRequest(f"{_ONLY_READS}. DuckDB says: {tree['error_message']}")
    return tree


def _nodes(value: Any) -> Iterator[Node]:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending += each.values()
        elif isinstance(each, list):
            pending += each


def _scoped(tree: Node) -> Iterator[tuple[Node, frozenset[str]]]:
    """Each node with the names that a WITH gives at its place.

    An entry of a WITH sees those before it, and itself only in the part that recurs; there and before it, the same name
    is a table's. The engine has tables of its own that tell about it: what is excused too widely reaches those.
    """
    pending: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        each, given = pending.pop()
        if isinstance(each, list):
            pending += [(inner, given) for inner in each]
        elif isinstance(each, dict):
            yield each, given
            for entry in _ctes(each):
                pending.append((entry["value"], given))
                given |= {_lower(entry["key"])}
            recurring = {_lower(each["cte_name"])} if each.get("type") == "RECURSIVE_CTE_NODE" else set()
            pending += [
                (value, given | recurring if name == "right" else given)
                for name, value in each.items()
                if name != "cte_map"
            ]


def _check(node: Node) -> None:
    kind = node.get("type")
    if "class" in node:
        if node["class"] not in _EXPRESSIONS:
            raise InvalidRequest(f"{_ONLY_READS}, without {node['class'].lower().replace('_', ' ')}.")
        if node["class"] == "FUNCTION" and _REFUSED_FUNCTIONS.fullmatch(node["function_name"].lower()):
            raise InvalidRequest(f"{node['function_name']} does not tell about the lake's tables; ask those.")
    elif isinstance(kind, str) and not (kind in _QUERIES or kind in _SOURCES or _PARTS.fullmatch(kind)):
        what = kind.removesuffix("_QUERY_NODE").removesuffix("_NODE").replace("_", " ")
        raise InvalidRequest(f"{_ONLY_READS}, without {what}.")
    if kind == "TABLE_FUNCTION" and (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS:
        raise InvalidRequest(f"{name} reads something else than the lake's tables. These are: {_all_tables()}.")


def _ctes(node: Node) -> list[Node]:
    found: list[Node] = (node.get("cte_map") or {}).get("map") or []
    return found


def _is_given(node: Node, path: tuple[str, ...], given: frozenset[str]) -> bool:
    """By a WITH, which gives plain names, and `recurring.name` for all rows of a recursion; SHOW looks past it."""
    return node["type"] == "BASE_TABLE" and path[-1] in given and path[:-1] in {(), ("recurring",)}


def _looks_around(node: Node) -> bool:
    """Whether it asks which tables there are; then all of them must be there."""
    match node.get("type"):
        case "SHOW_REF":
            return str(node["show_type"]).startswith("SHOW_")
        case "TABLE_FUNCTION":
            return str(node["function"]["function_name"]).lower() in _CATALOG_TABLES
        case "BASE_TABLE":
            schema, name = _lower(node["schema_name"]), _lower(node["table_name"])
            if name == _SETTINGS:
                return False  # to be refused as no table of the lake's
            return schema in _CATALOG_SCHEMAS or (not schema and name in _CATALOG_TABLES)
    return False


def _named(node: Node) -> tuple[str, ...] | None:
    if node.get("type") == "BASE_TABLE" or (node.get("type") == "SHOW_REF" and node["table_name"]):
        path = (node["catalog_name"], node["schema_name"], str(node["table_name"]).strip('"'))
        return tuple(_lower(part) for part in path if part)
    return None


def _lower(name: str) -> str:
    """As the engine does it, which knows the letters of ASCII only: a Kelvin sign is no k to it."""
    return name.translate(_LOWER)


def _find(path: tuple[str, ...]) -> str:
    for table in tables.TABLES:
        schema = table.name.partition(".")[0]
        if path[-1] == table.short_name and path[-2:-1] in {(), ("main",), (schema,), (ALL_MODELS,)}:
            return table.name
    raise _unknown(path)


def _unknown(path: tuple[str, ...]) -> HeadwaterError:
    if set(path[-1]) & set("/\\.*?:"):
        return InvalidRequest(
            f"A query reads the lake's tables; files are out of its reach. These are: {_all_tables()}."
        )
    name = ".".join(path)
    known = [spelling for table in tables.TABLES for spelling in (table.name, table.short_name)]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return NotFound(f"There is no table {name}.{hint} All of them: {_all_tables()}")


def _all_tables() -> str:
    return ", ".join(table.name for table in tables.TABLES)
