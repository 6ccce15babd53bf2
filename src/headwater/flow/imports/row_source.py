"""Row sources: CSV, JSON lines, Parquet and what Python holds, as numbered rows of names and values.

Read a piece at a time, whatever the size. A row that cannot be read is a row with its problem, and the next follows.
"""

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from headwater.errors import InvalidRequest, NotFound
from headwater.flow.sources import Source, expand

STDIN: Final = "-"
_LINE_BYTES_MAX: Final = 4 << 20
_LIST_BYTES_MAX: Final = 64 << 20
_CELL_LETTERS_MAX: Final = 2 << 20  # a quote that nobody closes takes in no more than this
_HEAD_BYTES: Final = 1 << 16
_ROWS_AT_ONCE: Final = 2_048
_BYTES_AT_ONCE: Final = 8 << 20  # of Parquet and Arrow; fewer rows where they are long
_DELIMITERS: Final = ",;\t|"
_CSV: Final = {".csv", ".tsv", ".txt"}
_JSON: Final = {".jsonl", ".ndjson", ".json"}
_PARQUET: Final = {".parquet", ".pq"}
_IN_FOLDERS: Final = {".csv", ".tsv", *_JSON, *_PARQUET} - {".json"}


class Row(NamedTuple):
    """A row by its line in its source, counted from 1; of Parquet and of what Python holds by its number."""

    line: int
    values: Mapping[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RowSource:
    """`columns` are known before the first row, where the source tells. `place` says how far it is read, 0 to 1."""

    name: str
    columns: Sequence[str] | None
    rows: Iterator[Row]
    folder: Path = Path()
    place: Callable[[], float | None] = lambda: None


def open_sources(
    names: Sequence[str | Path], *, encoding: str | None = None, delimiter: str | None = None
) -> Iterator[RowSource]:
    """Each file, and in each folder those whose ending says that they hold rows; `-` is standard input."""
    for name in names:
        if str(name) == STDIN:
            yield _open_text(STDIN, sys.stdin.buffer, Path(), encoding, delimiter, None)
            continue
        sources = _found(name)
        if not sources:
            raise NotFound(f"{name} holds no file of rows. Name one that ends in {' '.join(sorted(_IN_FOLDERS))}.")
        for source in sources:
            yield from _open_file(source, encoding, delimiter)


def rows_of(given: Any) -> Iterator[RowSource]:
    """What Python holds: a DataFrame of pandas or Polars, a table or a reader of Arrow, or dicts one by one."""
    if hasattr(given, "__arrow_c_stream__"):
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_stream(given)
        columns = [name for name in reader.schema.names if not name.startswith("__index_level")]
        yield RowSource("rows", columns, _rows_of_batches(batch.select(columns) for batch in reader))
        return
    if hasattr(given, "to_dict") or isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"Rows are a DataFrame, an Arrow table or dicts, not {type(given).__name__}.")
    yield RowSource("rows", None, _rows_of_dicts(given))


def _found(name: str | Path) -> list[Source]:
    named = Source(str(name))
    if not named.is_folder():
        return [named]
    return [source for source in expand([name]) if source.error or source.path.suffix.lower() in _IN_FOLDERS]


def _open_file(source: Source, encoding: str | None, delimiter: str | None) -> Iterator[RowSource]:
    path = source.path
    with source.open() as stream:
        if path.suffix.lower() in _PARQUET:
            yield _open_parquet(path, stream)
        else:
            size = os.fstat(stream.fileno()).st_size
            yield _open_text(str(path), stream, path.parent, encoding, delimiter, size)


