"""An S3 that refuses some objects: those are set aside, each for its reason, and everybody else is served; one that
refuses everybody is the store's trouble, and nothing is set aside."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
import rounds
from lakes import parts_of
from own_parts import Forwarder, forwarding

from headwater import lake as lakes
from headwater.domain.event import Event
from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, Unavailable
from headwater.flow.derive.fetch import Fetcher
from headwater.flow.derive.source import Limits
from headwater.lake import Lake
from headwater.settings import FILE_NAME, Settings, resolve
from headwater.storage.raw.store import open_raw_store
from headwater.storage.spark.session import start_spark, stop_spark

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
S3 = ("endpoint", "region", "access_key", "secret_key")


class Refusing(Forwarder):
    """Refuses by what stands in the name, as AWS does: HEAD has no body, and archived objects still have a head."""

    refusals: ClassVar[dict[str, tuple[int, str]]] = {}

    def answer(self) -> None:
        for word, (status, code) in self.refusals.items():
            if word in self.path and not (code == "InvalidObjectState" and self.command == "HEAD"):
                self.body()
                body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
                self.reply(status, {"Content-Length": str(len(body)), "Connection": "close"}, body)
                return
        super().answer()


class Unlisted(Refusing):
    """Of a name that is not there it says what it says of all that it does not let us read, as AWS does where one may
    not list."""

    refusals: ClassVar[dict[str, tuple[int, str]]] = {}

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if status == 404:
            body = b"<Error><Code>AccessDenied</Code></Error>" if body else b""
            status, headers = 403, {"Content-Length": str(len(body)), "Connection": "close"}
        super().reply(status, headers, body)

    def answer(self) -> None:
        if "list-type" in self.path:
            self.refusals = {**self.refusals, "list-type": (403, "AccessDenied")}
        super().answer()


@pytest.fixture
def gate(s3_settings: Settings) -> Iterator[str]:
    Refusing.refusals = {}
    with forwarding(s3_settings.text("s3.endpoint").removeprefix("http://"), Refusing) as address:
        yield address


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of this file alone: others start Spark with settings of their own."""
    session = start_spark(resolve(tmp_path_factory.mktemp("engine"), {}, {}, {}))
    yield
    stop_spark(session)


@pytest.fixture
def lake(engine: None, s3_settings: Settings, bucket: str, gate: str, tmp_path: Path) -> Iterator[Lake]:
    directory = tmp_path / "refused"
    rounds.use_cheap_models(directory)
    keys = {name: gate if name == "endpoint" else s3_settings.text(f"s3.{name}") for name in S3}
    told = "".join(f'{name} = "{value}"\n' for name, value in keys.items())
    with (directory / FILE_NAME).open("a") as file:
        file.write(f'[raw]\nuri = "s3://{bucket}/raw"\n[s3]\n{told}')
    with lakes.init(directory) as made:
        yield made


def put(lake: Lake, file: Path, name: str, customer: str = "acme") -> Event:
    (landed,) = lake.put(file, customer=customer, id=name, at=AT)
    assert landed.event is not None, landed.error
    return landed.event


def reasons(lake: Lake) -> dict[str, str]:
    return {row["event_id"]: row["reason"] for row in lake.quarantine()["rows"]}


