"""An answer as the memo keeps it: JSON, and its vector as the bytes of 32-bit floats, which is what models give.

A vector is what is called so, in the answer itself or in its row. It comes back as a numpy array.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

Answer = dict[str, Any]
_HEAD: Final = struct.Struct("<BII")  # whether the JSON is compressed, its bytes as they stand, floats of the vector
_VECTOR, _ROW = "vector", "row"
_WORTH_PACKING: Final = 200  # bytes; below that compression gains nothing


def encode_answer(answer: Mapping[str, Any]) -> bytes:
    bare, vector = _without_vector(answer)
    text = json.dumps(bare, ensure_ascii=False, separators=(",", ":")).encode()
    packed = zlib.compress(text, 1) if len(text) > _WORTH_PACKING else text
    floats = b"" if vector is None else np.asarray(vector, dtype="<f4").tobytes()
    # A vector without numbers is not the same as none.
    count = len(floats) // 4 if vector is not None else 0xFFFFFFFF
    return _HEAD.pack(packed is not text, len(packed), count) + packed + floats


def decode_answer(data: bytes) -> Answer:
    is_packed, length, count = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    answer: Answer = json.loads(zlib.decompress(text) if is_packed else text)
    if count == 0xFFFFFFFF:
        return answer
    vector = np.frombuffer(data, dtype="<f4", count=count, offset=_HEAD.size + length)
    # Where it stood was marked by a null.
    holder = answer if _VECTOR in answer else answer[_ROW]
    holder[_VECTOR] = vector
    return answer


def _without_vector(answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    row = answer.get(_ROW)
    if _is_vector(answer.get(_VECTOR)):
        return {**answer, _VECTOR: None}, answer[_VECTOR]
    if isinstance(row, Mapping) and _is_vector(row.get(_VECTOR)):
        return {**answer, _ROW: {**row, _VECTOR: None}}, row[_VECTOR]
    return answer, None


def _is_vector(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (isinstance(value, list) and all(type(each) is float for each in value))
