"""Memo: what a model answered, remembered before any table is committed, so that no call is ever made twice.

Key: (checksum of the content, step, model fingerprint). Put twice is put once: a result is determined by its key, so
whichever writer comes last writes the same. One small object a result, on the lake's own store, written by the
worker that made the call.
"""

import json
from dataclasses import dataclass
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.s3 import S3Target, is_s3


@dataclass(frozen=True, slots=True)
class MemoKey:
    checksum: str
    step: str
    fingerprint: str

    @property
    def path(self) -> str:
        return f"{self.step}/{self.fingerprint}/{self.checksum[:2]}/{self.checksum}.json"


def open_memo(settings: Settings) -> "Memo":
    uri = settings.text("memo.uri")
    if is_s3(uri):
        target = S3Target.from_settings(uri, settings, "memo.uri")
        return Memo(target.store(target.session()))
    return Memo(LocalStore(uri.removeprefix("file://"), mkdir=True))


class Memo:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, key: MemoKey) -> dict[str, Any] | None:
        try:
            stored = self._store.get(key.path).bytes()
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise Unavailable(f"The memo cannot be read: {error}") from error
        result: dict[str, Any] = json.loads(bytes(stored))
        return result

    def put(self, key: MemoKey, result: dict[str, Any]) -> None:
        data = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            self._store.put(key.path, data)
        except BaseError as error:
            raise Unavailable(f"The memo cannot be written: {error}") from error
