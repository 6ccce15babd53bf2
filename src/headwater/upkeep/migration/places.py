"""Where a lake's parts are: a place is what an address names, without who opens it. Pure; opens nothing.

Two addresses are one place where the same bytes or rows are behind them. A bucket belongs to a server, so the server is
part of an S3 place; a user, a password or a certificate is part of none.
"""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from headwater.errors import InvalidRequest
from headwater.settings import FILE_NAME, Settings, masked
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import is_s3, one_spelling
from headwater.storage.log.kafka_conf import KafkaPlace, is_kafka

RAW, LOG, CATALOG, WAREHOUSE = "raw.uri", "log.uri", "catalog.uri", "catalog.warehouse"
LEDGER, INDEX, MEMO, CHECKPOINTS = "ledger.uri", "index.uri", "memo.uri", "checkpoints.uri"
PLACES: Final = (RAW, LOG, CATALOG, WAREHOUSE, LEDGER, INDEX, MEMO, CHECKPOINTS)
_ENDPOINT, _REGION = "s3.endpoint", "s3.region"
_POSTGRES_PORT: Final = "5432"
# Of an address's query only these say where; the others say how it is reached.
_WHERE: Final = ("host", "hostaddr", "port", "service", "options")
# AWS has one space of bucket names for all its regions but these.
_APART: Final = ("cn-", "us-gov-", "us-iso")


def moving(before: Settings, after: Settings) -> list[str]:
    """The settings whose parts would be elsewhere."""
    return [name for name in PLACES if place(before, name) != place(after, name)]


def place(settings: Settings, name: str) -> str:
    """One spelling for one place; holds no password, so that it may be noted."""
    uri = settings.text(name)
    if is_s3(uri):
        return f"{one_spelling(uri)} at {_server(settings)}"
    if is_kafka(uri):
        return _topic(uri, settings)
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "sqlite":
        return f"sqlite:///{Path(rest.partition('?')[0].removeprefix('/')).resolve()}"
    if separator and scheme != "file":
        return _database(urlsplit(uri))
    return str(Path(local_path(uri)).resolve())


def shown(uri: str) -> str:
    """Without whoever's name and password, wherever in the address they stand."""
    return masked(re.sub("//[^/?#]*@", "//", uri))


def shown_place(settings: Settings, name: str) -> str:
    uri, endpoint = settings.text(name), settings.text(_ENDPOINT)
    return f"{shown(uri)} at {shown(endpoint)}" if is_s3(uri) and endpoint else shown(uri)


def check_not_overridden(settings: Settings) -> None:
    """An override counts on both sides, so it would hide a move; but what is written for later openers is FILE's."""
    for name in (*PLACES, _ENDPOINT, _REGION):
        origin = settings.chosen[name].origin
        if origin == "option" or origin.startswith("environment"):
            by = f"--set {name}" if origin == "option" else f"the {origin}"
            raise InvalidRequest(
                f"{name} is overridden by {by}, and a migration goes by files alone. "
                f"If the lake is there, write it into {FILE_NAME}; take the override away, and migrate again."
            )


def _server(settings: Settings) -> str:
    endpoint, region = settings.text(_ENDPOINT), settings.text(_REGION)
    host = urlsplit(endpoint).netloc.rpartition("@")[2].lower() or endpoint
    if host and not host.endswith(".amazonaws.com"):
        return host
    return next((f"AWS {apart}" for apart in _APART if region.startswith(apart)), "AWS")


def _topic(uri: str, settings: Settings) -> str:
    """[kafka.conf] has the last word on the servers, as it has when they are asked."""
    named = KafkaPlace.parse(uri)
    servers = settings.section("kafka.conf").get("bootstrap.servers", named.servers)
    return f"kafka://{','.join(sorted(servers.lower().split(',')))}/{named.topic}"


def _database(uri: SplitResult) -> str:
    if uri.scheme not in {"postgres", "postgresql"}:
        return f"{uri.scheme}://{uri.netloc.rpartition('@')[2].lower()}{uri.path.rstrip('/')}"
    query: dict[str, Any] = parse_qs(uri.query)
    user, _, host = uri.netloc.rpartition("@")
    if host and ":" not in host.rpartition("]")[2]:
        host += f":{_POSTGRES_PORT}"
    # A database that is not named is the one that is called as its user.
    name = uri.path.strip("/") or query.get("dbname", [""])[0] or user.partition(":")[0]
    where = "&".join(f"{key}={query[key][0]}" for key in _WHERE if key in query)
    return f"postgresql://{host.lower()}/{name}" + (f"?{where}" if where else "")
