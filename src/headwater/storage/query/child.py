"""The query child: answers strangers' queries in a process that may be ended at any time.

It reads queries from its input and answers on its output, until its input ends. The engine's own limits do not hold for
all that it does: one call of `range` takes twenty gigabytes and cannot be interrupted. So memory is bounded by the
kernel, time by the parent, who ends this process; and while a query runs the kernel lets it write to no file.
"""

import json
import os
import queue
import resource
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from headwater.domain.ref import Ref
from headwater.errors import HeadwaterError, InternalError
from headwater.settings import resolve
from headwater.storage.query.engine import OutOfMemory, out_of_memory
from headwater.storage.tables.expired_scan import plan_again

LENGTH: Final = struct.Struct(">Q")
# What a value takes in Python beside its letters, about.
_VALUE_BYTES: Final = 32


def read_frame(stream: BinaryIO) -> bytes | None:
    """None where the stream has ended."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return stream.read(LENGTH.unpack(head)[0])


def frame(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


class QueryChild:
    def __init__(self, config: Mapping[str, Any]) -> None:
        from headwater.storage.tables.catalog import open_reader

        self._reader = open_reader(resolve(Path(config["lake"]), {}, config["settings"], {}))
        _load()

    def answer(self, request: Mapping[str, Any], others: Mapping[str, bytes]) -> bytes:
        try:
            with _bounded(resource.RLIMIT_DATA, _private_bytes() + (request["memory_mb"] << 20)):
                return plan_again(lambda: self._rows(request, others))
        except HeadwaterError as error:
            return _refusal(error)
        except MemoryError:
            return _refusal(out_of_memory(request["memory_mb"]))
        except Exception as error:
            return _refusal(InternalError(f"The query could not be run: {type(error).__name__}: {error}"))

    def _rows(self, request: Mapping[str, Any], others: Mapping[str, bytes]) -> bytes:
        import pyarrow as pa

        from headwater.storage.query.reader import open_answer

        given = {name: pa.ipc.open_stream(data).read_all() for name, data in others.items()}
        memory_mb, as_of = request["memory_mb"], Ref.parse(request["as_of"]) if request["as_of"] else None
        limit: int | None = request["limit"]
        lines: list[str] = []
        taken = count = 0
        with (
            open_answer(self._reader, request["query"], request["hidden"], given, memory_mb, as_of) as answer,
            _bounded(resource.RLIMIT_FSIZE, 0),
        ):
            for batch in answer.rows:
                rows = batch if limit is None else batch[: limit - count]
                count += len(batch)
                if rows:
                    text = json.dumps(rows)[1:-1]
                    taken += len(text) + _VALUE_BYTES * text.count(",") + len(rows) * sys.getsizeof(rows[0])
                    if taken > memory_mb << 20:
                        raise out_of_memory(memory_mb)
                    lines.append(text)
                if limit is not None and count > limit:
                    break
            past = f', "as_of": {json.dumps(answer.as_of)}' if answer.as_of else ""
            more = f', "more": {json.dumps(count > limit)}' if limit is not None else ""
            return f'{{"columns": {json.dumps(answer.columns)}, "rows": [{",".join(lines)}]{past}{more}}}'.encode()


def _refusal(error: HeadwaterError) -> bytes:
    kind = "InvalidRequest" if (worn := isinstance(error, OutOfMemory)) else error.kind
    return json.dumps({"error": kind, "text": str(error), "worn": worn}).encode()


def _load() -> None:
    """What a query needs, before its clock runs and its memory is counted."""
    import duckdb
    import pyarrow.ipc  # noqa: F401

    from headwater.storage.query import reader as reading  # noqa: F401

    duckdb.connect(":memory:").close()


@contextmanager
def _bounded(kind: int, bound: int) -> Iterator[None]:
    """For a while, so that the next query may have another bound."""
    before, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (bound, most))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, most))


def _private_bytes() -> int:
    """Private memory now; address space that is only mapped does not count."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def _receive(stream: BinaryIO, requests: "queue.SimpleQueue[tuple[Any, dict[str, bytes]]]") -> None:
    """In a thread of its own: a parent that dies while a query runs takes the query along."""
    while (head := read_frame(stream)) is not None:
        request = json.loads(head)
        requests.put((request, {name: read_frame(stream) or b"" for name in request["others"]}))
    os._exit(0)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever a library prints must not reach the pipe that carries answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    child = QueryChild(json.loads(read_frame(sys.stdin.buffer) or b"{}"))
    answers.write(frame(b"ready"))
    requests: queue.SimpleQueue[tuple[Any, dict[str, bytes]]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        data = frame(child.answer(*requests.get()))
        while data:
            data = data[answers.write(data) :]


if __name__ == "__main__":
    main()
