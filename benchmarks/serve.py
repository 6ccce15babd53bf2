"""What the web face adds to a search: many clients at once over HTTP, beside as many threads by the Python API.

The lake is that of benchmarks/search.py, built once and kept. A server of its own answers for so many seconds, then the
same questions are asked by as many threads of a process of its own, by as many handles of the lake as the server has.
Goals: no error, memory flat, and no more than twice the time of the Python API.

    python benchmarks/serve.py [--scratch DIRECTORY] [--rows 200000] [--clients 50] [--seconds 60] [--quick]
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from measure import Meter
from search import SEED, build, sentences

import headwater
from headwater import settings as settings_module
from headwater.flow.models.registry import load_model
from headwater.web.lakes import Lakes
from headwater.web.server import LAKES

QUESTIONS: Final = 200
WARM_SECONDS: Final = 5.0
FLAT: Final = 1.10  # of the memory at the middle of the time; Python's allocator breathes
TIMES_MAX: Final = 2.0
PYTHON: Final = "--by-python"


@dataclass(slots=True)
class Asked:
    """What so many clients got to hear."""

    seconds: float
    walls: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    memory_mb: list[float] = field(default_factory=list)

    @property
    def per_search_ms(self) -> float:
        return self.seconds * 1e3 / max(1, len(self.walls))

    def row(self, name: str) -> str:
        p50, p95 = (statistics.quantiles(self.walls, n=20)[place] * 1e3 for place in (9, 18))
        return (
            f"{name:8} {len(self.walls):8,} {len(self.walls) / self.seconds:8.1f} {p50:8.1f} {p95:8.1f} "
            f"{self.cpu_seconds:8.1f} {self.cpu_seconds * 1e3 / len(self.walls):8.1f} {self.peak_mb:8.0f}"
        )


def questions() -> list[str]:
    return [" ".join(text.split()[:6]) for text in sentences(QUESTIONS, SEED + 1)]


def ask_for(seconds: float, clients: int, open_client: Callable[[], Callable[[str], None]]) -> Asked:
    """As many clients at once, each with the next question as soon as it has its answer; the first seconds warm up."""
    asked, lock, texts = Asked(seconds), threading.Lock(), questions()
    begin = time.monotonic() + WARM_SECONDS
    end = begin + seconds

    def client(number: int) -> None:
        ask, turn = open_client(), number
        while (start := time.monotonic()) < end:
            try:
                ask(texts[turn % len(texts)])
            except Exception as error:
                with lock:
                    asked.errors.append(f"{type(error).__name__}: {error}")
            else:
                if start >= begin:
                    with lock:
                        asked.walls.append(time.monotonic() - start)
            turn += clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return asked


@contextmanager
def measured(pid: int, asked: list[Asked]) -> Iterator[None]:
    meter, done = Meter(pid), threading.Event()
    memory: list[float] = []

    def look() -> None:
        while not done.wait(1.0):
            memory.append(resident_mb(pid))

    watching = threading.Thread(target=look)
    watching.start()
    before = meter.cpu
    try:
        yield
    finally:
        done.set()
        watching.join()
        spent = meter.cpu - before
        asked[0].cpu_seconds, asked[0].peak_mb, asked[0].memory_mb = spent, meter.stop().peak_mb, memory


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)  # it has ended


def by_http(lake: Path, clients: int, seconds: float) -> Asked:
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "--lake", str(lake), "--json", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        link = _document(process.stdout)
        place, headers = urlsplit(link["address"]), {"Authorization": f"Bearer {link['token']}"}

        def open_client() -> Callable[[str], None]:
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)

            def ask(text: str) -> None:
                connection.request("GET", f"/api/v1/search?q={quote(text)}", headers=headers)
                answer = connection.getresponse()
                found = json.loads(answer.read())
                if answer.status != 200:
                    raise RuntimeError(found["error"]["message"])
                assert len(found["hits"]) == 10

            return ask

        holder: list[Asked] = []
        with measured(process.pid, holder):
            holder.append(ask_for(seconds, clients, open_client))
        return holder[0]
    finally:
        process.terminate()
        process.wait()


def _document(stream: Any) -> Any:
    """JSON over several lines, of a stream that stays open."""
    text = ""
    while line := stream.readline():
        text += line
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise RuntimeError("The server ended before it answered.")


def by_python(lake: Path, clients: int, seconds: float) -> Asked:
    """In a process of its own, as the server is."""
    given = [sys.executable, __file__, PYTHON, str(lake), str(clients), str(seconds)]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, text=True)
    holder = [Asked(seconds)]
    with measured(process.pid, holder):
        told, _ = process.communicate()
    found = json.loads(told)
    holder[0].walls, holder[0].errors = found["walls"], found["errors"]
    return holder[0]


def _python_child(lake: Path, clients: int, seconds: float) -> None:
    lakes = Lakes(lambda: headwater.open(lake), LAKES)

    def ask(text: str) -> None:
        with lakes.lent() as lent:
            assert len(lent.search(text).to_dict()["hits"]) == 10

    asked = ask_for(seconds, clients, lambda: ask)
    print(json.dumps({"walls": asked.walls, "errors": asked.errors}))
    lakes.close()


def report(http_: Asked, python: Asked) -> int:
    print(
        f"{'':8} {'searches':>8} {'a second':>8} {'p50 ms':>8} {'p95 ms':>8} {'CPU s':>8} {'CPU ms':>8} {'peak MB':>8}"
    )
    print(http_.row("HTTP"))
    print(python.row("Python"))
    times = http_.per_search_ms / python.per_search_ms
    third = len(http_.memory_mb) // 3
    middle, last = statistics.mean(http_.memory_mb[third : 2 * third]), statistics.mean(http_.memory_mb[2 * third :])
    print(f"\nHTTP takes {times:.2f} times the time of Python; goal: at most {TIMES_MAX:g}")
    print(f"memory of the server: {middle:,.0f} MB at the middle of the time, {last:,.0f} MB at its end")
    errors = http_.errors + python.errors
    print(f"errors: {len(errors)}" + "".join(f"\n  {error}" for error in sorted(set(errors))[:5]))
    return int(bool(errors) or times > TIMES_MAX or last > FLAT * middle)


def main() -> int:
    if sys.argv[1:2] == [PYTHON]:
        _python_child(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("HEADWATER_BENCH", os.path.join(tempfile.gettempdir(), "headwater-bench"))
    parser.add_argument("--scratch", type=Path, default=Path(default))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="A small lake, and a few seconds.")
    options = parser.parse_args()
    rows, seconds = (5_000, 8.0) if options.quick else (options.rows, options.seconds)
    lake = options.scratch / f"search-static-{rows}"
    if not (lake / "built").exists():
        embedder = load_model("static")
        embedder.load()
        headwater.init(lake).close()
        build(settings_module.resolve(lake, {}, {}, {}), embedder, rows)
        (lake / "built").touch()
    print(f"{rows:,} embeddings, {options.clients} clients, {seconds:g} s, {os.cpu_count()} cores\n")
    http_ = by_http(lake, options.clients, seconds)
    return report(http_, by_python(lake, options.clients, seconds))


if __name__ == "__main__":
    sys.exit(main())