def test_what_a_store_refuses_of_some_is_their_own_fault_and_what_it_refuses_of_all_is_its_own(
    lake: Lake, tmp_path: Path
) -> None:
    folder = rounds.make_media(tmp_path, 1)
    first = put(lake, folder / "call-1-0.wav", "good")
    for name in ("denied", "archived", "lost-key", "unlisted"):
        put(lake, folder / "call-1-1.wav", name, "acme" if name == "denied" else "globex")
    put(lake, folder / "call-1-1.wav", "copy")
    long = replace(first.pointer, path=f"audio/acme/{'n' * 300}.wav")
    parts_of(lake).log.publish([replace(first, event_id="long", pointer=long)])

    Refusing.refusals = {"/raw/": (403, "AccessDenied")}  # a key that was rotated
    with pytest.raises(Unavailable, match="AccessDenied"):
        lake.run()
    assert reasons(lake) == {}
    Refusing.refusals = {"/raw/": (400, "ExpiredToken")}
    with pytest.raises(Unavailable, match=r"s3\.secret_key"):
        lake.run()
    assert reasons(lake) == {}

    Refusing.refusals = {
        "denied": (403, "AccessDenied"),
        "archived": (403, "InvalidObjectState"),
        "lost-key": (400, "KMS.DisabledException"),
        "unlisted": (403, "AccessDenied"),
    }
    lake.run()
    refused = dict.fromkeys(("denied", "archived", "lost-key", "unlisted"), "UNFETCHABLE")
    assert reasons(lake) == {**refused, "long": "BAD_EVENT"}
    details = {row["event_id"]: row["detail"] for row in lake.quarantine()["rows"]}
    assert "restored" in details["archived"] and "KMS.DisabledException" in details["lost-key"]
    assert set(lake.table("transcripts").to_arrow()["event_id"].to_pylist()) == {"good", "copy"}

    again = lake.retry()
    assert (again.tried, again.recovered) == (4, 0)
    Refusing.refusals = {}
    assert lake.retry().recovered == 4
    assert len(lake.table("transcripts").to_arrow()) == 6


def fetcher_at(gate: str, settings: Settings, bucket: str, tmp_path: Path) -> Fetcher:
    told = {f"s3.{name}": settings[f"s3.{name}"] for name in (*S3, "path_style")}
    values = {**told, "s3.endpoint": gate, "raw.uri": f"s3://{bucket}/raw"}
    return Fetcher({"lake": str(tmp_path), "settings": values}, Limits.from_settings({"limits.object_mb": 1}))


@pytest.mark.parametrize(
    "refusal", [(500, "InternalError"), (400, "Strange"), (403, "AccessDenied"), (503, "SlowDown")], ids=str
)
def test_one_object_of_many_may_be_broken_in_any_way(
    gate: str,
    s3_settings: Settings,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: tuple[int, str],
) -> None:
    monkeypatch.setattr("headwater.storage.io.s3.RETRY_SECONDS", 0.2)
    store = open_raw_store(f"s3://{bucket}/raw", s3_settings)
    broken = store.put_bytes("audio/acme/2026-03-01/broken.wav", b"abc", "audio/wav").to_dict()
    fetcher = fetcher_at(gate, s3_settings, bucket, tmp_path)
    Refusing.refusals = {"broken": refusal}
    # There is nobody else to ask for, but the store answers: it knows of a name that it has no such object.
    with pytest.raises(DataFault, match="UNFETCHABLE"):
        fetcher.verify(broken)
    other = store.put_bytes("images/globex/2026-03-01/b.png", b"abc", "image/png").to_dict()
    with pytest.raises(DataFault, match="UNFETCHABLE"):
        fetcher.verify(broken)
    fetcher.verify(other)
    Refusing.refusals = {"/raw": refusal}
    with pytest.raises(Unavailable):
        fetcher.verify(broken, [other["path"]])


