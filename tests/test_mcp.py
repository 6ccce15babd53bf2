"""`headwater mcp`: a client of the SDK lists and calls every tool, on standard input and output and over HTTP; every
answer names its sources; a query that would run for minutes is cut off; who sees one customer hears of no other."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from calling import answer
from lakes import CALL, CALL_CHUNK, SCREEN, small_lake
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from served import address_of, token_of

import headwater
from headwater.domain.access import READER

Asked = Callable[[Client], Awaitable[Any]]
TOOLS = {"search", "trace", "object_text", "list_objects", "list_customers", "query_tables"}
CALLS: dict[str, dict[str, Any]] = {
    "search": {"query": "refund"},
    "trace": {"id": CALL_CHUNK},
    "object_text": {"id": CALL},
    "list_objects": {"customer": "acme"},
    "list_customers": {},
    "query_tables": {"query": "select object_id, customer from events"},
}
ENDLESS = "select count(*) from range(10000000) a, range(10000000) b"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("small") / "lake")


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    with address_of(directory) as address:
        yield address


def by_stdio(directory: Path, ask: Asked, *options: str) -> Any:
    arguments = ["-m", "headwater", "--lake", str(directory), "mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def asked() -> Any:
        async with Client(server) as client:
            return await ask(client)

    return asyncio.run(asked())


def by_http(address: str, token: str, ask: Asked, **how: Any) -> Any:
    async def asked() -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{address}/mcp", http_client=http), **how) as client,
        ):
            return await ask(client)

    return asyncio.run(asked())


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def everything(client: Client) -> dict[str, Any]:
    answers = {}
    for name in sorted(await names(client)):
        result = await client.call_tool(name, CALLS[name])
        assert not result.is_error, result.content
        answers[name] = result.structured_content
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    return answers


def check(answers: dict[str, Any], link: str) -> None:
    assert set(answers) == TOOLS
    for name, found in answers.items():
        assert found["sources"], name
        assert all(source["link"].startswith(link) for source in found["sources"]), name
    (source,) = (answers["search"]["hits"][0]["source"],)
    assert source == {"id": CALL, "place": "1:05.0–1:11.5", "link": f"{link}/object/{CALL}?t=65000"}
    assert "refund never" in answers["object_text"]["text"]
    assert answers["trace"]["object"]["id"] == CALL
    assert {row["customer"] for row in answers["query_tables"]["rows"]} == {"acme", "globex"}
    assert answers["query_tables"]["cut_off"] is None


def test_a_client_lists_and_calls_every_tool_on_standard_input_and_output(directory: Path) -> None:
    check(by_stdio(directory, everything), "http://127.0.0.1:8472")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_lists_and_calls_every_tool_over_http(directory: Path, address: str, mode: str) -> None:
    check(by_http(address, token_of(directory, READER), everything, mode=mode), address)


def test_every_tool_says_that_it_only_reads(directory: Path, address: str) -> None:
    async def ask(client: Client) -> Any:
        return (await client.list_tools()).tools

    for tool in by_http(address, token_of(directory, READER), ask):
        assert tool.annotations is not None and tool.annotations.read_only_hint
        assert tool.description and "ctx" not in json.dumps(tool.input_schema)


def test_a_query_that_would_run_for_minutes_is_cut_off(
    directory: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.web.agent_tools.QUERY_SECONDS", 1.0)

    async def ask(client: Client) -> Any:
        return await client.call_tool("query_tables", {"query": ENDLESS})

    result = by_http(address, token_of(directory, READER), ask)
    assert result.is_error
    assert "took longer than 1 s and was stopped" in result.content[0].text


def test_more_rows_than_are_wanted_are_cut_off_with_a_word(directory: Path, address: str) -> None:
    async def ask(client: Client) -> Any:
        many = await client.call_tool("query_tables", {"query": "select * from range(100000)", "limit": 7})
        wide = await client.call_tool(
            "query_tables", {"query": "select repeat('x', 5000) from range(900)", "limit": 1000}
        )
        return many.structured_content, wide.structured_content

    many, wide = by_http(address, token_of(directory, READER), ask)
    assert len(many["rows"]) == 7
    assert 1 < len(wide["rows"]) < 100
    assert all("Only the first" in found["cut_off"] for found in (many, wide))


def test_what_cannot_be_answered_says_why(directory: Path, address: str) -> None:
    wrong = {
        "search": {"query": "refund", "since": "yesterday"},
        "trace": {"id": "nobody"},
        "object_text": {"id": CALL, "model": "nobody"},
        "list_objects": {"limit": 1_000},
        "query_tables": {"query": "drop table events"},
    }

    async def ask(client: Client) -> Any:
        return {name: await client.call_tool(name, given) for name, given in wrong.items()}

    for name, result in by_http(address, token_of(directory, READER), ask).items():
        assert result.is_error, name
        assert len(result.content[0].text) > len(f"Error executing tool {name}"), name


def test_a_long_text_comes_in_pieces_that_make_the_whole(directory: Path, address: str) -> None:
    async def ask(client: Client) -> tuple[str, str]:
        whole = (await client.call_tool("object_text", {"id": CALL})).structured_content
        pieces, offset = "", 0
        while offset is not None:
            found = (
                await client.call_tool("object_text", {"id": CALL, "offset": offset, "limit": 7})
            ).structured_content
            pieces, offset = pieces + found["text"], found["next_offset"]  # type: ignore[index]
        return pieces, whole["text"]  # type: ignore[index]

    pieces, whole = by_http(address, token_of(directory, READER), ask)
    assert pieces == whole


async def all_but_sql(client: Client) -> dict[str, Any]:
    assert await names(client) == TOOLS - {"query_tables"}
    tried = {name: await client.call_tool(name, given) for name, given in CALLS.items() if name != "query_tables"}
    tried["another"] = await client.call_tool("object_text", {"id": SCREEN})
    tried["theirs"] = await client.call_tool("search", {"query": "gateway", "customer": "globex"})
    return tried


def test_who_sees_one_customer_hears_of_no_other(directory: Path, address: str) -> None:
    for tried in (
        by_http(address, token_of(directory, READER, "acme"), all_but_sql),
        by_stdio(directory, all_but_sql, "--customer", "acme"),
    ):
        assert tried.pop("another").is_error
        assert tried.pop("theirs").is_error
        for name, result in tried.items():
            assert not result.is_error, (name, result.content)
            assert "globex" not in json.dumps(result.structured_content)


def test_the_guard_stands_before_it(directory: Path, address: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    kinds = {"Accept": "application/json, text/event-stream"}
    assert httpx2.post(f"{address}/mcp", json=call, headers=kinds).status_code == 401
    with_token = {**kinds, "Authorization": f"Bearer {token_of(directory, READER)}"}
    assert httpx2.post(f"{address}/mcp", json=call, headers={**with_token, "Host": "evil.example"}).status_code == 403
    by_cookie = {**kinds, "Cookie": f"headwater_token={token_of(directory, READER)}", "Origin": "http://evil.example"}
    assert httpx2.post(f"{address}/mcp", json=call, headers=by_cookie).status_code == 403
    assert httpx2.get(f"{address}/mcp", headers=with_token).status_code == 405
    with headwater.open(directory) as lake:
        noted = [row for row in lake.access.audit() if "/mcp" in row["action"]]
    assert {row["status"] for row in noted} <= {401, 403}


def test_a_lake_that_is_not_there_is_told_before_anybody_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = answer(capsys, "--lake", tmp_path / "nobody", "mcp")
    assert (said.code, said.out) == (3, "")
