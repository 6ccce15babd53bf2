"""The bytes of one object, or the reason why not: one fault is one object's, no more is read than is claimed."""

import hashlib
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import media
import pytest

from headwater.demo.drawing import wav_bytes
from headwater.errors import DataFault, Unavailable
from headwater.flow.derive import fetch as fetching
from headwater.flow.derive.fetch import Fetcher
from headwater.flow.derive.sandbox import Sandbox
from headwater.flow.derive.source import Limits
from headwater.storage.raw.directory_store import DirectoryRawStore

NOBODY = 65534
KEY = "audio/acme/2026-03-01/a.wav"
OTHER = "audio/globex/2026-03-01/b.wav"
DATA = b"some bytes of a call"


@pytest.fixture
def raw() -> Iterator[DirectoryRawStore]:
    """Where everybody gets to, unlike pytest's own directories."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield DirectoryRawStore(Path(directory, "raw"))


def fetcher_of(root: Path | str, **limits: Any) -> Fetcher:
    values = {f"limits.{name}": value for name, value in limits.items()}
    return Fetcher({"lake": "/", "settings": {"raw.uri": str(root), **values}}, Limits.from_settings(values))


def reason_of(fetcher: Fetcher, pointer: dict[str, Any], mates: tuple[str, ...] = ()) -> str:
    """The same, whether the bytes are wanted or only verified."""
    reasons = []
    for attempt in (lambda: fetcher.verify(pointer, mates), lambda: fetcher.fetched(pointer, mates).__enter__()):
        with pytest.raises(DataFault) as fault:
            attempt()
        reasons.append(fault.value.reason)
    assert reasons[0] == reasons[1]
    return reasons[0]


@contextmanager
def powerless() -> Iterator[None]:
    """Root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("locked", [KEY, "audio/acme"], ids=["the file", "its customer's folder"])
def test_an_object_that_may_not_be_read_is_its_own_fault_while_others_may(raw: DirectoryRawStore, locked: str) -> None:
    pointer, other = asdict(raw.put_bytes(KEY, DATA, "audio/wav")), asdict(raw.put_bytes(OTHER, DATA, "audio/wav"))
    fetcher = fetcher_of(raw.root)
    fetcher.verify(other)
    (raw.root / locked).chmod(0)
    with powerless():
        # Known to be good; beside it in the batch; somewhere in the store.
        assert reason_of(fetcher, pointer) == "UNFETCHABLE"
        assert reason_of(fetcher_of(raw.root), pointer, (KEY, OTHER)) == "UNFETCHABLE"
        assert reason_of(fetcher_of(raw.root), pointer) == "UNFETCHABLE"
        fetcher.verify(other)
    (raw.root / locked).chmod(0o755)
    fetcher.verify(pointer)


@pytest.mark.parametrize("locked", ["", "audio/*/*/*"], ids=["the root", "every file"])
def test_a_store_that_lets_nobody_read_is_unavailable_and_nobody_is_blamed(raw: DirectoryRawStore, locked: str) -> None:
    pointer, other = asdict(raw.put_bytes(KEY, DATA, "audio/wav")), asdict(raw.put_bytes(OTHER, DATA, "audio/wav"))
    fetcher = fetcher_of(raw.root)
    fetcher.verify(other)
    for path in raw.root.glob(locked) if locked else [raw.root]:
        path.chmod(0)
    with powerless(), pytest.raises(Unavailable):
        fetcher.verify(pointer, (OTHER,))
    raw.root.chmod(0o755)


def test_the_mates_of_a_denied_customer_leave_room_for_others_to_be_asked_for(raw: DirectoryRawStore) -> None:
    """In a fresh worker, which knows of nobody that could be read."""
    paths = [f"audio/acme/2026-03-01/{number}.wav" for number in range(20)]
    pointers = [asdict(raw.put_bytes(path, path.encode(), "audio/wav")) for path in paths]
    raw.put_bytes(OTHER, DATA, "audio/wav")
    for path in paths:
        (raw.root / path).chmod(0)
    with powerless():
        assert reason_of(fetcher_of(raw.root), pointers[0], tuple(paths)) == "UNFETCHABLE"


def test_the_only_customer_of_a_store_that_gives_nothing_is_not_blamed(raw: DirectoryRawStore) -> None:
    pointers = [asdict(raw.put_bytes(f"audio/acme/2026-03-01/{n}.wav", DATA, "audio/wav")) for n in range(3)]
    for pointer in pointers:
        (raw.root / pointer["path"]).chmod(0)
    with powerless(), pytest.raises(Unavailable):
        fetcher_of(raw.root).verify(pointers[0], [pointer["path"] for pointer in pointers])


def test_the_only_object_of_a_store_that_answers_is_to_blame_for_itself(raw: DirectoryRawStore) -> None:
    pointer = asdict(raw.put_bytes(KEY, DATA, "audio/wav"))
    fetcher = fetcher_of(raw.root)
    fetcher.verify(pointer)
    (raw.root / KEY).chmod(0)
    with powerless():
        assert reason_of(fetcher, pointer) == "UNFETCHABLE"