def test_customers_that_are_denied_are_to_blame_for_themselves_also_where_nobody_else_is_in_sight(
    gate: str, s3_settings: Settings, bucket: str, tmp_path: Path
) -> None:
    """In fresh workers, which know of nobody that could be read."""
    store = open_raw_store(f"s3://{bucket}/raw", s3_settings)
    denied = [store.put_bytes(f"audio/acme/2026-03-01/{n:02}.wav", b"abc", "audio/wav") for n in range(20)]
    paths = [pointer.path for pointer in denied]

    def is_blamed() -> bool:
        try:
            fetcher_at(gate, s3_settings, bucket, tmp_path).verify(denied[0].to_dict(), paths)
        except DataFault as fault:
            assert fault.reason == "UNFETCHABLE"
            return True
        except Unavailable:
            return False
        raise AssertionError("it was read")

    Refusing.refusals = {"/raw/audio/acme": (403, "AccessDenied")}
    assert is_blamed(), "there is nobody else"
    other = store.put_bytes("audio/globex/2026-03-01/b.wav", b"abc", "audio/wav")
    assert is_blamed()
    paths.append(other.path)
    Refusing.refusals = {f"/raw/audio/{customer}": (403, "AccessDenied") for customer in ("acme", "globex")}
    assert is_blamed(), "both are denied, and there is nobody else"
    Refusing.refusals = {"/raw/audio": (403, "AccessDenied")}
    assert is_blamed()
    Refusing.refusals = {"/raw/": (403, "AccessDenied")}
    assert not is_blamed(), "a key that was rotated"
    Refusing.refusals = {"/raw/audio": (500, "InternalError")}
    assert not is_blamed(), "it gives nothing, and says nothing of why"


def test_a_store_that_lets_us_read_and_write_but_not_list_is_known_by_an_object_of_our_own(
    gate: str, s3_settings: Settings, bucket: str, tmp_path: Path
) -> None:
    store = open_raw_store(f"s3://{bucket}/raw", s3_settings)
    denied = store.put_bytes("audio/acme/2026-03-01/a.wav", b"abc", "audio/wav").to_dict()
    Unlisted.refusals = {"/raw/audio": (403, "AccessDenied")}
    with forwarding(s3_settings.text("s3.endpoint").removeprefix("http://"), Unlisted) as address:
        with pytest.raises(DataFault, match="UNFETCHABLE"):
            fetcher_at(address, s3_settings, bucket, tmp_path).verify(denied)
        Unlisted.refusals = {"/raw/": (403, "AccessDenied")}
        with pytest.raises(Unavailable):
            fetcher_at(address, s3_settings, bucket, tmp_path).verify(denied)
    assert [found.path for found in store.list()] == [denied["path"]], "nobody sees it"


def test_a_run_ends_where_all_objects_are_denied_and_retry_brings_them_in_once_they_are_not(
    lake: Lake, tmp_path: Path
) -> None:
    folder = rounds.make_media(tmp_path, 1)
    for name, customer in (("one", "acme"), ("two", "globex")):
        put(lake, folder / "call-1-0.wav", name, customer)
    Refusing.refusals = {f"/raw/audio/{customer}": (403, "AccessDenied") for customer in ("acme", "globex")}
    lake.run()
    assert reasons(lake) == dict.fromkeys(("one", "two"), "UNFETCHABLE")
    assert not lake.pending()
    Refusing.refusals = {}
    assert lake.retry().recovered == 2


def test_a_bucket_that_is_gone_is_no_fault_of_its_objects(
    gate: str, s3_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = Pointer("audio/acme/2026-03-01/a.wav", 3, "audio/wav", hashlib.sha256(b"abc").hexdigest()).to_dict()
    with pytest.raises(Unavailable, match="NoSuchBucket"):
        fetcher_at(gate, s3_settings, "no-such-bucket", tmp_path).verify(pointer)


def test_the_true_size_counts_on_s3_too_and_no_more_is_asked_for_than_is_claimed(
    gate: str, s3_settings: Settings, bucket: str, tmp_path: Path
) -> None:
    store = open_raw_store(f"s3://{bucket}/raw", s3_settings)
    pointer = store.put_bytes("audio/acme/2026-03-01/big.wav", bytes(3 << 20), "audio/wav").to_dict()
    fetcher = fetcher_at(gate, s3_settings, bucket, tmp_path)
    for claimed in (1, 1 << 20):
        with pytest.raises(DataFault, match="TOO_LARGE"):
            fetcher.verify({**pointer, "size": claimed})
    fetcher.verify({**pointer, "size": 7, "checksum": hashlib.sha256(bytes(7)).hexdigest()})