def _open_text(
    name: str, stream: BinaryIO, folder: Path, encoding: str | None, delimiter: str | None, size: int | None
) -> RowSource:
    counted = _Counted(stream)
    head = counted.peek()
    place = (lambda: min(1.0, counted.read_bytes / size)) if size else lambda: None
    suffix = Path(name).suffix.lower()
    if suffix not in _CSV and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        return RowSource(name, None, _rows_of_dicts(_json_list(name, counted)), folder, place)
    if suffix in _JSON or (suffix not in _CSV and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"):
        return RowSource(name, None, _json_rows(counted, encoding or "utf-8"), folder, place)
    if not head:
        return RowSource(name, None, iter(()), folder, place)
    encoding = encoding or _encoding_of(head)
    try:
        first = head.decode(encoding, "replace")
    except LookupError as error:
        raise InvalidRequest(f"{encoding} is no encoding that is known. Name one such as latin-1.") from error
    lines = _decoded_lines(counted, encoding)
    reader = csv.reader(lines, delimiter=delimiter or _delimiter_of(first), strict=True)
    csv.field_size_limit(max(csv.field_size_limit(), _CELL_LETTERS_MAX))
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InvalidRequest(f"{name} does not begin with a header: {error}. Give its columns names.") from error
    if not _is_text(header):
        raise InvalidRequest(f"The header of {name} is {_not_of(encoding)}")
    columns = _unique(header)
    return RowSource(name, columns, _csv_rows(reader, columns, encoding), folder, place)


class _Counted:
    """The bytes that were taken of a stream, line by line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._head = b""
        self.read_bytes = 0

    def peek(self) -> bytes:
        """The beginning, which is read again by who reads on."""
        self._head = self._stream.read(_HEAD_BYTES) or b""
        return self._head

    def pieces(self) -> Iterator[bytes]:
        held = self._head
        while held:
            self.read_bytes += len(held)
            yield held
            held = self._stream.read(_HEAD_BYTES)

    def lines(self) -> Iterator[bytes]:
        """With their ends. Of one that is too long, as much as shows that."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
            if len(rest) > _LINE_BYTES_MAX:
                rest = rest[: _LINE_BYTES_MAX + 1]
        if rest:
            yield rest


def _decoded_lines(counted: _Counted, encoding: str) -> Iterator[str]:
    """Bytes that are no text of that encoding come as half characters, for their row to be refused by."""
    import codecs

    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    rest = ""
    for piece in chain(counted.pieces(), [None]):
        text = rest + decoder.decode(piece or b"", final=piece is None)
        *whole, rest = text.split("\n")
        yield from (line + "\n" for line in whole)
    if rest:
        yield rest


def _encoding_of(head: bytes) -> str:
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "utf-16"
    return "utf-8-sig"


def _delimiter_of(text: str) -> str:
    """The sign that stands most often between the names of the header."""
    header, quoted = text.partition("\n")[0], False
    found: Counter[str] = Counter()
    for letter in header:
        quoted ^= letter == '"'
        if not quoted and letter in _DELIMITERS:
            found[letter] += 1
    return max(_DELIMITERS, key=lambda sign: found[sign])


def _unique(header: Sequence[str]) -> list[str]:
    """A column without a name is called by its number, and the second of one name `name_2`."""
    seen: Counter[str] = Counter()
    names = []
    for number, given in enumerate(header, 1):
        name = given.strip() or f"column_{number}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names


def _csv_rows(reader: Any, columns: Sequence[str], encoding: str) -> Iterator[Row]:
    width, began = len(columns), reader.line_num
    unread = _not_of(encoding)
    while True:
        line = began + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            began = reader.line_num
            yield Row(line, {}, f"not CSV: {error}")
            continue
        began = reader.line_num
        if cells is None:
            return
        if not cells:
            continue
        values = dict(zip(columns, cells, strict=False))
        if len(cells) != width:
            yield Row(line, values, "another number of cells than the header has")
        elif not _is_text(cells):
            yield Row(line, {name: cell.encode("utf-8", "replace").decode() for name, cell in values.items()}, unread)
        else:
            yield Row(line, values)


def _not_of(encoding: str) -> str:
    return f"not {encoding.removesuffix('-sig')}: tell its encoding, as --encoding latin-1"


def _is_text(cells: Sequence[str]) -> bool:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True


def _json_rows(counted: _Counted, encoding: str) -> Iterator[Row]:
    for number, line in enumerate(counted.lines(), 1):
        if line.strip():
            yield _json_row(number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, encoding)


def _json_row(number: int, line: bytes, encoding: str) -> Row:
    if len(line) > _LINE_BYTES_MAX:
        return Row(number, {}, f"longer than {_LINE_BYTES_MAX} bytes")
    try:
        values = json.loads(line.decode(encoding))
        if b"\\u" in line:
            json.dumps(values, ensure_ascii=False).encode()  # half a character can be spelled in JSON, and kept nowhere
    except UnicodeDecodeError:
        return Row(number, {}, _not_of(encoding))
    except UnicodeEncodeError:
        return Row(number, {}, "half a character, which no text has")
    except (ValueError, RecursionError):
        return Row(number, {}, "not JSON")
    return Row(number, values) if type(values) is dict else Row(number, {}, "no JSON object")


def _json_list(name: str, counted: _Counted) -> Iterator[Any]:
    """One list of objects, which is read as a whole."""
    pieces, size = [], 0
    for piece in counted.pieces():
        size += len(piece)
        if size > _LIST_BYTES_MAX:
            raise InvalidRequest(f"{name} is one list of more than {_LIST_BYTES_MAX >> 20} MB. Write it as JSON lines.")
        pieces.append(piece)
    try:
        yield from json.loads(b"".join(pieces).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} is no JSON: {error}. Write it as JSON lines.") from error


def _open_parquet(path: Path, stream: BinaryIO) -> RowSource:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream, buffer_size=_HEAD_BYTES)  # else whole columns of a row group are read at once
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidRequest(f"{path} is no Parquet: {error}. Write it anew.") from error
    total, done = file.metadata.num_rows, 0

    def rows() -> Iterator[Row]:
        nonlocal done
        for row in _rows_of_batches(file.iter_batches(_rows_at_once(file.metadata))):
            done = row.line
            yield row

    return RowSource(str(path), file.schema_arrow.names, rows(), path.parent, lambda: done / total if total else 1.0)


def _rows_at_once(about: Any) -> int:
    """As many as fit, by the row group whose rows are the longest."""
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    return min((_fitting(group.total_byte_size, group.num_rows) for group in groups), default=_ROWS_AT_ONCE)


def _fitting(size: int, rows: int) -> int:
    return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * rows // max(1, size)))


def _rows_of_batches(batches: Iterable[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        some = _fitting(batch.nbytes, batch.num_rows)
        for start in range(0, batch.num_rows, some):
            for values in batch.slice(start, some).to_pylist():
                number += 1
                yield Row(number, values)


def _rows_of_dicts(given: Iterable[Any]) -> Iterator[Row]:
    for number, values in enumerate(given, 1):
        if not isinstance(values, Mapping):
            yield Row(number, {}, f"no dict, but {type(values).__name__}")
        elif any(not isinstance(name, str) for name in values):
            yield Row(number, {}, "a name in it is no text")
        else:
            yield Row(number, values)