def test_a_bad_sector_costs_one_object() -> None:
    """A process's memory is the one file that is there for everybody and cannot be read at its beginning."""
    fetcher = fetcher_of("/proc/self")
    pointer = {"path": "mem", "size": 17 << 20, "checksum": "0" * 64, "offset": 0}
    with pytest.raises(DataFault, match="Input/output error") as fault:
        fetcher.verify(pointer, ("mem", "cmdline"))
    assert fault.value.reason == "UNFETCHABLE"


def test_what_is_in_the_way_of_an_object_or_cannot_be_one_is_a_reason_of_that_object(raw: DirectoryRawStore) -> None:
    raw.put_bytes(OTHER, DATA, "audio/wav")
    (raw.root / KEY).mkdir(parents=True)
    fetcher = fetcher_of(raw.root)
    asked = {"size": len(DATA), "checksum": hashlib.sha256(DATA).hexdigest()}
    assert reason_of(fetcher, {**asked, "path": KEY}) == "MISSING_OBJECT"
    assert reason_of(fetcher, {**asked, "path": f"{OTHER}/below"}) == "MISSING_OBJECT"
    assert reason_of(fetcher, {**asked, "path": f"audio/acme/{'n' * 300}"}) == "BAD_EVENT"
    assert reason_of(fetcher, {**asked, "path": "audio/acme/../../secret"}) == "BAD_EVENT"


@pytest.mark.parametrize("small", [True, False], ids=["in memory", "in a file"])
def test_the_true_size_counts_and_never_more_is_read_than_an_event_claims(
    raw: DirectoryRawStore, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(fetching, "MEMORY_BYTES_MAX", 0)
    big = raw.root / KEY
    big.parent.mkdir(parents=True)
    with big.open("wb") as file:
        file.write(DATA)
        file.truncate(10 << 30)  # ten gigabytes, of which the disk has none
    fetcher, whole = fetcher_of(raw.root, object_mb=1), "ab" * 32
    before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    for claimed in (1, 5 << 10, 1 << 20):
        assert reason_of(fetcher, {"path": KEY, "size": claimed, "checksum": whole}) == "TOO_LARGE"
    assert reason_of(fetcher, {"path": KEY, "size": 10 << 30, "checksum": whole}) == "TOO_LARGE"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_inblock - before < 1_000
    # What it names is small and is what it says.
    stretch = {"path": KEY, "size": 5, "offset": 5, "checksum": hashlib.sha256(DATA[5:10]).hexdigest()}
    fetcher.verify(stretch)
    with fetcher.fetched(stretch) as found:
        assert (found if isinstance(found, bytes) else found.read_bytes()) == DATA[5:10]


def test_an_event_that_claims_too_little_or_too_much_is_told_so(raw: DirectoryRawStore) -> None:
    pointer = asdict(raw.put_bytes(KEY, DATA, "audio/wav"))
    for claimed in (1, len(DATA) - 1, len(DATA) + 1, 1 << 30):
        with pytest.raises(DataFault, match=f"has {len(DATA)} bytes, and its event says {claimed}") as fault:
            fetcher_of(raw.root).verify({**pointer, "size": claimed})
        assert fault.value.reason == "CORRUPT"


def test_a_large_object_is_decoded_from_the_very_file_that_was_verified(
    raw: DirectoryRawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MEMORY_BYTES_MAX", 0)
    pointer = asdict(raw.put_bytes(KEY, DATA, "audio/wav"))
    with fetcher_of(raw.root).fetched(pointer) as found:
        (raw.root / KEY).unlink()
        (raw.root / KEY).write_bytes(b"another's")
        assert isinstance(found, Path) and found.read_bytes() == DATA


def test_a_disk_without_room_for_one_object_is_no_fault_of_the_others(
    raw: DirectoryRawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MEMORY_BYTES_MAX", 0)
    data = os.urandom(3 << 20)
    raw.put_bytes(KEY, data + b"more", "audio/wav")
    stretch = {"path": KEY, "size": len(data), "checksum": hashlib.sha256(data).hexdigest()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DataFault, match="no room") as fault:
            fetcher_of(raw.root).fetched(stretch).__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fault.value.reason == "UNFETCHABLE"
    with fetcher_of(raw.root).fetched(stretch) as found:
        assert isinstance(found, Path) and found.read_bytes() == data


def test_an_object_without_a_content_type_is_judged_by_its_bytes(raw: DirectoryRawStore, tmp_path: Path) -> None:
    sound = wav_bytes(media.tone())
    sandbox = Sandbox({"lake": str(tmp_path), "settings": {"raw.uri": str(raw.root)}})
    try:
        for key, data, found in (
            (KEY, sound, "ok"),
            ("audio/acme/2026-03-01/unnamed", sound, "ok"),
            ("audio/acme/2026-03-01/odd.xyz", b"no sound at all", "fault"),
        ):
            pointer = {**asdict(raw.put_bytes(key, data, "")), "content_type": None}
            (answer,) = sandbox.derive(["probe"], "audio", pointer).values()
            assert found in answer
            assert answer.get("fault", ["UNREADABLE"])[0] == "UNREADABLE"
    finally:
        sandbox.close()
